//! Products of bytes with `vpmaddubsw`, for weights in place. AVX-512 without VNNI uses them, too.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::transmute;

use crate::arrays::Each;
use crate::isa::Avx2;
use crate::quant::bytes::SimdUnpack;
use crate::quant::dots::{one_scale, part, two_groups, Dots, Factors};
use crate::quant::packed::{Pack, GROUPS, STEPS, STEP_COLS};
use crate::quant::steps::{Coarse, Fine};
use crate::quant::Unpack;
use crate::vector::Vector;

/// The sums of two products each of a step, with the bias of [`add_bias`] in them. `negated` are the codes with their signs, if their magnitudes are multiplied.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn pairs<F: Pack>(w: __m256i, negated: Option<[__m256i; 2]>, q: *const i8) -> __m256i {
    // SAFETY: a step of activations. Two products are 2 * 128 * 127 at most.
    unsafe {
        let q = _mm256_load_si256(q.cast());
        match (add_bias::<F>(), negated) {
            (Some(bias), _) => _mm256_maddubs_epi16(_mm256_add_epi8(w, _mm256_set1_epi8(bias as i8)), q),
            // Activations are negated instead.
            (None, Some([w, mask])) => {
                _mm256_maddubs_epi16(w, _mm256_sub_epi8(_mm256_xor_si256(q, mask), mask))
            }
            (None, None) => _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)),
        }
    }
}

/// The bias that makes codes unsigned bytes. `None` if they are too large for that; their magnitudes are multiplied then.
#[inline(always)]
fn add_bias<F: Pack>() -> Option<u8> {
    let bias = F::PACKING.bias();
    (bias <= 64).then_some(bias)
}

/// Whether sums of half of a block's products of pairs are kept in 16 bits: codes are below 4.
const fn narrow<F: Pack>() -> bool {
    one_scale::<F>() && F::PACKING.bits[0] + F::PACKING.bits[1] <= 2
}

/// [`Dots::settled`]: nothing is executed.
#[inline]
#[target_feature(enable = "avx2")]
fn settled(mut sums: __m256i) -> __m256i {
    // SAFETY: nothing is executed.
    unsafe { asm!("/* {0} */", inout(ymm_reg) sums, options(nostack, preserves_flags)) };
    sums
}

// SAFETY: reads within units and factors.
unsafe impl<F: Pack> Dots<F> for Avx2
where
    Avx2: Unpack<F, Codes = <Avx2 as SimdUnpack>::Bytes>,
{
    type Isa = Avx2;
    type Codes = <Avx2 as SimdUnpack>::Bytes;
    const COLUMNS: usize = STEP_COLS;
    type Sums = __m256;
    #[inline(always)]
    unsafe fn codes(unit: *const F::Block, i: usize, ready: &<Avx2 as Unpack<F>>::Ready) -> Self::Codes {
        // SAFETY: the caller's contract.
        unsafe { part::<F, Avx2>(unit, i, ready) }
    }
    #[inline(always)]
    unsafe fn zeros() -> __m256 {
        // SAFETY: registers only.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn dot(w: Self::Codes, x: &Fine, i: usize, factors: &Factors, sums: __m256) -> __m256 {
        // SAFETY: the caller's contract; the columns have these factors.
        unsafe {
            let (first, g) = (factors.0.as_ptr(), i / F::GROUP);
            let factor = if two_groups::<F>() {
                let [a, b] = [g % 8, g % 8 + 1].each(|g| g as i32);
                let groups = _mm256_setr_epi32(a, a, a, a, b, b, b, b);
                _mm256_permutevar8x32_ps(_mm256_load_ps(first.add(g / 8 * 8)), groups)
            } else {
                _mm256_set1_ps(*first.add(g))
            };
            let step = i / STEP_COLS;
            let mut dot = _mm256_madd_epi16(
                pairs::<F>(w.register(), w.negated(), x.step(step).as_ptr()),
                _mm256_set1_epi16(1),
            );
            if add_bias::<F>().is_some_and(|bias| bias > 0) {
                dot = _mm256_add_epi32(dot, _mm256_load_si256(x.starts[step % STEPS].as_ptr().cast()));
            }
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sums)
        }
    }
    // Each twice, in 16 bits.
    type Integers = [__m256i; 2];
    // In 16 bits.
    type Minima = __m256i;
    type Partial = __m256i;
    #[inline(always)]
    unsafe fn factors(b: *const F::Block, out: *mut [__m256i; 2]) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let (d, mut factors) = <Avx2 as Unpack<F>>::factors(b);
            if two_groups::<F>() {
                // Those of first halves of steps, then those of second ones.
                factors =
                    [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15].each(|g| factors[g % GROUPS]);
            }
            let all = transmute::<[i8; GROUPS], __m128i>(factors);
            let twice = |v| _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(v, v));
            let out = out.cast::<__m256i>();
            out.write(twice(all));
            if two_groups::<F>() {
                out.add(1).write(twice(_mm_srli_si128::<8>(all)));
            }
            d
        }
    }
    #[inline(always)]
    unsafe fn minima(b: *const F::Block, out: *mut __m256i) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let (d, minima) = <Avx2 as Unpack<F>>::minima(b);
            out.write(_mm256_cvtepi8_epi16(transmute::<[i8; GROUPS], __m128i>(minima)));
            d
        }
    }
    #[inline(always)]
    unsafe fn start(_: &Coarse) -> [__m256i; 2] {
        // SAFETY: registers only.
        unsafe { [_mm256_setzero_si256(); 2] }
    }
    #[inline(always)]
    unsafe fn dot_coarse(
        w: Self::Codes,
        x: &Coarse,
        i: usize,
        factors: &[__m256i; 2],
        sums: __m256i,
    ) -> __m256i {
        // SAFETY: the caller's contract; the columns have these factors.
        unsafe {
            let (mut pairs, g) = (pairs::<F>(w.register(), w.negated(), x.columns(i)), i / F::GROUP);
            if narrow::<F>() {
                return _mm256_add_epi16(sums, pairs);
            }
            if add_bias::<F>().is_some_and(|bias| bias > 0) {
                let start = x.pair_starts[i / STEP_COLS % STEPS].as_ptr();
                pairs = _mm256_add_epi16(pairs, _mm256_load_si256(start.cast()));
            }
            let factor = if one_scale::<F>() {
                _mm256_set1_epi16(1)
            } else if two_groups::<F>() {
                // One shuffle: the compiler makes two of a permutation.
                let four = factors[g / 8 % 2];
                match g / 2 % 4 {
                    0 => _mm256_shuffle_epi32::<0b00_00_00_00>(four),
                    1 => _mm256_shuffle_epi32::<0b01_01_01_01>(four),
                    2 => _mm256_shuffle_epi32::<0b10_10_10_10>(four),
                    _ => _mm256_shuffle_epi32::<0b11_11_11_11>(four),
                }
            } else {
                _mm256_set1_epi32(*factors.as_ptr().cast::<i32>().add(g))
            };
            _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, factor))
        }
    }
    #[inline(always)]
    unsafe fn settled(sums: __m256i) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { settled(sums) }
    }
    #[inline(always)]
    unsafe fn joined([even, odd]: [__m256i; 2], x: &Coarse) -> __m256 {
        // SAFETY: 32 bytes of activations.
        unsafe {
            _mm256_cvtepi32_ps(if narrow::<F>() {
                let start = _mm256_load_si256(x.pair_starts.as_ptr().cast());
                let pairs = _mm256_add_epi16(_mm256_add_epi16(even, odd), start);
                _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
            } else {
                _mm256_add_epi32(even, odd)
            })
        }
    }
    #[inline(always)]
    unsafe fn dot_sums(x: &Coarse, minima: &__m256i) -> __m256 {
        // SAFETY: the sums of all groups.
        unsafe { _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_load_si256(x.sums.as_ptr().cast()), *minima)) }
    }
    #[inline(always)]
    unsafe fn times(a: __m256, b: f32) -> __m256 {
        // SAFETY: registers only.
        unsafe { _mm256_mul_ps(a, _mm256_set1_ps(b)) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: f32, c: __m256) -> __m256 {
        // SAFETY: registers only.
        unsafe { _mm256_fmadd_ps(a, _mm256_set1_ps(b), c) }
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
