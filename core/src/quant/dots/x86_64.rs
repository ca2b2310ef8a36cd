//! AVX2, AVX-512, and AVX-512 with VNNI.

use core::arch::x86_64::*;

use super::{halves, Dots, Hold};
use crate::isa::{Avx2, Avx512, Vector};
use crate::ops::activations::Unit;
use crate::quant::bytes::{Bytes, Codes};
use crate::quant::packed::{Pack, STEPS};

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

/// Sums of four products, of 32: `w` are magnitudes or unsigned codes up to 128.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn fours(w: __m256i, x: __m256i) -> __m256i {
    // SAFETY: registers only. Two products are 2 * 128 * 127 at most.
    unsafe { _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)) }
}

/// A step's sums of four products each, with AVX2.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn maddubs<F: Pack>(w: __m256i, x: &Unit, step: usize) -> __m256i {
    let bias = F::PACKING.bias();
    // SAFETY: a step of a unit.
    unsafe {
        let q = _mm256_load_si256(x.step(step).as_ptr().cast());
        match bias {
            0 => fours(w, q),
            1..=64 => {
                let start = _mm256_load_si256(x.starts[step % STEPS].as_ptr().cast());
                _mm256_add_epi32(fours(_mm256_add_epi8(w, _mm256_set1_epi8(bias as i8)), q), start)
            }
            _ => fours(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)),
        }
    }
}

/// A step's sums of four products each, with VNNI.
///
/// # Safety
/// AVX-512 VL and VNNI.
#[inline(always)]
unsafe fn vnni<F: Pack>(w: __m256i, x: &Unit, step: usize) -> __m256i {
    let bias = F::PACKING.bias();
    // SAFETY: a step of a unit.
    unsafe {
        let q = _mm256_load_si256(x.step(step).as_ptr().cast());
        if bias == 0 {
            return _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, q);
        }
        let start = _mm256_load_si256(x.starts[step % STEPS].as_ptr().cast());
        _mm256_dpbusd_epi32(start, _mm256_add_epi8(w, _mm256_set1_epi8(bias as i8)), q)
    }
}

/// Adds sums times factors.
///
/// # Safety
/// AVX2 and FMA; the step's factors.
#[inline(always)]
unsafe fn scaled<F: Pack>(dot: __m256i, factors: *const f32, sums: __m256) -> __m256 {
    // SAFETY: the caller vouches for the factors.
    unsafe {
        let factor = if halves::<F>() {
            // The first in the first half, the second in the second one.
            let both = _mm256_castpd_ps(_mm256_set1_pd(factors.cast::<f64>().read_unaligned()));
            _mm256_permutevar_ps(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1))
        } else {
            _mm256_set1_ps(*factors)
        };
        _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sums)
    }
}

macro_rules! dots {
    ($($engine:ident: $isa:ident, $dot:ident;)*) => {$(
        // SAFETY: reads two factors at most.
        unsafe impl Dots for $engine {
            type Isa = $isa;
            type Sums = __m256;
            #[inline(always)]
            unsafe fn zeros() -> __m256 {
                // SAFETY: registers only.
                unsafe { _mm256_setzero_ps() }
            }
            #[inline(always)]
            unsafe fn dot<F: Pack>(
                w: <$isa as Hold>::Codes,
                x: &Unit,
                step: usize,
                factors: *const f32,
                sums: __m256,
            ) -> __m256 {
                // SAFETY: the caller's contract.
                unsafe { scaled::<F>($dot::<F>(w.register(), x, step), factors, sums) }
            }
            #[inline(always)]
            unsafe fn plus(a: __m256, b: __m256) -> __m256 {
                // SAFETY: registers only.
                unsafe { _mm256_add_ps(a, b) }
            }
            #[inline(always)]
            unsafe fn total(sums: __m256) -> f32 {
                // SAFETY: registers only.
                unsafe { <Avx2 as Vector>::reduce_sum(sums) }
            }
        }
    )*};
}
dots! {
    Avx2: Avx2, maddubs;
    Avx512: Avx512, maddubs;
    Vnni: Avx512, vnni;
}
