//! bf16 by bf16 without `vdpbf16ps`, AVX-512: the tile of [`avx512`](super::avx512) with a `B` that stays bf16
//! in memory.
//!
//! `B` is widened as it is loaded, by a shift, `A` when it is packed. The products are those of f32: exact,
//! summed with fused multiply-adds.

microkernel_14x32! {
    "gemm_f32_bf16_bf16_14x32__avx512", sums: F32, start: ZERO, bytes: 32,
    r"
        .macro load_b to, at
            vpmovzxwd zmm\to, [rcx + \at]
            vpslld zmm\to, zmm\to, 16
        .endm

        .macro multiply_add sum, a, b, spare
            vfmadd231ps zmm\sum, zmm\a, zmm\b
        .endm
    "
}
