//! Products of quantised matrices: threads take columns of `Y`, which are rows of weights.

use std::sync::{Mutex, OnceLock, PoisonError};

use gllm_kernels_core::{
    Element, KernelError, MatMut, MatRef, PackedQ, Precision, Prepared, QgemmPlan, QuantWeights, Scratch,
    ScratchReq,
};

use super::{chunks_mut, Cuts, Parallel};

/// Multiply-adds below which a product runs on the calling thread: about six microseconds with one row of activations (Zen
/// 4), twice the time that other threads need to begin.
const MIN_PARALLEL_WORK: usize = 1 << 19;

/// About how many multiply-adds a piece has: a few hundred microseconds of work.
const CHUNK_WORK: usize = 1 << 25;

/// Pieces for each thread, so that a thread that stalls delays little.
const CHUNKS_PER_THREAD: usize = 4;

/// Large chunks have a multiple of this many rows of weights: whole panels of packed weights, and enough to share each
/// row of activations that is read.
pub(crate) const CHUNK_MULTIPLE: usize = 6 * PackedQ::ROW_STEP;

/// Small chunks have a multiple of this many: two panels, as microkernels for many rows of activations take two side by side, and one
/// alone takes them as long.
pub(crate) const CHUNK_STEP: usize = 2 * PackedQ::ROW_STEP;

/// Rows of activations that are prepared at a time.
const PREPARED_ROWS: usize = 768;

/// A product with no more rows of activations than this is limited by reading weights from memory. Threads then divide bytes of
/// weights, not multiply-adds.
pub(crate) const MEMORY_BOUND_ROWS: usize = 8;

/// One product of [`Parallel::qgemm_grouped`]: of a mixture of experts one expert, with the tokens that chose it.
#[derive(Debug)]
pub struct QgemmGroup<'a, E: Element> {
    /// The plan: for `m` rows of activations, which may be none, and `n x k` weights.
    pub plan: QgemmPlan<E>,
    /// The results, `m x n`.
    pub y: MatMut<'a, f32>,
    /// The weights, `n x k`.
    pub w: QuantWeights<'a>,
    /// The activations, `m x k`.
    pub x: Prepared<'a, E>,
    /// The bias: nothing, or one element for each column of `y`.
    pub bias: Option<&'a [f32]>,
}

/// Whether everything has the plan's shape. If not, the plan's own `run` refuses it.
fn fits<E: Element>(
    plan: &QgemmPlan<E>,
    y: &MatMut<'_, f32>,
    w: &QuantWeights<'_>,
    x: &Prepared<'_, E>,
    bias: Option<&[f32]>,
) -> bool {
    let [m, n, k] = plan.shape();
    let shapes = [[y.rows(), y.cols()], [w.rows(), w.cols()], [x.rows(), x.cols()]];
    shapes == [[m, n], [n, k], [m, k]] && bias.is_none_or(|bias| bias.len() == n)
}

/// Scratch memory of a plan, for activations like these.
fn scratch<E: Element>(plan: &QgemmPlan<E>, x: &Prepared<'_, E>) -> Result<usize, KernelError> {
    let need = if x.as_matrix().is_some() { plan.scratch()? } else { plan.scratch_prepared()? };
    Ok(need.size_unaligned())
}

/// # Quantised products
impl<E: Element> Parallel<'_, E> {
    /// [`QgemmPlan::run`] on all threads, with the kernels of the plan: the columns of `Y` are divided among them. Small products run
    /// on the calling thread. Scratch memory is the runtime's own and kept for the next call.
    ///
    /// # Errors
    /// Those of [`QgemmPlan::run`], but for scratch memory.
    pub fn qgemm<'w, 'x>(
        &self,
        plan: &QgemmPlan<E>,
        y: MatMut<'_, f32>,
        w: impl Into<QuantWeights<'w>>,
        x: impl Into<Prepared<'x, E>>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError>
    where
        E: 'x,
    {
        let (w, x) = (w.into(), x.into());
        if !fits(plan, &y, &w, &x, bias) {
            // The plan says what is wrong.
            return plan.run(y, w, x, bias, Scratch::empty());
        }
        let ([m, n, k], plan) = (plan.shape(), plan.packed(w.is_packed()));
        let mut buffer = self.runtime.buffers().take();
        if self.runtime.threads() == 1 || m.saturating_mul(n).saturating_mul(k) < MIN_PARALLEL_WORK {
            let need = scratch(&plan, &x)?;
            return plan.run(y, w, x, bias, Scratch::new(buffer.bytes(need)));
        }
        let matrix = x.as_matrix().filter(|x| x.col_stride() == 1 || k <= 1);
        let (Some(matrix), true) = (matrix, plan.prepared_size()?.size() > 0) else {
            return self.columns(&plan, y, w, x, bias);
        };
        let mut rest = y;
        for first in (0..m).step_by(PREPARED_ROWS) {
            let rows = PREPARED_ROWS.min(m - first);
            let (y, below) = rest.split_rows(rows)?;
            rest = below;
            let part = plan.resized(rows, n);
            let need = part.prepared_size()?.size_unaligned();
            let x = self.prepare(&part, matrix.row_range(first, rows)?, buffer.bytes(need))?;
            self.columns(&part, y, w, x, bias)?;
        }
        Ok(())
    }

    /// [`QgemmPlan::prepare`] on all threads.
    ///
    /// # Errors
    /// Those of [`QgemmPlan::prepare`].
    pub fn prepare<'b>(
        &self,
        plan: &QgemmPlan<E>,
        x: MatRef<'b, E>,
        buf: &'b mut [u8],
    ) -> Result<Prepared<'b, E>, KernelError> {
        let ([m, n, k], step) = (plan.shape(), plan.prepared_row_step());
        let (size, each) = (plan.prepared_size()?, plan.resized(step, n).prepared_size()?.size());
        let skip = (buf.as_ptr() as usize).wrapping_neg() & (size.align() - 1);
        let fits = [x.rows(), x.cols()] == [m, k] && buf.len() >= size.size_unaligned();
        if !fits || size.size() == 0 {
            // The plan says what is wrong, or there is nothing to do.
            return plan.prepare(x, buf);
        }
        let room = &mut buf[skip..][..size.size()];
        let cuts = Cuts::rows(size.size(), m.div_ceil(step), self.runtime.threads()).times(each);
        chunks_mut(self.runtime, room, cuts, |range, part| {
            // The last part may have fewer rows.
            let first = range.start / each * step;
            let rows = (part.len().div_ceil(each) * step).min(m - first);
            plan.prepare_rows(x.row_range(first, rows)?, part)
        })?;
        plan.prepared(x, room)
    }

    /// Several products in one call, each with weights of its own: [`QgemmPlan::run`] of each group, bit for bit. Groups may
    /// differ in everything but the type of their activations. Threads take pieces of all groups from one list, so that large
    /// groups keep no thread waiting.
    ///
    /// # Errors
    /// Those of [`qgemm`](Self::qgemm); other groups than the one that is refused may have been computed.
    pub fn qgemm_grouped(&self, groups: &mut [QgemmGroup<'_, E>]) -> Result<(), KernelError> {
        for group in &mut *groups {
            group.plan = group.plan.packed(group.w.is_packed());
        }
        let works = groups.iter().map(|group| group.plan.shape().into_iter().fold(1, usize::saturating_mul));
        let (work, threads) = (works.fold(0, usize::saturating_add), self.runtime.threads());
        let fit = groups.iter().all(|QgemmGroup { plan, y, w, x, bias }| fits(plan, y, w, x, *bias));
        if threads == 1 || work < MIN_PARALLEL_WORK || !fit {
            return groups.iter_mut().try_for_each(|group| {
                self.qgemm(&group.plan, group.y.reborrow(), group.w, group.x, group.bias)
            });
        }
        // First activations are prepared, those of each group in a part of the buffer.
        let sizes = groups.iter().map(|group| match group.x.as_matrix() {
            Some(_) => Ok(group.plan.prepared_size()?.size()),
            None => Ok(0),
        });
        let sizes = sizes.collect::<Result<Vec<usize>, KernelError>>()?;
        let line = ScratchReq::PANEL_ALIGN;
        let mut buffer = self.runtime.buffers().take();
        let mut rest = buffer.bytes(sizes.iter().map(|size| size.next_multiple_of(line)).sum());
        let mut rooms = Vec::with_capacity(sizes.len());
        for &size in &sizes {
            let (room, behind) = rest.split_at_mut(size.next_multiple_of(line));
            rest = behind;
            rooms.push(Mutex::new(&mut room[..size]));
        }
        let failed = OnceLock::new();
        let check = |result: Result<(), KernelError>| {
            if let Err(e) = result {
                failed.get_or_init(|| e);
            }
        };
        let inputs: Vec<_> = groups.iter().map(|group| (group.plan, group.w, group.x, group.bias)).collect();
        self.runtime.for_each(inputs.len(), |i| {
            let mut room = rooms[i].lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(x), false) = (inputs[i].2.as_matrix(), room.is_empty()) {
                check(inputs[i].0.prepare_rows(x, &mut room));
            }
        });
        if let Some(e) = failed.get() {
            return Err(*e);
        }
        let rooms = rooms.into_iter().map(|room| &*room.into_inner().unwrap_or_else(PoisonError::into_inner));
        let rooms: Vec<&[u8]> = rooms.collect();
        // Then the columns of all products are shared out.
        let each = (work / (threads * CHUNKS_PER_THREAD)).clamp(1, CHUNK_WORK);
        let mut pieces = Vec::new();
        for (i, group) in groups.iter_mut().enumerate() {
            let [m, n, k] = group.plan.shape();
            let step = (each / m.saturating_mul(k).max(1)).max(1);
            let step = step.next_multiple_of(if step > CHUNK_MULTIPLE { CHUNK_MULTIPLE } else { CHUNK_STEP });
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
                let (plan, w, x, bias) = inputs[i];
                let (columns, [m, ..]) = (first..first + y.cols(), plan.shape());
                let run = || {
                    let x = match x.as_matrix() {
                        Some(x) => plan.prepared(x, rooms[i])?,
                        None => x,
                    };
                    let plan = plan.resized(m, columns.len());
                    let (w, bias) = (w.row_range(first, columns.len())?, bias.map(|bias| &bias[columns]));
                    plan.run(y, w, x, bias, Scratch::new(buffer.bytes(scratch(&plan, &x)?)))
                };
                check(run());
            },
        );
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Where the columns of a product are cut: each thread has `share` pieces, or fewer if they were too small.
    fn pieces(&self, [m, n, k]: [usize; 3], share: usize) -> Cuts {
        let threads = self.runtime.threads();
        let least = CHUNK_WORK.div_ceil(m.saturating_mul(k).max(1));
        let step = n.div_ceil(threads * share).max(least).min(n.div_ceil(threads)).max(1);
        let step = step.next_multiple_of(if n >= 2 * threads * CHUNK_MULTIPLE {
            CHUNK_MULTIPLE
        } else {
            CHUNK_STEP
        });
        Cuts { first: step, step }
    }

    /// Computes the product; threads share out its columns.
    fn columns(
        &self,
        plan: &QgemmPlan<E>,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: Prepared<'_, E>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let [m, n, k] = plan.shape();
        let cuts = if m <= MEMORY_BOUND_ROWS {
            let bytes = w.format().row_bytes(k)?.saturating_mul(n);
            Cuts::long_rows(bytes, n, PackedQ::ROW_STEP, self.runtime.threads())
        } else {
            // Plans that unpack weights to floating point pack the activations for each part.
            self.pieces([m, n, k], if plan.precision() == Precision::Integer { CHUNKS_PER_THREAD } else { 1 })
        };
        self.by_columns(cuts, [m, n], y, |range, y| {
            let part = plan.resized(m, range.len());
            let mut buffer = self.runtime.buffers().take();
            let need = scratch(&part, &x)?;
            let (w, bias) = (w.row_range(range.start, range.len())?, bias.map(|bias| &bias[range]));
            part.run(y, w, x, bias, Scratch::new(buffer.bytes(need)))
        })
    }
}
