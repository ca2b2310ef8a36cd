// Attention of many queries at once: its arguments, and how queries, keys and values get from memory to shared memory.
#pragma once

#include "mma.cuh"

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

struct e4m3 { u8 bits; };
DEVICE f32 minus_infinity() { return from_bits(0xff800000); }

// What stored numbers are multiplied as, and how many times smaller they are then.
template <class C> struct Stored;
template <> struct Stored<f16> { typedef f16 Number; static constexpr u32 TYPE = TYPE_F16; static constexpr f32 SMALLER = 1; };
template <> struct Stored<bf16> { typedef bf16 Number; static constexpr u32 TYPE = TYPE_BF16; static constexpr f32 SMALLER = 1; };
template <> struct Stored<e4m3> { typedef f16 Number; static constexpr u32 TYPE = TYPE_F16; static constexpr f32 SMALLER = 256; };

// Two E4M3, bytes 0 and 1 or 2 and 3 of a word, as f16: the same bits where an exponent means 2^-8 of what it meant.
template <bool HIGH> DEVICE u32 widen(u32 w) {
    const u32 two = permute(w, 0, HIGH ? 0x3424 : 0x1404);
    u32 wide = (two & 0x80008000) | (two >> 1 & 0x3f803f80);
    if ((two & 0x7f00) == 0x7f00) wide |= 0x7fff;
    if ((two & 0x7f000000) == 0x7f000000) wide |= 0x7fff0000;
    return wide;
}

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
    static DEVICE f32 slope_of(const PrefillArgs& a) { return a.slopes[block_y()] * 1.44269504f / scale_of(a); }
    // What sums of values are multiplied with at the end, where exponentials relative to the score `top` have the sum `total`.
    static DEVICE f32 share_of(const PrefillArgs& a, f32 top, f32 total) {
        f32 keep = 1;
        const f32 sink = a.sinks ? a.sinks[block_y()] * 1.44269504f : minus_infinity();
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

    static DEVICE void fetch(const PrefillArgs& a, u64 from, u32 count, T* to) {
        for (u32 job = thread(); job < ROWS * CHUNKS; job += THREADS) {
            const u32 row = job / CHUNKS, chunk = job % CHUNKS;
            const u64 at = ((from + row) * a.heads + block_y()) * a.dim + chunk * 8;
            Pack<T> eight;
            eight.quad = Quad{{0, 0, 0, 0}};
            if (row < count && chunk * 8 < a.dim) {
                if (a.type == Stored<C>::TYPE) eight.quad = load16(static_cast<const T*>(a.q) + at);
                else for (u32 i = 0; i < 8; i++) eight.at[i] = from_f32<T>(load_as(a.q, at + i, a.type));
            }
            store16(to + slot(row, chunk), eight.quad);
        }
    }
};
