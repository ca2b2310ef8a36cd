// In front of latent attention, for one head of a row: what is not rotated of its query goes to `plain`, where products take it, and what is rotated to its place in
// `absorbed`. The workgroup behind those of heads norms and rotates what is cached of the row. With PATH rows may be drafts that form trees: see `path.wgsl`.
struct Latent {
    stride: u32,
    // Where in a row of `products` what is cached begins.
    cached_at: u32,
    queries_stride: u32,
    eps: f32,
    // In `step`.
    runs_at: u32,
    table_at: u32,
    table_len: u32,
    // Of the temperature of scores: how much it grows, and the positions that share it.
    temperature: f32,
    stretch: u32,
//#if PATH
    sight_at: u32,
//#endif
}
@group(0) @binding(0) var<storage, read> products: array<f32>;
@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(2) var<storage, read_write> cache: array<u32>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
// Cosine and sine of each position and pair.
@group(0) @binding(4) var<storage, read> angles: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> weight: array<f32>;
@group(0) @binding(6) var<storage, read_write> plain: array<f32>;
@group(0) @binding(7) var<storage, read_write> absorbed: array<f32>;
@group(0) @binding(8) var<uniform> a: Latent;

const THREADS: u32 = 64u;
const DIM: u32 = 2u * PAIRS;
const RANK: u32 = 2u * VALUE_PAIRS;
const TURNS: u32 = DIM - RANK;
var<workgroup> v: array<f32, DIM>;

fn pair_of(i: u32) -> vec2<u32> {
//#if ADJACENT
    return vec2<u32>(2u * i, 2u * i + 1u);
//#else
    return vec2<u32>(i, i + TURNS / 2u);
//#endif
}
fn turned(p: vec2<f32>, angle: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(p.x * angle.x - p.y * angle.y, p.x * angle.y + p.y * angle.x);
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
    let head = group.x;
    let row = group.y;
    let cached = step[row];
//#if PATH
    let position = steps_from(path_of(row), cached);
//#else
    let position = cached;
//#endif
    if (head < HEADS) {
        let begin = row * a.queries_stride + head * (PLAIN + TURNS);
        let to = row * HEADS + head;
        let by = 1.0 + a.temperature * log(f32(1u + position / a.stretch));
        for (var i = thread; i < PLAIN_STEP; i += THREADS) {
            plain[to * PLAIN_STEP + i] = select(0.0, queries[begin + min(i, PLAIN - 1u)] * by, i < PLAIN);
        }
        for (var i = thread; i < TURNS / 2u; i += THREADS) {
            let two = pair_of(i);
            let at = begin + PLAIN;
            let p = turned(vec2<f32>(queries[at + two.x], queries[at + two.y]), angles[position * (TURNS / 2u) + i]);
            absorbed[to * DIM + RANK + two.x] = p.x * by;
            absorbed[to * DIM + RANK + two.y] = p.y * by;
        }
        return;
    }
    let start = row * a.stride + a.cached_at;
    var squares = 0.0;
    for (var i = thread; i < RANK; i += THREADS) {
        squares += products[start + i] * products[start + i];
    }
    let by = 1.0 / sqrt(reduce(squares, thread) / f32(RANK) + a.eps);
    for (var i = thread; i < RANK; i += THREADS) {
        v[i] = products[start + i] * by * weight[i];
    }
    for (var i = thread; i < TURNS / 2u; i += THREADS) {
        let two = pair_of(i);
        let at = start + RANK;
        let p = turned(vec2<f32>(products[at + two.x], products[at + two.y]), angles[position * (TURNS / 2u) + i]);
        v[RANK + two.x] = p.x;
        v[RANK + two.y] = p.y;
    }
    workgroupBarrier();
    let page = page_of(step[a.runs_at + row], cached);
    for (var pair = thread; pair < PAIRS; pair += THREADS) {
        put_pair(key_at(page, 0u, pair, cached % PAGE), vec2<f32>(v[2u * pair], v[2u * pair + 1u]));
    }
}
