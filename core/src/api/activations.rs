//! Rounding of activations to 8 bits, for products with quantised weights.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::activations::{check_room, quantize, ActivationArgs, Activations};
use crate::quant::QuantFormat;
use crate::table::Kernels;
use crate::view::MatRef;
use core::marker::PhantomData;

impl<E: Element> Kernels<E> {
    /// The kernel that rounds activations to 8 bits: for packed weights alone, or for weights in place as well, which
    /// takes longer.
    fn rounds_rows(&self, packed: bool) -> unsafe fn(&ActivationArgs<E>) {
        if packed {
            self.table.quantize_for_packed
        } else {
            self.table.quantize_activations
        }
    }

    /// Rounds the rows of `x` to 8 bits, as [`Prepared`](crate::Prepared) says, for products with weights of `format`:
    /// with packed ones alone if `packed`, otherwise with those in place as well.
    ///
    /// # Errors
    /// `ShortSlice` if `buf` is smaller than [`Activations::size`] says (unaligned), `BadValue` if the columns of `x` are
    /// not contiguous, `SizeOverflow`.
    pub(crate) fn quantize_activations<'a>(
        &self,
        format: QuantFormat,
        packed: bool,
        x: MatRef<'_, E>,
        buf: &'a mut [u8],
    ) -> Result<Activations<'a>, KernelError> {
        let packing = self.table.formats.of(format).packing();
        // SAFETY: the table's instruction set is present.
        unsafe { quantize(format, (packing, packed), x, buf, self.rounds_rows(packed)) }
    }

    /// Rounds some rows of the activations into their part of the memory for all of them. Rounded rows are equally long
    /// and follow each other without gaps, so several threads can each fill a part.
    ///
    /// # Errors
    /// `WrongLength` unless the part's length is that of the rows, in bytes; `BadParameter` if it is not aligned to 64
    /// bytes; `BadValue` if the columns of `x` are not contiguous, `SizeOverflow`.
    pub(crate) fn activations_rows(
        &self,
        format: QuantFormat,
        packed: bool,
        x: MatRef<'_, E>,
        part: &mut [u8],
    ) -> Result<(), KernelError> {
        let req = Activations::size(x.rows(), x.cols())?;
        check_room(req, req.align(), part)?;
        check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
        let packing = self.table.formats.of(format).packing();
        let (rows, cols, stride) = (x.rows(), x.cols(), x.row_stride());
        let args = ActivationArgs { rows, cols, x: x.as_ptr(), stride, packing, dst: part.as_mut_ptr() };
        if !x.is_empty() {
            // SAFETY: the view covers every element; the part has room for the rows, and is aligned; the table's
            // instruction set is present.
            unsafe { self.rounds_rows(packed)(&args) };
        }
        Ok(())
    }

    /// Opens memory that [`activations_rows`](Self::activations_rows) has filled with all rows; it has the right size
    /// and alignment.
    pub(crate) fn activations_filled<'a>(
        &self,
        format: QuantFormat,
        packed: bool,
        [batch, cols]: [usize; 2],
        room: &'a [u8],
    ) -> Activations<'a> {
        let unit = self.table.formats.of(format).packing().map_or(1.0, |packing| packing.unit);
        Activations { steps: room.as_ptr(), format, batch, cols, unit, packed, life: PhantomData }
    }
}
