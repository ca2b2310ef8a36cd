//! AVX2, AVX-512, and AVX-512 with VNNI.

use core::arch::asm;
use core::arch::x86_64::*;

use super::{halves, part, Dots, Factors, Hold};
use crate::arrays::Each;
use crate::isa::{Avx2, Avx512, Vector};
use crate::ops::activations::Unit;
use crate::quant::bytes::{Bytes, Codes};
use crate::quant::packed::{Pack, STEP, STEPS};
use crate::quant::wide::Wide;
use crate::quant::Unpack;

macro_rules! hold {
    ($($isa:ident)*) => {$(
        // SAFETY: writes 32 bytes.
        unsafe impl Hold for $isa {
            type Codes = <$isa as Codes>::Bytes;
            #[inline(always)]
            unsafe fn put(codes: Self::Codes, p: *mut i8) {
                // SAFETY: the caller vouches for the room.
                unsafe { codes.store(p) };
            }
        }
    )*};
}
hold! { Avx2 Avx512 }

/// AVX-512 with VNNI.
pub(crate) struct Vnni;

/// Sums of four products, of 32, times `2^shift`: `w` are magnitudes or unsigned codes up to 128.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn fours(w: __m256i, x: __m256i, shift: usize) -> __m256i {
    // SAFETY: registers only. Two products are 2 * 128 * 127 at most.
    unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1 << shift)) }
}

/// The sums of four products each of a step.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn maddubs<F: Pack>(w: __m256i, x: &Unit, step: usize) -> __m256i {
    let (bias, shift) = (F::PACKING.bias(), F::PACKING.shifts[step % STEPS]);
    // SAFETY: a step of a unit.
    unsafe {
        let q = _mm256_load_si256(x.step(step).as_ptr().cast());
        match bias {
            0 => fours(w, q, shift),
            1..=64 => {
                let start = _mm256_load_si256(x.starts[step % STEPS].as_ptr().cast());
                _mm256_add_epi32(fours(_mm256_add_epi8(w, _mm256_set1_epi8(bias as i8)), q, shift), start)
            }
            _ => fours(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w), shift),
        }
    }
}

macro_rules! settled {
    ($($name:ident: $register:ident, $class:ident, $features:literal;)*) => {$(
        /// [`Dots::settled`]: nothing is executed.
        #[inline]
        #[target_feature(enable = $features)]
        fn $name(mut sums: $register) -> $register {
            // SAFETY: nothing is executed.
            unsafe { asm!("/* {0} */", inout($class) sums, options(nostack, preserves_flags)) };
            sums
        }
    )*};
}
settled! {
    settled_256: __m256, ymm_reg, "avx2";
    settled_512: __m512, zmm_reg, "avx512f";
}

macro_rules! dots {
    ($($isa:ident)*) => {$(
        // SAFETY: reads within units and factors.
        unsafe impl<F: Pack> Dots<F> for $isa
        where
            $isa: Unpack<F, Codes = <$isa as Codes>::Bytes>,
        {
            type Isa = $isa;
            type Codes = __m256i;
            const COLUMNS: usize = STEP;
            type Sums = __m256;
            #[inline(always)]
            unsafe fn codes(unit: *const F::Block, i: usize, ready: &<$isa as Unpack<F>>::Ready) -> __m256i {
                // SAFETY: the caller's contract.
                unsafe { part::<F, $isa>(unit, i, ready).register() }
            }
            #[inline(always)]
            unsafe fn zeros() -> __m256 {
                // SAFETY: registers only.
                unsafe { _mm256_setzero_ps() }
            }
            #[inline(always)]
            unsafe fn dot(w: __m256i, x: &Unit, i: usize, factors: &Factors, sums: __m256) -> __m256 {
                // SAFETY: the caller's contract; the columns have these factors.
                unsafe {
                    let (first, g) = (factors.0.as_ptr(), i / F::GROUP);
                    let factor = if halves::<F>() {
                        let [a, b] = [g % 8, g % 8 + 1].each(|g| g as i32);
                        let groups = _mm256_setr_epi32(a, a, a, a, b, b, b, b);
                        _mm256_permutevar8x32_ps(_mm256_load_ps(first.add(g / 8 * 8)), groups)
                    } else {
                        _mm256_set1_ps(*first.add(g))
                    };
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(maddubs::<F>(w, x, i / STEP)), factor, sums)
                }
            }
            #[inline(always)]
            unsafe fn settled(sums: __m256) -> __m256 {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { settled_256(sums) }
            }
            #[inline(always)]
            unsafe fn plus(a: __m256, b: __m256) -> __m256 {
                // SAFETY: registers only.
                unsafe { _mm256_add_ps(a, b) }
            }
            #[inline(always)]
            unsafe fn scaled(a: __m256, b: f32, c: __m256) -> __m256 {
                // SAFETY: registers only.
                unsafe { _mm256_fmadd_ps(a, _mm256_set1_ps(b), c) }
            }
            #[inline(always)]
            unsafe fn total(sums: __m256) -> f32 {
                // SAFETY: registers only.
                unsafe { <Avx2 as Vector>::reduce_sum(sums) }
            }
        }
    )*};
}
dots! { Avx2 Avx512 }

// SAFETY: reads within units and factors.
unsafe impl<F: Pack> Dots<F> for Vnni
where
    Avx512: Wide<F>,
{
    type Isa = Avx512;
    type Codes = __m512i;
    const COLUMNS: usize = if <Avx512 as Wide<F>>::WIDE { 2 * STEP } else { STEP };
    // Of 32 columns in the first half.
    type Sums = __m512;
    #[inline(always)]
    unsafe fn codes(unit: *const F::Block, i: usize, ready: &<Avx512 as Unpack<F>>::Ready) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { Avx512::wide(unit, i, ready).0 }
    }
    #[inline(always)]
    unsafe fn zeros() -> __m512 {
        // SAFETY: registers only.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn dot(w: __m512i, x: &Unit, i: usize, factors: &Factors, sums: __m512) -> __m512 {
        let (q, starts) = (x.columns().wrapping_add(i), x.starts.as_ptr().cast::<i32>().wrapping_add(i / 4));
        let (bias, g) = (F::PACKING.bias(), i / F::GROUP);
        // SAFETY: columns of a unit, and their factors.
        unsafe {
            if <Avx512 as Wide<F>>::WIDE {
                let start = if bias == 0 { _mm512_setzero_si512() } else { _mm512_load_si512(starts.cast()) };
                let dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, w, _mm512_load_si512(q.cast())));
                let [a, b, c, d] =
                    if halves::<F>() { [0, 1, 2, 3] } else { [0, 0, 1, 1] }.each(|k| g as i32 + k);
                let groups = _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
                let factor = _mm512_permutexvar_ps(groups, _mm512_load_ps(factors.0.as_ptr()));
                _mm512_fmadd_ps(dot, factor, sums)
            } else {
                let start = if bias == 0 { _mm256_setzero_si256() } else { _mm256_load_si256(starts.cast()) };
                let w = _mm512_castsi512_si256(w);
                let dot = _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(start, w, _mm256_load_si256(q.cast())));
                let factor = _mm256_set1_ps(*factors.0.as_ptr().add(g));
                _mm512_castps256_ps512(_mm256_fmadd_ps(dot, factor, _mm512_castps512_ps256(sums)))
            }
        }
    }
    #[inline(always)]
    unsafe fn settled(sums: __m512) -> __m512 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { settled_512(sums) }
    }
    #[inline(always)]
    unsafe fn plus(a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn scaled(a: __m512, b: f32, c: __m512) -> __m512 {
        // SAFETY: registers only.
        unsafe { _mm512_fmadd_ps(a, _mm512_set1_ps(b), c) }
    }
    #[inline(always)]
    unsafe fn total(sums: __m512) -> f32 {
        // SAFETY: registers only.
        unsafe {
            if <Avx512 as Wide<F>>::WIDE {
                <Avx512 as Vector>::reduce_sum(sums)
            } else {
                <Avx2 as Vector>::reduce_sum(_mm512_castps512_ps256(sums))
            }
        }
    }
}
