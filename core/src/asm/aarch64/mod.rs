//! Microkernels for aarch64 (Advanced SIMD and what later architectures added to it).
//!
//! AAPCS64 registers: `x0` is the argument; `x1`..`x17`, the flags and every vector register may be changed, but
//! `d8`..`d15` are the caller's: they stay in `x9`..`x16` meanwhile. Nothing else is touched, the stack included.
//!
//! These kernels have run under emulation only. Their speed is what `ci/mca` predicts from scheduling models.

#![allow(non_snake_case)] // Files are named like kernels.

/// Keeps the caller's vector registers, or gives them back.
macro_rules! callers {
    (keep) => {
        callers!(@"fmov x" ", d" ("9" "8") ("10" "9") ("11" "10") ("12" "11") ("13" "12") ("14" "13") ("15" "14") ("16" "15"))
    };
    (restore) => {
        callers!(@"fmov d" ", x" ("8" "9") ("9" "10") ("10" "11") ("11" "12") ("12" "13") ("13" "14") ("14" "15") ("15" "16"))
    };
    (@$to:tt $from:tt $(($a:tt $b:tt))*) => {
        concat!($($to, $a, $from, $b, "\n",)*)
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
