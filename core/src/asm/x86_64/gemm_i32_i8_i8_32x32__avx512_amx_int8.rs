//! int8, AMX-INT8: the tile of [`amx`](super::amx).
//!
//! A step is 64 of the inner dimension, in groups of four: `c += a0 b0 + .. + a3 b3`, signed by signed. Sums wrap.

microkernel_32x32! {
    "gemm_i32_i8_i8_32x32__avx512_amx_int8", sums: I32, multiply_add: "tdpbssd"
}
