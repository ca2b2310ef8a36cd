// Products of small matrices on tensor cores.
#pragma once

#include "simt.cuh"

#ifdef __CUDACC__
// Which lanes of the warp say so.
DEVICE u32 lanes_of(bool yes) { return __ballot_sync(~0u, yes); }

// Four tiles of 8 x 8 numbers of 16 bits from shared memory: lane 8 t + i says where row i of tile t lies. Lane 4 g + t gets columns
// 2 t and 2 t + 1 of row g of each; of turned tiles, rows 2 t and 2 t + 1 of column g.
template <bool TURNED> DEVICE void load_tiles(u32 (&r)[4], const void* row) {
    const u32 at = static_cast<u32>(__cvta_generic_to_shared(row));
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

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
DEVICE u32 narrow2(f32 low, f32 high, f16) { u32 y; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y; }
DEVICE u32 narrow2(f32 low, f32 high, bf16) { u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low)); return y; }
#define NARROWS_TWO
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
template <class T> DEVICE void mma_by_shuffles(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);
static __device__ __noinline__ void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) { mma_by_shuffles<bf16>(d, a, b); }
#endif
#endif

#ifndef NARROWS_TWO
// Two numbers in a word, the first one in its low half.
template <class T> DEVICE u32 narrow2(f32 low, f32 high, T) {
    return from_f32<T>(low).bits | static_cast<u32>(from_f32<T>(high).bits) << 16;
}
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

// Two neighbouring results; `i` is even.
DEVICE void store2_as(void* p, u64 i, f32 x, f32 y, u32 type) {
    struct alignas(8) Two { f32 at[2]; };
    if (type == TYPE_F32) *reinterpret_cast<Two*>(static_cast<f32*>(p) + i) = Two{{x, y}};
    else *reinterpret_cast<u32*>(static_cast<u16*>(p) + i) = type == TYPE_F16 ? narrow2(x, y, f16()) : narrow2(x, y, bf16());
}
