//! int8, AVX-VNNI: the tile of [`avx2`](super::avx2) on groups of four; see [`avx512`](super::avx512).
//!
//! The VEX encoding: AVX-512 is not there. A step reads 64 bytes of `B` and 24 of `A`, for four of the inner
//! dimension.
//!
//! It has run on Zen 5, with AVX2 forced, but never on a CPU without AVX-512. The test kit emulates the instruction on
//! CPUs that lack it.

microkernel_6x16! {
    "gemm_i32_i8_i8_6x16__avx2_vnni", sums: I32, start: GIVEN, bytes: 32,
    r"
        .macro load_b to, at
            vmovups ymm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            {{vex}} vpdpbusd ymm\sum, ymm\a, ymm\b
        .endm
    "
}
