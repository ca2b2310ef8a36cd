//! What unpacking external formats asks of an instruction set beyond layer 1.

use super::STEP;
use crate::arrays::from_fn;
use crate::element::f16;
use crate::isa::{Prim, Scalar};

/// Unpacking.
///
/// # Safety
/// Every method requires that the CPU has the instruction set and that what a pointer is said to point to
/// exists. Nothing else is touched.
pub(crate) unsafe trait Lanes: Prim<f16> + Prim<f32> {
    /// `LANES` words.
    type I: Copy;

    /// The words at `p`.
    unsafe fn words(p: *const u32) -> Self::I;
    /// Each word shifted right by `n < 32`.
    unsafe fn shr(w: Self::I, n: u32) -> Self::I;
    /// Each word shifted left by `n < 32`.
    unsafe fn shl(w: Self::I, n: u32) -> Self::I;
    /// `a | b`
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// The f32 whose bits are `w & mask | above`; the two have no bit in common.
    unsafe fn mantissa(w: Self::I, mask: u32, above: u32) -> Self::V;
    /// 16 integers in the lowest bits of words, in the first `16 / LANES` vectors: eight lie in each of the
    /// first two of `packed`, or if they have 8 bits four in each; the lowest bits come first. Above them are
    /// others.
    unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [Self::I; STEP];

    /// A table of 8 numbers (`BITS` = 3) or 16 (4).
    type Table: Copy;

    /// The table at `p`.
    unsafe fn table<const BITS: u32>(p: *const f32) -> Self::Table;
    /// The numbers that the lowest `BITS` bits of words choose.
    unsafe fn lookup<const BITS: u32>(table: Self::Table, w: Self::I) -> Self::V;
    /// 16 numbers at `p`, E5M2 or else E4M3 times 2^-8, in the first `16 / LANES` vectors. Unless `NAN`, a NaN of
    /// E4M3 becomes some number.
    unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [Self::V; STEP];
    /// Nothing seen yet by [`Self::peak`].
    unsafe fn none() -> Self::I;
    /// For each byte, the larger of `before` and the lower seven bits of `w`.
    unsafe fn peak(before: Self::I, w: Self::I) -> Self::I;
    /// Whether what [`Self::peak`] saw contains a NaN of E4M3: a byte of seven bits that are set.
    unsafe fn saw_nan(peak: Self::I) -> bool;
}

/// The f16 that an E5M2 number (the upper half of an f16) is, or an E4M3 number times 2^-8: its fields in the
/// places of f16's, with the exponent's bias unchanged.
fn half<const E5M2: bool>(byte: u8) -> u16 {
    let byte = u16::from(byte);
    if E5M2 {
        byte << 8
    } else if byte & 0x7f == 0x7f {
        0x7fff
    } else {
        (byte & 0x80) << 8 | (byte & 0x7f) << 7
    }
}

// SAFETY: reads a word, or 16 bytes.
unsafe impl Lanes for Scalar {
    type I = u32;

    #[inline(always)]
    unsafe fn words(p: *const u32) -> u32 {
        // SAFETY: the caller vouches for the word.
        unsafe { p.read_unaligned() }
    }
    #[inline(always)]
    unsafe fn shr(w: u32, n: u32) -> u32 {
        w.wrapping_shr(n)
    }
    #[inline(always)]
    unsafe fn shl(w: u32, n: u32) -> u32 {
        w.wrapping_shl(n)
    }
    #[inline(always)]
    unsafe fn or(a: u32, b: u32) -> u32 {
        a | b
    }
    #[inline(always)]
    unsafe fn mantissa(w: u32, mask: u32, above: u32) -> f32 {
        f32::from_bits(w & mask | above)
    }
    #[inline(always)]
    unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [u32; STEP] {
        let mut all = [0; STEP];
        for (i, code) in all.iter_mut().enumerate() {
            let per = if BITS == 8 { 4 } else { 8 };
            *code = packed[i / per] >> (i as u32 % per as u32 * BITS);
        }
        all
    }

    type Table = *const f32;

    #[inline(always)]
    unsafe fn table<const BITS: u32>(p: *const f32) -> *const f32 {
        p
    }
    #[inline(always)]
    unsafe fn lookup<const BITS: u32>(table: *const f32, w: u32) -> f32 {
        // SAFETY: the table has 2^BITS numbers.
        unsafe { *table.add((w & ((1 << BITS) - 1)) as usize) }
    }
    #[inline(always)]
    unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [f32; STEP] {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { p.cast::<[u8; STEP]>().read() };
        bytes.map(|b| f16::from_bits(half::<E5M2>(b)).to_f32())
    }
    #[inline(always)]
    unsafe fn none() -> u32 {
        0
    }
    #[inline(always)]
    unsafe fn peak(before: u32, w: u32) -> u32 {
        let (before, w) = (before.to_ne_bytes(), (w & 0x7f7f_7f7f).to_ne_bytes());
        u32::from_ne_bytes(from_fn(|i| before[i].max(w[i])))
    }
    #[inline(always)]
    unsafe fn saw_nan(peak: u32) -> bool {
        peak.to_ne_bytes().contains(&0x7f)
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64 {
    use core::arch::x86_64::*;

    use super::{Lanes, STEP};
    use crate::isa::{Avx2, Avx512};

    /// How far integers lie from the lowest bit.
    #[inline(always)]
    unsafe fn places<const BITS: u32>() -> __m256i {
        let b = BITS as i32;
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            if BITS == 8 {
                _mm256_setr_epi32(0, b, 2 * b, 3 * b, 0, b, 2 * b, 3 * b)
            } else {
                _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b)
            }
        }
    }

    /// Each integer's word, of eight integers.
    #[inline(always)]
    unsafe fn homes<const BITS: u32>(packed: [u32; 4], eight: usize) -> __m256i {
        let [a, b, c, d] = packed.map(|p| p as i32);
        let (one, two) = if BITS != 8 {
            if eight == 0 {
                (a, a)
            } else {
                (b, b)
            }
        } else if eight == 0 {
            (a, b)
        } else {
            (c, d)
        };
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            if BITS == 8 {
                _mm256_inserti128_si256::<1>(_mm256_set1_epi32(one), _mm_set1_epi32(two))
            } else {
                _mm256_set1_epi32(one)
            }
        }
    }

    /// [`half`](super::half) of 16 bytes.
    #[inline(always)]
    unsafe fn halves<const E5M2: bool, const NAN: bool>(p: *const u8) -> __m256i {
        // SAFETY: the caller vouches for AVX2 and 16 bytes.
        unsafe {
            let bytes = _mm_loadu_si128(p.cast());
            if E5M2 {
                return _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(bytes));
            }
            // Sign extension puts the sign into the right place; below it, it has to go.
            let words = _mm256_cvtepi8_epi16(bytes);
            let fields =
                _mm256_and_si256(_mm256_slli_epi16::<7>(words), _mm256_set1_epi16(0xbf80_u16 as i16));
            if !NAN {
                return fields;
            }
            let most = _mm256_set1_epi16(0x7f);
            let nan = _mm256_cmpeq_epi16(_mm256_and_si256(words, most), most);
            _mm256_or_si256(fields, nan)
        }
    }

    // SAFETY: reads a register of words, or 16 bytes.
    unsafe impl Lanes for Avx512 {
        type I = __m512i;

        // SAFETY of all: the caller vouches for the instruction set and the words.
        #[inline(always)]
        unsafe fn words(p: *const u32) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_loadu_si512(p.cast()) }
        }
        #[inline(always)]
        unsafe fn shr(w: __m512i, n: u32) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_srl_epi32(w, _mm_cvtsi32_si128(n as i32)) }
        }
        #[inline(always)]
        unsafe fn shl(w: __m512i, n: u32) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_sll_epi32(w, _mm_cvtsi32_si128(n as i32)) }
        }
        #[inline(always)]
        unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_or_si512(a, b) }
        }
        #[inline(always)]
        unsafe fn mantissa(w: __m512i, mask: u32, above: u32) -> __m512 {
            // SAFETY: as above. `w & mask | above` is one instruction.
            unsafe {
                let (mask, above) = (_mm512_set1_epi32(mask as i32), _mm512_set1_epi32(above as i32));
                _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xea>(w, mask, above))
            }
        }
        #[inline(always)]
        unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [__m512i; STEP] {
            // SAFETY: as above.
            unsafe {
                let low = _mm512_castsi256_si512(homes::<BITS>(packed, 0));
                let words = _mm512_inserti64x4::<1>(low, homes::<BITS>(packed, 1));
                let places = places::<BITS>();
                let places = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(places), places);
                [_mm512_srlv_epi32(words, places); STEP]
            }
        }

        type Table = __m512;

        #[inline(always)]
        unsafe fn table<const BITS: u32>(p: *const f32) -> __m512 {
            // SAFETY: the table's numbers are there. Eight are repeated: a fourth bit chooses nothing.
            unsafe {
                if BITS == 3 {
                    _mm512_broadcast_f32x8(_mm256_loadu_ps(p))
                } else {
                    _mm512_loadu_ps(p)
                }
            }
        }
        #[inline(always)]
        unsafe fn lookup<const BITS: u32>(table: __m512, w: __m512i) -> __m512 {
            // SAFETY: registers only; upper bits are ignored.
            unsafe { _mm512_permutexvar_ps(w, table) }
        }
        #[inline(always)]
        unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [__m512; STEP] {
            // SAFETY: the caller's contract.
            unsafe { [_mm512_cvtph_ps(halves::<E5M2, NAN>(p)); STEP] }
        }
        #[inline(always)]
        unsafe fn none() -> __m512i {
            // SAFETY: as above; so below.
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn peak(before: __m512i, w: __m512i) -> __m512i {
            // SAFETY: as above.
            unsafe { _mm512_max_epu8(before, _mm512_and_si512(w, _mm512_set1_epi8(0x7f))) }
        }
        #[inline(always)]
        unsafe fn saw_nan(peak: __m512i) -> bool {
            // SAFETY: as above.
            unsafe { _mm512_cmpeq_epi8_mask(peak, _mm512_set1_epi8(0x7f)) != 0 }
        }
    }

    // SAFETY: reads a register of words, or 16 bytes.
    unsafe impl Lanes for Avx2 {
        type I = __m256i;

        // SAFETY of all: the caller vouches for the instruction set and the words.
        #[inline(always)]
        unsafe fn words(p: *const u32) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_loadu_si256(p.cast()) }
        }
        #[inline(always)]
        unsafe fn shr(w: __m256i, n: u32) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_srl_epi32(w, _mm_cvtsi32_si128(n as i32)) }
        }
        #[inline(always)]
        unsafe fn shl(w: __m256i, n: u32) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_sll_epi32(w, _mm_cvtsi32_si128(n as i32)) }
        }
        #[inline(always)]
        unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_or_si256(a, b) }
        }
        #[inline(always)]
        unsafe fn mantissa(w: __m256i, mask: u32, above: u32) -> __m256 {
            // SAFETY: as above.
            unsafe {
                let (mask, above) = (_mm256_set1_epi32(mask as i32), _mm256_set1_epi32(above as i32));
                _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(w, mask), above))
            }
        }
        #[inline(always)]
        unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [__m256i; STEP] {
            // SAFETY: as above.
            unsafe {
                let of = |eight| _mm256_srlv_epi32(homes::<BITS>(packed, eight), places::<BITS>());
                let mut all = [of(0); STEP];
                all[1] = of(1);
                all
            }
        }

        type Table = [__m256; 2];

        #[inline(always)]
        unsafe fn table<const BITS: u32>(p: *const f32) -> [__m256; 2] {
            // SAFETY: the table's numbers are there.
            unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(if BITS == 3 { p } else { p.add(8) })] }
        }
        #[inline(always)]
        unsafe fn lookup<const BITS: u32>(table: [__m256; 2], w: __m256i) -> __m256 {
            // SAFETY: registers only; three bits choose, upper ones are ignored.
            unsafe {
                let [low, high] = table.map(|t| _mm256_permutevar8x32_ps(t, w));
                if BITS == 3 {
                    return low;
                }
                _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(w)))
            }
        }
        #[inline(always)]
        unsafe fn none() -> __m256i {
            // SAFETY: as above; so below.
            unsafe { _mm256_setzero_si256() }
        }
        #[inline(always)]
        unsafe fn peak(before: __m256i, w: __m256i) -> __m256i {
            // SAFETY: as above.
            unsafe { _mm256_max_epu8(before, _mm256_and_si256(w, _mm256_set1_epi8(0x7f))) }
        }
        #[inline(always)]
        unsafe fn saw_nan(peak: __m256i) -> bool {
            // SAFETY: as above.
            unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(peak, _mm256_set1_epi8(0x7f))) != 0 }
        }
        #[inline(always)]
        unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [__m256; STEP] {
            // SAFETY: the caller's contract.
            unsafe {
                let halves = halves::<E5M2, NAN>(p);
                let low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
                let mut all = [low; STEP];
                all[1] = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves));
                all
            }
        }
    }
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64 {
    use core::arch::aarch64::*;

    use super::{Lanes, STEP};
    use crate::element::f16;
    use crate::isa::{Neon, Prim};

    /// [`half`](super::half) of 8 bytes.
    #[inline(always)]
    unsafe fn halves<const E5M2: bool, const NAN: bool>(bytes: uint8x8_t) -> uint16x8_t {
        // SAFETY: the caller vouches for NEON.
        unsafe {
            if E5M2 {
                return vshll_n_u8::<8>(bytes);
            }
            // Sign extension puts the sign into the right place; below it, it has to go.
            let words = vreinterpretq_u16_s16(vmovl_s8(vreinterpret_s8_u8(bytes)));
            let fields = vandq_u16(vshlq_n_u16::<7>(words), vdupq_n_u16(0xbf80));
            if !NAN {
                return fields;
            }
            let most = vdupq_n_u16(0x7f);
            vorrq_u16(fields, vceqq_u16(vandq_u16(words, most), most))
        }
    }

    // SAFETY: reads a register of words, or 16 bytes.
    unsafe impl Lanes for Neon {
        type I = uint32x4_t;

        // SAFETY of all: the caller vouches for the instruction set and the words.
        #[inline(always)]
        unsafe fn words(p: *const u32) -> uint32x4_t {
            // SAFETY: as above.
            unsafe { vld1q_u32(p) }
        }
        #[inline(always)]
        unsafe fn shr(w: uint32x4_t, n: u32) -> uint32x4_t {
            // SAFETY: as above.
            unsafe { vshlq_u32(w, vdupq_n_s32(-(n as i32))) }
        }
        #[inline(always)]
        unsafe fn shl(w: uint32x4_t, n: u32) -> uint32x4_t {
            // SAFETY: as above.
            unsafe { vshlq_u32(w, vdupq_n_s32(n as i32)) }
        }
        #[inline(always)]
        unsafe fn or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
            // SAFETY: as above.
            unsafe { vorrq_u32(a, b) }
        }
        #[inline(always)]
        unsafe fn mantissa(w: uint32x4_t, mask: u32, above: u32) -> float32x4_t {
            // SAFETY: as above. Outside of the mask is what is above it.
            unsafe { vreinterpretq_f32_u32(vbslq_u32(vdupq_n_u32(mask), w, vdupq_n_u32(above))) }
        }
        #[inline(always)]
        unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [uint32x4_t; STEP] {
            let b = BITS as i32;
            // SAFETY: as above; four numbers are read.
            unsafe {
                let mut all = [vdupq_n_u32(0); STEP];
                for (i, codes) in all.iter_mut().enumerate().take(STEP / 4) {
                    let (word, from) =
                        if BITS == 8 { (packed[i], 0) } else { (packed[i / 2], i as i32 % 2 * 4 * b) };
                    let places = [-from, -from - b, -from - 2 * b, -from - 3 * b];
                    *codes = vshlq_u32(vdupq_n_u32(word), vld1q_s32(places.as_ptr()));
                }
                all
            }
        }

        type Table = uint8x16x4_t;

        #[inline(always)]
        unsafe fn table<const BITS: u32>(p: *const f32) -> uint8x16x4_t {
            // SAFETY: the table's numbers are there.
            unsafe {
                let four = |i| vreinterpretq_u8_f32(vld1q_f32(p.add(if BITS == 3 { i % 8 } else { i })));
                uint8x16x4_t(four(0), four(4), four(8), four(12))
            }
        }
        #[inline(always)]
        unsafe fn lookup<const BITS: u32>(table: uint8x16x4_t, w: uint32x4_t) -> float32x4_t {
            // SAFETY: registers only.
            unsafe {
                // Of each number, the bytes 4 i .. 4 i + 3.
                let index = vandq_u32(w, vdupq_n_u32((1 << BITS) - 1));
                let bytes = vmlaq_u32(vdupq_n_u32(0x0302_0100), index, vdupq_n_u32(0x0404_0404));
                vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(bytes)))
            }
        }
        #[inline(always)]
        unsafe fn none() -> uint32x4_t {
            // SAFETY: as above; so below.
            unsafe { vdupq_n_u32(0) }
        }
        #[inline(always)]
        unsafe fn peak(before: uint32x4_t, w: uint32x4_t) -> uint32x4_t {
            // SAFETY: as above.
            unsafe {
                let w = vandq_u32(w, vdupq_n_u32(0x7f7f_7f7f));
                vreinterpretq_u32_u8(vmaxq_u8(vreinterpretq_u8_u32(before), vreinterpretq_u8_u32(w)))
            }
        }
        #[inline(always)]
        unsafe fn saw_nan(peak: uint32x4_t) -> bool {
            // SAFETY: as above.
            unsafe { vmaxvq_u8(vreinterpretq_u8_u32(peak)) == 0x7f }
        }
        #[inline(always)]
        unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [float32x4_t; STEP] {
            // SAFETY: the caller vouches for 16 bytes; the halves are read from where they were written.
            unsafe {
                let bytes = vld1q_u8(p);
                let mut halves16 = [f16::ZERO; STEP];
                let at = halves16.as_mut_ptr();
                vst1q_u16(at.cast(), halves::<E5M2, NAN>(vget_low_u8(bytes)));
                vst1q_u16(at.add(8).cast(), halves::<E5M2, NAN>(vget_high_u8(bytes)));
                let mut all = [vdupq_n_f32(0.0); STEP];
                for (i, v) in all.iter_mut().enumerate().take(STEP / 4) {
                    *v = <Self as Prim<f16>>::load(at.add(4 * i));
                }
                all
            }
        }
    }
}
