// Products of weights in blocks with few vectors: Y[n][r] = sum over c of W[r][c] X[n][c]. A block takes N of the vectors, blocks of y the next ones.
#include "formats.cuh"
#include "mma_codes.cuh"
#include "segments.cuh"

struct Group {
    f32 scale;
    i32 sums;
};
struct QgemvArgs {
    const u8* w;
    // Activations in integers, and what belongs to 32 of them; or arranged in f32, and the sums of 16 of them.
    const i8* codes;
    const Group* groups;
    const f32* exact;
    const f32* sums;
    void* y;
    // Which results blocks of y have, and of which matrices; if `single`, all of them are products with the first vector.
    const Segment* segments;
    u64 row_bytes, matrix_bytes;
    u32 rows, cols, batch, type, single;
};

// Bytes of code as f32: put into a mantissa, from which 2^23 and what makes them unsigned are subtracted.
template <i32 ZERO> DEVICE f32 code_to_f32(u32 c, u32 k) {
    return from_bits(permute(c, 0x4b000000, 0x7650 | k)) - static_cast<f32>(8388608 + 128 + ZERO);
}

// The vectors of a block.
struct Vectors {
    const i8* codes;
    const Group* groups;
    const f32* exact;
    const f32* sums;
    u32 count;

    DEVICE Vectors(const QgemvArgs& a, const Segment& own) : count(own.end - own.first) {
        const u64 first = a.single ? 0 : own.first, parts = a.cols / 32, chunks = div_up(a.cols, 1024);
        codes = a.codes + first * a.cols, groups = a.groups + first * parts;
        exact = a.exact + first * chunks * 1024, sums = a.sums + first * chunks * 64;
    }
};

// A warp has ROWS rows, and goes through them 1024 columns at a time. These arrive in its own part of shared memory,
// STAGES deep, as they lie in memory, 16 bytes at a time; then each lane takes 32 columns.
template <class F, u32 N, bool EXACT> struct Qgemv {
    static constexpr u32 ROWS = N <= 2 ? 2 : 1, STAGES = 4;
    static constexpr u32 CHUNK = 1024 / F::LEN * F::BYTES;
    // A chunk starts up to 15 bytes behind a multiple of 16.
    static constexpr u32 ROOM = (CHUNK + 15 + 15) / 16 * 16;
    static constexpr u32 PER = F::LEN / 32, GROUPS = 32 / F::GROUP;

    // What lies before a chunk since the last multiple of 16.
    static DEVICE u32 head_of(const u8* chunk) { return static_cast<u32>(reinterpret_cast<u64>(chunk)) % 16; }

    // Of every `step` bytes the 16 from `first` on.
    static DEVICE void fetch(const QgemvArgs& a, const u8* row, u32 chunk, u8* to, u32 first, u32 step) {
        const u8* at = row + static_cast<u64>(chunk) * CHUNK;
        const u32 head = head_of(at);
        const u64 left = a.row_bytes - static_cast<u64>(chunk) * CHUNK;
        const u32 bytes = head + (left < CHUNK ? static_cast<u32>(left) : CHUNK);
        const u8* from = at - head;
        for (u32 i = first; i < bytes; i += step) copy_async(to + i, from + i);
    }

    static DEVICE void run(const QgemvArgs& a) {
        u8* mine = shared<u8>() + warp() * (STAGES * ROWS * ROOM);
        const u32 row = (block_x() * (threads() / 32) + warp()) * ROWS;
        const Segment own = segment_of(a.segments, block_y(), N, a.batch);
        if (row >= a.rows || own.first == own.end) return;
        const u8* w = a.w + own.matrix * a.matrix_bytes + row * a.row_bytes;
        const Vectors x(a, own);
        const u32 parts = a.cols / 32, chunks = div_up(parts, 32);
        f32 acc[ROWS][N];
        for (u32 r = 0; r < ROWS; r++)
            for (u32 n = 0; n < N; n++) acc[r][n] = 0;
#pragma unroll
        for (u32 s = 0; s < STAGES - 1; s++) {
            for (u32 r = 0; r < ROWS; r++)
                if (s < chunks && row + r < a.rows) fetch(a, w + r * a.row_bytes, s, mine + (s * ROWS + r) * ROOM, lane() * 16, 16 * 32);
            copy_commit();
        }
        for (u32 chunk = 0; chunk < chunks; chunk++) {
            const u32 next = chunk + STAGES - 1;
            for (u32 r = 0; r < ROWS; r++)
                if (next < chunks && row + r < a.rows) fetch(a, w + r * a.row_bytes, next, mine + (next % STAGES * ROWS + r) * ROOM, lane() * 16, 16 * 32);
            copy_commit();
            copy_wait<STAGES - 1>();
            sync_warp();
            const u32 part = chunk * 32 + lane();
            if (part < parts) {
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    if (row + r >= a.rows) break;
                    const u32 head = head_of(w + r * a.row_bytes + static_cast<u64>(chunk) * CHUNK);
                    const u8* b = mine + (chunk % STAGES * ROWS + r) * ROOM + head + lane() / PER * F::BYTES;
                    const u32 p = lane() % PER;
                    u32 c[8];
                    F::codes(b, p, c);
                    f32 scale[GROUPS], offset[GROUPS];
#pragma unroll
                    for (u32 g = 0; g < GROUPS; g++) scale[g] = F::scale(b, p * GROUPS + g), offset[g] = F::OFFSETS ? F::offset(b, p * GROUPS + g) : 0;
                    if (EXACT) exact(a, x, chunk, c, scale, offset, acc[r]);
                    else integer(a, x, part, c, scale, offset, acc[r]);
                }
            }
            sync_warp();
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
#pragma unroll
            for (u32 n = 0; n < N; n++) {
                const f32 y = warp_reduce<Add>(acc[r][n]);
                if (lane() == 0 && row + r < a.rows && n < x.count) store_as(a.y, static_cast<u64>(own.first + n) * a.rows + row + r, y, a.type);
            }
    }

    static DEVICE void integer(const QgemvArgs& a, const Vectors& vectors, u32 part, const u32 (&c)[8], const f32 (&scale)[GROUPS], const f32 (&offset)[GROUPS], f32 (&acc)[N]) {
#pragma unroll
        for (u32 n = 0; n < N; n++) {
            if (n >= vectors.count) break;
            const u64 at = static_cast<u64>(n) * (a.cols / 32) + part;
            const Quad x[2] = {load16(vectors.codes + at * 32), load16(vectors.codes + at * 32 + 16)};
            const Group group = vectors.groups[at];
            const i32 sums[2] = {static_cast<int16_t>(group.sums), group.sums >> 16};
            f32 sum = 0;
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                i32 dot = 0;
#pragma unroll
                for (u32 i = g * 8 / GROUPS; i < (g + 1) * 8 / GROUPS; i++) dot = dot4(c[i], x[i / 4].w[i % 4], dot);
                const i32 of = GROUPS == 2 ? sums[g] : sums[0] + sums[1];
                sum = fmaf(scale[g], static_cast<f32>(dot - F::ZERO * of), sum);
                if (F::OFFSETS) sum = fmaf(offset[g], static_cast<f32>(of), sum);
            }
            acc[n] = fmaf(group.scale, sum, acc[n]);
        }
    }

    static DEVICE void exact(const QgemvArgs& a, const Vectors& vectors, u32 chunk, const u32 (&c)[8], const f32 (&scale)[GROUPS], const f32 (&offset)[GROUPS], f32 (&acc)[N]) {
        const u32 chunks = div_up(a.cols, 1024);
        f32 w[8][4];
#pragma unroll
        for (u32 i = 0; i < 8; i++)
#pragma unroll
            for (u32 k = 0; k < 4; k++) w[i][k] = code_to_f32<F::ZERO>(c[i] ^ 0x80808080, k);
#pragma unroll
        for (u32 n = 0; n < N; n++) {
            if (n >= vectors.count) break;
            const u64 job = static_cast<u64>(n) * chunks + chunk;
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                f32 dot = 0;
#pragma unroll
                for (u32 i = g * 8 / GROUPS; i < (g + 1) * 8 / GROUPS; i++) {
                    Pack<f32> x;
                    x.quad = load16(vectors.exact + job * 1024 + i * 128 + lane() * 4);
#pragma unroll
                    for (u32 k = 0; k < 4; k++) dot = fmaf(w[i][k], x.at[k], dot);
                }
                acc[n] = fmaf(scale[g], dot, acc[n]);
                if (F::OFFSETS) {
                    const f32* s = vectors.sums + job * 64 + lane() * 2;
                    acc[n] = fmaf(offset[g], GROUPS == 2 ? s[g] : s[0] + s[1], acc[n]);
                }
            }
        }
    }
};

#ifdef MULTIPLIES_CODES
// Products of integers with up to eight vectors on tensor cores. A block has 16 rows, and goes through them 1024 columns at a time, as a warp does above; of their 32 parts each
// of its eight warps has four. Its lanes decode two rows of a part each, so that `load_tiles` finds them. Every part of the 32 has sums of its own, which at the end are added as
// lanes add theirs above: results have the same bits.
template <class F> struct QgemvTiles : Qgemv<F, 8, false> {
    typedef Qgemv<F, 8, false> Base;
    using Base::CHUNK, Base::ROOM, Base::PER, Base::GROUPS;
    // Sums begin with what zeros give, or are followed by what offsets give.
    static_assert(F::ZERO == 0 || !F::OFFSETS, "one word for both");
    static constexpr u32 ROWS = 16, PARTS = 4, STAGES = 3;
    // Bytes of a warp beside the rows: codes of weights and of vectors, 16 columns of all rows side by side; what else belongs to parts of vectors; scales and offsets of two rows.
    static constexpr u32 WEIGHTS = PARTS * ROWS * 32, INTEGERS = PARTS * 8 * 32, BESIDE = PARTS * 8 * 16, SCALES = PARTS * 2 * 8 * 16;

    // Where the codes of a vector are, 16 of them: not all in the same banks, neither those of a vector nor those of all.
    static DEVICE u32 place_of(u32 vector, u32 sixteenth) { return (sixteenth * 8 + (vector ^ sixteenth)) * 16; }

    static DEVICE void run(const QgemvArgs& a) {
        const Segment own = segment_of(a.segments, block_y(), 8, a.batch);
        if (own.first == own.end) return;
        const Vectors x(a, own);
        const u32 row = block_x() * ROWS, parts = a.cols / 32, chunks = div_up(parts, 32);
        u8 *rows = shared<u8>(), *weights = rows + STAGES * ROWS * ROOM + warp() * (WEIGHTS + INTEGERS + BESIDE + SCALES);
        u8 *codes = weights + WEIGHTS, *beside = codes + INTEGERS, *scales = beside + BESIDE;
        // Rows that do not exist are like the last one.
        const auto at = [&](u32 r) { return a.w + own.matrix * a.matrix_bytes + least(row + r, a.rows - 1) * a.row_bytes; };
        const auto bring = [&](u32 chunk) {
            const u32 r = thread() / 16;
            if (chunk < chunks) Base::fetch(a, at(r), chunk, rows + (chunk % STAGES * ROWS + r) * ROOM, thread() % 16 * 16, 16 * 16);
            copy_commit();
        };
        f32 acc[PARTS][4];
        for (u32 p = 0; p < PARTS; p++)
            for (u32 i = 0; i < 4; i++) acc[p][i] = 0;
        bring(0);
        bring(1);
        for (u32 chunk = 0; chunk < chunks; chunk++) {
            const u32 first = chunk * 32 + warp() * PARTS;
            Quad held[2];
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const u32 n = lane() / 8 + 4 * i, sixteenth = lane() % 8;
                const bool there = n < x.count && first + sixteenth / 2 < parts;
                held[i] = there ? load16(x.codes + static_cast<u64>(n) * a.cols + first * 32 + sixteenth * 16) : Quad{{0, 0, 0, 0}};
            }
            Group group = {0, 0};
            if (lane() / 4 < x.count && first + lane() % 4 < parts) group = x.groups[static_cast<u64>(lane() / 4) * parts + first + lane() % 4];
            copy_wait<1>();
            sync_block();
            bring(chunk + 2);
#pragma unroll
            for (u32 i = 0; i < 2; i++) store16(codes + place_of(lane() / 8 + 4 * i, lane() % 8), held[i]);
            // What scales are multiplied with later, or sums of integers begin with.
            const i32 of[2] = {static_cast<int16_t>(group.sums), group.sums >> 16};
            u32 rest[2];
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                const i32 sum = GROUPS == 2 ? of[g] : of[0] + of[1];
                rest[g] = F::OFFSETS ? bits_of(static_cast<f32>(sum)) : static_cast<u32>(-F::ZERO * sum);
            }
            store16(beside + (lane() % 4 * 8 + lane() / 4) * 16, Quad{{bits_of(group.scale), rest[0], rest[GROUPS - 1], 0}});
            decode(a, at, rows + chunk % STAGES * ROWS * ROOM, chunk, weights, scales);
            sync_warp();
#pragma unroll
            for (u32 pair = 0; pair < PARTS; pair += 2) {
                u32 right[4];
                load_tiles<false>(right, codes + place_of(lane() % 8, pair * 2 + lane() / 8));
#pragma unroll
                for (u32 p = pair; p < pair + 2; p++)
                    if (first + p < parts) multiply(weights, scales, beside, p, {right[p % 2 * 2], right[p % 2 * 2 + 1]}, acc[p]);
            }
        }
        sync_block();
        struct alignas(8) Two { f32 at[2]; };
        f32* sums = shared<f32>();
#pragma unroll
        for (u32 p = 0; p < PARTS; p++)
#pragma unroll
            for (u32 i = 0; i < 4; i += 2)
                *reinterpret_cast<Two*>(sums + ((warp() * PARTS + p) * ROWS + lane() / 4 + 4 * i) * 8 + lane() % 4 * 2) = Two{{acc[p][i], acc[p][i + 1]}};
        sync_block();
        // Two threads have a result, one the sums of even parts and the other those of odd ones.
        const u32 r = thread() / 16, n = thread() / 2 % 8;
        f32 v[16];
#pragma unroll
        for (u32 k = 0; k < 16; k++) v[k] = sums[((2 * k + thread() % 2) * ROWS + r) * 8 + n];
#pragma unroll
        for (u32 step = 0; step < 4; step++)
#pragma unroll
            for (u32 k = 0; k < 8; k++)
                if (k < 8u >> step) v[k] += v[k + (8u >> step)];
        const f32 y = v[0] + shuffle_xor(v[0], 1);
        if (thread() % 2 == 0 && row + r < a.rows && n < x.count) store_as(a.y, static_cast<u64>(own.first + n) * a.rows + row + r, y, a.type);
    }

    // Of the warp's parts, a lane has rows r and r + 8 of one.
    template <class At> static DEVICE void decode(const QgemvArgs& a, At at, const u8* rows, u32 chunk, u8* weights, u8* scales) {
        const u32 r = lane() % 8, mine = lane() / 8, part = warp() * PARTS + mine;
        if (chunk * 32 + part >= a.cols / 32) return;
        Pack<f32> both[GROUPS];
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u8* b = rows + (r + 8 * i) * ROOM + Base::head_of(at(r + 8 * i) + static_cast<u64>(chunk) * CHUNK) + part / PER * F::BYTES;
            const u32 p = part % PER;
            u32 c[8];
            F::codes(b, p, c);
            store16(weights + mine * (ROWS * 32) + (r + 8 * i) * 16, Quad{{c[0], c[1], c[2], c[3]}});
            store16(weights + mine * (ROWS * 32) + (ROWS + r + 8 * i) * 16, Quad{{c[4], c[5], c[6], c[7]}});
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                both[g].at[i] = F::scale(b, p * GROUPS + g);
                both[g].at[2 + i] = F::OFFSETS ? F::offset(b, p * GROUPS + g) : 0;
            }
        }
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) store16(scales + ((mine * GROUPS + g) * 8 + r) * 16, both[g].quad);
    }

    // Adds products of part p of the warp: lane 4 g + t has those of rows g and g + 8 with vectors 2 t and 2 t + 1.
    static DEVICE void multiply(const u8* weights, const u8* scales, const u8* beside, u32 p, const u32 (&right)[2], f32 (&acc)[4]) {
        u32 left[4];
        load_tiles<false>(left, weights + p * (ROWS * 32) + lane() * 16);
        const Quad of[2] = {load16(beside + (p * 8 + lane() % 4 * 2) * 16), load16(beside + (p * 8 + lane() % 4 * 2 + 1) * 16)};
        f32 sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            Pack<f32> s;
            s.quad = load16(scales + ((p * GROUPS + g) * 8 + lane() / 4) * 16);
            i32 dot[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) dot[i] = F::OFFSETS || F::ZERO == 0 ? 0 : static_cast<i32>(of[i % 2].w[1 + g]);
            if constexpr (GROUPS == 1) mma(dot, left, right);
            else {
                const u32 a[2] = {left[2 * g], left[2 * g + 1]}, b[1] = {right[g]};
                mma(dot, a, b);
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                sum[i] = fmaf(s.at[i / 2], static_cast<f32>(dot[i]), sum[i]);
                if (F::OFFSETS) sum[i] = fmaf(s.at[2 + i / 2], from_bits(of[i % 2].w[1 + g]), sum[i]);
            }
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) acc[i] = fmaf(from_bits(of[i % 2].w[0]), sum[i], acc[i]);
    }
};

#define QGEMV_TILES(NAME, F) \
    KERNEL(qgemv_q8_##NAME##_t8, QgemvArgs, 256) { QgemvTiles<F>::run(a); }
EACH_FORMAT(QGEMV_TILES)
#endif

// Where there are tiles, no GPU needs these.
#if !defined(MULTIPLIES_CODES) || !defined(__CUDACC__)
#define QGEMV_FEW(NAME, F)                                                                    \
    KERNEL(qgemv_q8_##NAME##_n2, QgemvArgs, 128) { Qgemv<F, 2, false>::run(a); }              \
    KERNEL(qgemv_q8_##NAME##_n4, QgemvArgs, 128) { Qgemv<F, 4, false>::run(a); }              \
    KERNEL(qgemv_q8_##NAME##_n8, QgemvArgs, 128) { Qgemv<F, 8, false>::run(a); }
EACH_FORMAT(QGEMV_FEW)
#endif

#define QGEMV(NAME, F)                                                                        \
    KERNEL(qgemv_q8_##NAME##_n1, QgemvArgs, 128) { Qgemv<F, 1, false>::run(a); }              \
    KERNEL(qgemv_f32_##NAME##_n1, QgemvArgs, 128) { Qgemv<F, 1, true>::run(a); }              \
    KERNEL(qgemv_f32_##NAME##_n8, QgemvArgs, 128) { Qgemv<F, 8, true>::run(a); }
EACH_FORMAT(QGEMV)
