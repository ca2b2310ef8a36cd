//! Scratch memory: the working memory of a call. It belongs to the caller, and a query says how much a call needs.

use core::marker::PhantomData;

use crate::error::KernelError;

/// How much scratch memory a call needs, and how it must be aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ScratchReq {
    size: usize,
    align: usize,
}

impl ScratchReq {
    /// Nothing.
    pub const EMPTY: Self = Self { size: 0, align: 1 };
    /// Alignment that packed panels use: a cache line and a full AVX-512 register.
    pub const PANEL_ALIGN: usize = 64;

    /// `n` items of `T`, aligned to [`Self::PANEL_ALIGN`].
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub const fn array<T>(n: usize) -> Result<Self, KernelError> {
        match n.checked_mul(size_of::<T>()) {
            Some(size) if size <= isize::MAX as usize - Self::PANEL_ALIGN => {
                Ok(Self { size, align: Self::PANEL_ALIGN })
            }
            _ => Err(KernelError::SizeOverflow { what: "scratch size" }),
        }
    }

    /// Both requirements, one behind the other.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub const fn and(self, other: Self) -> Result<Self, KernelError> {
        let align = if self.align > other.align { self.align } else { other.align };
        let Some(padded) = self.size.checked_next_multiple_of(other.align) else {
            return Err(KernelError::SizeOverflow { what: "scratch size" });
        };
        match padded.checked_add(other.size) {
            Some(size) if size <= isize::MAX as usize - align => Ok(Self { size, align }),
            _ => Err(KernelError::SizeOverflow { what: "scratch size" }),
        }
    }

    /// Bytes that suffice in a buffer with the right alignment.
    pub const fn size(self) -> usize {
        self.size
    }
    /// Alignment in bytes, a power of two.
    pub const fn align(self) -> usize {
        self.align
    }
    /// Bytes that suffice in a buffer of any alignment.
    pub const fn size_unaligned(self) -> usize {
        if self.size == 0 {
            0
        } else {
            self.size + self.align - 1
        }
    }
}

/// A borrowed block of scratch memory; its contents are irrelevant before and undefined after a call.
#[derive(Debug)]
pub struct Scratch<'a> {
    ptr: *mut u8,
    len: usize,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Scratch<'a> {
    /// Wraps a buffer of any alignment. See [`ScratchReq::size_unaligned`].
    pub fn new(buf: &'a mut [u8]) -> Self {
        Self { ptr: buf.as_mut_ptr(), len: buf.len(), life: PhantomData }
    }

    /// No scratch at all, for plans that need none.
    pub fn empty() -> Self {
        Self::new(&mut [])
    }

    /// Takes `n` items of `T` off the front, aligned to [`ScratchReq::PANEL_ALIGN`]; their contents are arbitrary.
    ///
    /// # Errors
    /// `ScratchTooSmall`, `SizeOverflow`.
    pub(crate) fn take<T: Pod>(&mut self, n: usize) -> Result<&'a mut [T], KernelError> {
        let req = ScratchReq::array::<T>(n)?;
        let skip = (self.ptr as usize).wrapping_neg() & (req.align - 1);
        let need = if req.size == 0 { 0 } else { skip + req.size };
        if need > self.len {
            return Err(KernelError::ScratchTooSmall { need, got: self.len });
        }
        if need == 0 {
            return Ok(&mut []);
        }
        // SAFETY: `skip + size <= len`, the start is aligned for T (64 >= align_of T), the bytes are
        // initialised (they came from a `&mut [u8]`), T is valid for any bits, and the region is
        // handed out once: ptr moves past it.
        unsafe {
            let items = core::slice::from_raw_parts_mut(self.ptr.add(skip).cast::<T>(), n);
            self.ptr = self.ptr.add(need);
            self.len -= need;
            Ok(items)
        }
    }
}

/// Types valid for every bit pattern.
///
/// # Safety
/// No padding, no invalid bit patterns, alignment at most 64.
pub(crate) unsafe trait Pod: Copy {}
// SAFETY: plain numbers.
unsafe impl Pod for f32 {}
// SAFETY: plain numbers.
unsafe impl Pod for [f32; 2] {}
// SAFETY: plain numbers.
unsafe impl Pod for half::bf16 {}
// SAFETY: plain numbers.
unsafe impl Pod for i8 {}
// SAFETY: plain numbers.
unsafe impl Pod for u8 {}
// SAFETY: plain numbers.
unsafe impl Pod for i32 {}
