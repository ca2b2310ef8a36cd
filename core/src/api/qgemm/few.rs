//! Products of packed weights with a few rows of exact activations.

use super::{QgemmPlan, MAX_GEMV_ROWS_EXACT};
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::qgemm::few::{FewArgs, UNPACKED_COLUMNS};
use crate::ops::qgemm::packed::PanelQArgs;
use crate::ops::qpack::PackedQ;
use crate::quant::packed::{PANEL_ROWS, STEPS, STEP_COLS, UNIT_COLS};
use crate::scratch::{Scratch, ScratchReq};
use crate::view::{MatMut, MatRef};

impl<E: Element> QgemmPlan<E> {
    /// Memory for a piece of a panel, unpacked.
    pub(super) fn scratch_few(&self) -> Result<ScratchReq, KernelError> {
        ScratchReq::array::<u8>(self.panel_of(self.k.min(UNPACKED_COLUMNS))?.bytes())
    }

    /// The product with packed weights, for at most [`MAX_GEMV_ROWS_EXACT`] rows of activations.
    pub(super) fn few_packed(
        &self,
        mut y: MatMut<'_, f32>,
        w: PackedQ<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        // Plain floating point is taken in place.
        let Some(packing) = w.packing() else { return Ok(()) };
        let size = self.panel_of(self.k.min(UNPACKED_COLUMNS))?;
        let to = size.at(scratch.take::<u8>(size.bytes())?.as_mut_ptr(), 0);
        let (strides, y) = ([y.row_stride(), y.col_stride()], y.as_mut_ptr());
        let panel_bytes = packing.panel_bytes(self.k).unwrap_or(0);
        for panel in 0..self.n.div_ceil(PANEL_ROWS) {
            let mut sums = [[0f32; PANEL_ROWS]; MAX_GEMV_ROWS_EXACT];
            for first in (0..self.k).step_by(UNPACKED_COLUMNS) {
                let at = panel * panel_bytes + first / UNIT_COLS * packing.unit_bytes(STEPS);
                let steps = (self.k - first).min(UNPACKED_COLUMNS) / STEP_COLS;
                // SAFETY: the panel is one of the weights, whose shape was checked, and so was that of the activations, of
                // which there are not more rows than sums; there is room for a piece; the instruction set is present.
                unsafe {
                    (self.kernels.table.qgemm_q)(&PanelQArgs { packing, w: w.as_ptr().add(at), steps, to });
                    (self.kernels.table.qgemm_few)(&FewArgs {
                        kind: self.kind(),
                        steps,
                        from: to,
                        rows: self.m.min(MAX_GEMV_ROWS_EXACT),
                        x: x.as_ptr().add(first),
                        stride: x.row_stride(),
                        sums: sums.as_mut_ptr(),
                    });
                }
            }
            let cols = (self.n - panel * PANEL_ROWS).min(PANEL_ROWS);
            for (m, sums) in sums.iter().enumerate().take(self.m) {
                for (r, &sum) in sums.iter().enumerate().take(cols) {
                    // SAFETY: rows and columns of the view.
                    unsafe { *y.add(m * strides[0] + (panel * PANEL_ROWS + r) * strides[1]) = sum };
                }
            }
        }
        // SAFETY: the elements of the view, which is exclusive; the bias has one for each column.
        unsafe { self.finish(y, strides, [self.m, self.n], bias.map(<[f32]>::as_ptr)) };
        Ok(())
    }
}
