//! 32 bytes in two registers of 16, as NEON handles them.

use core::arch::aarch64::*;
use core::mem::transmute;

use crate::arrays::Each;
use crate::element::f16;
use crate::isa::Neon;
use crate::quant::blocks::Half;
use crate::quant::bytes::{Bytes, SimdUnpack, Widen};
use crate::vector::Prim;

/// 32 bytes, with NEON.
#[derive(Clone, Copy)]
pub(crate) struct NeonBytes(uint8x16_t, uint8x16_t);

impl NeonBytes {
    /// The registers.
    #[inline(always)]
    pub(crate) fn registers(self) -> [int8x16_t; 2] {
        // SAFETY: NEON is there where there are values of this type.
        unsafe { [vreinterpretq_s8_u8(self.0), vreinterpretq_s8_u8(self.1)] }
    }
}

/// `f` of both halves.
macro_rules! both {
    ($f:ident($a:expr, $b:expr)) => {
        NeonBytes($f($a.0, $b.0), $f($a.1, $b.1))
    };
}

// SAFETY of every body: registers, or the bytes that the caller vouches for.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl Bytes for NeonBytes {
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self {
        unsafe { Self(vld1q_u8(p), vld1q_u8(p.add(16))) }
    }
    #[inline(always)]
    unsafe fn load_twice(p: *const u8) -> Self {
        unsafe { Self(vld1q_u8(p), vld1q_u8(p)) }
    }
    #[inline(always)]
    unsafe fn load_four_times(p: *const u8) -> Self {
        unsafe {
            let twice = vcombine_u8(vld1_u8(p), vld1_u8(p));
            let places = vreinterpretq_u8_u32(vld1q_u32([0, 0x0101_0101, 0x0202_0202, 0x0303_0303].as_ptr()));
            Self(vqtbl1q_u8(twice, places), vqtbl1q_u8(twice, vaddq_u8(places, vdupq_n_u8(4))))
        }
    }
    #[inline(always)]
    unsafe fn splat(x: u8) -> Self {
        unsafe { Self(vdupq_n_u8(x), vdupq_n_u8(x)) }
    }
    #[inline(always)]
    unsafe fn words64(w: [u64; 4]) -> Self {
        let pair = |a, b| unsafe { vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(a), vcreate_u64(b))) };
        Self(pair(w[0], w[1]), pair(w[2], w[3]))
    }
    #[inline(always)]
    unsafe fn words32(w: [u32; 8]) -> Self {
        let pair = |i: usize| u64::from(w[i]) | u64::from(w[i + 1]) << 32;
        unsafe { Self::words64([pair(0), pair(2), pair(4), pair(6)]) }
    }
    #[inline(always)]
    unsafe fn mask(bits: u32) -> Self {
        unsafe {
            let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
            let two = |bits: u32| {
                let (a, b) = (vdup_n_u8(bits as u8), vdup_n_u8((bits >> 8) as u8));
                vtstq_u8(vcombine_u8(a, b), bit)
            };
            Self(two(bits), two(bits >> 16))
        }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        unsafe { both!(vandq_u8(self, other)) }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        unsafe { both!(vorrq_u8(self, other)) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        unsafe { both!(veorq_u8(self, other)) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        unsafe { both!(vaddq_u8(self, other)) }
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        unsafe { both!(vsubq_u8(self, other)) }
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        unsafe { both!(vmulq_u8(self, other)) }
    }
    #[inline(always)]
    unsafe fn at_least(self, other: Self) -> Self {
        unsafe { both!(vcgeq_u8(self, other)) }
    }
    #[inline(always)]
    unsafe fn shr(self, n: u32) -> Self {
        unsafe {
            let n = vdupq_n_s8(-(n as i8));
            Self(vshlq_u8(self.0, n), vshlq_u8(self.1, n))
        }
    }
    #[inline(always)]
    unsafe fn shl(self, n: u32) -> Self {
        unsafe {
            let n = vdupq_n_s8(n as i8);
            Self(vshlq_u8(self.0, n), vshlq_u8(self.1, n))
        }
    }
    #[inline(always)]
    unsafe fn nibbles(self) -> Self {
        unsafe { Self(vandq_u8(self.0, vdupq_n_u8(15)), vshrq_n_u8::<4>(self.1)) }
    }
    #[inline(always)]
    unsafe fn lookup(self, table: &[i8; 16]) -> Self {
        unsafe {
            let table = vld1q_u8(table.as_ptr().cast());
            Self(vqtbl1q_u8(table, self.0), vqtbl1q_u8(table, self.1))
        }
    }
    #[inline(always)]
    unsafe fn swap_middle(self) -> Self {
        unsafe {
            let (a, b) = (vreinterpretq_u64_u8(self.0), vreinterpretq_u64_u8(self.1));
            Self(vreinterpretq_u8_u64(vzip1q_u64(a, b)), vreinterpretq_u8_u64(vzip2q_u64(a, b)))
        }
    }
    #[inline(always)]
    unsafe fn indices<const BITS: u32>(low: *const u8, high: u32, out: *mut u32) {
        unsafe {
            let low = vmovl_u8(vld1_u8(low));
            for (k, low) in [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low)].into_iter().enumerate() {
                let places = vmulq_n_s32(vld1q_s32([0, -1, -2, -3].as_ptr()), BITS as i32);
                let high = vshlq_u32(vdupq_n_u32(high >> (4 * BITS * k as u32)), places);
                let high = vandq_u32(high, vdupq_n_u32((1 << BITS) - 1));
                vst1q_u32(out.add(4 * k), vorrq_u32(low, vshlq_n_u32::<8>(high)));
            }
        }
    }
    #[inline(always)]
    unsafe fn signed_indices(low: *const u8, high: u32, out: *mut u32, negative: *mut u32) {
        unsafe {
            let low = vmovl_u8(vld1_u8(low));
            for (k, low) in [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low)].into_iter().enumerate() {
                // To the top, the sign first.
                let places = vld1q_s32([28, 24, 20, 16].as_ptr());
                let fours = vshlq_u32(vdupq_n_u32(high >> (16 * k)), places);
                let high = vandq_u32(vshrq_n_u32::<20>(fours), vdupq_n_u32(0x700));
                vst1q_u32(out.add(4 * k), vorrq_u32(low, high));
                vst1q_s32(negative.add(4 * k).cast(), vshrq_n_s32::<31>(vreinterpretq_s32_u32(fours)));
            }
        }
    }
    #[inline(always)]
    unsafe fn spread(p: *const u32) -> Self {
        unsafe {
            let four = vld1q_s32(p.cast());
            let [low, high] = [vmovl_s32(vget_low_s32(four)), vmovl_high_s32(four)];
            Self(vreinterpretq_u8_s64(low), vreinterpretq_u8_s64(high))
        }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut i8) {
        unsafe {
            vst1q_u8(p.cast(), self.0);
            vst1q_u8(p.cast::<u8>().add(16), self.1);
        }
    }
}

// SAFETY: reads LANES bytes.
unsafe impl Widen for Neon {
    #[inline(always)]
    unsafe fn widen(p: *const i8) -> float32x4_t {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe {
            let four = vcreate_s8(u64::from(p.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(four))))
        }
    }
    #[inline(always)]
    unsafe fn widen_fours(p: *const i8) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe {
            let words = vld1q_s32(p.cast());
            let signed = |top| vcvtq_f32_s32(vshrq_n_s32::<24>(top));
            [
                signed(vshlq_n_s32::<24>(words)),
                signed(vshlq_n_s32::<16>(words)),
                signed(vshlq_n_s32::<8>(words)),
                signed(words),
            ]
        }
    }
}

/// Twelve bytes, and zeros.
///
/// # Safety
/// NEON.
#[inline(always)]
unsafe fn twelve(bytes: &[u8; 12]) -> uint8x16_t {
    let p: *const u8 = bytes.as_ptr();
    // SAFETY: 8 and 4 of the bytes.
    unsafe {
        let last = vcreate_u8(u64::from(p.add(8).cast::<u32>().read_unaligned()));
        vcombine_u8(vld1_u8(p), last)
    }
}

/// The bytes of each word shifted to the right.
///
/// # Safety
/// NEON.
#[inline(always)]
unsafe fn right(v: uint8x16_t, by: [i8; 4]) -> uint8x16_t {
    let by = by.each(|n| u32::from_ne_bytes([-n as u8; 4]));
    // SAFETY: the four words of the array are read; the caller vouches for NEON.
    unsafe { vshlq_u8(v, vreinterpretq_s8_u32(vld1q_u32(by.as_ptr()))) }
}

// SAFETY: registers only.
unsafe impl SimdUnpack for Neon {
    type Bytes = NeonBytes;
    #[inline(always)]
    unsafe fn half(h: Half) -> f32 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { vgetq_lane_f32::<0>(<Self as Prim<f16>>::load([h.get(); 4].as_ptr())) }
    }
    #[inline(always)]
    unsafe fn scales_and_minima(packed: &[u8; 12]) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let all = twelve(packed);
            // Four words: scales and minima of the first four groups, and their high bits for the last ones.
            let first = vandq_u8(all, vdupq_n_u8(63));
            let high = vandq_u8(vshrq_n_u8::<2>(all), vdupq_n_u8(0x30));
            let low = vreinterpretq_u8_u32(vdupq_laneq_u32::<2>(vreinterpretq_u32_u8(all)));
            let low = vandq_u8(right(low, [0, 4, 0, 0]), vdupq_n_u8(15));
            let last = vorrq_u8(low, high);
            transmute(vzip1q_u32(vreinterpretq_u32_u8(first), vreinterpretq_u32_u8(last)))
        }
    }
    #[inline(always)]
    unsafe fn six_bits(packed: &[u8; 12]) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let all = twelve(packed);
            let low = vreinterpretq_u8_u64(vdupq_laneq_u64::<0>(vreinterpretq_u64_u8(all)));
            let low = vandq_u8(right(low, [0, 0, 4, 4]), vdupq_n_u8(15));
            let high = vreinterpretq_u8_u32(vdupq_laneq_u32::<2>(vreinterpretq_u32_u8(all)));
            let high = vshlq_n_u8::<4>(vandq_u8(right(high, [0, 2, 4, 6]), vdupq_n_u8(3)));
            transmute(vsubq_u8(vorrq_u8(low, high), vdupq_n_u8(32)))
        }
    }
    #[inline(always)]
    unsafe fn split_six_bits(low: [u8; 4], high: u16) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let low = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(low)));
            let low = vandq_u8(vzip1q_u8(low, vshrq_n_u8::<4>(low)), vdupq_n_u8(15));
            let high = vreinterpretq_u8_u16(vdupq_n_u16(high));
            let two = vzip1q_u8(high, vshrq_n_u8::<2>(high));
            let four = vreinterpretq_u16_u8(vshrq_n_u8::<4>(two));
            let four = vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(two), four));
            let high = vandq_u8(vshlq_n_u8::<4>(four), vdupq_n_u8(0x30));
            transmute(vsubq_u8(vorrq_u8(low, high), vdupq_n_u8(32)))
        }
    }
    #[inline(always)]
    unsafe fn three_bits(words: u64) -> [i8; 16] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let all = vreinterpretq_u16_u64(vdupq_n_u64(words));
            let low = |v| vandq_u16(v, vdupq_n_u16(0xe));
            let high = |v| vandq_u16(v, vdupq_n_u16(0xe00));
            let first = vorrq_u16(low(vshlq_n_u16::<1>(all)), high(vshlq_n_u16::<6>(all)));
            let last = vorrq_u16(low(vshrq_n_u16::<5>(all)), high(all));
            let all = vreinterpretq_u8_u16(vzip1q_u16(first, last));
            transmute(vorrq_u8(all, vdupq_n_u8(1)))
        }
    }
    #[inline(always)]
    unsafe fn halves(h: [Half; 8], out: *mut f32) {
        let h = h.each(|h| h.get());
        // SAFETY: the caller vouches for the instruction set and the room.
        unsafe {
            vst1q_f32(out, <Self as Prim<f16>>::load(h.as_ptr()));
            vst1q_f32(out.add(4), <Self as Prim<f16>>::load(h.as_ptr().add(4)));
        }
    }
    #[inline(always)]
    unsafe fn e8m0(e: [u8; 8], out: *mut f32) {
        // SAFETY: the caller vouches for the instruction set and the room.
        unsafe {
            let e = vmovl_u8(vcreate_u8(u64::from_le_bytes(e)));
            for (k, e) in [vmovl_u16(vget_low_u16(e)), vmovl_high_u16(e)].into_iter().enumerate() {
                let normal = vshlq_n_u32::<23>(vsubq_u32(e, vdupq_n_u32(1)));
                let denormal = vshlq_u32(vdupq_n_u32(1 << 21), vreinterpretq_s32_u32(e));
                let small = vcltq_u32(e, vdupq_n_u32(2));
                vst1q_u32(out.cast::<u32>().add(4 * k), vbslq_u32(small, denormal, normal));
            }
        }
    }
    #[inline(always)]
    unsafe fn ue4m3(d: [u8; 8], out: *mut f32) {
        // They are numbers of f16 but for where the exponent begins. 0x7f is 0, the sign is none.
        // SAFETY: the caller vouches for the instruction set and the room.
        unsafe {
            let d = vcreate_u8(u64::from_le_bytes(d));
            let d = vbic_u8(d, vceq_u8(d, vdup_n_u8(0x7f)));
            let bits = vshll_n_u8::<7>(vand_u8(d, vdup_n_u8(0x7f)));
            let mut halves = [Half([0; 2]); 8];
            vst1q_u16(halves.as_mut_ptr().cast(), bits);
            Self::halves(halves, out);
            for k in [0, 4] {
                vst1q_f32(out.add(k), vmulq_n_f32(vld1q_f32(out.add(k)), 128.0));
            }
        }
    }
}
