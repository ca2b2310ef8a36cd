// Matrix products on tensor cores by `mma`, and by `wgmma` where there is that.
#pragma once

#include "few.cuh"
#include "few_wide.cuh"
#include "wide.cuh"
#include "wide_blocks.cuh"

// A block has 128 x 128 of Y; of its four warps each has 64 x 64. Pieces of 32 columns of X and W
// lie in shared memory, one that is multiplied and two that arrive, in rows that are 16 bytes longer: 16 bytes of eight rows then lie in different banks.
struct Many {
    static constexpr u32 ROWS = 128, COLUMNS = 128, DEPTH = 32, STAGES = 3, THREADS = 128, PITCH = DEPTH + 8, SIZE = (ROWS + COLUMNS) * PITCH;
    static DEVICE u32 slot(u32 row, u32 chunk) { return row * PITCH + chunk * 8; }
};

// `w` brings pieces of W: `copy` begins two pieces ahead what arrives by itself; `begin` takes the next 32 columns into registers (`Held`)
// while some are multiplied, `end` writes them after that. Rows are those of the segment `own`. Blocks of z share the columns of X and W: each has a Y of its own, all of which `gemm_join` adds.
template <class T, class W> DEVICE void gemm(const GemmArgs& a, const Segment& own, W w, Many) {
    typedef Many Tiles;
    static constexpr u32 SIZE = Tiles::SIZE, ROWS = Tiles::ROWS, PITCH = Tiles::PITCH, DEPTH = Tiles::DEPTH, STAGES = Tiles::STAGES;
    // Of a warp, in tiles of 16 rows and of 8 columns.
    static constexpr u32 TALL = 4, WIDE = 8;
    T* room = shared<T>();
    const u32 first = own.first, row = warp() / 2 * (16 * TALL), column = warp() % 2 * (8 * WIDE);
    const u32 share = div_up(div_up(a.k, DEPTH), grid_z()) * DEPTH, start = least(a.k, block_z() * share), steps = div_up(least(share, a.k - start), DEPTH);
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
            fetch<Tiles, ROWS>(to, static_cast<const T*>(a.x), first, own.end, start + step * DEPTH, a.k);
            w.copy(to + ROWS * PITCH, start + step * DEPTH);
        }
        copy_commit();
    };
    typename W::Held held;
    copy(0);
    copy(1);
    w.begin(held, start);
    w.end(held, room + ROWS * PITCH);
    for (u32 step = 0; step < steps; step++) {
        copy_wait<1>();
        sync_block();
        copy(step + 2);
        w.begin(held, start + (step + 1) * DEPTH);
        const T *x = room + step % STAGES * SIZE + row * PITCH, *y = room + step % STAGES * SIZE + (ROWS + column) * PITCH;
#pragma unroll
        for (u32 k = 0; k < DEPTH; k += 16) {
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
        w.end(held, room + (step + 1) % STAGES * SIZE + ROWS * PITCH);
    }
#pragma unroll
    for (u32 i = 0; i < TALL; i++)
#pragma unroll
        for (u32 j = 0; j < WIDE; j++)
#pragma unroll
            for (u32 r = 0; r < 4; r += 2)
                put2(a, own.end, first + row + 16 * i + r / 2 * 8 + lane() / 4, block_y() * Tiles::COLUMNS + column + 8 * j + lane() % 4 * 2, acc[i][j][r], acc[i][j][r + 1]);
}

// Calls `run` with the tiles of 128 rows that this launch is for: its threads tell.
#ifdef HAS_WGMMA
static constexpr u32 MOST_THREADS = Wide::THREADS;
template <class F> DEVICE void with_tiles(F run) {
    if (threads() == Wide::THREADS) run(Wide());
    else run(Many());
}
#else
static constexpr u32 MOST_THREADS = Many::THREADS;
template <class F> DEVICE void with_tiles(F run) { run(Many()); }
// Few rows take the same tiles everywhere, and many rows the same with weights in blocks.
typedef Few FewDense;
typedef Few FewBlocks;
typedef Many WideBlocks;
#endif

// Calls `run` with the tiles of 128 rows of X in bf16, and weights in blocks. The emulator, which is every GPU, has both.
template <class F> DEVICE void with_block_tiles(F run) {
#ifndef __CUDACC__
    if (threads() == Many::THREADS) return run(Many());
#endif
    run(WideBlocks());
}

// Calls `run` with tiles of few rows. The emulator, which is every GPU, has others, too, with other room. Two blocks of `FewDense` have as many registers.
static constexpr u32 MOST_FEW_THREADS = Few::THREADS;
template <class Tiles, class F> DEVICE void with_few_tiles(F run) {
#ifndef __CUDACC__
    if (emu::now.shared_bytes == Few::BYTES) return run(Few());
#endif
    run(Tiles());
}
