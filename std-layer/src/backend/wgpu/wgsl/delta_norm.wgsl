// Behind the gated delta rule, for one head of values of a row: the RMS norm, times SiLU of the head's gates.
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
    let first = group.y * a.mixed_stride + group.x * SIZE;
    let gates = group.y * a.stride + CHANNELS + group.x * SIZE;
    var squares = 0.0;
    for (var i = thread; i < SIZE; i += THREADS) {
        squares += mixed[first + i] * mixed[first + i];
    }
    let by = 1.0 / sqrt(reduce(squares, thread) / f32(SIZE) + a.eps);
    // Each thread reads what it wrote itself, or nobody has written.
    for (var i = thread; i < SIZE; i += THREADS) {
        mixed[first + i] *= by * weight[i] * silu(heads[gates + i]);
    }
}
