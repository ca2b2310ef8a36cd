//! Latent attention on the CPU: its forms, queries, and the rows that are cached. [`LatentAttention`] has the formulas.
//!
//! There are two ways to compute the same. Queries can be multiplied with each head's matrix of keys, and results with its matrix of values: then attention works
//! on cached rows as they are (absorbed). Or the keys and values of each head are decoded from cached rows (expanded). DeepSeek's heads take 1088 multiply-adds for a
//! query and a position in the first form, and 320 in the second one, where each position is decoded once for all queries.

use std::ops::Range;

use gllm_kernels_core::{KernelError, Kernels, Precision, RopeShape, KV_BLOCK};

use super::attention::Angles;
use super::rows::Rows;
use super::shares::TokenRun;
use crate::model::LatentAttention;

/// Whether a step of these tokens takes fewer multiply-adds if latent attention is expanded. A step that is to be exact never is: its results
/// must not depend on what else is in it.
pub(super) fn is_expanded(of: &LatentAttention, runs: &[TokenRun], precision: Precision) -> bool {
    let matrices = (of.rank * (of.plain + of.values)) as u64;
    let [absorbed, expanded] = runs.iter().fold([0; 2], |[absorbed, expanded], run| {
        let (tokens, before) = (run.tokens as u64, run.first as u64);
        let (pairs, end) = (tokens * (before + tokens.div_ceil(2)), before + tokens);
        [
            absorbed + pairs * (of.cached() + of.rank) as u64 + tokens * matrices,
            expanded
                + pairs * (of.query() + of.values) as u64
                + end.next_multiple_of(KV_BLOCK as u64) * matrices,
        ]
    });
    precision != Precision::Exact && expanded < absorbed
}

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
    pub(super) heads: usize,
    /// Queries as products give them.
    pub(super) queries: Rows,
    /// What the cached row is made of: where it begins in these rows.
    pub(super) cached: (Rows, usize),
    /// Queries as they are multiplied with cached rows, unless keys and values are expanded.
    pub(super) absorbed: Option<OfHeads>,
}

impl Latent {
    /// Rotates the queries of tokens and multiplies them by their temperatures, and makes cached rows, by a norm with this weight and by rotation.
    ///
    /// # Safety
    /// The rows exist, and nobody else uses those of these tokens.
    pub(super) unsafe fn prepare(
        &self,
        k: &Kernels<f32>,
        rows: Range<usize>,
        weight: &[f32],
        (shape, angles, eps): (RopeShape, &Angles, f32),
    ) -> Result<(), KernelError> {
        let LatentAttention { rank, plain, rotated, .. } = self.of;
        let shape = RopeShape { heads: 1, head_dim: rotated, ..shape };
        let (half, (cached, at)) = (rotated / 2, self.cached);
        for row in rows {
            let [cos, sin] = [&angles.cos, &angles.sin].map(|a| &a[row * half..(row + 1) * half]);
            // SAFETY: the caller's contract.
            let x = unsafe { &mut cached.row(row)[at..] };
            k.rms_norm_inplace(Some(weight), eps, &mut x[..rank])?;
            k.rope_inplace(shape, cos, sin, &mut x[rank..rank + rotated])?;
            // SAFETY: the caller's contract.
            let queries = unsafe { self.queries.row(row) }.chunks_exact_mut(self.of.query());
            for (head, q) in queries.take(self.heads).enumerate() {
                k.rope_inplace(shape, cos, sin, &mut q[plain..])?;
                let mut whole = q;
                if let Some(to) = self.absorbed {
                    // SAFETY: the caller's contract.
                    let to = unsafe { &mut to.rows.row(row)[head * to.step..][..to.step] };
                    to[rank..].copy_from_slice(&whole[plain..]);
                    whole = to;
                }
                if let Some(&temperature) = angles.temperatures.get(row) {
                    k.vec_scale_inplace(temperature, whole)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompts are expanded, and generation is not; behind a long text some 170 tokens at a time are. Where exactness is asked for, nothing is.
    #[test]
    fn the_form_with_fewer_operations() {
        let of = LatentAttention { query_rank: None, rank: 512, plain: 128, rotated: 64, values: 128 };
        let run = |first, tokens| TokenRun { row: 0, tokens, first, paths: Vec::new() };
        let is = |runs: &[TokenRun]| is_expanded(&of, runs, Precision::Fast);
        for (first, tokens, expanded) in [
            (0, 16, true),
            (0, 1000, true),
            (0, 1, false),
            (1000, 1, false),
            (100_000, 160, false),
            (100_000, 180, true),
            (1000, 100, false),
            (1000, 200, true),
        ] {
            assert_eq!(is(&[run(first, tokens)]), expanded, "{tokens} tokens behind {first}");
            assert!(!is_expanded(&of, &[run(first, tokens)], Precision::Exact));
        }
        // A long text that goes on by one token is worth more than a short prompt.
        assert!(!is(&[run(0, 64), run(100_000, 1)]));
        assert!(is(&[run(0, 2000), run(100, 1)]));
    }
}
