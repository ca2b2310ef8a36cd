//! Buffers that start on a cache line.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use gllm_kernels_core::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// Numbers for which all-zero bytes are the value zero. Sealed.
pub trait Zeroable: sealed::Sealed + Copy + Send + Sync + 'static {}

macro_rules! zeroable {
    ($($t:ty)*) => {$(
        impl sealed::Sealed for $t {}
        impl Zeroable for $t {}
    )*};
}
zeroable! { f32 f64 f16 bf16 u8 i8 u16 i16 u32 i32 u64 i64 usize }

/// A zeroed buffer of fixed length that starts on a cache line.
///
/// Large ones start on a huge page's boundary and ask Linux for huge pages: fewer address
/// translations make streaming through them 5 to 10 % faster, and in a virtual machine up to twice as fast. Their pages come into being
/// when they are first written to.
///
/// ```
/// let mut y = gllm_kernels_std::AlignedVec::<f32>::zeroed(1000);
/// y[999] = 1.0;
/// assert_eq!(y.as_ptr() as usize % 64, 0);
/// ```
pub struct AlignedVec<T: Zeroable> {
    /// What was allocated, and where in it the elements are.
    memory: NonNull<u8>,
    ptr: NonNull<T>,
    len: usize,
}

// SAFETY: an AlignedVec owns its elements, as a Vec does.
unsafe impl<T: Zeroable> Send for AlignedVec<T> {}
// SAFETY: a shared AlignedVec lends nothing but its elements, which are plain numbers.
unsafe impl<T: Zeroable> Sync for AlignedVec<T> {}

impl<T: Zeroable> AlignedVec<T> {
    /// Alignment of every buffer, in bytes.
    pub const ALIGN: usize = 64;
    /// Alignment, in bytes, of buffers of at least twice this size.
    pub const HUGE: usize = 2 << 20;

    /// `len` zeros.
    ///
    /// # Panics
    /// If the size does not fit `isize`, as [`Vec`] does. A failed allocation aborts.
    pub fn zeroed(len: usize) -> Self {
        let (layout, align) = Self::layout(len);
        if layout.size() == 0 {
            return Self { memory: NonNull::dangling(), ptr: NonNull::dangling(), len };
        }
        // SAFETY: the size is not zero. Zero bytes are the value zero of every `Zeroable`.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let skip = memory.as_ptr().align_offset(align);
        // SAFETY: the layout has room for the elements behind the first multiple of the alignment.
        let ptr = unsafe { NonNull::new_unchecked(memory.as_ptr().add(skip)) };
        // The advice comes before the first write: pages that exist stay small.
        #[cfg(target_os = "linux")]
        if align == Self::HUGE {
            let whole = layout.size() - Self::HUGE;
            // SAFETY: addresses of this allocation; the advice changes no contents. A kernel without
            // huge pages refuses it, which is fine.
            unsafe { libc::madvise(ptr.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
        }
        Self { memory, ptr: ptr.cast(), len }
    }

    /// A copy of a slice.
    pub fn from_slice(data: &[T]) -> Self {
        let mut v = Self::zeroed(data.len());
        v.copy_from_slice(data);
        v
    }

    /// What is allocated, and the alignment of the elements in it. Large buffers are asked for with a small alignment and room to spare:
    /// allocators then take pages that are zero already, instead of writing zeros.
    fn layout(len: usize) -> (Layout, usize) {
        let size = len.checked_mul(size_of::<T>()).filter(|&s| s <= isize::MAX as usize - 3 * Self::HUGE);
        let size = size.expect("AlignedVec: the size fits isize");
        let (size, align, inner) = if size >= 2 * Self::HUGE {
            (size.next_multiple_of(Self::HUGE) + Self::HUGE, align_of::<u64>(), Self::HUGE)
        } else {
            (size, Self::ALIGN, Self::ALIGN)
        };
        (Layout::from_size_align(size, align).expect("AlignedVec: the size was checked"), inner)
    }
}

impl<T: Zeroable> Drop for AlignedVec<T> {
    fn drop(&mut self) {
        let (layout, _) = Self::layout(self.len);
        if layout.size() != 0 {
            // SAFETY: allocated with the same layout.
            unsafe { dealloc(self.memory.as_ptr(), layout) }
        }
    }
}

impl<T: Zeroable> Deref for AlignedVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised elements (or a dangling pointer and no bytes).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for AlignedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised elements (or a dangling pointer and no bytes), and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Clone for AlignedVec<T> {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl<T: Zeroable + fmt::Debug> fmt::Debug for AlignedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for len in [0, 1, 15, 16, 17, 1 << 20, (4 << 20) + 3] {
            let mut v = AlignedVec::<f32>::zeroed(len);
            assert_eq!(v.len(), len);
            if len > 0 {
                assert_eq!(v.as_ptr() as usize % 64, 0);
            }
            if len >= 1 << 20 {
                assert_eq!(v.as_ptr() as usize % AlignedVec::<f32>::HUGE, 0);
            }
            assert!(v.iter().all(|&x| x == 0.0));
            v.fill(1.0);
            assert_eq!(v.clone().iter().sum::<f32>(), v.iter().sum::<f32>());
        }
    }

    #[test]
    #[should_panic(expected = "fits isize")]
    fn too_large() {
        AlignedVec::<f32>::zeroed(usize::MAX / 4);
    }
}
