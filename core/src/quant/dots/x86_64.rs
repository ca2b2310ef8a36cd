//! AVX2, AVX-512, and AVX-512 with VNNI.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::transmute;

use super::{halves, one_scale, part, Dots, Factors, Hold};
use crate::arrays::{from_fn, Each};
use crate::isa::{Avx2, Avx512, Vector};
use crate::ops::activations::{Coarse, Unit};
use crate::quant::bytes::{Bytes, Codes};
use crate::quant::packed::{Pack, GROUPS, STEP, STEPS};
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

/// The sums of two products each of a step, with the bias of [`add_bias`] in them. `negated` is what codes were before.
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

/// What is added to codes, which are then multiplied as unsigned bytes; `None` if their magnitudes are, as they are large.
#[inline(always)]
fn add_bias<F: Pack>() -> Option<u8> {
    let bias = F::PACKING.bias();
    (bias <= 64).then_some(bias)
}

/// Whether sums of half of a block's products of pairs are kept in 16 bits: codes are below 4.
const fn narrow<F: Pack>() -> bool {
    one_scale::<F>() && F::PACKING.bits[0] + F::PACKING.bits[1] <= 2
}

/// An instruction on whole registers, or where there are 32 columns on their first halves, which takes half as long.
macro_rules! both {
    ($format:ident, $whole:ident, $half:ident, $($operand:expr),+) => {
        if <Avx512 as Wide<$format>>::WIDE {
            $whole($($operand),+)
        } else {
            _mm512_castps256_ps512($half($(_mm512_castps512_ps256($operand)),+))
        }
    };
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
    settled_256: __m256i, ymm_reg, "avx2";
    settled_512: __m512i, zmm_reg, "avx512f";
}

// SAFETY: reads within units and factors.
unsafe impl<F: Pack> Dots<F> for Avx2
where
    Avx2: Unpack<F, Codes = <Avx2 as Codes>::Bytes>,
{
    type Isa = Avx2;
    type Codes = <Avx2 as Codes>::Bytes;
    const COLUMNS: usize = STEP;
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
    unsafe fn dot(w: Self::Codes, x: &Unit, i: usize, factors: &Factors, sums: __m256) -> __m256 {
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
            let step = i / STEP;
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
        // SAFETY: the caller's contract; so below.
        unsafe {
            let (d, mut factors) = <Avx2 as Unpack<F>>::factors(b);
            if halves::<F>() {
                // Those of first halves of steps, then those of second ones.
                factors =
                    [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15].each(|g| factors[g % GROUPS]);
            }
            let all = transmute::<[i8; GROUPS], __m128i>(factors);
            let twice = |v| _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(v, v));
            let out = out.cast::<__m256i>();
            out.write(twice(all));
            if halves::<F>() {
                out.add(1).write(twice(_mm_srli_si128::<8>(all)));
            }
            d
        }
    }
    #[inline(always)]
    unsafe fn minima(b: *const F::Block, out: *mut __m256i) -> f32 {
        // SAFETY: as above.
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
                let start = x.pair_starts[i / STEP % STEPS].as_ptr();
                pairs = _mm256_add_epi16(pairs, _mm256_load_si256(start.cast()));
            }
            let factor = if one_scale::<F>() {
                _mm256_set1_epi16(1)
            } else if halves::<F>() {
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
        unsafe { settled_256(sums) }
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

// SAFETY: reads within units and factors.
unsafe impl<F: Pack> Dots<F> for Vnni
where
    Avx512: Wide<F>,
    Avx2: Dots<F, Minima = __m256i, Sums = __m256>,
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
        let (q, starts) = (x.step(i / STEP).as_ptr(), x.starts.as_ptr().cast::<i32>().wrapping_add(i / 4));
        let (bias, g) = (F::PACKING.bias(), i / F::GROUP);
        // SAFETY: columns of a unit, and their factors.
        unsafe {
            if <Avx512 as Wide<F>>::WIDE {
                let start = if bias == 0 { _mm512_setzero_si512() } else { _mm512_load_si512(starts.cast()) };
                let dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, w, _mm512_load_si512(q.cast())));
                let factor = _mm512_permutexvar_ps(groups::<F>(g), _mm512_load_ps(factors.0.as_ptr()));
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
    // f32; so are partial sums, but for one scale: a conversion and a multiplication with addition are faster than a
    // multiplication of 32 bits and an addition.
    type Integers = __m512;
    // In 16 bits.
    type Minima = __m256i;
    type Partial = __m512i;
    #[inline(always)]
    unsafe fn factors(b: *const F::Block, out: *mut __m512) -> f32 {
        // SAFETY: the caller's contract; so below.
        unsafe {
            let (d, factors) = <Avx512 as Unpack<F>>::factors(b);
            widened::<F>(factors, out);
            d
        }
    }
    #[inline(always)]
    unsafe fn minima(b: *const F::Block, out: *mut __m256i) -> f32 {
        // SAFETY: as above.
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
            let all = [starts, starts.add(1)].each(|p| _mm512_load_si512(p));
            if <Avx512 as Wide<F>>::WIDE {
                return all;
            }
            all.each(|two| {
                let second = _mm512_extracti64x4_epi64::<1>(two);
                _mm512_castsi256_si512(_mm256_add_epi32(_mm512_castsi512_si256(two), second))
            })
        }
    }
    #[inline(always)]
    unsafe fn dot_coarse(w: __m512i, x: &Coarse, i: usize, factors: &__m512, sums: __m512i) -> __m512i {
        let (q, g) = (x.columns(i), i / F::GROUP);
        let starts = x.starts.as_ptr().cast::<i32>().wrapping_add(i / 4);
        // SAFETY: columns of a unit, and their factors.
        unsafe {
            if <Avx512 as Wide<F>>::WIDE {
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
            } else {
                let (w, sums) = (_mm512_castsi512_si256(w), _mm512_castsi512_si256(sums));
                let q = _mm256_load_si256(q.cast());
                _mm512_castsi256_si512(if one_scale::<F>() {
                    _mm256_dpbusd_epi32(sums, w, q)
                } else {
                    let start = if F::PACKING.bias() == 0 {
                        _mm256_setzero_si256()
                    } else {
                        _mm256_load_si256(starts.cast())
                    };
                    let factor = _mm256_set1_ps(*(&raw const *factors).cast::<f32>().add(g));
                    let dot = _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(start, w, q));
                    _mm256_castps_si256(_mm256_fmadd_ps(dot, factor, _mm256_castsi256_ps(sums)))
                })
            }
        }
    }
    #[inline(always)]
    unsafe fn settled(sums: __m512i) -> __m512i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { settled_512(sums) }
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
            if <Avx512 as Wide<F>>::WIDE {
                // Every other 64 columns are alike.
                const {
                    assert!(matches!(
                        F::PACKING.shifts,
                        [a, b, c, d, e, f, g, h] if a == e && b == f && c == g && d == h
                    ));
                }
                _mm512_fmadd_ps(odd, parts::<F>(2), _mm512_mul_ps(even, parts::<F>(0)))
            } else {
                <Self as Dots<F>>::plus(even, odd)
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_sums(x: &Coarse, minima: &__m256i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_zextps256_ps512(<Avx2 as Dots<F>>::dot_sums(x, minima)) }
    }
    #[inline(always)]
    unsafe fn times(a: __m512, b: f32) -> __m512 {
        // SAFETY: registers only.
        unsafe { both!(F, _mm512_mul_ps, _mm256_mul_ps, a, _mm512_set1_ps(b)) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: f32, c: __m512) -> __m512 {
        // SAFETY: registers only.
        unsafe { both!(F, _mm512_fmadd_ps, _mm256_fmadd_ps, a, _mm512_set1_ps(b), c) }
    }
    #[inline(always)]
    unsafe fn plus(a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only.
        unsafe { both!(F, _mm512_add_ps, _mm256_add_ps, a, b) }
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

/// The group of each four of 64 columns, from group `g`.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn groups<F: Pack>(g: usize) -> __m512i {
    // SAFETY: as many bytes, all of which may be anything.
    unsafe { transmute::<[i32; 16], __m512i>(from_fn(|k| (g + 4 * k / F::GROUP) as i32)) }
}

/// One over the powers of two that codes of two steps are too large by.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn parts<F: Pack>(step: usize) -> __m512 {
    let part = |k: usize| 1.0 / (1u32 << (F::PACKING.shifts[(step + k / 8) % STEPS] % 8)) as f32;
    // SAFETY: as above.
    unsafe { transmute::<[f32; 16], __m512>(from_fn(part)) }
}

/// Writes the integers of all groups as f32.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn widened<F: Pack>(integers: [i8; GROUPS], out: *mut __m512) {
    // SAFETY: the caller vouches for the room.
    unsafe {
        let integers = transmute::<[i8; 16], __m128i>(integers);
        if halves::<F>() {
            out.write(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers)));
        } else {
            out.cast::<__m256>().write(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(integers)));
        }
    }
}
