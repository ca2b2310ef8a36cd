// Rows whose logits are asked for, one behind the other.
struct Gather {
    cols: u32,
    stride: u32,
    outputs_at: u32,
}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> kept: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<uniform> a: Gather;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < a.cols) {
        kept[id.y * a.stride + id.x] = x[step[a.outputs_at + id.y] * a.stride + id.x];
    }
}
