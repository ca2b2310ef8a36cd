//! Products of weights and activations of 8 bits, by groups, as far as instruction sets differ.

use crate::isa::{Scalar, Vector};
use crate::ops::activations::Unit;
use crate::quant::packed::{Pack, STEP};
use crate::quant::MIN_GROUP;

/// How 32 codes are held.
///
/// # Safety
/// The method requires that the CPU has the instruction set and that there is room.
pub(crate) unsafe trait Hold: Vector {
    /// 32 codes.
    type Codes: Copy;
    /// Writes 32 codes to `p`.
    unsafe fn put(codes: Self::Codes, p: *mut i8);
}

/// Sums of products of signed bytes.
///
/// # Safety
/// Methods require that the CPU has the instructions; [`dot`](Self::dot) what it says.
pub(crate) unsafe trait Dots {
    /// The instruction set that unpacks codes.
    type Isa: Hold;
    /// Partial sums, f32.
    type Sums: Copy;
    /// No sums.
    unsafe fn zeros() -> Self::Sums;
    /// Multiplies the codes of step `step` of 256 with the activations of `x`, which are -127 to 127, exactly, and adds
    /// the products times their group's factor to the sums. The step's factors are at `factors`, which is all that is read.
    unsafe fn dot<F: Pack>(
        w: <Self::Isa as Hold>::Codes,
        x: &Unit,
        step: usize,
        factors: *const f32,
        sums: Self::Sums,
    ) -> Self::Sums;
    /// `a + b`
    unsafe fn plus(a: Self::Sums, b: Self::Sums) -> Self::Sums;
    /// Their sum.
    unsafe fn total(sums: Self::Sums) -> f32;
}

/// Whether the halves of a step have factors of their own.
pub(crate) const fn halves<F: Pack>() -> bool {
    F::GROUP == MIN_GROUP
}

// SAFETY: writes 32 bytes.
unsafe impl Hold for Scalar {
    type Codes = [i8; STEP];
    #[inline(always)]
    unsafe fn put(codes: [i8; STEP], p: *mut i8) {
        // SAFETY: the caller vouches for the room.
        unsafe { p.cast::<[i8; STEP]>().write_unaligned(codes) };
    }
}

// SAFETY: reads two factors at most.
unsafe impl Dots for Scalar {
    type Isa = Self;
    type Sums = f32;
    #[inline(always)]
    unsafe fn zeros() -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn dot<F: Pack>(w: [i8; STEP], x: &Unit, step: usize, factors: *const f32, mut sums: f32) -> f32 {
        let mut dots = [0; 2];
        for (i, (w, x)) in w.into_iter().zip(x.step(step)).enumerate() {
            dots[usize::from(halves::<F>() && i >= STEP / 2)] += i32::from(w) * i32::from(*x);
        }
        for (g, dot) in dots.into_iter().enumerate().take(if halves::<F>() { 2 } else { 1 }) {
            // SAFETY: the caller vouches for the factors.
            sums += dot as f32 * unsafe { *factors.add(g) };
        }
        sums
    }
    #[inline(always)]
    unsafe fn plus(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    unsafe fn total(sums: f32) -> f32 {
        sums
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) use x86_64::Vnni;

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
pub(crate) use aarch64::Dotprod;
