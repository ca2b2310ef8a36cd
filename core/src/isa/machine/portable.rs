//! Portable Rust: prefetches do nothing.

/// 16 bytes.
pub(crate) type Bytes16 = [u8; 16];

/// The first halves of both, byte by byte interleaved.
pub(crate) unsafe fn zip_low(a: Bytes16, b: Bytes16) -> Bytes16 {
    core::array::from_fn(|i| if i % 2 == 0 { a[i / 2] } else { b[i / 2] })
}

/// The second halves of both, byte by byte interleaved.
pub(crate) unsafe fn zip_high(a: Bytes16, b: Bytes16) -> Bytes16 {
    core::array::from_fn(|i| if i % 2 == 0 { a[8 + i / 2] } else { b[8 + i / 2] })
}

/// A kernel in assembly.
pub(crate) type Assembly<Args> = unsafe extern "C" fn(*const Args);

/// Whether stores can go past the caches.
pub(crate) const STREAMS: bool = false;

/// Whether programs have room for another instance of a loop where that saves time: those of firmware have not.
pub(crate) const ROOM_FOR_CODE: bool = false;

pub(super) fn fence() {}

pub(super) fn prefetch(_: *const u8) {}

pub(super) fn into_l2(_: *const u8) {}

pub(super) fn later(number: usize) -> usize {
    number
}

pub(super) fn in_memory(_: *mut u8) {}
