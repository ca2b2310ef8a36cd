// Matrix products on GPUs of AMD's: Y[m][n] = sum over k of X[m][k] W[n][k], X and Y by rows, W of many kinds. It stands for the file of the
// same name among CUDA's kernels, which have the same blocks.
#pragma once

#include "tiles.h"

struct GemmArgs {
    const void* x;
    const void* w;
    void* y;
    u64 row_bytes;
    u32 m, n, k, type;
};

// A block has 128 x 128 of Y; of its four waves of 32 lanes each has 64 x 64, of two waves of 64 lanes 64 x 128. Of pieces of 32 columns of X and W one lies in shared memory while the next
// one arrives there, in rows that are 16 bytes longer: 16 bytes of eight rows then lie in different banks.
static constexpr u32 BM = 128, BN = 128, BK = 32, PITCH = BK + 8, THREADS = 128;

template <class T> DEVICE void fetch(T* to, const T* from, u32 rows, u32 first, u32 end, u32 k, u32 columns) {
#pragma unroll
    for (u32 i = thread(); i < rows * (BK / 8); i += THREADS) {
        const u32 row = i / (BK / 8), column = i % (BK / 8) * 8;
        const bool there = first + row < end && k + column < columns;
        store16(to + row * PITCH + column, there ? load16(from + static_cast<u64>(first + row) * columns + k + column) : Quad{{0, 0, 0, 0}});
    }
}

// `w` brings pieces of W: `copy` writes the next one; or `begin` takes it into registers while one is multiplied, and `end` writes it after that.
template <class T, class W> DEVICE void gemm(const GemmArgs& a, W w) {
    static constexpr u32 SIZE = (BM + BN) * PITCH, TILES = LANES / 8, ACROSS = BN / 16 / TILES;
    T* room = shared<T>();
    const u32 first = block_x() * BM, row = wave() / ACROSS * 64, column = wave() % ACROSS * 16 * TILES, steps = div_up(a.k, BK);
    f32 acc[4][TILES][RESULTS];
#pragma unroll
    for (u32 i = 0; i < 4; i++)
#pragma unroll
        for (u32 j = 0; j < TILES; j++)
#pragma unroll
            for (u32 r = 0; r < RESULTS; r++) acc[i][j][r] = 0;
    const auto copy = [&](u32 step) {
        T* to = room + step % 2 * SIZE;
        if (step >= steps) return;
        fetch(to, static_cast<const T*>(a.x), BM, first, a.m, step * BK, a.k);
        w.copy(to + BM * PITCH, step * BK);
    };
    copy(0);
    w.begin(0);
    w.end(room + BM * PITCH);
    for (u32 step = 0; step < steps; step++) {
        sync_block();
        w.begin((step + 1) * BK);
        copy(step + 1);
        const T *x = room + step % 2 * SIZE + row * PITCH, *y = room + step % 2 * SIZE + (BM + column + wave_lane() % 16) * PITCH;
        // Unrolled, too much of it would be under way for the registers that there are.
#pragma unroll 1
        for (u32 k = 0; k < BK; k += 16) {
            Tile<T> right[TILES];
#pragma unroll
            for (u32 j = 0; j < TILES; j++) right[j] = tile_at(y + 16 * j * PITCH + k, y + 16 * j * PITCH + k + 8);
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                multiply(acc[i], right, [&](u32 m) { return tile_at(x + (16 * i + m) * PITCH + k, x + (16 * i + m) * PITCH + k + 8); });
        }
        w.end(room + (step + 1) % 2 * SIZE + BM * PITCH);
    }
    // Neighbouring lanes have neighbouring columns.
    const u32 n = block_y() * BN + column + wave_lane() % 16;
    with_type(a.y, a.type, [&](auto* y) {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
#pragma unroll
            for (u32 r = 0; r < RESULTS; r++) {
                const u32 m = first + row + 16 * i + row_of(r);
                if (m >= a.m) continue;
                auto* to = y + static_cast<u64>(m) * a.n + n;
#pragma unroll
                for (u32 j = 0; j < TILES; j++)
                    if (n + 16 * j < a.n) narrow(to[16 * j], acc[i][j][r]);
            }
    });
}
