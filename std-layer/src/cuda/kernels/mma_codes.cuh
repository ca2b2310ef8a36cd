// Products of small matrices of signed bytes on tensor cores.
#pragma once

#include "mma.cuh"

// Where `mma` multiplies them.
#if !defined(__HIP__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define MULTIPLIES_CODES
#endif

#if defined(__CUDACC__) && defined(MULTIPLIES_CODES)
// d += a b: a is 16 x 32 by row, b 32 x 8 by column. Where `mma` has two numbers of 16 bits, these have four bytes.
DEVICE void mma(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
