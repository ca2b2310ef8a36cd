//! What every CPU of an architecture has, whatever its instruction set: the order of its memory accesses, requests for
//! lines, and vectors of 16 bytes.

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64;
#[cfg(not(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_feature = "neon")
)))]
mod portable;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
use aarch64 as this;
#[cfg(not(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_feature = "neon")
)))]
use portable as this;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use x86_64 as this;

pub(crate) use this::{zip_high, zip_low, Assembly, Bytes16, ROOM_FOR_CODE, STREAMS};

/// The unit of memory traffic, in bytes.
pub(crate) const LINE: usize = 64;

/// Orders streaming stores before whatever follows.
#[inline(always)]
pub(crate) fn fence() {
    this::fence();
}

/// Asks for the cache line at `p`, which need not be a valid address.
#[inline(always)]
pub(crate) fn prefetch<T>(p: *const T) {
    this::prefetch(p.cast());
}

/// Asks for the cache line at `p`, which need not be a valid address, but not for the first-level cache,
/// whose few places for lines under way are needed for what is used next.
#[inline(always)]
pub(crate) fn into_l2(p: *const u8) {
    this::into_l2(p);
}

/// Returns `number`, some cycles later. Prefetches whose addresses depend on it wait for each other. Without this
/// nothing would hold them back: they would leave in bursts, as soon as they are decoded, and AMD's Zen drops what is
/// asked for while too much is under way.
#[inline(always)]
pub(crate) fn later(number: usize) -> usize {
    this::later(number)
}

/// Makes the compiler forget what is in memory at `p`: numbers that vectors have written are then read one by one, not
/// moved from registers, which takes several times as long.
#[inline(always)]
pub(crate) fn in_memory<T>(p: *mut T) {
    this::in_memory(p.cast());
}
