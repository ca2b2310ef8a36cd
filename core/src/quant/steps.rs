//! Activations of 8 bits as products with quantised weights take them.

use crate::arrays::from_fn;
use crate::quant::packed::{Packing, GROUPS, STEPS, STEP_COLS};

/// Whether the products of this architecture take unsigned codes of weights in place (`vpdpbusd`, `vpmaddubsw`). What they alone
/// need is empty elsewhere.
pub(crate) const UNSIGNED: bool = cfg!(target_arch = "x86_64");

/// Sums of four activations in a step.
const FOURS: usize = if UNSIGNED { STEP_COLS / 4 } else { 0 };
/// Sums of two.
const PAIRS: usize = if UNSIGNED { STEP_COLS / 2 } else { 0 };

/// 32 activations, and everything products take from them: one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Step {
    /// The integers.
    pub(crate) q: [i8; STEP_COLS],
    /// Their negative sums: of the first half, of the second, of both.
    pub(crate) sums: [i32; 3],
    /// Their scale, times [`Packing::unit`](crate::quant::packed::Packing::unit).
    pub(crate) scale: f32,
    /// Sums of what they stand for, times
    /// [`Packing::offset_unit`](crate::quant::packed::Packing::offset_unit): of the first half, of the second, of both.
    pub(crate) offsets: [f32; 3],
    pub(crate) _pad: f32,
}

/// 256 activations, and everything products with weights in place take from them, if blocks are shorter.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Fine {
    /// The integers, by step.
    pub(crate) q: [[i8; STEP_COLS]; STEPS],
    /// [`Step::scale`], by group of weights.
    pub(crate) scales: [f32; GROUPS],
    /// [`Step::offsets`], by group.
    pub(crate) offsets: [f32; GROUPS],
    /// The negative sums of four at a time, times what is added to codes to make them unsigned.
    pub(crate) starts: [[i32; FOURS]; STEPS],
}

impl Fine {
    /// For weights that are packed so.
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

/// 256 activations with one scale, and everything products with weights in place take from them, if blocks are as long:
/// scales of groups, which are integers there, and products are then summed in integers.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Coarse {
    /// The integers, by step.
    pub(crate) q: [[i8; STEP_COLS]; STEPS],
    /// [`Fine::starts`], times the power of two that codes are too large by; if all groups have the same scale, sums of
    /// steps that are four apart.
    pub(crate) starts: [[i32; FOURS]; STEPS],
    /// The same of two at a time, without the power; if all groups have the same scale, the first is the sum of all.
    pub(crate) pair_starts: [[i16; PAIRS]; STEPS],
    /// Sums of the integers, by group of weights; zeros behind the last group.
    pub(crate) sums: [i16; GROUPS],
    /// Their scale.
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
    /// If blocks are shorter.
    pub(crate) fine: Fine,
    /// If blocks are as long.
    pub(crate) coarse: Coarse,
}

/// Sums of every `width` activations of a step, times `by`.
#[inline(always)]
pub(crate) fn starts<const N: usize>(q: &[i8; STEP_COLS], width: usize, by: i32) -> [i32; N] {
    let x = |i: usize, j: usize| i32::from(q[(width * i + j) % STEP_COLS]);
    from_fn(|i| (0..width).fold(0, |sum, j| sum + x(i, j)) * by)
}
