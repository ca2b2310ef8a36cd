//! Layer 1 for AVX2 + FMA + F16C: registers of 8 f32.

use core::arch::x86_64::*;

use half::{bf16, f16};

use crate::isa::Avx2;

/// A sliding window over this gives masks for the first `n <= 8` lanes.
static WINDOW: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
unsafe fn first(n: usize) -> __m256i {
    // SAFETY: the caller vouches for AVX2 and n <= 8, so the window lies inside the table.
    unsafe { _mm256_loadu_si256(WINDOW.as_ptr().add(8 - n).cast()) }
}

/// `a * 2^n` in two steps, so that denormal results round once.
#[inline(always)]
unsafe fn scale2(a: __m256, power: __m256) -> __m256 {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let both = _mm256_castps_si256(power);
        let half = _mm256_srli_epi32::<1>(both);
        let pow2 = |exponent| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent));
        _mm256_mul_ps(_mm256_mul_ps(a, pow2(half)), pow2(_mm256_sub_epi32(both, half)))
    }
}

/// Up to 8 half-width elements through a buffer: AVX2 has no 16-bit masks.
#[inline(always)]
unsafe fn load_n_u16(p: *const u16, n: usize) -> __m128i {
    let mut buf = [0u16; 8];
    for (i, b) in buf.iter_mut().enumerate().take(n) {
        // SAFETY: the caller vouches for n elements at p.
        *b = unsafe { *p.add(i) };
    }
    // SAFETY: the caller vouches for AVX2; buf has 16 bytes.
    unsafe { _mm_loadu_si128(buf.as_ptr().cast()) }
}

#[inline(always)]
unsafe fn store_n_u16(p: *mut u16, v: __m128i, n: usize) {
    let mut buf = [0u16; 8];
    // SAFETY: the caller vouches for AVX2; buf has 16 bytes.
    unsafe { _mm_storeu_si128(buf.as_mut_ptr().cast(), v) };
    for (i, b) in buf.iter().enumerate().take(n) {
        // SAFETY: the caller vouches for n elements at p.
        unsafe { *p.add(i) = *b };
    }
}

#[inline(always)]
unsafe fn from_bf16(h: __m128i) -> __m256 {
    // SAFETY: the caller vouches for AVX2.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(h))) }
}

/// f32 -> bf16, ties to even. A NaN becomes the one all of whose bits are set.
#[inline(always)]
unsafe fn to_bf16(v: __m256) -> __m128i {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        // The upper halves, in the first 8 bytes of each 16.
        let upper = _mm_setr_epi8(2, 3, 6, 7, 10, 11, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1);
        let halves = _mm256_shuffle_epi8(_mm256_or_si256(up, nan), _mm256_broadcastsi128_si256(upper));
        _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(halves))
    }
}

/// Folds 8 lanes to 4, 2, 1.
macro_rules! fold {
    ($a:ident, $op:ident, $op1:ident) => {{
        let x = $op(_mm256_castps256_ps128($a), _mm256_extractf128_ps::<1>($a));
        let x = $op(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32($op1(x, _mm_shuffle_ps::<1>(x, x)))
    }};
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

simd_primitive! {
    isa: Avx2,
    vector: __m256,
    lanes: 8,
    streams: true,
    registers: {
        splat(x) => _mm256_set1_ps(x),
        add(a, b) => _mm256_add_ps(a, b),
        sub(a, b) => _mm256_sub_ps(a, b),
        mul(a, b) => _mm256_mul_ps(a, b),
        div(a, b) => _mm256_div_ps(a, b),
        fma(a, b, c) => _mm256_fmadd_ps(a, b, c),
        fnma(a, b, c) => _mm256_fnmadd_ps(a, b, c),
        min(a, b) => _mm256_min_ps(a, b),
        max(a, b) => _mm256_max_ps(a, b),
        copysign(m, s) => {
            let sign = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(sign, m), _mm256_and_ps(sign, s))
        },
        round(a) => _mm256_round_ps::<NEAREST>(a),
        scale2(a, power) => scale2(a, power),
        select_lt(a, b, x, y) => _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)),
        reduce_sum(a) => fold!(a, _mm_add_ps, _mm_add_ss),
        reduce_max(a) => fold!(a, _mm_max_ps, _mm_max_ss),
        unzip(a, b) => {
            // Each 128-bit lane of a shuffle serves both inputs; 0xd8 puts the quarters in order.
            let order = |v| _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(_mm256_castps_pd(v)));
            (order(_mm256_shuffle_ps::<0x88>(a, b)), order(_mm256_shuffle_ps::<0xdd>(a, b)))
        },
        zip(a, b) => {
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
        },
    },
    memory: {
        f32 {
            load(p) => _mm256_loadu_ps(p),
            load_n(p, n) => _mm256_maskload_ps(p, first(n)),
            store(p, v) => _mm256_storeu_ps(p, v),
            store_n(p, v, n) => _mm256_maskstore_ps(p, first(n), v),
            stream(p, v) => _mm256_stream_ps(p, v),
        }
        f16 {
            load(p) => _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
            load_n(p, n) => _mm256_cvtph_ps(load_n_u16(p.cast(), n)),
            store(p, v) => _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)),
            store_n(p, v, n) => store_n_u16(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v), n),
            stream(p, v) => _mm_stream_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)),
        }
        bf16 {
            load(p) => from_bf16(_mm_loadu_si128(p.cast())),
            load_n(p, n) => from_bf16(load_n_u16(p.cast(), n)),
            store(p, v) => _mm_storeu_si128(p.cast(), to_bf16(v)),
            store_n(p, v, n) => store_n_u16(p.cast(), to_bf16(v), n),
            stream(p, v) => _mm_stream_si128(p.cast(), to_bf16(v)),
        }
    }
}
