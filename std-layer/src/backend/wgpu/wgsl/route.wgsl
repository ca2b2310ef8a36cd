// The experts of each row, and their factors: those whose scores have the largest softmax, and of equal ones those with the smaller index; see
// `Experts` in `config.rs`. A workgroup has a row.
struct Route {
    count: u32,
    // Numbers in a row of scores: behind the experts' may be that of the gate of a shared one.
    stride: u32,
    used: u32,
    // Whether factors are divided by their sum.
    normalised: u32,
    scale: f32,
}
@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read_write> chosen: array<u32>;
// As bits: compilers may assume that no number is NaN, which some of these are.
@group(0) @binding(2) var<storage, read_write> factors: array<u32>;
@group(0) @binding(3) var<uniform> a: Route;

const THREADS: u32 = 64u;
const NAN: u32 = 0x7fc00000u;
// Ranks of the infinities.
const LOWEST: u32 = 0x007fffffu;
const HIGHEST: u32 = 0xff800000u;
var<workgroup> top: atomic<u32>;
var<workgroup> bottom: atomic<u32>;

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
        let below = scores[start + i] - largest;
        // Farther below it is 0 to all digits.
        let e = select(0.0, exp(max(below, -87.0)), usual && below >= -87.0);
        scores[start + i] = e;
        sum += e;
    }
    let total = reduce(sum, thread);
    for (var i = thread; i < a.count; i += THREADS) {
        scores[start + i] = select(0.0, scores[start + i] / total, usual);
    }
    storageBarrier();
    // An expert's place is the number of those before it.
    for (var i = thread; i < a.count; i += THREADS) {
        let r = rank(scores[start + i]);
        var before = 0u;
        for (var k = 0u; k < a.count && before < a.used; k++) {
            let other = rank(scores[start + k]);
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
        if (a.normalised == 1u) {
            by = 0.0;
            for (var k = 0u; k < a.used; k++) {
                by += bitcast<f32>(factors[pairs + k]);
            }
        }
        // 0 / 0 is NaN.
        let unusual = select(0u, NAN, is_nan || a.normalised == 1u);
        for (var k = 0u; k < a.used; k++) {
            let factor = bitcast<f32>(factors[pairs + k]) / by * a.scale;
            factors[pairs + k] = select(unusual, bitcast<u32>(factor), usual);
        }
    }
}
