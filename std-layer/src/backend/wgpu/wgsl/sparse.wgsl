// Gates = max(Gates - mean - deviations * standard deviation, 0), with those of a token, which a workgroup has.
struct Sparse {
    cols: u32,
    stride: u32,
    deviations: f32,
}
@group(0) @binding(0) var<storage, read_write> gates: array<f32>;
@group(0) @binding(1) var<uniform> a: Sparse;

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
    let row = group.x * a.stride;
    var sum = 0.0;
    for (var i = thread; i < a.cols; i += THREADS) {
        sum += gates[row + i];
    }
    let mean = reduce(sum, thread) / f32(a.cols);
    var squares = 0.0;
    for (var i = thread; i < a.cols; i += THREADS) {
        let v = gates[row + i] - mean;
        squares += v * v;
    }
    let least = a.deviations * sqrt(reduce(squares, thread) / f32(a.cols));
    for (var i = thread; i < a.cols; i += THREADS) {
        // What is no number stays none.
        let v = gates[row + i] - mean;
        gates[row + i] = select(v - least, 0.0, v <= least);
    }
}
