//! What every x86-64 CPU has: SSE2.

use core::arch::asm;
use core::arch::x86_64::{_mm_prefetch, _mm_sfence, _MM_HINT_T0, _MM_HINT_T1};

pub(crate) use core::arch::x86_64::{
    __m128i as Bytes16, _mm_unpackhi_epi8 as zip_high, _mm_unpacklo_epi8 as zip_low,
};

/// A kernel in assembly. One convention on every system, so that one text serves them all.
pub(crate) type Assembly<Args> = unsafe extern "sysv64" fn(*const Args);

/// Whether stores can go past the caches.
pub(crate) const STREAMS: bool = true;

/// Whether programs have room for another instance of a loop where that saves time.
pub(crate) const ROOM_FOR_CODE: bool = true;

#[inline(always)]
pub(super) fn fence() {
    // SAFETY: SSE is there.
    unsafe { _mm_sfence() };
}

#[inline(always)]
pub(super) fn prefetch(p: *const i8) {
    // SAFETY: SSE is there; a prefetch never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(p) };
}

#[inline(always)]
pub(super) fn into_l2(p: *const u8) {
    // SAFETY: SSE is there; a prefetch never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) };
}

#[inline(always)]
pub(super) fn later(number: usize) -> usize {
    let mut x = number;
    // SAFETY: multiplies by one.
    unsafe { asm!("imul {x}, {x}, 1", x = inout(reg) x, options(pure, nomem, nostack)) };
    x
}

#[inline(always)]
pub(super) fn in_memory(p: *mut u8) {
    // SAFETY: nothing is executed.
    unsafe { asm!("/* {0} */", in(reg) p, options(nostack, preserves_flags)) };
}
