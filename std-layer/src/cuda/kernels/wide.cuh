// Matrix products by `wgmma`.
#pragma once

#include "product.cuh"
#include "wgmma.cuh"

#ifdef HAS_WGMMA
// A block has 128 x 256 of Y, each of its two groups of four warps 64 x 256: registers have no room for more sums. Pieces of 64 columns lie in shared memory:
// one that is multiplied, one that may be, two that arrive.
struct Wide {
    static constexpr u32 ROWS = 128, COLUMNS = 256, DEPTH = SWIZZLED_ROW, STAGES = 4, THREADS = 256, SIZE = (ROWS + COLUMNS) * DEPTH;
    static DEVICE u32 slot(u32 row, u32 chunk) { return swizzled(row, chunk); }
};

// While tensor cores multiply a piece, threads copy what is needed two pieces later. `w` is as in gemm.cuh, but has dense weights.
template <class T, class W> DEVICE void gemm(const GemmArgs& a, const Segment& own, W w, Wide) {
    typedef Wide Tiles;
    static constexpr u32 DEPTH = Tiles::DEPTH, GROUP = 4 * WARP;
    // Pieces start at multiples of 1024 bytes; the launch has as many more.
    T* room = shared<T>() + (0 - shared_address(shared<T>())) % 1024 / sizeof(T);
    const u32 share = div_up(div_up(a.k, DEPTH), grid_z()) * DEPTH, start = least(a.k, block_z() * share);
    // At least one, of zeros where there are no columns: the compiler must not move sums between the last product and its end.
    const u32 steps = most(1u, div_up(least(share, a.k - start), DEPTH));
    f32 acc[128];
#pragma unroll
    for (u32 i = 0; i < 128; i++) acc[i] = 0;
    const auto piece = [&](u32 step) { return room + step % Tiles::STAGES * Tiles::SIZE; };
    const auto copy = [&](u32 step) {
        if (step < steps) {
            fetch<Tiles, Tiles::ROWS>(piece(step), static_cast<const T*>(a.x), own.first, own.end, start + step * DEPTH, a.k);
            w.copy(piece(step) + Tiles::ROWS * DEPTH, start + step * DEPTH);
        }
        copy_commit();
    };
    copy(0);
    copy(1);
    u32 step = 0;
    do {
        copy_wait<1>();
        async_fence();
        // Now this piece is complete, and nobody reads that before the one before it any more.
        sync_block();
        const T *x = piece(step) + thread() / GROUP * (64 * DEPTH), *y = piece(step) + Tiles::ROWS * DEPTH;
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < DEPTH; k += 16) wgmma(acc, operand(x + k), operand(y + k), T());
        wgmma_commit();
        copy(step + 2);
        wgmma_wait<1>();
    } while (++step < steps);
    wgmma_finish(acc);
    const u32 m = own.first + warp() * 16 + lane() / 4, n = block_y() * Tiles::COLUMNS + lane() % 4 * 2;
#pragma unroll
    for (u32 j = 0; j < 32; j++)
#pragma unroll
        for (u32 i = 0; i < 2; i++) put2(a, own.end, m + 8 * i, n + 8 * j, acc[4 * j + 2 * i], acc[4 * j + 2 * i + 1]);
}
#endif
