// Attention of queries that share keys and values, on tensor cores: heads that share a KV head, and queries of one sequence that stand side by side, such as
// drafts.
#pragma once

#include "mma.cuh"
#include "stored.cuh"
#include "tokens.cuh"

// Where `mma` is an instruction for both types.
#if !defined(__HIP__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define MULTIPLIES_TILES

// How many of the lowest bits are 1, up to the first 0.
DEVICE u32 ones(u32 bits) { return bits_set(bits & ~(bits + 1)); }

// The queries of a block from `query` on: none if another block has them. A run of queries of a sequence is divided from its first one on.
DEVICE u32 queries_of(const DecodeArgs& a, u32 query) {
    if (a.together < 2 || !a.sequences) return 1;
    u32 before = 0, same;
    do {
        const u32 at = before + lane();
        same = ones(lanes_of(at < query && a.sequences[query - 1 - at] == a.sequences[query]));
        before += same;
    } while (same == WARP);
    if (before % a.together) return 0;
    const u32 at = query + lane();
    return least(a.together, ones(lanes_of(at < a.queries && a.sequences[at] == a.sequences[query])));
}

// A block has a tile of up to 16 rows, each a head of a query, and a part of the tokens. A warp takes 16 tokens at a time, a batch; its own part of shared
// memory has room for STAGES of them, of which one is multiplied while others arrive. Sums of lane 4 g + t are those of rows g and g + 8.
template <class C, u32 DIM> struct Together : Turns<C, true> {
    typedef Turns<C, true> Base;
    typedef typename Stored<C>::Number T;
    using Base::a, Base::place_of;
    static constexpr u32 ROWS = 16, BATCH = 16, THREADS = 64, STAGES = 3, STEPS = DIM / 16, PITCH = DIM + 8;
    // 16 bytes of a row: how many numbers these are, how many a row has, and of how many rows a warp copies some at a time.
    static constexpr u32 N = 16 / sizeof(C), CHUNKS = DIM / N, ONCE = WARP / CHUNKS;
    // Bytes of the keys of a batch, and of what a warp has.
    static constexpr u32 SIZE = BATCH * CHUNKS * 16, RING = STAGES * 2 * SIZE;

    // The first query and the first head, and how many heads and rows there are: of each query all heads, one behind the other.
    u32 query, head, heads, count;
    u32 q[STEPS][4];
    f32 acc[DIM / 8][4], top[2], sum[2];

    // A row of this lane, 0 or 1; those that nobody asks for are like the last one.
    DEVICE u32 row(u32 h) const { return least(lane() / 4 + 8 * h, count - 1); }
    DEVICE u32 query_of(u32 row) const { return query + row / heads; }
    DEVICE u32 head_of(u32 row) const { return head + row % heads; }
    // Which token of a batch score i of a tile of eight keys is.
    static DEVICE u32 token_of(u32 tile, u32 i) { return 8 * tile + lane() % 4 * 2 + i % 2; }

    // Where a chunk of a token of a batch is: those of eight tokens lie in different banks.
    static DEVICE u32 slot(u32 token, u32 chunk) { return (token * CHUNKS + (chunk ^ (CHUNKS < 8 ? token / 2 % CHUNKS : token % 8))) * 16; }
    // Which dimension, apart from multiples of 16, is number `c` of part `half` of 16 in a product: 8 bits come in fours.
    static DEVICE u32 place_in(u32 half, u32 c) { return sizeof(C) == 1 ? lane() % 4 * 4 + 2 * half + c : 8 * half + lane() % 4 * 2 + c; }

    // Asks for keys and values of a batch, and returns which of its tokens are there.
    DEVICE u32 fetch(u32 index, u8* to) {
        this->turn(index);
        const u32 chunk = lane() % CHUNKS, first = lane() / CHUNKS;
#pragma unroll
        for (u32 i = 0; i < BATCH; i += ONCE) {
            const Place<C> at = place_of(index, i + first);
            u8* place = to + slot(i + first, chunk);
            const bool there = at.there() && chunk * N < a.dim;
            copy_async(place, at.at(a, a.keys, chunk * N), there);
            copy_async(place + SIZE, at.at(a, a.values, chunk * N), there);
        }
        copy_commit();
        return lanes_of(this->place.there()) >> index % 2 * BATCH & 0xffff;
    }

    // Queries of all rows, in 16 bits, to shared memory; what is behind the last row does not matter.
    DEVICE void fetch_queries(T* to) const {
        for (u32 job = thread(); job < count * (DIM / 8); job += THREADS) {
            const u32 r = job / (DIM / 8), first = job % (DIM / 8) * 8;
            const u64 from = (static_cast<u64>(query_of(r)) * a.heads + head_of(r)) * a.dim + first;
            f32 x[8] = {};
            if (first < a.dim) load8_as(x, a.q, from, a.type);
            store_pack(to + r * PITCH + first, x);
        }
    }

    // What `mma` takes of them.
    DEVICE void load_queries(const T* from) {
#pragma unroll
        for (u32 k = 0; k < STEPS; k++)
#pragma unroll
            for (u32 half = 0; half < 2; half++)
#pragma unroll
                for (u32 h = 0; h < 2; h++) q[k][2 * half + h] = *reinterpret_cast<const u32*>(from + row(h) * PITCH + 16 * k + place_in(half, 0));
    }

    // Products of queries and the keys of a batch.
    DEVICE void multiply(const u8* keys, f32 (&s)[2][4]) const {
#pragma unroll
        for (u32 j = 0; j < CHUNKS; j += 2) {
            u32 b[4];
            load_tiles<false>(b, keys + slot(lane() / 16 * 8 + lane() % 8, j + lane() / 8 % 2));
#pragma unroll
            for (u32 u = 0; u < 2; u++) {
                if constexpr (sizeof(C) == 1) {
#pragma unroll
                    for (u32 k = 0; k < 2; k++) mma(s[u], q[j + k], {widen<false>(b[2 * u + k]), widen<true>(b[2 * u + k])}, T());
                } else mma(s[u], q[j / 2], {b[2 * u], b[2 * u + 1]}, T());
            }
        }
    }

    // What falls with the distance of tokens, those of a batch that begins with `first`.
    DEVICE void slope(u32 first, f32 (&s)[2][4]) const {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 of = query_of(row(h)), end = a.positions ? a.positions[of] + 1 : seen_to(a, of);
            const f32 by = a.slopes[head_of(row(h))] * 1.44269504f;
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                f32& score = s[i / 2][2 * h + i % 2];
                score = fmaf(-by, fabsf(static_cast<f32>(static_cast<i32>(distance(a.seen, of, end, first + token_of(i / 2, i))))), score);
            }
        }
    }

    // Scores of tokens that rows do not see, or that are not there.
    DEVICE void hide(u32 first, u32 there, f32 (&s)[2][4]) const {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 of = query_of(row(h)), length = seen_to(a, of), start = first_seen(a, of, length);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 token = first + token_of(i / 2, i);
                if (!(there >> token_of(i / 2, i) & 1) || token < start || token >= length || !is_seen(a, of, length, token)) s[i / 2][2 * h + i % 2] = minus_infinity();
            }
        }
    }

    // Scores as exponentials relative to the largest ones, which seldom change.
    DEVICE void weigh(const f32 (&s)[2][4], u32 (&p)[4]) {
        f32 best[2];
        bool more = false;
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            best[h] = fmaxf(fmaxf(s[0][2 * h], s[0][2 * h + 1]), fmaxf(s[1][2 * h], s[1][2 * h + 1]));
            more |= best[h] > top[h];
        }
        if (lanes_of(more)) {
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                best[h] = fmaxf(best[h], shuffle_xor(best[h], 1));
                best[h] = fmaxf(fmaxf(best[h], shuffle_xor(best[h], 2)), top[h]);
                // Both may be -infinity, whose difference is NaN.
                const f32 by = top[h] == best[h] ? 1 : exp2_fast(top[h] - best[h]);
                top[h] = best[h], sum[h] *= by;
#pragma unroll
                for (u32 j = 0; j < DIM / 8; j++) acc[j][2 * h] *= by, acc[j][2 * h + 1] *= by;
            }
        }
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const f32 base = top[h] == minus_infinity() ? 0 : top[h];
#pragma unroll
            for (u32 u = 0; u < 2; u++) {
                const f32 x = exp2_fast(s[u][2 * h] - base), y = exp2_fast(s[u][2 * h + 1] - base);
                sum[h] += x + y;
                p[2 * u + h] = narrow2(x, y, T());
            }
        }
    }

    DEVICE void gather(const u8* values, const u32 (&p)[4]) {
#pragma unroll
        for (u32 j = 0; j < CHUNKS; j += 2) {
            u32 b[4];
            load_tiles<true>(b, values + slot(lane() % 16, j + lane() / 16));
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                const u32 low = b[2 * k], high = b[2 * k + 1];
                if constexpr (sizeof(C) == 1) {
                    // Two dimensions each of two tokens.
                    mma(acc[2 * (j + k)], p, {widen<false>(permute(low, 0, 0x20)), widen<false>(permute(high, 0, 0x20))}, T());
                    mma(acc[2 * (j + k) + 1], p, {widen<false>(permute(low, 0, 0x31)), widen<false>(permute(high, 0, 0x31))}, T());
                } else mma(acc[j + k], p, {low, high}, T());
            }
        }
    }

    // What the lanes of a warp have together.
    DEVICE void leave(f32* own) const {
        const u32 pitch = a.dim + 4;
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            f32 total = sum[h] + shuffle_xor(sum[h], 1);
            total += shuffle_xor(total, 2);
            const u32 row = lane() / 4 + 8 * h;
            if (row >= count) continue;
            f32* to = own + row * pitch;
#pragma unroll
            for (u32 k = 0; k < STEPS; k++)
#pragma unroll
                for (u32 half = 0; half < 2; half++) {
                    const u32 at = 16 * k + place_in(half, 0);
                    const f32 x = acc[2 * k + (sizeof(C) == 1 ? 0 : half)][2 * h + (sizeof(C) == 1 ? half : 0)], y = acc[2 * k + (sizeof(C) == 1 ? 1 : half)][2 * h + (sizeof(C) == 1 ? half : 1)];
                    if (at < a.dim) keep2(to + at, x * Stored<C>::SMALLER, y * Stored<C>::SMALLER);
                }
            if (lane() % 4 == 0) to[a.dim] = top[h], to[a.dim + 1] = total;
        }
    }

    static DEVICE void run(const DecodeArgs& a) {
        const u32 group = a.heads / a.kv_heads, per = div_up(group, ROWS);
        const u32 query = block_z(), kv = block_y() / per, head = kv * group + block_y() % per * ROWS, part = block_x();
        const u32 heads = least(ROWS, (kv + 1) * group - head), queries = queries_of(a, query);
        const u32 sequence = a.sequences ? a.sequences[query] : query;
        if (queries == 0 || sequence >= a.rows) return wait_for_inputs();
        // Tokens that some of the rows see, and those that all of them do.
        u32 start = ~0u, length = 0, from_all = 0, to_all = ~0u;
#pragma unroll 1
        for (u32 i = query; i < query + queries; i++) {
            const u32 n = seen_to(a, i), first = first_seen(a, i, n);
            start = least(start, first), length = most(length, n);
            from_all = most(from_all, first), to_all = least(to_all, a.seen ? most(n, 64u) - 64 : n);
        }
        const auto place = [&](u32 part) { return part_begin(a, part, start, length); };
        const u32 begin = static_cast<u32>(least(place(part), static_cast<u64>(length))), end = static_cast<u32>(least(place(part + 1), static_cast<u64>(length)));
        const u32 seen = most(start, begin), to = most(seen, end);
        if (a.piece && seen == to) return wait_for_inputs();
        // Which warp has a token, and after which others, depends on nothing but its place in the part.
        const u32 step = BATCH * (threads() / WARP), from = begin + (seen - begin) / step * step;
        Together self{{a, kv, sequence, from, seen, to, 1, {}, 0, 0}, query, head, heads, queries * heads, {}, {}, {}, {}};
        self.top[0] = self.top[1] = minus_infinity();
        u8* ring = shared<u8>() + warp() * RING;
        self.look(0);
        wait_for_inputs();
        u32 there[STAGES];
#pragma unroll
        for (u32 s = 0; s < STAGES - 1; s++) there[s] = self.fetch(s, ring + s * 2 * SIZE);
        T* q = reinterpret_cast<T*>(shared<u8>() + THREADS / WARP * RING);
        self.fetch_queries(q);
        sync_block();
        self.load_queries(q);
        const f32 scale = a.scale * a.key_scale * (Stored<C>::SMALLER * 1.44269504f);
        u32 now = 0, last = STAGES - 1;
#pragma unroll 1
        for (u32 index = 0; self.first_of(index) < to; index++) {
            const u32 first = self.first_of(index);
            f32 s[2][4] = {};
            u32 p[4];
            copy_wait<STAGES - 2>();
            // What others have copied is there, and nobody reads what was multiplied before.
            sync_warp();
            there[STAGES - 1] = self.fetch(index + STAGES - 1, ring + last * 2 * SIZE);
            const u8* keys = ring + now * 2 * SIZE;
            self.multiply(keys, s);
#pragma unroll
            for (u32 i = 0; i < 8; i++) s[i / 4][i % 4] *= scale;
            if (a.cap != 0) {
                // cap tanh(score / cap), in units of log2(e), as scores are.
                const f32 cap = a.cap * 1.44269504f, by = 2 / a.cap;
#pragma unroll
                for (u32 i = 0; i < 8; i++) s[i / 4][i % 4] = cap - divide(2 * cap, 1 + exp2_fast(s[i / 4][i % 4] * by));
            }
            if (a.slopes) self.slope(first, s);
            if (there[0] != 0xffff || first < from_all || first + BATCH > to_all) self.hide(first, there[0], s);
            self.weigh(s, p);
            self.gather(keys + SIZE, p);
#pragma unroll
            for (u32 k = 0; k + 1 < STAGES; k++) there[k] = there[k + 1];
            last = now, now = now + 1 == STAGES ? 0 : now + 1;
        }
        copy_wait<0>();
        sync_warp();
        self.leave(reinterpret_cast<f32*>(ring));
        sync_block();
        unite<THREADS / WARP>(a, shared<f32>(), RING / 4, self.count, [&](u32 r) { return a.partial + ((static_cast<u64>(self.query_of(r)) * a.heads + self.head_of(r)) * a.parts + part) * (a.dim + 2); });
    }
};
#endif
