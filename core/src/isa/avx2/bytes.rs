//! 32 bytes in one register, as AVX2 handles them.

use core::arch::x86_64::*;

use crate::arrays::Each;
use crate::isa::x86::bytes::{bytes, Avx2AndF16c};
use crate::isa::Avx2;
use crate::quant::bytes::Widen;

/// 32 bytes, with AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Bytes {
    register: __m256i,
    negated: Option<[__m256i; 2]>,
}

impl Avx2Bytes {
    /// The bytes before some of them were negated, and a mask of those. `None` if nobody needs them.
    #[inline(always)]
    pub(crate) fn negated(self) -> Option<[__m256i; 2]> {
        self.negated
    }
    #[inline(always)]
    fn of(register: __m256i) -> Self {
        Self { register, negated: None }
    }
}

bytes! { Avx2Bytes {
    mask(bits) => {
        // Each byte gets the byte that holds its bit, then looks at the bit.
        let places = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let byte = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), places);
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit)
    },
    negate(v, bits) => {
        let mask = Self::mask(bits).register;
        let register = _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask);
        Self { register, negated: Some([v, mask]) }
    },
} }

impl Avx2AndF16c for Avx2 {
    type Bytes = Avx2Bytes;
}

// SAFETY: reads LANES bytes.
unsafe impl Widen for Avx2 {
    #[inline(always)]
    unsafe fn widen(p: *const i8) -> __m256 {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn widen_fours(p: *const i8) -> [__m256; 4] {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe {
            let words = _mm256_loadu_si256(p.cast());
            let signed = |top| _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(top));
            [
                signed(_mm256_slli_epi32::<24>(words)),
                signed(_mm256_slli_epi32::<16>(words)),
                signed(_mm256_slli_epi32::<8>(words)),
                signed(words),
            ]
        }
    }
}
