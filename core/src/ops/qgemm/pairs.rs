//! Decoding of unpacked weights to panels of pairs of 16-bit elements with AVX-512: what tile registers and `vdpbf16ps` take.
//!
//! Four columns of 16 rows of weights lie in 64 bytes, a row's codes in one lane. Shifts bring a column's codes to the highest
//! byte and back, sign-extended; then they are converted, scaled and offset as `dequant` does it. Two columns are rounded
//! together, and one permutation puts the elements of each row side by side: 64 bytes of a panel.

use core::arch::x86_64::*;
use core::mem::transmute;

use super::tile::DecodePanelArgs;
use crate::asm::abi::{Micro, Panel, PanelType};
use crate::caps::{Features, IsaLevel};
use crate::quant::packed::{ROWS, STEP};

/// What decodes a panel of weights to columns of `B`.
pub(super) type Decode<E> = unsafe fn(&DecodePanelArgs<E>);

/// The way for panels of `B` that this microkernel takes, if there is one on a CPU with these features.
pub(super) fn decoder<E>(micro: &Micro, features: Features) -> Option<Decode<E>> {
    let Panel { element, width, kr } = micro.b;
    if kr != 2 || !width.is_multiple_of(ROWS) || micro.level != IsaLevel::Avx512 {
        return None;
    }
    match element {
        PanelType::Bf16 if features.contains(Features::AVX512_BF16) => Some(to_bf16),
        PanelType::F16 => Some(to_f16),
        _ => None,
    }
}

/// # Safety
/// That of [`decode_panel`](super::tile::decode_panel), for panels as [`decoder`] wants them; the instruction set. Weights that are denormal in
/// f32 become zeros, as which `vdpbf16ps` and tiles take all denormals.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn to_bf16<E>(a: &DecodePanelArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        if a.kind.offsets {
            decode::<E, true, true>(a);
        } else {
            decode::<E, true, false>(a);
        }
    }
}

/// # Safety
/// As [`to_bf16`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn to_f16<E>(a: &DecodePanelArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        if a.kind.offsets {
            decode::<E, false, true>(a);
        } else {
            decode::<E, false, false>(a);
        }
    }
}

/// To bf16 or f16, with offsets or without.
///
/// # Safety
/// As [`to_bf16`] and [`to_f16`].
#[inline(always)]
unsafe fn decode<E, const BF16: bool, const OFFSETS: bool>(a: &DecodePanelArgs<E>) {
    let DecodePanelArgs { kind, steps, from, panel, dst, column } = *a;
    let lane = column % panel.width.max(1);
    let before = panel.bytes(column - lane, steps * STEP) + panel.steps(lane, panel.kr);
    let mut dst = dst.cast::<u8>().wrapping_add(before);
    let mut codes = from.codes.cast_const();
    let (groups, row) = (kind.groups(), panel.steps(panel.width, panel.kr));
    // SAFETY: groups, and the cells of each, are within the panel, and there is room for as many pairs of columns.
    unsafe {
        let in_pairs = in_pairs();
        for g in 0..steps * groups {
            let scale = _mm512_loadu_ps(from.scales.add(g * ROWS));
            let offset =
                if OFFSETS { _mm512_loadu_ps(from.offsets.add(g * ROWS)) } else { _mm512_setzero_ps() };
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
            for _ in 0..STEP / 4 / groups {
                let words = _mm512_loadu_si512(codes.cast());
                let first = both(_mm512_slli_epi32::<24>(words), _mm512_slli_epi32::<16>(words));
                let second = both(_mm512_slli_epi32::<8>(words), words);
                _mm512_storeu_si512(dst.cast(), first);
                _mm512_storeu_si512(dst.add(row).cast(), second);
                (codes, dst) = (codes.add(4 * ROWS), dst.add(2 * row));
            }
        }
    }
}

/// Places of 16 elements, and of 16 others behind them, in turns.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn in_pairs() -> __m512i {
    let places: [u16; 32] = crate::arrays::from_fn(|i| (i / 2 + i % 2 * 16) as u16);
    // SAFETY: as many bytes, all of which may be anything.
    unsafe { transmute::<[u16; 32], __m512i>(places) }
}
