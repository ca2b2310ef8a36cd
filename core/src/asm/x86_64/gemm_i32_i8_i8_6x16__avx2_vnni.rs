//! int8, AVX-VNNI: the tile of [`avx2`](super::avx2) on groups of four; see [`int8`](super::int8).
//!
//! The VEX encoding: AVX-512 is not there. A step reads 64 bytes of `B` and 24 of `A`, for four of the inner
//! dimension.
//!
//! It has run on Zen 5, with AVX2 forced, but never on a CPU without AVX-512. The test kit emulates the instruction on
//! CPUs that lack it.

microkernel_int8_6x16! {
    "gemm_i32_i8_i8_6x16__avx2_vnni", start: (offset "ymm" "32"), load: pairs, multiply_add: "{{vex}} vpdpbusd"
}
