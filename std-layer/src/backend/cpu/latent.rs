//! Latent attention on the CPU: queries, and the rows that are cached. [`LatentAttention`] has the formulas.

use std::ops::Range;

use gllm_kernels_core::{KernelError, Kernels, RopeShape};

use super::rows::Rows;
use crate::model::LatentAttention;

/// Numbers of all heads in rows: where those of the first head begin, and how far those of each head are behind those of the head before.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfHeads {
    pub(super) rows: Rows,
    pub(super) step: usize,
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
        rows: Range<usize>,
        weight: &[f32],
        (shape, [cos, sin], eps): (RopeShape, [&[f32]; 2], f32),
        to: OfHeads,
    ) -> Result<(), KernelError> {
        let LatentAttention { rank, plain, rotated, .. } = self.of;
        let shape = RopeShape { heads: 1, head_dim: rotated, ..shape };
        let (half, (cached, at)) = (rotated / 2, self.cached);
        for row in rows {
            let [cos, sin] = [cos, sin].map(|a| &a[row * half..(row + 1) * half]);
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
