//! The functions of a format that are compiled for an instruction set, and their arguments.

use crate::caps::Prefetches;
use crate::quant::packed::{Packing, Parts};
use crate::quant::steps::FineOrCoarse;
use crate::quant::QuantFormat;

/// Where codes, scales and offsets of consecutive blocks go.
#[derive(Clone, Copy)]
pub(crate) struct Unpacked {
    pub(crate) codes: *mut i8,
    pub(crate) scales: *mut f32,
    /// Left alone by formats without offsets.
    pub(crate) offsets: *mut f32,
}

/// One format, compiled for one instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Unpacker {
    /// [`unpack`](crate::quant::unpack).
    pub(crate) unpack: unsafe fn(n: usize, w: *const u8, out: &Unpacked),
    /// [`scales`](crate::quant::scales).
    pub(crate) scales: unsafe fn(n: usize, w: *const u8, out: &Unpacked),
    /// [`qgemv_q8`](crate::ops::qgemv_q8::qgemv_q8).
    pub(crate) qgemv_q8: unsafe fn(&Q8Args),
    /// Elements per block.
    pub(crate) len: usize,
    /// Bytes per block.
    pub(crate) bytes: usize,
    /// Elements per scale.
    pub(crate) group: usize,
    /// Whether there are offsets.
    pub(crate) offsets: bool,
    /// How it is packed.
    pub(crate) packing: &'static Packing,
    /// [`Pack::parts`] of the block at `w`.
    pub(crate) parts: unsafe fn(w: *const u8, g: usize) -> Parts,
}

/// How the weights of a format are multiplied: unpacked from blocks, or as the floating-point numbers that they are.
#[derive(Clone, Copy)]
pub(crate) enum Made<'a> {
    Blocks(&'a Unpacker),
    /// Floating point, in this format.
    Floats(QuantFormat),
}

impl Made<'_> {
    /// How blocks are packed.
    pub(crate) fn packing(self) -> Option<&'static Packing> {
        match self {
            Self::Blocks(format) => Some(format.packing),
            Self::Floats(_) => None,
        }
    }
}

/// A product of weights in place with activations of 8 bits.
pub(crate) struct Q8Args {
    pub(crate) rows: usize,
    /// Blocks of a row.
    pub(crate) blocks: usize,
    pub(crate) w: *const u8,
    pub(crate) batch: usize,
    /// The units of the first row of activations.
    pub(crate) x: *const u8,
    /// Bytes from one row of activations to the next.
    pub(crate) x_stride: usize,
    /// How weights that are far ahead are prefetched.
    pub(crate) prefetches: Prefetches,
    /// Factors that are applied once to the whole sum: of the scaled products, and of the offsets.
    pub(crate) units: [f32; 2],
    pub(crate) y: *mut f32,
    /// Elements from one row of results to the next: for the next row of activations, and for the next row of weights.
    pub(crate) y_strides: [usize; 2],
}

impl Q8Args {
    /// The units of row `m` of the activations, or of the last one.
    #[inline(always)]
    pub(crate) fn activations(&self, m: usize) -> *const FineOrCoarse {
        self.x.wrapping_add(m.min(self.batch - 1) * self.x_stride).cast()
    }
}

/// [`qgemv_q8`](crate::ops::qgemv_q8::qgemv_q8) of every format, in the order of [`QuantFormat::ALL`], which begins with those
/// of blocks.
pub(crate) type InPlace = [unsafe fn(&Q8Args)];
