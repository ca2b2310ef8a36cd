// Pairs of a row and one of its experts, sorted by expert, and tiles of up to 32 pairs with one expert. One workgroup does all.
struct Sort {
    count: u32,
    pairs: u32,
    // How many tiles there may be.
    tiles: u32,
}
// The expert of each pair.
@group(0) @binding(0) var<storage, read> chosen: array<u32>;
// Of each expert how many pairs it has, then where the next one goes.
@group(0) @binding(1) var<storage, read_write> cursors: array<atomic<u32>>;
// The pairs of the first expert, of the second one, and so on.
@group(0) @binding(2) var<storage, read_write> order: array<u32>;
// An expert, where its pairs begin in `order`, and how many there are.
@group(0) @binding(3) var<storage, read_write> tiles: array<vec4<u32>>;
@group(0) @binding(4) var<uniform> a: Sort;

const THREADS: u32 = 256u;
const TILE: u32 = 32u;
// Pairs and tiles of experts up to this one.
var<workgroup> sums: array<vec2<u32>, THREADS>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) thread: u32) {
    for (var e = thread; e < a.count; e += THREADS) {
        atomicStore(&cursors[e], 0u);
    }
    storageBarrier();
    for (var pair = thread; pair < a.pairs; pair += THREADS) {
        atomicAdd(&cursors[chosen[pair]], 1u);
    }
    storageBarrier();
    var before = vec2<u32>(0u);
    for (var first = 0u; first < a.count; first += THREADS) {
        let e = first + thread;
        var n = 0u;
        if (e < a.count) {
            n = atomicLoad(&cursors[e]);
        }
        let own = vec2<u32>(n, (n + TILE - 1u) / TILE);
        sums[thread] = own;
        workgroupBarrier();
        for (var step = 1u; step < THREADS; step *= 2u) {
            var more = vec2<u32>(0u);
            if (thread >= step) {
                more = sums[thread - step];
            }
            workgroupBarrier();
            sums[thread] += more;
            workgroupBarrier();
        }
        let at = before + sums[thread] - own;
        before += sums[THREADS - 1u];
        workgroupBarrier();
        if (e < a.count) {
            atomicStore(&cursors[e], at.x);
            for (var t = 0u; t < own.y; t++) {
                tiles[at.y + t] = vec4<u32>(e, at.x + t * TILE, min(n - t * TILE, TILE), 0u);
            }
        }
    }
    for (var t = before.y + thread; t < a.tiles; t += THREADS) {
        tiles[t] = vec4<u32>(0u);
    }
    storageBarrier();
    for (var pair = thread; pair < a.pairs; pair += THREADS) {
        order[atomicAdd(&cursors[chosen[pair]], 1u)] = pair;
    }
}
