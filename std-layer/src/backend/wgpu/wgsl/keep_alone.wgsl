// Behind the convolution of a step, for some channels of a run.
struct Keep {
    stride: u32,
    table_at: u32,
    table_len: u32,
    run_ends_at: u32,
}
@group(0) @binding(0) var<storage, read> heads: array<f32>;
@group(0) @binding(1) var<storage, read_write> states: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<uniform> a: Keep;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < CHANNELS) {
        keep(id.x, state_of(id.y), first_of(id.y), end_of(id.y), a.stride);
    }
}
