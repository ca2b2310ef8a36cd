// Attention of many queries at once over keys and values in pages, which lie as attention.cu says: FlashAttention-2 (Dao, 2023).
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

// A block takes ROWS queries of a head, a warp 16 * SIDE of them, and BN tokens at a time. Their keys arrive while the values before
// them are multiplied, their values while the keys are.
template <class C, u32 DIM> struct Prefill {
    typedef typename Stored<C>::Number T;
    static constexpr u32 THREADS = 128, SIDE = DIM <= 128 ? 2 : 1, ROWS = THREADS / 2 * SIDE, BN = DIM <= 128 ? 64 : 32;
    // 16 bytes each: of a row in shared memory, and of what a thread moves of keys or values.
    static constexpr u32 CHUNKS = DIM / 8, N = 16 / sizeof(C), MOVES = (BN * DIM / N + THREADS - 1) / THREADS;
    static constexpr u32 PITCH = CHUNKS % 8 ? CHUNKS | 1 : CHUNKS;

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

    // Keys or values on their way to shared memory: through registers if they become wider there.
    struct Tile {
        Quad held[sizeof(C) == 1 ? MOVES : 1];

        DEVICE void begin(const PrefillArgs& a, const void* cache, const Place& place, T* to) {
#pragma unroll
            for (u32 i = 0; i < MOVES; i++) {
                const u32 job = i * THREADS + thread(), token = job / (DIM / N), pack = job % (DIM / N);
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

        DEVICE void end(T* to) {
            if (sizeof(C) == 1) {
#pragma unroll
                for (u32 i = 0; i < MOVES; i++) {
                    const u32 job = i * THREADS + thread(), token = job / (DIM / N), pack = job % (DIM / N);
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
        const i32 last = position + static_cast<i32>(16 * SIDE) - 1;
        if (!place.all() || (a.causal && token + static_cast<i32>(BN) - 1 > position) || (a.window && token <= last - static_cast<i32>(a.window))) {
#pragma unroll
            for (u32 i = 0; i < SIDE; i++)
#pragma unroll
                for (u32 j = 0; j < BN / 8; j++)
#pragma unroll
                    for (u32 r = 0; r < 4; r++) {
                        const u32 column = j * 8 + lane() % 4 * 2 + r % 2;
                        const i32 at = position + static_cast<i32>(i * 16 + r / 2 * 8 + lane() / 4), t = token + static_cast<i32>(column);
                        if (!place.has(column) || (a.causal && t > at) || (a.window && t <= at - static_cast<i32>(a.window))) s[i][j][r] = minus_infinity();
                    }
        }
        const f32 scale = a.scale * a.key_scale * (Stored<C>::SMALLER * 1.44269504f);
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
                // Zeros without tokens.
                const f32 by = total == 0 ? 0 : a.value_scale * Stored<C>::SMALLER / total;
                const u32 row = warp() * 16 * SIDE + i * 16 + h * 8 + lane() / 4;
                if (row >= count) continue;
                const u64 at = ((from + row) * a.heads + block_y()) * a.dim + lane() % 4 * 2;
#pragma unroll
                for (u32 j = 0; j < DIM / 8; j++)
                    if (j * 8 < a.dim) store2_as(a.y, at + j * 8, acc[i][j][2 * h] * by, acc[i][j][2 * h + 1] * by, a.type);
            }
    }

    static DEVICE void run(const PrefillArgs& a) {
        T *room = shared<T>(), *keys = room + ROWS * PITCH * 8, *values = keys + BN * PITCH * 8;
        T* mine = room + warp() * 16 * SIDE * PITCH * 8;
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
            u32 token = static_cast<u32>(most(0, oldest)) / BN * BN;
            Prefill self;
#pragma unroll
            for (u32 i = 0; i < SIDE; i++)
#pragma unroll
                for (u32 h = 0; h < 2; h++) {
                    self.top[i][h] = minus_infinity(), self.sum[i][h] = 0;
#pragma unroll
                    for (u32 j = 0; j < DIM / 8; j++) self.acc[i][j][2 * h] = self.acc[i][j][2 * h + 1] = 0;
                }
            fetch(a, begin + first, count - first, room);
            Place place;
            Tile tile;
            place.find(a, kv, token, length);
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
            self.store(a, begin + first, count - first);
            copy_wait<0>();
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
