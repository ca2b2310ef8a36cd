//! bf16 by bf16, AMX-BF16: the tile of [`amx`](super::amx).
//!
//! A step is 32 of the inner dimension. The sums of its even and of its odd elements, fused multiply-adds each, are added to
//! one another and then to `C`'s. The instruction takes denormal inputs as zeros and flushes denormal results, rounds
//! to nearest even whatever MXCSR says, and sets no flags.

microkernel_32x32! {
    "gemm_f32_bf16_bf16_32x32__avx512_amx_bf16", sums: F32, multiply_add: "tdpbf16ps"
}
