//! BLAS-1: `vec_*`.

use crate::check;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::engine::{fold, map, Access, Fold, Function, Join};
use crate::vector::{Prim, Vector};

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
            unsafe fn eval<P: Vector>(self, [x, y]: [P::V; 2]) -> P::V {
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
    unsafe fn eval<P: Vector>(self, [x]: [P::V; 1]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::mul(P::splat(self.0), x) }
    }
}

#[derive(Clone, Copy)]
struct Axpy(f32);
impl Function<2> for Axpy {
    #[inline(always)]
    unsafe fn eval<P: Vector>(self, [x, y]: [P::V; 2]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::fma(P::splat(self.0), x, y) }
    }
}

// The bodies. The contract of each: `n` elements at every pointer; an input equals the output or does
// not overlap it; the instruction set is present.

/// # Safety
/// See above.
#[inline(always)]
pub(crate) unsafe fn dot<E: Element, P: Prim<E> + Prim<f32>>(
    n: usize,
    x: *const E,
    y: *const E,
    access: Access,
) -> f32 {
    // SAFETY: the caller's contract is the engine's; so below.
    unsafe { fold::<E, P, _, 2, 4>(Dot, n, [x, y], access) }
}

/// # Safety
/// See above.
#[inline(always)]
pub(crate) unsafe fn sum<E: Element, P: Prim<E> + Prim<f32>>(n: usize, x: *const E, access: Access) -> f32 {
    // SAFETY: as above.
    unsafe { fold::<E, P, _, 1, 8>(Sum, n, [x], access) }
}

/// # Safety
/// See above.
#[inline(always)]
pub(crate) unsafe fn max<E: Element, P: Prim<E> + Prim<f32>>(n: usize, x: *const E, access: Access) -> f32 {
    // SAFETY: as above.
    unsafe { fold::<E, P, _, 1, 8>(Max, n, [x], access) }
}

/// # Safety
/// See above.
#[inline(always)]
pub(crate) unsafe fn add<E: Element, P: Prim<E>>(
    n: usize,
    x: *const E,
    y: *const E,
    z: *mut E,
    access: Access,
) {
    // SAFETY: as above.
    unsafe { map::<E, P, _, 2, 4>(Add, n, [x, y], z, access) }
}

/// # Safety
/// See above.
#[inline(always)]
pub(crate) unsafe fn mul<E: Element, P: Prim<E>>(
    n: usize,
    x: *const E,
    y: *const E,
    z: *mut E,
    access: Access,
) {
    // SAFETY: as above.
    unsafe { map::<E, P, _, 2, 4>(Mul, n, [x, y], z, access) }
}

/// # Safety
/// See above.
#[inline(always)]
pub(crate) unsafe fn scale<E: Element, P: Prim<E>>(
    n: usize,
    alpha: f32,
    x: *const E,
    y: *mut E,
    access: Access,
) {
    // SAFETY: as above.
    unsafe { map::<E, P, _, 1, 4>(Scale(alpha), n, [x], y, access) }
}

/// # Safety
/// See above.
#[inline(always)]
pub(crate) unsafe fn axpy<E: Element, P: Prim<E>>(
    n: usize,
    alpha: f32,
    x: *const E,
    y: *mut E,
    access: Access,
) {
    // SAFETY: as above.
    unsafe { map::<E, P, _, 2, 4>(Axpy(alpha), n, [x, y], y, access) }
}

/// # Vectors (BLAS level 1)
///
/// Elements are widened to f32, computed, and narrowed once. Sums use several accumulators, so their
/// order differs from a plain loop's: the error of a sum of `n` terms is at most about
/// `(n / 32 + 8) * 2^-24 * sum |t_i|`.
impl<E: Element> Kernels<E> {
    /// `sum x_i * y_i` (BLAS `dot`); 0 for empty vectors.
    ///
    /// # Errors
    /// `WrongLength` unless both have the same length.
    pub fn vec_dot(&self, x: &[E], y: &[E]) -> Result<f32, KernelError> {
        check::len("y", y.len(), x.len())?;
        // SAFETY: equal lengths; the table's instruction set is present.
        Ok(unsafe { (self.table.vec_dot)(x.len(), x.as_ptr(), y.as_ptr(), self.access_inplace()) })
    }

    /// `sum x_i`; 0 for an empty vector.
    ///
    /// # Errors
    /// None today.
    pub fn vec_sum(&self, x: &[E]) -> Result<f32, KernelError> {
        // SAFETY: a slice; the table's instruction set is present.
        Ok(unsafe { (self.table.vec_sum)(x.len(), x.as_ptr(), self.access_inplace()) })
    }

    /// `max x_i`, ignoring NaN (as [`f32::max`]); -inf for an empty vector or one of NaN only.
    ///
    /// # Errors
    /// None today.
    pub fn vec_max(&self, x: &[E]) -> Result<f32, KernelError> {
        // SAFETY: a slice; the table's instruction set is present.
        Ok(unsafe { (self.table.vec_max)(x.len(), x.as_ptr(), self.access_inplace()) })
    }

    /// `z_i = x_i + y_i`.
    ///
    /// # Errors
    /// `WrongLength` unless all have the same length.
    pub fn vec_add(&self, x: &[E], y: &[E], z: &mut [E]) -> Result<(), KernelError> {
        check::len("y", y.len(), x.len())?;
        check::len("z", z.len(), x.len())?;
        let n = x.len();
        // SAFETY: equal lengths; `z` is exclusive; the table's instruction set is present.
        unsafe { (self.table.vec_add)(n, x.as_ptr(), y.as_ptr(), z.as_mut_ptr(), self.access(n)) };
        Ok(())
    }

    /// `y_i += x_i`.
    ///
    /// # Errors
    /// `WrongLength` unless both have the same length.
    pub fn vec_add_inplace(&self, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
        check::len("y", y.len(), x.len())?;
        let p = y.as_mut_ptr();
        // SAFETY: equal lengths; the second input is the output; the instruction set is present.
        unsafe { (self.table.vec_add)(x.len(), x.as_ptr(), p, p, self.access_inplace()) };
        Ok(())
    }

    /// `z_i = x_i * y_i`.
    ///
    /// # Errors
    /// `WrongLength` unless all have the same length.
    pub fn vec_mul(&self, x: &[E], y: &[E], z: &mut [E]) -> Result<(), KernelError> {
        check::len("y", y.len(), x.len())?;
        check::len("z", z.len(), x.len())?;
        let n = x.len();
        // SAFETY: equal lengths; `z` is exclusive; the table's instruction set is present.
        unsafe { (self.table.vec_mul)(n, x.as_ptr(), y.as_ptr(), z.as_mut_ptr(), self.access(n)) };
        Ok(())
    }

    /// `y_i *= x_i`.
    ///
    /// # Errors
    /// `WrongLength` unless both have the same length.
    pub fn vec_mul_inplace(&self, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
        check::len("y", y.len(), x.len())?;
        let p = y.as_mut_ptr();
        // SAFETY: equal lengths; the second input is the output; the instruction set is present.
        unsafe { (self.table.vec_mul)(x.len(), x.as_ptr(), p, p, self.access_inplace()) };
        Ok(())
    }

    /// `y_i = alpha * x_i`.
    ///
    /// # Errors
    /// `WrongLength` unless both have the same length.
    pub fn vec_scale(&self, alpha: f32, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
        check::len("y", y.len(), x.len())?;
        let n = x.len();
        // SAFETY: equal lengths; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.vec_scale)(n, alpha, x.as_ptr(), y.as_mut_ptr(), self.access(n)) };
        Ok(())
    }

    /// `x_i *= alpha` (BLAS `scal`).
    ///
    /// # Errors
    /// None today.
    pub fn vec_scale_inplace(&self, alpha: f32, x: &mut [E]) -> Result<(), KernelError> {
        let p = x.as_mut_ptr();
        // SAFETY: the input is the output; the table's instruction set is present.
        unsafe { (self.table.vec_scale)(x.len(), alpha, p, p, self.access_inplace()) };
        Ok(())
    }

    /// `y_i += alpha * x_i` (BLAS `axpy`).
    ///
    /// # Errors
    /// `WrongLength` unless both have the same length.
    pub fn vec_axpy(&self, alpha: f32, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
        check::len("y", y.len(), x.len())?;
        // SAFETY: equal lengths; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.vec_axpy)(x.len(), alpha, x.as_ptr(), y.as_mut_ptr(), self.access_inplace()) };
        Ok(())
    }
}
