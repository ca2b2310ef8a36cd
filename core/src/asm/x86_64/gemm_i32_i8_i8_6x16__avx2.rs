//! int8, AVX2: the tile of [`avx2`](super::avx2) on pairs of 16-bit integers.
//!
//! `B` is widened as it is loaded, `A` when it is packed. `vpmaddwd` adds up two products: at most 2^15, so
//! nothing saturates. `vpmaddubsw`, on bytes, is exact with nothing larger than 7 bits: two of them, for both
//! parts of a byte, and what adds up their 16-bit sums are more instructions than these.

microkernel_6x16! {
    "gemm_i32_i8_i8_6x16__avx2", sums: I32, start: ZERO, bytes: 16,
    r"
        .macro load_b to, at
            vpmovsxbw ymm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vpmaddwd ymm\spare, ymm\a, ymm\b
            vpaddd ymm\sum, ymm\sum, ymm\spare
        .endm
    "
}
