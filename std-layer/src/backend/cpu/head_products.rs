//! Products of the numbers of each head with a matrix of its own.

use std::sync::Arc;

use gllm_kernels_core::{KernelError, Kernels, MatMut, MatRef};

use super::latent::OfHeads;
use super::product::{chunk_rows, How, Way};
use super::team::Memory;
use super::weights::Matrix;

/// The numbers of each head times the head's own matrix. All matrices have one shape and format.
#[derive(Debug)]
pub(super) struct HeadProducts {
    matrices: *const [Arc<Matrix>],
    way: Way,
    rows: usize,
    x: OfHeads,
    y: OfHeads,
    /// Rows of weights of a chunk, and chunks of a head.
    step: usize,
    pieces: usize,
}

impl HeadProducts {
    /// A product of these matrices, one of each head.
    pub(super) fn new(
        k: &Kernels<f32>,
        matrices: &[Arc<Matrix>],
        How { rows, precision, threads, .. }: How,
        [x, y]: [OfHeads; 2],
    ) -> Result<Self, KernelError> {
        let n = matrices[0].rows();
        let step = chunk_rows(&matrices[0], n * matrices.len(), rows, threads);
        Ok(Self {
            matrices,
            way: Way::new(k, &matrices[0], rows, precision)?,
            rows,
            x,
            y,
            step,
            pieces: n.div_ceil(step),
        })
    }

    pub(super) fn chunks(&self) -> usize {
        self.matrices.len() * self.pieces
    }

    /// Does a chunk: some rows of a head's matrix.
    ///
    /// # Safety
    /// The matrices, the input and room for the output exist; nobody else uses the chunk's columns.
    pub(super) unsafe fn run(
        &self,
        k: &Kernels<f32>,
        chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let (head, first, rows) = (chunk / self.pieces, chunk % self.pieces * self.step, self.rows);
        // SAFETY: the caller's contract: rows of the matrix are columns of the head's output, and the chunk's own.
        unsafe {
            let matrix = &(&*self.matrices)[head];
            let n = self.step.min(matrix.rows() - first);
            let x = &self.x.rows.get(0..rows)[head * self.x.step..];
            let x = MatRef::with_strides(x, rows, matrix.cols(), self.x.rows.width, 1)?;
            let y = self.y.rows.ptr.add(head * self.y.step + first);
            let y = MatMut::from_raw_parts(y, [rows, n], [self.y.rows.width, 1]);
            self.way.multiply(k, (matrix, first), (x, None), (y, None), memory)
        }
    }
}
