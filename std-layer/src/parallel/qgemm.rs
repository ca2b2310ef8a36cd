//! Quantised matrix products.

use gllm_kernels_core::{
    ActivationPanels, Element, KernelError, MatMut, MatRef, QgemmPlan, QuantWeights, Scratch, ScratchReq,
};

use super::{chunks_mut, Cuts, Parallel};

/// Multiply-adds below which a product runs on the calling thread: some ten microseconds.
const SMALL: usize = 1 << 21;

/// Multiply-adds of a piece, about: a few hundred microseconds.
const PIECE: usize = 1 << 25;

/// Pieces a thread, so that one stalled thread delays little.
const SHARE: usize = 4;

/// Columns that a piece is a multiple of: whole panels of packed weights, and enough to share each row of activations.
const COLUMNS: usize = 96;

/// Rows of activations that are rounded at a time.
const ROWS: usize = 64 * ActivationPanels::ROW_STEP;

/// # Quantised products by plan
impl<E: Element> Parallel<'_, E> {
    /// [`QgemmPlan::run`] on all threads, with a plan of [`kernels`](Self::kernels).
    ///
    /// # Errors
    /// As there.
    pub fn qgemm(
        &self,
        plan: &QgemmPlan<E>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let [m, n, k] = plan.shape();
        let shapes = [[y.rows(), y.cols()], [x.rows(), x.cols()], [w.rows(), w.cols()]];
        if shapes != [[m, n], [m, k], [n, k]] || bias.is_some_and(|bias| bias.len() != n) {
            return plan.run(y, w, x, bias, Scratch::empty());
        }
        let work = m.saturating_mul(n).saturating_mul(k);
        if self.runtime.threads() == 1 || work < SMALL {
            let need = plan.scratch()?.size_unaligned();
            let mut buffer = self.runtime.buffers().take();
            return plan.run(y, w, x, bias, Scratch::new(buffer.bytes(need)));
        }
        if !plan.takes_panels() {
            return self.by_columns(self.pieces(m, n, k), [m, n], y, |range, y| {
                let part = plan.resized(m, range.len());
                let mut buffer = self.runtime.buffers().take();
                let scratch = Scratch::new(buffer.bytes(part.scratch()?.size_unaligned()));
                let (w, bias) = (w.row_range(range.start, range.len())?, bias.map(|bias| &bias[range]));
                part.run(y, w, x, bias, scratch)
            });
        }
        let mut rest = y;
        for first in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - first);
            let (y, below) = rest.split_rows(rows)?;
            rest = below;
            self.panels(&plan.resized(rows, n), y, w, x.row_range(first, rows)?, bias)?;
        }
        Ok(())
    }

    /// Where the columns of a product are cut.
    fn pieces(&self, m: usize, n: usize, k: usize) -> Cuts {
        let threads = self.runtime.threads();
        let least = PIECE.div_ceil(m.saturating_mul(k).max(1));
        let step = n.div_ceil(threads * SHARE).max(least).min(n.div_ceil(threads)).max(1);
        let step = step.next_multiple_of(if n >= 2 * threads * COLUMNS { COLUMNS } else { 16 });
        Cuts { first: step, step }
    }

    /// Rounds activations, all threads together; then columns are shared out.
    fn panels(
        &self,
        plan: &QgemmPlan<E>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let [m, n, k] = plan.shape();
        let mut buffer = self.runtime.buffers().take();
        let size = self.kernels.activation_panels_size(m, k)?;
        let room = self.kernels.activation_panels_room(m, k, buffer.bytes(size.size_unaligned()))?;
        let (row, step) = (size.size() / m.max(1), ActivationPanels::ROW_STEP);
        if row > 0 {
            let cuts = Cuts::rows(size.size(), m.div_ceil(step), self.runtime.threads()).times(row * step);
            chunks_mut(self.runtime, room, cuts, |range, room| {
                let x = x.row_range(range.start / row, room.len() / row)?;
                self.kernels.activation_panels_rows(x, room)
            })?;
        }
        let x = self.kernels.activation_panels_filled(m, k, room)?;
        self.by_columns(self.pieces(m, n, k), [m, n], y, |range, y| {
            let part = plan.resized(m, range.len());
            let need: ScratchReq = part.scratch_panels()?;
            let mut buffer = self.runtime.buffers().take();
            let scratch = Scratch::new(buffer.bytes(need.size_unaligned()));
            let (w, bias) = (w.row_range(range.start, range.len())?, bias.map(|bias| &bias[range]));
            part.run_panels(y, w, x, bias, scratch)
        })
    }
}
