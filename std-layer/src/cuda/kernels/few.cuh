// Matrix products of few rows: memory is to be read as fast as it can be.
#pragma once

#include "formats.cuh"
#include "mma.cuh"
#include "product.cuh"

// A block has up to ROWS rows and COLUMNS columns of Y, and goes through 256 columns of X and W at a time, a piece: two warps share 16 columns of Y, and have half of each piece.
// A lane takes its weights from memory or from blocks itself, in the operands that `mma` wants. So columns of X and W are in another order than there, which is that of `W::order`.
// Pieces of X, and of weights in blocks, lie in BYTES of shared memory, up to four.
template <u32 ROWS_, u32 COLUMNS_, u32 BYTES_> struct FewTiles {
    static constexpr u32 ROWS = ROWS_, COLUMNS = COLUMNS_, BYTES = BYTES_, DEPTH = 256, ROW = 2 * DEPTH, THREADS = 4 * COLUMNS, STAGES = 4;
};
// As much as blocks have at most.
#if !defined(__CUDACC__) || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
typedef FewTiles<64, 128, 224 << 10> Few;
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
typedef FewTiles<32, 128, 160 << 10> Few;
#elif __CUDA_ARCH__ >= 800
typedef FewTiles<32, 64, 96 << 10> Few;
#else
typedef FewTiles<32, 32, 64 << 10> Few;
#endif

// A block's results meet in shared memory, by rows, with four numbers between them, so that lanes write to different banks.
template <class Tiles> static constexpr u32 Y_PITCH = Tiles::COLUMNS + 4;
template <class Tiles> DEVICE void put_rows(const GemmArgs& a, const Segment& own) {
    static constexpr u32 FOURS = Tiles::COLUMNS / 4;
    sync_block();
    for (u32 i = thread(); i < (own.end - own.first) * FOURS; i += Tiles::THREADS) {
        const u32 row = i / FOURS, column = i % FOURS * 4, n = block_y() * Tiles::COLUMNS + column;
        const u64 to = (static_cast<u64>(block_z()) * a.m + own.first + row) * a.n + n;
        Pack<f32> four;
        four.quad = load16(shared<f32>() + row * Y_PITCH<Tiles> + column);
        if (a.n % 4 == 0 && n < a.n) store4_as(a.y, to, four.at, a.type);
        else
            for (u32 k = 0; k < 4 && n + k < a.n; k++) store_as(a.y, to + k, four.at[k], a.type);
    }
}

// The rows of W that a lane has, which lie eight apart; those that do not exist are like the last one.
DEVICE u32 few_row(u32 n, u32 r) { return least(block_y() * Few::COLUMNS + warp() % (Few::COLUMNS / 16) * 16 + lane() / 4 + 8 * r, n - 1); }
// Of the eight groups of 32 columns of a piece, the first that the warp has.
DEVICE u32 few_part() { return warp() / (Few::COLUMNS / 16) * 4; }

// Four weights in bf16 from their codes. Where there are zeros or offsets `rest` has what is added to the products of the scale and codes that are MORE.
template <class F> DEVICE Pair narrow_weights(u32 codes, f32 scale, f32 rest) {
    f32 v[4];
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const f32 code = Code<F>::number(codes, k);
        v[k] = Code<F>::POSITIVE ? fmaf(code, scale, rest) : (code - Code<F>::MORE) * scale;
    }
    return {{narrow2(v[0], v[1], bf16()), narrow2(v[2], v[3], bf16())}};
}

template <class T, class Tiles> struct Dense;
template <class T, class Tiles, class F> struct Blocks;

// Dense weights, which wait in registers. Of every 32 columns a lane has eight side by side.
template <class T> struct Dense<T, Few> {
    static constexpr u32 BYTES = 0;
    const GemmArgs& a;
    const T* row[2];
    Quad held[2][4];

    static DEVICE u32 order(u32 chunk) { return chunk; }
    DEVICE Dense(const GemmArgs& a, const Segment& own) : a(a) {
        for (u32 r = 0; r < 2; r++) row[r] = static_cast<const T*>(a.w) + (static_cast<u64>(own.matrix) * a.n + few_row(a.n, r)) * a.k + few_part() * 32 + lane() % 4 * 8;
    }
    DEVICE void start(u32) {}
    DEVICE void copy(u8*) {}
    DEVICE void load(u32 k) {
#pragma unroll
        for (u32 r = 0; r < 2; r++)
#pragma unroll
            for (u32 q = 0; q < 4; q++) held[r][q] = k + (few_part() + q) * 32 + lane() % 4 * 8 < a.k ? load_once(row[r] + k + q * 32) : Quad{{0, 0, 0, 0}};
    }
    DEVICE void take(u32 (&to)[8][4], const u8*, u32) const {
#pragma unroll
        for (u32 r = 0; r < 2; r++)
#pragma unroll
            for (u32 q = 0; q < 4; q++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) to[2 * q + i / 2][r + i % 2 * 2] = held[r][q].w[i];
    }
};

// Weights in blocks, which are copied as they are. Of every 128 columns a lane has 32 side by side.
template <class T, class F> struct Blocks<T, Few, F> {
    static constexpr u32 PER = F::LEN / 32, GROUPS = 32 / F::GROUP, PIECE = Few::DEPTH / F::LEN * F::BYTES;
    // Whether something may lie before the first byte since a multiple of 16. Rows lie an odd number of 16 bytes apart.
    static constexpr bool SHIFTED = PIECE % 16 != 0 || F::LEN < Few::DEPTH;
    static constexpr u32 PITCH = (SHIFTED ? PIECE + 30 : PIECE) / 16 * 16 | 16, BYTES = Few::COLUMNS * PITCH;
    const GemmArgs& a;
    // What this thread copies next, of a row; and the last bits of addresses of the rows that the lane has.
    const u8* next;
    u32 left, low[2];

    static DEVICE u32 order(u32 chunk) { return chunk / 16 * 16 + chunk % 4 * 4 + chunk / 4 % 4; }
    DEVICE Blocks(const GemmArgs& a, const Segment& own) : a(a), left(static_cast<u32>(a.row_bytes)) {
        const u8* w = static_cast<const u8*>(a.w) + own.matrix * (a.n * a.row_bytes);
        next = w + least(block_y() * Few::COLUMNS + thread() / 4, a.n - 1) * a.row_bytes;
        for (u32 r = 0; r < 2; r++) low[r] = static_cast<u32>(reinterpret_cast<u64>(w)) + few_row(a.n, r) * static_cast<u32>(a.row_bytes);
    }
    DEVICE void start(u32 k) { next += static_cast<u64>(k / F::LEN) * F::BYTES, left -= k / F::LEN * F::BYTES; }
    // The next piece.
    DEVICE void copy(u8* to) {
        const u32 head = SHIFTED ? static_cast<u32>(reinterpret_cast<u64>(next)) % 16 : 0, bytes = head + least(PIECE, left), first = thread() % 4 * 16;
#pragma unroll
        for (u32 i = 0; i < PITCH; i += 64)
            if (first + i < bytes) copy_async(to + thread() / 4 * PITCH + first + i, next - head + first + i);
        next += PIECE, left -= least(PIECE, left);
    }
    DEVICE void load(u32) {}
    DEVICE void take(u32 (&to)[8][4], const u8* piece, u32 k) const {
        // Where there are no columns any more, X has zeros, and weights may be any.
        const u32 own = few_part() + lane() % 4, part = k + own * 32 < a.k ? own : 0, p = part % PER;
        u32 c[2][8];
        f32 scale[2][GROUPS], offset[2][GROUPS];
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            const u32 head = SHIFTED ? (low[r] + k / F::LEN * F::BYTES) % 16 : 0;
            const u8* b = piece + (warp() % (Few::COLUMNS / 16) * 16 + lane() / 4 + 8 * r) * PITCH + head + part / PER * F::BYTES;
            F::codes(b, p, c[r]);
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) scale[r][g] = F::scale(b, p * GROUPS + g), offset[r][g] = F::OFFSETS ? F::offset(b, p * GROUPS + g) : 0;
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++)
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                f32 v[4];
                weights_of<F>(c[r][i], scale[r][4 * i / F::GROUP], offset[r][4 * i / F::GROUP], v);
                to[i][r] = narrow2(v[0], v[1], T()), to[i][r + 2] = narrow2(v[2], v[3], T());
            }
    }
};

// Blocks of z share the columns of X and W, as in gemm.cuh.
template <class T, class W> DEVICE void gemm(const GemmArgs& a, const Segment& own, W w, Few) {
    static constexpr u32 DEPTH = Few::DEPTH, ROW = Few::ROW, TALL = Few::ROWS / 16, AT_ONCE = Few::THREADS / 32;
    static_assert(2 * (W::BYTES + Few::ROWS * ROW) <= Few::BYTES, "two pieces");
    u8* room = shared<u8>();
    const u32 g = lane() / 4, t = lane() % 4;
    // Of X, in tiles of 16 rows.
    const u32 tall = div_up(own.end - own.first, 16), size = W::BYTES + tall * (16 * ROW), stages = least(Few::STAGES, Few::BYTES / size);
    const u32 share = div_up(div_up(a.k, DEPTH), grid_z()) * DEPTH, start = least(a.k, block_z() * share), steps = div_up(least(share, a.k - start), DEPTH);
    f32 acc[TALL][2][4];
#pragma unroll
    for (u32 i = 0; i < TALL; i++)
#pragma unroll
        for (u32 j = 0; j < 2; j++)
#pragma unroll
            for (u32 r = 0; r < 4; r++) acc[i][j][r] = 0;
    // Where 16 bytes of a row of X lie: eight lanes read theirs from different banks.
    const auto place = [&](u32 row, u32 chunk) { return W::BYTES + row * ROW + (chunk ^ row % 2 * 4) * 16; };
    const u32 row = thread() / 32, column = thread() % 32 * 8, to = place(row, W::order(thread() % 32));
    const T* x = static_cast<const T*>(a.x) + static_cast<u64>(own.first + row) * a.k + column;
    const auto copy_weights = [&](u32 step, u32 slot) {
        if (step < steps) w.copy(room + slot * size);
    };
    const auto copy_rows = [&](u32 step, u32 slot) {
        const u32 k = start + step * DEPTH;
#pragma unroll
        for (u32 i = 0; i < Few::ROWS; i += AT_ONCE) {
            if (i >= tall * 16 || step >= steps) break;
            const bool there = own.first + row + i < own.end && k + column < a.k;
            copy_async(room + slot * size + to + i * ROW, there ? x + k + static_cast<u64>(i) * a.k : static_cast<const T*>(a.x), there);
        }
        copy_commit();
    };
    w.start(start);
    for (u32 s = 0; s + 1 < stages; s++) copy_weights(s, s);
    w.load(start);
    wait_for_inputs();
    for (u32 s = 0; s + 1 < stages; s++) copy_rows(s, s);
    u32 slot = 0, empty = stages - 1;
    for (u32 step = 0; step < steps; step++) {
        if (stages == 2) copy_wait<0>();
        else if (stages == 3) copy_wait<1>();
        else copy_wait<2>();
        // Now this piece is complete, and nobody reads the one before it any more.
        sync_block();
        copy_weights(step + stages - 1, empty);
        copy_rows(step + stages - 1, empty);
        const u8* piece = room + slot * size;
        empty = slot, slot = slot + 1 == stages ? 0 : slot + 1;
        u32 left[8][4];
        w.take(left, piece, start + step * DEPTH);
        if (step + 1 < steps) w.load(start + (step + 1) * DEPTH);
#pragma unroll
        for (u32 i = 0; i < TALL; i++) {
            if (i >= tall) break;
#pragma unroll
            for (u32 q = 0; q < 4; q++)
#pragma unroll
                for (u32 j = 0; j < 2; j++) {
                    const Quad right = load16(piece + place((2 * i + j) * 8 + g, few_part() * 4 + q * 4 + t));
                    mma(acc[i][j], left[2 * q], {right.w[0], right.w[1]}, T());
                    mma(acc[i][j], left[2 * q + 1], {right.w[2], right.w[3]}, T());
                }
        }
    }
    // Half of the warps have sums of one half of pieces, and the others of the other.
    static constexpr u32 HALF = Few::THREADS / 2;
    const bool second = thread() >= HALF;
    const auto put = [&] {
        f32* y = shared<f32>() + 2 * t * Y_PITCH<Few> + warp() % (HALF / 32) * 16 + g;
#pragma unroll
        for (u32 i = 0; i < 8 * TALL; i++) {
            f32& to = y[(i / 4 * 8 + i % 2) * Y_PITCH<Few> + i / 2 % 2 * 8];
            const f32 sum = acc[i / 8][i / 4 % 2][i % 4];
            to = second ? sum : sum + to;
        }
    };
    copy_wait<0>();
    sync_block();
    if (second) put();
    sync_block();
    if (!second) put();
    put_rows<Few>(a, own);
}
