// Products of tiles of 16 x 16 numbers on GPUs of AMD's.
//
// D[m][n] += sum over k of L[m][k] R[n][k]. Of D, lane l holds column l % 16 of eight rows: `row_of(r)` in its number r. Of R, it holds
// column l % 16; L is read row by row from wherever the function `left(m)` finds it, as it is known best who needs which row.
#pragma once

#include "mma.cuh"

#if defined(__gfx1200__) || defined(__gfx1201__)
#define TILES_GFX12
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__)
#define TILES_GFX11
#endif

// Numbers of a row or column in the order in which they are multiplied: 16, or in each half of a wave its own eight.
#ifdef TILES_GFX12
static constexpr u32 TILE = 8;
DEVICE u32 tile_from() { return lane() / 16 * 8; }
static constexpr u32 NEXT_ROW = 1;
DEVICE u32 row_of(u32 r) { return lane() / 16 * 8 + r; }
#else
static constexpr u32 TILE = 16;
DEVICE u32 tile_from() { return 0; }
static constexpr u32 NEXT_ROW = 2;
DEVICE u32 row_of(u32 r) { return 2 * r + lane() / 16; }
#endif

template <class T> union Tile {
    u32 w[TILE / 2];
    Quad quads[TILE / 8];
    T at[TILE];
};

// From 16 neighbouring numbers, of which the second eight lie somewhere else.
template <class T> DEVICE Tile<T> tile_at(const T* first, const T* second) {
    Tile<T> t;
    if (TILE == 8) t.quads[0] = load16(lane() < 16 ? first : second);
    else t.quads[0] = load16(first), t.quads[TILE / 8 - 1] = load16(second);
    return t;
}

// What stands behind this begins after what stands before it, so that fewer registers are in use at a time.
DEVICE void in_order() {
#ifdef __HIP__
    __builtin_amdgcn_sched_barrier(0);
#endif
}

#if defined(TILES_GFX11) || defined(TILES_GFX12)
typedef _Float16 Halves __attribute__((ext_vector_type(TILE)));
typedef short Shorts __attribute__((ext_vector_type(TILE)));
typedef f32 Sums __attribute__((ext_vector_type(8)));
#ifdef TILES_GFX12
typedef __bf16 Brains __attribute__((ext_vector_type(TILE)));
DEVICE Sums wmma(const Tile<f16>& a, const Tile<f16>& b, Sums c) { return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(Halves, a), __builtin_bit_cast(Halves, b), c); }
DEVICE Sums wmma(const Tile<bf16>& a, const Tile<bf16>& b, Sums c) { return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b), c); }
#else
DEVICE Sums wmma(const Tile<f16>& a, const Tile<f16>& b, Sums c) { return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(Halves, a), __builtin_bit_cast(Halves, b), c); }
DEVICE Sums wmma(const Tile<bf16>& a, const Tile<bf16>& b, Sums c) { return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(Shorts, a), __builtin_bit_cast(Shorts, b), c); }
#endif
DEVICE bool has_wmma() { return true; }
template <class T> DEVICE void wmma(f32 (&d)[8], const Tile<T>& a, const Tile<T>& b) {
    const Sums y = wmma(a, b, __builtin_bit_cast(Sums, d));
#pragma unroll
    for (u32 r = 0; r < 8; r++) d[r] = y[r];
}
#elif defined(__HIP__)
DEVICE bool has_wmma() { return false; }
template <class T> DEVICE void wmma(f32 (&)[8], const Tile<T>&, const Tile<T>&) {}
#else
// The emulator: as GPUs of the family gfx11 have it, or as those that have none.
DEVICE bool has_wmma() { return !emu::by_shuffles(); }
template <class T> DEVICE void wmma(f32 (&d)[8], const Tile<T>& a, const Tile<T>& b) {
    f32 left[8][16];
    for (u32 i = 0; i < 8; i++) {
        const u32* all = emu::exchange(a.w[i]);
        for (u32 r = 0; r < 8; r++)
            for (u32 k = 0; k < 2; k++) left[r][2 * i + k] = to_f32(T{static_cast<u16>(all[2 * r + lane() / 16] >> 16 * k)});
    }
    for (u32 r = 0; r < 8; r++)
        for (u32 k = 0; k < 16; k++) d[r] += left[r][k] * to_f32(b.at[k]);
}
#endif

// Calls `put` with `y` as a pointer to numbers of the type that it says.
template <class F> DEVICE void with_type(void* y, u32 type, F put) {
    if (type == TYPE_F32) put(static_cast<f32*>(y));
    else if (type == TYPE_F16) put(static_cast<f16*>(y));
    else put(static_cast<bf16*>(y));
}

// d[n] += left right[n], for N tiles side by side.
template <class T, u32 N, class L> DEVICE void multiply(f32 (&d)[N][8], const Tile<T> (&right)[N], L left) {
    if (has_wmma()) {
        const Tile<T> a = left(lane() % 16);
#pragma unroll
        for (u32 n = 0; n < N; n++) wmma(d[n], a, right[n]);
        return;
    }
#pragma unroll
    for (u32 r = 0; r < 8; r++) {
        const Tile<T> a = left(row_of(r));
#pragma unroll
        for (u32 n = 0; n < N; n++)
#pragma unroll
            for (u32 k = 0; k < TILE; k++) d[n][r] = fmaf(to_f32(a.at[k]), to_f32(right[n].at[k]), d[n][r]);
    }
}
