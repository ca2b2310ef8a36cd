//! Weights in place times activations in 8 bits.

use crate::args::unpacker::Made;
use crate::args::unpacker::Q8Args;
use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::activations::Activations;
use crate::quant::QuantRef;
use crate::table::Kernels;
use crate::view::MatMut;

impl<E: Element> Kernels<E> {
    /// Quantised weights times quantised activations, with the weights as they lie in memory: what
    /// [`qgemv`](Self::qgemv) computes, with the activations as
    /// [`quantize_activations`](Self::quantize_activations) has rounded them for weights in place.
    ///
    /// Within a group of 16 or 32 columns the sum is formed in integers, exactly; sums of groups are f32. Scales are
    /// f32, too, but those of weights in blocks of 256 are integers times a number of the block. Against the rounded
    /// activations, the error of an element is at most `(cols / 16 + 16) * 2^-24` times the sum of the magnitudes of
    /// all groups, with scalar code `(cols / 8 + 16) * 2^-24` times. Rounding the activations costs up to
    /// `sum_c |w[r, c]| * d(c) / 2`, `d(c)` being 1/127 of the largest magnitude of 32 columns, or of 256 where blocks
    /// of weights are as long. Weights that are plain floating point have activations that are not rounded, and the
    /// bits of [`qgemv`](Self::qgemv) of f32. Splitting the rows or the batch changes no bit. Weights that are used
    /// often are multiplied faster by [`qgemv_packed`](Self::qgemv_packed).
    ///
    /// # Errors
    /// `DimMismatch` unless `y` is `x.batch() x w.rows()` and `x` has the columns of `w`.
    pub(crate) fn qgemv_q8(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantRef<'_>,
        x: Activations<'_>,
    ) -> Result<(), KernelError> {
        check::product([w.rows(), w.cols()], [x.batch(), x.cols()], [y.rows(), y.cols()])?;
        if y.is_empty() {
            return Ok(());
        }
        let format = match self.table.formats.of(w.format()) {
            Made::Blocks(format) => *format,
            Made::Floats(of) => {
                let x = (x.row(0).cast(), x.stride() / size_of::<f32>(), x.batch());
                // SAFETY: activations have all their rows, and the shapes fit.
                unsafe { self.float_products(self.plain(), of, w, x, y) };
                return Ok(());
            }
        };
        let args = Q8Args {
            rows: w.rows(),
            blocks: w.cols() / w.format().block_len(),
            w: w.as_bytes().as_ptr(),
            batch: x.batch(),
            x: x.units(),
            x_stride: x.stride(),
            prefetches: self.caps().prefetcher().prefetches(),
            // Reciprocals of powers of two.
            units: [
                1.0 / format.packing.unit,
                if format.offsets { 1.0 / format.packing.offset_unit } else { 0.0 },
            ],
            y_strides: [y.row_stride(), y.col_stride()],
            y: y.as_mut_ptr(),
        };
        let of_tier = self.tier.and_then(|tier| tier.in_place).and_then(|all| all.get(w.format() as usize));
        let run = of_tier.unwrap_or(&format.qgemv_q8);
        // SAFETY: a QuantRef has all its blocks, activations all their rows; the shapes fit, and `y` is exclusive; the
        // table's and the tier's instructions are present.
        unsafe { run(&args) };
        Ok(())
    }
}
