// In front of attention, for one head of a row: bias (BIAS), bounds (BOUNDED), norm (NORM) and rotation; keys and values go to the cache. Heads of queries come
// first, then those of keys, then values. The norm is the layer norm with CENTRED; each head has weights of its own with EACH; these multiply what is rotated with BEHIND; values are normed, too, with VALUES. With PATH rows may be drafts that form trees: see `path.wgsl`.
struct Heads {
    stride: u32,
    eps: f32,
    // Pairs that are rotated.
    half: u32,
    // In `step`.
    runs_at: u32,
    table_at: u32,
    table_len: u32,
    pages: u32,
    // What a number is at most, and its negative at least.
    bound: f32,
    // Of the temperature of scores: how much it grows, and the positions that share it.
    temperature: f32,
    stretch: u32,
//#if PATH
    sight_at: u32,
//#endif
}
@group(0) @binding(0) var<storage, read_write> heads: array<f32>;
@group(0) @binding(1) var<storage, read_write> cache: array<u32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
// Cosine and sine of each position and pair.
@group(0) @binding(3) var<storage, read> angles: array<vec2<f32>>;
@group(0) @binding(4) var<uniform> a: Heads;
//#if BIAS
@group(0) @binding(5) var<storage, read> bias: array<f32>;
//#endif
//#if NORM
// Weights of the norm of queries, then of keys, then of values.
@group(0) @binding(6) var<storage, read> weight: array<f32>;
//#endif

const THREADS: u32 = 64u;
const DIM: u32 = 2u * PAIRS;
var<workgroup> v: array<f32, DIM>;

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
//#if NORM
    place = Place(subgroup, lane, subgroups);
//#endif
//#endif
    let head = group.x;
    let row = group.y;
    // Gates lie between the queries, if there are any.
    let at = select(HEADS * STEP + (head - HEADS) * DIM, head * STEP, head < HEADS);
    let start = row * a.stride + at;
    let cached = step[row];
//#if PATH
    let position = steps_from(path_of(row), cached);
//#else
    let position = cached;
//#endif
    for (var i = thread; i < DIM; i += THREADS) {
        v[i] = heads[start + i];
//#if BIAS
        v[i] += bias[at + i];
//#endif
//#if BOUNDED
        // What is no number stays none.
        v[i] = select(select(v[i], a.bound, v[i] > a.bound), -a.bound, v[i] < -a.bound);
//#endif
    }
    workgroupBarrier();
//#if NORM
//#if CENTRED
    var sum = 0.0;
    for (var i = thread; i < DIM; i += THREADS) {
        sum += v[i];
    }
    let mean = reduce(sum, thread) / f32(DIM);
    if (head < HEADS + KV_HEADS) {
        for (var i = thread; i < DIM; i += THREADS) {
            v[i] -= mean;
        }
    }
//#endif
    var squares = 0.0;
    for (var i = thread; i < DIM; i += THREADS) {
        squares += v[i] * v[i];
    }
    let by = 1.0 / sqrt(reduce(squares, thread) / f32(DIM) + a.eps);
//#if EACH
    let first = head * DIM;
//#else
    let first = select(select(DIM, 2u * DIM, head >= HEADS + KV_HEADS), 0u, head < HEADS);
//#endif
//#if VALUES
    let end = HEADS + 2u * KV_HEADS;
//#else
    let end = HEADS + KV_HEADS;
//#endif
    if (head < end) {
        for (var i = thread; i < DIM; i += THREADS) {
//#if BEHIND
            v[i] *= by;
//#else
            v[i] *= by * weight[first + i];
//#endif
        }
    }
    workgroupBarrier();
//#endif
    if (head < HEADS + KV_HEADS) {
        for (var i = thread; i < a.half; i += THREADS) {
            let angle = angles[position * a.half + i];
//#if ADJACENT
            let two = vec2<u32>(2u * i, 2u * i + 1u);
//#else
            let two = vec2<u32>(i, i + a.half);
//#endif
            let p = vec2<f32>(v[two.x], v[two.y]);
            v[two.x] = p.x * angle.x - p.y * angle.y;
            v[two.y] = p.x * angle.y + p.y * angle.x;
        }
    }
    workgroupBarrier();
//#if BEHIND
    if (head < HEADS + KV_HEADS) {
        for (var i = thread; i < DIM; i += THREADS) {
            v[i] *= weight[first + i];
        }
    }
    workgroupBarrier();
//#endif
    if (head < HEADS) {
        let by = 1.0 + a.temperature * log(f32(1u + position / a.stretch));
        for (var i = thread; i < DIM; i += THREADS) {
            heads[start + i] = v[i] * by;
        }
        return;
    }
    let page = page_of(step[a.runs_at + row], cached);
    let slot = cached % PAGE;
    let kv = head - HEADS;
    for (var pair = thread; pair < PAIRS; pair += THREADS) {
        let two = vec2<f32>(v[2u * pair], v[2u * pair + 1u]);
        if (kv < KV_HEADS) {
            put_pair(key_at(page, kv, pair, slot), two);
        } else {
            put_pair(value_at(page, kv - KV_HEADS, pair, slot), two);
        }
    }
}
