//! What AVX2 and AVX-512 share in unpacking formats: bytes and scales in registers of 256 bits.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::transmute;

use crate::arrays::Each;
use crate::element::f16;
use crate::quant::blocks::Half;
use crate::quant::bytes::{Bytes, SimdUnpack, Widen};
use crate::vector::Prim;

/// Implements [`Bytes`](crate::quant::bytes::Bytes) for a struct with the field `register`; instruction sets differ in the rows.
macro_rules! bytes {
    ($name:ident {
        mask($bits:ident) => $mask:expr,
        negate($this:ident, $where:ident) => $negate:expr,
    }) => {
        impl $name {
            /// The register.
            #[inline(always)]
            pub(crate) fn register(self) -> __m256i {
                self.register
            }
        }
        // SAFETY of every body: registers, or the bytes that the caller vouches for.
        #[allow(clippy::undocumented_unsafe_blocks)]
        unsafe impl crate::quant::bytes::Bytes for $name {
            #[inline(always)]
            unsafe fn load(p: *const u8) -> Self {
                unsafe { Self::of(_mm256_loadu_si256(p.cast())) }
            }
            #[inline(always)]
            unsafe fn load_twice(p: *const u8) -> Self {
                unsafe { Self::of(_mm256_broadcastsi128_si256(_mm_loadu_si128(p.cast()))) }
            }
            #[inline(always)]
            unsafe fn load_four_times(p: *const u8) -> Self {
                unsafe {
                    let eight = _mm256_set1_epi64x(p.cast::<i64>().read_unaligned());
                    let places = [
                        0,
                        0x0101_0101,
                        0x0202_0202,
                        0x0303_0303,
                        0x0404_0404,
                        0x0505_0505,
                        0x0606_0606,
                        0x0707_0707,
                    ];
                    Self::of(_mm256_shuffle_epi8(eight, Self::words32(places).register))
                }
            }
            #[inline(always)]
            unsafe fn splat(x: u8) -> Self {
                unsafe { Self::of(_mm256_set1_epi8(x as i8)) }
            }
            #[inline(always)]
            unsafe fn words64(w: [u64; 4]) -> Self {
                // As f64: the compiler then loads two into the halves of a register, and does not unpack them.
                let [a, b, c, d] = w.each(f64::from_bits);
                unsafe { Self::of(_mm256_castpd_si256(_mm256_setr_pd(a, b, c, d))) }
            }
            #[inline(always)]
            unsafe fn words32(w: [u32; 8]) -> Self {
                let [a, b, c, d, e, f, g, h] = w.each(|w| w as i32);
                unsafe { Self::of(_mm256_setr_epi32(a, b, c, d, e, f, g, h)) }
            }
            #[inline(always)]
            unsafe fn mask($bits: u32) -> Self {
                unsafe { Self::of($mask) }
            }
            #[inline(always)]
            unsafe fn negate(self, $where: u32) -> Self {
                let $this = self.register;
                unsafe { $negate }
            }
            #[inline(always)]
            unsafe fn and(self, other: Self) -> Self {
                unsafe { Self::of(_mm256_and_si256(self.register, other.register)) }
            }
            #[inline(always)]
            unsafe fn or(self, other: Self) -> Self {
                unsafe { Self::of(_mm256_or_si256(self.register, other.register)) }
            }
            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                unsafe { Self::of(_mm256_xor_si256(self.register, other.register)) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                unsafe { Self::of(_mm256_add_epi8(self.register, other.register)) }
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                unsafe { Self::of(_mm256_sub_epi8(self.register, other.register)) }
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                // There are only words: the low byte of each product, then the high one.
                unsafe {
                    let low = _mm256_and_si256(
                        _mm256_mullo_epi16(self.register, other.register),
                        _mm256_set1_epi16(0xff),
                    );
                    let high = |v| _mm256_srli_epi16::<8>(v);
                    let upper =
                        _mm256_slli_epi16::<8>(_mm256_mullo_epi16(high(self.register), high(other.register)));
                    Self::of(_mm256_or_si256(low, upper))
                }
            }
            #[inline(always)]
            unsafe fn at_least(self, other: Self) -> Self {
                unsafe {
                    Self::of(_mm256_cmpeq_epi8(_mm256_max_epu8(self.register, other.register), self.register))
                }
            }
            #[inline(always)]
            unsafe fn shr(self, n: u32) -> Self {
                unsafe {
                    let words = _mm256_srl_epi16(self.register, _mm_cvtsi32_si128(n as i32));
                    Self::of(_mm256_and_si256(words, _mm256_set1_epi8((0xff_u8 >> n) as i8)))
                }
            }
            #[inline(always)]
            unsafe fn shl(self, n: u32) -> Self {
                unsafe {
                    let words = _mm256_sll_epi16(self.register, _mm_cvtsi32_si128(n as i32));
                    Self::of(_mm256_and_si256(words, _mm256_set1_epi8((0xff_u8 << n) as i8)))
                }
            }
            #[inline(always)]
            unsafe fn nibbles(self) -> Self {
                unsafe {
                    let shifted = _mm256_srlv_epi64(self.register, _mm256_setr_epi64x(0, 0, 4, 4));
                    Self::of(_mm256_and_si256(shifted, _mm256_set1_epi8(15)))
                }
            }
            #[inline(always)]
            unsafe fn lookup(self, table: &[i8; 16]) -> Self {
                unsafe {
                    Self::of(_mm256_shuffle_epi8(
                        Self::load_twice(table.as_ptr().cast()).register,
                        self.register,
                    ))
                }
            }
            #[inline(always)]
            unsafe fn swap_middle(self) -> Self {
                unsafe { Self::of(_mm256_permute4x64_epi64::<0b11_01_10_00>(self.register)) }
            }
            #[inline(always)]
            unsafe fn indices<const BITS: u32>(low: *const u8, high: u32, out: *mut u32) {
                unsafe {
                    let places = _mm256_mullo_epi32(
                        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                        _mm256_set1_epi32(BITS as i32),
                    );
                    let high = _mm256_srlv_epi32(_mm256_set1_epi32(high as i32), places);
                    let high = _mm256_and_si256(high, _mm256_set1_epi32((1 << BITS) - 1));
                    let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(low.cast()));
                    _mm256_storeu_si256(out.cast(), _mm256_or_si256(low, _mm256_slli_epi32::<8>(high)));
                }
            }
            #[inline(always)]
            unsafe fn signed_indices(low: *const u8, high: u32, out: *mut u32, negative: *mut u32) {
                unsafe {
                    let places = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
                    let fours = _mm256_srlv_epi32(_mm256_set1_epi32(high as i32), places);
                    let high = _mm256_slli_epi32::<8>(_mm256_and_si256(fours, _mm256_set1_epi32(7)));
                    let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(low.cast()));
                    _mm256_storeu_si256(out.cast(), _mm256_or_si256(low, high));
                    let signs = _mm256_srai_epi32::<31>(_mm256_slli_epi32::<28>(fours));
                    _mm256_storeu_si256(negative.cast(), signs);
                }
            }
            #[inline(always)]
            unsafe fn spread(p: *const u32) -> Self {
                unsafe { Self::of(_mm256_cvtepi32_epi64(_mm_loadu_si128(p.cast()))) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut i8) {
                unsafe { _mm256_storeu_si256(p.cast(), self.register) }
            }
        }
    };
}

pub(in crate::isa) use bytes;

/// Eight bytes.
///
/// # Safety
/// SSE2, which is always there.
#[inline(always)]
unsafe fn eight(bytes: [u8; 8]) -> __m128i {
    let [a, b, c, d, e, f, g, h] = bytes.each(|b| b as i8);
    // SAFETY: registers only.
    unsafe { _mm_setr_epi8(a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0) }
}

/// Twelve bytes, and zeros.
///
/// # Safety
/// SSE2, which is always there.
#[inline(always)]
unsafe fn twelve(bytes: &[u8; 12]) -> __m128i {
    let p: *const u8 = bytes.as_ptr();
    // SAFETY: 8 and 4 of the bytes.
    unsafe {
        let last = _mm_cvtsi32_si128(p.add(8).cast::<i32>().read_unaligned());
        _mm_unpacklo_epi64(_mm_loadl_epi64(p.cast()), last)
    }
}

/// The bytes, as one result: the compiler must not compute its halves apart where both are needed, at different places.
///
/// # Safety
/// SSE2, which is always there.
#[inline(always)]
unsafe fn as_one(mut bytes: __m128i) -> [i8; 16] {
    // SAFETY: nothing is executed.
    unsafe {
        asm!("/* {0} */", inout(xmm_reg) bytes, options(pure, nomem, nostack, preserves_flags));
        transmute(bytes)
    }
}

/// An instruction set with AVX2 and F16C.
pub(crate) trait Avx2AndF16c: Widen + Prim<f16> + Prim<f32> {
    /// 32 bytes.
    type Bytes: Bytes;
}

// SAFETY: registers only, and the room that the caller vouches for.
unsafe impl<P: Avx2AndF16c> SimdUnpack for P {
    type Bytes = P::Bytes;
    #[inline(always)]
    unsafe fn half(h: Half) -> f32 {
        // Not as an intrinsic: the compiler then knows that one element matters, and inserts it in a register
        // whose other elements it has to wait for.
        // SAFETY: the caller vouches for the instruction set, which includes F16C.
        unsafe {
            let mut v = _mm_cvtsi32_si128(i32::from(u16::from_le_bytes(h.0)));
            asm!("vcvtph2ps {0}, {0}", inout(xmm_reg) v, options(pure, nomem, nostack, preserves_flags));
            _mm_cvtss_f32(_mm_castsi128_ps(v))
        }
    }
    #[inline(always)]
    unsafe fn scales_and_minima(packed: &[u8; 12]) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let all = twelve(packed);
            // Four words: scales and minima of the first four groups, and their high bits for the last ones.
            let first = _mm_and_si128(all, _mm_set1_epi8(63));
            let high = _mm_and_si128(_mm_srli_epi32::<2>(all), _mm_set1_epi8(0x30));
            let low = _mm_srlv_epi32(_mm_shuffle_epi32::<0b10_10>(all), _mm_setr_epi32(0, 4, 0, 0));
            let last = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)), high);
            as_one(_mm_unpacklo_epi32(first, last))
        }
    }
    #[inline(always)]
    unsafe fn six_bits(packed: &[u8; 12]) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let all = twelve(packed);
            let low = _mm_srlv_epi64(_mm_unpacklo_epi64(all, all), _mm_set_epi64x(4, 0));
            let low = _mm_and_si128(low, _mm_set1_epi8(15));
            let high = _mm_srlv_epi32(_mm_shuffle_epi32::<0b10_10_10_10>(all), _mm_setr_epi32(0, 2, 4, 6));
            let high = _mm_and_si128(_mm_slli_epi32::<4>(high), _mm_set1_epi8(0x30));
            transmute(_mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32)))
        }
    }
    #[inline(always)]
    unsafe fn split_six_bits(low: [u8; 4], high: u16) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let low = _mm_cvtsi32_si128(i32::from_le_bytes(low));
            let low = _mm_unpacklo_epi8(low, _mm_srli_epi16::<4>(low));
            let high = _mm_cvtsi32_si128(i32::from(high));
            let two = _mm_unpacklo_epi8(high, _mm_srli_epi16::<2>(high));
            let four = _mm_unpacklo_epi16(two, _mm_srli_epi16::<4>(two));
            let high = _mm_and_si128(_mm_slli_epi16::<4>(four), _mm_set1_epi8(0x30));
            let all = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(15)), high);
            as_one(_mm_sub_epi8(all, _mm_set1_epi8(32)))
        }
    }
    #[inline(always)]
    unsafe fn three_bits(words: u64) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let all = _mm_cvtsi64_si128(words as i64);
            let low = |v| _mm_and_si128(v, _mm_set1_epi16(0xe));
            let high = |v| _mm_and_si128(v, _mm_set1_epi16(0xe00));
            let first = _mm_or_si128(low(_mm_slli_epi16::<1>(all)), high(_mm_slli_epi16::<6>(all)));
            let last = _mm_or_si128(low(_mm_srli_epi16::<5>(all)), high(all));
            as_one(_mm_or_si128(_mm_unpacklo_epi16(first, last), _mm_set1_epi8(1)))
        }
    }
    #[inline(always)]
    unsafe fn halves(h: [Half; 8], out: *mut f32) {
        let [a, b, c, d, e, f, g, h] = h.each(|h| i16::from_le_bytes(h.0));
        // SAFETY: the caller vouches for the instruction set and the room.
        unsafe { _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h))) };
    }
    #[inline(always)]
    unsafe fn e8m0(e: [u8; 8], out: *mut f32) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let e = _mm256_cvtepu8_epi32(eight(e));
            let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
            let denormal = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), e);
            let small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
            _mm256_storeu_si256(out.cast(), _mm256_blendv_epi8(normal, denormal, small));
        }
    }
    #[inline(always)]
    unsafe fn ue4m3(d: [u8; 8], out: *mut f32) {
        // They are numbers of f16 but for where the exponent begins. 0x7f is 0, the sign is none.
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let d = eight(d);
            let d = _mm_andnot_si128(_mm_cmpeq_epi8(d, _mm_set1_epi8(0x7f)), d);
            let magnitudes = _mm_cvtepu8_epi16(_mm_and_si128(d, _mm_set1_epi8(0x7f)));
            let halves = _mm256_cvtph_ps(_mm_slli_epi16::<7>(magnitudes));
            _mm256_storeu_ps(out, _mm256_mul_ps(halves, _mm256_set1_ps(128.0)));
        }
    }
}
