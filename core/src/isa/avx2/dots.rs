//! Products of bytes for weights in place: with `vpmaddubsw` and, for CPUs with AVX-VNNI, with `vpdpbusd` and `vpdpwssd`. AVX-512
//! without VNNI uses the former, too.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::transmute;

use crate::arrays::Each;
use crate::isa::avx2::bytes::Avx2Bytes;
use crate::isa::{Avx2, AvxVnni};
use crate::quant::dots::{one_scale, part, two_groups, Dots, Factors};
use crate::quant::packed::{Pack, GROUPS, STEPS, STEP_COLS};
use crate::quant::steps::{Coarse, Fine};
use crate::quant::Unpack;
use crate::vector::Vector;

/// Sums of products, the instructions in which [`Avx2`] and [`AvxVnni`] differ. Both sums are exact, so that what is computed with
/// them has the same bits.
///
/// # Safety
/// Methods require that the CPU has the instructions.
unsafe trait Accumulate {
    /// Whether the products of four bytes are summed in 32 bits at once. If not, those of two are summed in 16 bits before.
    const AT_ONCE: bool;
    /// The sums of two products each of 16 bits, added to `sums`.
    unsafe fn words(sums: __m256i, a: __m256i, b: __m256i) -> __m256i;
    /// The sums of four products each of an unsigned and a signed byte, added to `sums`. Unless they are summed at once, two
    /// products have to fit 16 bits.
    unsafe fn bytes(sums: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i;
}

// SAFETY: registers only.
unsafe impl Accumulate for Avx2 {
    const AT_ONCE: bool = false;
    #[inline(always)]
    unsafe fn words(sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)) }
    }
    #[inline(always)]
    unsafe fn bytes(sums: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { Self::words(sums, _mm256_maddubs_epi16(unsigned, signed), _mm256_set1_epi16(1)) }
    }
}

// SAFETY: registers only.
unsafe impl Accumulate for AvxVnni {
    const AT_ONCE: bool = true;
    #[inline(always)]
    unsafe fn words(sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { dpwssd(sums, a, b) }
    }
    #[inline(always)]
    unsafe fn bytes(sums: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { _mm256_dpbusd_avx_epi32(sums, unsigned, signed) }
    }
}

/// `vpdpwssd`. Not as an intrinsic: the compiler would make a multiplication and an addition of it where sums wait for each other.
///
/// # Safety
/// AVX-VNNI.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn dpwssd(mut sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: registers only; the caller vouches for the instruction set.
    unsafe {
        asm!(
            "{{vex}} vpdpwssd {0}, {1}, {2}",
            inout(ymm_reg) sums, in(ymm_reg) a, in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// The bias that makes codes unsigned bytes. `None` if two products are summed in 16 bits, and codes would be too large for that;
/// their magnitudes are multiplied then.
#[inline(always)]
fn add_bias<F: Pack>(at_once: bool) -> Option<u8> {
    let bias = F::PACKING.bias();
    (at_once || bias <= 64).then_some(bias)
}

/// Codes as unsigned bytes, and the signed bytes to multiply them with: with the bias of [`add_bias`] and the activations at `q`,
/// or magnitudes and activations that have taken the signs.
///
/// # Safety
/// AVX2; a step of activations.
#[inline(always)]
unsafe fn operands<F: Pack>(w: Avx2Bytes, q: *const i8, at_once: bool) -> [__m256i; 2] {
    // SAFETY: the caller's contract. Two products of magnitudes are 2 * 128 * 127 at most.
    unsafe {
        let q = _mm256_load_si256(q.cast());
        match (add_bias::<F>(at_once), w.negated()) {
            (Some(bias), _) => [_mm256_add_epi8(w.register(), _mm256_set1_epi8(bias as i8)), q],
            (None, Some([w, mask])) => [w, _mm256_sub_epi8(_mm256_xor_si256(q, mask), mask)],
            (None, None) => [_mm256_abs_epi8(w.register()), _mm256_sign_epi8(q, w.register())],
        }
    }
}

/// Whether all groups have the same scale and codes are below 4, so that sums of half of a block's products of pairs fit 16 bits.
const fn small<F: Pack>() -> bool {
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
unsafe impl<F: Pack, A: Accumulate> Dots<F> for A
where
    Avx2: Unpack<F, Codes = Avx2Bytes>,
{
    type Isa = Avx2;
    type Codes = Avx2Bytes;
    const COLUMNS: usize = STEP_COLS;
    type Sums = __m256;
    #[inline(always)]
    unsafe fn codes(unit: *const F::Block, i: usize, ready: &<Avx2 as Unpack<F>>::Ready) -> Avx2Bytes {
        // SAFETY: the caller's contract.
        unsafe { part::<F, Avx2>(unit, i, ready) }
    }
    #[inline(always)]
    unsafe fn zeros() -> __m256 {
        // SAFETY: registers only.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn dot(w: Avx2Bytes, x: &Fine, i: usize, factors: &Factors, sums: __m256) -> __m256 {
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
            let [w, q] = operands::<F>(w, x.step(step).as_ptr(), A::AT_ONCE);
            let start = match add_bias::<F>(A::AT_ONCE) {
                None | Some(0) => _mm256_setzero_si256(),
                Some(_) => _mm256_load_si256(x.starts[step % STEPS].as_ptr().cast()),
            };
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(A::bytes(start, w, q)), factor, sums)
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
    unsafe fn start(x: &Coarse) -> [__m256i; 2] {
        // SAFETY: the starts of a step are 32 bytes.
        unsafe {
            if !one_scale::<F>() || small::<F>() || add_bias::<F>(A::AT_ONCE).is_none() {
                return [_mm256_setzero_si256(); 2];
            }
            // Two steps that are four apart have one start.
            let start = |step: usize| _mm256_load_si256(x.starts[step % STEPS].as_ptr().cast());
            [_mm256_add_epi32(start(0), start(2)), _mm256_add_epi32(start(1), start(3))]
        }
    }
    #[inline(always)]
    unsafe fn dot_coarse(
        w: Avx2Bytes,
        x: &Coarse,
        i: usize,
        factors: &[__m256i; 2],
        sums: __m256i,
    ) -> __m256i {
        // SAFETY: the caller's contract; the columns have these factors.
        unsafe {
            // Integer scales are multiplied with the sums of two.
            let at_once = A::AT_ONCE && one_scale::<F>();
            let [w, q] = operands::<F>(w, x.columns(i), at_once);
            if one_scale::<F>() {
                return if small::<F>() && !at_once {
                    _mm256_add_epi16(sums, _mm256_maddubs_epi16(w, q))
                } else {
                    A::bytes(sums, w, q)
                };
            }
            let (mut pairs, g) = (_mm256_maddubs_epi16(w, q), i / F::GROUP);
            if add_bias::<F>(at_once).is_some_and(|bias| bias > 0) {
                let start = x.pair_starts[i / STEP_COLS % STEPS].as_ptr();
                pairs = _mm256_add_epi16(pairs, _mm256_load_si256(start.cast()));
            }
            let factor = if two_groups::<F>() {
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
            A::words(sums, pairs, factor)
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
            if !small::<F>() {
                return _mm256_cvtepi32_ps(_mm256_add_epi32(even, odd));
            }
            let start = _mm256_load_si256(x.pair_starts.as_ptr().cast());
            let (sums, pairs) = if A::AT_ONCE {
                (_mm256_add_epi32(even, odd), start)
            } else {
                (_mm256_setzero_si256(), _mm256_add_epi16(_mm256_add_epi16(even, odd), start))
            };
            _mm256_cvtepi32_ps(A::words(sums, pairs, _mm256_set1_epi16(1)))
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
