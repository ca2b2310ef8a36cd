//! Grids: the values that the codes of a format can stand for, in units of the scale.

use crate::quant::codebooks::{FP4_VALUES, IQ4_VALUES};
use crate::vector::Vector;

/// Values, before scaling, that codes stand for.
pub(crate) trait Grid {
    /// With every value its negative is one, so negative scales are not needed.
    const SYMMETRIC: bool;
    /// Values are not below zero, so groups have minima.
    const OFFSET: bool;
    /// Where to look for a scale: the largest magnitude (or the range) of a group divided by it.
    const REACH: &'static [f32];
    /// The values nearest to `t`; any for NaN.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn nearest<P: Vector>(t: P::V) -> P::V;
    /// The code of one of the values.
    fn code(v: f32) -> u8;
}

/// Integers from `LO` to `HI`; codes count from `LO`.
pub(crate) struct Int<const LO: i32, const HI: i32>;

impl<const LO: i32, const HI: i32> Grid for Int<LO, HI> {
    const SYMMETRIC: bool = LO == -HI;
    const OFFSET: bool = LO == 0;
    const REACH: &'static [f32] = match (LO, HI) {
        (-1, 1) => &[1.0, 1.3, 1.7, 2.2, 2.8, 3.6],
        (-1, 2) => &[0.9, 1.2, 1.5, 2.0, 2.6, 3.4],
        (-4, 3) => &[3.0, 3.4, 3.8, 4.2, 4.6, 5.2],
        (-8, 7) => &[6.7, 7.1, 7.5, 7.9, 8.3, 8.8, 9.4],
        (-16, 15) => &[14.6, 15.3, 16.0, 16.7, 17.5],
        (0, 3) => &[2.0, 2.3, 2.6, 3.0, 3.4, 3.9, 4.5],
        (0, 15) => &[12.8, 13.2, 13.6, 14.0, 14.4, 14.8, 15.2, 15.6, 16.2, 17.2],
        (0, 31) => &[28.5, 29.0, 29.5, 30.0, 30.5, 31.0, 31.5, 32.0, 33.0],
        _ => &[31.0, 31.6, 32.2, 33.0],
    };
    #[inline(always)]
    unsafe fn nearest<P: Vector>(t: P::V) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { P::round(P::min(P::max(t, P::splat(LO as f32)), P::splat(HI as f32))) }
    }
    fn code(v: f32) -> u8 {
        (v - LO as f32) as u8
    }
}

/// -1 and 1.
pub(crate) struct Sign;

impl Grid for Sign {
    const SYMMETRIC: bool = true;
    const OFFSET: bool = false;
    // Least squares needs the signs only.
    const REACH: &'static [f32] = &[1.0];
    #[inline(always)]
    unsafe fn nearest<P: Vector>(t: P::V) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { P::select_lt(t, P::splat(0.0), P::splat(-1.0), P::splat(1.0)) }
    }
    fn code(v: f32) -> u8 {
        u8::from(v > 0.0)
    }
}

/// [`IQ4_VALUES`].
pub(crate) struct Iq4;

impl Grid for Iq4 {
    const SYMMETRIC: bool = false;
    const OFFSET: bool = false;
    const REACH: &'static [f32] = &[92.0, 100.0, 108.0, 116.0, 124.0, 133.0];
    #[inline(always)]
    unsafe fn nearest<P: Vector>(t: P::V) -> P::V {
        // SAFETY: the caller's contract.
        unsafe {
            let mut v = P::splat(f32::from(IQ4_VALUES[0]));
            for pair in IQ4_VALUES.windows(2) {
                let &[a, b] = pair else { continue };
                let (a, b) = (f32::from(a), f32::from(b));
                v = P::select_lt(P::splat((a + b) / 2.0), t, P::splat(b), v);
            }
            v
        }
    }
    fn code(v: f32) -> u8 {
        IQ4_VALUES.iter().filter(|&&a| f32::from(a) < v).count() as u8
    }
}

/// [`FP4_VALUES`].
pub(crate) struct Fp4;

impl Grid for Fp4 {
    const SYMMETRIC: bool = true;
    const OFFSET: bool = false;
    const REACH: &'static [f32] = &[7.2, 8.2, 9.4, 10.8, 12.0, 13.2, 15.0];
    #[inline(always)]
    unsafe fn nearest<P: Vector>(t: P::V) -> P::V {
        // SAFETY: the caller's contract.
        unsafe {
            let size = P::copysign(t, P::splat(0.0));
            let mut v = P::splat(0.0);
            for (above, b) in
                [(0.5, 1.0), (1.5, 2.0), (2.5, 3.0), (3.5, 4.0), (5.0, 6.0), (7.0, 8.0), (10.0, 12.0)]
            {
                v = P::select_lt(P::splat(above), size, P::splat(b), v);
            }
            P::copysign(v, t)
        }
    }
    fn code(v: f32) -> u8 {
        FP4_VALUES.iter().take_while(|&&a| f32::from(a) != v).count() as u8 & 15
    }
}
