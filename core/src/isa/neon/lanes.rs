//! Words of 32 bits in registers of 128 bits.

use core::arch::aarch64::*;

use crate::element::f16;
use crate::isa::neon::vector::from_f16;
use crate::isa::Neon;
use crate::quant::lanes::{Lanes, UNPACKED};
use crate::vector::Prim;

/// The f16 of 8 bytes, as [`Lanes::fp8`] says.
#[inline(always)]
unsafe fn halves_of_fp8<const E5M2: bool, const NAN: bool>(bytes: uint8x8_t) -> uint16x8_t {
    // SAFETY: the caller vouches for NEON.
    unsafe {
        if E5M2 {
            return vshll_n_u8::<8>(bytes);
        }
        // Sign extension puts the sign into the highest bit; its copies in the bits below have to be cleared.
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

    #[inline(always)]
    unsafe fn words(p: *const u32) -> uint32x4_t {
        // SAFETY: the caller vouches for the instruction set and the words.
        unsafe { vld1q_u32(p) }
    }
    #[inline(always)]
    unsafe fn shr(w: uint32x4_t, n: u32) -> uint32x4_t {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { vshlq_u32(w, vdupq_n_s32(-(n as i32))) }
    }
    #[inline(always)]
    unsafe fn shl(w: uint32x4_t, n: u32) -> uint32x4_t {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { vshlq_u32(w, vdupq_n_s32(n as i32)) }
    }
    #[inline(always)]
    unsafe fn or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { vorrq_u32(a, b) }
    }
    #[inline(always)]
    unsafe fn mantissa(w: uint32x4_t, mask: u32, above: u32) -> float32x4_t {
        // SAFETY: registers only; the caller vouches for the instruction set. Outside of the mask are the bits of
        // `above`.
        unsafe { vreinterpretq_f32_u32(vbslq_u32(vdupq_n_u32(mask), w, vdupq_n_u32(above))) }
    }
    #[inline(always)]
    unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [uint32x4_t; UNPACKED] {
        let b = BITS as i32;
        // SAFETY: the caller vouches for the instruction set; `places` has the four numbers that are read.
        unsafe {
            let mut all = [vdupq_n_u32(0); UNPACKED];
            for (i, codes) in all.iter_mut().enumerate().take(UNPACKED / 4) {
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
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { vdupq_n_u32(0) }
    }
    #[inline(always)]
    unsafe fn peak(before: uint32x4_t, w: uint32x4_t) -> uint32x4_t {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe {
            let w = vandq_u32(w, vdupq_n_u32(0x7f7f_7f7f));
            vreinterpretq_u32_u8(vmaxq_u8(vreinterpretq_u8_u32(before), vreinterpretq_u8_u32(w)))
        }
    }
    #[inline(always)]
    unsafe fn saw_nan(peak: uint32x4_t) -> bool {
        // SAFETY: registers only; the caller vouches for the instruction set.
        unsafe { vmaxvq_u8(vreinterpretq_u8_u32(peak)) == 0x7f }
    }
    #[inline(always)]
    unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [float32x4_t; UNPACKED] {
        // SAFETY: the caller vouches for 16 bytes; the halves are read from where they were written.
        unsafe {
            let bytes = vld1q_u8(p);
            let mut halves16 = [f16::ZERO; UNPACKED];
            let at = halves16.as_mut_ptr();
            vst1q_u16(at.cast(), halves_of_fp8::<E5M2, NAN>(vget_low_u8(bytes)));
            vst1q_u16(at.add(8).cast(), halves_of_fp8::<E5M2, NAN>(vget_high_u8(bytes)));
            let mut all = [vdupq_n_f32(0.0); UNPACKED];
            for (i, v) in all.iter_mut().enumerate().take(UNPACKED / 4) {
                *v = <Self as Prim<f16>>::load(at.add(4 * i));
            }
            all
        }
    }
    #[inline(always)]
    unsafe fn e4m3(p: *const u8) -> [float32x4_t; 2] {
        // SAFETY: the caller vouches for 8 bytes.
        unsafe {
            let halves = halves_of_fp8::<false, false>(vld1_u8(p));
            [from_f16(vget_low_u16(halves)), from_f16(vget_high_u16(halves))]
        }
    }
}
