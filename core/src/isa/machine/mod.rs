//! What every CPU of an architecture has, whatever its instruction set: memory fences, prefetches, and vectors of
//! 16 bytes.

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

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Bytes of the smallest page of virtual memory. Intel's hardware prefetchers stop at its end. It is also the size of one
/// way of the first-level cache on all CPUs for which there are microkernels, so that lines whose addresses differ by a
/// multiple of it compete for the same set.
pub(crate) const PAGE: usize = 4096;

/// Orders streaming stores before whatever follows.
#[inline(always)]
pub(crate) fn fence() {
    this::fence();
}

/// Prefetches the cache line at `p` into the first-level cache. The address need not be valid.
#[inline(always)]
pub(crate) fn prefetch<T>(p: *const T) {
    this::prefetch(p.cast());
}

/// Prefetches the cache line at `p` into the second-level cache. The address need not be valid. The first-level cache is
/// left alone: it can wait for few lines at a time, and those are needed for data that are used sooner.
#[inline(always)]
pub(crate) fn into_l2(p: *const u8) {
    this::into_l2(p);
}

/// Returns `number`, some cycles later. Prefetches whose addresses depend on it wait for each other. Without this
/// nothing would hold them back: they would leave in bursts, as soon as they are decoded, and AMD's Zen drops prefetches
/// while too many are outstanding.
#[inline(always)]
pub(crate) fn later(number: usize) -> usize {
    this::later(number)
}

/// Makes the compiler assume that the memory at `p` may have changed. Numbers that have been written there as vectors are then
/// read one by one. The compiler would otherwise move them from the vector registers, which takes several times as long.
#[inline(always)]
pub(crate) fn in_memory<T>(p: *mut T) {
    this::in_memory(p.cast());
}
