//! Several residual streams on the CPU. [`Streams`](crate::model::Streams) has the formulas.

use gllm_kernels_core::{KernelError, Kernels};

use super::rows::Rows;
use super::team::Memory;
use crate::model::Streams as Sizes;

/// What divisors are at least: the square root of this.
const LEAST: f32 = 1e-5;

/// An operation on the streams of a token.
#[derive(Debug)]
pub(super) struct Streams {
    /// The first one.
    pub(super) first: Rows,
    /// The others, one behind the other.
    pub(super) others: Rows,
    pub(super) work: Work,
}

/// Which operation.
#[derive(Debug)]
pub(super) enum Work {
    /// Makes the others as long as the first one.
    Match,
    /// Predicts all of them; the first one goes to `predicted`, too.
    Predict { mixer: Mixer, predicted: Rows },
    /// The first one plus `normed`, divided by the square root of 2, plus a norm.
    AddLowRank { normed: Rows, delta: Delta },
    /// Corrects all of them by what `predicted` lacks of the first one; `to` is that corrected, times a scale.
    Correct { mixer: Mixer, predicted: Rows, scale: *const [f32], to: Rows },
    /// Adds a norm to the others.
    AddToOthers(Delta),
    /// Another stream than the first, by its number among them.
    Take { other: usize, to: Rows },
    /// Adds products of such a stream, made as long as the first one, to the sum of all, which begins with that; with the last one the first becomes the mean of all.
    Merge { other: usize, products: Rows, sum: Rows },
}

/// A matrix that the numbers of a token's router are multiplied with.
#[derive(Debug)]
pub(super) struct Mixer {
    pub(super) router: *const [f32],
    pub(super) matrix: *const [f32],
    pub(super) eps: f32,
}

/// Rows that are normed with a weight before they are added.
#[derive(Debug)]
pub(super) struct Delta {
    pub(super) rows: Rows,
    pub(super) weight: *const [f32],
    pub(super) eps: f32,
}

impl Delta {
    /// A row, normed in its place.
    ///
    /// # Safety
    /// It exists, and so does the weight; nobody else uses it.
    unsafe fn row<'a>(&self, k: &Kernels<f32>, row: usize) -> Result<&'a [f32], KernelError> {
        // SAFETY: the caller's contract.
        let (x, weight) = unsafe { (self.rows.row(row), &*self.weight) };
        k.rms_norm_inplace(Some(weight), self.eps, x)?;
        Ok(x)
    }
}

impl Mixer {
    /// The factors that the matrix makes of a token's numbers, of which `x` is the first stream; those behind them are 0.
    ///
    /// # Safety
    /// Router and matrix exist.
    unsafe fn factors<const N: usize>(&self, k: &Kernels<f32>, x: &[f32]) -> Result<[f32; N], KernelError> {
        // SAFETY: the caller's contract.
        let (router, matrix) = unsafe { (&*self.router, &*self.matrix) };
        let by = 1.0 / (k.vec_dot(x, x)? / x.len() as f32 + self.eps).sqrt();
        let (mut numbers, mut factors) = ([0.0; Sizes::MOST], [0.0; N]);
        let count = router.len() / x.len();
        for (number, row) in numbers.iter_mut().zip(router.chunks_exact(x.len())) {
            *number = by * k.vec_dot(row, x)?;
        }
        k.tanh_inplace(&mut numbers[..count])?;
        for (factor, row) in factors.iter_mut().zip(matrix.chunks_exact(count)) {
            *factor = row.iter().zip(&numbers).map(|(w, m)| w * m).sum();
        }
        Ok(factors)
    }
}

/// The root of the mean of squares.
fn length(k: &Kernels<f32>, x: &[f32]) -> Result<f32, KernelError> {
    Ok((k.vec_dot(x, x)? / x.len() as f32).sqrt())
}

/// What makes a row so long.
fn stretch(k: &Kernels<f32>, x: &[f32], to: f32) -> Result<f32, KernelError> {
    Ok(to / length(k, x)?.max(LEAST.sqrt()))
}

impl Streams {
    /// Does a row.
    ///
    /// # Safety
    /// What the operation names exists, and nobody else uses this row.
    pub(super) unsafe fn run(
        &self,
        k: &Kernels<f32>,
        row: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        // SAFETY: the caller's contract.
        let (first, others) = unsafe { (self.first.row(row), self.others.row(row)) };
        let width = first.len();
        match &self.work {
            Work::Match => {
                let whole = length(k, first)?;
                for x in others.chunks_exact_mut(width) {
                    k.vec_scale_inplace(stretch(k, x, whole)?, x)?;
                }
            }
            Work::Predict { mixer, predicted } => {
                // SAFETY: the caller's contract.
                let factors: [f32; Sizes::MOST * Sizes::MOST] = unsafe { mixer.factors(k, first)? };
                let count = 1 + others.len() / width;
                let mut numbers = memory.take_numbers(count * width);
                let old = &mut numbers[..count * width];
                old[..width].copy_from_slice(first);
                old[width..].copy_from_slice(others);
                let all = [&mut *first].into_iter().chain(others.chunks_exact_mut(width));
                for (x, factors) in all.zip(factors.chunks_exact(count)) {
                    for (old, &factor) in old.chunks_exact(width).zip(factors) {
                        k.vec_axpy(factor, old, x)?;
                    }
                }
                memory.keep_numbers(numbers);
                // SAFETY: the caller's contract.
                unsafe { predicted.row(row) }.copy_from_slice(first);
            }
            Work::AddLowRank { normed, delta } => {
                // SAFETY: the caller's contract.
                let (normed, delta) = unsafe { (normed.row(row), delta.row(k, row)?) };
                k.vec_add_inplace(normed, first)?;
                k.vec_scale_inplace(std::f32::consts::FRAC_1_SQRT_2, first)?;
                k.vec_add_inplace(delta, first)?;
            }
            Work::Correct { mixer, predicted, scale, to } => {
                // SAFETY: the caller's contract.
                let (factors, predicted): ([f32; Sizes::MOST], _) =
                    unsafe { (mixer.factors(k, first)?, predicted.row(row)) };
                k.vec_axpy(-1.0, predicted, first)?;
                let all = [&mut *predicted].into_iter().chain(others.chunks_exact_mut(width));
                for (x, factor) in all.zip(factors) {
                    k.vec_axpy(1.0 + factor, first, x)?;
                }
                first.copy_from_slice(predicted);
                // SAFETY: the caller's contract.
                unsafe { k.vec_mul(first, &**scale, to.row(row))? };
            }
            Work::AddToOthers(delta) => {
                // SAFETY: the caller's contract.
                let delta = unsafe { delta.row(k, row)? };
                others.chunks_exact_mut(width).try_for_each(|x| k.vec_add_inplace(delta, x))?;
            }
            Work::Take { other, to } => {
                // SAFETY: the caller's contract.
                unsafe { to.row(row) }.copy_from_slice(&others[other * width..][..width]);
            }
            Work::Merge { other, products, sum } => {
                // SAFETY: the caller's contract.
                let (products, sum) = unsafe { (products.row(row), sum.row(row)) };
                if *other == 0 {
                    sum.copy_from_slice(first);
                }
                k.vec_axpy(stretch(k, products, length(k, first)?)?, products, sum)?;
                let count = 1 + others.len() / width;
                if other + 2 == count {
                    k.vec_scale(1.0 / count as f32, sum, first)?;
                }
            }
        }
        Ok(())
    }
}
