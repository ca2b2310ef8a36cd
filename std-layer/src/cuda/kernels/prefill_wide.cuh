// Attention of many queries by `wgmma`: FlashAttention-3 (Shah et al., 2024), without warps that only copy.
#pragma once

#include "prefill.cuh"
#include "wgmma.cuh"

#ifdef HAS_WGMMA
// A block has two groups of four warps, each with 64 queries of a head, and takes BN tokens at a time. Queries, keys and values lie in panels of 64
// dimensions, of which each is an operand. Values come a step later than keys: while a group weighs scores, tensor cores have the values of the step before.
template <class C, u32 DIM> struct WidePrefill {
    typedef typename Stored<C>::Number T;
    typedef PrefillTiles<C, DIM> Narrow;
    static constexpr u32 THREADS = 256, GROUP = 4 * WARP, ROWS = 128, BN = DIM == 128 ? 128 : 64, SIZE = BN * DIM;
    // Steps for whose keys and values there is room; those that become wider are in registers first.
    static constexpr u32 STAGES = sizeof(C) == 1 || DIM > 128 ? 2 : 3;
    // Tokens that a warp copies; 16 bytes of a row, of how many rows at a time, and how often.
    static constexpr u32 WARPS = THREADS / WARP, MINE = BN / WARPS, N = 16 / sizeof(C), PACKS = DIM / N, ONCE = WARP / PACKS, MOVES = MINE / ONCE;

    // Scores of a step, and the exponentials that values are multiplied with; sums of values, the largest score, and this thread's part of the sum of
    // exponentials. Rows are lane / 4 and that + 8 of the warp's 16.
    f32 s[BN / 2], acc[DIM / 2], top[2], sum[2], keep[2];
    u32 p[BN / 16][4];

    // Where a chunk of one of `rows` rows is.
    static DEVICE u32 slot(u32 rows, u32 row, u32 chunk) { return chunk / 8 * (rows * SWIZZLED_ROW) + swizzled(row, chunk % 8); }

    // One of the warp's tokens: its page, which may still be on its way, and then its row of the cache, or none; and which of the warp's tokens are there: 16
    // bits, each twice if they are eight.
    struct Place {
        u32 page, token, row, lanes;

        DEVICE void look(const PrefillArgs& a, u32 first, u32 end) {
            token = first + warp() * MINE + lane() % MINE, page = a.pages;
            const u32 at = token / a.page_tokens;
            if (token < end && at < a.table_len) page = a.tables[static_cast<u64>(block_z()) * a.table_len + at];
        }
        DEVICE void find(const PrefillArgs& a, u32 kv) {
            const bool there = page < a.pages;
            row = there ? (page * a.kv_heads + kv) * a.page_tokens + token % a.page_tokens : ~0u;
            lanes = lanes_of(there) & 0xffff;
        }
    };

    // Keys or values of the warp's tokens on their way to shared memory: through registers if they become wider there. `cache` is where this lane's part
    // of rows is, `in` whether they have one.
    struct Tile {
        Quad held[sizeof(C) == 1 ? MOVES : 1];

        DEVICE void begin(const u8* cache, u32 row_bytes, bool in, const Place& place, T* to) {
#pragma unroll
            for (u32 i = 0; i < MOVES; i++) {
                const u32 token = i * ONCE + lane() / PACKS, pack = lane() % PACKS, row = shuffle(place.row, token);
                const u8* from = cache + static_cast<u64>(row) * row_bytes;
                const bool there = row != ~0u && in;
                T* at = to + slot(BN, warp() * MINE + token, pack);
                if (sizeof(C) == 1) held[i] = there ? load16(from) : Quad{{0, 0, 0, 0}};
                else copy_async(at, from, there);
            }
        }

        DEVICE void end(T* to) {
            if (sizeof(C) == 1) {
#pragma unroll
                for (u32 i = 0; i < MOVES; i++) {
                    const u32 token = i * ONCE + lane() / PACKS, pack = lane() % PACKS;
                    const u32(&w)[4] = held[i].w;
#pragma unroll
                    for (u32 h = 0; h < 2; h++)
                        store16(to + slot(BN, warp() * MINE + token, 2 * pack + h), Quad{{widen<false>(w[2 * h]), widen<true>(w[2 * h]), widen<false>(w[2 * h + 1]), widen<true>(w[2 * h + 1])}});
                }
            }
        }
    };

    // Products of the group's queries and the keys of a step: begins them.
    DEVICE void score(const T* queries, const T* keys) {
        const u64 q = operand(queries), t = operand(keys);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < DIM; k += 16) wgmma(s, q + (slot(ROWS, 0, k / 64 * 8) + k % 64) / 8, t + (slot(BN, 0, k / 64 * 8) + k % 64) / 8, T(), k > 0);
        wgmma_commit();
    }

    // Adds values of a step with their weights: begins it.
    DEVICE void gather(const T* values) {
        const u64 v = turned_operand(values, BN * SWIZZLED_ROW * 2);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < BN / 16; k++) wgmma_held<true>(acc, p[k], v + k * (16 * SWIZZLED_ROW / 8), T());
        wgmma_commit();
    }

    // Scores as exponentials relative to the largest ones, and how much of the sums before them stays. `token` is the first of the step, `position` that of
    // the warp's first query, `seen` says which tokens are there.
    DEVICE void weigh(const PrefillArgs& a, u32 head, const u16* seen, i32 token, i32 position) {
        const i32 own = position + static_cast<i32>(lane() / 4);
        if (a.slopes) {
            const f32 slope = Narrow::slope_of(a, head);
            // How far the first of these keys is behind the query.
            const i32 far = token + static_cast<i32>(lane() % 4 * 2) - own;
#pragma unroll
            for (u32 i = 0; i < BN / 2; i++) s[i] = fmaf(-slope, fabsf(static_cast<f32>(far + static_cast<i32>(i / 4 * 8 + i % 2) - static_cast<i32>(i / 2 % 2 * 8))), s[i]);
        }
        const Quad all = load16(seen);
        const bool there = (all.w[0] & all.w[1] & all.w[2] & all.w[3]) == ~0u;
        if (!there || token + static_cast<i32>(BN) - 1 > position + seen_behind(a) || (a.window && token <= position + 15 - static_cast<i32>(a.window))) {
#pragma unroll
            for (u32 i = 0; i < BN / 2; i++) {
                const u32 column = i / 4 * 8 + lane() % 4 * 2 + i % 2;
                const i32 at = own + static_cast<i32>(i / 2 % 2 * 8), t = token + static_cast<i32>(column);
                if (!(seen[column / MINE] >> column % MINE & 1) || t > at + seen_behind(a) || (a.window && t <= at - static_cast<i32>(a.window))) s[i] = minus_infinity();
            }
        }
        const f32 scale = Narrow::scale_of(a);
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            f32 best = top[h];
#pragma unroll
            for (u32 j = 2 * h; j < BN / 2; j += 4) best = fmaxf(best, fmaxf(s[j], s[j + 1]));
            best = fmaxf(best, shuffle_xor(best, 1));
            best = fmaxf(best, shuffle_xor(best, 2));
            // Without any token yet all are -infinity, whose difference is NaN.
            const f32 base = best == minus_infinity() ? 0 : best * scale;
            keep[h] = top[h] == best ? 1 : exp2_fast(fmaf(top[h], scale, -base));
            top[h] = best;
            // Two sums, of which one need not wait for the other.
            f32 total[2] = {0, 0};
#pragma unroll
            for (u32 j = 2 * h; j < BN / 2; j += 4)
#pragma unroll
                for (u32 c = 0; c < 2; c++) total[c] += s[j + c] = exp2_fast(fmaf(s[j + c], scale, -base));
            sum[h] = fmaf(sum[h], keep[h], total[0] + total[1]);
        }
    }

    // Once the values before have been added: the sums relative to the new largest scores, which change seldom after the first tokens, and what values are
    // multiplied with next. The compiler begins to wait no earlier than at the branch, behind the exponentials.
    DEVICE void turn() {
        in_order(s);
        if (lanes_of(keep[0] != 1 || keep[1] != 1)) {
            wgmma_finish(acc);
#pragma unroll
            for (u32 i = 0; i < DIM / 2; i++) acc[i] *= keep[i / 2 % 2];
        }
        wgmma_finish(acc);
#pragma unroll
        for (u32 k = 0; k < BN / 16; k++)
#pragma unroll
            for (u32 r = 0; r < 4; r++) {
                const u32 i = 8 * k + r / 2 * 4 + r % 2 * 2;
                p[k][r] = narrow2(s[i], s[i + 1], T());
            }
    }

    DEVICE void store(const PrefillArgs& a, u32 head, u64 from, u32 count) const {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            f32 total = sum[h] + shuffle_xor(sum[h], 1);
            total += shuffle_xor(total, 2);
            const f32 by = Narrow::share_of(a, top[h], total, head);
            const u32 row = warp() * 16 + h * 8 + lane() / 4;
            if (row >= count) continue;
            const u64 at = ((from + row) * a.heads + head) * a.dim + lane() % 4 * 2;
#pragma unroll
            for (u32 j = 0; j < DIM / 8; j++)
                if (j * 8 < a.dim) store2_as(a.y, at + j * 8, acc[4 * j + 2 * h] * by, acc[4 * j + 2 * h + 1] * by, a.type);
        }
    }

    // Queries of a head from `first` on, which see tokens `from` to `to`; `position` is that of the first one.
    static DEVICE void attend(const PrefillArgs& a, u32 head, u64 first, u32 count, i32 position, u32 from, u32 to) {
        // Operands start at multiples of 1024 bytes; the launch has as many more.
        T* room = shared<T>() + (0 - shared_address(shared<T>())) % 1024 / sizeof(T);
        T *keys = room + ROWS * DIM, *values = keys + STAGES * SIZE;
        u16* seen = reinterpret_cast<u16*>(values + STAGES * SIZE);
        const T* queries = room + thread() / GROUP * (64 * SWIZZLED_ROW);
        const u32 kv = head / (a.heads / a.kv_heads);
        WidePrefill self;
#pragma unroll
        for (u32 h = 0; h < 2; h++) self.top[h] = minus_infinity(), self.sum[h] = 0;
#pragma unroll
        for (u32 i = 0; i < DIM / 2; i++) self.acc[i] = 0;
        // Places of values to come, of keys to come, which are a step further, and of the keys after these.
        Place now, then, after;
        Tile key, value;
        // At least one step, of tokens that are not there.
        const u32 steps = most(1u, div_up(to - from, BN));
        const auto stage = [](T* tiles, u32 step) { return tiles + step % STAGES * SIZE; };
        const u32 pack = lane() % PACKS * N, row_bytes = a.dim * sizeof(C);
        const u8 *all_keys = reinterpret_cast<const u8*>(static_cast<const C*>(a.keys) + pack), *all_values = reinterpret_cast<const u8*>(static_cast<const C*>(a.values) + pack);
        const auto bring_keys = [&](u32 step) {
            then = after;
            then.find(a, kv);
            after.look(a, from + (step + 1) * BN, to);
            key.begin(all_keys, row_bytes, pack < a.dim, then, stage(keys, step));
            if (lane() == 0) seen[step % STAGES * WARPS + warp()] = static_cast<u16>(then.lanes);
        };
        // Values of a step and keys of the next.
        const auto bring = [&](u32 step) {
            now = then;
            value.begin(all_values, row_bytes, pack < a.dim, now, stage(values, step));
            bring_keys(step + 1);
            copy_commit();
        };
        // What is multiplied next is complete, and nobody reads what the next tokens take the place of.
        const auto meet = [&] {
            copy_wait<STAGES - 2>();
            async_fence();
            sync_block();
        };
        after.look(a, from, to);
        fetch_queries<C, DIM, ROWS>(a, first, count, room, [](u32 row, u32 chunk) { return slot(ROWS, row, chunk); }, head);
        bring_keys(0);
        copy_commit();
        key.end(keys);
        if (STAGES > 2) bring(0);
        meet();
        self.score(queries, keys);
        bring(STAGES - 2);
        wgmma_finish(self.s);
        for (u32 step = 0;; step++) {
            self.weigh(a, head, seen + step % STAGES * WARPS, static_cast<i32>(from + step * BN), position + static_cast<i32>(warp() * 16));
            value.end(stage(values, step));
            key.end(stage(keys, step + 1));
            self.turn();
            meet();
            if (step + 1 == steps) break;
            self.score(queries, stage(keys, step + 1));
            self.gather(stage(values, step));
            bring(step + STAGES - 1);
            wgmma_finish<1>(self.s);
        }
        self.gather(stage(values, steps - 1));
        wgmma_finish(self.acc);
        self.store(a, head, first, count);
        // Others may still read the last values.
        copy_wait<0>();
        sync_block();
    }

    static DEVICE void run(const PrefillArgs& a) {
        // Blocks of all heads that have most to do come first.
        const u32 job = block_y() * grid_x() + block_x(), head = job % grid_y();
        each_run<ROWS, BN>(a, [&](u64 first, u32 count, i32 position, u32 from, u32 to) { attend(a, head, first, count, position, from, to); }, job / grid_y());
    }
};
#endif
