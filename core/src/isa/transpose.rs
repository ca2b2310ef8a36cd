//! The transposition of squares of numbers of 32 bits in registers.

use crate::arrays::Each;
use crate::vector::Prim;

/// How an instruction set transposes.
///
/// # Safety
/// Methods require that the CPU has the instruction set.
pub(crate) unsafe trait Transpose: Prim<f32> {
    /// `LANES` numbers of each of as many rows, `pitch` bytes apart: lane `i` of register `j` is number `j` of row `i`.
    ///
    /// # Safety
    /// The numbers at `p`.
    #[inline(always)]
    unsafe fn transposed(p: *const f32, pitch: usize) -> [Self::V; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            let mut v = [Self::splat(0.0); 16];
            for (i, v) in v.iter_mut().enumerate().take(Self::LANES) {
                *v = Self::load(p.byte_add(i * pitch));
            }
            transpose::<Self>(v)
        }
    }

    /// Adds `n` to each byte of a register; a byte that becomes too large wraps around.
    ///
    /// # Safety
    /// The instruction set.
    #[inline(always)]
    unsafe fn add_to_bytes(v: Self::V, n: u8) -> Self::V {
        let mut bytes = [0u8; 64];
        // SAFETY: there is room for a vector.
        unsafe {
            <Self as Prim<f32>>::store(bytes.as_mut_ptr().cast(), v);
            let sums = bytes.each(|byte| byte.wrapping_add(n));
            <Self as Prim<f32>>::load(sums.as_ptr().cast())
        }
    }
}

/// Transposes the first `LANES` registers: lane `i` of register `j` becomes lane `j` of register `i`.
#[inline(always)]
pub(crate) unsafe fn transpose<P: Prim<f32>>(mut v: [P::V; 16]) -> [P::V; 16] {
    // Each round interleaves the first half of the registers with the second; after log2(LANES) rounds
    // every index bit has moved from the register number to the lane.
    for _ in 0..P::LANES.trailing_zeros() {
        let from = v;
        for i in 0..P::LANES / 2 {
            // SAFETY: the caller vouches for the instruction set.
            (v[2 * i], v[2 * i + 1]) = unsafe { P::zip(from[i], from[i + P::LANES / 2]) };
        }
    }
    v
}
