//! Squares of numbers of 32 bits, transposed in registers.

use crate::arrays::Each;
use crate::isa::{Prim, Scalar};

/// How an instruction set transposes.
///
/// # Safety
/// Methods require that the CPU has the instruction set.
pub(crate) unsafe trait Square: Prim<f32> {
    /// `LANES` numbers of each of as many rows, `pitch` bytes apart: lane `i` of register `j` is number `j` of row `i`.
    ///
    /// # Safety
    /// The numbers at `p`.
    #[inline(always)]
    unsafe fn square(p: *const f32, pitch: usize) -> [Self::V; 16] {
        // SAFETY: the caller's contract.
        unsafe {
            let mut v = [Self::splat(0.0); 16];
            for (i, v) in v.iter_mut().enumerate().take(Self::LANES) {
                *v = Self::load(p.byte_add(i * pitch));
            }
            transpose::<Self>(v)
        }
    }

    /// Flips these bits of each number.
    ///
    /// # Safety
    /// The instruction set.
    #[inline(always)]
    unsafe fn flip(v: Self::V, bits: u32) -> Self::V {
        let mut numbers = [0f32; 16];
        // SAFETY: there is room for a vector.
        unsafe {
            <Self as Prim<f32>>::store(numbers.as_mut_ptr(), v);
            let flipped = numbers.each(|x| f32::from_bits(x.to_bits() ^ bits));
            <Self as Prim<f32>>::load(flipped.as_ptr())
        }
    }
}

// SAFETY: registers only.
unsafe impl Square for Scalar {}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
// SAFETY: registers only.
unsafe impl Square for crate::isa::Neon {}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64 {
    use core::arch::x86_64::*;

    use super::Square;
    use crate::isa::{Avx2, Avx512, Vector};

    // SAFETY: registers only.
    unsafe impl Square for Avx512 {}

    /// Four numbers at `p`, and four at `q`.
    ///
    /// # Safety
    /// They exist; AVX2. So below.
    #[inline(always)]
    unsafe fn both(p: *const f32, q: *const f32) -> __m256 {
        // SAFETY: the caller's contract; so below.
        unsafe { _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q)) }
    }
    #[inline(always)]
    unsafe fn pairs(a: __m256, b: __m256) -> [__m256d; 2] {
        // SAFETY: as above.
        unsafe { [_mm256_castps_pd(_mm256_unpacklo_ps(a, b)), _mm256_castps_pd(_mm256_unpackhi_ps(a, b))] }
    }
    #[inline(always)]
    unsafe fn fours(a: __m256d, b: __m256d) -> [__m256; 2] {
        // SAFETY: as above.
        unsafe { [_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b))] }
    }

    // SAFETY: reads the square.
    unsafe impl Square for Avx2 {
        // Halves of rows that are four apart come to one register as they are loaded, so that nothing crosses its halves
        // later: a third of the shuffles.
        #[inline(always)]
        unsafe fn square(p: *const f32, pitch: usize) -> [__m256; 16] {
            // SAFETY: the caller's contract.
            unsafe {
                let mut v = [Avx2::splat(0.0); 16];
                for column in [0, 4] {
                    let mut rows = [Avx2::splat(0.0); 4];
                    for (i, rows) in rows.iter_mut().enumerate() {
                        let p = p.add(column).byte_add(i * pitch);
                        *rows = both(p, p.byte_add(4 * pitch));
                    }
                    let [a, b] = pairs(rows[0], rows[1]);
                    let [c, d] = pairs(rows[2], rows[3]);
                    [v[column], v[column + 1]] = fours(a, c);
                    [v[column + 2], v[column + 3]] = fours(b, d);
                }
                v
            }
        }
    }
}

/// Transposes the first `LANES` registers: lane `i` of register `j` becomes lane `j` of register `i`.
#[inline(always)]
pub(super) unsafe fn transpose<P: Prim<f32>>(mut v: [P::V; 16]) -> [P::V; 16] {
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
