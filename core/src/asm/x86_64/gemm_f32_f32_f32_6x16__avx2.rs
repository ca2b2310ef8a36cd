//! f32 by f32, AVX2: the tile of [`avx2`](super::avx2).
//!
//! A step reads 64 bytes of `B` and 24 of `A`; its 12 multiply-adds take 6 cycles, its 8 loads 4 or less.

microkernel_6x16! {
    "gemm_f32_f32_f32_6x16__avx2", sums: F32, start: ZERO, bytes: 32,
    r"
        .macro load_b to, at
            vmovups ymm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vfmadd231ps ymm\sum, ymm\a, ymm\b
        .endm
    "
}
