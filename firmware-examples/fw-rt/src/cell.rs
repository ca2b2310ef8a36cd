//! Static memory that a program takes once.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// A static that its first taker owns: buffers and scratch memory without an allocator, and without `static mut`.
pub struct Once<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is handed out once.
unsafe impl<T: Send> Sync for Once<T> {}

impl<T> Once<T> {
    /// Not taken yet.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value.
    ///
    /// # Panics
    /// If it was taken before.
    #[allow(clippy::mut_from_ref)] // Once only.
    pub fn take(&'static self) -> &'static mut T {
        assert!(!self.taken.swap(true, Ordering::AcqRel), "taken twice");
        // SAFETY: nobody else gets past the swap.
        unsafe { &mut *self.value.get() }
    }
}
