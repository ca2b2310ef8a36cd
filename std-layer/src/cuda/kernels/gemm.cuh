// Matrix products on tensor cores: Y[m][n] = sum over k of X[m][k] W[n][k], X and Y by rows, W of many kinds.
#pragma once

#include "mma.cuh"
#include "segments.cuh"

struct GemmArgs {
    const void* x;
    const void* w;
    void* y;
    // Which rows blocks of x have, and of which matrices.
    const Segment* segments;
    u64 row_bytes;
    u32 m, n, k, type;
};

// A block has 128 x 128 of Y; of its four warps each has 64 x 64. Where X has few rows, a block has 32 x 128, and each warp 32 x 32. Pieces of 32 columns of X and W
// lie in shared memory, one that is multiplied and two that arrive, in rows that are 16 bytes longer: 16 bytes of eight rows then lie in different banks.
static constexpr u32 MANY = 128, FEW = 32, BN = 128, BK = 32, PITCH = BK + 8, STAGES = 3, THREADS = 128;

template <class T> DEVICE void fetch(T* to, const T* from, u32 rows, u32 first, u32 end, u32 k, u32 columns) {
#pragma unroll
    for (u32 i = thread(); i < rows * (BK / 8); i += THREADS) {
        const u32 row = i / (BK / 8), column = i % (BK / 8) * 8;
        T* at = to + row * PITCH + column;
        if (first + row < end && k + column < columns) copy_async(at, from + static_cast<u64>(first + row) * columns + k + column);
        else store16(at, Quad{{0, 0, 0, 0}});
    }
}

// `w` brings pieces of W: `copy` begins two pieces ahead what arrives by itself; `begin` takes the next piece into registers while one is
// multiplied, `end` writes it after that. Rows are those of the segment `own`. Blocks of z share the columns of X and W: each has a Y of its own, all of which `gemm_join` adds.
template <class T, u32 ROWS, class W> DEVICE void gemm(const GemmArgs& a, const Segment& own, W w) {
    static constexpr u32 SIZE = (ROWS + BN) * PITCH, DOWN = (ROWS + 63) / 64, ACROSS = THREADS / WARP / DOWN;
    // Of a warp, in tiles of 16 rows and of 8 columns.
    static constexpr u32 TALL = ROWS / DOWN / 16, WIDE = BN / ACROSS / 8;
    T* room = shared<T>();
    const u32 first = own.first, row = warp() / ACROSS * (16 * TALL), column = warp() % ACROSS * (8 * WIDE);
    const u32 share = div_up(div_up(a.k, BK), grid_z()) * BK, start = least(a.k, block_z() * share), steps = div_up(least(share, a.k - start), BK);
    f32 acc[TALL][WIDE][4];
#pragma unroll
    for (u32 i = 0; i < TALL; i++)
#pragma unroll
        for (u32 j = 0; j < WIDE; j++)
#pragma unroll
            for (u32 r = 0; r < 4; r++) acc[i][j][r] = 0;
    const auto copy = [&](u32 step) {
        T* to = room + step % STAGES * SIZE;
        if (step < steps) {
            fetch(to, static_cast<const T*>(a.x), ROWS, first, own.end, start + step * BK, a.k);
            w.copy(to + ROWS * PITCH, start + step * BK);
        }
        copy_commit();
    };
    copy(0);
    copy(1);
    w.begin(start);
    w.end(room + ROWS * PITCH);
    for (u32 step = 0; step < steps; step++) {
        copy_wait<1>();
        sync_block();
        copy(step + 2);
        // Behind the last columns there are zeros; behind a part of them there is the next one, which is not wanted here.
        const bool more = ROWS > FEW || step + 1 < steps;
        if (more) w.begin(start + (step + 1) * BK);
        const T *x = room + step % STAGES * SIZE + row * PITCH, *y = room + step % STAGES * SIZE + (ROWS + column) * PITCH;
#pragma unroll
        for (u32 k = 0; k < BK; k += 16) {
            u32 left[TALL][4];
#pragma unroll
            for (u32 i = 0; i < TALL; i++) load_tiles<false>(left[i], x + (16 * i + lane() % 16) * PITCH + k + lane() / 16 * 8);
#pragma unroll
            for (u32 j = 0; j < WIDE; j += 2) {
                u32 right[4];
                load_tiles<false>(right, y + (8 * j + lane() / 16 * 8 + lane() % 8) * PITCH + k + lane() / 8 % 2 * 8);
#pragma unroll
                for (u32 i = 0; i < TALL; i++) mma(acc[i][j], left[i], {right[0], right[1]}, T()), mma(acc[i][j + 1], left[i], {right[2], right[3]}, T());
            }
        }
        if (more) w.end(room + (step + 1) % STAGES * SIZE + ROWS * PITCH);
    }
#pragma unroll
    for (u32 i = 0; i < TALL; i++)
#pragma unroll
        for (u32 j = 0; j < WIDE; j++)
#pragma unroll
            for (u32 r = 0; r < 4; r += 2) {
                const u32 m = first + row + 16 * i + r / 2 * 8 + lane() / 4, n = block_y() * BN + column + 8 * j + lane() % 4 * 2;
                if (m >= own.end || n >= a.n) continue;
                const u64 at = (static_cast<u64>(block_z()) * a.m + m) * a.n + n;
                // Rows of an odd length start between words.
                if (a.n % 2 == 0) store2_as(a.y, at, acc[i][j][r], acc[i][j][r + 1], a.type);
                else {
                    store_as(a.y, at, acc[i][j][r], a.type);
                    if (n + 1 < a.n) store_as(a.y, at + 1, acc[i][j][r + 1], a.type);
                }
            }
}
