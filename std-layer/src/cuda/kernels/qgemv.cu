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
    // 2^split warps share the columns of a row: 1, 2 or 4.
    u32 split;
};

// The vectors of a block.
struct Vectors {
    const i8* codes;
    const Group* groups;
    const f32* exact;
    const f32* sums;
    u32 count, parts;

    DEVICE Vectors(const QgemvArgs& a, const Segment& own) : count(own.end - own.first), parts(a.cols / 32) {
        const u64 first = a.single ? 0 : own.first, chunks = div_up(a.cols, 1024);
        codes = a.codes + first * a.cols, groups = a.groups + first * parts;
        exact = a.exact + first * chunks * 1024, sums = a.sums + first * chunks * 64;
    }
};

// A warp has ROWS rows, and one, two or all four warps of a block share their columns, 1024 at a time. These arrive in a warp's own part of shared memory,
// as they lie in memory, 16 bytes at a time; while each lane takes 32 columns of every row, the next ones are on their way.
template <class F, u32 N, bool EXACT> struct Qgemv {
    static constexpr u32 ROWS = N <= 2 ? 2 : 1, WARPS = 4, PER = F::LEN / 32, GROUPS = 32 / F::GROUP;
    static constexpr u32 CHUNK = 1024 / F::LEN * F::BYTES;
    // A chunk starts up to 15 bytes behind a multiple of 16.
    static constexpr u32 SLACK = F::BYTES % 16 == 0 ? 0 : 15, ROOM = (CHUNK + 15 + 15) / 16 * 16, STAGE = ROWS * ROOM;

    // A warp's rows, and where a lane is in them.
    struct Rows {
        const u8* first;
        u32 row_bytes, count, lane, to;

        // Where the chunk of a row begins; a row that does not exist is like the last one.
        DEVICE const u8* at(u32 r, u32 chunk) const { return first + static_cast<u64>(least(r, count - 1)) * row_bytes + chunk * CHUNK; }
        // What lies before it since the last multiple of 16.
        DEVICE u32 head(u32 r, u32 chunk) const { return SLACK ? static_cast<u32>(reinterpret_cast<u64>(at(r, chunk))) % 16 : 0; }
        DEVICE u8* stage(u32 s) const { return shared<u8>() + to + s * STAGE; }
        DEVICE void bring(u32 chunk, u32 s) const {
            const u32 bytes = least(CHUNK, row_bytes - chunk * CHUNK);
            u8* room = stage(s) + lane * 16;
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                const u32 ahead = head(r, chunk);
                const u8* from = at(r, chunk) - ahead + lane * 16;
#pragma unroll
                for (u32 i = 0; i < ROOM; i += 16 * 32)
                    if (lane * 16 + i < ahead + bytes) copy_async(room + r * ROOM + i, from + i);
            }
            copy_commit();
        }
    };

    static DEVICE void run(const QgemvArgs& a) {
        // Which weights these are a kernel may have to say.
        if (a.segments) wait_for_inputs();
        const Segment own = segment_of(a.segments, block_y(), N, a.batch);
        if (own.first == own.end) return wait_for_inputs();
        const u32 step = 1 << a.split, slot = warp() & (step - 1), row = ((block_x() * WARPS + warp()) >> a.split) * ROWS, parts = a.cols / 32;
        // Warps without rows have nothing to do until sums are added.
        const u32 chunks = row < a.rows ? div_up(parts, 32) : 0;
        const Vectors x(a, own);
        Rows rows;
        rows.first = keep(a.w + own.matrix * a.matrix_bytes + row * a.row_bytes), rows.row_bytes = static_cast<u32>(a.row_bytes), rows.count = least(ROWS, a.rows - row);
        rows.lane = keep(lane()), rows.to = keep(warp() * (2 * STAGE));
        f32 acc[ROWS][N];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
#pragma unroll
            for (u32 n = 0; n < N; n++) acc[r][n] = 0;
        if (slot < chunks) rows.bring(slot, 0);
        wait_for_inputs();
        u32 s = 0;
        for (u32 chunk = slot; chunk < chunks; chunk += step) {
            const u32 part = chunk * 32 + rows.lane;
            Input in(x, chunk, least(part, parts - 1));
            copy_wait<0>();
            sync_warp();
            if (chunk + step < chunks) rows.bring(chunk + step, s ^ 1);
            u32 c[ROWS][8];
            f32 scale[ROWS][GROUPS], offset[ROWS][GROUPS];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                const u8* b = rows.stage(s) + r * ROOM + rows.head(r, chunk) + rows.lane / PER * F::BYTES;
                const u32 p = rows.lane % PER;
                F::codes(b, p, c[r]);
#pragma unroll
                for (u32 g = 0; g < GROUPS; g++) scale[r][g] = F::scale(b, p * GROUPS + g), offset[r][g] = F::OFFSETS ? F::offset(b, p * GROUPS + g) : 0;
            }
            if (part < parts) {
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    if constexpr (EXACT) exact(x, in, c[r], scale[r], offset[r], acc[r]);
                    else integer(x, in, c[r], scale[r], offset[r], acc[r]);
                }
            }
            s ^= 1;
        }
        // Sums of lanes, then those of warps.
        sync_block();
        static constexpr u32 SUMS = ROWS * N;
        f32* sums = shared<f32>();
        const f32 sum = warp_sums(reinterpret_cast<f32(&)[SUMS]>(acc));
        if (lane() % (WARP / SUMS) == 0) sums[warp() * SUMS + lane() / (WARP / SUMS)] = sum;
        sync_block();
        const u32 i = lane();
        if (slot || i >= SUMS) return;
        const u32 r = i / N, n = i % N;
        if (row + r >= a.rows || n >= x.count) return;
        f32 y = 0;
        for (u32 w = 0; w < step; w++) y += sums[(warp() + w) * SUMS + i];
        store_as(a.y, static_cast<u64>(own.first + n) * a.rows + row + r, y, a.type);
    }

    // What a lane has of the vectors in a chunk: of a single one all of it.
    struct Input {
        u32 chunk, part;
        Quad quads[EXACT ? 8 : 2];
        Group group;

        DEVICE Input(const Vectors& x, u32 chunk, u32 part) : chunk(chunk), part(part) {
            if (N == 1) load(x, 0);
        }
        DEVICE void load(const Vectors& x, u32 n) {
            if constexpr (EXACT) {
                const f32* from = x.exact + (static_cast<u64>(n) * div_up(x.parts, 32) + chunk) * 1024 + lane() * 4;
#pragma unroll
                for (u32 i = 0; i < 8; i++) quads[i] = load16(from + i * 128);
            } else {
                const u64 at = static_cast<u64>(n) * x.parts + part;
                quads[0] = load16(x.codes + at * 32), quads[1] = load16(x.codes + at * 32 + 16);
                group = x.groups[at];
            }
        }
    };

    static DEVICE void integer(const Vectors& x, Input& in, const u32 (&c)[8], const f32 (&scale)[GROUPS], const f32 (&offset)[GROUPS], f32 (&acc)[N]) {
#pragma unroll
        for (u32 n = 0; n < N; n++) {
            if (n >= x.count) break;
            if (N > 1) in.load(x, n);
            const i32 sums[2] = {static_cast<int16_t>(in.group.sums), in.group.sums >> 16};
            f32 sum = 0;
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                i32 dot = 0;
#pragma unroll
                for (u32 i = g * 8 / GROUPS; i < (g + 1) * 8 / GROUPS; i++) dot = dot4(c[i], in.quads[i / 4].w[i % 4], dot);
                const i32 of = GROUPS == 2 ? sums[g] : sums[0] + sums[1];
                sum = fmaf(scale[g], static_cast<f32>(dot - F::ZERO * of), sum);
                if (F::OFFSETS) sum = fmaf(offset[g], static_cast<f32>(of), sum);
            }
            acc[n] = fmaf(in.group.scale, sum, acc[n]);
        }
    }

    static DEVICE void exact(const Vectors& x, Input& in, const u32 (&c)[8], const f32 (&scale)[GROUPS], const f32 (&offset)[GROUPS], f32 (&acc)[N]) {
        f32 w[8][4];
#pragma unroll
        for (u32 i = 0; i < 8; i++)
#pragma unroll
            for (u32 k = 0; k < 4; k++) w[i][k] = Code<F>::number(c[i], k) - Code<F>::MORE;
#pragma unroll
        for (u32 n = 0; n < N; n++) {
            if (n >= x.count) break;
            if (N > 1) in.load(x, n);
            const f32* sums = x.sums + (static_cast<u64>(n) * div_up(x.parts, 32) + in.chunk) * 64 + lane() * 2;
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                f32 dot = 0;
#pragma unroll
                for (u32 i = g * 8 / GROUPS; i < (g + 1) * 8 / GROUPS; i++)
#pragma unroll
                    for (u32 k = 0; k < 4; k++) dot = fmaf(w[i][k], from_bits(in.quads[i].w[k]), dot);
                acc[n] = fmaf(scale[g], dot, acc[n]);
                if (F::OFFSETS) acc[n] = fmaf(offset[g], GROUPS == 2 ? sums[g] : sums[0] + sums[1], acc[n]);
            }
        }
    }
};

#ifdef MULTIPLIES_CODES
// Products of integers with up to eight vectors on tensor cores. A block has 16 rows, and its eight warps share their columns, 256 at a time, 8 parts of 32. These arrive in a warp's own part of
// shared memory as they lie in memory, and while they are multiplied the next ones are on their way. Of each part lane 4 g + t decodes codes 8 t to 8 t + 7 of rows g and g + 8, which is what `mma` takes as its left operand if the right one has its rows in
// the same order.
template <class F> struct QgemvTiles {
    static constexpr u32 N = 8, WARPS = 8, PARTS = 8, ROWS = 16, PER = F::LEN / 32, GROUPS = 32 / F::GROUP, CHUNK = PARTS * 32 / F::LEN * F::BYTES;
    // A row starts up to 15 bytes behind a multiple of 16; where rows start, eight lanes find different banks.
    static constexpr bool ALIGNED = F::BYTES % 16 == 0;
    static constexpr u32 ROOM = ((CHUNK + 15 + 15) / 16 * 16 + 31) / 64 * 64 + 32, STAGE = ROWS * ROOM;
    // What belongs to a part of a vector, and of a row.
    static constexpr u32 SIDE = GROUPS * 8, SIDES = N * SIDE + 16, SCALES = GROUPS * (F::OFFSETS ? 2 : 1), RECORDS = PARTS * SIDES + ROWS * (PARTS + 1) * SCALES * 4;
    // 2^23 + 2^22, as an integer and as a number: a small integer added to its bits is a number.
    static constexpr u32 BIAS = 0x4b400000;
    // Lanes that copy a row.
    static constexpr u32 ACROSS = 8, COPIES = ROWS * ACROSS / 32;

    static DEVICE u32 head_of(const u8* p) { return ALIGNED ? 0 : static_cast<u32>(reinterpret_cast<u64>(p)) % 16; }

    // Where a lane copies from: its first 16 bytes of rows.
    struct Lane {
        const u8* rows[COPIES];
        u32 parts, lane, to;

        DEVICE void bring(u32 chunk, u32 stage) const {
            if (chunk * PARTS >= parts) return;
            const u32 many = least(PARTS, parts - chunk * PARTS), bytes = many * 32 / F::LEN * F::BYTES, first = lane % ACROSS * 16;
            u8* room = shared<u8>() + to + stage * STAGE;
#pragma unroll
            for (u32 i = 0; i < COPIES; i++) {
                const u8* from = rows[i] + static_cast<u64>(chunk) * CHUNK;
                const u32 head = head_of(from);
#pragma unroll
                for (u32 at = 0; at < CHUNK + (ALIGNED ? 0 : 15); at += ACROSS * 16)
                    if (at + first < head + bytes) copy_async(room + (i * (32 / ACROSS) + lane / ACROSS) * ROOM + first + at, from - head + at);
            }
            copy_commit();
        }
    };

    static DEVICE void run(const QgemvArgs& a) {
        // Which weights these are a kernel may have to say.
        if (a.segments) wait_for_inputs();
        const Segment own = segment_of(a.segments, block_y(), N, a.batch);
        if (own.first == own.end) return wait_for_inputs();
        const Vectors x(a, own);
        const u32 row = block_x() * ROWS;
        // Rows that do not exist are like the last one.
        const auto row_at = [&](u32 r) { return a.w + own.matrix * a.matrix_bytes + least(row + r, a.rows - 1) * a.row_bytes; };
        Lane mine;
        mine.lane = keep(lane()), mine.to = keep(warp() * (2 * STAGE)), mine.parts = x.parts;
#pragma unroll
        for (u32 i = 0; i < COPIES; i++) mine.rows[i] = keep(row_at(i * (32 / ACROSS) + mine.lane / ACROSS) + mine.lane % ACROSS * 16);
        u32 starts[2];
        for (u32 i = 0; i < 2; i++) starts[i] = static_cast<u32>(reinterpret_cast<u64>(row_at(mine.lane / 4 + 8 * i)));
        f32 acc[16] = {};
        mine.bring(warp(), 0);
        wait_for_inputs();
        u32 stage = 0;
        for (u32 chunk = warp(); chunk * PARTS < x.parts; chunk += WARPS) {
            const Side side(x, mine.lane, chunk);
            copy_wait<0>();
            sync_warp();
            mine.bring(chunk + WARPS, stage ^ 1);
            const u8* rows[2];
#pragma unroll
            for (u32 i = 0; i < 2; i++) rows[i] = shared<u8>() + mine.to + stage * STAGE + (mine.lane / 4 + 8 * i) * ROOM + (ALIGNED ? 0 : (starts[i] + chunk * CHUNK) % 16);
            multiply(rows, side, x.parts - chunk * PARTS, shared<u8>() + WARPS * 2 * STAGE + warp() * RECORDS, acc);
            stage ^= 1;
        }
        finish(a, own, x.count, row, acc);
    }

    // What a lane has of the vectors in a chunk: codes as `mma` takes them, and what belongs to parts.
    struct Side {
        Pair codes[PARTS];
        Group groups[N * PARTS / 32];

        DEVICE Side(const Vectors& x, u32 lane, u32 chunk) {
            const u32 first = chunk * PARTS;
#pragma unroll
            for (u32 i = 0; i < PARTS; i++) {
                codes[i] = {{0, 0}};
                if (first + i < x.parts && lane / 4 < x.count) codes[i] = load_pair(x.codes + (static_cast<u64>(lane / 4) * x.parts + first + i) * 32 + lane % 4 * 8);
            }
#pragma unroll
            for (u32 i = 0; i < N * PARTS / 32; i++) {
                groups[i] = {0, 0};
                const u32 n = i * 32 / PARTS + lane / PARTS, part = first + lane % PARTS;
                if (part < x.parts && n < x.count) groups[i] = x.groups[static_cast<u64>(n) * x.parts + part];
            }
        }
    };

    static DEVICE f32 whole(i32 dot) { return from_bits(static_cast<u32>(dot)) - from_bits(BIAS); }
    static DEVICE i32 sum_of(const Group& group, u32 of) {
        const i32 sums[2] = {static_cast<int16_t>(group.sums), group.sums >> 16};
        return GROUPS == 2 ? sums[of] : sums[0] + sums[1];
    }
    static DEVICE const u8* block_of(const u8* row, u32 part) { return row + part / PER * F::BYTES; }
    // The left operand of a part.
    static DEVICE void decode(const u8* const (&rows)[2], u32 part, u32 (&left)[4]) {
        u32 c[2][2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) F::codes(block_of(rows[i], part), part % PER, c[i], lane() % 4 * 2);
        left[0] = c[0][0], left[1] = c[1][0], left[2] = c[0][1], left[3] = c[1][1];
    }

    // `most` parts: what belongs to them is written to `records`, where each lane finds it.
    static DEVICE void multiply(const u8* const (&rows)[2], const Side& side, u32 most, u8* records, f32 (&acc)[16]) {
        const u32 g = lane() / 4, t = lane() % 4;
        // What belongs to a part of a vector: its scale, and what sums of integers begin with, or offsets are multiplied with.
#pragma unroll
        for (u32 i = 0; i < N * PARTS / 32; i++) {
            const u32 v = i * 32 / PARTS + lane() / PARTS, part = lane() % PARTS;
            const Group group = side.groups[i];
            u32 rest[2];
#pragma unroll
            for (u32 of = 0; of < GROUPS; of++) rest[of] = F::OFFSETS ? bits_of(static_cast<f32>(sum_of(group, of))) : BIAS - static_cast<u32>(F::ZERO * sum_of(group, of));
            u8* to = records + part * SIDES + v * SIDE;
            if constexpr (GROUPS == 2) store16(to, Quad{{bits_of(group.scale), rest[0], rest[1], 0}});
            else store_pair(to, Pair{{bits_of(group.scale), rest[0]}});
        }
        // And to one of a row: scales and offsets.
        u8* scales = records + PARTS * SIDES;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            f32 v[PARTS / 4][SCALES];
#pragma unroll
            for (u32 quad = 0; quad < PARTS / 4; quad++) {
                const u32 part = quad * 4 + t;
                const u8* block = block_of(rows[i], part);
#pragma unroll
                for (u32 of = 0; of < GROUPS; of++) {
                    v[quad][of] = F::scale(block, part % PER * GROUPS + of);
                    if constexpr (F::OFFSETS) v[quad][GROUPS + of] = F::offset(block, part % PER * GROUPS + of);
                }
            }
#pragma unroll
            for (u32 quad = 0; quad < PARTS / 4; quad++) {
                f32* to = reinterpret_cast<f32*>(scales + ((g + 8 * i) * (PARTS + 1) + quad * 4 + t) * (SCALES * 4));
                if constexpr (SCALES == 4) store_pack(to, v[quad]);
                else if constexpr (SCALES == 2) store_pair(to, Pair{{bits_of(v[quad][0]), bits_of(v[quad][1])}});
                else *to = v[quad][0];
            }
        }
        sync_warp();
#pragma unroll
        for (u32 part = 0; part < PARTS; part++) {
            if (part >= most) break;
            const Pair right = side.codes[part];
            f32 scale[2];
            u32 rest[2][2];
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const u8* from = records + part * SIDES + (2 * t + j) * SIDE;
                if constexpr (GROUPS == 2) {
                    const Quad q = load16(from);
                    scale[j] = from_bits(q.w[0]), rest[j][0] = q.w[1], rest[j][1] = q.w[2];
                } else {
                    const Quad q = load16(from - j * SIDE);
                    scale[j] = from_bits(q.w[2 * j]), rest[j][0] = q.w[2 * j + 1];
                }
            }
            u32 left[4];
            decode(rows, part, left);
            i32 dot[GROUPS][4];
#pragma unroll
            for (u32 of = 0; of < GROUPS; of++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) dot[of][i] = static_cast<i32>(F::OFFSETS ? BIAS : rest[i % 2][of]);
                const bool half = GROUPS == 1 || of == t / 2;
                const u32 b[2] = {half ? right.w[0] : 0, half ? right.w[1] : 0};
                mma(dot[of], left, b);
            }
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const u8* from = scales + ((g + 8 * i) * (PARTS + 1) + part) * (SCALES * 4);
                f32 v[SCALES];
                if constexpr (SCALES == 4) load_pack(v, reinterpret_cast<const f32*>(from));
                else if constexpr (SCALES == 2) {
                    const Pair two = load_pair(from);
                    v[0] = from_bits(two.w[0]), v[1] = from_bits(two.w[1]);
                } else v[0] = *reinterpret_cast<const f32*>(from);
#pragma unroll
                for (u32 j = 0; j < 2; j++) {
                    f32 sum = 0;
#pragma unroll
                    for (u32 of = 0; of < GROUPS; of++) {
                        sum = fmaf(v[of], whole(dot[of][2 * i + j]), sum);
                        if constexpr (F::OFFSETS) sum = fmaf(v[GROUPS + of], from_bits(rest[j][of]), sum);
                    }
                    f32& to = acc[part % 4 * 4 + 2 * i + j];
                    to = fmaf(scale[j], sum, to);
                }
            }
        }
    }

    // Adds sums: those of every fourth part, then those of the warps.
    static DEVICE void finish(const QgemvArgs& a, const Segment& own, u32 count, u32 row, f32 (&acc)[16]) {
        const u32 g = lane() / 4, t = lane() % 4;
        sync_block();
        f32* sums = shared<f32>();
#pragma unroll
        for (u32 i = 0; i < 2; i++)
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const u32 k = 2 * i + j;
                sums[(warp() * ROWS + g + 8 * i) * N + 2 * t + j] = (acc[k] + acc[4 + k]) + (acc[8 + k] + acc[12 + k]);
            }
        sync_block();
        if (thread() >= ROWS * N) return;
        const u32 r = thread() / N, n = thread() % N;
        f32 y = 0;
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) y += sums[w * (ROWS * N) + thread()];
        if (row + r < a.rows && n < count) store_as(a.y, static_cast<u64>(own.first + n) * a.rows + row + r, y, a.type);
    }
};

#define QGEMV_TILES(NAME, F) \
    KERNEL_EARLY(qgemv_q8_##NAME##_t8, QgemvArgs, 256) { QgemvTiles<F>::run(a); }
EACH_INTEGER_FORMAT(QGEMV_TILES)
#endif

// Where there are tiles, no GPU needs these.
#if !defined(MULTIPLIES_CODES) || !defined(__CUDACC__)
#define QGEMV_FEW(NAME, F) \
    KERNEL_EARLY(qgemv_q8_##NAME##_n2, QgemvArgs, 128) { Qgemv<F, 2, false>::run(a); } \
    KERNEL_EARLY(qgemv_q8_##NAME##_n4, QgemvArgs, 128) { Qgemv<F, 4, false>::run(a); } \
    KERNEL_EARLY(qgemv_q8_##NAME##_n8, QgemvArgs, 128) { Qgemv<F, 8, false>::run(a); }
EACH_INTEGER_FORMAT(QGEMV_FEW)
#endif

#define QGEMV_ONE(NAME, F) \
    KERNEL_EARLY(qgemv_q8_##NAME##_n1, QgemvArgs, 128) { Qgemv<F, 1, false>::run(a); }
EACH_INTEGER_FORMAT(QGEMV_ONE)

#define QGEMV_EXACT(NAME, F) \
    KERNEL_EARLY(qgemv_f32_##NAME##_n1, QgemvArgs, 128) { Qgemv<F, 1, true>::run(a); } \
    KERNEL_EARLY(qgemv_f32_##NAME##_n8, QgemvArgs, 128) { Qgemv<F, 8, true>::run(a); }
EACH_FORMAT(QGEMV_EXACT)
