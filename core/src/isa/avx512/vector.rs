//! Layer 1 for AVX-512 F + BW + VL + DQ: registers of 16 f32; masks for parts of a register.

use core::arch::x86_64::*;

use half::{bf16, f16};

use crate::isa::Avx512;
use crate::vector::POWER_OF_ZERO;

/// The low `n <= 16` mask bits.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

/// f32 -> bf16, ties to even, NaN kept and made quiet. (`vcvtneps2bf16` would flush denormals; conditions by masks take longer.)
#[inline(always)]
unsafe fn to_bf16(v: __m512) -> __m256i {
    /// For `vfixupimmps`: quiet and signalling NaN become the quiet NaN of the source, all else stays as it is.
    const QUIET_NAN: i32 = 0x22;
    // SAFETY: the caller vouches for AVX-512.
    unsafe {
        let bits = _mm512_castps_si512(v);
        // A tie rounds up if the last bit that stays is set: then the first bit is, too.
        let upper = _mm512_srli_epi32::<16>(bits);
        let sticky = _mm512_ternarylogic_epi32::<0xf8>(bits, upper, _mm512_set1_epi32(1));
        let up = _mm512_castsi512_ps(_mm512_add_epi32(sticky, _mm512_set1_epi32(0x7fff)));
        let rounded = _mm512_fixupimm_ps::<0>(up, v, _mm512_set1_epi32(QUIET_NAN));
        _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper_words(), _mm512_castps_si512(rounded)))
    }
}

/// Places of the upper halves of 16 lanes.
#[inline(always)]
unsafe fn upper_words() -> __m512i {
    // SAFETY: the caller vouches for AVX-512.
    unsafe {
        let low = _mm256_setr_epi16(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        _mm512_castsi256_si512(low)
    }
}

#[inline(always)]
unsafe fn from_bf16(h: __m256i) -> __m512 {
    // SAFETY: the caller vouches for AVX-512.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(h))) }
}

/// Places of the even (`0`) or odd (`1`) lanes of two registers.
#[inline(always)]
unsafe fn every_other(odd: i32) -> __m512i {
    // SAFETY: the caller vouches for AVX-512.
    unsafe {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        _mm512_add_epi32(even, _mm512_set1_epi32(odd))
    }
}

/// Places that interleave the low (`0`) or high (`8`) halves of two registers.
#[inline(always)]
unsafe fn interleave(half: i32) -> __m512i {
    // SAFETY: the caller vouches for AVX-512.
    unsafe {
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        _mm512_add_epi32(low, _mm512_set1_epi32(half))
    }
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

simd_primitive! {
    isa: Avx512,
    vector: __m512,
    lanes: 16,
    streams: true,
    registers: {
        splat(x) => _mm512_set1_ps(x),
        add(a, b) => _mm512_add_ps(a, b),
        sub(a, b) => _mm512_sub_ps(a, b),
        mul(a, b) => _mm512_mul_ps(a, b),
        div(a, b) => _mm512_div_ps(a, b),
        fma(a, b, c) => _mm512_fmadd_ps(a, b, c),
        fnma(a, b, c) => _mm512_fnmadd_ps(a, b, c),
        min(a, b) => _mm512_min_ps(a, b),
        max(a, b) => _mm512_max_ps(a, b),
        copysign(m, s) => {
            let sign = _mm512_set1_epi32(i32::MIN);
            let (m, s) = (_mm512_castps_si512(m), _mm512_castps_si512(s));
            _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xb8>(m, sign, s))
        },
        round(a) => _mm512_roundscale_ps::<NEAREST>(a),
        scale2(a, power) => _mm512_scalef_ps(a, _mm512_sub_ps(power, _mm512_set1_ps(POWER_OF_ZERO))),
        select_lt(a, b, x, y) => _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x),
        reduce_sum(a) => _mm512_reduce_add_ps(a),
        reduce_max(a) => _mm512_reduce_max_ps(a),
        unzip(a, b) => (
            _mm512_permutex2var_ps(a, every_other(0), b),
            _mm512_permutex2var_ps(a, every_other(1), b),
        ),
        zip(a, b) => (
            _mm512_permutex2var_ps(a, interleave(0), b),
            _mm512_permutex2var_ps(a, interleave(8), b),
        ),
    },
    memory: {
        f32 {
            load(p) => _mm512_loadu_ps(p),
            load_n(p, n) => _mm512_maskz_loadu_ps(first(n), p),
            store(p, v) => _mm512_storeu_ps(p, v),
            store_n(p, v, n) => _mm512_mask_storeu_ps(p, first(n), v),
            stream(p, v) => _mm512_stream_ps(p, v),
        }
        f16 {
            load(p) => _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())),
            load_n(p, n) => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p.cast())),
            store(p, v) => _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<NEAREST>(v)),
            store_n(p, v, n) => _mm256_mask_storeu_epi16(p.cast(), first(n), _mm512_cvtps_ph::<NEAREST>(v)),
            stream(p, v) => _mm256_stream_si256(p.cast(), _mm512_cvtps_ph::<NEAREST>(v)),
        }
        bf16 {
            load(p) => from_bf16(_mm256_loadu_si256(p.cast())),
            load_n(p, n) => from_bf16(_mm256_maskz_loadu_epi16(first(n), p.cast())),
            store(p, v) => _mm256_storeu_si256(p.cast(), to_bf16(v)),
            store_n(p, v, n) => _mm256_mask_storeu_epi16(p.cast(), first(n), to_bf16(v)),
            stream(p, v) => _mm256_stream_si256(p.cast(), to_bf16(v)),
        }
    }
}
