//! BLAS-1: `vec_*`.

use crate::element::Element;
use crate::ops::engine::{fold, map, Access, Fold, Function, Join};
use crate::vector::{Arithmetic, Prim, Vector};

#[derive(Clone, Copy)]
struct Sum;
impl Fold<1> for Sum {
    const JOIN: Join = Join::Sum;
    #[inline(always)]
    unsafe fn step<P: Vector>(self, acc: P::V, [x]: [P::V; 1]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::add(acc, x) }
    }
}

#[derive(Clone, Copy)]
struct Dot;
impl Fold<2> for Dot {
    const JOIN: Join = Join::Sum;
    #[inline(always)]
    unsafe fn step<P: Vector>(self, acc: P::V, [x, y]: [P::V; 2]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::fma(x, y, acc) }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Max;
impl Fold<1> for Max {
    const JOIN: Join = Join::Max;
    #[inline(always)]
    unsafe fn step<P: Vector>(self, acc: P::V, [x]: [P::V; 1]) -> P::V {
        // SAFETY: the caller vouches for the instruction set. A NaN in `x` leaves `acc`.
        unsafe { P::max(x, acc) }
    }
}

/// `z = f(x, y)` of two vectors, by the name of the register operation.
macro_rules! binary {
    ($($name:ident = $f:ident;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;
        impl Function<2> for $name {
            #[inline(always)]
            unsafe fn eval<P: Arithmetic>(self, [x, y]: [P::V; 2]) -> P::V {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { P::$f(x, y) }
            }
        }
    )*};
}
binary! { Add = add; Mul = mul; }

#[derive(Clone, Copy)]
struct Scale(f32);
impl Function<1> for Scale {
    #[inline(always)]
    unsafe fn eval<P: Arithmetic>(self, [x]: [P::V; 1]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::mul(P::splat(self.0), x) }
    }
}

#[derive(Clone, Copy)]
struct Axpy(f32);
impl Function<2> for Axpy {
    #[inline(always)]
    unsafe fn eval<P: Arithmetic>(self, [x, y]: [P::V; 2]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::fma(P::splat(self.0), x, y) }
    }
}

/// # Safety
/// `n` elements at every pointer; an input equals the output or does not overlap it; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn dot<E: Element, P: Prim<E> + Prim<f32>>(
    n: usize,
    x: *const E,
    y: *const E,
    access: Access,
) -> f32 {
    // SAFETY: the caller's contract is the engine's.
    unsafe { fold::<E, P, _, 2, 4>(Dot, n, [x, y], access) }
}

/// # Safety
/// `n` elements at every pointer; an input equals the output or does not overlap it; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn sum<E: Element, P: Prim<E> + Prim<f32>>(n: usize, x: *const E, access: Access) -> f32 {
    // SAFETY: the caller's contract is the engine's.
    unsafe { fold::<E, P, _, 1, 8>(Sum, n, [x], access) }
}

/// # Safety
/// `n` elements at every pointer; an input equals the output or does not overlap it; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn max<E: Element, P: Prim<E> + Prim<f32>>(n: usize, x: *const E, access: Access) -> f32 {
    // SAFETY: the caller's contract is the engine's.
    unsafe { fold::<E, P, _, 1, 8>(Max, n, [x], access) }
}

/// # Safety
/// `n` elements at every pointer; an input equals the output or does not overlap it; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn add<E: Element, P: Prim<E>>(
    n: usize,
    x: *const E,
    y: *const E,
    z: *mut E,
    access: Access,
) {
    // SAFETY: the caller's contract is the engine's.
    unsafe { map::<E, P, _, 2, 4>(Add, n, [x, y], z, access) }
}

/// # Safety
/// `n` elements at every pointer; an input equals the output or does not overlap it; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn mul<E: Element, P: Prim<E>>(
    n: usize,
    x: *const E,
    y: *const E,
    z: *mut E,
    access: Access,
) {
    // SAFETY: the caller's contract is the engine's.
    unsafe { map::<E, P, _, 2, 4>(Mul, n, [x, y], z, access) }
}

/// # Safety
/// `n` elements at every pointer; an input equals the output or does not overlap it; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn scale<E: Element, P: Prim<E>>(
    n: usize,
    alpha: f32,
    x: *const E,
    y: *mut E,
    access: Access,
) {
    // SAFETY: the caller's contract is the engine's.
    unsafe { map::<E, P, _, 1, 4>(Scale(alpha), n, [x], y, access) }
}

/// # Safety
/// `n` elements at every pointer; an input equals the output or does not overlap it; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn axpy<E: Element, P: Prim<E>>(
    n: usize,
    alpha: f32,
    x: *const E,
    y: *mut E,
    access: Access,
) {
    // SAFETY: the caller's contract is the engine's.
    unsafe { map::<E, P, _, 2, 4>(Axpy(alpha), n, [x, y], y, access) }
}
