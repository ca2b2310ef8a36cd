//! Activations of 8 bits, in the layouts that products with quantised weights read.

use crate::arrays::from_fn;
use crate::quant::packed::{Packing, GROUPS, STEPS, STEP_COLS};

/// Whether products with weights in place multiply unsigned codes on this architecture, as the instructions `vpdpbusd` and
/// `vpmaddubsw` need them. Elsewhere the arrays that correct the bias of unsigned codes have no elements.
pub(crate) const UNSIGNED: bool = cfg!(target_arch = "x86_64");

/// Partial sums of four neighbouring activations in a step.
const FOURS: usize = if UNSIGNED { STEP_COLS / 4 } else { 0 };
/// Partial sums of two neighbouring activations in a step.
const PAIRS: usize = if UNSIGNED { STEP_COLS / 2 } else { 0 };

/// 32 activations, with the scale and the sums that products need: one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Step {
    /// The activations, rounded to integers.
    pub(crate) q: [i8; STEP_COLS],
    /// The negative sums of the integers: of the first half, of the second, of both.
    pub(crate) sums: [i32; 3],
    /// The scale of the integers, times [`Packing::unit`](crate::quant::packed::Packing::unit).
    pub(crate) scale: f32,
    /// Sums of the rounded activations (integer times scale), times
    /// [`Packing::offset_unit`](crate::quant::packed::Packing::offset_unit): of the first half, of the second, of both.
    pub(crate) offsets: [f32; 3],
    pub(crate) _pad: f32,
}

/// 256 activations, with the scales and the sums that products need whose weights are in place, in blocks of fewer than 256 columns.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Fine {
    /// The integers, by step.
    pub(crate) q: [[i8; STEP_COLS]; STEPS],
    /// [`Step::scale`], by group of weights.
    pub(crate) scales: [f32; GROUPS],
    /// [`Step::offsets`], by group.
    pub(crate) offsets: [f32; GROUPS],
    /// Initial values of accumulators: the negative sums of four neighbouring integers, times [`Packing::bias`]. They cancel the bias
    /// that makes codes unsigned.
    pub(crate) starts: [[i32; FOURS]; STEPS],
}

impl Fine {
    /// Arranges the steps for weights of this packing.
    #[inline(always)]
    pub(crate) fn of(steps: &[Step; STEPS], packing: &Packing) -> Self {
        let group = packing.group;
        let step = |k: usize| if group == STEP_COLS { k % STEPS } else { k / 2 % STEPS };
        Self {
            q: from_fn(|k| steps[k].q),
            scales: from_fn(|k| steps[step(k)].scale),
            offsets: from_fn(|k| steps[step(k)].offsets[if group == STEP_COLS { 2 } else { k % 2 }]),
            starts: from_fn(|k| starts(&steps[k].q, 4, -i32::from(packing.bias()))),
        }
    }
    /// The integers of a step.
    #[inline(always)]
    pub(crate) fn step(&self, step: usize) -> &[i8; STEP_COLS] {
        &self.q[step % STEPS]
    }
}

/// 256 activations with one scale, and the sums that products need whose weights are in place, in blocks of 256 columns. The scales
/// of groups are integers in such blocks, so that the products of a block are summed in integers.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Coarse {
    /// The integers, by step.
    pub(crate) q: [[i8; STEP_COLS]; STEPS],
    /// Initial values of accumulators, as in [`Fine::starts`]. Codes that stay shifted to the left are their values times a power of
    /// two ([`Packing::shifts`]), and so are these. If all groups have the same scale, the values of steps `s` and `s + 4` are added.
    pub(crate) starts: [[i32; FOURS]; STEPS],
    /// Initial values of accumulators of 16 bits: the negative sums of two neighbouring integers, times the bias. If all groups have
    /// the same scale, the first array is the sum of the arrays of all steps.
    pub(crate) pair_starts: [[i16; PAIRS]; STEPS],
    /// Sums of the integers, by group of weights; zeros behind the last group.
    pub(crate) sums: [i16; GROUPS],
    /// The scale of the integers.
    pub(crate) scale: f32,
}

impl Coarse {
    /// The integers from column `i`, a multiple of 32.
    #[inline(always)]
    pub(crate) fn columns(&self, i: usize) -> *const i8 {
        self.q.as_ptr().wrapping_add(i / STEP_COLS).cast()
    }
}

/// 256 activations for products with weights in place.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union FineOrCoarse {
    /// For blocks of fewer than 256 columns.
    pub(crate) fine: Fine,
    /// For blocks of 256 columns.
    pub(crate) coarse: Coarse,
}

/// Sums of each `width` neighbouring integers of a step, times `by`.
#[inline(always)]
pub(crate) fn starts<const N: usize>(q: &[i8; STEP_COLS], width: usize, by: i32) -> [i32; N] {
    let x = |i: usize, j: usize| i32::from(q[(width * i + j) % STEP_COLS]);
    from_fn(|i| (0..width).fold(0, |sum, j| sum + x(i, j)) * by)
}
