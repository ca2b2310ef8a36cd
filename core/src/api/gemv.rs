//! BLAS-2: matrix times vector.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::ahead::ROWS_SIDE_BY_SIDE;
use crate::ops::gemv::GemvArgs;
use crate::table::Kernels;
use crate::view::MatRef;

/// # Matrix times vector (BLAS level 2)
impl<E: Element> Kernels<E> {
    /// Rows that [`gemv`](Self::gemv) multiplies side by side: parts of a matrix, for several threads say, best have a multiple of them.
    pub const GEMV_ROWS: usize = ROWS_SIDE_BY_SIDE;

    /// `y = alpha * A x + beta * y` (BLAS `gemv`): `A` is `rows x cols` at any strides, `x` has `cols`
    /// elements, `y` has `rows`. For `A^T x` pass [`a.t()`](MatRef::t).
    ///
    /// Everything is widened to f32 and summed with fused multiply-adds. As in BLAS, `beta = 0` overwrites `y` without reading it (a
    /// NaN there does not survive), and `alpha = 0` reads neither `A` nor `x`; everything else follows
    /// IEEE rules, so a NaN or infinity in `A` or `x` reaches every row it belongs to. The error of a
    /// row is at most about `(cols + 3) * 2^-24 * |alpha| * sum |a_ij x_j|`, plus that of `beta * y`.
    ///
    /// Fastest where the rows or the columns of `A` are contiguous. To use several threads, give each a
    /// [`row_range`](MatRef::row_range) of `A` and that part of `y`.
    ///
    /// # Errors
    /// `WrongLength` unless `x` has `a.cols()` elements and `y` has `a.rows()`.
    pub fn gemv(
        &self,
        alpha: f32,
        a: MatRef<'_, E>,
        x: &[E],
        beta: f32,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        check::len("x", x.len(), a.cols())?;
        check::len("y", y.len(), a.rows())?;
        let args = GemvArgs {
            rows: a.rows(),
            cols: a.cols(),
            a: a.as_ptr(),
            row_stride: a.row_stride(),
            col_stride: a.col_stride(),
            x: x.as_ptr(),
            x_stride: 1,
            y: y.as_mut_ptr(),
            y_stride: 1,
            alpha,
            beta,
            order: self.order_for_vector(a.rows(), a.cols()),
        };
        // SAFETY: the view and the lengths cover every element addressed, `y` is exclusive, and the
        // table's instruction set is present.
        unsafe { (self.table.gemv)(&args) };
        Ok(())
    }
}
