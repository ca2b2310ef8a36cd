//! Reductions of vectors: sums, dot products, maxima.

use gllm_kernels_core::{Element, KernelError};

use super::Parallel;

/// # Reductions
impl<E: Element> Parallel<'_, E> {
    /// [`Kernels::vec_dot`](gllm_kernels_core::Kernels::vec_dot) on all threads; the parts are added in
    /// order, in f64.
    ///
    /// # Errors
    /// Those of [`Kernels::vec_dot`](gllm_kernels_core::Kernels::vec_dot).
    pub fn vec_dot(&self, x: &[E], y: &[E]) -> Result<f32, KernelError> {
        if x.len() != y.len() {
            return self.kernels.vec_dot(x, y);
        }
        self.fold(x.len(), |r| self.kernels.vec_dot(&x[r.clone()], &y[r])).map(total)
    }

    /// [`Kernels::vec_sum`](gllm_kernels_core::Kernels::vec_sum) on all threads; the parts are added in
    /// order, in f64.
    ///
    /// # Errors
    /// Those of [`Kernels::vec_sum`](gllm_kernels_core::Kernels::vec_sum).
    pub fn vec_sum(&self, x: &[E]) -> Result<f32, KernelError> {
        self.fold(x.len(), |r| self.kernels.vec_sum(&x[r])).map(total)
    }

    /// [`Kernels::vec_max`](gllm_kernels_core::Kernels::vec_max) on all threads.
    ///
    /// # Errors
    /// Those of [`Kernels::vec_max`](gllm_kernels_core::Kernels::vec_max).
    pub fn vec_max(&self, x: &[E]) -> Result<f32, KernelError> {
        let parts = self.fold(x.len(), |r| self.kernels.vec_max(&x[r]))?;
        Ok(parts.into_iter().fold(f32::NEG_INFINITY, f32::max))
    }
}

fn total(parts: Vec<f32>) -> f32 {
    parts.into_iter().map(f64::from).sum::<f64>() as f32
}
