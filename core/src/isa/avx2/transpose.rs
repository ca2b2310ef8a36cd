//! The transposition of 8 x 8 numbers of 32 bits in registers, with a third of the shuffles that the general way takes.

use core::arch::x86_64::*;

use crate::isa::transpose::Transpose;
use crate::isa::Avx2;
use crate::vector::Arithmetic;

/// Four numbers at `p`, and four at `q`.
///
/// # Safety
/// The numbers exist, and the CPU has AVX2.
#[inline(always)]
unsafe fn both(p: *const f32, q: *const f32) -> __m256 {
    // SAFETY: the caller's contract.
    unsafe { _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q)) }
}
/// Pairs of numbers, one of `a` and one of `b`, from the lower and from the upper half of each 128 bits.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn pairs(a: __m256, b: __m256) -> [__m256d; 2] {
    // SAFETY: registers only; the caller vouches for AVX2.
    unsafe { [_mm256_castps_pd(_mm256_unpacklo_ps(a, b)), _mm256_castps_pd(_mm256_unpackhi_ps(a, b))] }
}
/// The same with pairs: four numbers, two of `a` and two of `b`.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn fours(a: __m256d, b: __m256d) -> [__m256; 2] {
    // SAFETY: registers only; the caller vouches for AVX2.
    unsafe { [_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b))] }
}

// SAFETY: reads the square.
unsafe impl Transpose for Avx2 {
    // Halves of rows that are four apart come to one register as they are loaded, so that nothing crosses its halves
    // later: a third of the shuffles.
    #[inline(always)]
    unsafe fn transposed(p: *const f32, pitch: usize) -> [__m256; 16] {
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
