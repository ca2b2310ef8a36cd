//! int8, I8MM: the tile of [`matrix`](super::matrix), eight steps of the inner dimension at once.
//!
//! Eight times the multiply-adds of f32 in the same instructions, twice those of `sdot`; exact.

microkernel_2x2! {
    "gemm_i32_i8_i8_8x12__neon_i8mm", extension: ["i8mm"], sums: I32, multiply_add: "smmla", arrangement: "16b"
}
