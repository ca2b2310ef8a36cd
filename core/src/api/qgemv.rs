//! Weights in place times rows of activations as they are.

use crate::args::unpacker::Made;
use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::qgemv::{QgemvArgs, BATCH};
use crate::quant::QuantRef;
use crate::table::Kernels;
use crate::view::{MatMut, MatRef};

impl<E: Element> Kernels<E> {
    /// Quantised weights times activations: `y[m, r] = sum_c w[r, c] * x[m, c]` for each row `m` of `x`, whose columns are
    /// contiguous, with the weights decoded exactly, the activations taken as they are, and products and sums in f32.
    ///
    /// The weights are used as they lie in memory, at any alignment, and read once for each eight rows of `x` (if they are
    /// plain floating point, once for all). Each
    /// element's sum is formed in an order that depends on `cols` only, so splitting the rows (by
    /// [`QuantRef::row_range`], over threads say) or the batch changes no bit. With `u = 2^-24`, the error of
    /// `y[m, r]` is at most `(cols / 16 + 16) * u * sum_c |w[r, c] * x[m, c]|` with SIMD, `(cols + 16) * u * ..` with
    /// scalar code; for formats with offsets `|w|` is `|code * scale| + |offset|`. For plain floating point it is
    /// `(cols / 4 + 16) * u * ..` with SIMD.
    ///
    /// # Errors
    /// `DimMismatch` unless `y` is `x.rows() x w.rows()` and `x` has the columns of `w`.
    pub(crate) fn qgemv(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantRef<'_>,
        x: MatRef<'_, E>,
    ) -> Result<(), KernelError> {
        check::product([w.rows(), w.cols()], [x.rows(), x.cols()], [y.rows(), y.cols()])?;
        if y.is_empty() {
            return Ok(());
        }
        let format = match self.table.formats.of(w.format()) {
            Made::Blocks(format) => *format,
            Made::Floats(of) => {
                // SAFETY: the shapes fit.
                unsafe {
                    self.float_products(
                        self.table.of_element(),
                        of,
                        w,
                        (x.as_ptr(), x.row_stride(), x.rows()),
                        y,
                    )
                };
                return Ok(());
            }
        };
        let mut args = QgemvArgs {
            weights: format,
            rows: w.rows(),
            cols: w.cols(),
            w: w.as_bytes().as_ptr(),
            order: self.order_of(w.as_bytes().len()),
            batch: 0,
            x: x.as_ptr(),
            x_stride: x.row_stride(),
            y_strides: [y.row_stride(), y.col_stride()],
            y: y.as_mut_ptr(),
        };
        let (first_x, first_y) = (args.x, args.y);
        for first in (0..x.rows()).step_by(BATCH) {
            args.batch = (x.rows() - first).min(BATCH);
            args.x = first_x.wrapping_add(first * args.x_stride);
            args.y = first_y.wrapping_add(first * args.y_strides[0]);
            // SAFETY: a QuantRef has all its blocks; the shapes fit, and `y` is exclusive; the table's instruction
            // set is present.
            unsafe { (self.table.qgemv)(&args) };
        }
        Ok(())
    }
}
