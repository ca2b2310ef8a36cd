//! Buffers between inaccessible pages: a kernel that reads or writes beyond its slice faults.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
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

thread_local! {
    /// Memory with inaccessible pages at both ends that is not in use, by its size. Making pages inaccessible takes the
    /// system, and an emulator of it even more, longer than most kernels run.
    static SPARE: RefCell<HashMap<usize, Vec<Allocation>>> = RefCell::default();
}

/// Larger memory goes back to the system at once.
const LARGEST_SPARE: usize = 1 << 18;

/// `inner` bytes, whole pages, between two that are inaccessible.
fn between_guards(inner: usize) -> Allocation {
    let page = region::page::size();
    let size = inner + 2 * page;
    if let Some(memory) = SPARE.with_borrow_mut(|spare| spare.get_mut(&size)?.pop()) {
        return memory;
    }
    let mut memory = region::alloc(size, Protection::READ_WRITE).expect("the system gives memory");
    let base = memory.as_mut_ptr::<u8>();
    for at in [0, page + inner] {
        // SAFETY: the first and the last page of the allocation, which hold nothing.
        unsafe { region::protect(base.add(at), page, Protection::NONE) }.expect("pages can be protected");
    }
    memory
}

/// A slice with an inaccessible page before and behind, flush against one of them.
///
/// `T` must be a plain number: any bit pattern is a value.
pub struct Guarded<T> {
    memory: ManuallyDrop<Allocation>,
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
        let mut memory = between_guards(inner);
        // SAFETY: all offsets lie between the guards, or right behind what is between them.
        let start = unsafe {
            let base = memory.as_mut_ptr::<u8>().add(page);
            base.write_bytes(SLACK, inner);
            let start = base.add(if edge == Edge::Start { 0 } else { inner - bytes });
            start.write_bytes(POISON, bytes);
            start.cast::<T>()
        };
        let memory = ManuallyDrop::new(memory);
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
        let slack = |b: &[u8]| b.chunks(64).all(|b| *b == [SLACK; 64][..b.len()]);
        slack(&inner[..at - page]) && slack(&inner[end - page..])
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: nobody uses the memory after this.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        let size = memory.len();
        if size <= LARGEST_SPARE {
            // A thread that ends has no list any more; then the memory goes back to the system.
            let _ = SPARE.try_with(|spare| spare.borrow_mut().entry(size).or_default().push(memory));
        }
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
        // SAFETY: `len` initialised elements, valid for any bits, and exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// Whether every bit of every element is poison: nobody wrote here.
pub fn is_poison<T: Copy>(data: &[T]) -> bool {
    // SAFETY: plain numbers are bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
    bytes.iter().all(|&b| b == POISON)
}
