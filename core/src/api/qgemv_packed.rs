//! Packed weights times activations in 8 bits.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::activations::Activations;
use crate::ops::qgemv_packed::{products, BATCH};
use crate::ops::qpack::PackedQ;
use crate::table::Kernels;
use crate::view::MatMut;

impl<E: Element> Kernels<E> {
    /// Packed quantised weights times quantised activations: `y[m, r] = sum_c w[r, c] * x[m, c]`, for
    /// each of the `batch` rows of `x`.
    ///
    /// Within a group of 16 or 32 columns the sum is formed in integers, exactly; scales and sums of groups
    /// are f32. Against the activations as [`quantize_activations`](Self::quantize_activations) has rounded them, the error of an
    /// element is at most `(cols / 16 + 4) * 2^-24` times the sum of the magnitudes of all groups. Rounding the
    /// activations costs up to `sum_c |w[r, c]| * d(c) / 2`, `d(c)` being 1/127 of the largest magnitude of
    /// their group. The rows of weights are read once for each four rows of activations. Each
    /// element is formed in an order that depends on nothing but `cols`: splitting the rows (by
    /// [`PackedQ::row_range`]) or the batch changes no bit.
    /// MXFP4's smallest scale, 2^-128, counts as 0. Weights that are plain floating point give what they give
    /// [in place](Self::qgemv_q8).
    ///
    /// # Errors
    /// `DimMismatch` unless `y` is `batch x rows` and `x` has the columns of `w`.
    pub(crate) fn qgemv_packed(
        &self,
        y: MatMut<'_, f32>,
        w: PackedQ<'_>,
        x: Activations<'_>,
    ) -> Result<(), KernelError> {
        check::product([w.rows(), w.cols()], [x.batch(), x.cols()], [y.rows(), y.cols()])?;
        if y.is_empty() {
            return Ok(());
        }
        let Some(packing) = w.packing() else {
            return self.qgemv_q8(y, w.unquantised()?, x);
        };
        let step = self.tier.map_or(BATCH, |tier| tier.batch);
        // SAFETY: packed weights have all their panels, activations all their rows; the table's and the tier's
        // instructions are present.
        products(y, w, packing, x, step, self.caps().prefetcher().prefetches(), |args, batch| unsafe {
            match self.tier.and_then(|tier| tier.of(w.format()).get(batch - 1)) {
                Some(kernel) => kernel(args),
                None => (self.table.qgemv_packed)(args, batch, packing),
            }
        });
        Ok(())
    }
}
