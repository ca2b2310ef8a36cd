//! Products of weights and activations of 8 bits, by groups, as far as instruction sets differ.

use crate::isa::{Scalar, Vector};

/// Sums of products of signed bytes.
///
/// # Safety
/// Methods require that the CPU has the instruction set; [`dot`](Self::dot) what it says.
pub(crate) unsafe trait Dots: Vector {
    /// 32 codes.
    type Codes: Copy;
    /// Partial sums, f32.
    type Sums: Copy;
    /// Writes 32 codes to `p`.
    unsafe fn put(codes: Self::Codes, p: *mut i8);
    /// No sums.
    unsafe fn zeros() -> Self::Sums;
    /// Multiplies 32 codes with the activations at `x`, which are -127 to 127, exactly, and adds the products
    /// times `by` times `scales[0]` to the sums. With `HALVES` the last 16 have a scale of their own, `scales[1]`.
    /// With `UNSIGNED` no code is negative. Nothing else is read.
    unsafe fn dot<const HALVES: bool, const UNSIGNED: bool>(
        w: Self::Codes,
        x: *const i8,
        by: f32,
        scales: *const f32,
        sums: Self::Sums,
    ) -> Self::Sums;
    /// Their sum.
    unsafe fn total(sums: Self::Sums) -> f32;
}

// SAFETY: reads 32 activations and their scales.
unsafe impl Dots for Scalar {
    type Codes = [i8; 32];
    type Sums = f32;
    #[inline(always)]
    unsafe fn put(codes: [i8; 32], p: *mut i8) {
        // SAFETY: the caller vouches for the room.
        unsafe { p.cast::<[i8; 32]>().write_unaligned(codes) };
    }
    #[inline(always)]
    unsafe fn zeros() -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn dot<const HALVES: bool, const UNSIGNED: bool>(
        w: [i8; 32],
        x: *const i8,
        by: f32,
        scales: *const f32,
        mut sums: f32,
    ) -> f32 {
        let mut dots = [0; 2];
        for (i, w) in w.into_iter().enumerate() {
            // SAFETY: i < 32; the caller vouches for the bytes.
            dots[usize::from(HALVES && i >= 16)] += i32::from(w) * i32::from(unsafe { *x.add(i) });
        }
        for (g, dot) in dots.into_iter().enumerate().take(if HALVES { 2 } else { 1 }) {
            // SAFETY: the caller vouches for the scales.
            sums += dot as f32 * (by * unsafe { *scales.add(g) });
        }
        sums
    }
    #[inline(always)]
    unsafe fn total(sums: f32) -> f32 {
        sums
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64 {
    use core::arch::x86_64::*;

    use super::Dots;
    use crate::isa::{Avx2, Avx512};
    use crate::quant::bytes::{Bytes, Codes};

    macro_rules! dots {
        ($($isa:ident)*) => {$(
            // SAFETY: reads 32 activations and their scales.
            unsafe impl Dots for $isa {
                type Codes = <$isa as Codes>::Bytes;
                type Sums = __m256;
                #[inline(always)]
                unsafe fn put(codes: Self::Codes, p: *mut i8) {
                    // SAFETY: the caller vouches for the room.
                    unsafe { codes.store(p) };
                }
                #[inline(always)]
                unsafe fn zeros() -> __m256 {
                    // SAFETY: registers only.
                    unsafe { _mm256_setzero_ps() }
                }
                #[inline(always)]
                unsafe fn dot<const HALVES: bool, const UNSIGNED: bool>(
                    w: Self::Codes,
                    x: *const i8,
                    by: f32,
                    scales: *const f32,
                    sums: __m256,
                ) -> __m256 {
                    // SAFETY: the caller vouches for what is read.
                    unsafe {
                        let (w, x) = (w.register(), _mm256_loadu_si256(x.cast()));
                        // The left factors are unsigned: magnitudes. Two products are 2 * 128 * 127 at most.
                        let pairs = if UNSIGNED {
                            _mm256_maddubs_epi16(w, x)
                        } else {
                            _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                        };
                        let dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
                        let scale = if HALVES {
                            // The first in the first half, the second in the second one.
                            let both = _mm256_castpd_ps(_mm256_set1_pd(scales.cast::<f64>().read_unaligned()));
                            _mm256_permutevar_ps(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1))
                        } else {
                            _mm256_set1_ps(*scales)
                        };
                        _mm256_fmadd_ps(dot, _mm256_mul_ps(scale, _mm256_set1_ps(by)), sums)
                    }
                }
                #[inline(always)]
                unsafe fn total(sums: __m256) -> f32 {
                    // SAFETY: registers only.
                    unsafe { <Avx2 as crate::isa::Vector>::reduce_sum(sums) }
                }
            }
        )*};
    }
    dots! { Avx2 Avx512 }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64 {
    use core::arch::aarch64::*;

    use super::Dots;
    use crate::isa::Neon;
    use crate::quant::bytes::{Bytes, Codes};

    /// The sums of four products each, of 16.
    ///
    /// # Safety
    /// 16 bytes at `x`.
    #[inline(always)]
    unsafe fn fours(w: int8x16_t, x: *const i8) -> int32x4_t {
        // SAFETY: the caller's contract. Two products are 2 * 128 * 127 at most.
        unsafe {
            let x = vld1q_s8(x);
            let pairs = vmull_s8(vget_low_s8(w), vget_low_s8(x));
            vpaddlq_s16(vmlal_high_s8(pairs, w, x))
        }
    }

    // SAFETY: reads 32 activations and their scales.
    unsafe impl Dots for Neon {
        type Codes = <Neon as Codes>::Bytes;
        type Sums = float32x4_t;
        #[inline(always)]
        unsafe fn put(codes: Self::Codes, p: *mut i8) {
            // SAFETY: the caller vouches for the room.
            unsafe { codes.store(p) };
        }
        #[inline(always)]
        unsafe fn zeros() -> float32x4_t {
            // SAFETY: registers only.
            unsafe { vdupq_n_f32(0.0) }
        }
        #[inline(always)]
        unsafe fn dot<const HALVES: bool, const UNSIGNED: bool>(
            w: Self::Codes,
            x: *const i8,
            by: f32,
            scales: *const f32,
            sums: float32x4_t,
        ) -> float32x4_t {
            // SAFETY: the caller vouches for what is read.
            unsafe {
                let [first, second] = w.registers();
                let (first, second) = (fours(first, x), fours(second, x.add(16)));
                let scaled =
                    |dot, scale: *const f32, sums| vfmaq_n_f32(sums, vcvtq_f32_s32(dot), *scale * by);
                if HALVES {
                    scaled(second, scales.add(1), scaled(first, scales, sums))
                } else {
                    scaled(vaddq_s32(first, second), scales, sums)
                }
            }
        }
        #[inline(always)]
        unsafe fn total(sums: float32x4_t) -> f32 {
            // SAFETY: registers only.
            unsafe { vaddvq_f32(sums) }
        }
    }
}
