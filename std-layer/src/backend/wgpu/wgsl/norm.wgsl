// Normed = Hidden / sqrt(mean(Hidden^2) + eps) * weight; with LAYER (Hidden - mean(Hidden)) / sqrt(variance(Hidden) + eps) * weight + bias. Before it
// Hidden = scale Hidden + Delta (ADD), which is normed with a weight of its own (POST). With STAYS Hidden = Normed behind it, with PASS Normed = Hidden, or with SUM nothing. A workgroup has a
// row.
struct Norm {
    cols: u32,
    stride: u32,
    eps: f32,
    scale: f32,
}
@group(0) @binding(0) var<storage, read_write> hidden: array<f32>;
//#if PASS
//#else
@group(0) @binding(1) var<storage, read> weight: array<f32>;
//#endif
//#if SUM
//#else
@group(0) @binding(2) var<storage, read_write> normed: array<f32>;
//#endif
@group(0) @binding(3) var<uniform> a: Norm;
//#if ADD
@group(0) @binding(4) var<storage, read> delta: array<f32>;
//#endif
//#if POST
@group(0) @binding(5) var<storage, read> post: array<f32>;
//#endif
//#if LAYER
@group(0) @binding(6) var<storage, read> bias: array<f32>;
//#endif

const THREADS: u32 = 128u;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
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
    let start = (group.y * groups.x + group.x) * a.stride;
//#if POST
    var squares_of_delta = 0.0;
    for (var i = thread; i < a.cols; i += THREADS) {
        squares_of_delta += delta[start + i] * delta[start + i];
    }
    let by_post = 1.0 / sqrt(reduce(squares_of_delta, thread) / f32(a.cols) + a.eps);
//#endif
//#if LAYER
    var sum = 0.0;
//#else
    var squares = 0.0;
//#endif
    for (var i = thread; i < a.cols; i += THREADS) {
        var v = hidden[start + i];
//#if ADD
        var d = delta[start + i];
//#if POST
        d *= by_post * post[i];
//#endif
        v = v * a.scale + d;
        hidden[start + i] = v;
//#endif
//#if PASS
//#if SUM
//#else
        normed[start + i] = v;
//#endif
    }
//#else
//#if LAYER
        sum += v;
    }
    // In a pass of its own, so that a large mean costs no accuracy. Each thread reads what it wrote itself.
    let mean = reduce(sum, thread) / f32(a.cols);
    var squares = 0.0;
    for (var i = thread; i < a.cols; i += THREADS) {
        let v = hidden[start + i] - mean;
//#endif
        squares += v * v;
    }
    let by = 1.0 / sqrt(reduce(squares, thread) / f32(a.cols) + a.eps);
    // Each thread reads what it wrote itself.
    for (var i = thread; i < a.cols; i += THREADS) {
//#if LAYER
        let v = (hidden[start + i] - mean) * by * weight[i] + bias[i];
//#else
        let v = hidden[start + i] * by * weight[i];
//#endif
        normed[start + i] = v;
//#if STAYS
        hidden[start + i] = v;
//#endif
    }
//#endif
}
