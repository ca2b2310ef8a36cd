//! Products of weights decoded to the type of the activations: panels of `B` for the microkernels of `gemm`.

use core::ptr::NonNull;

use super::tile::{DecodePanelArgs, PanelRoom, Unsorted};
use super::{QgemmPlan, QuantWeights, FEW_EXACT, FEW_FLOATS};
use crate::dispatch::StorePolicy;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::gemm::{GemmPlan, Source};
use crate::quant::packed::{ROWS, STEP};
use crate::quant::QuantRef;
use crate::scratch::{Scratch, ScratchReq};
use crate::view::{MatMut, MatRef};

/// Columns of `Y` that are computed at a time, about: so many that reading the activations for each such block costs
/// little, and so few that the decoded weights stay near.
const COLUMNS: usize = 16 * ROWS;

/// Rows of activations that are packed at a time: so many that decoding the weights for each such block costs little.
const PACKED_ROWS: usize = 2048;

impl<E: Element> QgemmPlan<E> {
    /// The dense product of some rows and columns.
    fn dense(&self, m: usize, n: usize) -> Result<GemmPlan<E>, KernelError> {
        let plan = self.kernels.gemm_plan(m, n, self.k)?;
        Ok(self.activation.into_iter().fold(plan, GemmPlan::activation))
    }

    /// Columns of a block: whole panels of weights, and of the microkernel.
    fn columns(&self) -> usize {
        let width = self.kernels.micro.b.width.max(1);
        let both = (1..ROWS).map(|i| i * width).find(|both| both.is_multiple_of(ROWS));
        let step = both.unwrap_or(width * ROWS).max(1);
        self.n.min(COLUMNS).next_multiple_of(step).min((COLUMNS / step).max(1) * step)
    }

    /// Whether so few rows are multiplied with weights as they are.
    pub(super) fn few_exact(&self) -> bool {
        let floats = self.format.element().is_some() && !self.kernels.by_pairs();
        self.whole <= if floats { FEW_FLOATS } else { FEW_EXACT }
    }

    pub(super) fn scratch_exact(&self) -> Result<ScratchReq, KernelError> {
        if self.few_rows(false) {
            // Packed weights are unpacked piece by piece.
            let plain = self.format.element().is_some() || self.op.is_some();
            return if plain { Ok(ScratchReq::EMPTY) } else { self.scratch_few() };
        }
        let dense = self.dense(self.m.min(PACKED_ROWS), self.columns())?;
        dense.panels_a()?.and(dense.panels_b()?)?.and(self.scratch_decoded()?)
    }

    /// Memory between weights and panels of `B`.
    fn scratch_decoded(&self) -> Result<ScratchReq, KernelError> {
        if self.format.element().is_some() {
            let overflow = KernelError::SizeOverflow { what: "scratch size" };
            return ScratchReq::array::<E>(self.k.checked_mul(self.columns()).ok_or(overflow)?);
        }
        ScratchReq::array::<u8>(self.panel()?.bytes())?.and(ScratchReq::array::<Unsorted>(1)?)
    }

    pub(super) fn exact(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let w = match w {
            QuantWeights::Packed(w) if self.format.element().is_some() => QuantWeights::InPlace(w.floats()?),
            w => w,
        };
        if self.few_rows(w.is_packed()) {
            let w = match w {
                QuantWeights::InPlace(w) => w,
                QuantWeights::Packed(w) => return self.few_packed(y, w, x, bias, scratch),
            };
            let (strides, p) = ([y.row_stride(), y.col_stride()], y.as_mut_ptr());
            self.kernels.qgemv(y, w, x)?;
            // SAFETY: the elements of the view, which is exclusive; the bias has one for each column.
            unsafe { self.finish(p, strides, [self.m, self.n], bias.map(<[f32]>::as_ptr)) };
            return Ok(());
        }
        let (rows, columns) = (self.m.min(PACKED_ROWS), self.columns());
        let dense = self.dense(rows, columns)?;
        let a = scratch.take::<u8>(dense.panels_a()?.size())?.as_mut_ptr();
        let b = scratch.take::<u8>(dense.panels_b()?.size())?.as_mut_ptr();
        let rest = scratch.take::<u8>(self.scratch_decoded()?.size())?;
        let mut first = 0;
        while first < self.m {
            let rows = rows.min(self.m - first);
            let (part, below) = y.split_rows(rows)?;
            y = below;
            let x = x.row_range(first, rows)?;
            // SAFETY: there is room for the panels of so many rows.
            let a = unsafe { self.dense(rows, columns)?.pack_a(x, a) };
            self.exact_rows(part, w, a, b, bias, rest)?;
            first += rows;
        }
        Ok(())
    }

    /// Some rows of the product. `a` are their activations, at `b` there is room for the panels of a block.
    fn exact_rows(
        &self,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        a: Source,
        b: *mut u8,
        bias: Option<&[f32]>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (rows, mut rest) = (y.rows(), y.t());
        let mut first = 0;
        while first < self.n {
            let cols = (self.n - first).min(self.columns());
            let (part, right) = rest.split_rows(cols)?;
            rest = right;
            let plan = self.dense(rows, cols)?;
            // SAFETY: there is room for the panels of so many columns.
            unsafe { self.decoded(&plan, w, first, cols, b, Scratch::new(scratch))? };
            let bias = bias.and_then(|bias| bias.get(first..first + cols));
            // SAFETY: both are panels, or `a` is where it was, of this plan's shape.
            unsafe { plan.run_sources(part.t(), a, Source::Panels(b), bias) };
            first += cols;
        }
        Ok(())
    }

    /// Decodes rows `first .. first + cols` of the weights to panels of `B` at `b`.
    ///
    /// # Safety
    /// The rows are there, and room for the panels; `first` is a multiple of 16.
    unsafe fn decoded(
        &self,
        plan: &GemmPlan<E>,
        w: QuantWeights<'_>,
        first: usize,
        cols: usize,
        b: *mut u8,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        if let (QuantWeights::InPlace(w), true) = (w, self.format.element().is_some()) {
            return self.copied(plan, w.row_range(first, cols)?, b, scratch);
        }
        let size = self.panel()?;
        let room = size.at(scratch.take::<u8>(size.bytes())?.as_mut_ptr(), 0);
        let unsorted = scratch.take::<u8>(size_of::<Unsorted>())?.as_mut_ptr().cast::<Unsorted>();
        for p in 0..cols.div_ceil(ROWS) {
            // SAFETY: the panel is one of the weights, and there is room for it and what it is decoded to.
            unsafe {
                self.unpack(w, first / ROWS + p, unsorted, room);
                self.decode(room, b, p * ROWS);
            }
        }
        Ok(())
    }

    /// Brings rows of weights that are plain floating point into panels of `B` at `b`, where there is room.
    fn copied(
        &self,
        plan: &GemmPlan<E>,
        w: QuantRef<'_>,
        b: *mut u8,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let len = w.rows().saturating_mul(self.k);
        let block = scratch.take::<u8>(len.saturating_mul(size_of::<E>()))?;
        // Nothing is at an address that suits no more than bytes.
        let nothing = NonNull::<E>::dangling().as_ptr();
        let block = if block.is_empty() { nothing } else { block.as_mut_ptr().cast() };
        // SAFETY: there is room for as many elements, which are bits of any kind.
        let block = unsafe { core::slice::from_raw_parts_mut(block, len) };
        self.kernels.with_stores(StorePolicy::Cached).dequant(w, block)?;
        // SAFETY: the caller vouches for the room.
        unsafe { plan.pack_b(MatRef::new(block, w.rows(), self.k)?, b) };
        Ok(())
    }

    /// Decodes a panel to 16 columns of `B`, from `column` on.
    ///
    /// # Safety
    /// The panel, and room for panels of `B` with as many columns.
    unsafe fn decode(&self, from: PanelRoom, dst: *mut u8, column: usize) {
        let panel = self.kernels.micro.b;
        let args =
            DecodePanelArgs { kind: self.kind(), steps: self.k / STEP, from, panel, dst: dst.cast(), column };
        // SAFETY: the caller's contract; the table's instruction set is present.
        unsafe { (self.kernels.table.qgemm_exact)(&args) };
    }
}
