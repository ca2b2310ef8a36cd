//! bf16 by bf16, AVX512-BF16: the tile of [`avx512`](super::avx512) on pairs of bf16.
//!
//! A step is two of the inner dimension: `c += a0 b0 + a1 b1` in every lane. Twice the multiply-adds of f32 in
//! the same instructions. The instruction takes denormal inputs as zeros and flushes denormal results, rounds
//! to nearest even whatever MXCSR says, and sets no flags.

microkernel_14x32! {
    "gemm_f32_bf16_bf16_14x32__avx512_bf16", sums: F32, start: ZERO, bytes: 64,
    r"
        .macro load_b to, at
            vmovups zmm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vdpbf16ps zmm\sum, zmm\a, zmm\b
        .endm
    "
}
