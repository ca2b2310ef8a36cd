//! Operators that read a matrix once: matrix times vector, packing, decoding and encoding of quantised weights.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use gllm_kernels_core::{Element, KernelError, Kernels, MatMut, MatRef, PackedQ, QuantFormat, QuantRef};

use super::{chunks_mut, Cuts, Parallel};

/// # Matrices
///
/// Threads share out groups of rows.
impl<E: Element> Parallel<'_, E> {
    /// [`Kernels::gemv`](gllm_kernels_core::Kernels::gemv) on all threads.
    ///
    /// # Errors
    /// Those of [`Kernels::gemv`](gllm_kernels_core::Kernels::gemv).
    pub fn gemv(
        &self,
        alpha: f32,
        a: MatRef<'_, E>,
        x: &[E],
        beta: f32,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        if x.len() != a.cols() || y.len() != a.rows() {
            return self.kernels.gemv(alpha, a, x, beta, y);
        }
        let bytes = a.rows().saturating_mul(a.cols()).saturating_mul(size_of::<E>());
        let cuts = if a.col_stride() == 1 {
            // Each row is a sum of its own, so where the cuts are changes no bit: they may depend on the number of
            // threads.
            Cuts::long_rows(bytes, a.rows(), Kernels::<E>::GEMV_ROWS, self.runtime.threads())
        } else {
            // Columns are contiguous, so each chunk gets a long piece of every column.
            Cuts::rows_fixed(bytes, a.rows(), COLUMN_PIECE / size_of::<E>())
        };
        chunks_mut(self.runtime, y, cuts, |rows, y| {
            self.kernels.gemv(alpha, a.row_range(rows.start, rows.len())?, x, beta, y)
        })
    }

    /// Shares out the columns of `y`, which are rows of weights. If `y` has another shape than this one, `product` gets
    /// all of it, and refuses it.
    pub(super) fn by_columns(
        &self,
        cuts: Cuts,
        shape: [usize; 2],
        y: MatMut<'_, f32>,
        product: impl Fn(Range<usize>, MatMut<'_, f32>) -> Result<(), KernelError> + Sync,
    ) -> Result<(), KernelError> {
        let [_, rows] = shape;
        let n = cuts.count(rows);
        if n <= 1 || self.runtime.threads() == 1 || [y.rows(), y.cols()] != shape {
            return product(0..rows, y);
        }
        let mut parts = Vec::with_capacity(n);
        let mut rest = y.t();
        for i in 0..n {
            let range = cuts.range(rows, i);
            let (part, right) = rest.split_rows(range.len())?;
            parts.push(Mutex::new(Some((range, part.t()))));
            rest = right;
        }
        let failed = OnceLock::new();
        self.runtime.for_each(n, |i| {
            let part = parts[i].lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Err(e)) = part.map(|(range, y)| product(range, y)) {
                failed.get_or_init(|| e);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// [`Kernels::pack_q`](gllm_kernels_core::Kernels::pack_q) on all threads.
    ///
    /// # Errors
    /// Those of [`Kernels::pack_q`](gllm_kernels_core::Kernels::pack_q).
    pub fn pack_q<'b>(&self, w: QuantRef<'_>, buf: &'b mut [u8]) -> Result<PackedQ<'b>, KernelError> {
        let (format, rows, cols) = (w.format(), w.rows(), w.cols());
        let room = self.kernels.packed_q_room(format, rows, cols, buf)?;
        let (step, parts) = (PackedQ::ROW_STEP, rows.div_ceil(PackedQ::ROW_STEP));
        let part = room.len() / parts.max(1);
        if part > 0 {
            let cuts = Cuts::rows(room.len(), parts, self.runtime.threads()).times(part);
            chunks_mut(self.runtime, room, cuts, |range, room| {
                let (first, len) = (range.start / part * step, range.len() / part * step);
                self.kernels.pack_q_rows(w.row_range(first, len.min(rows - first))?, room)
            })?;
        }
        self.kernels.packed_q(format, rows, cols, buf)
    }

    /// [`Kernels::dequant`](gllm_kernels_core::Kernels::dequant) on all threads.
    ///
    /// # Errors
    /// Those of [`Kernels::dequant`](gllm_kernels_core::Kernels::dequant).
    pub fn dequant(&self, w: QuantRef<'_>, y: &mut [E]) -> Result<(), KernelError> {
        let cols = w.cols();
        if cols == 0 || Some(y.len()) != w.rows().checked_mul(cols) {
            return self.kernels.dequant(w, y);
        }
        let k = self.kernels_for(size_of_val(y));
        let cuts = Cuts::rows(size_of_val(y), w.rows(), self.runtime.threads()).times(cols);
        chunks_mut(self.runtime, y, cuts, |range, y| {
            k.dequant(w.row_range(range.start / cols, range.len() / cols)?, y)
        })
    }

    /// [`Kernels::quantize`](gllm_kernels_core::Kernels::quantize) on all threads.
    ///
    /// # Errors
    /// Those of [`Kernels::quantize`](gllm_kernels_core::Kernels::quantize).
    pub fn quantize(
        &self,
        format: QuantFormat,
        x: &[E],
        importance: Option<&[f32]>,
        out: &mut [u8],
    ) -> Result<(), KernelError> {
        // Without importances it does not matter what a row is, so each block is taken as one.
        let cols = importance.map_or(format.block_len(), <[f32]>::len);
        let rows = x.len().checked_div(cols).unwrap_or(0);
        let sizes = (format.row_bytes(cols), format.row_bytes(x.len()));
        let (Ok(row_bytes), Ok(bytes)) = sizes else {
            return self.kernels.quantize(format, x, importance, out);
        };
        match out.get_mut(..bytes) {
            Some(out) if rows > 0 && rows * cols == x.len() => {
                let cuts = Cuts::rows(size_of_val(x), rows, self.runtime.threads()).times(row_bytes);
                chunks_mut(self.runtime, out, cuts, |range, out| {
                    let x = &x[range.start / row_bytes * cols..][..out.len() / row_bytes * cols];
                    self.kernels.quantize(format, x, importance, out)
                })
            }
            _ => self.kernels.quantize(format, x, importance, out),
        }
    }
}

/// Bytes of a contiguous column that a chunk has at least.
const COLUMN_PIECE: usize = 2048;
