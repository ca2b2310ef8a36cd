// Attention of many queries at once: its arguments, and how queries, keys and values get from memory to shared memory.
#pragma once

#include "mma.cuh"
#include "stored.cuh"

struct PrefillArgs {
    const void* q;
    const void* keys;
    const void* values;
    const u32* tables;
    // Where the queries of each sequence start, and behind those where the last one's end.
    const u32* starts;
    // Tokens of each sequence: the queries are the last of them.
    const u32* lengths;
    void* y;
    // A score for each head that no token has: it joins the sum of exponentials. None, without.
    const f32* sinks;
    // Of each head how much a score falls for each token between its query and its key: ALiBi. None, without.
    const f32* slopes;
    u32 tokens, heads, kv_heads, dim, page_tokens, table_len, pages, causal, window, type;
    f32 scale, key_scale, value_scale;
};

// How many tokens behind its own a query sees.
DEVICE i32 seen_behind(const PrefillArgs& a) { return a.causal ? 0 : a.window ? static_cast<i32>(a.window) - 1 : 1 << 30; }

DEVICE f32 minus_infinity() { return from_bits(0xff800000); }

// A block takes ROWS queries of a head, a warp 16 * SIDE of them, and BN tokens at a time.
template <class C, u32 DIM> struct PrefillTiles {
    typedef typename Stored<C>::Number T;
    static constexpr u32 THREADS = 128, SIDE = DIM <= 128 ? 2 : 1, ROWS = THREADS / 2 * SIDE, BN = DIM <= 128 ? 64 : 32;
    // 16 bytes each: of a row in shared memory, and of what a thread moves of keys or values.
    static constexpr u32 CHUNKS = DIM / 8, N = 16 / sizeof(C), MOVES = (BN * DIM / N + THREADS - 1) / THREADS;
    static constexpr u32 PITCH = CHUNKS % 8 ? CHUNKS | 1 : CHUNKS;

    // The factor of scores, whose exponentials are powers of 2.
    static DEVICE f32 scale_of(const PrefillArgs& a) { return a.scale * a.key_scale * (Stored<C>::SMALLER * 1.44269504f); }
    // How much a score falls for each token, in the unit that products of queries and keys have.
    static DEVICE f32 slope_of(const PrefillArgs& a, u32 head = block_y()) { return a.slopes[head] * 1.44269504f / scale_of(a); }
    // What sums of values are multiplied with at the end, where exponentials relative to the score `top` have the sum `total`.
    static DEVICE f32 share_of(const PrefillArgs& a, f32 top, f32 total, u32 head = block_y()) {
        f32 keep = 1;
        const f32 sink = a.sinks ? a.sinks[head] * 1.44269504f : minus_infinity();
        if (sink != minus_infinity()) {
            // Relative to the larger one.
            const f32 base = top * scale_of(a), over = most(base, sink);
            keep = exp2_fast(base - over);
            total = fmaf(total, keep, exp2_fast(sink - over));
        }
        // Zeros without tokens.
        return total == 0 ? 0 : keep * a.value_scale * Stored<C>::SMALLER / total;
    }

    // Where a chunk lies: those of eight neighbouring rows in different banks.
    static DEVICE u32 slot(u32 row, u32 chunk) { return 8 * (row * PITCH + (CHUNKS % 8 ? chunk : chunk ^ row % 8)); }
    // That many rows and chunks, multiples of 8 and 2, behind a slot of chunk 0 or 1.
    static DEVICE u32 behind(u32 slot, u32 row, u32 chunk) {
        return 8 * row * PITCH + (CHUNKS % 8 ? slot + 8 * chunk : (slot ^ chunk % 8 * 8) + chunk / 8 * 64);
    }

    // Rows of the cache that tokens have, one a lane, and which of them are there.
    struct Place {
        u32 row[BN / WARP], there[BN / WARP];

        DEVICE void find(const PrefillArgs& a, u32 kv, u32 first, u32 end) {
#pragma unroll
            for (u32 i = 0; i < BN / WARP; i++) {
                const u32 token = first + i * WARP + lane(), at = token / a.page_tokens;
                u32 page = a.pages;
                if (token < end && at < a.table_len) page = a.tables[static_cast<u64>(block_z()) * a.table_len + at];
                row[i] = (page * a.kv_heads + kv) * a.page_tokens + token % a.page_tokens;
                there[i] = lanes_of(page < a.pages);
            }
        }
        DEVICE bool has(u32 token) const { return (token < WARP ? there[0] : there[BN / WARP - 1]) >> token % WARP & 1; }
        DEVICE bool all() const { return (there[0] & there[BN / WARP - 1]) == ~0u; }
    };

    // Keys or values on their way to shared memory: through registers if they become wider there. `me` is the thread.
    struct Tile {
        Quad held[sizeof(C) == 1 ? MOVES : 1];

        DEVICE void begin(const PrefillArgs& a, const void* cache, const Place& place, T* to, u32 me = thread()) {
#pragma unroll
            for (u32 i = 0; i < MOVES; i++) {
                const u32 job = i * THREADS + me, token = job / (DIM / N), pack = job % (DIM / N);
                const u32 low = shuffle(place.row[0], token % WARP), high = shuffle(place.row[BN / WARP - 1], token % WARP);
                if (token >= BN) continue;
                const bool there = place.has(token) && pack * N < a.dim;
                const C* from = static_cast<const C*>(cache) + static_cast<u64>(token < WARP ? low : high) * a.dim + pack * N;
                if (sizeof(C) == 1) held[i] = there ? load16(from) : Quad{{0, 0, 0, 0}};
                else if (there) copy_async(to + slot(token, pack), from);
                else store16(to + slot(token, pack), Quad{{0, 0, 0, 0}});
            }
            copy_commit();
        }

        DEVICE void end(T* to, u32 me = thread()) {
            if (sizeof(C) == 1) {
#pragma unroll
                for (u32 i = 0; i < MOVES; i++) {
                    const u32 job = i * THREADS + me, token = job / (DIM / N), pack = job % (DIM / N);
                    if (token >= BN) continue;
                    const u32(&w)[4] = held[i].w;
#pragma unroll
                    for (u32 h = 0; h < 2; h++)
                        store16(to + slot(token, 2 * pack + h), Quad{{widen<false>(w[2 * h]), widen<true>(w[2 * h]), widen<false>(w[2 * h + 1]), widen<true>(w[2 * h + 1])}});
                }
            }
        }
    };
};

// `count` queries of a head to shared memory, and zeros behind them; `slot` says where a chunk of a row is. They are there once copies have been waited for.
template <class C, u32 DIM, u32 ROWS, class F> DEVICE void fetch_queries(const PrefillArgs& a, u64 from, u32 count, typename Stored<C>::Number* to, F slot, u32 head = block_y()) {
    typedef typename Stored<C>::Number T;
    for (u32 job = thread(); job < ROWS * (DIM / 8); job += threads()) {
        const u32 row = job / (DIM / 8), chunk = job % (DIM / 8);
        const u64 at = ((from + row) * a.heads + head) * a.dim + chunk * 8;
        T* place = to + slot(row, chunk);
        const bool there = row < count && chunk * 8 < a.dim;
        if (there && a.type == Stored<C>::TYPE) {
            copy_async(place, static_cast<const T*>(a.q) + at);
            continue;
        }
        f32 x[8] = {};
        if (there) load8_as(x, a.q, at, a.type);
        store_pack(place, x);
    }
}

// Runs of queries of a sequence that a block takes, ROWS at a time: calls `attend(first, count, position, from, to)`, the first query, how many there are
// of the sequence from there on, its position, and which tokens they see, from a multiple of TOKENS on.
template <u32 ROWS, u32 TOKENS, class F> DEVICE void each_run(const PrefillArgs& a, F attend, u32 block = block_x()) {
    const u32 begin = least(a.starts[block_z()], a.tokens), end = least(a.starts[block_z() + 1], a.tokens);
    const u32 count = end > begin ? end - begin : 0;
    const u32 length = static_cast<u32>(least(static_cast<u64>(a.lengths[block_z()]), least(static_cast<u64>(a.table_len) * a.page_tokens, static_cast<u64>(1u << 30))));
    // Causal attention has most to do for the last queries: first those.
    for (u32 first = (grid_x() - 1 - block) * ROWS; first < count; first += grid_x() * ROWS) {
        const i32 position = static_cast<i32>(length) - static_cast<i32>(count - first);
        const i32 next = position + static_cast<i32>(least(ROWS, count - first));
        const u32 to = least(length, static_cast<u32>(most(0, next)) + static_cast<u32>(seen_behind(a)));
        const i32 oldest = a.window ? position + 1 - static_cast<i32>(a.window) : 0;
        const u32 from = static_cast<u32>(most(0, oldest)) / TOKENS * TOKENS;
        attend(static_cast<u64>(begin) + first, count - first, position, from, most(from, to));
    }
}
