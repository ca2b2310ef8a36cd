//! Scratch memory of operators, which is kept from call to call.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::aligned::AlignedVec;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Mutex<Vec<AlignedVec<u8>>>,
}

/// How many are kept; more are in use only while calls overlap.
const MAX_IDLE: usize = 64;

impl Buffers {
    /// A buffer without bytes. [`Buffer::bytes`] allocates them.
    pub(crate) fn take(&self) -> Buffer<'_> {
        Buffer { home: self, memory: AlignedVec::zeroed(0) }
    }

    fn free(&self) -> MutexGuard<'_, Vec<AlignedVec<u8>>> {
        // A Vec of buffers is sound whatever its holder was doing.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest free buffer of at least `len` bytes, or a new one.
    fn find(&self, len: usize) -> AlignedVec<u8> {
        let mut free = self.free();
        let fits = (0..free.len()).filter(|&i| free[i].len() >= len);
        match fits.min_by_key(|&i| free[i].len()) {
            Some(i) => free.swap_remove(i),
            None => {
                drop(free);
                AlignedVec::zeroed(len)
            }
        }
    }
}

/// Scratch memory; goes back when dropped.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    home: &'a Buffers,
    memory: AlignedVec<u8>,
}

impl Buffer<'_> {
    /// At least `len` bytes with arbitrary contents.
    pub(crate) fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.memory.len() < len {
            let larger = self.home.find(len);
            self.give_back(larger);
        }
        &mut self.memory
    }

    fn give_back(&mut self, replacement: AlignedVec<u8>) {
        let old = std::mem::replace(&mut self.memory, replacement);
        let mut free = self.home.free();
        if !old.is_empty() && free.len() < MAX_IDLE {
            free.push(old);
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.give_back(AlignedVec::zeroed(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let buffers = Buffers::default();
        let first = buffers.take().bytes(1000).as_ptr();
        {
            let (mut a, mut b) = (buffers.take(), buffers.take());
            assert_eq!(a.bytes(900).as_ptr(), first);
            assert_ne!(b.bytes(900).as_ptr(), first);
            assert!(b.bytes(5000).len() >= 5000);
        }
        assert_eq!(buffers.free().len(), 3);
        assert_eq!(buffers.take().bytes(10).len(), 900);
    }
}
