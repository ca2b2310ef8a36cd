//! Quantising: encoding of numbers to blocks of a format.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::encode::{encoder, Isa};
use crate::ops::unquantised::UnquantisedEncodeArgs;
use crate::quant::QuantFormat;
use crate::table::Kernels;

impl<E: Element> Kernels<E> {
    /// Quantises `x`, whole rows one behind the other: the scales and codes that leave the least squared
    /// error, as far as a search from several starting points finds them.
    ///
    /// With `importance`, one number for each column, the squared error of a weight is multiplied with the
    /// importance of its column. Its length is that of the rows. Only ratios within a block matter; negative and NaN
    /// importances are zeros; if all of a block are, all of its weights count the same. Q8_0, Q8_1, Q8_K, F16 and BF16
    /// ignore it.
    ///
    /// NaN is encoded as 0. Magnitudes beyond a limit are encoded as that limit: 8319008 for Q8_0 and Q8_1, 2688 for
    /// NVFP4, 1e38 for Q8_K and MXFP4, 65504 for all others. Magnitudes below 1e-18 are zeros. Every instruction set
    /// gives the same blocks. None of this holds for F16 and BF16: numbers are rounded to the nearest, ties to even;
    /// infinities and NaN stay, what is too large becomes infinite.
    ///
    /// # Errors
    /// `NoEncoder` for E4M3 and the codebook formats IQ1, IQ2 and IQ3. `NotBlockMultiple` if `x` or `importance`
    /// are not made of whole blocks, `ShortSlice` (in bytes) if `out` is shorter than the blocks,
    /// `NotWhole` if `x` is not made of whole rows.
    pub fn quantize(
        &self,
        format: QuantFormat,
        x: &[E],
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<(), KernelError> {
        let unquantised = format.element();
        let encode = encoder::<E>(format);
        if encode.is_none() && unquantised.is_none() {
            return Err(KernelError::NoEncoder(format));
        }
        let need = format.row_bytes(x.len())?;
        let got = out.len();
        let out = out.get_mut(..need).ok_or(KernelError::ShortSlice { arg: "out", need, got })?;
        if let Some(importance) = importance {
            format.row_bytes(importance.len())?;
            check::rows("x", x.len(), "importance.len()", importance.len())?;
        }
        // SAFETY: a table of kernels is only handed out where the CPU has its level; `out` has room for all numbers.
        unsafe {
            if let Some(encode) = encode {
                encode(Isa::new(self.level()), x, importance, out);
            } else if let Some(to) = unquantised {
                let (n, x, w) = (x.len(), x.as_ptr(), out.as_mut_ptr());
                (self.table.float_encode)(&UnquantisedEncodeArgs { to, n, x, w });
            }
        }
        Ok(())
    }
}
