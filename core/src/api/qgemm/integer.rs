//! Products in integers: panels of weights, unpacked, times panels of activations.

use super::panels::ActivationPanels;
use super::{QgemmPlan, QuantWeights};
use crate::args::unpacker::{Made, Unpacker};
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::qgemm::packed::PanelQArgs;
use crate::ops::qgemm::tile::{
    PanelKind, PanelRoom, PanelWArgs, QTileArgs, Unsorted, ACTIVATION_ROWS, BIAS, NARROW_BIAS,
};
use crate::ops::tile::MergeArgs;
use crate::quant::packed::{PANEL_ROWS, STEPS, STEP_COLS, UNIT_COLS};
use crate::scratch::{Scratch, ScratchReq};
use crate::table::kernels::TileFns;
use crate::view::MatMut;

/// Results of a panel of activations, row by row, with as many panels of weights as microkernels take side by side.
type TileSums = [f32; ACTIVATION_ROWS * 2 * PANEL_ROWS];

/// The parts of an unpacked panel of `k` columns, in bytes.
#[derive(Clone, Copy)]
pub(super) struct PanelSize {
    codes: usize,
    scales: usize,
    offsets: usize,
}

impl PanelSize {
    fn of(k: usize, kind: PanelKind) -> Result<Self, KernelError> {
        let codes = k.checked_mul(PANEL_ROWS).ok_or(KernelError::SizeOverflow { what: "scratch size" })?;
        // Scales and offsets do not take more bytes than the codes, so their sizes do not overflow.
        let scales = k / STEP_COLS * kind.groups() * size_of::<[f32; PANEL_ROWS]>();
        Ok(Self { codes, scales, offsets: if kind.offsets { scales } else { 0 } })
    }
    pub(super) fn bytes(self) -> usize {
        self.codes.saturating_add(self.scales).saturating_add(self.offsets)
    }
    /// The panel at `p`.
    pub(super) fn at(self, p: *mut u8, bias: u8) -> PanelRoom {
        let scales = p.wrapping_add(self.codes);
        PanelRoom { codes: p, scales: scales.cast(), offsets: scales.wrapping_add(self.scales).cast(), bias }
    }
}

impl<E: Element> QgemmPlan<E> {
    /// The kernels in assembly by their numbers of rows of activations, if there are any, which of them this format has, and the
    /// bias that they expect in codes. Narrow codes, whose products can be summed in 16 bits, may have separate kernels.
    fn microkernels(&self) -> (TileFns, usize, u8) {
        let kind = self.kind();
        match (self.kernels.tier.map(|tier| &tier.qgemm), self.kernels.table.formats.of(self.format)) {
            (Some(q), Made::Blocks(Unpacker { packing, .. })) if !q.narrow.is_empty() => {
                match packing.narrow() {
                    Some(columns) if columns == packing.group => (q.narrow, kind.index(), NARROW_BIAS),
                    Some(_) => (q.narrow, kind.index_of_halves(), NARROW_BIAS),
                    None => (q.kernels, kind.index(), 0),
                }
            }
            (Some(q), _) => (q.kernels, kind.index(), if q.unsigned { BIAS } else { 0 }),
            (None, _) => (&[], 0, 0),
        }
    }

    /// The size of an unpacked panel.
    pub(super) fn panel(&self) -> Result<PanelSize, KernelError> {
        self.panel_of(self.k)
    }

    /// The size of an unpacked panel of `cols` columns.
    pub(super) fn panel_of(&self, cols: usize) -> Result<PanelSize, KernelError> {
        PanelSize::of(cols, self.kind())
    }

    /// How many panels of weights microkernels take side by side.
    fn side_by_side(&self) -> usize {
        if self.kernels.tier.is_some_and(|tier| tier.qgemm.two_panels) {
            2
        } else {
            1
        }
    }

    /// How many panels of weights are unpacked at a time: as many as fit half of L2.
    fn panels(&self, panel: PanelSize) -> usize {
        let (l2, side_by_side) = (self.kernels.caps().caches().l2, self.side_by_side());
        let there = self.n.div_ceil(PANEL_ROWS).max(1);
        let most = (l2 / 2).checked_div(panel.bytes()).unwrap_or(1).clamp(side_by_side, 16);
        (most - most % side_by_side).min(there)
    }

    /// Scratch memory for [`in_panels`](Self::in_panels).
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub(super) fn scratch_panels(&self) -> Result<ScratchReq, KernelError> {
        let panel = self.panel()?;
        let panels = ScratchReq::array::<u8>(panel.bytes().saturating_mul(self.panels(panel)))?;
        panels.and(ScratchReq::array::<Unsorted>(1)?)
    }

    /// The product of checked operands with activations in panels for these kernels.
    ///
    /// # Errors
    /// `ScratchTooSmall`.
    pub(super) fn in_panels(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: ActivationPanels<'_>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let size = self.panel()?;
        let (each, at_once) = (size.bytes(), self.panels(size));
        let tiles = scratch.take::<u8>(each.saturating_mul(at_once))?.as_mut_ptr();
        let unsorted = scratch.take::<u8>(size_of::<Unsorted>())?.as_mut_ptr().cast::<Unsorted>();
        let ((kernels, index, bias_of_codes), side_by_side) = (self.microkernels(), self.side_by_side());
        let width = side_by_side * PANEL_ROWS;
        let (row_stride, col_stride, y) = (y.row_stride(), y.col_stride(), y.as_mut_ptr());
        let count = self.n.div_ceil(PANEL_ROWS);
        let mut first = 0;
        while first < count {
            let panels = (count - first).min(at_once);
            for p in 0..panels {
                let to = size.at(tiles.wrapping_add(p * each), bias_of_codes);
                // SAFETY: the panel is one of the weights, whose shape was checked; there is room for it.
                unsafe { self.unpack(w, first + p, [0, self.k], unsorted, to) };
            }
            for row in (0..self.m).step_by(ACTIVATION_ROWS) {
                let rows = (self.m - row).min(ACTIVATION_ROWS);
                for p in (0..panels).step_by(side_by_side) {
                    let from = size.at(tiles.wrapping_add(p * each), bias_of_codes);
                    // The last panel may have no second one beside it. Then it is passed as both.
                    let beside = if p + 1 < panels { each } else { 0 };
                    let col = (first + p) * PANEL_ROWS;
                    let mut out: TileSums = [0.0; ACTIVATION_ROWS * 2 * PANEL_ROWS];
                    // SAFETY: panels are those of the operands, whose shapes were checked; rows and columns of the tile are in the
                    // view.
                    unsafe {
                        self.tiles((kernels, index), (from, beside), (x.panel(row), rows), &mut out);
                        (self.kernels.helpers().merge)(&MergeArgs {
                            tile: out.as_ptr().cast(),
                            width,
                            c: y.add(row * row_stride + col * col_stride),
                            row_stride,
                            col_stride,
                            rows,
                            cols: (self.n - col).min((panels - p) * PANEL_ROWS).min(width),
                            beta: 0.0,
                        });
                    }
                }
            }
            let (from, cols) = (first * PANEL_ROWS, (self.n - first * PANEL_ROWS).min(panels * PANEL_ROWS));
            let bias = bias.map(|bias| bias.as_ptr().wrapping_add(from));
            // SAFETY: columns of the view; the bias has one element for each.
            unsafe {
                let y = y.add(from * col_stride);
                self.finish(y, [row_stride, col_stride], [self.m, cols], bias);
            }
            first += panels;
        }
        Ok(())
    }

    /// Unpacks columns `from .. from + cols` of panel `p` of the weights. `from` is a multiple of [`UNIT_COLS`](crate::quant::packed::UNIT_COLS)
    /// and of the format's block length, `cols` of the latter.
    ///
    /// # Safety
    /// The panel is one of the weights, which have the plan's shape and these columns. There is room for the columns at
    /// `to` and, for weights in place, at `room`.
    pub(super) unsafe fn unpack(
        &self,
        w: QuantWeights<'_>,
        p: usize,
        [from, cols]: [usize; 2],
        room: *mut Unsorted,
        to: PanelRoom,
    ) {
        let table = self.kernels.table;
        let Made::Blocks(&format) = table.formats.of(self.format) else { return };
        // SAFETY: the caller's contract; the table's instruction set is present.
        unsafe {
            match w {
                QuantWeights::InPlace(w) => {
                    let len = self.format.block_len();
                    let pitch = self.k / len;
                    (table.qgemm_w)(&PanelWArgs {
                        format,
                        rows: (self.n - p * PANEL_ROWS).min(PANEL_ROWS),
                        blocks: cols / len,
                        pitch,
                        w: w.as_bytes().as_ptr().add((p * PANEL_ROWS * pitch + from / len) * format.bytes),
                        room,
                        to,
                    });
                }
                QuantWeights::Packed(_) => {
                    self.packed_panel(w, p, [from, cols], to).into_iter().for_each(|w| (table.qgemm_q)(&w));
                }
            }
        }
    }

    /// Columns of a panel of packed weights as [`unpack`](Self::unpack) takes them. `None` if these are in place.
    pub(super) fn packed_panel(
        &self,
        w: QuantWeights<'_>,
        p: usize,
        [from, cols]: [usize; 2],
        to: PanelRoom,
    ) -> Option<PanelQArgs> {
        let (QuantWeights::Packed(w), Made::Blocks(format)) = (w, self.kernels.table.formats.of(self.format))
        else {
            return None;
        };
        let packing = format.packing;
        let before = p * packing.panel_bytes(self.k).unwrap_or(0);
        let w = w.as_ptr().wrapping_add(before + from / UNIT_COLS * packing.unit_bytes(STEPS));
        Some(PanelQArgs { packing, w, steps: cols / STEP_COLS, to })
    }

    /// Multiplies a panel of weights with a panel of `rows` rows of activations, by the
    /// [`microkernels`](Self::microkernels) with this index. Those that take two panels of weights find the second one `beside` bytes
    /// behind the first.
    ///
    /// # Safety
    /// The panels exist and have the plan's columns, and there are at most [`ACTIVATION_ROWS`] rows.
    unsafe fn tiles(
        &self,
        (kernels, index): (TileFns, usize),
        (from, beside): (PanelRoom, usize),
        (x, rows): (*const u8, usize),
        out: &mut TileSums,
    ) {
        let (steps, kind) = (self.k / STEP_COLS, self.kind());
        if steps == 0 {
            return;
        }
        let mut args = QTileArgs {
            codes: from.codes,
            scales: from.scales,
            offsets: from.offsets,
            beside,
            x,
            x_step: rows * STEP_COLS * 2,
            steps,
            y: out.as_mut_ptr(),
        };
        // SAFETY: the caller's contract; the instructions of the table, and of the microkernels, are present.
        unsafe {
            if kernels.is_empty() {
                return (self.kernels.table.qgemm)(&args, rows, kind);
            }
            let mut left = rows;
            for &(height, of_height) in kernels {
                // Every number of rows is a sum of the heights of microkernels.
                while left >= height && height > 0 {
                    if let Some(kernel) = of_height.get(index) {
                        kernel(&args);
                    }
                    args.x = args.x.wrapping_add(height * STEP_COLS * 2);
                    args.y = args.y.wrapping_add(height * self.side_by_side() * PANEL_ROWS);
                    left -= height;
                }
            }
        }
    }
}
