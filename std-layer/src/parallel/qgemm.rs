//! Quantised matrix products.

use std::sync::{Mutex, OnceLock, PoisonError};

use gllm_kernels_core::{
    bf16, Activation, Element, KernelError, MatMut, MatRef, PackedQ, Precision, QgemmGroup, QgemmPlan,
    QuantWeights, Scratch, ScratchReq,
};

use super::{chunks_mut, Cuts, Parallel};

/// Multiply-adds below which a product runs on the calling thread: about six microseconds with one row of activations (Zen
/// 4), twice of what other threads need to begin.
const SMALL: usize = 1 << 19;

/// Multiply-adds of a piece, about: a few hundred microseconds.
const PIECE: usize = 1 << 25;

/// Pieces a thread, so that one stalled thread delays little.
const SHARE: usize = 4;

/// Columns that a piece is a multiple of: whole panels of packed weights, and enough to share each row of activations.
const COLUMNS: usize = 96;

/// Rows of activations that are rounded at a time.
const ROWS: usize = 768;

/// # Quantised products by plan
impl<E: Element> Parallel<'_, E> {
    /// [`QgemmPlan::run`] on all threads, with the kernels of the plan.
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
        let round = plan.precision() == Precision::Bf16;
        if !round && !plan.takes_panels(&w) {
            return match plan.precision() {
                Precision::Integer => self.few(plan, y, w, x, bias),
                _ => self.columns(plan, y, w, x, bias),
            };
        }
        let mut rest = y;
        for first in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - first);
            let (y, below) = rest.split_rows(rows)?;
            rest = below;
            let (part, x) = (plan.resized(rows, n), x.row_range(first, rows)?);
            if round {
                self.rounded(&part, y, w, x, bias)?;
            } else {
                self.panels(&part, y, w, x, bias)?;
            }
        }
        Ok(())
    }

    /// [`Kernels::qgemm_grouped`](gllm_kernels_core::Kernels::qgemm_grouped) on all threads. Pieces of all groups are
    /// shared out together, so that large groups keep no thread waiting.
    ///
    /// # Errors
    /// As there; groups behind the one that is refused may have been computed.
    pub fn qgemm_grouped(
        &self,
        groups: &mut [QgemmGroup<'_, E>],
        precision: Precision,
        activation: Option<Activation>,
    ) -> Result<(), KernelError> {
        let plans = groups.iter().map(|group| group.plan(&self.kernels, precision, activation));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let fits = |(plan, group): (&QgemmPlan<E>, &QgemmGroup<'_, E>)| {
            let [m, n, k] = plan.shape();
            [group.y.rows(), group.y.cols(), group.x.cols()] == [m, n, k]
                && (group.x.col_stride() == 1 || k <= 1)
        };
        let works = plans.iter().map(|plan| plan.shape().into_iter().fold(1, usize::saturating_mul));
        let (work, threads) = (works.fold(0, usize::saturating_add), self.runtime.threads());
        if threads == 1 || work < SMALL || !plans.iter().zip(&*groups).all(fits) {
            let need = self.kernels.qgemm_grouped_scratch(groups, precision)?.size_unaligned();
            let mut buffer = self.runtime.buffers().take();
            let scratch = Scratch::new(buffer.bytes(need));
            return self.kernels.qgemm_grouped(groups, precision, activation, scratch);
        }
        // First activations are rounded, each group's in a part of the buffer.
        let sizes = plans.iter().zip(&*groups).map(|(plan, group)| match plan.shape() {
            [m, _, k] if plan.takes_panels(&group.w) => Ok(self.kernels.activation_panels_size(m, k)?.size()),
            _ => Ok(0),
        });
        let sizes = sizes.collect::<Result<Vec<usize>, KernelError>>()?;
        let mut buffer = self.runtime.buffers().take();
        let mut rest = buffer.bytes(sizes.iter().sum());
        let mut rooms = Vec::with_capacity(sizes.len());
        for &size in &sizes {
            let (room, behind) = rest.split_at_mut(size);
            rest = behind;
            rooms.push(Mutex::new(room));
        }
        let failed = OnceLock::new();
        let check = |result: Result<(), KernelError>| {
            if let Err(e) = result {
                failed.get_or_init(|| e);
            }
        };
        let inputs: Vec<_> = groups.iter().map(|group| (group.w, group.x)).collect();
        self.runtime.for_each(plans.len(), |i| {
            let mut room = rooms[i].lock().unwrap_or_else(PoisonError::into_inner);
            if !room.is_empty() {
                check(self.kernels.activation_panels_rows(inputs[i].1, &mut room));
            }
        });
        let rooms = rooms.into_iter().map(|room| &*room.into_inner().unwrap_or_else(PoisonError::into_inner));
        let rooms: Vec<&[u8]> = rooms.collect();
        // Then the columns of all products are shared out.
        let each = (work / (threads * SHARE)).clamp(1, PIECE);
        let mut pieces = Vec::new();
        for (i, (group, plan)) in groups.iter_mut().zip(&plans).enumerate() {
            let [m, n, k] = plan.shape();
            let step = (each / m.saturating_mul(k).max(1)).max(1);
            let step = step.next_multiple_of(if step > COLUMNS { COLUMNS } else { PackedQ::ROW_STEP });
            let mut rest = group.y.reborrow().t();
            for first in (0..n).step_by(step) {
                let (part, right) = rest.split_rows(step.min(n - first))?;
                rest = right;
                pieces.push(Mutex::new(Some((i, first, part.t()))));
            }
        }
        self.runtime.for_each_with(
            pieces.len(),
            || self.runtime.buffers().take(),
            |buffer, p| {
                let piece = pieces[p].lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some((i, first, y)) = piece else { return };
                let ((w, x), [m, _, k], n) = (inputs[i], plans[i].shape(), y.cols());
                let run = || {
                    let (plan, w) = (plans[i].resized(m, n), w.row_range(first, n)?);
                    if !plan.takes_panels(&w) {
                        let need = plan.scratch()?.size_unaligned();
                        return plan.run(y, w, x, None, Scratch::new(buffer.bytes(need)));
                    }
                    let x = self.kernels.activation_panels_filled(m, k, rooms[i])?;
                    let need = plan.scratch_panels()?.size_unaligned();
                    plan.run_panels(y, w, x, None, Scratch::new(buffer.bytes(need)))
                };
                check(run());
            },
        );
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Where the columns of a product are cut: each thread has `share` pieces, or fewer if they were too small.
    fn pieces(&self, [m, n, k]: [usize; 3], share: usize) -> Cuts {
        let threads = self.runtime.threads();
        let least = PIECE.div_ceil(m.saturating_mul(k).max(1));
        let step = n.div_ceil(threads * share).max(least).min(n.div_ceil(threads)).max(1);
        let step = step.next_multiple_of(if n >= 2 * threads * COLUMNS { COLUMNS } else { 16 });
        Cuts { first: step, step }
    }

    /// Shares out columns: `run` computes a part by its plan, in as much memory as `need` says.
    fn by_parts<X: Element>(
        &self,
        plan: &QgemmPlan<X>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        bias: Option<&[f32]>,
        need: impl Fn(&QgemmPlan<X>) -> Result<ScratchReq, KernelError> + Sync,
        run: impl Fn(
                &QgemmPlan<X>,
                MatMut<'_, f32>,
                QuantWeights<'_>,
                Option<&[f32]>,
                Scratch<'_>,
            ) -> Result<(), KernelError>
            + Sync,
    ) -> Result<(), KernelError> {
        let [m, n, k] = plan.shape();
        // Exact plans pack the activations for each part.
        let share = if plan.precision() == Precision::Exact { 1 } else { SHARE };
        self.by_columns(self.pieces([m, n, k], share), [m, n], y, |range, y| {
            let part = plan.resized(m, range.len());
            let mut buffer = self.runtime.buffers().take();
            let scratch = Scratch::new(buffer.bytes(need(&part)?.size_unaligned()));
            let (w, bias) = (w.row_range(range.start, range.len())?, bias.map(|bias| &bias[range]));
            run(&part, y, w, bias, scratch)
        })
    }

    /// Shares out columns; each part does everything itself.
    fn columns<X: Element>(
        &self,
        plan: &QgemmPlan<X>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, X>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        self.by_parts(plan, y, w, bias, QgemmPlan::scratch, |part, y, w, bias, scratch| {
            part.run(y, w, x, bias, scratch)
        })
    }

    /// Rounds a few rows of activations to 8 bits; then columns are shared out.
    fn few(
        &self,
        plan: &QgemmPlan<E>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let (kernels, mut buffer) = (plan.kernels(), self.runtime.buffers().take());
        let size = kernels.activations_size(x.rows(), x.cols())?.size_unaligned();
        let x = kernels.quantize_activations(w.format(), x, buffer.bytes(size))?;
        let need = |_: &_| Ok(ScratchReq::EMPTY);
        self.by_parts(plan, y, w, bias, need, |part, y, w, bias, _| part.run_rounded(y, w, x, bias))
    }

    /// Rounds activations to bf16, all threads together; then columns are shared out.
    fn rounded(
        &self,
        plan: &QgemmPlan<E>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let ([m, _, k], kernels) = (plan.shape(), plan.kernels());
        let mut buffer = self.runtime.buffers().take();
        let size = m * k * size_of::<bf16>();
        // SAFETY: any two bytes are a number.
        let (_, room, _) = unsafe { buffer.bytes(size + align_of::<bf16>()).align_to_mut::<bf16>() };
        let room = &mut room[..m * k];
        if k > 0 {
            let cuts = Cuts::rows(size, m, self.runtime.threads()).times(k);
            chunks_mut(self.runtime, room, cuts, |range, room| {
                kernels.round_bf16(x.row_range(range.start / k, room.len() / k)?, room)
            })?;
        }
        self.columns(&plan.bf16(), y, w, MatRef::new(room, m, k)?, bias)
    }

    /// Rounds activations to 8 bits, all threads together; then columns are shared out.
    fn panels(
        &self,
        plan: &QgemmPlan<E>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let ([m, _, k], kernels) = (plan.shape(), plan.kernels());
        let mut buffer = self.runtime.buffers().take();
        let size = kernels.activation_panels_size(m, k)?;
        let room = kernels.activation_panels_room(m, k, buffer.bytes(size.size_unaligned()))?;
        let step = kernels.activation_panels_row_step();
        let panel = kernels.activation_panels_size(step, k)?.size();
        if panel > 0 {
            let cuts = Cuts::rows(size.size(), m.div_ceil(step), self.runtime.threads()).times(panel);
            chunks_mut(self.runtime, room, cuts, |range, room| {
                // The last panel may have fewer rows.
                let first = range.start / panel * step;
                let x = x.row_range(first, (room.len().div_ceil(panel) * step).min(m - first))?;
                kernels.activation_panels_rows(x, room)
            })?;
        }
        let x = kernels.activation_panels_filled(m, k, room)?;
        self.by_parts(plan, y, w, bias, QgemmPlan::scratch_panels, |part, y, w, bias, scratch| {
            part.run_panels(y, w, x, bias, scratch)
        })
    }
}
