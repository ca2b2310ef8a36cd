// In front of `heads.wgsl`: all queries of a row, and all its keys, in place: x / sqrt(mean(x^2) + eps) * weight. A workgroup has one or the other.
struct NormHeads {
    stride: u32,
    eps: f32,
    queries: u32,
    keys: u32,
}
@group(0) @binding(0) var<storage, read_write> heads: array<f32>;
// Weights of queries, then of keys.
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<uniform> a: NormHeads;

const THREADS: u32 = 128u;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
//#if SUBGROUPS
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(num_subgroups) subgroups: u32,
//#endif
) {
//#if SUBGROUPS
    place = Place(subgroup, lane, subgroups);
//#endif
    let of_queries = group.x == 0u;
    let first = select(a.queries, 0u, of_queries);
    let cols = select(a.keys, a.queries, of_queries);
    let start = group.y * a.stride + first;
    var squares = 0.0;
    for (var i = thread; i < cols; i += THREADS) {
        squares += heads[start + i] * heads[start + i];
    }
    let by = 1.0 / sqrt(reduce(squares, thread) / f32(cols) + a.eps);
    for (var i = thread; i < cols; i += THREADS) {
        heads[start + i] *= by * weight[first + i];
    }
}
