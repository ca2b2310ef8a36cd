//! Products with weights in the formats of floating point: F16, BF16 and E4M3.

use crate::element::Element;
use crate::ops::ahead::Order;
use crate::ops::unquantised::{Unquantised, UnquantisedGemvArgs};
use crate::quant::{QuantFormat, QuantRef};
use crate::table::{Kernels, Table};
use crate::view::MatMut;

impl<E: Element> Kernels<E> {
    /// Products with `batch` rows of activations at `x`, `x_stride` apart, by a table of this level.
    ///
    /// # Safety
    /// The rows exist and have the columns of `w`, and `y` is `batch x rows`.
    pub(crate) unsafe fn float_products<X: Element>(
        &self,
        table: &Table<X>,
        of: QuantFormat,
        w: QuantRef<'_>,
        (x, x_stride, batch): (*const X, usize, usize),
        mut y: MatMut<'_, f32>,
    ) {
        let bytes = w.as_bytes();
        let order = self.order_of(bytes.len());
        let alone = order == Order::Sequential && bytes.len() > self.caps().caches().l3;
        let args = UnquantisedGemvArgs {
            weights: Unquantised { of, alone },
            rows: w.rows(),
            cols: w.cols(),
            w: bytes.as_ptr(),
            order,
            batch,
            x,
            x_stride,
            y_strides: [y.row_stride(), y.col_stride()],
            y: y.as_mut_ptr(),
        };
        // SAFETY: a QuantRef has all its weights; the caller vouches for the rest; the table's instruction set is present.
        unsafe { (table.float_qgemv)(&args) };
    }
}
