// The experts of each row, and their factors: those with the largest softmax or sigmoid, plus, with BIASED, the bias of choosing, and of equal ones those with
// the smaller index; see `Experts` in `config.rs`. A workgroup has a row.
struct Route {
    count: u32,
    // Numbers in a row of scores: behind the experts' may be that of the gate of a shared one.
    stride: u32,
    used: u32,
    // Whether factors are divided by their sum.
    normalised: u32,
    // Whether scores are sigmoids.
    sigmoid: u32,
    // Groups of experts, and how many of them are taken.
    groups: u32,
    groups_used: u32,
    scale: f32,
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> chosen: array<u32>;
// As bits: compilers may assume that no number is NaN, which some of these are.
@group(0) @binding(2) var<storage, read_write> factors: array<u32>;
@group(0) @binding(3) var<uniform> a: Route;
//#if BIASED
@group(0) @binding(4) var<storage, read> bias: array<f32>;
//#endif
//#if FACTORS
// What factors are multiplied by, a number for each expert.
@group(0) @binding(5) var<storage, read> own: array<f32>;
//#endif

const THREADS: u32 = 64u;
const NAN: u32 = 0x7fc00000u;
// Ranks of the infinities.
const LOWEST: u32 = 0x007fffffu;
const HIGHEST: u32 = 0xff800000u;
// In place of scores, which are 0 or more: of what is no number, and of experts of groups that are not taken.
const NO_NUMBER: f32 = -1.0;
const CLOSED: f32 = -2.0;
var<workgroup> top: atomic<u32>;
var<workgroup> bottom: atomic<u32>;
// How good each group is.
var<workgroup> merits: array<u32, 32>;

// How good an expert is, `i` being its score's place: what is no number is below all that is.
fn merit(i: u32, expert: u32) -> u32 {
    let p = scores[i];
    if (p < 0.0) {
        return select(0u, 1u, p == NO_NUMBER);
    }
//#if BIASED
    return rank(p + bias[expert]);
//#else
    return rank(p);
//#endif
}

// That of a group: of the sum of its two best experts, or, with BEST, of the best one.
fn merit_of_group(start: u32, group: u32) -> u32 {
    let size = a.count / a.groups;
    var numbers = 0u;
    var first = -3.4028234e38;
    var second = first;
    for (var i = group * size; i < (group + 1u) * size; i++) {
        var own = scores[start + i];
        if (own < 0.0) {
            continue;
        }
        numbers++;
//#if BIASED
        own += bias[i];
//#endif
        if (own > first) {
            second = first;
            first = own;
        } else {
            second = max(second, own);
        }
    }
//#if BEST
    return select(1u, rank(first), numbers >= 1u);
//#else
    return select(1u, rank(first + second), numbers >= 2u);
//#endif
}

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
    let start = group.x * a.stride;
    let pairs = group.x * a.used;
    if (thread == 0u) {
        atomicStore(&top, 0u);
        atomicStore(&bottom, HIGHEST);
    }
    workgroupBarrier();
    for (var i = thread; i < a.count; i += THREADS) {
        let r = rank(scores[start + i]);
        atomicMax(&top, r);
        atomicMin(&bottom, r);
    }
    workgroupBarrier();
    let most = atomicLoad(&top);
    // Softmax of what has NaN or infinity is NaN, and of negative infinity alone 0: then experts are equal.
    let is_nan = most == HIGHEST || atomicLoad(&bottom) == 0u;
    let usual = !is_nan && most > LOWEST;
    let largest = bitcast<f32>(select(~most, most & 0x7fffffffu, (most >> 31u) == 1u));
    var sum = 0.0;
    for (var i = thread; i < a.count; i += THREADS) {
        if (a.sigmoid == 1u) {
            // Beyond it the result is 0, or 1, to all digits; exp would overflow.
            let x = clamp(scores[start + i], -87.0, 87.0);
            scores[start + i] = select(1.0 / (1.0 + exp(-x)), NO_NUMBER, rank(scores[start + i]) == 0u);
            continue;
        }
        let below = scores[start + i] - largest;
        // Farther below it is 0 to all digits.
        let e = select(0.0, exp(max(below, -87.0)), usual && below >= -87.0);
        scores[start + i] = e;
        sum += e;
    }
    let total = reduce(sum, thread);
    for (var i = thread; i < a.count; i += THREADS) {
        if (a.sigmoid == 0u) {
            scores[start + i] = select(select(0.0, NO_NUMBER, is_nan), scores[start + i] / total, usual);
        }
    }
    storageBarrier();
    if (a.groups > 1u) {
        for (var group = thread; group < a.groups; group += THREADS) {
            merits[group] = merit_of_group(start, group);
        }
        workgroupBarrier();
        storageBarrier();
        for (var i = thread; i < a.count; i += THREADS) {
            let group = i * a.groups / a.count;
            var before = 0u;
            for (var k = 0u; k < a.groups; k++) {
                before += u32(merits[k] > merits[group] || (merits[k] == merits[group] && k < group));
            }
            if (before >= a.groups_used) {
                scores[start + i] = CLOSED;
            }
        }
        storageBarrier();
    }
    // An expert's place is the number of those before it.
    for (var i = thread; i < a.count; i += THREADS) {
        let r = merit(start + i, i);
        var before = 0u;
        for (var k = 0u; k < a.count && before < a.used; k++) {
            let other = merit(start + k, k);
            before += u32(other > r || (other == r && k < i));
        }
        if (before < a.used) {
            chosen[pairs + before] = i;
            factors[pairs + before] = bitcast<u32>(scores[start + i]);
        }
    }
    storageBarrier();
    if (thread == 0u) {
        var by = 1.0;
        var all_numbers = true;
        if (a.normalised == 1u) {
            by = 1e-20;
            for (var k = 0u; k < a.used; k++) {
                let score = bitcast<f32>(factors[pairs + k]);
                all_numbers &= score >= 0.0;
                by += score;
            }
        }
        for (var k = 0u; k < a.used; k++) {
            let score = bitcast<f32>(factors[pairs + k]);
            var factor = score / by * a.scale;
//#if FACTORS
            factor *= own[chosen[pairs + k]];
//#endif
            factors[pairs + k] = select(NAN, bitcast<u32>(factor), all_numbers && score >= 0.0);
        }
    }
}
