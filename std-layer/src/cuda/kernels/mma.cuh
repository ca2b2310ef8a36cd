// Products of small matrices on tensor cores.
#pragma once

#include "simt.cuh"

#ifdef __CUDACC__
// d += a b: a is 16 x 16 by row, b 16 x 8 by column, in the registers that PTX says for mma.m16n8k16.
#if __CUDA_ARCH__ >= 800
#define MMA(T, NAME)                                                                                                    \
    DEVICE void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], T) {                                             \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
            "{%0, %1, %2, %3};"                                                                                         \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                            \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                        \
    }
MMA(f16, "f16")
MMA(bf16, "bf16")
#else
DEVICE void mma_half(f32 (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b));
}
DEVICE void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], f16) {
    mma_half(d, a[0], a[1], b[0]);
    mma_half(d, a[2], a[3], b[1]);
}
// bf16 comes with compute capability 8.0.
#define MMA_BY_SHUFFLES(THEN) THEN(bf16)
#endif
#else
#define MMA_BY_SHUFFLES(THEN) THEN(f16) THEN(bf16)
#endif

// Products of tiles where the hardware has none: of a, lane 4 g + t holds columns 2 t and 2 t + 1 of rows g and g + 8, then both of
// columns 8 further; of b, rows 2 t and 2 t + 1 of column g, then 8 further; of d, columns 2 t and 2 t + 1 of rows g, g + 8.
template <class T> DEVICE void mma_by_shuffles(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    const u32 g = lane() / 4, t = lane() % 4;
    for (u32 half = 0; half < 2; half++)
        for (u32 j = 0; j < 4; j++) {
            const u32 rows[2] = {shuffle(a[2 * half], g * 4 + j), shuffle(a[2 * half + 1], g * 4 + j)};
            const u32 cols[2] = {shuffle(b[half], t * 8 + j), shuffle(b[half], t * 8 + 4 + j)};
            for (u32 i = 0; i < 4; i++)
                for (u32 k = 0; k < 32; k += 16)
                    d[i] = fmaf(to_f32(T{static_cast<u16>(rows[i / 2] >> k)}), to_f32(T{static_cast<u16>(cols[i % 2] >> k)}), d[i]);
        }
}
#ifdef MMA_BY_SHUFFLES
#define MMA_OF(T) DEVICE void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], T) { mma_by_shuffles<T>(d, a, b); }
MMA_BY_SHUFFLES(MMA_OF)
#endif
