//! int8 without VNNI, AVX-512: the tile of [`avx512`](super::avx512) on pairs of 16-bit integers.
//!
//! `B` is widened as it is loaded, `A` when it is packed. `vpmaddwd` adds up two products: at most 2^15, so
//! nothing saturates. Two instructions for twice f32's multiply-adds.

microkernel_14x32! {
    "gemm_i32_i8_i8_14x32__avx512", sums: I32, start: ZERO, bytes: 32,
    r"
        .macro load_b to, at
            vpmovsxbw zmm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vpmaddwd zmm\spare, zmm\a, zmm\b
            vpaddd zmm\sum, zmm\sum, zmm\spare
        .endm
    "
}
