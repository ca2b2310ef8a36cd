//! int8, AVX512-VNNI: the tile of [`avx512`](super::avx512) on groups of four; see [`int8`](super::int8).
//!
//! A step is four of the inner dimension: `c += a0 b0 + .. + a3 b3` in every lane. Four times the multiply-adds
//! of f32 in the same instructions. `vpdpbusd` wraps; the one that saturates is `vpdpbusds`.

microkernel_int8_14x32! {
    "gemm_i32_i8_i8_14x32__avx512_vnni", start: (offset "zmm" "64"), load: pairs, multiply_add: "vpdpbusd"
}
