//! Quantised weights: formats, views, and layer 3.
//!
//! A format stores a row as blocks of a fixed number of weights. Each block consists of groups that
//! share a scale: `w = value * scale`, where `value` is a small number that f32 holds exactly.

pub mod blocks;
pub mod codebooks;
pub(crate) mod dispatch;
mod format;
pub(crate) mod legacy;
mod view;
#[cfg(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_feature = "neon")
))]
mod widen;

pub use format::QuantFormat;
pub use view::QuantRef;

use crate::isa::{Scalar, Vector};
use blocks::Block;

/// Elements that kernels handle at a time: whole blocks of every format, whole vectors everywhere.
pub(crate) const TILE: usize = 256;

/// The smallest group of elements with a scale of its own; no vector is longer.
pub(crate) const MIN_GROUP: usize = 16;

/// The scales of a tile, in order of their groups.
pub(crate) type Scales = [f32; TILE / MIN_GROUP];

/// A block format: the specification of its decode. Element `i` of a block is
/// `value(i) * scale(i / GROUP)`, rounded once.
pub(crate) trait Format: 'static {
    /// The layout.
    type Block: Block;
    /// Elements per block; divides [`TILE`].
    const LEN: usize;
    /// Consecutive elements that share a scale.
    const GROUP: usize;
    /// Scale of group `g < LEN / GROUP`.
    fn scale(b: &Self::Block, g: usize) -> f32;
    /// Element `i < LEN` before scaling.
    fn value(b: &Self::Block, i: usize) -> f32;
}

/// How an instruction set unpacks a format. Bit for bit what [`Format`] says.
///
/// # Safety
/// Methods require that the CPU has the instruction set and that the blocks they are given exist;
/// nothing else is read.
pub(crate) unsafe trait Unpack<F: Format>: Vector {
    /// Writes the scales of `n` consecutive blocks, `n * LEN <= TILE`, to `out`, which has room for
    /// [`Scales`]; what lies behind the scales there is arbitrary afterwards.
    unsafe fn scales(first: *const F::Block, n: usize, out: *mut f32);
    /// Elements `i .. i + LANES` before scaling; `i` is a multiple of `LANES`.
    unsafe fn unpack(b: *const F::Block, i: usize) -> Self::V;
}

// SAFETY: reads the blocks through references only.
unsafe impl<F: Format> Unpack<F> for Scalar {
    #[inline(always)]
    unsafe fn scales(first: *const F::Block, n: usize, out: *mut f32) {
        let groups = F::LEN / F::GROUP;
        for k in 0..n * groups {
            // SAFETY: the caller vouches for n blocks and room for their scales.
            unsafe { *out.add(k) = F::scale(&*first.add(k / groups), k % groups) };
        }
    }
    #[inline(always)]
    unsafe fn unpack(b: *const F::Block, i: usize) -> f32 {
        // SAFETY: the caller vouches for the block.
        unsafe { F::value(&*b, i) }
    }
}
