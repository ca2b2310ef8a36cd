//! NEON: two registers.

use core::arch::aarch64::*;

use super::{Bytes, Codes, Widen};
use crate::element::f16;
use crate::isa::{Neon, Prim};
use crate::quant::blocks::Half;

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
}

// SAFETY: registers only.
unsafe impl Codes for Neon {
    type Bytes = NeonBytes;
    #[inline(always)]
    unsafe fn half(h: Half) -> f32 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { vgetq_lane_f32::<0>(<Self as Prim<f16>>::load([h.get(); 4].as_ptr())) }
    }
}
