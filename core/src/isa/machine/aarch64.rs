//! What every aarch64 CPU with NEON has.

use core::arch::asm;

pub(crate) use core::arch::aarch64::{uint8x16_t as Bytes16, vzip1q_u8 as zip_low, vzip2q_u8 as zip_high};

/// A kernel in assembly.
pub(crate) type Assembly<Args> = unsafe extern "C" fn(*const Args);

/// Whether stores can go past the caches.
pub(crate) const STREAMS: bool = false;

/// Whether programs have room for another instance of a loop where that saves time: those of firmware have not.
pub(crate) const ROOM_FOR_CODE: bool = false;

/// There are no streaming stores.
#[inline(always)]
pub(super) fn fence() {}

#[inline(always)]
pub(super) fn prefetch(p: *const u8) {
    // SAFETY: a prefetch never faults and changes no register.
    unsafe { asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly)) };
}

#[inline(always)]
pub(super) fn into_l2(p: *const u8) {
    // SAFETY: a prefetch never faults and changes no register.
    unsafe { asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(nostack, preserves_flags, readonly)) };
}

/// Nothing is known to drop requests.
#[inline(always)]
pub(super) fn later(number: usize) -> usize {
    number
}

#[inline(always)]
pub(super) fn in_memory(p: *mut u8) {
    // SAFETY: nothing is executed.
    unsafe { asm!("/* {0} */", in(reg) p, options(nostack, preserves_flags)) };
}
