// Attention of many queries at once on GPUs of AMD's; it stands for the file of the same name among CUDA's kernels. Scores are computed turned,
// keys as rows and queries as columns: then each lane has tokens of one query, and in the order in which the product with the
// values takes them.
#include "prefill.cuh"

#include "tiles.h"

// Of a lambda: a function that is called has arguments that nobody passes.
#define INLINE __attribute__((always_inline))

template <class C, u32 DIM> struct Prefill : PrefillTiles<C, DIM> {
    typedef PrefillTiles<C, DIM> Base;
    typedef typename Base::T T;
    typedef typename Base::Place Place;
    typedef typename Base::Tile Moved;
    using Base::slot, Base::scale_of, Base::slope_of, Base::share_of;
    static constexpr u32 SIDE = Base::SIDE, ROWS = Base::ROWS, BN = Base::BN, CHUNKS = Base::CHUNKS, PITCH = Base::PITCH;

    // Tiles of 16 queries that a wave has, and tokens whose scores it has at a time: without products of tiles, more take too many registers.
    static constexpr u32 MINE = SIDE * LANES / WARP, STEP = has_products() ? BN : WARP;

    // Of each query of a lane: sums of values (of 16 dimensions those that `row_of` says), the largest score, and this lane's part of the
    // sum of exponentials.
    f32 acc[DIM / 16][MINE][RESULTS], top[MINE], sum[MINE];

    // Which of 16 tokens are the numbers of a tile, counted from `tile_from()`: those whose scores the lane has; where it needs all of them, first
    // those that a lane of the first half has.
    static DEVICE u32 token_of(u32 k) { return TILE == 16 ? k % 8 * 2 + k / 8 : k; }

    // Where dimension 16 j + m of token 16 t + tile_from() + k is: a slot, with what is the same in all lanes apart from what is not. Of the
    // latter there are four at most, which registers keep; `x ^ y` is `x + (y ^ x % 8) - x % 8`.
    static DEVICE u32 value_at(u32 t, u32 k, u32 j, u32 m) {
        const u32 row = 16 * t + k, chunk = CHUNKS % 8 ? 2 * j : 2 * j ^ row % 8, fixed = CHUNKS % 8 ? 0 : chunk & 5;
        const u32 mine = CHUNKS % 8 ? m / 8 : m / 8 ^ tile_from() % 8;
        return 8 * (row * PITCH + chunk - fixed) + (8 * tile_from() * PITCH + 8 * (mine ^ fixed) + m % 8);
    }

    // Exponentials of scores of a query as a tile. Where a lane needs all 16, the other half of the wave has eight of them.
    static DEVICE Tile<T> gather(const f32 (&s)[RESULTS]) {
        Tile<T> p;
#pragma unroll
        for (u32 i = 0; i < RESULTS / 2; i++) {
            const u32 mine = narrow2(s[2 * i], s[2 * i + 1], T());
            if (TILE == RESULTS) p.w[i] = mine;
            else {
                const u32 other = shuffle_xor(mine, 16);
                p.w[i] = lane() < 16 ? mine : other;
                p.w[TILE / 2 - RESULTS / 2 + i] = lane() < 16 ? other : mine;
            }
        }
        return p;
    }

    // Of 32 tokens from number `first` on those that are there and that a query sees, the ones from `from` to `to`. A lane's first row is bit 0.
    static DEVICE u32 seen(u32 there, u32 first, i32 from, i32 to) {
        const u32 low = static_cast<u32>(least(most(from - static_cast<i32>(first), 0), 32)), high = static_cast<u32>(least(most(to - static_cast<i32>(first), 0), 32));
        // In two steps, as a word cannot be moved by 32.
        const u32 behind = ~0u << low / 2 << (low - low / 2), before = ~(~0u << high / 2 << (high - high / 2));
        return (there & behind & before) >> row_of(0);
    }

    // `position` is that of the wave's first query.
    DEVICE void tokens(const PrefillArgs& a, const T* mine, const T* keys, const T* values, const u32 (&there)[STEP / WARP], i32 token, i32 position) {
        f32 s[STEP / 16][MINE][RESULTS];
#pragma unroll
        for (u32 t = 0; t < STEP / 16; t++)
#pragma unroll
            for (u32 i = 0; i < MINE; i++)
#pragma unroll
                for (u32 r = 0; r < RESULTS; r++) s[t][i][r] = 0;
#pragma unroll 1
        for (u32 k = 0; k < CHUNKS; k += 2) {
            Tile<T> q[MINE];
            const u32 at = anew(wave_lane() % 16);
#pragma unroll
            for (u32 i = 0; i < MINE; i++) q[i] = tile_at(mine + slot(16 * i + at, k), mine + slot(16 * i + at, k + 1));
#pragma unroll
            for (u32 t = 0; t < STEP / 16; t++)
                multiply(s[t], q, [&](u32 m) { return tile_at(keys + slot(16 * t + m, k), keys + slot(16 * t + m, k + 1)); });
        }
        in_order();
        if (a.slopes) {
            const f32 slope = slope_of(a);
#pragma unroll
            for (u32 i = 0; i < MINE; i++) {
                // How far the first of these keys is behind the query.
                const i32 far = token + static_cast<i32>(row_of(0)) - (position + static_cast<i32>(16 * i + wave_lane() % 16));
#pragma unroll
                for (u32 t = 0; t < STEP / 16; t++)
#pragma unroll
                    for (u32 r = 0; r < RESULTS; r++) s[t][i][r] = fmaf(-slope, fabsf(static_cast<f32>(far + static_cast<i32>(16 * t + r * NEXT_ROW))), s[t][i][r]);
            }
        }
        in_order();
        const i32 last = position + static_cast<i32>(16 * MINE) - 1;
        if ((there[0] & there[STEP / WARP - 1]) != ~0u || token + static_cast<i32>(STEP) - 1 > position + seen_behind(a) || (a.window && token <= last - static_cast<i32>(a.window))) {
#pragma unroll
            for (u32 i = 0; i < MINE; i++) {
                // From the first of these tokens on.
                const i32 at = position + static_cast<i32>(16 * i + wave_lane() % 16) - token + 1;
                const i32 from = a.window ? at - static_cast<i32>(a.window) : 0, to = least(at + seen_behind(a), static_cast<i32>(STEP));
#pragma unroll
                for (u32 t = 0; t < STEP / 16; t++) {
                    in_order();
                    const u32 bits = seen(there[16 * t / WARP], 16 * t / WARP * WARP, from, to) >> 16 * t % WARP;
#pragma unroll
                    for (u32 r = 0; r < RESULTS; r++)
                        if (!(bits >> r * NEXT_ROW & 1)) s[t][i][r] = minus_infinity();
                }
            }
        }
        const f32 scale = scale_of(a);
#pragma unroll
        for (u32 i = 0; i < MINE; i++) {
            in_order();
            f32 best = top[i];
#pragma unroll
            for (u32 t = 0; t < STEP / 16; t++)
#pragma unroll
                for (u32 r = 0; r < RESULTS; r++) best = most(best, s[t][i][r]);
            best = over_column<Max>(best);
            // Without any token yet all are -infinity, whose difference is NaN.
            const f32 base = best == minus_infinity() ? 0 : best * scale;
            const f32 keep = top[i] == best ? 1 : exp2_fast(fmaf(top[i], scale, -base));
            top[i] = best;
            f32 total = 0;
#pragma unroll
            for (u32 t = 0; t < STEP / 16; t++)
#pragma unroll
                for (u32 r = 0; r < RESULTS; r++) total += s[t][i][r] = exp2_fast(fmaf(s[t][i][r], scale, -base));
            sum[i] = fmaf(sum[i], keep, total);
            // Largest scores change seldom after the first tokens.
            if (lanes_of(keep != 1)) {
#pragma unroll
                for (u32 j = 0; j < DIM / 16; j++)
#pragma unroll
                    for (u32 r = 0; r < RESULTS; r++) acc[j][i][r] *= keep;
            }
        }
#pragma unroll
        for (u32 t = 0; t < STEP / 16; t++) {
            Tile<T> p[MINE];
            const u32 base = anew(0);
#pragma unroll
            for (u32 i = 0; i < MINE; i++) p[i] = gather(s[t][i]), in_order();
#pragma unroll
            for (u32 j = 0; j < DIM / 16; j++) {
                in_order();
                multiply(acc[j], p, [&](u32 m) {
                    Tile<T> v;
#pragma unroll
                    for (u32 k = 0; k < TILE; k++) v.at[k] = values[value_at(t, token_of(k), j, (m + base) % 16)];
                    return v;
                });
            }
        }
    }

    DEVICE void store(const PrefillArgs& a, u64 from, u32 count) const {
#pragma unroll
        for (u32 i = 0; i < MINE; i++) {
            in_order();
            const f32 by = share_of(a, top[i], over_column<Add>(sum[i]));
            const u32 row = wave() * 16 * MINE + i * 16 + wave_lane() % 16;
            if (row >= count) continue;
            const u64 at = ((from + row) * a.heads + block_y()) * a.dim + row_of(0);
            with_type(a.y, a.type, [&](auto* y) {
                y += at;
#pragma unroll
                for (u32 j = 0; j < DIM / 16; j++)
#pragma unroll
                    for (u32 r = 0; r < RESULTS; r++)
                        // Heads are whole eights.
                        if (16 * j + row_of(r) / 8 * 8 < a.dim) narrow(y[16 * j + r * NEXT_ROW], acc[j][i][r] * by);
            });
        }
    }

    // Queries of a head from `first` on, which see tokens `from` to `to`; `position` is that of the first one.
    static DEVICE void attend(const PrefillArgs& a, u64 first, u32 count, i32 position, u32 from, u32 to) {
        T *room = shared<T>(), *keys = room + ROWS * PITCH * 8, *values = keys + BN * PITCH * 8;
        const T* mine = room + wave() * 16 * MINE * PITCH * 8;
        const u32 kv = block_y() / (a.heads / a.kv_heads);
        Prefill self;
#pragma unroll
        for (u32 i = 0; i < MINE; i++) {
            self.top[i] = minus_infinity(), self.sum[i] = 0;
#pragma unroll
            for (u32 j = 0; j < DIM / 16; j++)
#pragma unroll
                for (u32 r = 0; r < RESULTS; r++) self.acc[j][i][r] = 0;
        }
        fetch_queries<C, DIM, ROWS>(a, first, count, room, [](u32 row, u32 chunk) INLINE { return slot(row, chunk); });
        for (u32 token = from; token < to; token += BN) {
            Place place;
            const u32 me = anew(thread());
            place.find(a, kv, token, to);
            Moved tile;
            tile.begin(a, a.keys, place, keys, me);
            tile.end(keys, me);
            in_order();
            tile.begin(a, a.values, place, values, me);
            tile.end(values, me);
            copy_wait<0>();
            sync_block();
#pragma unroll 1
            for (u32 part = 0; part < BN; part += STEP) {
                u32 there[STEP / WARP];
#pragma unroll
                for (u32 i = 0; i < STEP / WARP; i++) there[i] = part ? place.there[BN / WARP - 1] : place.there[i];
                self.tokens(a, mine, keys + 8 * part * PITCH, values + 8 * part * PITCH, there, static_cast<i32>(token + part), position + static_cast<i32>(wave() * 16 * MINE));
            }
            sync_block();
        }
        self.store(a, first, count);
        sync_block();
    }
};

#define PREFILL(C, DIM) \
    KERNEL(attention_prefill_##C##_d##DIM, PrefillArgs, 128) { \
        typedef Prefill<C, DIM> Rows; \
        each_run<Rows::ROWS, Rows::BN>(a, [&](u64 first, u32 count, i32 position, u32 from, u32 to) INLINE { Rows::attend(a, first, count, position, from, to); }); \
    }
#define PREFILLS(C) PREFILL(C, 64) PREFILL(C, 80) PREFILL(C, 96) PREFILL(C, 128) PREFILL(C, 256)
PREFILLS(f16)
PREFILLS(bf16)
PREFILLS(e4m3)
