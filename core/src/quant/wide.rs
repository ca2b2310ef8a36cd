//! Unpacking of 64 codes at a time, for products with weights in place on registers of 64 bytes.
//!
//! Codes need not be shifted to the lowest bits of their bytes, if products are summed in 32 bits. Codes that stay shifted to
//! the left are their values times a power of two ([`Packing::shifts`](crate::quant::packed::Packing::shifts)), by which the
//! scales of their groups are divided instead. That saves a shift for each register of codes.

use crate::arrays::Each;
use crate::quant::packed::{Pack, STEPS, STEP_COLS};

/// 64 bytes. A pair of arguments is for the first and the second 32 bytes.
///
/// # Safety
/// Methods require that the CPU has the instruction set; those that take a pointer, what they say of it.
#[allow(dead_code)] // Not every target has such registers.
pub(crate) unsafe trait WideBytes: Copy {
    /// 64 bytes at `p`.
    unsafe fn load(p: *const u8) -> Self;
    /// 32 bytes at `p`, twice.
    unsafe fn twice(p: *const u8) -> Self;
    /// The `n` bits from bit `from` of each byte, at `to`.
    unsafe fn field(self, from: [usize; 2], to: [usize; 2], n: u32) -> Self;
    /// `self | other`
    unsafe fn or(self, other: Self) -> Self;
}

/// A format whose codes are multiplied 64 at a time.
#[allow(dead_code)] // Not every target has such registers.
pub(crate) trait Wide: Pack + Sized {
    /// Codes from column `i` of a block of 256, with [`Packing::bias`](crate::quant::packed::Packing::bias) added and shifted left
    /// by their step's [`Packing::shifts`](crate::quant::packed::Packing::shifts); `None` if they are unpacked 32 at a time, and not shifted.
    ///
    /// # Safety
    /// The instruction set.
    #[inline(always)]
    unsafe fn wide<W: WideBytes>(_b: &Self::Block, _i: usize) -> Option<W> {
        None
    }
}

/// The shifts of the two steps from column `i` of a unit.
#[allow(dead_code)] // Not every target has such registers.
#[inline(always)]
pub(crate) fn shifts<F: Pack>(i: usize) -> [usize; 2] {
    [0, 1].each(|k| F::PACKING.shifts[(i / STEP_COLS + k) % STEPS])
}
