// Attention of many queries at once over keys and values in pages, which lie as attention.cu says: FlashAttention-2 (Dao, 2023).
#include "prefill_wide.cuh"

// Keys arrive while the values before them are multiplied, their values while the keys are.
template <class C, u32 DIM> struct Prefill : PrefillTiles<C, DIM> {
    typedef PrefillTiles<C, DIM> Base;
    typedef typename Base::T T;
    typedef typename Base::Place Place;
    typedef typename Base::Tile Tile;
    using Base::slot, Base::behind, Base::scale_of, Base::slope_of, Base::share_of;
    static constexpr u32 SIDE = Base::SIDE, ROWS = Base::ROWS, BN = Base::BN, CHUNKS = Base::CHUNKS, PITCH = Base::PITCH;

    // What a warp has of its queries: sums of values, the largest score, and this thread's part of the sum of exponentials. Rows of
    // a tile of 16 are lane / 4 and that + 8.
    f32 acc[SIDE][DIM / 8][4], top[SIDE][2], sum[SIDE][2];

    // Scores of queries with keys, as the exponentials that values are multiplied with. `position` is that of the warp's first query.
    DEVICE void score(const PrefillArgs& a, T* mine, T* keys, const Place& place, i32 token, i32 position, u32 (&p)[SIDE][BN / 16][4]) {
        f32 s[SIDE][BN / 8][4];
#pragma unroll
        for (u32 i = 0; i < SIDE; i++)
#pragma unroll
            for (u32 j = 0; j < BN / 8; j++)
#pragma unroll
                for (u32 r = 0; r < 4; r++) s[i][j][r] = 0;
#pragma unroll
        for (u32 k = 0; k < CHUNKS; k += 2) {
            u32 q[SIDE][4];
#pragma unroll
            for (u32 i = 0; i < SIDE; i++) load_tiles<false>(q[i], mine + behind(slot(lane() % 16, lane() / 16), i * 16, k));
#pragma unroll
            for (u32 j = 0; j < BN / 8; j += 2) {
                u32 b[4];
                load_tiles<false>(b, keys + behind(slot(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2), j * 8, k));
#pragma unroll
                for (u32 i = 0; i < SIDE; i++) mma(s[i][j], q[i], {b[0], b[1]}, T()), mma(s[i][j + 1], q[i], {b[2], b[3]}, T());
            }
        }
        if (a.slopes) {
            const f32 slope = slope_of(a);
#pragma unroll
            for (u32 i = 0; i < SIDE; i++)
#pragma unroll
                for (u32 r = 0; r < 4; r++) {
                    // How far the first of these keys is behind the query.
                    const i32 far = token + static_cast<i32>(lane() % 4 * 2 + r % 2) - (position + static_cast<i32>(i * 16 + r / 2 * 8 + lane() / 4));
#pragma unroll
                    for (u32 j = 0; j < BN / 8; j++) s[i][j][r] = fmaf(-slope, fabsf(static_cast<f32>(far + static_cast<i32>(j * 8))), s[i][j][r]);
                }
        }
        const i32 last = position + static_cast<i32>(16 * SIDE) - 1;
        if (!place.all() || token + static_cast<i32>(BN) - 1 > position + seen_behind(a) || (a.window && token <= last - static_cast<i32>(a.window))) {
#pragma unroll
            for (u32 i = 0; i < SIDE; i++)
#pragma unroll
                for (u32 j = 0; j < BN / 8; j++)
#pragma unroll
                    for (u32 r = 0; r < 4; r++) {
                        const u32 column = j * 8 + lane() % 4 * 2 + r % 2;
                        const i32 at = position + static_cast<i32>(i * 16 + r / 2 * 8 + lane() / 4), t = token + static_cast<i32>(column);
                        if (!place.has(column) || t > at + seen_behind(a) || (a.window && t <= at - static_cast<i32>(a.window))) s[i][j][r] = minus_infinity();
                    }
        }
        const f32 scale = scale_of(a);
#pragma unroll
        for (u32 i = 0; i < SIDE; i++) {
            f32 keep[2];
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                f32 best = top[i][h];
#pragma unroll
                for (u32 j = 0; j < BN / 8; j++) best = most(most(best, s[i][j][2 * h]), s[i][j][2 * h + 1]);
                best = most(best, shuffle_xor(best, 1));
                best = most(best, shuffle_xor(best, 2));
                // Without any token yet all are -infinity, whose difference is NaN.
                const f32 base = best == minus_infinity() ? 0 : best * scale;
                keep[h] = top[i][h] == best ? 1 : exp2_fast(fmaf(top[i][h], scale, -base));
                top[i][h] = best;
                f32 total = 0;
#pragma unroll
                for (u32 j = 0; j < BN / 8; j++)
#pragma unroll
                    for (u32 r = 2 * h; r < 2 * h + 2; r++) total += s[i][j][r] = exp2_fast(fmaf(s[i][j][r], scale, -base));
                sum[i][h] = fmaf(sum[i][h], keep[h], total);
            }
            // Largest scores change seldom after the first tokens.
            if (lanes_of(keep[0] != 1 || keep[1] != 1)) {
#pragma unroll
                for (u32 j = 0; j < DIM / 8; j++)
#pragma unroll
                    for (u32 r = 0; r < 4; r++) acc[i][j][r] *= keep[r / 2];
            }
#pragma unroll
            for (u32 k = 0; k < BN / 16; k++)
#pragma unroll
                for (u32 r = 0; r < 4; r++) p[i][k][r] = narrow2(s[i][2 * k + r / 2][r % 2 * 2], s[i][2 * k + r / 2][r % 2 * 2 + 1], T());
        }
    }

    DEVICE void gather(T* values, const u32 (&p)[SIDE][BN / 16][4]) {
#pragma unroll
        for (u32 k = 0; k < BN / 16; k++)
#pragma unroll
            for (u32 j = 0; j < DIM / 8; j += 2) {
                u32 b[4];
                load_tiles<true>(b, values + behind(slot(lane() % 16, lane() / 16), k * 16, j));
#pragma unroll
                for (u32 i = 0; i < SIDE; i++) mma(acc[i][j], p[i][k], {b[0], b[1]}, T()), mma(acc[i][j + 1], p[i][k], {b[2], b[3]}, T());
            }
    }

    DEVICE void store(const PrefillArgs& a, u64 from, u32 count) const {
#pragma unroll
        for (u32 i = 0; i < SIDE; i++)
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                f32 total = sum[i][h] + shuffle_xor(sum[i][h], 1);
                total += shuffle_xor(total, 2);
                const f32 by = share_of(a, top[i][h], total);
                const u32 row = warp() * 16 * SIDE + i * 16 + h * 8 + lane() / 4;
                if (row >= count) continue;
                const u64 at = ((from + row) * a.heads + block_y()) * a.dim + lane() % 4 * 2;
#pragma unroll
                for (u32 j = 0; j < DIM / 8; j++)
                    if (j * 8 < a.dim) store2_as(a.y, at + j * 8, acc[i][j][2 * h] * by, acc[i][j][2 * h + 1] * by, a.type);
            }
    }

    // Queries of a head from `first` on, which see tokens `token` to `to`; `position` is that of the first one.
    static DEVICE void attend(const PrefillArgs& a, u64 first, u32 count, i32 position, u32 token, u32 to) {
        T *room = shared<T>(), *keys = room + ROWS * PITCH * 8, *values = keys + BN * PITCH * 8;
        T* mine = room + warp() * 16 * SIDE * PITCH * 8;
        const u32 kv = block_y() / (a.heads / a.kv_heads);
        Prefill self;
#pragma unroll
        for (u32 i = 0; i < SIDE; i++)
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                self.top[i][h] = minus_infinity(), self.sum[i][h] = 0;
#pragma unroll
                for (u32 j = 0; j < DIM / 8; j++) self.acc[i][j][2 * h] = self.acc[i][j][2 * h + 1] = 0;
            }
        fetch_queries<C, DIM, ROWS>(a, first, count, room, [](u32 row, u32 chunk) { return slot(row, chunk); });
        Place place;
        Tile tile;
        place.find(a, kv, token, to);
        tile.begin(a, a.keys, place, keys);
        tile.end(keys);
        for (; token < to; token += BN) {
            copy_wait<0>();
            sync_block();
            tile.begin(a, a.values, place, values);
            u32 p[SIDE][BN / 16][4];
            self.score(a, mine, keys, place, static_cast<i32>(token), position + static_cast<i32>(warp() * 16 * SIDE), p);
            tile.end(values);
            copy_wait<0>();
            sync_block();
            // Behind the last token there are none: zeros, which are not read.
            place.find(a, kv, token + BN, to);
            tile.begin(a, a.keys, place, keys);
            self.gather(values, p);
            tile.end(keys);
        }
        self.store(a, first, count);
        copy_wait<0>();
        sync_block();
    }
};

#define PREFILL(C, DIM) \
    KERNEL(attention_prefill_##C##_d##DIM, PrefillArgs, 128) { \
        typedef Prefill<C, DIM> Rows; \
        each_run<Rows::ROWS, Rows::BN>(a, [&](u64 first, u32 count, i32 position, u32 from, u32 to) { Rows::attend(a, first, count, position, from, to); }); \
    }
#define PREFILLS(C) PREFILL(C, 64) PREFILL(C, 80) PREFILL(C, 96) PREFILL(C, 128) PREFILL(C, 256)
PREFILLS(f16)
PREFILLS(bf16)
PREFILLS(e4m3)

#ifdef HAS_WGMMA
#define WIDE(C, DIM, MOST) \
    KERNEL(attention_prefill_##C##_w##DIM, PrefillArgs, MOST) { WidePrefill<C, DIM>::run(a); }
// All have 256 threads; twice that says that a multiprocessor has registers for two blocks.
#define WIDES(C) WIDE(C, 64, 512) WIDE(C, 128, 256)
WIDES(f16)
WIDES(bf16)
WIDES(e4m3)
WIDE(f16, 256, 256)
WIDE(bf16, 256, 256)
#endif
