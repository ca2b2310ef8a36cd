//! Microkernels for aarch64 (Advanced SIMD and what later architectures added to it).
//!
//! AAPCS64 registers: `x0` is the argument; `x1`..`x17`, the flags and every vector register may be changed, but
//! `d8`..`d15` are the caller's: they stay in `x9`..`x16` meanwhile. Nothing else is touched, the stack included.
//!
//! These kernels have run under emulation only. Their speed is what `ci/mca` predicts from scheduling models.

#![allow(non_snake_case)] // Files are named like kernels.

/// Keeps the caller's vector registers.
macro_rules! keep_callers {
    () => {
        r"
            fmov x9, d8
            fmov x10, d9
            fmov x11, d10
            fmov x12, d11
            fmov x13, d12
            fmov x14, d13
            fmov x15, d14
            fmov x16, d15
        "
    };
}

/// Gives the caller's vector registers back.
macro_rules! restore_callers {
    () => {
        r"
            fmov d8, x9
            fmov d9, x10
            fmov d10, x11
            fmov d11, x12
            fmov d12, x13
            fmov d13, x14
            fmov d14, x15
            fmov d15, x16
        "
    };
}

#[macro_use]
mod tile;
#[macro_use]
mod wide;
#[macro_use]
mod tall;
#[macro_use]
mod matrix;
#[macro_use]
mod qgemv_codes;
#[macro_use]
mod qgemv;

mod gemm_f32_bf16_bf16_24x4__neon;
mod gemm_f32_bf16_bf16_8x12__neon_bf16;
mod gemm_f32_f16_f16_24x4__neon;
mod gemm_f32_f16_f16_8x12__neon_fhm;
mod gemm_f32_f32_f32_8x12__neon;
mod gemm_i32_i8_i8_4x4__neon;
mod gemm_i32_i8_i8_8x12__neon_dotprod;
mod gemm_i32_i8_i8_8x12__neon_i8mm;

mod qgemm;
mod qgemv_neon_dotprod;
mod qgemv_neon_i8mm;
mod qgemv_neon_smull;
