// Scaled = a row for each pair of a row and an expert: the row of Normed, times the pair's factor.
struct Scale {
    cols: u32,
    // Of Normed and Scaled alike.
    stride: u32,
    used: u32,
}
@group(0) @binding(0) var<storage, read> normed: array<f32>;
@group(0) @binding(1) var<storage, read_write> scaled: array<f32>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;
@group(0) @binding(3) var<uniform> a: Scale;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= a.stride) {
        return;
    }
    // Inputs of products end with zeros, whatever the factor.
    let x = normed[id.y / a.used * a.stride + id.x] * factors[id.y];
    scaled[id.y * a.stride + id.x] = select(0.0, x, id.x < a.cols);
}
