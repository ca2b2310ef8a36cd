//! Products with, and decoding of, weights of other checkpoints: AWQ, GPTQ, SqueezeLLM, FP8.

use std::sync::{Mutex, OnceLock, PoisonError};

use gllm_kernels_core::{Element, External, KernelError, MatMut};

use super::{chunks_mut, Cuts, Parallel};

/// Outputs of a part are a multiple of this where they are rows of the decoded matrix: core's kernels take so many at a
/// time.
const ROW_MULTIPLE: usize = 64;

/// Where inputs are the rows, a part has a multiple of so many outputs.
const OUTPUT_MULTIPLE: usize = 512;

/// It has up to so many if every thread has a part then: long pieces of rows are read and written faster than short ones.
const MOST_OUTPUTS: usize = 4096;

/// # External formats
///
/// Threads share out the outputs.
impl<E: Element> Parallel<'_, E> {
    /// How outputs are divided among threads, by the bytes that all of them take.
    fn parts<W: External>(&self, w: &W, size: usize, threads: usize) -> Cuts {
        if threads == 1 {
            return Cuts { first: w.outputs().max(1), step: 1 };
        }
        let group = if W::BY_OUTPUT {
            ROW_MULTIPLE
        } else {
            let each = (w.outputs() / threads).clamp(OUTPUT_MULTIPLE, MOST_OUTPUTS);
            each - each % OUTPUT_MULTIPLE
        };
        Cuts::rows_fixed(size, w.outputs(), group)
    }

    /// The product that any view's `qgemv_..` of [`Kernels`](gllm_kernels_core::Kernels) forms, on all threads.
    ///
    /// # Errors
    /// Those of that method.
    pub fn qgemv_external<W: External>(&self, w: W, x: &[E], y: &mut [f32]) -> Result<(), KernelError> {
        if x.len() != w.inputs() || y.len() != w.outputs() {
            return w.qgemv_with(&self.kernels, x, y);
        }
        let cuts = self.parts(&w, w.size(), self.runtime.threads());
        chunks_mut(self.runtime, y, cuts, |range, y| {
            w.output_range(range.start, range.len())?.qgemv_with(&self.kernels, x, y)
        })
    }

    /// What any view's `dequant_..` of [`Kernels`](gllm_kernels_core::Kernels) decodes, on all threads.
    ///
    /// # Errors
    /// Those of that method.
    pub fn dequant_external<W: External>(&self, w: W, y: MatMut<'_, E>) -> Result<(), KernelError> {
        let (rows, cols) = if W::BY_OUTPUT { (w.outputs(), w.inputs()) } else { (w.inputs(), w.outputs()) };
        let bytes = rows.saturating_mul(cols).saturating_mul(size_of::<E>());
        let k = self.kernels_for(bytes);
        if (y.rows(), y.cols()) != (rows, cols) {
            return w.dequant_with(&k, y);
        }
        let cuts = self.parts(&w, bytes, self.runtime.threads());
        // Outputs are rows or columns of `y`; of `rest` they are rows.
        let mut rest = if W::BY_OUTPUT { y } else { y.t() };
        let mut parts = Vec::new();
        for i in 0..cuts.count(w.outputs()) {
            let range = cuts.range(w.outputs(), i);
            let (part, more) = rest.split_rows(range.len())?;
            rest = more;
            parts.push(Mutex::new(Some((range, part))));
        }
        let failed = OnceLock::new();
        self.runtime.for_each(parts.len(), |i| {
            let part = parts[i].lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((range, part)) = part else { return };
            let part = if W::BY_OUTPUT { part } else { part.t() };
            let done = w.output_range(range.start, range.len()).and_then(|w| w.dequant_with(&k, part));
            if let Err(e) = done {
                failed.get_or_init(|| e);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}
