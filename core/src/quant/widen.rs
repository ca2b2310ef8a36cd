//! Packed integers and scales to f32, per instruction set: what the SIMD rows of layer 3 are written
//! with.

use crate::element::f16;
use crate::isa::{Prim, Vector};
use crate::quant::blocks::{Block, Half};
use crate::quant::{MIN_GROUP, TILE};

/// [`scales`](super::Unpack::scales) for blocks with one f16 scale: gathered first, so that one
/// conversion serves many blocks.
///
/// # Safety
/// That of [`scales`](super::Unpack::scales).
#[inline(always)]
pub(super) unsafe fn halves<P: Prim<f16> + Prim<f32>, B: Block>(
    first: *const B,
    n: usize,
    out: *mut f32,
    scale: impl Fn(&B) -> Half,
) {
    let mut gathered = [f16::ZERO; TILE / MIN_GROUP];
    for (k, h) in gathered.iter_mut().enumerate().take(n) {
        // SAFETY: the caller vouches for n blocks.
        *h = unsafe { scale(&*first.add(k)) }.get();
    }
    let mut k = 0;
    while k < n {
        // SAFETY: both arrays are a multiple of LANES long, and k < n <= their length.
        unsafe { P::store(out.add(k), <P as Prim<f16>>::load(gathered.as_ptr().add(k))) };
        k += P::LANES;
    }
}

/// Integers of a block as f32; exact.
///
/// # Safety
/// Every method requires the instruction set, `i` a multiple of `LANES`, and all whole 16-byte
/// pieces of the array at `p` that hold a requested integer.
pub(crate) unsafe trait Widen: Vector {
    /// Signed bytes `i .. i + LANES`.
    unsafe fn i8s(p: *const u8, i: usize) -> Self::V;
    /// `q - zero` for integers `i .. i + LANES < 32` of 4 bits: the low halves of 16 bytes, then
    /// their high halves.
    unsafe fn nibbles(p: *const u8, i: usize, zero: i8) -> Self::V;
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64 {
    use core::arch::x86_64::*;

    use super::Widen;
    use crate::isa::{Avx2, Avx512};

    /// 0 to 15.
    static CODES: [i32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    // SAFETY: nothing but the requested bytes is read.
    unsafe impl Widen for Avx512 {
        #[inline(always)]
        unsafe fn i8s(p: *const u8, i: usize) -> __m512 {
            // SAFETY: the caller's contract; so below.
            unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.add(i).cast()))) }
        }
        #[inline(always)]
        unsafe fn nibbles(p: *const u8, i: usize, zero: i8) -> __m512 {
            // SAFETY: as above.
            unsafe {
                let bytes = _mm512_broadcast_i32x4(_mm_loadu_si128(p.cast()));
                let codes = _mm512_loadu_si512(CODES.as_ptr().cast());
                // Byte e to lane e, whatever to the lane's upper bytes. Not `vpmovzxbd`: the compiler
                // would move the shift before it, and extend both halves of the same bytes.
                let q = _mm512_shuffle_epi8(bytes, codes);
                // A permutation looks at 4 bits of each index: it masks and converts in one step.
                let codes = _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(i32::from(zero))));
                _mm512_permutexvar_ps(if i < 16 { q } else { _mm512_srli_epi32::<4>(q) }, codes)
            }
        }
    }

    // SAFETY: as above.
    unsafe impl Widen for Avx2 {
        #[inline(always)]
        unsafe fn i8s(p: *const u8, i: usize) -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.add(i).cast()))) }
        }
        #[inline(always)]
        unsafe fn nibbles(p: *const u8, i: usize, zero: i8) -> __m256 {
            // SAFETY: as above.
            unsafe {
                // Not `vpmovzxbd`: the compiler would move the mask and the shift before it, and extend
                // the two halves of the same bytes separately.
                let bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(p.cast()));
                let places = _mm256_add_epi32(
                    _mm256_loadu_si256(CODES.as_ptr().cast()),
                    // The upper three bytes of each lane: from nowhere, so 0.
                    _mm256_set1_epi32((i % 16) as i32 | 0x8080_8000_u32 as i32),
                );
                let q = _mm256_shuffle_epi8(bytes, places);
                let q = if i < 16 {
                    _mm256_and_si256(q, _mm256_set1_epi32(15))
                } else {
                    _mm256_srli_epi32::<4>(q)
                };
                _mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(i32::from(zero))))
            }
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64 {
    use core::arch::aarch64::*;

    use super::Widen;
    use crate::isa::Neon;

    /// Bytes `i .. i + 4` of 16, as f32. With `i` a constant, the pieces that neighbours share are
    /// computed once.
    #[inline(always)]
    unsafe fn quarter(bytes: int8x16_t, i: usize) -> float32x4_t {
        // SAFETY: registers only; the caller vouches for NEON.
        unsafe {
            let half = if i % 16 < 8 { vmovl_s8(vget_low_s8(bytes)) } else { vmovl_high_s8(bytes) };
            vcvtq_f32_s32(if i % 8 < 4 { vmovl_s16(vget_low_s16(half)) } else { vmovl_high_s16(half) })
        }
    }

    // SAFETY: only whole pieces of 16 bytes are read, as the contract says.
    unsafe impl Widen for Neon {
        #[inline(always)]
        unsafe fn i8s(p: *const u8, i: usize) -> float32x4_t {
            // SAFETY: the caller's contract; so below.
            unsafe { quarter(vld1q_s8(p.add(i - i % 16).cast()), i) }
        }
        #[inline(always)]
        unsafe fn nibbles(p: *const u8, i: usize, zero: i8) -> float32x4_t {
            // SAFETY: as above.
            unsafe {
                let q = vld1q_u8(p);
                let q = if i < 16 { vandq_u8(q, vdupq_n_u8(15)) } else { vshrq_n_u8::<4>(q) };
                quarter(vsubq_s8(vreinterpretq_s8_u8(q), vdupq_n_s8(zero)), i)
            }
        }
    }
}
