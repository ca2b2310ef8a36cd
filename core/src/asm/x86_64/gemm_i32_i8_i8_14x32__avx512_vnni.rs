//! int8, AVX512-VNNI: the tile of [`avx512`](super::avx512) on groups of four; see [`avx512`](super::avx512).
//!
//! A step is four of the inner dimension: `c += a0 b0 + .. + a3 b3` in every lane. Four times the multiply-adds
//! of f32 in the same instructions. `vpdpbusd` wraps; the one that saturates is `vpdpbusds`.

microkernel_14x32! {
    "gemm_i32_i8_i8_14x32__avx512_vnni", sums: I32, start: GIVEN, bytes: 64,
    r"
        .macro load_b to, at
            vmovups zmm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vpdpbusd zmm\sum, zmm\a, zmm\b
        .endm
    "
}
