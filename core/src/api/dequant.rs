//! Decoding of quantised weights to numbers, and unpacking to codes, scales and offsets.

use crate::args::unpacker::Made;
use crate::args::unpacker::Unpacked;
use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::dequant::DecodeArgs;
use crate::ops::unquantised::UnquantisedDecodeArgs;
use crate::quant::QuantRef;
use crate::table::Kernels;

/// # Quantised weights
///
/// Formats and their decode are those of GGUF (`ggml`).
impl<E: Element> Kernels<E> {
    /// Decodes a quantised matrix: `y[r * cols + c] = w[r, c]`, computed in f32 (bit for bit what the
    /// format defines) and narrowed once. For some of the rows use [`QuantRef::row_range`].
    ///
    /// # Errors
    /// `WrongLength` unless `y` has `rows * cols` elements.
    pub fn dequant(&self, w: QuantRef<'_>, y: &mut [E]) -> Result<(), KernelError> {
        let n = w.elements();
        check::len("y", y.len(), n)?;
        let (format, blocks) = (self.table.formats.of(w.format()), w.blocks());
        let (w, y, access) = (w.as_bytes().as_ptr(), y.as_mut_ptr(), self.access(n));
        // SAFETY: a QuantRef has all its blocks; `y` is exclusive and has room for their elements;
        // the table's instruction set is present.
        unsafe {
            match format {
                Made::Blocks(&format) => (self.table.decode)(&DecodeArgs { format, blocks, w, y, access }),
                Made::Floats(of) => (self.table.float_decode)(&UnquantisedDecodeArgs { of, n, w, y, access }),
            }
        }
        Ok(())
    }

    /// Takes a quantised matrix apart: `w[r, c] = codes[i] * scales[i / group] + offsets[i / group]` with
    /// `i = r * cols + c` and `group =` [`QuantFormat::group_len`](crate::QuantFormat::group_len), product
    /// and sum each rounded to f32. Formats without offsets leave `offsets` alone; it may be empty. Plain floating point is
    /// a scale with the code 1.
    ///
    /// # Errors
    /// `WrongLength` unless `codes` has `rows * cols` elements, `scales` and, if the format
    /// [has offsets](crate::QuantFormat::has_offsets), `offsets` a `group`-th of that.
    pub fn unpack(
        &self,
        w: QuantRef<'_>,
        codes: &mut [i8],
        scales: &mut [f32],
        offsets: &mut [f32],
    ) -> Result<(), KernelError> {
        let n = w.elements();
        let groups = n / w.format().group_len().max(1);
        check::len("codes", codes.len(), n)?;
        check::len("scales", scales.len(), groups)?;
        if w.format().has_offsets() {
            check::len("offsets", offsets.len(), groups)?;
        }
        let Made::Blocks(format) = self.table.formats.of(w.format()) else {
            codes.fill(1);
            return Kernels::<f32>::with(self.caps()).dequant(w, scales);
        };
        let (codes, scales, offsets) = (codes.as_mut_ptr(), scales.as_mut_ptr(), offsets.as_mut_ptr());
        // SAFETY: a QuantRef has all its blocks; the outputs were measured and are exclusive; the table's
        // instruction set is present.
        unsafe { (format.unpack)(w.blocks(), w.as_bytes().as_ptr(), &Unpacked { codes, scales, offsets }) };
        Ok(())
    }
}
