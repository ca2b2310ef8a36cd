//! Packing of quantised weights once, for many products.

use crate::args::unpacker::Made;
use crate::caps::Caps;
use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::header::Header;
use crate::ops::qpack::{header, open, panels, PackQArgs, PackedQ};
use crate::quant::packed::{Packing, Unit, PANEL_ROWS, STEPS, STEP_COLS, UNIT_COLS};
use crate::quant::{QuantFormat, QuantRef};
use crate::table::Kernels;

/// # Packed quantised weights
///
/// Weights that are used often are packed once, at load time: products with packed weights need no sums
/// across registers and no lookups in large tables.
impl<E: Element> Kernels<E> {
    /// The header of packed weights.
    fn packed_q_header(&self, format: QuantFormat, rows: usize, cols: usize) -> Result<Header, KernelError> {
        header(self.table.formats.of(format).packing(), format, rows, cols)
    }

    /// Packs a quantised matrix, for products that are faster than with the matrix in place.
    ///
    /// # Errors
    /// `ShortSlice` if `buf` has less than [`QuantFormat::packed_size`] bytes, `SizeOverflow`.
    pub fn pack_q<'a>(&self, w: QuantRef<'_>, buf: &'a mut [u8]) -> Result<PackedQ<'a>, KernelError> {
        let panels = self.packed_q_room(w.format(), w.rows(), w.cols(), buf)?;
        self.pack_q_rows(w, panels)?;
        self.packed_q(w.format(), w.rows(), w.cols(), buf)
    }

    /// The first half of [`pack_q`](Self::pack_q), for packing with several threads: writes the header and yields the
    /// room for the rows. The room consists of equally long parts, one for each 16 rows (the last one perhaps for
    /// less); [`pack_q_rows`](Self::pack_q_rows) fills any number of them.
    ///
    /// # Errors
    /// Those of [`pack_q`](Self::pack_q).
    pub fn packed_q_room<'a>(
        &self,
        format: QuantFormat,
        rows: usize,
        cols: usize,
        buf: &'a mut [u8],
    ) -> Result<&'a mut [u8], KernelError> {
        self.packed_q_header(format, rows, cols)?.write(buf)
    }

    /// The second half of [`pack_q`](Self::pack_q), after [`packed_q_room`](Self::packed_q_room): packs some rows, the
    /// first of which is a multiple of 16, into their part of the room.
    ///
    /// # Errors
    /// `WrongLength` unless the part's length is that of the rows, in bytes.
    pub fn pack_q_rows(&self, w: QuantRef<'_>, panels: &mut [u8]) -> Result<(), KernelError> {
        let made = self.table.formats.of(w.format());
        let need = self::panels(made.packing(), w.format(), w.rows(), w.cols())?;
        check::len("panels", panels.len(), need)?;
        if need == 0 {
            return Ok(());
        }
        let (bytes, dst) = (w.as_bytes(), panels.as_mut_ptr());
        let Made::Blocks(&format) = made else {
            // SAFETY: the panels were measured and are exclusive: they have room for the rows, and some to fill up.
            unsafe {
                dst.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                dst.add(bytes.len()).write_bytes(0, need - bytes.len());
            }
            return Ok(());
        };
        let blocks = w.cols() / w.format().block_len();
        let args = PackQArgs { format, rows: w.rows(), blocks, w: bytes.as_ptr(), dst };
        // SAFETY: a QuantRef has all its blocks; the panels were measured and are exclusive; the table's
        // instruction set is present.
        unsafe { (self.table.pack_q)(&args) };
        Ok(())
    }

    /// Opens a buffer that [`pack_q`](Self::pack_q) has filled, now or in another process, on this or
    /// another CPU.
    ///
    /// # Errors
    /// `WrongPacking` if the header is damaged, or is another version's; `WrongFormat` if it is another format's;
    /// `DimMismatch` if it is another shape's; `ShortSlice` if bytes are missing; `BadParameter` if the bytes have moved
    /// by something else than a multiple of 4; `NotBlockMultiple`, `SizeOverflow`.
    pub fn packed_q<'a>(
        &self,
        format: QuantFormat,
        rows: usize,
        cols: usize,
        buf: &'a [u8],
    ) -> Result<PackedQ<'a>, KernelError> {
        open(self.table.formats.of(format).packing(), format, rows, cols, buf)
    }
}

impl PackedQ<'_> {
    /// Decodes row `r`, bit for bit as the format says.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such row, `WrongLength` unless `y` has `cols` elements.
    pub fn decode_row(&self, r: usize, y: &mut [f32]) -> Result<(), KernelError> {
        check::len("y", y.len(), self.cols())?;
        check::range("rows", r, 1, self.rows())?;
        let Some(packing) = self.packing() else {
            return Kernels::<f32>::with(Caps::SCALAR).dequant(self.unquantised()?.row_range(r, 1)?, y);
        };
        let first = r / PANEL_ROWS * packing.panel_bytes(self.cols()).unwrap_or(0);
        for (u, y) in y.chunks_mut(UNIT_COLS).enumerate() {
            let head = self.as_ptr().wrapping_add(first + u * packing.unit_bytes(STEPS));
            let unit = Unit { packing, head, steps: y.len() / STEP_COLS };
            let group = STEP_COLS / packing.groups().max(1);
            for (g, y) in y.chunks_mut(group.max(1)).enumerate() {
                // SAFETY: the row is in the matrix, and its units are in the panels.
                let (scale, offset) = unsafe { unit.scale(r % PANEL_ROWS, g) };
                for (i, y) in y.iter_mut().enumerate() {
                    // SAFETY: the row is in the matrix, and its units, which have this column, are in the panels.
                    let v = f32::from(unsafe { unit.code(r % PANEL_ROWS, g * group + i) });
                    *y = match packing {
                        Packing { eighths: true, .. } => {
                            let sign = f32::from_bits(offset.to_bits() ^ scale.to_bits());
                            (v + 0.125f32.copysign(sign)) * scale
                        }
                        Packing { offsets: true, .. } => v * scale + offset,
                        _ => v * scale,
                    };
                }
            }
        }
        Ok(())
    }
}
