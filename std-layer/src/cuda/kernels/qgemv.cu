// Products of weights in blocks with few vectors: Y[n][r] = sum over c of W[r][c] X[n][c]. A block takes N of the vectors, blocks of y the next ones.
#include "formats.cuh"
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

    static DEVICE void fetch(const QgemvArgs& a, const u8* row, u32 chunk, u8* to) {
        const u8* at = row + static_cast<u64>(chunk) * CHUNK;
        const u32 head = head_of(at);
        const u64 left = a.row_bytes - static_cast<u64>(chunk) * CHUNK;
        const u32 bytes = head + (left < CHUNK ? static_cast<u32>(left) : CHUNK);
        const u8* from = at - head;
        for (u32 i = lane() * 16; i < bytes; i += 16 * 32) copy_async(to + i, from + i);
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
                if (s < chunks && row + r < a.rows) fetch(a, w + r * a.row_bytes, s, mine + (s * ROWS + r) * ROOM);
            copy_commit();
        }
        for (u32 chunk = 0; chunk < chunks; chunk++) {
            const u32 next = chunk + STAGES - 1;
            for (u32 r = 0; r < ROWS; r++)
                if (next < chunks && row + r < a.rows) fetch(a, w + r * a.row_bytes, next, mine + (next % STAGES * ROWS + r) * ROOM);
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

#define QGEMV(NAME, F)                                                                        \
    KERNEL(qgemv_q8_##NAME##_n1, QgemvArgs, 128) { Qgemv<F, 1, false>::run(a); }              \
    KERNEL(qgemv_q8_##NAME##_n2, QgemvArgs, 128) { Qgemv<F, 2, false>::run(a); }              \
    KERNEL(qgemv_q8_##NAME##_n4, QgemvArgs, 128) { Qgemv<F, 4, false>::run(a); }              \
    KERNEL(qgemv_q8_##NAME##_n8, QgemvArgs, 128) { Qgemv<F, 8, false>::run(a); }              \
    KERNEL(qgemv_f32_##NAME##_n1, QgemvArgs, 128) { Qgemv<F, 1, true>::run(a); }              \
    KERNEL(qgemv_f32_##NAME##_n8, QgemvArgs, 128) { Qgemv<F, 8, true>::run(a); }
EACH_FORMAT(QGEMV)
