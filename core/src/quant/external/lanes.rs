//! What unpacking external formats asks of an instruction set beyond layer 1.

use super::STEP;
use crate::element::f16;
use crate::isa::{Prim, Scalar};

/// Unpacking.
///
/// # Safety
/// Every method requires that the CPU has the instruction set and that what a pointer is said to point to
/// exists. Nothing else is touched.
pub(crate) unsafe trait Lanes: Prim<f16> + Prim<f32> {
    /// 16 numbers at `p`, E5M2 or else E4M3 times 2^-8, in the first `16 / LANES` vectors.
    unsafe fn fp8<const E5M2: bool>(p: *const u8) -> [Self::V; STEP];
}

/// The f16 that an E5M2 number (the upper half of an f16) is, or an E4M3 number times 2^-8: its fields in the
/// places of f16's, with the exponent's bias unchanged.
fn half<const E5M2: bool>(byte: u8) -> u16 {
    let byte = u16::from(byte);
    if E5M2 {
        byte << 8
    } else if byte & 0x7f == 0x7f {
        0x7fff
    } else {
        (byte & 0x80) << 8 | (byte & 0x7f) << 7
    }
}

// SAFETY: reads 16 bytes.
unsafe impl Lanes for Scalar {
    #[inline(always)]
    unsafe fn fp8<const E5M2: bool>(p: *const u8) -> [f32; STEP] {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { p.cast::<[u8; STEP]>().read() };
        bytes.map(|b| f16::from_bits(half::<E5M2>(b)).to_f32())
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64 {
    use core::arch::x86_64::*;

    use super::{Lanes, STEP};
    use crate::isa::{Avx2, Avx512};

    /// [`half`](super::half) of 16 bytes.
    #[inline(always)]
    unsafe fn halves<const E5M2: bool>(p: *const u8) -> __m256i {
        // SAFETY: the caller vouches for AVX2 and 16 bytes.
        unsafe {
            let bytes = _mm_loadu_si128(p.cast());
            if E5M2 {
                return _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(bytes));
            }
            // Sign extension puts the sign into the right place; below it, it has to go.
            let words = _mm256_cvtepi8_epi16(bytes);
            let fields =
                _mm256_and_si256(_mm256_slli_epi16::<7>(words), _mm256_set1_epi16(0xbf80_u16 as i16));
            let most = _mm256_set1_epi16(0x7f);
            let nan = _mm256_cmpeq_epi16(_mm256_and_si256(words, most), most);
            _mm256_or_si256(fields, nan)
        }
    }

    // SAFETY: reads 16 bytes.
    unsafe impl Lanes for Avx512 {
        #[inline(always)]
        unsafe fn fp8<const E5M2: bool>(p: *const u8) -> [__m512; STEP] {
            // SAFETY: the caller's contract.
            unsafe { [_mm512_cvtph_ps(halves::<E5M2>(p)); STEP] }
        }
    }

    // SAFETY: reads 16 bytes.
    unsafe impl Lanes for Avx2 {
        #[inline(always)]
        unsafe fn fp8<const E5M2: bool>(p: *const u8) -> [__m256; STEP] {
            // SAFETY: the caller's contract.
            unsafe {
                let halves = halves::<E5M2>(p);
                let low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
                let mut all = [low; STEP];
                all[1] = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves));
                all
            }
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64 {
    use core::arch::aarch64::*;

    use super::{Lanes, STEP};
    use crate::element::f16;
    use crate::isa::{Neon, Prim};

    /// [`half`](super::half) of 8 bytes.
    #[inline(always)]
    unsafe fn halves<const E5M2: bool>(bytes: uint8x8_t) -> uint16x8_t {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            if E5M2 {
                return vshll_n_u8::<8>(bytes);
            }
            // Sign extension puts the sign into the right place; below it, it has to go.
            let words = vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(bytes)));
            let fields = vandq_u16(vshlq_n_u16::<7>(words), vdupq_n_u16(0xbf80));
            let most = vdupq_n_u16(0x7f);
            vorrq_u16(fields, vceqq_u16(vandq_u16(words, most), most))
        }
    }

    // SAFETY: reads 16 bytes.
    unsafe impl Lanes for Neon {
        #[inline(always)]
        unsafe fn fp8<const E5M2: bool>(p: *const u8) -> [float32x4_t; STEP] {
            // SAFETY: the caller vouches for 16 bytes; the halves are read from where they were written.
            unsafe {
                let bytes = vld1q_u8(p);
                let mut halves16 = [f16::ZERO; STEP];
                let at = halves16.as_mut_ptr();
                vst1q_u16(at.cast(), halves::<E5M2>(vget_low_u8(bytes)));
                vst1q_u16(at.add(8).cast(), halves::<E5M2>(vget_high_u8(bytes)));
                let mut all = [vdupq_n_f32(0.0); STEP];
                for (i, v) in all.iter_mut().enumerate().take(STEP / 4) {
                    *v = <Self as Prim<f16>>::load(at.add(4 * i));
                }
                all
            }
        }
    }
}
