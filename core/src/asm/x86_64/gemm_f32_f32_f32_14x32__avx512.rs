//! f32 by f32, AVX-512: the tile of [`avx512`](super::avx512).
//!
//! A step reads 128 bytes of `B` and 56 of `A`; its 28 multiply-adds take 28 cycles on Zen 4 (one 512-bit
//! multiply-add a cycle), 14 on Golden Cove (two). Its 16 loads are the limit on neither.

microkernel_14x32! {
    "gemm_f32_f32_f32_14x32__avx512", sums: F32, start: ZERO, bytes: 64,
    r"
        .macro load_b to, at
            vmovups zmm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vfmadd231ps zmm\sum, zmm\a, zmm\b
        .endm
    "
}
