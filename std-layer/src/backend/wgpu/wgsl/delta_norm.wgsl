// Behind linear attention, for values of a row that are normed together: the RMS norm, times SiLU of their gates; in a state SPACE the RMS norm of the products with
// SiLU of their gates, which has a weight for each value of the row.
struct DeltaNorm {
    stride: u32,
    mixed_stride: u32,
    eps: f32,
}
@group(0) @binding(0) var<storage, read> heads: array<f32>;
@group(0) @binding(1) var<storage, read_write> mixed: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<uniform> a: DeltaNorm;

const THREADS: u32 = 64u;

@compute @workgroup_size(64)
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
    let first = group.y * a.mixed_stride + group.x * NORMED_TOGETHER;
    let gates = group.y * a.stride + CHANNELS + group.x * NORMED_TOGETHER;
    var squares = 0.0;
    for (var i = thread; i < NORMED_TOGETHER; i += THREADS) {
//#if SPACE
        mixed[first + i] *= silu(heads[gates + i]);
//#endif
        squares += mixed[first + i] * mixed[first + i];
    }
    let by = 1.0 / sqrt(reduce(squares, thread) / f32(NORMED_TOGETHER) + a.eps);
    // Each thread reads what it wrote itself, or nobody has written.
    for (var i = thread; i < NORMED_TOGETHER; i += THREADS) {
//#if SPACE
        mixed[first + i] *= by * weight[group.x * NORMED_TOGETHER + i];
//#else
        mixed[first + i] *= by * weight[i] * silu(heads[gates + i]);
//#endif
    }
}
