//! Memory for operands: allocated and touched once, carved anew for every measurement.

use gllm_kernels_std::AlignedVec;

/// One block of huge pages.
#[derive(Debug)]
pub struct Arena {
    block: AlignedVec<u8>,
}

/// Operands are this far apart beyond whole pages, so that equal offsets in different operands do
/// not meet in the same cache set.
const STAGGER: usize = 9 * 64;

/// Room that carving may lose per operand.
const SLACK: usize = 3 * 4096;

/// Operands a workload may have.
const OPERANDS: usize = 8;

impl Arena {
    /// Room for operands of `bytes` in total, filled with noise: a line of zeros is no measure of memory. Zen 4
    /// writes 85 GB/s of them on one core, and 28 of anything else.
    pub fn new(bytes: usize) -> Self {
        let mut block = AlignedVec::<u8>::zeroed(bytes + OPERANDS * SLACK);
        for (i, word) in block.chunks_mut(8).enumerate() {
            let noise = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&noise.to_ne_bytes()[..word.len()]);
        }
        Self { block }
    }

    /// Makes room for `bytes`; contents are lost if it grows.
    pub fn reserve(&mut self, bytes: usize) {
        if self.block.len() < bytes + OPERANDS * SLACK {
            // The old block goes first: both may not fit.
            self.block = AlignedVec::zeroed(0);
            *self = Self::new(bytes);
        }
    }

    /// Starts carving.
    pub fn carve(&mut self) -> Carver<'_> {
        Carver { rest: &mut self.block, taken: 0 }
    }
}

/// Hands out the arena piece by piece.
#[derive(Debug)]
pub struct Carver<'a> {
    rest: &'a mut [u8],
    taken: usize,
}

/// Plain numbers: any bits are a value.
///
/// # Safety
/// No padding, no invalid bits, alignment at most 64.
pub unsafe trait Plain: Copy + 'static {}
macro_rules! plain {
    ($($t:ty)*) => {$(
        // SAFETY: a number.
        unsafe impl Plain for $t {}
    )*};
}
plain! { u8 i8 u32 i32 f32 gllm_kernels_core::f16 gllm_kernels_core::bf16 }

/// The bytes of numbers.
pub fn bytes<T: Plain>(numbers: &[T]) -> &[u8] {
    // SAFETY: plain numbers have no padding.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The numbers in bytes.
///
/// # Panics
/// If the bytes do not start or end where a number does.
pub fn numbers<T: Plain>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bits are a number.
    let (before, numbers, after) = unsafe { bytes.align_to() };
    assert!(before.is_empty() && after.is_empty(), "bytes between numbers");
    numbers
}

impl<'a> Carver<'a> {
    /// `n` numbers, on a cache line; contents are arbitrary.
    ///
    /// # Panics
    /// If the arena was not reserved for as much.
    pub fn take<T: Plain>(&mut self, n: usize) -> &'a mut [T] {
        let rest = std::mem::take(&mut self.rest);
        let to_page = (rest.as_ptr() as usize).wrapping_neg() % 4096;
        let (_, rest) = rest.split_at_mut(to_page + self.taken * STAGGER);
        let (piece, rest) = rest.split_at_mut(n * size_of::<T>());
        self.rest = rest;
        self.taken += 1;
        // SAFETY: the piece is exclusive, long enough, aligned to 64 bytes, and T is plain.
        unsafe { std::slice::from_raw_parts_mut(piece.as_mut_ptr().cast(), n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_aligned() {
        let mut arena = Arena::new(40_000);
        let mut c = arena.carve();
        let (a, b, d) = (c.take::<f32>(5000), c.take::<u8>(1), c.take::<f32>(4999));
        a.fill(1.0);
        b.fill(2);
        d.fill(3.0);
        assert_eq!(a.as_ptr() as usize % 64, 0);
        assert_eq!(d.as_ptr() as usize % 64, 0);
        assert!(a.iter().all(|&x| x == 1.0) && b[0] == 2 && d.iter().all(|&x| x == 3.0));
        assert_eq!(bytes(a).len(), 20_000);
        assert_eq!(numbers::<f32>(bytes(a)), a);
    }
}
