//! Words of 32 bits in registers of 256 bits.

use core::arch::x86_64::*;

use crate::arrays::Each;
use crate::isa::x86::lanes::{halves_of_fp8, homes, places};
use crate::isa::Avx2;
use crate::quant::lanes::{Lanes, UNPACKED};

/// 16 f16 in f32.
#[inline(always)]
unsafe fn singles(halves: __m256i) -> [__m256; 2] {
    // SAFETY: registers only; the caller vouches for the instruction set.
    unsafe {
        let high = _mm256_extracti128_si256::<1>(halves);
        [_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(high)]
    }
}

// SAFETY: reads a register of words, or 16 bytes.
unsafe impl Lanes for Avx2 {
    type I = __m256i;

    #[inline(always)]
    unsafe fn words(p: *const u32) -> __m256i {
        // SAFETY: the caller vouches for the instruction set and the words.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn shr(w: __m256i, n: u32) -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_srl_epi32(w, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    unsafe fn shl(w: __m256i, n: u32) -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_sll_epi32(w, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn mantissa(w: __m256i, mask: u32, above: u32) -> __m256 {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe {
            let (mask, above) = (_mm256_set1_epi32(mask as i32), _mm256_set1_epi32(above as i32));
            _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(w, mask), above))
        }
    }
    #[inline(always)]
    unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [__m256i; UNPACKED] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let of = |eight| _mm256_srlv_epi32(homes::<BITS>(packed, eight), places::<BITS>());
            let mut all = [of(0); UNPACKED];
            all[1] = of(1);
            all
        }
    }

    type Table = [__m256; 2];

    #[inline(always)]
    unsafe fn table<const BITS: u32>(p: *const f32) -> [__m256; 2] {
        // SAFETY: the table's numbers are there.
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(if BITS == 3 { p } else { p.add(8) })] }
    }
    #[inline(always)]
    unsafe fn lookup<const BITS: u32>(table: [__m256; 2], w: __m256i) -> __m256 {
        // SAFETY: registers only; three bits choose, upper ones are ignored.
        unsafe {
            let [low, high] = table.each(|t| _mm256_permutevar8x32_ps(t, w));
            if BITS == 3 {
                return low;
            }
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(w)))
        }
    }
    #[inline(always)]
    unsafe fn none() -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn peak(before: __m256i, w: __m256i) -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_max_epu8(before, _mm256_and_si256(w, _mm256_set1_epi8(0x7f))) }
    }
    #[inline(always)]
    unsafe fn saw_nan(peak: __m256i) -> bool {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(peak, _mm256_set1_epi8(0x7f))) != 0 }
    }
    #[inline(always)]
    unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [__m256; UNPACKED] {
        // SAFETY: the caller's contract.
        unsafe {
            let [low, high] = singles(halves_of_fp8::<E5M2, NAN>(p));
            let mut all = [low; UNPACKED];
            all[1] = high;
            all
        }
    }
    #[inline(always)]
    unsafe fn e4m3(p: *const u8) -> [__m256; 2] {
        // SAFETY: the caller's contract.
        unsafe { singles(halves_of_fp8::<false, false>(p)) }
    }
}
