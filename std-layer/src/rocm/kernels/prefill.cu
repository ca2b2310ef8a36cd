// Attention of many queries at once on GPUs of AMD's; it stands for the file of the same name among CUDA's kernels. Scores are computed turned,
// keys as rows and queries as columns: then each lane has tokens of one query, and in the order in which the product with the
// values takes them.
#include "prefill.cuh"

#include "tiles.h"

template <class C, u32 DIM> struct Prefill : PrefillTiles<C, DIM> {
    typedef PrefillTiles<C, DIM> Base;
    typedef typename Base::T T;
    typedef typename Base::Place Place;
    typedef typename Base::Tile Moved;
    using Base::slot, Base::fetch;
    static constexpr u32 SIDE = Base::SIDE, ROWS = Base::ROWS, BN = Base::BN, CHUNKS = Base::CHUNKS, PITCH = Base::PITCH;

    // Of each query of a lane: sums of values (of 16 dimensions those that `row_of` says), the largest score, and this lane's part of the
    // sum of exponentials.
    f32 acc[DIM / 16][SIDE][8], top[SIDE], sum[SIDE];

    // Which of 16 tokens are the numbers of a tile: first those whose scores a lane of the first half has.
    static DEVICE u32 token_of(u32 k) { return TILE == 8 ? tile_from() + k : k % 8 * 2 + k / 8; }

    // Exponentials of 16 scores of a query as a tile: a lane has eight of them, and the other half of the wave the others.
    static DEVICE Tile<T> gather(const f32 (&s)[8]) {
        Tile<T> p;
        u32 mine[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) mine[i] = narrow2(s[2 * i], s[2 * i + 1], T());
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (TILE == 8) p.w[i] = mine[i];
            else {
                const u32 other = shuffle_xor(mine[i], 16);
                p.w[i] = lane() < 16 ? mine[i] : other;
                p.w[TILE / 2 - 4 + i] = lane() < 16 ? other : mine[i];
            }
        }
        return p;
    }

    // `position` is that of the warp's first query.
    DEVICE void tokens(const PrefillArgs& a, const T* mine, const T* keys, const T* values, const Place& place, i32 token, i32 position) {
        f32 s[BN / 16][SIDE][8];
#pragma unroll
        for (u32 t = 0; t < BN / 16; t++)
#pragma unroll
            for (u32 i = 0; i < SIDE; i++)
#pragma unroll
                for (u32 r = 0; r < 8; r++) s[t][i][r] = 0;
#pragma unroll 1
        for (u32 k = 0; k < CHUNKS; k += 2) {
            Tile<T> q[SIDE];
#pragma unroll
            for (u32 i = 0; i < SIDE; i++) q[i] = tile_at(mine + slot(16 * i + lane() % 16, k), mine + slot(16 * i + lane() % 16, k + 1));
#pragma unroll
            for (u32 t = 0; t < BN / 16; t++)
                multiply(s[t], q, [&](u32 m) { return tile_at(keys + slot(16 * t + m, k), keys + slot(16 * t + m, k + 1)); });
        }
        in_order();
        const i32 last = position + static_cast<i32>(16 * SIDE) - 1;
        if (!place.all() || (a.causal && token + static_cast<i32>(BN) - 1 > position) || (a.window && token <= last - static_cast<i32>(a.window))) {
#pragma unroll
            for (u32 t = 0; t < BN / 16; t++)
#pragma unroll
                for (u32 i = 0; i < SIDE; i++)
#pragma unroll
                    for (u32 r = 0; r < 8; r++) {
                        const u32 column = 16 * t + row_of(r);
                        const i32 at = position + static_cast<i32>(16 * i + lane() % 16), of = token + static_cast<i32>(column);
                        if (!place.has(column) || (a.causal && of > at) || (a.window && of <= at - static_cast<i32>(a.window))) s[t][i][r] = minus_infinity();
                    }
        }
        const f32 scale = a.scale * a.key_scale * (Stored<C>::SMALLER * 1.44269504f);
#pragma unroll
        for (u32 i = 0; i < SIDE; i++) {
            in_order();
            f32 best = top[i];
#pragma unroll
            for (u32 t = 0; t < BN / 16; t++)
#pragma unroll
                for (u32 r = 0; r < 8; r++) best = most(best, s[t][i][r]);
            best = most(best, shuffle_xor(best, 16));
            // Without any token yet all are -infinity, whose difference is NaN.
            const f32 base = best == minus_infinity() ? 0 : best * scale;
            const f32 keep = top[i] == best ? 1 : exp2_fast(fmaf(top[i], scale, -base));
            top[i] = best;
            f32 total = 0;
#pragma unroll
            for (u32 t = 0; t < BN / 16; t++)
#pragma unroll
                for (u32 r = 0; r < 8; r++) total += s[t][i][r] = exp2_fast(fmaf(s[t][i][r], scale, -base));
            sum[i] = fmaf(sum[i], keep, total);
            // Largest scores change seldom after the first tokens.
            if (lanes_of(keep != 1)) {
#pragma unroll
                for (u32 j = 0; j < DIM / 16; j++)
#pragma unroll
                    for (u32 r = 0; r < 8; r++) acc[j][i][r] *= keep;
            }
        }
#pragma unroll
        for (u32 t = 0; t < BN / 16; t++) {
            Tile<T> p[SIDE];
#pragma unroll
            for (u32 i = 0; i < SIDE; i++) p[i] = gather(s[t][i]), in_order();
#pragma unroll
            for (u32 j = 0; j < DIM / 16; j++) {
                in_order();
                multiply(acc[j], p, [&](u32 m) {
                    Tile<T> v;
#pragma unroll
                    for (u32 k = 0; k < TILE; k++) v.at[k] = values[slot(16 * t + token_of(k), 2 * j + m / 8) + m % 8];
                    return v;
                });
            }
        }
    }

    DEVICE void store(const PrefillArgs& a, u64 from, u32 count) const {
#pragma unroll
        for (u32 i = 0; i < SIDE; i++) {
            in_order();
            const f32 total = sum[i] + shuffle_xor(sum[i], 16);
            // Zeros without tokens.
            const f32 by = total == 0 ? 0 : a.value_scale * Stored<C>::SMALLER / total;
            const u32 row = warp() * 16 * SIDE + i * 16 + lane() % 16;
            if (row >= count) continue;
            const u64 at = ((from + row) * a.heads + block_y()) * a.dim + row_of(0);
            with_type(a.y, a.type, [&](auto* y) {
                y += at;
#pragma unroll
                for (u32 j = 0; j < DIM / 16; j++)
#pragma unroll
                    for (u32 r = 0; r < 8; r++)
                        // Heads are whole eights.
                        if (16 * j + row_of(r) / 8 * 8 < a.dim) narrow(y[16 * j + r * NEXT_ROW], acc[j][i][r] * by);
            });
        }
    }

    static DEVICE void run(const PrefillArgs& a) {
        T *room = shared<T>(), *keys = room + ROWS * PITCH * 8, *values = keys + BN * PITCH * 8;
        const T* mine = room + warp() * 16 * SIDE * PITCH * 8;
        const u32 kv = block_y() / (a.heads / a.kv_heads);
        const u32 begin = least(a.starts[block_z()], a.tokens), end = least(a.starts[block_z() + 1], a.tokens);
        const u32 count = end > begin ? end - begin : 0;
        const u32 length = static_cast<u32>(least(static_cast<u64>(a.lengths[block_z()]), least(static_cast<u64>(a.table_len) * a.page_tokens, static_cast<u64>(1u << 30))));
        // Causal attention has most to do for the last queries: first those.
        for (u32 first = (grid_x() - 1 - block_x()) * ROWS; first < count; first += grid_x() * ROWS) {
            const i32 position = static_cast<i32>(length) - static_cast<i32>(count - first);
            const i32 next = position + static_cast<i32>(least(ROWS, count - first));
            const u32 to = a.causal ? static_cast<u32>(most(0, next)) : length;
            const i32 oldest = a.window ? position + 1 - static_cast<i32>(a.window) : 0;
            Prefill self;
#pragma unroll
            for (u32 i = 0; i < SIDE; i++) {
                self.top[i] = minus_infinity(), self.sum[i] = 0;
#pragma unroll
                for (u32 j = 0; j < DIM / 16; j++)
#pragma unroll
                    for (u32 r = 0; r < 8; r++) self.acc[j][i][r] = 0;
            }
            fetch(a, begin + first, count - first, room);
            for (u32 token = static_cast<u32>(most(0, oldest)) / BN * BN; token < to; token += BN) {
                Place place;
                place.find(a, kv, token, to);
                Moved tile;
                tile.begin(a, a.keys, place, keys);
                tile.end(keys);
                in_order();
                tile.begin(a, a.values, place, values);
                tile.end(values);
                copy_wait<0>();
                sync_block();
                self.tokens(a, mine, keys, values, place, static_cast<i32>(token), position + static_cast<i32>(warp() * 16 * SIDE));
                sync_block();
            }
            self.store(a, begin + first, count - first);
            sync_block();
        }
    }
};

#define PREFILL(C, DIM) \
    KERNEL(attention_prefill_##C##_d##DIM, PrefillArgs, 128) { Prefill<C, DIM>::run(a); }
#define PREFILLS(C) PREFILL(C, 64) PREFILL(C, 80) PREFILL(C, 96) PREFILL(C, 128) PREFILL(C, 256)
PREFILLS(f16)
PREFILLS(bf16)
PREFILLS(e4m3)
