//! Elementary functions on registers: one algorithm for every instruction set.
//!
//! All are built on `2^w = 2^m * 2^f`, where `m` is the integer nearest to `w` and `f` the rest. Two things keep the relative
//! error small where results are tiny. The exponent `w` is computed together with its rounding error; constants whose names
//! end in `_LOW` are what the rounded constants lack. And the factor `2^m` is applied last, so that a denormal result is
//! rounded once.
//!
//! Polynomials and the rational function are minimax fits of the relative error. Their coefficients were rounded to f32 one
//! after the other, and the remaining ones were fitted anew each time.

use core::f32::consts::{LN_2, LOG2_E};

use crate::vector::{Arithmetic, POWER_OF_ZERO};

/// `log2(e) - LOG2_E`
const LOG2_E_LOW: f32 = 1.925_963e-8;

/// `(2^f - 1) / f` for `|f| <= 1/2`; `2^f` to 3.0e-9.
const EXP2: [f32; 6] = [LN_2, 0.240_226_48, 0.055_503_596, 0.009_618_5, 0.001_339_098_9, 0.000_153_291_32];

/// `(1 - 2^-f) / f`, the same with every other sign.
const EXP2_NEG: [f32; 6] = [-EXP2[0], EXP2[1], -EXP2[2], EXP2[3], -EXP2[4], EXP2[5]];

/// `(expm1(2 r) / 2 - r) / r^2` for `|r| <= ln(2) / 4`; `expm1` to 1.4e-8.
const EXPM1: [f32; 5] = [0.999_999_94, 0.666_661_86, 0.333_339_5, 0.133_860_14, 0.044_384_692];

/// `a Phi(-a) 2^(LOG2_E / 2 a^2)` for `0 <= a <= 14.4` is `N / (TAIL_RATIO N + a TAIL_DEN(a) + 2)` to
/// 3.3e-8, with `N = a + a^2 TAIL_NUM(a)` and the normal distribution function `Phi`. The fit takes `LOG2_E` as
/// the f32 it is. For large `a` the error of `N` cancels: the quotient tends to `1 / sqrt(2 pi)`.
const TAIL_NUM: [f32; 4] = [0.922_357_5, 0.401_608_32, 0.093_469_7, 0.010_138_9];
const TAIL_DEN: [f32; 3] = [0.933_845_8, 0.236_277_57, 0.025_308_292];
const TAIL_RATIO: f32 = 2.506_641;

/// `c[0] + c[1] x + ..` by Horner's rule.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(super) unsafe fn horner<P: Arithmetic, const N: usize>(x: P::V, c: &[f32; N]) -> P::V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut y = P::splat(0.0);
        for (i, &c) in c.iter().rev().enumerate() {
            y = if i == 0 { P::splat(c) } else { P::fma(y, x, P::splat(c)) };
        }
        y
    }
}

/// The integer `n` nearest to `a * b`, as a number and as [`Arithmetic::scale2`] takes it, for products up to 2^21.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(super) unsafe fn round_product<P: Arithmetic>(a: P::V, b: P::V) -> (P::V, P::V) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let power = P::fma(a, b, P::splat(POWER_OF_ZERO));
        (P::sub(power, P::splat(POWER_OF_ZERO)), power)
    }
}

/// `e^x = p * 2^n` with `p` in [0.70, 1.42] and an integral `n`, as [`Arithmetic::scale2`] takes it, for `|x| <= 2^21`; NaN
/// gives a NaN `p`.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn exp_parts<P: Arithmetic>(x: P::V) -> (P::V, P::V) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (n, power) = round_product::<P>(x, P::splat(LOG2_E));
        let g = P::fnma(x, P::splat(LOG2_E), n);
        let g = P::fnma(x, P::splat(LOG2_E_LOW), g);
        (P::fma(horner::<P, 6>(g, &EXP2_NEG), g, P::splat(1.0)), power)
    }
}

/// `e^x`: `inf` above 88.72, denormal below -87.34, 0 below -103.98; NaN stays NaN.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn exp<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        let x = P::max(P::splat(-106.0), P::min(P::splat(90.0), x));
        let (p, power) = exp_parts::<P>(x);
        P::scale2(p, power)
    }
}

/// `tanh x = E / (E + 1)` with `E = expm1(2 |x|) / 2`, which keeps its relative accuracy near 0.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn tanh<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        // tanh(10) = 1 - 4e-9
        let a = P::min(P::splat(10.0), P::copysign(x, P::splat(1.0)));
        let (n, power) = round_product::<P>(a, P::splat(2.0 * LOG2_E));
        // Where n is large enough for this rounded constant to matter, tanh hardly moves.
        let r = P::fnma(n, P::splat(LN_2 / 2.0), a);
        let h = P::fma(P::mul(horner::<P, 5>(r, &EXPM1), r), r, r);
        let pow = P::scale2(P::splat(1.0), power);
        let half = P::splat(0.5);
        let e = P::fma(h, pow, P::fma(pow, half, P::splat(-0.5)));
        P::copysign(P::div(e, P::add(e, P::splat(1.0))), x)
    }
}

/// `x / (1 + 2^-w)` where `w = m - g`: `(x / (2^m + 2^g)) 2^m`, whose factors stay in range. `m` is as [`Arithmetic::scale2`] takes it.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
unsafe fn times_sigmoid<P: Arithmetic>(x: P::V, m: P::V, g: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let one = P::splat(1.0);
        let p = P::fma(horner::<P, 6>(g, &EXP2), g, one);
        let d = P::add(P::scale2(one, m), p);
        P::scale2(P::div(x, d), m)
    }
}

/// `x / (1 + e^-x)`
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn silu<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        // silu(-115) rounds to -0; from 30 on, 1 + e^-x rounds to 1.
        let x = P::max(P::splat(-115.0), x);
        let z = P::min(P::splat(30.0), x);
        let (m, power) = round_product::<P>(z, P::splat(LOG2_E));
        let g = P::fnma(z, P::splat(LOG2_E), m);
        let g = P::fnma(z, P::splat(LOG2_E_LOW), g);
        times_sigmoid::<P>(x, power, g)
    }
}

/// Of `a Phi(-a) 2^(LOG2_E / 2 a^2)` numerator and denominator, with `s = a^2`.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(super) unsafe fn tail<P: Arithmetic>(a: P::V, s: P::V) -> (P::V, P::V) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let num = P::fma(horner::<P, 4>(a, &TAIL_NUM), s, a);
        let den = P::fma(num, P::splat(TAIL_RATIO), P::mul(horner::<P, 3>(a, &TAIL_DEN), a));
        (num, P::add(den, P::splat(2.0)))
    }
}

/// `x Phi(x)`, as `max(x, 0) - |x| Phi(-|x|)`.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn gelu<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        // 14.4 Phi(-14.4) rounds to 0.
        let a = P::min(P::splat(14.4), P::copysign(x, P::splat(1.0)));
        let s = P::mul(a, a);
        let error = P::fnma(a, a, s);
        let (n, power) = round_product::<P>(s, P::splat(-LOG2_E / 2.0));
        let g = P::fma(s, P::splat(LOG2_E / 2.0), n);
        let g = P::fnma(error, P::splat(LOG2_E / 2.0), g);
        // N 2^-g in the form with the fewest roundings.
        let (num, den) = tail::<P>(a, s);
        let num = P::fma(P::mul(horner::<P, 6>(g, &EXP2_NEG), g), num, num);
        let tail = P::scale2(P::div(num, den), power);
        // -0 rather than 0 makes the results for -inf and -0 negative zeros.
        P::sub(P::max(P::splat(-0.0), x), tail)
    }
}

/// `w = x (W1 + W3 x^2)` is `2 sqrt(2 / pi) (x + 0.044715 x^3) log2(e)`. `W1` is a multiple of 2^-20.
pub(super) const W1: f32 = 2.302_208;
const W1_LOW: f32 = 2.513_669_7e-7;
pub(super) const W3: f32 = 0.102_943_24;
const W3_LOW: f32 = -2.016_198_5e-9;

/// `x / (1 + 2^-w)`
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn gelu_tanh<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        // gelu_tanh(-11) rounds to -0; from 6 on, 1 + 2^-w rounds to 1.
        let x = P::max(P::splat(-11.0), x);
        let z = P::min(P::splat(6.0), x);
        let s = P::mul(z, z);
        let s_error = P::fnma(z, z, s);
        let (w1, w3) = (P::splat(W1), P::splat(W3));
        let t = P::fma(s, w3, w1);
        // W1 - t is exact: both are multiples of t's unit in the last place.
        let t_low = P::fma(s, w3, P::sub(w1, t));
        let t_low = P::fnma(s_error, w3, P::add(t_low, P::splat(W1_LOW)));
        let t_low = P::fma(s, P::splat(W3_LOW), t_low);
        let (m, power) = round_product::<P>(z, t);
        let g = P::fnma(z, t, m);
        let g = P::fnma(z, t_low, g);
        times_sigmoid::<P>(x, power, g)
    }
}
