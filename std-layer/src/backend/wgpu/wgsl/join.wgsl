// Joins the pieces of attention of one head of a row, in order; with GATES as `attend.wgsl` has them.
struct Join {
    mixed_stride: u32,
    window: u32,
    piece: u32,
    pieces: u32,
    // Of gates.
    stride: u32,
//#if PATH
    sight_at: u32,
//#endif
}
@group(0) @binding(0) var<storage, read> partial: array<f32>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> mixed: array<f32>;
@group(0) @binding(3) var<uniform> a: Join;
//#if GATES
@group(0) @binding(4) var<storage, read> heads: array<f32>;
//#endif

const DIM: u32 = 2u * VALUE_PAIRS;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let row = group.y;
    let cached = step[row];
//#if PATH
    let position = steps_from(path_of(row), cached);
//#else
    let position = cached;
//#endif
    var start = 0u;
    if (a.window > 0u && position + 1u > a.window) {
        start = (position + 1u - a.window) / a.piece;
    }
    let to = cached / a.piece + 1u;
    let first = (row * HEADS + head) * a.pieces;
    var top = -3.0e38;
    for (var i = start; i < to; i++) {
        top = max(top, partial[(first + i) * (DIM + 2u) + DIM]);
    }
    var total = 0.0;
    for (var i = start; i < to; i++) {
        let at = (first + i) * (DIM + 2u) + DIM;
        total += exp(partial[at] - top) * partial[at + 1u];
    }
    for (var d = thread; d < DIM; d += 64u) {
        var sum = 0.0;
        for (var i = start; i < to; i++) {
            let at = (first + i) * (DIM + 2u);
            sum += exp(partial[at + DIM] - top) * partial[at + d];
        }
        sum /= total;
//#if GATES
        sum *= sigmoid(heads[row * a.stride + head * STEP + DIM + d]);
//#endif
        mixed[row * a.mixed_stride + head * MIXED_STEP + d] = sum;
    }
}
