//! bf16 by bf16, AVX2: the tile of [`avx2`](super::avx2) with a `B` that stays bf16 in memory.
//!
//! `B` is widened as it is loaded, by a shift, `A` when it is packed.

microkernel_6x16! {
    "gemm_f32_bf16_bf16_6x16__avx2", sums: F32, start: ZERO, bytes: 16,
    r"
        .macro load_b to, at
            vpmovzxwd ymm\to, [rcx + \at]
            vpslld ymm\to, ymm\to, 16
        .endm

        .macro multiply_add sum, a, b, spare
            vfmadd231ps ymm\sum, ymm\a, ymm\b
        .endm
    "
}
