//! Unpacking blocks into codes, scales and offsets.

use core::mem::MaybeUninit;

use crate::args::unpacker::Unpacked;
use crate::isa::machine::in_memory;
use crate::quant::{Format, Unpack, PART};

/// Writes the scales and offsets of `n` blocks.
///
/// # Safety
/// `n` blocks at `w`; room for `n * LEN / GROUP` scales and offsets at `out`; the instruction set.
#[inline(always)]
pub(crate) unsafe fn scales<F: Format, P: Unpack<F>>(n: usize, w: *const u8, out: &Unpacked) {
    let first = w.cast::<F::Block>();
    // SAFETY: the caller's contract.
    unsafe {
        P::scales(first, n, out.scales);
        if F::OFFSETS {
            P::offsets(first, n, out.offsets);
        }
    }
}

/// Takes `n` blocks apart: the one kernel that every format has of its own.
///
/// # Safety
/// `n` blocks at `w`; room for `n * LEN` codes and `n * LEN / GROUP` scales and offsets at `out`; the
/// instruction set.
#[inline(always)]
pub(crate) unsafe fn unpack<F: Format, P: Unpack<F>>(n: usize, w: *const u8, out: &Unpacked) {
    let first = w.cast::<F::Block>();
    // SAFETY: the loops stay within n blocks and what they unpack to.
    unsafe {
        scales::<F, P>(n, w, out);
        let mut ready = MaybeUninit::<P::Ready>::uninit();
        let ready = ready.as_mut_ptr();
        for b in 0..n {
            P::ready(first.add(b), ready);
            in_memory(ready);
            for i in (0..F::LEN).step_by(PART) {
                P::put(P::codes(first.add(b), i, &*ready), out.codes.add(b * F::LEN + i));
            }
        }
    }
}
