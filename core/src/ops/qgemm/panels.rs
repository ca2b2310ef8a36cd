//! Activations of 8 bits in panels.

use core::marker::PhantomData;

use super::tile::{PanelXArgs, PANEL};
use crate::check;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::activations::Step;
use crate::quant::packed::STEP;
use crate::scratch::ScratchReq;
use crate::view::MatRef;

/// Activations in 8 bits as `qgemm` takes them, for weights of any format: made by [`Kernels::activation_panels`].
#[derive(Clone, Copy, Debug)]
pub struct ActivationPanels<'a> {
    panels: *const u8,
    rows: usize,
    cols: usize,
    shape: Shape,
    life: PhantomData<&'a [u8]>,
}

/// What panels are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Rows of a panel.
    pub(super) rows: usize,
    /// What the number of rows of the last one is a multiple of: a power of two.
    least: usize,
}

impl Shape {
    /// Rows, with those that fill the last panel up.
    pub(super) fn filled(self, rows: usize) -> usize {
        let more = self.least.wrapping_sub(1);
        rows.saturating_add(more) & !more
    }
}

// SAFETY: a shared borrow of bytes.
unsafe impl Send for ActivationPanels<'_> {}
// SAFETY: as above; all access is read-only.
unsafe impl Sync for ActivationPanels<'_> {}

/// Bytes of a row.
fn row_bytes(cols: usize) -> usize {
    cols / STEP * size_of::<Step>()
}

impl ActivationPanels<'_> {
    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// What they are like.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }
    /// The panel that starts with row `row`.
    pub(super) fn panel(&self, row: usize) -> *const u8 {
        self.panels.wrapping_add(row * row_bytes(self.cols))
    }
}

impl<E: Element> Kernels<E> {
    /// What the microkernels of `qgemm` take.
    pub(super) fn panels(&self) -> Shape {
        self.qgemm.map_or(Shape { rows: PANEL, least: 1 }, |q| Shape { rows: q.panel, least: q.least() })
    }

    /// Rows of activations that lie side by side in panels: parts that several threads fill start at multiples of
    /// this.
    pub fn activation_panels_row_step(&self) -> usize {
        self.panels().rows
    }

    /// Memory for [`activation_panels`](Self::activation_panels): 2 bytes an activation, and where tile registers are
    /// used, as much for rows up to a multiple of 16.
    ///
    /// # Errors
    /// `NotBlockMultiple` if `cols` is not a multiple of 32, `SizeOverflow`.
    pub fn activation_panels_size(&self, rows: usize, cols: usize) -> Result<ScratchReq, KernelError> {
        if !cols.is_multiple_of(STEP) {
            return Err(KernelError::NotBlockMultiple { cols, block: STEP });
        }
        let overflow = KernelError::SizeOverflow { what: "quantised activations" };
        ScratchReq::array::<Step>((cols / STEP).checked_mul(self.panels().filled(rows)).ok_or(overflow)?)
    }

    /// Rounds activations to 8 bits, once for all products of [`QgemmPlan::run_panels`](crate::QgemmPlan::run_panels):
    /// as [`quantize_activations`](Self::quantize_activations) does, in another order.
    ///
    /// # Errors
    /// `ShortSlice` if `buf` is smaller than [`activation_panels_size`](Self::activation_panels_size) says (unaligned),
    /// `BadValue` if the columns of `x` are not contiguous, `NotBlockMultiple`, `SizeOverflow`.
    pub fn activation_panels<'a>(
        &self,
        x: MatRef<'_, E>,
        buf: &'a mut [u8],
    ) -> Result<ActivationPanels<'a>, KernelError> {
        let (rows, cols) = (x.rows(), x.cols());
        let room = self.activation_panels_room(rows, cols, buf)?;
        self.activation_panels_rows(x, room)?;
        Ok(ActivationPanels { panels: room.as_ptr(), rows, cols, shape: self.panels(), life: PhantomData })
    }

    /// The first half of [`activation_panels`](Self::activation_panels), for whoever uses several threads: the room for
    /// the rows, which [`activation_panels_rows`](Self::activation_panels_rows) fills part by part: those of the same
    /// number of rows, a multiple of [`activation_panels_row_step`](Self::activation_panels_row_step), are equally long.
    ///
    /// # Errors
    /// As there.
    pub fn activation_panels_room<'a>(
        &self,
        rows: usize,
        cols: usize,
        buf: &'a mut [u8],
    ) -> Result<&'a mut [u8], KernelError> {
        let req = self.activation_panels_size(rows, cols)?;
        let (need, got) = (req.size_unaligned(), buf.len());
        let skip = (buf.as_ptr() as usize).wrapping_neg() & (req.align() - 1);
        let room = if req.size() == 0 { buf.get_mut(..0) } else { buf.get_mut(skip..skip + req.size()) };
        room.filter(|_| got >= need).ok_or(KernelError::ShortSlice { arg: "buf", need, got })
    }

    /// The second half: rounds some rows, the first of which is a multiple of
    /// [`activation_panels_row_step`](Self::activation_panels_row_step).
    ///
    /// # Errors
    /// `WrongLength` unless the part's length is that of the rows, in bytes; `BadParameter` if it is not aligned to 64
    /// bytes, `BadValue` if the columns of `x` are not contiguous.
    pub fn activation_panels_rows(&self, x: MatRef<'_, E>, part: &mut [u8]) -> Result<(), KernelError> {
        check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
        let req = self.activation_panels_size(x.rows(), x.cols())?;
        check::len("part", part.len(), req.size())?;
        if !(part.as_ptr() as usize).is_multiple_of(req.align()) && !part.is_empty() {
            return Err(KernelError::BadParameter { arg: "part", expected: "aligned to 64 bytes" });
        }
        if x.is_empty() {
            return Ok(());
        }
        let shape = self.panels();
        for first in (0..x.rows()).step_by(shape.rows.max(1)) {
            let rows = (x.rows() - first).min(shape.rows);
            let args = PanelXArgs {
                rows,
                height: shape.filled(rows),
                cols: x.cols(),
                x: x.as_ptr().wrapping_add(first * x.row_stride()),
                stride: x.row_stride(),
                dst: part.as_mut_ptr().wrapping_add(first * row_bytes(x.cols())),
            };
            // SAFETY: rows of the view; the part was measured, is aligned and exclusive; the table's instruction set is
            // present.
            unsafe { (self.table.qgemm_x)(&args) };
        }
        Ok(())
    }

    /// Rooms that are filled.
    ///
    /// # Errors
    /// As [`activation_panels_room`](Self::activation_panels_room).
    pub fn activation_panels_filled<'a>(
        &self,
        rows: usize,
        cols: usize,
        room: &'a [u8],
    ) -> Result<ActivationPanels<'a>, KernelError> {
        let req = self.activation_panels_size(rows, cols)?;
        check::len("room", room.len(), req.size())?;
        if !(room.as_ptr() as usize).is_multiple_of(req.align()) && !room.is_empty() {
            return Err(KernelError::BadParameter { arg: "room", expected: "aligned to 64 bytes" });
        }
        Ok(ActivationPanels { panels: room.as_ptr(), rows, cols, shape: self.panels(), life: PhantomData })
    }
}
