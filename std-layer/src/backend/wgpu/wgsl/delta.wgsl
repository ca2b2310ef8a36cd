// Linear attention for all tokens of a run, one after the other: a workgroup has SIDE of the ROWS rows of the matrix S of a head of values, and LANES threads share a row,
// which they keep meanwhile. What a token needs of S are S k and S q, both of the same S, so that threads add up their parts once for each token:
//     d = beta (v - decay S k)
//     y = decay S q + d (k q)            which is S q behind the next line
//     S = decay S + d k^T
// That is the gated delta rule. In a state SPACE d = length v, and the skip of the head, times v, is added to y.
// All workgroups of a run together keep the last inputs of the convolution, which nobody reads any more.
struct Delta {
    stride: u32,
    mixed_stride: u32,
    table_at: u32,
    table_len: u32,
    run_ends_at: u32,
}
@group(0) @binding(0) var<storage, read> heads: array<f32>;
@group(0) @binding(1) var<storage, read_write> states: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read> convolved: array<f32>;
@group(0) @binding(4) var<storage, read> decay_bias: array<f32>;
@group(0) @binding(5) var<storage, read> rate: array<f32>;
@group(0) @binding(6) var<storage, read_write> mixed: array<f32>;
@group(0) @binding(7) var<uniform> a: Delta;
//#if SPACE
@group(0) @binding(8) var<storage, read> skip: array<f32>;
//#endif

const THREADS: u32 = 64u;
const LANES: u32 = THREADS / SIDE;
// Workgroups that share a head.
const BLOCKS: u32 = (ROWS + SIDE - 1u) / SIDE;
// Columns of a thread.
const OWN: u32 = (SIZE + LANES - 1u) / LANES;
// Of two tokens, so that none overwrites what is still read of the one before it.
var<workgroup> sums: array<vec3<f32>, 2u * THREADS>;

// ln(1 + exp(x)). What is added to the larger one of x and 0 is ln(1 + t) = 2 artanh(z) with z = t / (2 + t), at most 1 / 3; what the series leaves out is 2e-8
// of it at most.
fn softplus(x: f32) -> f32 {
    let t = exp(-abs(x));
    let z = t / (2.0 + t);
    let s = z * z;
    var series = 1.0 / 13.0;
    for (var n = 11.0; n > 0.0; n -= 2.0) {
        series = series * s + 1.0 / n;
    }
    return max(x, 0.0) + 2.0 * z * series;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x / BLOCKS;
    let side = thread / LANES;
    let lane = thread % LANES;
    let i = (group.x % BLOCKS) * SIDE + side;
    let element = min(i, ROWS - 1u);
    let run = group.y;
    let state = state_of(run);
    let first = first_of(run);
    let end = end_of(run);
    let channel = group.x * THREADS + thread;
    if (channel < CHANNELS) {
        keep(channel, state, first, end, a.stride);
    }
//#if TILED
    let key_head = head % KEY_HEADS;
//#else
    let key_head = head / (VALUE_HEADS / KEY_HEADS);
//#endif
    let s_at = state + KEPT + (head * ROWS + element) * SIZE;
    var s: array<f32, OWN>;
    // What is there in front of the first position of a text is of another one.
    if (step[first] > 0u) {
        for (var o = 0u; o < OWN; o++) {
            s[o] = states[s_at + min(lane + o * LANES, SIZE - 1u)];
        }
    }
//#if SPACE
    // The number `a` of the head.
    let number_a = CHANNELS + VALUE_HEADS * ROWS + head;
//#else
    // The numbers `b` and `a` of the head.
    let number_b = CHANNELS + VALUE_HEADS * ROWS + head / DECAY_HEADS * 2u * DECAY_HEADS + head % DECAY_HEADS;
    let number_a = number_b + DECAY_HEADS;
//#endif
    for (var row = first; row < end; row++) {
        let at = row * CHANNELS;
        var k: array<f32, OWN>;
        var own = vec3<f32>(0.0);
        for (var o = 0u; o < OWN; o++) {
            let j = lane + o * LANES;
            if (j < SIZE) {
                let q = convolved[at + key_head * SIZE + j];
                k[o] = convolved[at + (KEY_HEADS + key_head) * SIZE + j];
                own += vec3<f32>(s[o] * k[o], s[o] * q, k[o] * q);
            }
        }
        let half = (row % 2u) * THREADS;
        sums[half + thread] = own;
        workgroupBarrier();
        var all = vec3<f32>(0.0);
        for (var l = 0u; l < LANES; l++) {
            all += sums[half + side * LANES + l];
        }
        let length = softplus(heads[row * a.stride + number_a] + decay_bias[head]);
        let decay = exp(rate[head] * length);
        let v = convolved[at + 2u * KEY_HEADS * SIZE + head * ROWS + element];
//#if SPACE
        let d = length * v;
        let more = skip[head] * v;
//#else
        let d = sigmoid(heads[row * a.stride + number_b]) * (v - decay * all.x);
        let more = 0.0;
//#endif
        for (var o = 0u; o < OWN; o++) {
            s[o] = decay * s[o] + d * k[o];
        }
        if (lane == 0u && i < ROWS) {
            mixed[row * a.mixed_stride + head * ROWS + i] = decay * all.y + d * all.z + more;
        }
    }
    for (var o = 0u; o < OWN; o++) {
        let j = lane + o * LANES;
        if (i < ROWS && j < SIZE) {
            states[s_at + j] = s[o];
        }
    }
}
