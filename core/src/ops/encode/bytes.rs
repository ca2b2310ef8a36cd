//! Rounding of groups to integers of 8 bits, compiled for each instruction set. The only result that lanes form together is a
//! largest magnitude, which does not depend on their order. So all instruction sets give the same blocks.

use crate::caps::IsaLevel;
use crate::vector::Prim;

/// The scale such that the largest magnitude is 127, and `x / scale`.
///
/// # Safety
/// The CPU has the instruction set; `x` is finite.
#[inline(always)]
unsafe fn body<P: Prim<f32>, const N: usize>(x: &[f32; N]) -> (f32, [i8; N]) {
    const { assert!(N.is_multiple_of(P::LANES)) };
    let (mut rounded, mut q) = ([0f32; N], [0; N]);
    // SAFETY: whole vectors below N; the integers are at most 127 in magnitude.
    unsafe {
        let zero = P::splat(0.0);
        let mut most = zero;
        for i in (0..N).step_by(P::LANES) {
            most = P::max(most, P::copysign(P::load(x.as_ptr().add(i)), zero));
        }
        let most = P::reduce_max(most);
        let inverse = P::splat(if most == 0.0 { 0.0 } else { 127.0 / most });
        for i in (0..N).step_by(P::LANES) {
            let v = P::round(P::mul(P::load(x.as_ptr().add(i)), inverse));
            P::store(rounded.as_mut_ptr().add(i), v);
        }
        for (q, rounded) in q.iter_mut().zip(&rounded) {
            *q = rounded.to_int_unchecked::<i32>() as i8;
        }
        (most / 127.0, q)
    }
}

macro_rules! wrap {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        #[$attr]
        unsafe fn $module<const N: usize>(x: &[f32; N]) -> (f32, [i8; N]) {
            // SAFETY: the caller vouches for the CPU and the numbers.
            unsafe { body::<crate::isa::$isa, N>(x) }
        }
    };
}
expand_all_isas! { wrap! {} }

macro_rules! call {
    (
        { $level:ident, $x:ident }
        isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta
    ) => {
        if $level == IsaLevel::$isa {
            // SAFETY: the CPU has the level, as the caller says; weights were made finite.
            return unsafe { $module($x) };
        }
    };
}

/// Integers of 8 bits: the scale such that the largest magnitude is 127, and `x / scale`, for weights that
/// are finite, on a CPU that has `level`.
///
/// A search gains next to nothing here, and activations are quantised while others wait.
pub(super) fn bytes<const N: usize>(level: IsaLevel, x: &[f32; N]) -> (f32, [i8; N]) {
    expand_all_isas! { call! { level, x } }
    // SAFETY: every CPU has the portable instruction set.
    unsafe { scalar(x) }
}
