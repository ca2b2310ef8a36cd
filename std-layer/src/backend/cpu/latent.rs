//! Latent attention on the CPU: products of each head with matrices of its own, and the rows that are cached. [`LatentAttention`] has the formulas.

use std::sync::Arc;

use gllm_kernels_core::{KernelError, Kernels, MatMut, MatRef, RopeShape};

use super::attention::{Angles, BlockTokens};
use super::product::{chunk_rows, How, Way};
use super::rows::Rows;
use super::team::Memory;
use super::weights::Matrix;
use crate::model::LatentAttention;

/// Numbers of all heads in rows: where those of the first head begin, and how far those of each head are behind those of the head before.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfHeads {
    pub(super) rows: Rows,
    pub(super) step: usize,
}

/// The numbers of each head times the head's own matrix. All matrices have one shape and format.
#[derive(Debug)]
pub(super) struct HeadProducts {
    matrices: Vec<*const Matrix>,
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
            matrices: matrices.iter().map(Arc::as_ptr).collect(),
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
            let matrix = &*self.matrices[head];
            let n = self.step.min(matrix.rows() - first);
            let x = &self.x.rows.get(0..rows)[head * self.x.step..];
            let x = MatRef::with_strides(x, rows, matrix.cols(), self.x.rows.width, 1)?;
            let y = self.y.rows.ptr.add(head * self.y.step + first);
            let y = MatMut::from_raw_parts(y, [rows, n], [self.y.rows.width, 1]);
            self.way.multiply(k, (matrix, first), (x, None), (y, None), memory)
        }
    }
}

/// The rows of a step that latent attention prepares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latent {
    pub(super) of: LatentAttention,
    /// Queries as products give them.
    pub(super) queries: Rows,
    /// What the cached row is made of: where it begins in these rows.
    pub(super) cached: (Rows, usize),
}

impl Latent {
    /// Rotates the queries of tokens, whose results go to `to`, and makes their cached rows, by a norm with this weight and by rotation.
    ///
    /// # Safety
    /// The rows exist, and nobody else uses those of these tokens.
    pub(super) unsafe fn prepare(
        &self,
        k: &Kernels<f32>,
        of: BlockTokens,
        weight: &[f32],
        (shape, angles, eps): (RopeShape, &Angles, f32),
        to: OfHeads,
    ) -> Result<(), KernelError> {
        let LatentAttention { rank, plain, rotated, .. } = self.of;
        let shape = RopeShape { heads: 1, head_dim: rotated, ..shape };
        let (half, (cached, at)) = (rotated / 2, self.cached);
        for row in of.row..of.row + of.tokens {
            let [cos, sin] = [&angles.cos, &angles.sin].map(|a| &a[row * half..(row + 1) * half]);
            // SAFETY: the caller's contract.
            let (q, to_heads, x) =
                unsafe { (self.queries.row(row), to.rows.row(row), &mut cached.row(row)[at..]) };
            k.rms_norm_inplace(Some(weight), eps, &mut x[..rank])?;
            k.rope_inplace(shape, cos, sin, &mut x[rank..rank + rotated])?;
            for (q, to) in q.chunks_exact(plain + rotated).zip(to_heads.chunks_exact_mut(to.step)) {
                to[rank..].copy_from_slice(&q[plain..]);
                k.rope_inplace(shape, cos, sin, &mut to[rank..])?;
            }
        }
        Ok(())
    }
}
