//! Products of weights decoded to the type of the activations: panels of `B` for the microkernels of `gemm`.

use super::{QgemmPlan, QuantWeights, MAX_GEMV_ROWS_EXACT, MAX_GEMV_ROWS_UNQUANTISED};
use crate::api::gemm::{GemmPlan, Source, Wanted};
use crate::args::micro::Micro;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::machine::LINE;
use crate::isa::pairs::{self, Writer};
use crate::ops::ahead::prefetch_lines;
use crate::ops::pack::{PackArgs, Reading};
use crate::ops::qgemm::packed::PanelQArgs;
use crate::ops::qgemm::tile::{DecodePanelArgs, PanelRoom, Unsorted};
use crate::ops::unquantised::UnquantisedDecodeArgs;
use crate::quant::packed::{PANEL_ROWS, STEP_COLS, UNIT_COLS};
use crate::quant::pairs::{PackedPairsArgs, PairsArgs};
use crate::quant::QuantRef;
use crate::scratch::{Scratch, ScratchReq};
use crate::view::{MatMut, MatRef};

/// How many rows ahead weights that are plain floating point are prefetched.
const ROWS_AHEAD: usize = 8;

/// Rows of activations that are packed at a time: enough that decoding the weights again for each block of them costs
/// little.
const PACKED_ROWS: usize = 2048;

impl<E: Element> QgemmPlan<E> {
    /// The dense product of some rows and columns.
    fn dense(&self, m: usize, n: usize) -> Result<GemmPlan<E>, KernelError> {
        let plan = self.kernels.gemm_plan(m, n, self.k)?;
        Ok(self.activation.into_iter().fold(plan, GemmPlan::activation))
    }

    /// Whether the product has so few rows that weights are not brought into panels of `B`.
    pub(super) fn few_exact(&self) -> bool {
        let unquantised = self.format.is_float() && !self.kernels.by_pairs();
        self.whole <= if unquantised { MAX_GEMV_ROWS_UNQUANTISED } else { MAX_GEMV_ROWS_EXACT }
    }

    /// The dense product of some rows and all columns, whose weights are decoded block by block. These end where units
    /// of packed weights end, and so where blocks of any format do.
    fn decoding(&self, m: usize) -> Result<GemmPlan<E>, KernelError> {
        let [columns, unit] =
            if self.format.is_float() { [1, self.format.block_len()] } else { [PANEL_ROWS, UNIT_COLS] };
        self.dense(m, self.n)?.making(columns, unit)
    }

    pub(super) fn scratch_exact(&self) -> Result<ScratchReq, KernelError> {
        if self.few_rows(false) {
            // Packed weights are unpacked piece by piece.
            let plain = self.format.is_float() || self.op.is_some();
            return if plain { Ok(ScratchReq::EMPTY) } else { self.scratch_few() };
        }
        let plan = self.decoding(self.m.min(PACKED_ROWS))?;
        plan.rooms()?.into_iter().try_fold(self.scratch_decoded(&plan)?, |rest, room| room.and(rest))
    }

    /// Memory for what is unpacked or decoded on the way from weights to panels of `B`.
    fn scratch_decoded(&self, plan: &GemmPlan<E>) -> Result<ScratchReq, KernelError> {
        if self.format.is_float() {
            return ScratchReq::array::<E>(
                self.kernels.micro.b.width.saturating_mul(Self::pitch(plan.depth())),
            );
        }
        let piece = self.panel_of(plan.depth())?;
        ScratchReq::array::<u8>(piece.bytes())?.and(ScratchReq::array::<Unsorted>(1)?)
    }

    /// Elements from one decoded row of `steps` weights that are plain floating point to the next: a line more, so that rows do not
    /// meet in one set of the cache.
    fn pitch(steps: usize) -> usize {
        steps.saturating_add(LINE / size_of::<E>())
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
            QuantWeights::Packed(w) if self.format.is_float() => QuantWeights::InPlace(w.unquantised()?),
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
        let plan = self.decoding(self.m.min(PACKED_ROWS))?;
        let mut rooms = [core::ptr::null_mut(); 3];
        for (to, room) in rooms.iter_mut().zip(plan.rooms()?) {
            *to = scratch.take::<u8>(room.size())?.as_mut_ptr();
        }
        let rest = scratch.take::<u8>(self.scratch_decoded(&plan)?.size())?;
        let mut first = 0;
        while first < self.m {
            let plan = plan.for_rows(PACKED_ROWS.min(self.m - first));
            let [rows, ..] = plan.shape();
            let (part, below) = y.split_rows(rows)?;
            y = below;
            self.decoded_rows(&plan, part, w, x.row_range(first, rows)?, bias, rooms, Scratch::new(rest))?;
            first += rows;
        }
        Ok(())
    }

    /// Computes the rows of a plan, with weights that are decoded block by block. The rooms are those that the plan asks for.
    #[allow(clippy::too_many_arguments)]
    fn decoded_rows(
        &self,
        plan: &GemmPlan<E>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        [a, b, sums]: [*mut u8; 3],
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        // SAFETY: there is room for the panels of so many rows.
        let a = unsafe { plan.pack_a(x, a) };
        if let (QuantWeights::InPlace(w), true) = (w, self.format.is_float()) {
            let room = scratch.take::<u8>(self.scratch_decoded(plan)?.size())?.as_mut_ptr();
            let copy = |block: Wanted, dst: *mut u8| {
                // SAFETY: the loops ask for blocks of the weights; there is room for a panel of rows, and for the block.
                unsafe { self.copy(w, block, room.cast(), dst) }
            };
            // SAFETY: `a` are panels, or `a` is where it was, of this plan's shape; there is room for a block and its sums.
            unsafe { plan.run_sources(y, a, Source::Made(&copy, b), sums, bias) };
            return Ok(());
        }
        let size = self.panel_of(plan.depth())?;
        let room = size.at(scratch.take::<u8>(size.bytes())?.as_mut_ptr(), 0);
        let unsorted = scratch.take::<u8>(size_of::<Unsorted>())?.as_mut_ptr().cast::<Unsorted>();
        let writer = self.pairs();
        let decode = |block: Wanted, dst: *mut u8| {
            for p in 0..block.cols.div_ceil(PANEL_ROWS) {
                let (panel, columns) = (block.col / PANEL_ROWS + p, [block.step, block.steps]);
                // SAFETY: the loops ask for blocks of the weights, of whole panels and units; there is room for a piece of a
                // panel, and for the block.
                unsafe {
                    if let (Some(writer), Some(w)) = (writer, self.packed_panel(w, panel, columns, room)) {
                        self.decode_packed(writer, w, dst, p * PANEL_ROWS);
                    } else {
                        self.unpack(w, panel, columns, unsorted, room);
                        self.decode(writer, room, block.steps, dst, p * PANEL_ROWS);
                    }
                }
            }
        };
        // SAFETY: `a` are panels, or `a` is where it was, of this plan's shape; there is room for a block and its sums.
        unsafe { plan.run_sources(y, a, Source::Made(&decode, b), sums, bias) };
        Ok(())
    }

    /// Brings a block of weights that are floating point into panels of `B`.
    ///
    /// # Safety
    /// The block is one of the weights, which have the plan's shape; there is room for a panel of rows,
    /// [`pitch`](Self::pitch) apart, at `room`, and for the block at `dst`.
    unsafe fn copy(&self, w: QuantRef<'_>, block: Wanted, room: *mut E, dst: *mut u8) {
        let (kernels, Wanted { col, cols, step, steps: k }) = (&self.kernels, block);
        let of = self.format;
        let bytes_of = |weights: usize| weights / of.block_len().max(1) * of.block_bytes();
        let Micro { b: panel, depth, .. } = *kernels.micro;
        let (depth, pitch) = (k.next_multiple_of(depth.max(1)), Self::pitch(k));
        let (access, reading) = (kernels.access_inplace(), Reading::of(kernels.caps().prefetcher()));
        for first in (0..cols).step_by(panel.width.max(1)) {
            let len = panel.width.min(cols - first);
            // SAFETY: the caller's contract; the instruction set is present.
            unsafe {
                for row in 0..len {
                    let at = (col + first + row) * self.k + step;
                    let (w, y) = (w.as_bytes().as_ptr().add(bytes_of(at)), room.add(row * pitch));
                    // Pieces of rows are too short for prefetchers that stop at the end of a page.
                    prefetch_lines(w.wrapping_add(bytes_of(ROWS_AHEAD * self.k)), bytes_of(k));
                    (kernels.table.float_decode)(&UnquantisedDecodeArgs { of, n: k, w, y, access });
                }
                let (across, along) = (pitch * size_of::<E>(), size_of::<E>());
                let (src, dst) = (room.cast::<u8>().cast_const(), dst.add(panel.bytes(first, depth)));
                (kernels.helpers().pack_b)(&PackArgs {
                    len,
                    k,
                    depth,
                    src,
                    across,
                    along,
                    panel,
                    dst,
                    reading,
                });
            }
        }
    }

    /// What writes pairs of 16-bit elements, if panels of `B` consist of such.
    fn pairs(&self) -> Option<Writer> {
        let panel = self.kernels.micro.b;
        let pairs = panel.kr == 2 && panel.holds(E::TYPE) && panel.width.is_multiple_of(PANEL_ROWS);
        pairs.then(|| pairs::writer(E::TYPE, self.kernels.caps().features())).flatten()
    }

    /// Where in a block of `B` with `cols` steps the first pairs of 16 columns are, from `column` on, and how many bytes are
    /// between these and the next ones.
    fn place(&self, dst: *mut u8, cols: usize, column: usize) -> (*mut u8, usize) {
        let panel = self.kernels.micro.b;
        let lane = column % panel.width.max(1);
        let before = panel.bytes(column - lane, cols) + panel.steps(lane, panel.kr);
        (dst.wrapping_add(before), panel.steps(panel.width, panel.kr))
    }

    /// Decodes a panel of packed weights to 16 columns of a block of `B`, from `column` on. The room that it names for unpacked
    /// weights gets scales and offsets alone, where codes would be: they take half as much.
    ///
    /// # Safety
    /// The panel exists, and at `dst` there is room for the block.
    unsafe fn decode_packed(&self, writer: Writer, w: PanelQArgs, dst: *mut u8, column: usize) {
        let PanelQArgs { packing, w, steps, to: PanelRoom { codes, .. } } = w;
        let scales: *mut f32 = codes.cast();
        let offsets = scales.wrapping_add(steps * packing.groups() * PANEL_ROWS);
        let to = PanelRoom { codes: core::ptr::null_mut(), scales, offsets, bias: 0 };
        let (dst, row) = self.place(dst, steps * STEP_COLS, column);
        // SAFETY: the caller's contract; the instruction set is present.
        unsafe {
            (self.kernels.table.qgemm_q)(&PanelQArgs { packing, w, steps, to });
            let offsets = packing.offsets.then_some(offsets.cast_const());
            (writer.packed)(&PackedPairsArgs { packing, w, steps, scales, offsets, dst, row });
        }
    }

    /// Decodes `cols` columns of an unpacked panel, which has 16 rows of weights, to 16 columns of a block of `B`, from
    /// `column` on.
    ///
    /// # Safety
    /// The panel exists, and at `dst` there is room for the block.
    unsafe fn decode(
        &self,
        writer: Option<Writer>,
        from: PanelRoom,
        cols: usize,
        dst: *mut u8,
        column: usize,
    ) {
        let (kernels, kind, steps) = (&self.kernels, self.kind(), cols / STEP_COLS);
        let panel = kernels.micro.b;
        // SAFETY: the caller's contract; the instruction set is present.
        unsafe {
            let Some(writer) = writer else {
                let args = DecodePanelArgs { kind, steps, from, panel, dst: dst.cast(), column };
                return (kernels.table.qgemm_exact)(&args);
            };
            let (dst, row) = self.place(dst, cols, column);
            (writer.codes)(&PairsArgs {
                codes: from.codes,
                scales: from.scales,
                offsets: kind.offsets.then_some(from.offsets.cast_const()),
                groups: steps * kind.groups(),
                cells: STEP_COLS / 4 / kind.groups(),
                dst,
                row,
            });
        }
    }
}
