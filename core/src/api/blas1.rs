//! BLAS-1: vectors.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::table::Kernels;

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
