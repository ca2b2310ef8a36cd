//! Words of 32 bits in registers of 512 bits.

use core::arch::x86_64::*;

use crate::isa::x86::lanes::{halves_of_fp8, homes, places};
use crate::isa::Avx512;
use crate::quant::lanes::{Lanes, UNPACKED};

// SAFETY: reads a register of words, or 16 or 32 bytes.
unsafe impl Lanes for Avx512 {
    type I = __m512i;

    #[inline(always)]
    unsafe fn words(p: *const u32) -> __m512i {
        // SAFETY: the caller vouches for the instruction set and the words.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn shr(w: __m512i, n: u32) -> __m512i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm512_srl_epi32(w, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    unsafe fn shl(w: __m512i, n: u32) -> __m512i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm512_sll_epi32(w, _mm_cvtsi32_si128(n as i32)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn mantissa(w: __m512i, mask: u32, above: u32) -> __m512 {
        // SAFETY: registers only; the caller vouches for the instruction set. `w & mask | above` is one
        // instruction.
        unsafe {
            let (mask, above) = (_mm512_set1_epi32(mask as i32), _mm512_set1_epi32(above as i32));
            _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xea>(w, mask, above))
        }
    }
    #[inline(always)]
    unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [__m512i; UNPACKED] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let low = _mm512_castsi256_si512(homes::<BITS>(packed, 0));
            let words = _mm512_inserti64x4::<1>(low, homes::<BITS>(packed, 1));
            let places = places::<BITS>();
            let places = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(places), places);
            [_mm512_srlv_epi32(words, places); UNPACKED]
        }
    }

    type Table = __m512;

    #[inline(always)]
    unsafe fn table<const BITS: u32>(p: *const f32) -> __m512 {
        // SAFETY: the table's numbers are there. Eight are repeated: a fourth bit chooses nothing.
        unsafe {
            if BITS == 3 {
                _mm512_broadcast_f32x8(_mm256_loadu_ps(p))
            } else {
                _mm512_loadu_ps(p)
            }
        }
    }
    #[inline(always)]
    unsafe fn lookup<const BITS: u32>(table: __m512, w: __m512i) -> __m512 {
        // SAFETY: registers only; upper bits are ignored.
        unsafe { _mm512_permutexvar_ps(w, table) }
    }
    #[inline(always)]
    unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [__m512; UNPACKED] {
        // SAFETY: the caller's contract.
        unsafe { [_mm512_cvtph_ps(halves_of_fp8::<E5M2, NAN>(p)); UNPACKED] }
    }
    #[inline(always)]
    unsafe fn e4m3(p: *const u8) -> [__m512; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let [low, high] = [halves_of_fp8::<false, false>(p), halves_of_fp8::<false, false>(p.add(16))];
            [_mm512_cvtph_ps(low), _mm512_cvtph_ps(high)]
        }
    }
    #[inline(always)]
    unsafe fn none() -> __m512i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn peak(before: __m512i, w: __m512i) -> __m512i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm512_max_epu8(before, _mm512_and_si512(w, _mm512_set1_epi8(0x7f))) }
    }
    #[inline(always)]
    unsafe fn saw_nan(peak: __m512i) -> bool {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm512_cmpeq_epi8_mask(peak, _mm512_set1_epi8(0x7f)) != 0 }
    }
}
