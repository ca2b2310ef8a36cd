//! Products of bytes for weights in place: with `smull` and `sadalp`, and, for CPUs with dotprod, with `sdot`.

use core::arch::aarch64::*;
use core::arch::asm;
use core::mem::transmute;

use crate::isa::{Dotprod, Neon};
use crate::quant::bytes::SimdUnpack;
use crate::quant::dots::{one_scale, part, two_groups, Dots, Factors};
use crate::quant::packed::{Pack, GROUPS, STEP_COLS};
use crate::quant::steps::{Coarse, Fine};
use crate::quant::Unpack;

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

/// The same sums as [`smull`], by the instruction for them.
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

/// Writes the integers of all groups, four at a time.
///
/// # Safety
/// NEON, room at `out`.
#[inline(always)]
unsafe fn fours<F: Pack>(integers: [i8; GROUPS], out: *mut int32x4_t) {
    // SAFETY: the caller's contract.
    unsafe {
        let all: int8x16_t = transmute(integers);
        let put = |i: usize, eight: int16x8_t| {
            out.add(i).write(vmovl_s16(vget_low_s16(eight)));
            out.add(i + 1).write(vmovl_high_s16(eight));
        };
        put(0, vmovl_s8(vget_low_s8(all)));
        if two_groups::<F>() {
            put(2, vmovl_high_s8(all));
        }
    }
}

macro_rules! dots {
    ($($engine:ident, $fours:ident;)*) => {$(
        // SAFETY: reads within units and factors.
        unsafe impl<F: Pack> Dots<F> for $engine
        where
            Neon: Unpack<F, Codes = <Neon as SimdUnpack>::Bytes>,
        {
            type Isa = Neon;
            type Codes = [[int8x16_t; 2]; 4];
            const COLUMNS: usize = 4 * STEP_COLS;
            type Sums = float32x4_t;
            #[inline(always)]
            unsafe fn codes(
                unit: *const F::Block,
                i: usize,
                ready: &<Neon as Unpack<F>>::Ready,
            ) -> [[int8x16_t; 2]; 4] {
                // SAFETY: the caller's contract.
                unsafe { four!(S: part::<F, Neon>(unit, i + S * STEP_COLS, ready).registers()) }
            }
            #[inline(always)]
            unsafe fn zeros() -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vdupq_n_f32(0.0) }
            }
            #[inline(always)]
            unsafe fn dot(
                w: [[int8x16_t; 2]; 4],
                x: &Fine,
                i: usize,
                factors: &Factors,
                sums: float32x4_t,
            ) -> float32x4_t {
                // SAFETY: the columns have these factors; a step is 32 bytes.
                unsafe {
                    let (q, zero) = (x.step(i / STEP_COLS).as_ptr(), vdupq_n_s32(0));
                    let factors = factors.0.as_ptr().add(i / F::GROUP);
                    if two_groups::<F>() {
                        let low = four!(K: $fours(zero, w[K / 2][K % 2], vld1q_s8(q.add(16 * K))));
                        let high = four!(K: $fours(zero, w[2 + K / 2][K % 2], vld1q_s8(q.add(64 + 16 * K))));
                        scaled(high, factors.add(4), scaled(low, factors, sums))
                    } else {
                        let first = four!(S: $fours(zero, w[S][0], vld1q_s8(q.add(S * STEP_COLS))));
                        let both = four!(S: $fours(first[S], w[S][1], vld1q_s8(q.add(S * STEP_COLS + 16))));
                        scaled(both, factors, sums)
                    }
                }
            }
            // In 32 bits.
            type Integers = [int32x4_t; 4];
            // In 16.
            type Minima = [int16x8_t; 2];
            type Partial = int32x4_t;
            #[inline(always)]
            unsafe fn factors(b: *const F::Block, out: *mut [int32x4_t; 4]) -> f32 {
                // SAFETY: the caller's contract.
                unsafe {
                    let (d, factors) = <Neon as Unpack<F>>::factors(b);
                    fours::<F>(factors, out.cast());
                    d
                }
            }
            #[inline(always)]
            unsafe fn minima(b: *const F::Block, out: *mut [int16x8_t; 2]) -> f32 {
                // SAFETY: the caller's contract.
                unsafe {
                    let (d, minima) = <Neon as Unpack<F>>::minima(b);
                    let all: int8x16_t = transmute(minima);
                    out.write([vmovl_s8(vget_low_s8(all)), vmovl_high_s8(all)]);
                    d
                }
            }
            #[inline(always)]
            unsafe fn start(_: &Coarse) -> [int32x4_t; 2] {
                // SAFETY: registers only.
                unsafe { [vdupq_n_s32(0); 2] }
            }
            #[inline(always)]
            unsafe fn dot_coarse(
                w: [[int8x16_t; 2]; 4],
                x: &Coarse,
                i: usize,
                factors: &[int32x4_t; 4],
                sums: int32x4_t,
            ) -> int32x4_t {
                const { assert!(matches!(F::PACKING.shifts, [0, 0, 0, 0, 0, 0, 0, 0])) };
                // SAFETY: columns of a unit, and their factors; the caller vouches for both and for the instruction set.
                unsafe {
                    let (q, zero, v) = (x.columns(i), vdupq_n_s32(0), i / F::GROUP / 4);
                    if one_scale::<F>() {
                        let mut sums = sums;
                        four!(S: sums = $fours(sums, w[S][0], vld1q_s8(q.add(S * STEP_COLS))));
                        four!(S: sums = $fours(sums, w[S][1], vld1q_s8(q.add(S * STEP_COLS + 16))));
                        return sums;
                    }
                    let mut sums = sums;
                    if two_groups::<F>() {
                        four!(K: {
                            let dot = $fours(zero, w[K / 2][K % 2], vld1q_s8(q.add(16 * K)));
                            sums = vmlaq_laneq_s32::<{ K as i32 }>(sums, dot, factors[v % 4]);
                        });
                        four!(K: {
                            let dot = $fours(zero, w[2 + K / 2][K % 2], vld1q_s8(q.add(64 + 16 * K)));
                            sums = vmlaq_laneq_s32::<{ K as i32 }>(sums, dot, factors[(v + 1) % 4]);
                        });
                    } else {
                        four!(S: {
                            let first = $fours(zero, w[S][0], vld1q_s8(q.add(S * STEP_COLS)));
                            let dot = $fours(first, w[S][1], vld1q_s8(q.add(S * STEP_COLS + 16)));
                            sums = vmlaq_laneq_s32::<{ S as i32 }>(sums, dot, factors[v % 4]);
                        });
                    }
                    sums
                }
            }
            #[inline(always)]
            unsafe fn settled(mut sums: int32x4_t) -> int32x4_t {
                // SAFETY: nothing is executed.
                unsafe { asm!("/* {0:v} */", inout(vreg) sums, options(nostack, preserves_flags)) };
                sums
            }
            #[inline(always)]
            unsafe fn joined([even, odd]: [int32x4_t; 2], _: &Coarse) -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vcvtq_f32_s32(vaddq_s32(even, odd)) }
            }
            #[inline(always)]
            unsafe fn dot_sums(x: &Coarse, minima: &[int16x8_t; 2]) -> float32x4_t {
                // SAFETY: the sums of all groups.
                unsafe {
                    let products = |k: usize, all: int32x4_t| {
                        let (a, b) = (vld1q_s16(x.sums.as_ptr().add(8 * k)), minima[k]);
                        vmlal_high_s16(vmlal_s16(all, vget_low_s16(a), vget_low_s16(b)), a, b)
                    };
                    let eight = products(0, vdupq_n_s32(0));
                    vcvtq_f32_s32(if two_groups::<F>() { products(1, eight) } else { eight })
                }
            }
            #[inline(always)]
            unsafe fn times(a: float32x4_t, b: f32) -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vmulq_n_f32(a, b) }
            }
            #[inline(always)]
            unsafe fn fma(a: float32x4_t, b: f32, c: float32x4_t) -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vfmaq_n_f32(c, a, b) }
            }
            #[inline(always)]
            unsafe fn plus(a: float32x4_t, b: float32x4_t) -> float32x4_t {
                // SAFETY: registers only.
                unsafe { vaddq_f32(a, b) }
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
