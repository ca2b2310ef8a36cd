// Matrix products on GPUs of AMD's: Y[m][n] = sum over k of X[m][k] W[n][k], X and Y by rows, W of many kinds. It stands for the file of the
// same name among CUDA's kernels, which have the same blocks.
#pragma once

#include "product.cuh"
#include "tiles.h"

// A block has 128 x 128 of Y; of its four waves of 32 lanes each has 64 x 64, of two waves of 64 lanes 64 x 128. Where X has few rows, a block has 32 x 128, and its waves 32 x 32 or 32 x 64. Of X and W it has 32 columns in shared memory, in rows that are 16 bytes
// longer: 16 bytes of eight rows then lie in different banks. Those 20 KiB are there once: three blocks then fit where 64 KiB are, and the next columns wait in registers.
static constexpr u32 BN = 128, BK = 32, PITCH = BK + 8, THREADS = 128, MOST_THREADS = THREADS;
template <u32 ROWS_> struct Narrow {
    static constexpr u32 ROWS = ROWS_, COLUMNS = BN, DEPTH = BK, THREADS = ::THREADS;
    // Where 16 bytes of a row lie in a piece, in numbers of 16 bits.
    static DEVICE u32 slot(u32 row, u32 chunk) { return row * PITCH + chunk * 8; }
};
typedef Narrow<128> Many;
typedef Narrow<32> Few;
typedef Few FewDense;
typedef Few FewBlocks;
typedef Many WideBlocks;
static constexpr u32 MOST_FEW_THREADS = THREADS;
template <class F> DEVICE void with_tiles(F run) { run(Many()); }
template <class F> DEVICE void with_block_tiles(F run) { run(Many()); }
template <class Tiles, class F> DEVICE void with_few_tiles(F run) { run(Tiles()); }

#ifdef __GFX9__
// Two waves fit a unit for vectors if neither takes more than half of its 512 registers.
#undef KERNEL_EARLY
#define KERNEL_EARLY(NAME, ARGS, THREADS) \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(32, THREADS), amdgpu_waves_per_eu(2))) void NAME(const ARGS a)
#endif

// `w` brings pieces of W: `copy` writes the next one; or `begin` takes it into registers (`Held`) while one is multiplied, and `end` writes it after that. Rows are those of the segment `own`. Blocks of z
// share the columns of X and W: each has a Y of its own, all of which `gemm_join` adds.
template <class T, u32 ROWS, class W> DEVICE void gemm(const GemmArgs& a, const Segment& own, W w, Narrow<ROWS>) {
    static constexpr u32 DOWN = (ROWS + 63) / 64, ACROSS = THREADS / LANES / DOWN;
    // Of a wave, in tiles.
    static constexpr u32 TALL = ROWS / DOWN / 16, TILES = BN / 16 / ACROSS;
    T *left = shared<T>(), *right = left + ROWS * PITCH;
    const u32 first = own.first, row = wave() / ACROSS * (16 * TALL), column = wave() % ACROSS * 16 * TILES;
    const u32 share = div_up(div_up(a.k, BK), grid_z()) * BK, start = least(a.k, block_z() * share), end = least(a.k, start + share);
    const T *x = left + row * PITCH, *y = right + (column + wave_lane() % 16) * PITCH;
    f32 acc[TALL][TILES][RESULTS];
#pragma unroll
    for (u32 i = 0; i < TALL; i++)
#pragma unroll
        for (u32 j = 0; j < TILES; j++)
#pragma unroll
            for (u32 r = 0; r < RESULTS; r++) acc[i][j][r] = 0;
    Piece<Narrow<ROWS>, ROWS, T> next;
    typename W::Held held;
    next.load(static_cast<const T*>(a.x), first, own.end, start, a.k);
    w.begin(held, start);
    for (u32 at = start; at < end; at += BK) {
        next.store(left);
        w.copy(right, at);
        w.end(held, right);
        sync_block();
        // Behind the last columns there are zeros; behind a part of them there is the next one, which is not wanted here. Without products of tiles sums need the registers.
        const bool more = ROWS > Few::ROWS || at + BK < end;
        if (has_products() && more) next.load(static_cast<const T*>(a.x), first, own.end, at + BK, a.k);
        if (more) w.begin(held, at + BK);
        // Unrolled, too much of it would be under way for the registers that there are.
#pragma unroll 1
        for (u32 k = 0; k < BK; k += 16) {
            Tile<T> columns[TILES];
#pragma unroll
            for (u32 j = 0; j < TILES; j++) columns[j] = tile_at(y + 16 * j * PITCH + k, y + 16 * j * PITCH + k + 8);
#pragma unroll
            for (u32 i = 0; i < TALL; i++)
                multiply(acc[i], columns, [&](u32 m) { return tile_at(x + (16 * i + m) * PITCH + k, x + (16 * i + m) * PITCH + k + 8); });
        }
        sync_block();
        if (!has_products() && more) next.load(static_cast<const T*>(a.x), first, own.end, at + BK, a.k);
    }
    // Neighbouring lanes have neighbouring columns.
    const u32 n = block_y() * BN + column + wave_lane() % 16;
    with_type(a.y, a.type, [&](auto* y) {
#pragma unroll
        for (u32 i = 0; i < TALL; i++)
#pragma unroll
            for (u32 r = 0; r < RESULTS; r++) {
                const u32 m = first + row + 16 * i + row_of(r);
                if (m >= own.end) continue;
                auto* to = y + (static_cast<u64>(block_z()) * a.m + m) * a.n + n;
#pragma unroll
                for (u32 j = 0; j < TILES; j++)
                    if (n + 16 * j < a.n) narrow(to[16 * j], acc[i][j][r]);
            }
    });
}
