//! f16 by f16, AMX-FP16: the tile of [`amx`](super::amx).
//!
//! A step is 32 of the inner dimension. The sums of its even and of its odd elements, fused multiply-adds each, are added to
//! one another and then to `C`'s. The instruction takes denormal f16 for what they are, flushes results that are
//! denormal in f32, rounds to nearest even whatever MXCSR says, and sets no flags.

microkernel_32x32! {
    "gemm_f32_f16_f16_32x32__avx512_amx_fp16", sums: F32, multiply_add: "tdpfp16ps"
}
