//! Elementary functions on registers: one algorithm for every instruction set.
//!
//! Polynomials are minimax fits in relative error, their coefficients rounded to f32 one after the
//! other, each time refitting the rest.

use crate::isa::Vector;

/// Adding and subtracting 1.5 * 2^23 leaves the nearest integer, for magnitudes up to 2^22.
const ROUND: f32 = 12_582_912.0;

/// ln 2 = `LN2 + LN2_LOW`, to 48 bits.
const LN2: f32 = core::f32::consts::LN_2;
const LN2_LOW: f32 = -1.904_654_2e-9;

/// `e^r` for `|r| <= ln(2) / 2`: relative error 3.2e-9 before rounding. The first two coefficients are exactly 1.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_17, 0.041_668_102, 0.008_369_192, 0.001_383_887_1];

/// `c[0] + c[1] x + ..` by Horner's rule.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
unsafe fn horner<P: Vector, const N: usize>(x: P::V, c: &[f32; N]) -> P::V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut y = P::splat(0.0);
        for (i, &c) in c.iter().rev().enumerate() {
            y = if i == 0 { P::splat(c) } else { P::fma(y, x, P::splat(c)) };
        }
        y
    }
}

/// `e^x = p * 2^n` with `p` in [0.70, 1.42] and an integral `n`, for `|x| <= 2^21`; NaN gives a NaN `p`.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn exp_parts<P: Vector>(x: P::V) -> (P::V, P::V) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magic = P::splat(ROUND);
        let n = P::sub(P::fma(x, P::splat(core::f32::consts::LOG2_E), magic), magic);
        let r = P::fnma(n, P::splat(LN2), x);
        let r = P::fnma(n, P::splat(LN2_LOW), r);
        let q = horner::<P, 5>(r, &EXP);
        let one = P::splat(1.0);
        (P::fma(P::fma(q, r, one), r, one), n)
    }
}

/// `e^x`: `inf` above 88.72, denormal below -87.34, 0 below -103.98; NaN stays NaN.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn exp<P: Vector>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        let x = P::max(P::splat(-106.0), P::min(P::splat(90.0), x));
        let (p, n) = exp_parts::<P>(x);
        P::scale2(p, n)
    }
}
