//! Buffers between inaccessible pages: a kernel that reads or writes beyond its slice faults.

use std::ops::{Deref, DerefMut};

use region::{Allocation, Protection};

/// Which end of a [`Guarded`] slice lies flush against an inaccessible page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The first element: reading before the slice faults.
    Start,
    /// The last element: reading behind the slice faults. Its start has any alignment.
    End,
}

impl Edge {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Start, Self::End];
}

/// Every byte that is not part of the slice holds this.
const SLACK: u8 = 0xa5;
/// Every byte of a new slice: a NaN in every float type.
const POISON: u8 = 0xff;

/// A slice with an inaccessible page before and behind, flush against one of them.
///
/// `T` must be a plain number: any bit pattern is a value.
pub struct Guarded<T> {
    // Unmapped when dropped.
    memory: Allocation,
    start: *mut T,
    len: usize,
}

// SAFETY: exclusive owner of its memory.
unsafe impl<T: Send> Send for Guarded<T> {}

impl<T: Copy> Guarded<T> {
    /// `len` elements, poisoned (NaN).
    pub fn poisoned(len: usize, edge: Edge) -> Self {
        let page = region::page::size();
        let bytes = len * size_of::<T>();
        let inner = bytes.max(1).next_multiple_of(page);
        let mut memory =
            region::alloc(inner + 2 * page, Protection::READ_WRITE).expect("the system gives memory");
        let base = memory.as_mut_ptr::<u8>();
        // SAFETY: all offsets lie inside the allocation of inner + 2 pages; the guard pages hold nothing.
        let start = unsafe {
            base.add(page).write_bytes(SLACK, inner);
            for at in [0, page + inner] {
                region::protect(base.add(at), page, Protection::NONE).expect("pages can be protected");
            }
            let start = base.add(if edge == Edge::Start { page } else { page + inner - bytes });
            start.write_bytes(POISON, bytes);
            start.cast::<T>()
        };
        Self { memory, start, len }
    }

    /// A copy of `data`.
    pub fn copy_of(data: &[T], edge: Edge) -> Self {
        let mut g = Self::poisoned(data.len(), edge);
        g.copy_from_slice(data);
        g
    }

    /// Whether the bytes around the slice are untouched.
    pub fn intact(&self) -> bool {
        let page = region::page::size();
        let (size, at) = (self.memory.len(), self.start as usize - self.memory.as_ptr::<u8>() as usize);
        let end = at + self.len * size_of::<T>();
        // SAFETY: the pages between the two guards are readable.
        let inner =
            unsafe { std::slice::from_raw_parts(self.memory.as_ptr::<u8>().add(page), size - 2 * page) };
        let slack = |b: &[u8]| b.iter().all(|&b| b == SLACK);
        slack(&inner[..at - page]) && slack(&inner[end - page..])
    }
}

impl<T> Deref for Guarded<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised elements, valid for any bits.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T> DerefMut for Guarded<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// Whether every bit of every element is poison: nobody wrote here.
pub fn is_poison<T: Copy>(data: &[T]) -> bool {
    // SAFETY: plain numbers are bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
    bytes.iter().all(|&b| b == POISON)
}
