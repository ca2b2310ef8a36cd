// The largest logit of each row. A workgroup has a row.
struct Argmax {
    vocabulary: u32,
    // The first row.
    row: u32,
}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> token: array<u32>;
@group(0) @binding(2) var<uniform> a: Argmax;

var<private> at_row: u32;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    at_row = group.x * a.vocabulary;
    let chosen = largest(thread);
    if (thread == 0u) {
        token[a.row + group.x] = chosen;
    }
}
