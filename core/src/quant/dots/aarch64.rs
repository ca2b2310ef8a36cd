//! NEON, with and without `sdot`.

use core::arch::aarch64::*;
use core::arch::asm;

use super::{halves, part, Dots, Factors, Hold};
use crate::isa::Neon;
use crate::ops::activations::Unit;
use crate::quant::bytes::{Bytes, Codes};
use crate::quant::packed::{Pack, STEP};
use crate::quant::Unpack;

// SAFETY: writes 32 bytes.
unsafe impl Hold for Neon {
    type Codes = <Neon as Codes>::Bytes;
    #[inline(always)]
    unsafe fn put(codes: Self::Codes, p: *mut i8) {
        // SAFETY: the caller vouches for the room.
        unsafe { codes.store(p) };
    }
}

/// NEON with `sdot`.
pub(crate) struct Dotprod;

/// The sums of four products each, of 16, added to `sums`.
///
/// # Safety
/// NEON.
#[inline(always)]
unsafe fn smull(sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only. Two products are 2 * 128 * 127 at most.
    unsafe {
        let pairs = vmull_s8(vget_low_s8(w), vget_low_s8(x));
        vpadalq_s16(sums, vmlal_high_s8(pairs, w, x))
    }
}

/// As [`smull`].
///
/// # Safety
/// The feature `dotprod`.
#[inline(always)]
unsafe fn sdot(mut sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) sums, in(vreg) w, in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Four of `$one`, inlined: closures might lack the features of their caller.
macro_rules! four {
    ($k:ident: $one:expr) => {
        [
            {
                const $k: usize = 0;
                $one
            },
            {
                const $k: usize = 1;
                $one
            },
            {
                const $k: usize = 2;
                $one
            },
            {
                const $k: usize = 3;
                $one
            },
        ]
    };
}

/// The sums of each register, converted, times their factors, added to `sums`.
///
/// # Safety
/// Four factors; NEON.
#[inline(always)]
unsafe fn scaled([a, b, c, d]: [int32x4_t; 4], factors: *const f32, sums: float32x4_t) -> float32x4_t {
    // SAFETY: the caller's contract.
    unsafe {
        let dots = vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
        vfmaq_f32(sums, vcvtq_f32_s32(dots), vld1q_f32(factors))
    }
}

macro_rules! dots {
    ($($engine:ident, $fours:ident;)*) => {$(
        // SAFETY: reads within units and factors.
        unsafe impl<F: Pack> Dots<F> for $engine
        where
            Neon: Unpack<F, Codes = <Neon as Codes>::Bytes>,
        {
            type Isa = Neon;
            type Codes = [[int8x16_t; 2]; 4];
            const COLUMNS: usize = 4 * STEP;
            type Sums = float32x4_t;
            #[inline(always)]
            unsafe fn codes(
                unit: *const F::Block,
                i: usize,
                ready: &<Neon as Unpack<F>>::Ready,
            ) -> [[int8x16_t; 2]; 4] {
                // SAFETY: the caller's contract.
                unsafe { four!(S: part::<F, Neon>(unit, i + S * STEP, ready).registers()) }
            }
            #[inline(always)]
            unsafe fn zeros() -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vdupq_n_f32(0.0) }
            }
            #[inline(always)]
            unsafe fn dot(
                w: [[int8x16_t; 2]; 4],
                x: &Unit,
                i: usize,
                factors: &Factors,
                sums: float32x4_t,
            ) -> float32x4_t {
                const { assert!(matches!(F::PACKING.shifts, [0, 0, 0, 0, 0, 0, 0, 0])) };
                // SAFETY: the columns have these factors; a step is 32 bytes.
                unsafe {
                    let (q, zero) = (x.columns().add(i), vdupq_n_s32(0));
                    let factors = factors.0.as_ptr().add(i / F::GROUP);
                    if halves::<F>() {
                        let low = four!(K: $fours(zero, w[K / 2][K % 2], vld1q_s8(q.add(16 * K))));
                        let high = four!(K: $fours(zero, w[2 + K / 2][K % 2], vld1q_s8(q.add(64 + 16 * K))));
                        scaled(high, factors.add(4), scaled(low, factors, sums))
                    } else {
                        let first = four!(S: $fours(zero, w[S][0], vld1q_s8(q.add(S * STEP))));
                        let both = four!(S: $fours(first[S], w[S][1], vld1q_s8(q.add(S * STEP + 16))));
                        scaled(both, factors, sums)
                    }
                }
            }
            #[inline(always)]
            unsafe fn settled(mut sums: float32x4_t) -> float32x4_t {
                // SAFETY: nothing is executed.
                unsafe { asm!("/* {0:v} */", inout(vreg) sums, options(nostack, preserves_flags)) };
                sums
            }
            #[inline(always)]
            unsafe fn plus(a: float32x4_t, b: float32x4_t) -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vaddq_f32(a, b) }
            }
            #[inline(always)]
            unsafe fn scaled(a: float32x4_t, b: f32, c: float32x4_t) -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vfmaq_n_f32(c, a, b) }
            }
            #[inline(always)]
            unsafe fn total(sums: float32x4_t) -> f32 {
                // SAFETY: registers only.
                unsafe { vaddvq_f32(sums) }
            }
        }
    )*};
}
dots! {
    Neon, smull;
    Dotprod, sdot;
}
