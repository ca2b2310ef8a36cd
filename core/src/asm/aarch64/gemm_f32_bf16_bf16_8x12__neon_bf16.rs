//! bf16 by bf16, BF16: the tile of [`matrix`](super::matrix), four steps of the inner dimension at once.
//!
//! Four times the multiply-adds of f32 in the same instructions. `bfmmla` adds the products of two steps, exact, and
//! then that sum to the accumulator, twice; both additions round to odd, take denormals as zeros and flush
//! results to zero, whatever FPCR says. `bfdot` does half as much at the same rate on every core whose rates
//! are published (Neoverse-N2, V1, V2, Cortex-A510), so there is no kernel with it.

microkernel_2x2! {
    "gemm_f32_bf16_bf16_8x12__neon_bf16", extension: ["bf16"], sums: F32, multiply_add: "bfmmla", arrangement: "8h"
}
