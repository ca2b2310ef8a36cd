// What matrix products share. It stands for the file of the same name among CUDA's kernels: what tiles have is said there.
#pragma once

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

// What a thread brings of some rows of a piece: 16 bytes of each.
template <class Tiles, u32 ROWS, class T> struct Piece {
    static constexpr u32 N = Pack<T>::N, CHUNKS = Tiles::DEPTH / N, STEP = Tiles::THREADS / CHUNKS, COUNT = ROWS / STEP;
    Quad held[COUNT];

    DEVICE void load(const T* from, u32 first, u32 end, u32 k, u32 columns) {
        const u32 top = thread() / CHUNKS, column = k + thread() % CHUNKS * N;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            const u32 row = first + i * STEP + top;
            held[i] = row < end && column < columns ? load16(from + static_cast<u64>(row) * columns + column) : Quad{{0, 0, 0, 0}};
        }
    }
    DEVICE void store(T* to) const {
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) store16(to + Tiles::slot(i * STEP + thread() / CHUNKS, thread() % CHUNKS), held[i]);
    }
};

template <class Tiles, u32 ROWS, class T> DEVICE void fetch(T* to, const T* from, u32 first, u32 end, u32 k, u32 columns) {
    Piece<Tiles, ROWS, T> piece;
    piece.load(from, first, end, k, columns);
    piece.store(to);
}
