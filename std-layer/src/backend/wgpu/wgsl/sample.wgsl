// One token for each row of logits: the one that `model::sampling` defines, from the same logits bit for bit. A workgroup has a row.
struct Sample {
    vocabulary: u32,
    // The first row.
    row: u32,
    // In `ways`: tokens of rows so far, and room for how many each has; biases of rows, and room for how many.
    history_at: u32,
    history_room: u32,
    biases_at: u32,
    biases_room: u32,
}
@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> token: array<u32>;
@group(0) @binding(2) var<uniform> a: Sample;
// For each row 16 words: how its token is chosen. Then histories, then biases: tokens in ascending order, each with its number.
@group(0) @binding(3) var<storage, read_write> ways: array<u32>;
// A copy of the logits that is worked on.
@group(0) @binding(4) var<storage, read_write> x: array<f32>;

const COUNTER: u32 = 0u;
const SEED: u32 = 2u;
const TOP_K: u32 = 4u;
const PENALISES: u32 = 5u;
const LENGTH: u32 = 6u;
const LAST_N: u32 = 7u;
const REPETITION: u32 = 8u;
const FREQUENCY: u32 = 9u;
const PRESENCE: u32 = 10u;
// log2(e) / temperature; 0 takes the largest.
const BY: u32 = 11u;
// In units of 2^-24; from 2^24 on all pass.
const TOP_P: u32 = 12u;
const MIN_P: u32 = 13u;
const BIASES: u32 = 14u;
// Always 0, which compilers do not know.
const ZERO: u32 = 15u;

var<private> way: u32;
var<private> at_row: u32;
fn word(i: u32) -> u32 {
    return ways[way + i];
}
fn number(i: u32) -> f32 {
    return bitcast<f32>(ways[way + i]);
}

// A result as it is rounded: whatever comes next cannot be contracted with it.
fn rounded(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) ^ word(ZERO));
}

// 64 bits: the low ones first.
alias Wide = vec2<u32>;
fn add(p: Wide, q: Wide) -> Wide {
    let low = p.x + q.x;
    return Wide(low, p.y + q.y + select(0u, 1u, low < p.x));
}
fn minus(p: Wide, q: Wide) -> Wide {
    return Wide(p.x - q.x, p.y - q.y - select(0u, 1u, p.x < q.x));
}
fn less(p: Wide, q: Wide) -> bool {
    return p.y < q.y || (p.y == q.y && p.x < q.x);
}
fn times(p: u32, q: u32) -> Wide {
    let low = (p & 0xffffu) * (q & 0xffffu);
    let one = (p >> 16u) * (q & 0xffffu);
    let other = (p & 0xffffu) * (q >> 16u);
    var all = add(Wide(low, (p >> 16u) * (q >> 16u)), Wide(one << 16u, one >> 16u));
    all = add(all, Wide(other << 16u, other >> 16u));
    return all;
}
// floor(all * share / 2^24).
fn share_of(all: Wide, share: u32) -> Wide {
    let high = Wide((all.x >> 24u) | (all.y << 8u), all.y >> 24u);
    let product = add(times(high.x, share), Wide(0u, high.y * share));
    let rest = times(all.x & 0xffffffu, share);
    return add(product, Wide((rest.x >> 24u) | (rest.y << 8u), rest.y >> 24u));
}

// The first word of Philox 4x32-10 (Salmon et al., 2011).
fn philox() -> u32 {
    var c = vec4<u32>(word(COUNTER), word(COUNTER + 1u), 0u, 0u);
    var k = vec2<u32>(word(SEED), word(SEED + 1u));
    for (var round = 0u; round < 10u; round++) {
        let p = times(0xd2511f53u, c.x);
        let q = times(0xcd9e8d57u, c.z);
        c = vec4<u32>(q.y ^ c.y ^ k.x, q.x, p.y ^ c.w ^ k.y, p.x);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c.x;
}

// 2^v for v in -40 to 0, of multiplications and additions that are rounded one by one.
fn exp2_exact(v: f32) -> f32 {
    let magic = 12582912.0;
    let sum = rounded(v + magic);
    let f = rounded(v - rounded(sum - magic));
    let terms = array<f32, 6>(1.3398874e-3, 9.618437e-3, 5.5503324e-2, 2.4022648e-1, 6.931472e-1, 1.0);
    var p = 1.5335362e-4;
    for (var i = 0u; i < 6u; i++) {
        p = rounded(rounded(p * f) + terms[i]);
    }
    return bitcast<f32>(bitcast<u32>(p) + ((bitcast<u32>(sum) - bitcast<u32>(magic)) << 23u));
}

// p / q of positive numbers, rounded to nearest: devices may divide less exactly.
fn divided(p: f32, q: f32) -> f32 {
    let b = vec2<u32>(bitcast<u32>(p), bitcast<u32>(q));
    if (b.x >= 0x7f800000u) {
        return p;
    }
    // Mantissas with their first bit, and exponents.
    let subnormal = b < vec2<u32>(0x00800000u);
    let shift = select(vec2<u32>(0u), countLeadingZeros(b) - 8u, subnormal);
    let m = select((b & vec2<u32>(0x7fffffu)) | vec2<u32>(0x800000u), b << shift, subnormal);
    let e = select(vec2<i32>(b >> vec2<u32>(23u)), 1 - vec2<i32>(shift), subnormal);
    var exponent = e.x - e.y + 127;
    var rest = m.x;
    if (rest < m.y) {
        rest <<= 1u;
        exponent -= 1;
    }
    // 24 bits and one behind them.
    var quotient = 0u;
    for (var i = 0u; i < 25u; i++) {
        quotient <<= 1u;
        if (rest >= m.y) {
            rest -= m.y;
            quotient |= 1u;
        }
        rest <<= 1u;
    }
    var sticky = rest != 0u;
    if (exponent >= 255) {
        return bitcast<f32>(0x7f800000u | word(ZERO));
    }
    if (exponent < 1) {
        let by = u32(min(1 - exponent, 26));
        sticky = sticky || (quotient & ((1u << by) - 1u)) != 0u;
        quotient >>= by;
        exponent = 0;
    }
    let up = (quotient & 1u) == 1u && (sticky || (quotient & 2u) == 2u);
    quotient = (quotient >> 1u) + select(0u, 1u, up);
    // The first bit of a mantissa that has one counts as the last of the exponent.
    let base = select(0u, u32(max(exponent, 1) - 1) << 23u, exponent > 0);
    return bitcast<f32>(base + quotient);
}

// Biases and penalties.
fn adjust(thread: u32) {
    let row = at_row;
    for (var i = thread; i < a.vocabulary; i += THREADS) {
        x[row + i] = logits[row + i];
    }
    storageBarrier();
    let biases = word(BIASES);
    let first_bias = a.biases_at + 2u * a.biases_room * (way / 16u);
    for (var i = thread; i < biases; i += THREADS) {
        let of_token = ways[first_bias + 2u * i];
        if (i > 0u && ways[first_bias + 2u * i - 2u] == of_token) {
            continue;
        }
        var score = x[row + of_token];
        for (var j = i; j < biases; j++) {
            if (ways[first_bias + 2u * j] != of_token) {
                break;
            }
            score = rounded(score + bitcast<f32>(ways[first_bias + 2u * j + 1u]));
        }
        x[row + of_token] = score;
    }
    storageBarrier();
    if (word(PENALISES) == 0u) {
        return;
    }
    let length = word(LENGTH);
    let recent = min(length, word(LAST_N));
    let first = a.history_at + a.history_room * (way / 16u) + length - recent;
    for (var i = thread; i < recent; i += THREADS) {
        let of_token = ways[first + i];
        if (of_token >= a.vocabulary) {
            continue;
        }
        // Whoever meets a token first does it.
        var count = 0u;
        var met = false;
        for (var j = 0u; j < recent; j++) {
            if (ways[first + j] == of_token) {
                met = met || j < i;
                count++;
            }
        }
        if (met) {
            continue;
        }
        let score = x[row + of_token];
        let by = rounded(rounded(f32(count) * number(FREQUENCY)) + number(PRESENCE));
        var scaled = rounded(score * number(REPETITION));
        if (score > 0.0) {
            scaled = divided(score, number(REPETITION));
        }
        x[row + of_token] = rounded(scaled - by);
    }
}

// What a token of this weight adds to sums: floor(weight * 2^39).
fn units(weight: f32) -> Wide {
    if (!(weight > 0.0 && weight <= 1.0)) {
        return Wide(0u);
    }
    let scaled = weight * 65536.0;
    let high = u32(scaled);
    let low = u32((scaled - f32(high)) * 8388608.0);
    return add(Wide(high << 23u, high >> 9u), Wide(low, 0u));
}

var<workgroup> bins: array<atomic<u32>, 512>;
var<workgroup> found: vec4<u32>;
// The highest rank from which on tokens are worth `goal` (not 0) together; 0 if all are not. Eight bits at a time: by the worth of all
// tokens with each. A token is worth its units, or 1 (COUNT).
fn threshold(goal: Wide, count: bool, thread: u32) -> u32 {
    var known = 0u;
    var prefix = 0u;
    var above = Wide(0u);
    for (var step = 0u; step < 4u; step++) {
        let shift = 24u - 8u * step;
        atomicStore(&bins[thread], 0u);
        atomicStore(&bins[thread + 256u], 0u);
        if (thread == 0u) {
            found = vec4<u32>(0xffffffffu, 0u, 0u, 0u);
        }
        workgroupBarrier();
        for (var i = thread; i < a.vocabulary; i += THREADS) {
            let r = rank(x[at_row + i]);
            if ((r & known) != prefix) {
                continue;
            }
            var worth = Wide(1u, 0u);
            if (!count) {
                worth = units(x[at_row + i]);
            }
            let bin = (r >> shift) & 255u;
            if (worth.x != 0u) {
                let before = atomicAdd(&bins[2u * bin], worth.x);
                worth.y += select(0u, 1u, before + worth.x < before);
            }
            if (worth.y != 0u) {
                atomicAdd(&bins[2u * bin + 1u], worth.y);
            }
        }
        workgroupBarrier();
        if (thread == 0u) {
            var sum = above;
            for (var i = 0u; i < 256u; i++) {
                let bin = 255u - i;
                let next = add(sum, Wide(atomicLoad(&bins[2u * bin]), atomicLoad(&bins[2u * bin + 1u])));
                if (!less(next, goal)) {
                    found = vec4<u32>(bin, sum.x, sum.y, 0u);
                    break;
                }
                sum = next;
            }
        }
        let result = workgroupUniformLoad(&found);
        if (result.x == 0xffffffffu) {
            return 0u;
        }
        prefix |= result.x << shift;
        known |= 255u << shift;
        above = result.yz;
        workgroupBarrier();
    }
    return prefix;
}

var<workgroup> sums: array<Wide, THREADS>;
// The units of this thread's tokens that weigh at least `floor`: consecutive ones. All threads' are in `sums` then.
fn add_up(floor: f32, range: vec2<u32>, thread: u32) {
    var mine = Wide(0u);
    for (var i = range.x; i < range.y; i++) {
        if (x[at_row + i] >= floor) {
            mine = add(mine, units(x[at_row + i]));
        }
    }
    sums[thread] = mine;
    workgroupBarrier();
}
fn sum_before(end: u32) -> Wide {
    var all = Wide(0u);
    for (var i = 0u; i < end; i++) {
        all = add(all, sums[i]);
    }
    return all;
}

fn choose(best: u32, thread: u32) -> u32 {
    let top = x[at_row + best];
    // Nobody changes it before all have read it.
    storageBarrier();
    let vocabulary = a.vocabulary;
    var least = 0u;
    let k = word(TOP_K);
    if (k > 0u && k < vocabulary) {
        least = threshold(Wide(k, 0u), true, thread);
    }
    for (var i = thread; i < vocabulary; i += THREADS) {
        let score = x[at_row + i];
        let d = rounded(rounded(score - top) * number(BY));
        var weight = 0.0;
        if (score == top) {
            weight = 1.0;
        } else if (d >= -40.0) {
            weight = exp2_exact(d);
        }
        x[at_row + i] = select(0.0, weight, rank(score) >= least);
    }
    storageBarrier();
    let share = (vocabulary + THREADS - 1u) / THREADS;
    let range = min(vec2<u32>(thread * share, (thread + 1u) * share), vec2<u32>(vocabulary));
    var floor = number(MIN_P);
    if (word(TOP_P) < 0x1000000u) {
        add_up(0.0, range, thread);
        let goal = share_of(sum_before(THREADS), word(TOP_P));
        workgroupBarrier();
        let last = threshold(select(goal, Wide(1u, 0u), (goal.x | goal.y) == 0u), false, thread);
        floor = max(floor, select(0.0, bitcast<f32>(last & 0x7fffffffu), last != 0u));
    }
    add_up(floor, range, thread);
    let goal = share_of(sum_before(THREADS), philox() >> 8u);
    let before = sum_before(thread);
    // Nothing weighs anything, not even the best: all are NaN.
    if (thread == 0u) {
        found.x = best;
    }
    workgroupBarrier();
    if (!less(goal, before) && less(goal, add(before, sums[thread]))) {
        var rest = minus(goal, before);
        for (var i = range.x; i < range.y; i++) {
            let weight = x[at_row + i];
            if (!(weight >= floor)) {
                continue;
            }
            let mine = units(weight);
            if (less(rest, mine)) {
                found.x = i;
                break;
            }
            rest = minus(rest, mine);
        }
    }
    return workgroupUniformLoad(&found).x;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    way = (a.row + group.x) * 16u;
    at_row = group.x * a.vocabulary;
    adjust(thread);
    storageBarrier();
    let best = largest(thread);
    var chosen = best;
    if (word(BY) != 0u) {
        chosen = choose(best, thread);
    }
    storageBarrier();
    if (thread == 0u) {
        token[a.row + group.x] = chosen;
        // The next token's random number, and its history.
        let counter = add(Wide(word(COUNTER), word(COUNTER + 1u)), Wide(1u, 0u));
        ways[way + COUNTER] = counter.x;
        ways[way + COUNTER + 1u] = counter.y;
        let length = word(LENGTH);
        if (word(PENALISES) != 0u && length < a.history_room) {
            ways[a.history_at + a.history_room * (way / 16u) + length] = chosen;
            ways[way + LENGTH] = length + 1u;
        }
    }
}
