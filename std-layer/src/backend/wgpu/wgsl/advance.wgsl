// Behind a step with a token of each sequence: every row's position becomes the next one.
struct Advance {
    rows: u32,
}
@group(0) @binding(0) var<storage, read_write> step: array<u32>;
@group(0) @binding(1) var<uniform> a: Advance;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < a.rows) {
        step[id.x]++;
    }
}
