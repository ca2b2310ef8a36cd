//! Elementary functions for results that are stored in 16 bits. They have shorter polynomials than those of
//! [`math`](crate::ops::math), and do not compensate roundings of f32.
//!
//! The relative error before the last rounding is below 9e-5, which is 0.19 units in the last place of f16 and 0.03 of bf16.

use core::f32::consts::LOG2_E;

use crate::ops::math::{self, horner, round_product};
use crate::vector::Arithmetic;

/// `2^-f` for `|f| <= 1/2`, to 7.5e-5: a minimax fit in relative error.
const EXP2_NEG: [f32; 4] = [0.999_928_1, -0.693_261, 0.242_611_1, -0.055_171_31];

/// `tanh x` for `|x| <= 4.6` is `x NUM(x^2) / DEN(x^2)` to 3.3e-5. `tanh 4.6` is nearer to 1 than half a unit of f16.
const TANH_NUM: [f32; 3] = [0.999_968, 0.103_625, 0.000_709_590_5];
const TANH_DEN: [f32; 3] = [1.0, 0.436_747_53, 0.013_197_13];

/// `e^x`, as [`math::exp`].
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn exp<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        let x = P::max(P::splat(-106.0), P::min(P::splat(90.0), x));
        power::<P>(x, P::splat(LOG2_E))
    }
}

/// `2^(a * b)`, for products up to 2^21.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
unsafe fn power<P: Arithmetic>(a: P::V, b: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (n, power) = round_product::<P>(a, b);
        P::scale2(horner::<P, 4>(P::fnma(a, b, n), &EXP2_NEG), power)
    }
}

/// `tanh x`
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn tanh<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        let x = P::max(P::splat(-4.6), P::min(P::splat(4.6), x));
        let s = P::mul(x, x);
        P::div(P::mul(horner::<P, 3>(s, &TANH_NUM), x), horner::<P, 3>(s, &TANH_DEN))
    }
}

/// `x / (1 + e^-x)`, as `x (E / (1 + E))` with `E = e^x`.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn silu<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        // silu(-115) rounds to -0; from 30 on, E / (1 + E) rounds to 1.
        let x = P::max(P::splat(-115.0), x);
        let e = power::<P>(P::min(P::splat(30.0), x), P::splat(LOG2_E));
        P::mul(x, P::div(e, P::add(e, P::splat(1.0))))
    }
}

/// `x (E / (1 + E))` with `E = 2^w`, where `w = x (W1 + W3 x^2)` as in [`math::gelu_tanh`].
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn gelu_tanh<P: Arithmetic>(x: P::V) -> P::V {
    // SAFETY: the caller vouches for the instruction set. The order of arguments keeps NaN.
    unsafe {
        // gelu_tanh(-11) rounds to -0; from 6 on, E / (1 + E) rounds to 1.
        let x = P::max(P::splat(-11.0), x);
        let z = P::min(P::splat(6.0), x);
        let e = power::<P>(z, P::fma(P::mul(z, z), P::splat(math::W3), P::splat(math::W1)));
        P::mul(x, P::div(e, P::add(e, P::splat(1.0))))
    }
}

/// `x Phi(x)`, as [`math::gelu`].
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
        let (num, den) = math::tail::<P>(a, s);
        let e = power::<P>(s, P::splat(-LOG2_E / 2.0));
        // -0 rather than 0 makes the results for -inf and -0 negative zeros.
        P::sub(P::max(P::splat(-0.0), x), P::mul(P::div(num, den), e))
    }
}
