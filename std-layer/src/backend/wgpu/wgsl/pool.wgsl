// Of each run of rows one: their mean, or with FIRST or LAST one of them; divided by its length, unless that is 0. A workgroup has a run.
struct Pool {
    cols: u32,
    stride: u32,
    // Where it says behind which row each run ends.
    ends_at: u32,
    // The first run here.
    run: u32,
}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> pooled: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<uniform> a: Pool;

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
    let run = a.run + group.x;
    var first = 0u;
    if (run > 0u) {
        first = step[a.ends_at + run - 1u];
    }
    var end = step[a.ends_at + run];
//#if FIRST
    end = first + 1u;
//#endif
//#if LAST
    first = end - 1u;
//#endif
    let to = group.x * a.cols;
    var squares = 0.0;
    for (var c = thread; c < a.cols; c += THREADS) {
        var sum = 0.0;
        for (var row = first; row < end; row++) {
            sum += x[row * a.stride + c];
        }
        let mean = sum / f32(end - first);
        pooled[to + c] = mean;
        squares += mean * mean;
    }
    let length = sqrt(reduce(squares, thread));
    let by = select(1.0 / length, 1.0, length == 0.0);
    // Each thread reads what it wrote itself.
    for (var c = thread; c < a.cols; c += THREADS) {
        pooled[to + c] *= by;
    }
}
