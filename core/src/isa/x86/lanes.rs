//! What AVX2 and AVX-512 share in unpacking the formats of other checkpoints.

use core::arch::x86_64::*;

use crate::arrays::Each;

/// How far integers lie from the lowest bit.
#[inline(always)]
pub(in crate::isa) unsafe fn places<const BITS: u32>() -> __m256i {
    let b = BITS as i32;
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        if BITS == 8 {
            _mm256_setr_epi32(0, b, 2 * b, 3 * b, 0, b, 2 * b, 3 * b)
        } else {
            _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b)
        }
    }
}

/// Each integer's word, of eight integers.
#[inline(always)]
pub(in crate::isa) unsafe fn homes<const BITS: u32>(packed: [u32; 4], eight: usize) -> __m256i {
    let [a, b, c, d] = packed.each(|p| p as i32);
    let (one, two) = if BITS != 8 {
        if eight == 0 {
            (a, a)
        } else {
            (b, b)
        }
    } else if eight == 0 {
        (a, b)
    } else {
        (c, d)
    };
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        if BITS == 8 {
            _mm256_inserti128_si256::<1>(_mm256_set1_epi32(one), _mm_set1_epi32(two))
        } else {
            _mm256_set1_epi32(one)
        }
    }
}

/// The f16 of 16 bytes, as [`Lanes::fp8`](crate::quant::lanes::Lanes::fp8) says.
#[inline(always)]
pub(in crate::isa) unsafe fn halves_of_fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> __m256i {
    // SAFETY: the caller vouches for AVX2 and 16 bytes.
    unsafe {
        let bytes = _mm_loadu_si128(p.cast());
        if E5M2 {
            return _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(bytes));
        }
        // Sign extension puts the sign into the highest bit; its copies in the bits below have to be cleared.
        let words = _mm256_cvtepi8_epi16(bytes);
        let fields = _mm256_and_si256(_mm256_slli_epi16::<7>(words), _mm256_set1_epi16(0xbf80_u16 as i16));
        if !NAN {
            return fields;
        }
        let most = _mm256_set1_epi16(0x7f);
        let nan = _mm256_cmpeq_epi16(_mm256_and_si256(words, most), most);
        _mm256_or_si256(fields, nan)
    }
}
