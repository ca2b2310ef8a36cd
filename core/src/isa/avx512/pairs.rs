//! Decoding of weights to pairs of 16-bit elements, the operands of tile registers and of `vdpbf16ps`.
//!
//! The codes of four columns of 16 rows are in one register of 64 bytes, those of a row in one lane. Two shifts move the code of
//! one column to the highest byte of its lane and back with its sign. The codes are then converted to f32, multiplied with
//! scales, and offsets are added, as `dequant` does it. Two columns are rounded together, and one permutation puts the two
//! elements of each row side by side. That makes 64 bytes of a panel.

use core::arch::x86_64::*;
use core::mem::transmute;

use crate::arrays::from_fn;
use crate::quant::pairs::PairsArgs;

/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set. Numbers that are denormal in f32 become zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(crate) unsafe fn bf16(a: &PairsArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        if a.offsets.is_some() {
            pairs::<true, true>(a);
        } else {
            pairs::<true, false>(a);
        }
    }
}

/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(crate) unsafe fn f16(a: &PairsArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        if a.offsets.is_some() {
            pairs::<false, true>(a);
        } else {
            pairs::<false, false>(a);
        }
    }
}

/// To bf16 or f16, with offsets or without.
///
/// # Safety
/// The contracts of [`bf16`] and [`f16`].
#[inline(always)]
unsafe fn pairs<const BF16: bool, const OFFSETS: bool>(a: &PairsArgs) {
    let PairsArgs { mut codes, scales, offsets, groups, cells, mut dst, row } = *a;
    let offsets = offsets.unwrap_or(scales);
    // SAFETY: groups and the cells of each are there, and room for as many pairs of columns.
    unsafe {
        let in_pairs = in_pairs();
        for g in 0..groups {
            let (scale, offset) = (_mm512_loadu_ps(scales.add(16 * g)), _mm512_loadu_ps(offsets.add(16 * g)));
            let number = |code: __m512i| {
                let v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(code)), scale);
                if OFFSETS {
                    _mm512_add_ps(v, offset)
                } else {
                    v
                }
            };
            let both = |even: __m512i, odd: __m512i| {
                let (even, odd) = (number(even), number(odd));
                let halves = if BF16 {
                    transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even))
                } else {
                    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
                    let even = _mm512_castsi256_si512(_mm512_cvtps_ph::<NEAREST>(even));
                    _mm512_inserti64x4::<1>(even, _mm512_cvtps_ph::<NEAREST>(odd))
                };
                _mm512_permutexvar_epi16(in_pairs, halves)
            };
            for _ in 0..cells {
                let words = _mm512_loadu_si512(codes.cast());
                let first = both(_mm512_slli_epi32::<24>(words), _mm512_slli_epi32::<16>(words));
                let second = both(_mm512_slli_epi32::<8>(words), words);
                _mm512_storeu_si512(dst.cast(), first);
                _mm512_storeu_si512(dst.add(row).cast(), second);
                (codes, dst) = (codes.add(64), dst.add(2 * row));
            }
        }
    }
}

/// The permutation that interleaves 16 elements with the 16 behind them.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn in_pairs() -> __m512i {
    let places: [u16; 32] = from_fn(|i| (i / 2 + i % 2 * 16) as u16);
    // SAFETY: as many bytes, all of which may be anything.
    unsafe { transmute::<[u16; 32], __m512i>(places) }
}
