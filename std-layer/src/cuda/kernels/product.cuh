// What matrix products share, whichever instruction multiplies: Y[m][n] = sum over k of X[m][k] W[n][k], X and Y by rows, W of many kinds.
//
// Tiles have: ROWS and COLUMNS of Y that a block computes; DEPTH columns of X and W that it multiplies at a time, a piece; STAGES pieces in shared memory;
// THREADS; `slot`, where 16 bytes of a row lie in a piece, in its numbers; and SIZE, all numbers of a piece.
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

// Rows of a piece on their way to shared memory; zeros instead of what is not there.
template <class Tiles, u32 ROWS, class T> DEVICE void fetch(T* to, const T* from, u32 first, u32 end, u32 k, u32 columns) {
    static constexpr u32 CHUNKS = Tiles::DEPTH / Pack<T>::N, STEP = Tiles::THREADS / CHUNKS;
    const u32 top = thread() / CHUNKS, chunk = thread() % CHUNKS, column = k + chunk * Pack<T>::N;
#pragma unroll
    for (u32 row = top; row < top + ROWS; row += STEP) {
        const bool there = first + row < end && column < columns;
        copy_async(to + Tiles::slot(row, chunk), from + static_cast<u64>(first + row) * columns + column, there);
    }
}

// Two neighbouring results of row m, if that is before `end`; n is even.
DEVICE void put2(const GemmArgs& a, u32 end, u32 m, u32 n, f32 x, f32 y) {
    if (m >= end || n >= a.n) return;
    const u64 at = (static_cast<u64>(block_z()) * a.m + m) * a.n + n;
    // Rows of an odd length start between words.
    if (a.n % 2 == 0) store2_as(a.y, at, x, y, a.type);
    else {
        store_as(a.y, at, x, a.type);
        if (n + 1 < a.n) store_as(a.y, at + 1, y, a.type);
    }
}
