// Several residual streams, of which `hidden` is the first: see `Streams` in `model/streams.rs`. A workgroup has a token. What is computed is one of the options below.
struct Streams {
    cols: u32,
    count: u32,
    eps: f32,
    // Of TAKE and MERGE: a stream by its number among those but the first.
    other: u32,
}
@group(0) @binding(0) var<uniform> a: Streams;
//#if HIDDEN
@group(0) @binding(1) var<storage, read_write> hidden: array<f32>;
//#endif
//#if OTHERS
@group(0) @binding(2) var<storage, read_write> others: array<f32>;
//#endif
//#if PREDICTED
@group(0) @binding(3) var<storage, read_write> predicted: array<f32>;
//#endif
//#if NORMED
@group(0) @binding(4) var<storage, read_write> normed: array<f32>;
//#endif
//#if DELTA
@group(0) @binding(5) var<storage, read> delta: array<f32>;
//#endif
//#if WEIGHT
@group(0) @binding(6) var<storage, read> weight: array<f32>;
//#endif
//#if ROUTER
@group(0) @binding(7) var<storage, read> router: array<f32>;
@group(0) @binding(8) var<storage, read> matrix: array<f32>;

// As many as there may be streams, and their square.
var<workgroup> numbers: array<f32, 8>;
var<workgroup> factors: array<f32, 64>;
//#endif

const THREADS: u32 = 128u;
// What divisors are at least.
const LEAST: f32 = 0.0031622777;

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
//#if TAKE
//#else
//#if SUBGROUPS
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(num_subgroups) subgroups: u32,
//#endif
//#endif
) {
//#if TAKE
//#else
//#if SUBGROUPS
    place = Place(subgroup, lane, subgroups);
//#endif
//#endif
    let row = group.x * a.cols;
    let first = row * (a.count - 1u);
//#if LENGTH
    // The mean of squares of the first stream.
    var squares = 0.0;
    for (var i = thread; i < a.cols; i += THREADS) {
        squares += hidden[row + i] * hidden[row + i];
    }
    let mean = reduce(squares, thread) / f32(a.cols);
//#endif
//#if DELTA
    var squares_of_delta = 0.0;
    for (var i = thread; i < a.cols; i += THREADS) {
        squares_of_delta += delta[row + i] * delta[row + i];
    }
    let mean_of_delta = reduce(squares_of_delta, thread) / f32(a.cols);
//#endif
//#if ROUTER
    for (var n = 0u; n < a.count; n++) {
        var sum = 0.0;
        for (var i = thread; i < a.cols; i += THREADS) {
            sum += router[n * a.cols + i] * hidden[row + i];
        }
        // Of numbers beyond these it is 1, or -1, to all digits.
        let number = tanh(clamp(reduce(sum, thread) / sqrt(mean + a.eps), -15.0, 15.0));
        if (thread == 0u) {
            numbers[n] = number;
        }
    }
    workgroupBarrier();
    if (thread < FACTORS) {
        var factor = 0.0;
        for (var n = 0u; n < a.count; n++) {
            factor += matrix[thread * a.count + n] * numbers[n];
        }
        factors[thread] = factor;
    }
    workgroupBarrier();
//#endif
//#if SPLIT
    for (var j = 0u; j + 1u < a.count; j++) {
        let at = first + j * a.cols;
        var own = 0.0;
        for (var i = thread; i < a.cols; i += THREADS) {
            own += others[at + i] * others[at + i];
        }
        let by = sqrt(mean) / max(sqrt(reduce(own, thread) / f32(a.cols)), LEAST);
        for (var i = thread; i < a.cols; i += THREADS) {
            others[at + i] *= by;
        }
    }
//#endif
    for (var i = thread; i < a.cols; i += THREADS) {
//#if PREDICT
        var old: array<f32, 8>;
        old[0] = hidden[row + i];
        for (var j = 1u; j < a.count; j++) {
            old[j] = others[first + (j - 1u) * a.cols + i];
        }
        for (var o = 0u; o < a.count; o++) {
            var v = old[o];
            for (var j = 0u; j < a.count; j++) {
                v += factors[o * a.count + j] * old[j];
            }
            if (o == 0u) {
                hidden[row + i] = v;
                predicted[row + i] = v;
            } else {
                others[first + (o - 1u) * a.cols + i] = v;
            }
        }
//#endif
//#if LOW_RANK
        let root = (hidden[row + i] + normed[row + i]) * 0.70710678;
        hidden[row + i] = root + delta[row + i] * weight[i] / sqrt(mean_of_delta + a.eps);
//#endif
//#if CORRECT
        let lacking = hidden[row + i] - predicted[row + i];
        let v = predicted[row + i] + (1.0 + factors[0]) * lacking;
        for (var j = 1u; j < a.count; j++) {
            others[first + (j - 1u) * a.cols + i] += (1.0 + factors[j]) * lacking;
        }
        hidden[row + i] = v;
        normed[row + i] = v * weight[i];
//#endif
//#if ADD
        let v = delta[row + i] * weight[i] / sqrt(mean_of_delta + a.eps);
        for (var j = 0u; j + 1u < a.count; j++) {
            others[first + j * a.cols + i] += v;
        }
//#endif
//#if TAKE
        normed[row + i] = others[first + a.other * a.cols + i];
//#endif
//#if MERGE
        var sum = hidden[row + i];
        if (a.other > 0u) {
            sum = predicted[row + i];
        }
        sum += delta[row + i] * sqrt(mean) / max(sqrt(mean_of_delta), LEAST);
        predicted[row + i] = sum;
        if (a.other + 2u == a.count) {
            hidden[row + i] = sum / f32(a.count);
        }
//#endif
    }
}
