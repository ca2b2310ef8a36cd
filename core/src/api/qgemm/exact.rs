//! Products of weights decoded to the type of the activations: panels of `B` for the microkernels of `gemm`.

use core::ptr::NonNull;

use super::{QgemmPlan, QuantWeights, MAX_GEMV_ROWS_EXACT, MAX_GEMV_ROWS_UNQUANTISED};
use crate::api::gemm::{GemmPlan, Source, Wanted};
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::pairs;
use crate::ops::qgemm::tile::{DecodePanelArgs, PanelRoom, Unsorted};
use crate::quant::packed::{PANEL_ROWS, STEP_COLS, UNIT_COLS};
use crate::quant::pairs::PairsArgs;
use crate::quant::QuantRef;
use crate::scratch::{Scratch, ScratchReq};
use crate::table::StorePolicy;
use crate::view::{MatMut, MatRef};

/// About how many columns of `Y` are computed at a time with weights that are plain floating point: enough that reading
/// the activations again for each block costs little, and few enough that the block's panels stay in cache.
const COLUMNS: usize = 16 * PANEL_ROWS;

/// Rows of activations that are packed at a time: enough that decoding the weights again for each block of them costs
/// little.
const PACKED_ROWS: usize = 2048;

impl<E: Element> QgemmPlan<E> {
    /// The dense product of some rows and columns.
    fn dense(&self, m: usize, n: usize) -> Result<GemmPlan<E>, KernelError> {
        let plan = self.kernels.gemm_plan(m, n, self.k)?;
        Ok(self.activation.into_iter().fold(plan, GemmPlan::activation))
    }

    /// Columns of a block: whole panels of weights, and whole panels of the microkernel.
    fn columns(&self) -> usize {
        let width = self.kernels.micro.b.width.max(1);
        let both = (1..PANEL_ROWS).map(|i| i * width).find(|both| both.is_multiple_of(PANEL_ROWS));
        let step = both.unwrap_or(width * PANEL_ROWS).max(1);
        self.n.min(COLUMNS).next_multiple_of(step).min((COLUMNS / step).max(1) * step)
    }

    /// Whether the product has so few rows that weights are not brought into panels of `B`.
    pub(super) fn few_exact(&self) -> bool {
        let unquantised = self.format.element().is_some() && !self.kernels.by_pairs();
        self.whole <= if unquantised { MAX_GEMV_ROWS_UNQUANTISED } else { MAX_GEMV_ROWS_EXACT }
    }

    /// The dense product of some rows and all columns, whose weights are decoded block by block. These end where units
    /// of packed weights end, and so where blocks of any format do.
    fn decoding(&self, m: usize) -> Result<GemmPlan<E>, KernelError> {
        self.dense(m, self.n)?.making(PANEL_ROWS, UNIT_COLS)
    }

    pub(super) fn scratch_exact(&self) -> Result<ScratchReq, KernelError> {
        if self.few_rows(false) {
            // Packed weights are unpacked piece by piece.
            let plain = self.format.element().is_some() || self.op.is_some();
            return if plain { Ok(ScratchReq::EMPTY) } else { self.scratch_few() };
        }
        let rows = self.m.min(PACKED_ROWS);
        let (dense, b) = if self.format.element().is_some() {
            let dense = self.dense(rows, self.columns())?;
            (dense, dense.panels_b()?)
        } else {
            let dense = self.decoding(rows)?;
            (dense, dense.block_b())
        };
        dense.panels_a()?.and(b)?.and(self.scratch_decoded()?)
    }

    /// Memory for what is unpacked or decoded on the way from weights to panels of `B`.
    fn scratch_decoded(&self) -> Result<ScratchReq, KernelError> {
        if self.format.element().is_some() {
            let overflow = KernelError::SizeOverflow { what: "scratch size" };
            return ScratchReq::array::<E>(self.k.checked_mul(self.columns()).ok_or(overflow)?);
        }
        let piece = self.panel_of(self.decoding(1)?.depth())?;
        ScratchReq::array::<u8>(piece.bytes())?.and(ScratchReq::array::<Unsorted>(1)?)
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
            QuantWeights::Packed(w) if self.format.element().is_some() => {
                QuantWeights::InPlace(w.unquantised()?)
            }
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
        let rows = self.m.min(PACKED_ROWS);
        // Weights that are plain floating point are copied, all others decoded.
        let unquantised = self.format.element().is_some();
        let dense = if unquantised { self.dense(rows, self.columns())? } else { self.decoding(rows)? };
        let of_b = if unquantised { dense.panels_b()? } else { dense.block_b() };
        let a = scratch.take::<u8>(dense.panels_a()?.size())?.as_mut_ptr();
        let b = scratch.take::<u8>(of_b.size())?.as_mut_ptr();
        let rest = scratch.take::<u8>(self.scratch_decoded()?.size())?;
        let mut first = 0;
        while first < self.m {
            let rows = rows.min(self.m - first);
            let (part, below) = y.split_rows(rows)?;
            y = below;
            let x = x.row_range(first, rows)?;
            // SAFETY: there is room for the panels of so many rows.
            let a = unsafe { self.dense(rows, self.n)?.pack_a(x, a) };
            match w {
                QuantWeights::InPlace(w) if unquantised => self.copied_rows(part, w, a, b, bias, rest)?,
                w => self.decoded_rows(part, w, a, b, bias, rest)?,
            }
            first += rows;
        }
        Ok(())
    }

    /// Computes some rows of the product, with weights that are decoded block by block. `a` are the activations of
    /// these rows; at `b` there is room for a block of decoded weights.
    fn decoded_rows(
        &self,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        a: Source<'_>,
        b: *mut u8,
        bias: Option<&[f32]>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let plan = self.decoding(y.rows())?;
        let mut scratch = Scratch::new(scratch);
        let size = self.panel_of(plan.depth())?;
        let room = size.at(scratch.take::<u8>(size.bytes())?.as_mut_ptr(), 0);
        let unsorted = scratch.take::<u8>(size_of::<Unsorted>())?.as_mut_ptr().cast::<Unsorted>();
        let decode = |block: Wanted, dst: *mut u8| {
            for p in 0..block.cols.div_ceil(PANEL_ROWS) {
                // SAFETY: the loops ask for blocks of the weights, of whole panels and units; there is room for a piece of a
                // panel, and for the block.
                unsafe {
                    self.unpack(w, block.col / PANEL_ROWS + p, [block.step, block.steps], unsorted, room);
                    self.decode(room, block.steps, dst, p * PANEL_ROWS);
                }
            }
        };
        // SAFETY: `a` are panels, or `a` is where it was, of this plan's shape; there is room for a block.
        unsafe { plan.run_sources(y, a, Source::Made(&decode, b), bias) };
        Ok(())
    }

    /// Computes some rows of the product, with weights that are plain floating point. `a` are the activations of these
    /// rows; at `b` there is room for the panels of [`columns`](Self::columns) columns.
    fn copied_rows(
        &self,
        y: MatMut<'_, f32>,
        w: QuantRef<'_>,
        a: Source<'_>,
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
            self.copied(&plan, w.row_range(first, cols)?, b, Scratch::new(scratch))?;
            let bias = bias.and_then(|bias| bias.get(first..first + cols));
            // SAFETY: both are panels, or `a` is where it was, of this plan's shape.
            unsafe { plan.run_sources(part.t(), a, Source::Panels(b), bias) };
            first += cols;
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
        // An empty slice of bytes may lie where an element may not.
        let nothing = NonNull::<E>::dangling().as_ptr();
        let block = if block.is_empty() { nothing } else { block.as_mut_ptr().cast() };
        // SAFETY: there is room for as many elements, which are bits of any kind.
        let block = unsafe { core::slice::from_raw_parts_mut(block, len) };
        self.kernels.with_stores(StorePolicy::Cached).dequant(w, block)?;
        // SAFETY: the caller vouches for the room.
        unsafe { plan.pack_b(MatRef::new(block, w.rows(), self.k)?, b) };
        Ok(())
    }

    /// Decodes `cols` columns of an unpacked panel, which has 16 rows of weights, to 16 columns of a block of `B`, from
    /// `column` on.
    ///
    /// # Safety
    /// The panel exists, and at `dst` there is room for the block.
    unsafe fn decode(&self, from: PanelRoom, cols: usize, dst: *mut u8, column: usize) {
        let (kernels, kind, steps) = (&self.kernels, self.kind(), cols / STEP_COLS);
        let panel = kernels.micro.b;
        let pairs = panel.kr == 2 && panel.holds(E::TYPE) && panel.width.is_multiple_of(PANEL_ROWS);
        let writer = pairs.then(|| pairs::writer(E::TYPE, kernels.caps().features())).flatten();
        // SAFETY: the caller's contract; the instruction set is present.
        unsafe {
            let Some(write) = writer else {
                let args = DecodePanelArgs { kind, steps, from, panel, dst: dst.cast(), column };
                return (kernels.table.qgemm_exact)(&args);
            };
            let lane = column % panel.width.max(1);
            let before = panel.bytes(column - lane, cols) + panel.steps(lane, panel.kr);
            write(&PairsArgs {
                codes: from.codes,
                scales: from.scales,
                offsets: kind.offsets.then_some(from.offsets.cast_const()),
                groups: steps * kind.groups(),
                cells: STEP_COLS / 4 / kind.groups(),
                dst: dst.add(before),
                row: panel.steps(panel.width, panel.kr),
            });
        }
    }
}
