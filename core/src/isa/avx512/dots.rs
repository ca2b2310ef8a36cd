//! Products of bytes with `vpdpbusd` (AVX512-VNNI), for weights in place.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::transmute;

use crate::arrays::{from_fn, Each};
use crate::isa::avx512::bytes::Avx512Bytes;
use crate::isa::avx512::wide;
use crate::isa::{Avx2, Avx512, Vnni};
use crate::quant::dots::{one_scale, Dots, Factors};
use crate::quant::packed::{Pack, GROUPS, STEPS, STEP_COLS};
use crate::quant::steps::{Coarse, Fine};
use crate::quant::wide::Wide;
use crate::quant::Unpack;
use crate::vector::Vector;

/// [`Dots::settled`]: nothing is executed.
#[inline]
#[target_feature(enable = "avx512f")]
fn settled(mut sums: __m512i) -> __m512i {
    // SAFETY: nothing is executed.
    unsafe { asm!("/* {0} */", inout(zmm_reg) sums, options(nostack, preserves_flags)) };
    sums
}

// SAFETY: reads within units and factors.
unsafe impl<F: Wide> Dots<F> for Vnni
where
    Avx512: Unpack<F, Codes = Avx512Bytes>,
    Avx2: Dots<F, Minima = __m256i, Sums = __m256>,
{
    type Isa = Avx512;
    type Codes = __m512i;
    const COLUMNS: usize = 2 * STEP_COLS;
    type Sums = __m512;
    #[inline(always)]
    unsafe fn codes(unit: *const F::Block, i: usize, ready: &<Avx512 as Unpack<F>>::Ready) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { wide::codes::<F>(unit, i, ready) }
    }
    #[inline(always)]
    unsafe fn zeros() -> __m512 {
        // SAFETY: registers only.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn dot(w: __m512i, x: &Fine, i: usize, factors: &Factors, sums: __m512) -> __m512 {
        let (q, starts) =
            (x.step(i / STEP_COLS).as_ptr(), x.starts.as_ptr().cast::<i32>().wrapping_add(i / 4));
        let (bias, g) = (F::PACKING.bias(), i / F::GROUP);
        // SAFETY: columns of a unit, and their factors.
        unsafe {
            let start = if bias == 0 { _mm512_setzero_si512() } else { _mm512_load_si512(starts.cast()) };
            let dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, w, _mm512_load_si512(q.cast())));
            let factor = _mm512_permutexvar_ps(groups::<F>(g), _mm512_load_ps(factors.0.as_ptr()));
            _mm512_fmadd_ps(dot, factor, sums)
        }
    }
    // f32; so are partial sums, but for one scale: a conversion and a multiplication with addition are faster than a
    // multiplication of 32 bits and an addition.
    type Integers = __m512;
    // In 16 bits.
    type Minima = __m256i;
    type Partial = __m512i;
    #[inline(always)]
    unsafe fn factors(b: *const F::Block, out: *mut __m512) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let (d, factors) = <Avx512 as Unpack<F>>::factors(b);
            widened(factors, out);
            d
        }
    }
    #[inline(always)]
    unsafe fn minima(b: *const F::Block, out: *mut __m256i) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { <Avx2 as Dots<F>>::minima(b, out) }
    }
    #[inline(always)]
    unsafe fn start(x: &Coarse) -> [__m512i; 2] {
        // SAFETY: 128 bytes of activations.
        unsafe {
            if !one_scale::<F>() || F::PACKING.bias() == 0 {
                return [_mm512_setzero_si512(); 2];
            }
            let starts = x.starts.as_ptr().cast::<__m512i>();
            [starts, starts.add(1)].each(|p| _mm512_load_si512(p))
        }
    }
    #[inline(always)]
    unsafe fn dot_coarse(w: __m512i, x: &Coarse, i: usize, factors: &__m512, sums: __m512i) -> __m512i {
        let (q, g) = (x.columns(i), i / F::GROUP);
        let starts = x.starts.as_ptr().cast::<i32>().wrapping_add(i / 4);
        // SAFETY: columns of a unit, and their factors.
        unsafe {
            let q = _mm512_load_si512(q.cast());
            if one_scale::<F>() {
                return _mm512_dpbusd_epi32(sums, w, q);
            }
            let start = if F::PACKING.bias() == 0 {
                _mm512_setzero_si512()
            } else {
                _mm512_load_si512(starts.cast())
            };
            let factor = _mm512_permutexvar_ps(groups::<F>(g), *factors);
            let dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, w, q));
            _mm512_castps_si512(_mm512_fmadd_ps(dot, factor, _mm512_castsi512_ps(sums)))
        }
    }
    #[inline(always)]
    unsafe fn settled(sums: __m512i) -> __m512i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { settled(sums) }
    }
    #[inline(always)]
    unsafe fn joined([even, odd]: [__m512i; 2], _: &Coarse) -> __m512 {
        // SAFETY: registers only.
        unsafe {
            let [even, odd] = if one_scale::<F>() {
                [even, odd].each(|sums| _mm512_cvtepi32_ps(sums))
            } else {
                [even, odd].each(|sums| _mm512_castsi512_ps(sums))
            };
            // Every other 64 columns are alike.
            const {
                assert!(matches!(
                    F::PACKING.shifts,
                    [a, b, c, d, e, f, g, h] if a == e && b == f && c == g && d == h
                ));
            }
            _mm512_fmadd_ps(odd, parts::<F>(2), _mm512_mul_ps(even, parts::<F>(0)))
        }
    }
    #[inline(always)]
    unsafe fn dot_sums(x: &Coarse, minima: &__m256i) -> __m512 {
        // SAFETY: the caller's contract.
        unsafe { _mm512_zextps256_ps512(<Avx2 as Dots<F>>::dot_sums(x, minima)) }
    }
    #[inline(always)]
    unsafe fn times(a: __m512, b: f32) -> __m512 {
        // SAFETY: registers only.
        unsafe { _mm512_mul_ps(a, _mm512_set1_ps(b)) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: f32, c: __m512) -> __m512 {
        // SAFETY: registers only.
        unsafe { _mm512_fmadd_ps(a, _mm512_set1_ps(b), c) }
    }
    #[inline(always)]
    unsafe fn plus(a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn total(sums: __m512) -> f32 {
        // SAFETY: registers only.
        unsafe { <Avx512 as Vector>::reduce_sum(sums) }
    }
}

/// The group of each four of 64 columns, from group `g`.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn groups<F: Pack>(g: usize) -> __m512i {
    // SAFETY: as many bytes, all of which may be anything.
    unsafe { transmute::<[i32; 16], __m512i>(from_fn(|k| (g + 4 * k / F::GROUP) as i32)) }
}

/// The reciprocals of the powers of two by which the codes of two steps are multiplied
/// ([`shifts`](crate::quant::packed::Packing::shifts)).
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn parts<F: Pack>(step: usize) -> __m512 {
    let part = |k: usize| 1.0 / (1u32 << (F::PACKING.shifts[(step + k / 8) % STEPS] % 8)) as f32;
    // SAFETY: as many bytes, all of which may be anything.
    unsafe { transmute::<[f32; 16], __m512>(from_fn(part)) }
}

/// Writes the integers of all groups as f32.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn widened(integers: [i8; GROUPS], out: *mut __m512) {
    // SAFETY: the caller vouches for the room.
    unsafe {
        let integers = transmute::<[i8; 16], __m128i>(integers);
        out.write(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers)));
    }
}
