// Products of tiles of 16 x 16 numbers on GPUs of AMD's, by all lanes of a wave.
//
// D[m][n] += sum over k of L[m][k] R[n][k]. Of D, lane l holds column l % 16 of RESULTS rows: `row_of(r)` in its number r. Of R, it holds
// TILE numbers of column l % 16, from `tile_from()` on; L is read row by row from wherever the function `left(m)` finds it, as it is known
// best who needs which row.
#pragma once

#include "mma.cuh"

#ifdef __HIP__
#if defined(__GFX9__)
#define TILES_GFX9
#elif defined(__GFX12__)
#define TILES_GFX12
#elif defined(__GFX11__)
#define TILES_GFX11
#endif
#else
// Which of these families the emulator is, and its lanes and products.
#include "family.h"
#endif

// Lanes behind 16 others have other rows of D. Of 16 numbers that are multiplied each lane has its part; on gfx11, and where there are no
// such products, all of them.
static constexpr u32 RESULTS = 256 / LANES;
#if defined(TILES_GFX9) || defined(TILES_GFX12)
static constexpr u32 TILE = RESULTS, NEXT_ROW = 1;
#else
static constexpr u32 TILE = 16, NEXT_ROW = 2;
#endif
DEVICE u32 wave() { return thread() / LANES; }
DEVICE u32 wave_lane() { return thread() % LANES; }
DEVICE u32 tile_from() { return TILE == 16 ? 0 : wave_lane() / 16 * TILE; }
DEVICE u32 row_of(u32 r) { return TILE == 16 ? 2 * r + wave_lane() / 16 : wave_lane() / 16 * RESULTS + r; }

// Words that lie side by side.
static constexpr u32 PART = TILE < 8 ? TILE : 8;
struct alignas(2 * PART) Part { u32 w[PART / 2]; };
template <class T> union Tile {
    u32 w[TILE / 2];
    T at[TILE];
    Part parts[TILE / PART];
};

// From 16 neighbouring numbers, of which the second eight lie somewhere else.
template <class T> DEVICE Tile<T> tile_at(const T* first, const T* second) {
    Tile<T> t;
#pragma unroll
    for (u32 i = 0; i < TILE; i += PART) {
        const u32 k = tile_from() + i;
        t.parts[i / PART] = *reinterpret_cast<const Part*>(k < 8 ? first + k : second + k - 8);
    }
    return t;
}

// Of lanes that hold parts of a column: what all of them together have.
template <class Op> DEVICE f32 over_column(f32 v) {
#pragma unroll
    for (u32 by = 16; by < LANES; by *= 2) v = Op()(v, from_bits(from_wave(bits_of(v), wave_lane() ^ by)));
    return v;
}

#ifdef __HIP__
// What stands behind this begins after what stands before it, so that fewer registers are in use at a time.
DEVICE void in_order() { __builtin_amdgcn_sched_barrier(0); }
// The same number; what depends on it is computed here, and not kept in registers from before a loop.
DEVICE u32 anew(u32 x) {
    asm volatile("" : "+v"(x));
    return x;
}
// Has been computed here: else operands of all that is to be added would stay in registers.
DEVICE void done(f32& x) { asm volatile("" : "+v"(x)); }
#else
DEVICE void in_order() {}
DEVICE void done(f32&) {}
DEVICE u32 anew(u32 x) { return x; }
#endif

#if defined(__HIP__) && (defined(TILES_GFX9) || defined(TILES_GFX11) || defined(TILES_GFX12))
typedef _Float16 Halves __attribute__((ext_vector_type(TILE)));
typedef short Shorts __attribute__((ext_vector_type(TILE)));
typedef f32 Sums __attribute__((ext_vector_type(RESULTS)));
#if defined(TILES_GFX9)
#define PRODUCT_F16(A, B, C) __builtin_amdgcn_mfma_f32_16x16x16f16(A, B, C, 0, 0, 0)
#define PRODUCT_BF16(A, B, C) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(A, B, C, 0, 0, 0)
#elif defined(TILES_GFX12)
#define PRODUCT_F16(A, B, C) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(A, B, C)
#define PRODUCT_BF16(A, B, C) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(A, B, C)
#else
#define PRODUCT_F16(A, B, C) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(A, B, C)
#define PRODUCT_BF16(A, B, C) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(A, B, C)
#endif
DEVICE Sums product(const Tile<f16>& a, const Tile<f16>& b, Sums c) { return PRODUCT_F16(__builtin_bit_cast(Halves, a), __builtin_bit_cast(Halves, b), c); }
DEVICE Sums product(const Tile<bf16>& a, const Tile<bf16>& b, Sums c) { return PRODUCT_BF16(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b), c); }
DEVICE constexpr bool has_products() { return true; }
template <class T> DEVICE void product(f32 (&d)[RESULTS], const Tile<T>& a, const Tile<T>& b) {
    const Sums y = product(a, b, __builtin_bit_cast(Sums, d));
#pragma unroll
    for (u32 r = 0; r < RESULTS; r++) d[r] = y[r];
}
#elif defined(__HIP__)
DEVICE constexpr bool has_products() { return false; }
template <class T> DEVICE void product(f32 (&)[RESULTS], const Tile<T>&, const Tile<T>&) {}
#endif

// Calls `put` with `y` as a pointer to numbers of the type that it says.
template <class F> DEVICE void with_type(void* y, u32 type, F put) {
    if (type == TYPE_F32) put(static_cast<f32*>(y));
    else if (type == TYPE_F16) put(static_cast<f16*>(y));
    else put(static_cast<bf16*>(y));
}

// d[n] += left right[n], for N tiles side by side.
template <class T, u32 N, class L> DEVICE void multiply(f32 (&d)[N][RESULTS], const Tile<T> (&right)[N], L left) {
    if (has_products()) {
        const Tile<T> a = left(wave_lane() % 16);
#pragma unroll
        for (u32 n = 0; n < N; n++) product(d[n], a, right[n]);
        return;
    }
#pragma unroll
    for (u32 r = 0; r < RESULTS; r++) {
        const Tile<T> a = left(row_of(r));
#pragma unroll
        for (u32 n = 0; n < N; n++)
#pragma unroll
            for (u32 k = 0; k < TILE; k++) d[n][r] = fmaf(to_f32(a.at[k]), to_f32(right[n].at[k]), d[n][r]);
#pragma unroll
        for (u32 n = 0; n < N; n++) done(d[n][r]);
    }
}
