// For one head of channels of a row: the convolution with the inputs of TAPS - 1 tokens before it. In front of linear attention, SiLU of that: heads of queries come
// first, then those of keys, then values. So many of either are NORMED: divided by their length, queries by the root of their size, too. With GATED sums are
// multiplied by gates. Where none are normed, a head is any channels, and the last one may have fewer.
struct Convolve {
    stride: u32,
    eps: f32,
    runs_at: u32,
    table_at: u32,
    table_len: u32,
    run_ends_at: u32,
    to_stride: u32,
}
@group(0) @binding(0) var<storage, read> heads: array<f32>;
@group(0) @binding(1) var<storage, read> states: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read> convolution: array<f32>;
@group(0) @binding(4) var<storage, read_write> convolved: array<f32>;
@group(0) @binding(5) var<uniform> a: Convolve;
//#if BIAS
@group(0) @binding(6) var<storage, read> bias: array<f32>;
//#endif

const THREADS: u32 = 64u;
// Channels of a thread.
const OWN: u32 = (HEAD + THREADS - 1u) / THREADS;

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
    let head = group.x;
    let row = group.y;
    let run = step[a.runs_at + row];
    // Inputs of so many tokens before this one are in this step, and so many there are at all.
    let here = row - first_of(run);
    let position = step[row];
    let state = state_of(run);
    var v: array<f32, OWN>;
    var squares = 0.0;
    for (var o = 0u; o < OWN; o++) {
        let i = thread + o * THREADS;
        let channel = head * HEAD + i;
        if (i < HEAD && channel < CHANNELS) {
//#if BIAS
            var sum = bias[channel];
//#else
            var sum = 0.0;
//#endif
            for (var tap = 0u; tap < TAPS; tap++) {
                let before = TAPS - 1u - tap;
                var x = 0.0;
                if (before <= here) {
                    x = input(row - before, a.stride, channel);
                } else if (before <= position) {
                    x = states[state + (tap + here) * CHANNELS + channel];
                }
                sum += convolution[tap * CHANNELS + channel] * x;
            }
//#if GATED
            convolved[row * a.to_stride + channel] = sum * heads[row * a.stride + CHANNELS + channel];
//#endif
//#if LINEAR
            v[o] = silu(sum);
            squares += v[o] * v[o];
//#endif
        }
    }
//#if LINEAR
    var by = 1.0 / sqrt(reduce(squares, thread) + a.eps);
    if (head < NORMED) {
        by /= sqrt(f32(HEAD));
    } else if (head >= 2u * NORMED) {
        by = 1.0;
    }
    for (var o = 0u; o < OWN; o++) {
        let i = thread + o * THREADS;
        if (i < HEAD && head * HEAD + i < CHANNELS) {
            convolved[row * a.to_stride + head * HEAD + i] = v[o] * by;
        }
    }
//#endif
}
