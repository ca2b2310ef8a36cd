//! 32 bytes in a register of 256 bits, with the instructions that AVX-512 adds. A block of 32 weights would not fill a larger
//! register.

use core::arch::x86_64::*;

use crate::arrays::Each;
use crate::isa::x86::bytes::{bytes, Avx2AndF16c};
use crate::isa::Avx512;
use crate::quant::bytes::Widen;

/// 32 bytes, with AVX-512 BW and VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bytes {
    register: __m256i,
}

impl Avx512Bytes {
    #[inline(always)]
    fn of(register: __m256i) -> Self {
        Self { register }
    }
}

bytes! { Avx512Bytes {
    mask(bits) => _mm256_movm_epi8(bits),
    negate(v, bits) => Self::of(_mm256_mask_sub_epi8(v, bits, _mm256_setzero_si256(), v)),
} }

impl Avx2AndF16c for Avx512 {
    type Bytes = Avx512Bytes;
}

// SAFETY: reads LANES bytes.
unsafe impl Widen for Avx512 {
    #[inline(always)]
    unsafe fn widen(p: *const i8) -> __m512 {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn widen_fours(p: *const i8) -> [__m512; 4] {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe {
            let words = _mm512_loadu_si512(p.cast());
            let signed = |top| _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(top));
            [
                signed(_mm512_slli_epi32::<24>(words)),
                signed(_mm512_slli_epi32::<16>(words)),
                signed(_mm512_slli_epi32::<8>(words)),
                signed(words),
            ]
        }
    }
}
