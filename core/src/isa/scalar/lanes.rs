//! Words of 32 bits one by one, in portable Rust.

use crate::arrays::{from_fn, Each};
use crate::element::f16;
use crate::isa::Scalar;
use crate::quant::lanes::{Lanes, UNPACKED};

/// The f16 that an E5M2 number (the upper half of an f16) is, or an E4M3 number times 2^-8: its fields in the
/// places of f16's, with the exponent's bias unchanged.
fn half<const E5M2: bool>(byte: u8) -> u16 {
    if E5M2 {
        u16::from(byte) << 8
    } else if byte & 0x7f == 0x7f {
        0x7fff
    } else {
        fields(byte)
    }
}

/// The f16 with the fields of an E4M3 number.
fn fields(byte: u8) -> u16 {
    let byte = u16::from(byte);
    (byte & 0x80) << 8 | (byte & 0x7f) << 7
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
    unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [u32; UNPACKED] {
        let mut all = [0; UNPACKED];
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
    unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [f32; UNPACKED] {
        // SAFETY: the caller vouches for 16 bytes.
        let bytes = unsafe { p.cast::<[u8; UNPACKED]>().read() };
        bytes.each(|b| f16::from_bits(half::<E5M2>(b)).to_f32())
    }
    #[inline(always)]
    unsafe fn e4m3(p: *const u8) -> [f32; 2] {
        // SAFETY: the caller vouches for two bytes.
        let bytes = unsafe { p.cast::<[u8; 2]>().read() };
        bytes.each(|b| f16::from_bits(fields(b)).to_f32())
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
