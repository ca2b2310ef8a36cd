// In front of linear attention, for one head of channels of a row: the convolution with the inputs of TAPS - 1 tokens before it, and SiLU. Heads of queries come
// first, then those of keys, then values. Queries and keys are divided by their length, queries by the root of their size, too.
struct Convolve {
    stride: u32,
    eps: f32,
    runs_at: u32,
    table_at: u32,
    table_len: u32,
    run_ends_at: u32,
}
@group(0) @binding(0) var<storage, read> heads: array<f32>;
@group(0) @binding(1) var<storage, read> states: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read> convolution: array<f32>;
@group(0) @binding(4) var<storage, read_write> convolved: array<f32>;
@group(0) @binding(5) var<uniform> a: Convolve;

const THREADS: u32 = 64u;
// Channels of a thread.
const OWN: u32 = (SIZE + THREADS - 1u) / THREADS;

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
        if (i < SIZE) {
            let channel = head * SIZE + i;
            var sum = 0.0;
            for (var tap = 0u; tap < TAPS; tap++) {
                let before = TAPS - 1u - tap;
                var x = 0.0;
                if (before <= here) {
                    x = heads[(row - before) * a.stride + channel];
                } else if (before <= position) {
                    x = states[state + (tap + here) * CHANNELS + channel];
                }
                sum += convolution[tap * CHANNELS + channel] * x;
            }
            v[o] = silu(sum);
            squares += v[o] * v[o];
        }
    }
    var by = 1.0 / sqrt(reduce(squares, thread) + a.eps);
    if (head < KEY_HEADS) {
        by /= sqrt(f32(SIZE));
    } else if (head >= 2u * KEY_HEADS) {
        by = 1.0;
    }
    for (var o = 0u; o < OWN; o++) {
        let i = thread + o * THREADS;
        if (i < SIZE) {
            convolved[row * CHANNELS + head * SIZE + i] = v[o] * by;
        }
    }
}
