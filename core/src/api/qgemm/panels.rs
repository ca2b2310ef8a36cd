//! Activations of 8 bits, in the panels that tiles take.

use core::marker::PhantomData;

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::activations::{check_room, Step};
use crate::ops::qgemm::tile::{PanelXArgs, ACTIVATION_ROWS};
use crate::quant::packed::STEP_COLS;
use crate::scratch::ScratchReq;
use crate::table::Kernels;
use crate::view::MatRef;

/// Activations in 8 bits as tiles take them, for weights of any format.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActivationPanels<'a> {
    panels: *const u8,
    rows: usize,
    cols: usize,
    life: PhantomData<&'a [u8]>,
}

// SAFETY: a shared borrow of bytes.
unsafe impl Send for ActivationPanels<'_> {}
// SAFETY: a shared borrow of bytes; all access is read-only.
unsafe impl Sync for ActivationPanels<'_> {}

/// Bytes of a row.
fn row_bytes(cols: usize) -> usize {
    cols / STEP_COLS * size_of::<Step>()
}

impl ActivationPanels<'_> {
    /// Rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }
    /// Columns.
    pub(super) fn cols(&self) -> usize {
        self.cols
    }
    /// The panel that starts with row `row`.
    pub(super) fn panel(&self, row: usize) -> *const u8 {
        self.panels.wrapping_add(row * row_bytes(self.cols))
    }
}

impl<E: Element> Kernels<E> {
    /// Memory for [`activation_panels`](Self::activation_panels): 2 bytes an activation.
    ///
    /// # Errors
    /// `NotBlockMultiple` if `cols` is not a multiple of 32, `SizeOverflow`.
    pub(super) fn activation_panels_size(&self, rows: usize, cols: usize) -> Result<ScratchReq, KernelError> {
        if !cols.is_multiple_of(STEP_COLS) {
            return Err(KernelError::NotBlockMultiple { cols, block: STEP_COLS });
        }
        let overflow = KernelError::SizeOverflow { what: "quantised activations" };
        ScratchReq::array::<Step>((cols / STEP_COLS).checked_mul(rows).ok_or(overflow)?)
    }

    /// Rounds activations to 8 bits, into `buf`.
    ///
    /// # Errors
    /// `ShortSlice` if `buf` is smaller than [`activation_panels_size`](Self::activation_panels_size) says (unaligned),
    /// `BadValue` if the columns of `x` are not contiguous, `NotBlockMultiple`, `SizeOverflow`.
    pub(super) fn activation_panels<'a>(
        &self,
        x: MatRef<'_, E>,
        buf: &'a mut [u8],
    ) -> Result<ActivationPanels<'a>, KernelError> {
        let req = self.activation_panels_size(x.rows(), x.cols())?;
        let (need, got) = (req.size_unaligned(), buf.len());
        let skip = if need == 0 { 0 } else { (buf.as_ptr() as usize).wrapping_neg() & (req.align() - 1) };
        let room = buf.get_mut(skip..skip + req.size()).filter(|_| got >= need);
        let room = room.ok_or(KernelError::ShortSlice { arg: "buf", need, got })?;
        self.activation_panels_rows(x, room)?;
        Ok(self.activation_panels_filled([x.rows(), x.cols()], room))
    }

    /// Rounds some rows, the first of which is a multiple of [`ACTIVATION_ROWS`], into their part of the memory for all rows.
    ///
    /// # Errors
    /// `WrongLength` unless the part's length is that of the rows, in bytes; `BadParameter` if it is not aligned to 64
    /// bytes, `BadValue` if the columns of `x` are not contiguous.
    pub(super) fn activation_panels_rows(
        &self,
        x: MatRef<'_, E>,
        part: &mut [u8],
    ) -> Result<(), KernelError> {
        check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
        let req = self.activation_panels_size(x.rows(), x.cols())?;
        check_room(req, req.align(), part)?;
        if x.is_empty() {
            return Ok(());
        }
        for first in (0..x.rows()).step_by(ACTIVATION_ROWS) {
            let args = PanelXArgs {
                rows: (x.rows() - first).min(ACTIVATION_ROWS),
                cols: x.cols(),
                x: x.as_ptr().wrapping_add(first * x.row_stride()),
                stride: x.row_stride(),
                dst: part.as_mut_ptr().wrapping_add(first * row_bytes(x.cols())),
                in_words: self.tier.is_some_and(|tier| !tier.qgemm.narrow.is_empty()),
            };
            // SAFETY: rows of the view; the part was measured, is aligned and exclusive; the table's instruction set is
            // present.
            unsafe { (self.table.qgemm_x)(&args) };
        }
        Ok(())
    }

    /// Opens memory that [`activation_panels_rows`](Self::activation_panels_rows) has filled; it has the right size and
    /// alignment.
    pub(super) fn activation_panels_filled<'a>(
        &self,
        [rows, cols]: [usize; 2],
        room: &'a [u8],
    ) -> ActivationPanels<'a> {
        ActivationPanels { panels: room.as_ptr(), rows, cols, life: PhantomData }
    }
}
