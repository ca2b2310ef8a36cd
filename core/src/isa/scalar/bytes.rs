//! 32 bytes as an array, in portable Rust.

use core::mem::transmute;

use crate::arrays::{from_fn, Each};
use crate::isa::Scalar;
use crate::quant::bytes::{Lookup, Widen};
use crate::quant::{Format, Unpack, PART};

// SAFETY: reads one byte, as the contract allows.
unsafe impl Widen for Scalar {
    #[inline(always)]
    unsafe fn widen(p: *const i8) -> f32 {
        // SAFETY: the caller vouches for the byte.
        f32::from(unsafe { *p })
    }
    #[inline(always)]
    unsafe fn widen_fours(p: *const i8) -> [f32; 4] {
        // SAFETY: the caller vouches for the bytes.
        unsafe { *p.cast::<[i8; 4]>() }.each(f32::from)
    }
}

// SAFETY: reads and writes the bytes, as the contract allows.
unsafe impl Lookup for Scalar {
    #[inline(always)]
    unsafe fn look_up(table: &[i8; 16], p: *mut u8, n: usize) {
        for i in 0..n {
            // SAFETY: the caller vouches for the bytes.
            unsafe { *p.add(i) = table[usize::from(*p.add(i) & 15)] as u8 };
        }
    }
}

// SAFETY: reads the blocks through references only.
unsafe impl<F: Format> Unpack<F> for Scalar {
    #[inline(always)]
    unsafe fn scales(first: *const F::Block, n: usize, out: *mut f32) {
        let groups = F::LEN / F::GROUP;
        for k in 0..n * groups {
            // SAFETY: the caller vouches for n blocks and room for their scales.
            unsafe { *out.add(k) = F::scale(&*first.add(k / groups), k % groups) };
        }
    }
    #[inline(always)]
    unsafe fn offsets(first: *const F::Block, n: usize, out: *mut f32) {
        let groups = F::LEN / F::GROUP;
        for k in 0..n * groups {
            // SAFETY: the caller vouches for n blocks and room for their offsets.
            unsafe { *out.add(k) = F::offset(&*first.add(k / groups), k % groups) };
        }
    }
    type Ready = ();
    #[inline(always)]
    unsafe fn ready(_: *const F::Block, _: *mut ()) {}
    #[inline(always)]
    unsafe fn codes(b: *const F::Block, i: usize, (): &()) -> [i8; PART] {
        // SAFETY: the caller vouches for the block.
        let b = unsafe { &*b };
        // Half by half: a format whose block is 32 nibbles has one half in the lower ones and one in the upper. Within a half
        // all codes are taken out alike, which the compiler makes vectors of.
        let halves: [[i8; PART / 2]; 2] = from_fn(|h| from_fn(|k| F::code(b, i + h * (PART / 2) + k)));
        // SAFETY: these are as many bytes.
        unsafe { transmute::<[[i8; PART / 2]; 2], [i8; PART]>(halves) }
    }
}
