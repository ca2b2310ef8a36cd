//! Memory of the GPU.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use gllm_kernels_core::KernelError;

use super::driver::Context;
use super::error::CudaError;
use super::lifetime::Resource;
use super::stream::Stream;
use super::sys::{self, Address};
use crate::aligned::Zeroable;

/// Bytes of so many elements.
pub(super) fn bytes<T>(len: usize) -> Result<usize, CudaError> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&b| b <= isize::MAX as usize);
    Ok(bytes.ok_or(KernelError::SizeOverflow { what: "bytes of a buffer" })?)
}

/// Kernels read whole pieces of so many bytes, of which only the first may belong to a tensor: so much do buffers end on.
const PIECE: usize = 16;

/// Elements in GPU memory; freed when dropped, after what uses them has finished.
///
/// If it is dropped inside [`Stream::capture`], on the thread that records, it is freed with the recording.
///
/// Uploads and downloads wait until they are done. Work is ordered within a stream; between streams only
/// [events](super::Event) order it, so whoever writes a buffer on one stream and reads it on another without one finds
/// old or new elements there.
pub struct Buffer<T: Zeroable> {
    context: Context,
    address: Address,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Zeroable> Buffer<T> {
    /// Memory for `len` elements, which are arbitrary.
    ///
    /// # Errors
    /// `OutOfMemory`, `Kernel(SizeOverflow)`, `Driver`.
    pub fn new(context: &Context, len: usize) -> Result<Self, CudaError> {
        let asked = bytes::<T>(len)?;
        let mut address = 0;
        if asked > 0 {
            let f = context.enter()?;
            // SAFETY: writes one address. The multiple is at most 2^63.
            match unsafe { f.memory_alloc(&mut address, asked.next_multiple_of(PIECE)) } {
                sys::OUT_OF_MEMORY => {
                    return Err(CudaError::OutOfMemory { asked, free: context.memory().ok().map(|m| m.0) })
                }
                code => f.check("cuMemAlloc", code)?,
            }
        }
        Ok(Self { context: context.clone(), address, len, of: PhantomData })
    }

    /// A copy of `data`.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn from_slice(stream: &Stream, data: &[T]) -> Result<Self, CudaError> {
        let mut buffer = Self::new(stream.context(), data.len())?;
        buffer.upload(stream, data)?;
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Where it lives.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// All elements, to be read.
    pub fn view(&self) -> View<'_, T> {
        View { context: &self.context, address: self.address, len: self.len, of: PhantomData }
    }

    /// All elements, to be written.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut { context: &self.context, address: self.address, len: self.len, of: PhantomData }
    }

    /// Elements `range`, to be read.
    ///
    /// # Errors
    /// `WrongSize`.
    pub fn range(&self, range: Range<usize>) -> Result<View<'_, T>, CudaError> {
        self.view().range(range)
    }

    /// Elements `range`, to be written.
    ///
    /// # Errors
    /// `WrongSize`.
    pub fn range_mut(&mut self, range: Range<usize>) -> Result<ViewMut<'_, T>, CudaError> {
        self.view_mut().range(range)
    }

    /// [`ViewMut::upload`] of all elements.
    ///
    /// # Errors
    /// `WrongSize`, `OtherContext`, `Driver`.
    pub fn upload(&mut self, stream: &Stream, data: &[T]) -> Result<(), CudaError> {
        self.view_mut().upload(stream, data)
    }

    /// [`View::download`] of all elements.
    ///
    /// # Errors
    /// `WrongSize`, `OtherContext`, `Driver`, `Launch` if a kernel before it failed.
    pub fn download(&self, stream: &Stream, data: &mut [T]) -> Result<(), CudaError> {
        self.view().download(stream, data)
    }

    /// [`View::to_vec`] of all elements.
    ///
    /// # Errors
    /// Those of [`download`](Self::download).
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>, CudaError> {
        self.view().to_vec(stream)
    }

    /// [`ViewMut::fill_bytes`] of all elements.
    ///
    /// # Errors
    /// `OtherContext`, `Driver`.
    pub fn fill_bytes(&mut self, stream: &Stream, byte: u8) -> Result<(), CudaError> {
        self.view_mut().fill_bytes(stream, byte)
    }

    /// [`ViewMut::copy_from`] to all elements.
    ///
    /// # Errors
    /// `WrongSize`, `OtherContext`, `Driver`.
    pub fn copy_from<'a>(&mut self, stream: &Stream, from: impl Into<View<'a, T>>) -> Result<(), CudaError> {
        self.view_mut().copy_from(stream, from)
    }

    pub(super) fn address(&self) -> Address {
        self.address
    }
}

impl<T: Zeroable> Buffer<T> {
    /// Elements `range`, to be read and written while others have parts of the buffer, too.
    ///
    /// # Errors
    /// `WrongSize`.
    ///
    /// # Safety
    /// All work on these elements is queued on one stream, and no piece of it writes elements that it has as something else, too.
    pub(crate) unsafe fn shared_range_mut(&self, range: Range<usize>) -> Result<ViewMut<'_, T>, CudaError> {
        let part = self.range(range)?;
        Ok(ViewMut { context: part.context, address: part.address, len: part.len, of: PhantomData })
    }
}

impl Buffer<u8> {
    /// `len` elements of any type from byte `from` on, to be read and written while others have parts of the buffer, too.
    ///
    /// # Errors
    /// `WrongSize`, `Misaligned`, `Kernel(SizeOverflow)`.
    ///
    /// # Safety
    /// All work on these bytes is queued on one stream, and no piece of it writes elements that it has as something else, too.
    pub(crate) unsafe fn place<T: Zeroable>(
        &self,
        from: usize,
        len: usize,
    ) -> Result<ViewMut<'_, T>, CudaError> {
        let end = from.checked_add(bytes::<T>(len)?);
        let end = end.ok_or(KernelError::SizeOverflow { what: "bytes of a buffer" })?;
        let part = self.range(from..end)?.cast::<T>()?;
        Ok(ViewMut { context: part.context, address: part.address, len, of: PhantomData })
    }
}

impl<T: Zeroable> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.address != 0 {
            // Allocated by `new`; the driver waits for what still uses it.
            self.context.release(Resource::Memory(self.address));
        }
    }
}

impl<T: Zeroable> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} at {:#x})", std::any::type_name::<T>(), self.len, self.address)
    }
}

/// Where elements `range` of `len` begin, and how many they are.
fn within(range: &Range<usize>, len: usize) -> Result<(usize, usize), CudaError> {
    match range.end.checked_sub(range.start) {
        Some(n) if range.end <= len => Ok((range.start, n)),
        _ => Err(CudaError::WrongSize { arg: "buffer", need: range.end.max(range.start), got: len }),
    }
}

/// Consecutive elements of a [`Buffer`], to be read.
pub struct View<'a, T: Zeroable> {
    context: &'a Context,
    address: Address,
    len: usize,
    of: PhantomData<&'a [T]>,
}

impl<T: Zeroable> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Zeroable> Copy for View<'_, T> {}

impl<'a, T: Zeroable> View<'a, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub(super) fn context(&self) -> &'a Context {
        self.context
    }
    pub(super) fn address(&self) -> Address {
        self.address
    }

    /// Elements `range` of these.
    ///
    /// # Errors
    /// `WrongSize`.
    pub fn range(self, range: Range<usize>) -> Result<Self, CudaError> {
        let (from, len) = within(&range, self.len)?;
        Ok(Self { address: self.address + (from * size_of::<T>()) as Address, len, ..self })
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// `WrongSize` unless these are whole elements; `Misaligned`.
    pub(crate) fn cast<U: Zeroable>(self) -> Result<View<'a, U>, CudaError> {
        let (bytes, each) = (self.len * size_of::<T>(), size_of::<U>());
        if !bytes.is_multiple_of(each) {
            return Err(CudaError::WrongSize {
                arg: "bytes",
                need: bytes.next_multiple_of(each),
                got: bytes,
            });
        }
        if !self.address.is_multiple_of(align_of::<U>() as Address) {
            return Err(CudaError::Misaligned { arg: "bytes", align: align_of::<U>() });
        }
        Ok(View { context: self.context, address: self.address, len: bytes / each, of: PhantomData })
    }

    /// Copies the elements to `data`. Waits for the stream.
    ///
    /// # Errors
    /// `WrongSize`, `OtherContext`, `Driver`, `Launch` if a kernel before it failed.
    pub fn download(self, stream: &Stream, data: &mut [T]) -> Result<(), CudaError> {
        self.context.same(stream.context())?;
        if data.len() != self.len {
            return Err(CudaError::WrongSize { arg: "data", need: self.len, got: data.len() });
        }
        if self.len == 0 {
            return Ok(());
        }
        let f = self.context.enter()?;
        let size = size_of_val(data);
        // SAFETY: both have `size` bytes, any of which are a valid `T`; `data` is borrowed until the stream has been
        // waited for.
        let code = unsafe { f.download(data.as_mut_ptr().cast(), self.address, size, stream.raw()) };
        f.check("cuMemcpyDtoHAsync", code).map_err(|e| stream.blame(e))?;
        self.context.count_download(size);
        stream.wait()
    }

    /// The elements. Waits for the stream.
    ///
    /// # Errors
    /// Those of [`download`](Self::download).
    pub fn to_vec(self, stream: &Stream) -> Result<Vec<T>, CudaError> {
        // SAFETY: zero bytes are the value zero of every `Zeroable`.
        let mut data = vec![unsafe { std::mem::zeroed::<T>() }; self.len];
        self.download(stream, &mut data)?;
        Ok(data)
    }
}

impl<'a, T: Zeroable> From<&'a Buffer<T>> for View<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.view()
    }
}

impl<T: Zeroable> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View<{}>({} at {:#x})", std::any::type_name::<T>(), self.len, self.address)
    }
}

/// Consecutive elements of a [`Buffer`], to be written: what operators take as their result. A part of a buffer that is
/// larger than the result, or one of several results that lie in one buffer.
pub struct ViewMut<'a, T: Zeroable> {
    context: &'a Context,
    address: Address,
    len: usize,
    of: PhantomData<&'a mut [T]>,
}

impl<'a, T: Zeroable> ViewMut<'a, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub(super) fn context(&self) -> &'a Context {
        self.context
    }
    pub(super) fn address(&self) -> Address {
        self.address
    }

    /// The same elements, for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut { context: self.context, address: self.address, len: self.len, of: PhantomData }
    }

    /// The same elements, to be read.
    pub fn view(&self) -> View<'_, T> {
        View { context: self.context, address: self.address, len: self.len, of: PhantomData }
    }

    /// The same elements, to be read from now on.
    pub fn into_view(self) -> View<'a, T> {
        View { context: self.context, address: self.address, len: self.len, of: PhantomData }
    }

    /// Elements `range` of these.
    ///
    /// # Errors
    /// `WrongSize`.
    pub fn range(self, range: Range<usize>) -> Result<Self, CudaError> {
        let (from, len) = within(&range, self.len)?;
        Ok(Self { address: self.address + (from * size_of::<T>()) as Address, len, ..self })
    }

    /// The elements before `at`, and those from there on.
    ///
    /// # Errors
    /// `WrongSize`.
    pub fn split_at(self, at: usize) -> Result<(Self, Self), CudaError> {
        let (_, rest) = within(&(at..self.len.max(at)), self.len)?;
        let address = self.address + (at * size_of::<T>()) as Address;
        let second = Self { context: self.context, address, len: rest, of: PhantomData };
        Ok((Self { len: at, ..self }, second))
    }

    /// Replaces the elements; returns when `data` has been read.
    ///
    /// # Errors
    /// `WrongSize`, `OtherContext`, `Driver`.
    pub fn upload(&mut self, stream: &Stream, data: &[T]) -> Result<(), CudaError> {
        self.context.same(stream.context())?;
        if data.len() != self.len {
            return Err(CudaError::WrongSize { arg: "data", need: self.len, got: data.len() });
        }
        if self.len == 0 {
            return Ok(());
        }
        let f = self.context.enter()?;
        let size = size_of_val(data);
        // SAFETY: both have `size` bytes; `data` is borrowed until the stream has been waited for.
        let code = unsafe { f.upload(self.address, data.as_ptr().cast(), size, stream.raw()) };
        f.check("cuMemcpyHtoDAsync", code)?;
        self.context.count_upload(size);
        stream.wait()
    }

    /// Sets every byte to `byte`. Does not wait; can be captured.
    ///
    /// # Errors
    /// `OtherContext`, `Driver`.
    pub fn fill_bytes(&mut self, stream: &Stream, byte: u8) -> Result<(), CudaError> {
        self.context.same(stream.context())?;
        if self.len == 0 {
            return Ok(());
        }
        let f = self.context.enter()?;
        // SAFETY: the view has that many bytes.
        let code = unsafe { f.fill(self.address, byte, self.len * size_of::<T>(), stream.raw()) };
        f.check("cuMemsetD8Async", code)
    }

    /// Copies as many elements on the GPU. Does not wait; can be captured.
    ///
    /// # Errors
    /// `WrongSize`, `OtherContext`, `Driver`.
    pub fn copy_from<'b>(&mut self, stream: &Stream, from: impl Into<View<'b, T>>) -> Result<(), CudaError> {
        let from = from.into();
        self.context.same(stream.context())?;
        self.context.same(from.context)?;
        if from.len != self.len {
            return Err(CudaError::WrongSize { arg: "from", need: self.len, got: from.len });
        }
        if self.len == 0 {
            return Ok(());
        }
        let f = self.context.enter()?;
        // SAFETY: both have that many bytes, and do not overlap: these are borrowed exclusively.
        let code = unsafe { f.copy(self.address, from.address, self.len * size_of::<T>(), stream.raw()) };
        f.check("cuMemcpyDtoDAsync", code)
    }
}

impl<'a, T: Zeroable> From<&'a mut Buffer<T>> for ViewMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.view_mut()
    }
}

impl<T: Zeroable> fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewMut<{}>({} at {:#x})", std::any::type_name::<T>(), self.len, self.address)
    }
}
