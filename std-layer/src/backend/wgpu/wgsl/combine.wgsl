// Delta = the sum of what a row's experts give, times their factors, from the first that was taken to the last. With SHARED, Delta is what the network beside
// them has given, which comes first; with GATED times the logistic function of the last score. With SCALED factors have multiplied
// what experts took, and do not multiply what they give.
struct Combine {
    cols: u32,
    delta_stride: u32,
    outputs_stride: u32,
    used: u32,
    scores_stride: u32,
}
@group(0) @binding(0) var<storage, read_write> delta: array<f32>;
@group(0) @binding(1) var<storage, read> outputs: array<f32>;
//#if SCALED
//#else
@group(0) @binding(2) var<storage, read> factors: array<f32>;
//#endif
@group(0) @binding(3) var<uniform> a: Combine;
//#if GATED
@group(0) @binding(4) var<storage, read> scores: array<f32>;
//#endif

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= a.cols) {
        return;
    }
    let at = id.y * a.delta_stride + id.x;
//#if GATED
    // Below it the result is 0 to all digits; exp would overflow.
    let score = max(scores[(id.y + 1u) * a.scores_stride - 1u], -87.0);
    var sum = delta[at] / (1.0 + exp(-score));
//#else
//#if SHARED
    var sum = delta[at];
//#else
    var sum = 0.0;
//#endif
//#endif
    for (var pair = id.y * a.used; pair < (id.y + 1u) * a.used; pair++) {
//#if SCALED
        sum += outputs[pair * a.outputs_stride + id.x];
//#else
        sum += factors[pair] * outputs[pair * a.outputs_stride + id.x];
//#endif
    }
    delta[at] = sum;
}
