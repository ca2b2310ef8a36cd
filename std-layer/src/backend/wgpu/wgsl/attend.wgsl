// Attention of one row to positions of its run, for H of the query heads that share a KV head, 64 positions at a time: a thread computes the
// scores of a position, then sums up SPLIT-th parts of the positions for some pairs of elements.
// With GATES each number is multiplied by the logistic function of its gate, which is behind the queries of its head.
// With PARTS a workgroup has a piece of `piece` positions, and what it has found is joined later. With WHOLE a row sees its whole text; with PATH rows may
// be drafts that form trees, which see what is on their paths: see `path.wgsl`.
struct Attend {
    stride: u32,
    mixed_stride: u32,
    scale: f32,
    // Cap of scores; 0 is none.
    softcap: f32,
    // Positions up to the own one that are seen, and with WHOLE as many from it on; 0 is all.
    window: u32,
    runs_at: u32,
    table_at: u32,
    table_len: u32,
    pages: u32,
    piece: u32,
    pieces: u32,
//#if SIGHT
    // In `step`: with WHOLE how many positions each row's text has; with PATH the paths.
    sight_at: u32,
//#endif
}
@group(0) @binding(0) var<storage, read> heads: array<f32>;
@group(0) @binding(1) var<storage, read> cache: array<u32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read_write> mixed: array<f32>;
@group(0) @binding(4) var<uniform> a: Attend;
//#if SINKS
// Of each query head the score of a position that has no value: it is part of the sum alone.
@group(0) @binding(5) var<storage, read> sinks: array<f32>;
//#endif
//#if SLOPES
// Of each query head by how much a step of distance lowers its scores.
@group(0) @binding(6) var<storage, read> slopes: array<f32>;
//#endif

const THREADS: u32 = 64u;
const DIM: u32 = 2u * VALUE_PAIRS;
const GROUP: u32 = HEADS / KV_HEADS;
const CHUNKS: u32 = (GROUP + H - 1u) / H;
// Pairs of a thread.
const OWN: u32 = (VALUE_PAIRS + THREADS - 1u) / THREADS;
const LOWEST: f32 = -3.0e38;
//#if GATES

// What the gates of a pair let through.
fn gates_at(at: u32) -> vec2<f32> {
    return vec2<f32>(sigmoid(heads[at]), sigmoid(heads[at + 1u]));
}
//#endif
var<workgroup> q: array<vec2<f32>, H * PAIRS>;
// Scores, then weights; at last sums of pairs.
var<workgroup> s: array<f32, H * THREADS>;
var<workgroup> sums: array<vec2<f32>, THREADS>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group.z;
    let kv = group.y / CHUNKS;
    let first = kv * GROUP + (group.y % CHUNKS) * H;
    let count = min(H, (kv + 1u) * GROUP - first);
    let cached = step[row];
//#if PATH
    let path = path_of(row);
    let position = steps_from(path, cached);
//#else
    let position = cached;
//#endif
    let run = step[a.runs_at + row];
    var start = 0u;
    if (a.window > 0u && position + 1u > a.window) {
        start = position + 1u - a.window;
    }
//#if WHOLE
    var to = step[a.sight_at + row];
    if (a.window > 0u) {
        // Windows reach as far behind a token as before it. No text is so long that this overflows.
        to = min(to, position + min(a.window, to));
    }
//#else
    var to = cached + 1u;
//#endif
//#if PARTS
    start = max(start, group.x * a.piece);
    to = min(to, (group.x + 1u) * a.piece);
//#endif
    for (var i = thread; i < H * PAIRS; i += THREADS) {
        let at = row * a.stride + (first + min(i / PAIRS, count - 1u)) * STEP + (i % PAIRS) * 2u;
        q[i] = vec2<f32>(heads[at], heads[at + 1u]) * a.scale;
    }
    workgroupBarrier();
    var acc: array<vec2<f32>, H * OWN>;
    var top: array<f32, H>;
    var total: array<f32, H>;
    let part = thread / (THREADS / SPLIT);
    let mine = thread % (THREADS / SPLIT);
//#if SINKS
    // Sinks are counted once: by the first part, and in the piece with the row's own position, which is always joined.
    var of_sink = select(0.0, 1.0, part == 0u);
//#if PARTS
    of_sink = select(0.0, of_sink, group.x == cached / a.piece);
//#endif
//#endif
    for (var h = 0u; h < H; h++) {
//#if SINKS
        top[h] = max(sinks[first + min(h, count - 1u)], LOWEST);
        total[h] = of_sink;
//#else
        top[h] = LOWEST;
//#endif
    }
    // From a multiple of 64 on, so that a tile is in one page or in several whole parts of pages.
    for (var base = start - start % THREADS; base < to; base += THREADS) {
        let p = base + thread;
//#if PATH
        let seen = p >= start && p < to && is_seen(path, cached - p, a.window);
//#else
        let seen = p >= start && p < to;
//#endif
        var score = array<f32, H>();
        if (seen) {
            let page = page_of(run, p);
            for (var pair = 0u; pair < PAIRS; pair++) {
                let k = pair_at(key_at(page, kv, pair, p % PAGE));
                for (var h = 0u; h < H; h++) {
                    score[h] += dot(k, q[h * PAIRS + pair]);
                }
            }
        }
        for (var h = 0u; h < H; h++) {
            if (a.softcap > 0.0) {
                score[h] = a.softcap * tanh(clamp(score[h] / a.softcap, -20.0, 20.0));
            }
//#if SLOPES
//#if PATH
            let between = steps_from(path, cached - min(p, cached));
//#else
            let between = max(p, position) - min(p, position);
//#endif
            score[h] -= slopes[first + min(h, count - 1u)] * f32(between);
//#endif
            s[h * THREADS + thread] = select(LOWEST, score[h], seen);
        }
        workgroupBarrier();
        var keep: array<f32, H>;
        for (var h = 0u; h < H; h++) {
            var best = top[h];
            for (var i = 0u; i < THREADS; i++) {
                best = max(best, s[h * THREADS + i]);
            }
            keep[h] = exp(top[h] - best);
            top[h] = best;
        }
        workgroupBarrier();
        for (var h = 0u; h < H; h++) {
            s[h * THREADS + thread] = select(0.0, exp(score[h] - top[h]), seen);
            total[h] *= keep[h];
            for (var o = 0u; o < OWN; o++) {
                acc[h * OWN + o] *= keep[h];
            }
        }
        workgroupBarrier();
        let last = min(THREADS, to - base);
        for (var i = part; i < last; i += SPLIT) {
            if (base + i < start) {
                continue;
            }
//#if PATH
            if (!is_seen(path, cached - (base + i), a.window)) {
                continue;
            }
//#endif
            let page = page_of(run, base + i);
            for (var o = 0u; o < OWN; o++) {
                let pair = min(mine + o * THREADS, VALUE_PAIRS - 1u);
                let v = pair_at(value_at(page, kv, pair, (base + i) % PAGE));
                for (var h = 0u; h < H; h++) {
                    acc[h * OWN + o] += s[h * THREADS + i] * v;
                }
            }
            for (var h = 0u; h < H; h++) {
                total[h] += s[h * THREADS + i];
            }
        }
        workgroupBarrier();
    }
    for (var h = 0u; h < H; h++) {
        var sum = total[h];
        if (SPLIT > 1u) {
            // All threads of a part have the same total.
            sums[thread] = vec2<f32>(total[h], 0.0);
            workgroupBarrier();
            sum = 0.0;
            for (var i = 0u; i < SPLIT; i++) {
                sum += sums[i * (THREADS / SPLIT)].x;
            }
            workgroupBarrier();
        }
        for (var o = 0u; o < OWN; o++) {
            var two = acc[h * OWN + o];
            if (SPLIT > 1u) {
                sums[thread] = two;
                workgroupBarrier();
                two = vec2<f32>(0.0);
                for (var i = 0u; i < SPLIT; i++) {
                    two += sums[i * (THREADS / SPLIT) + mine];
                }
                workgroupBarrier();
            }
            let pair = mine + o * THREADS;
            if (h < count && part == 0u && pair < VALUE_PAIRS) {
//#if PARTS
                let at = ((row * HEADS + first + h) * a.pieces + group.x) * (DIM + 2u);
                mixed[at + 2u * pair] = two.x;
                mixed[at + 2u * pair + 1u] = two.y;
                if (pair == 0u) {
                    mixed[at + DIM] = top[h];
                    mixed[at + DIM + 1u] = sum;
                }
//#else
                let at = row * a.mixed_stride + (first + h) * MIXED_STEP + 2u * pair;
                two /= sum;
//#if GATES
                two *= gates_at(row * a.stride + (first + h) * STEP + DIM + 2u * pair);
//#endif
                mixed[at] = two.x;
                mixed[at + 1u] = two.y;
//#endif
            }
        }
    }
}
