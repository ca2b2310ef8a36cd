//! Page-locked memory of the host, and copies that go on while the host does.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{null_mut, NonNull};

use super::driver::Context;
use super::error::CudaError;
use super::lifetime::{self, Resource};
use super::memory::{bytes, View, ViewMut};
use super::stream::{Event, Stream};
use super::sys;
use crate::aligned::Zeroable;

/// Page-locked memory of the host, zeroed at first: the GPU copies from and to it at the speed of the bus, and while the host goes on.
///
/// A copy that goes on owns the memory until it has ended ([`Copying`]), so that nobody can read, write or free it before:
///
/// ```no_run
/// # use gllm_kernels_std::cuda::{Buffer, CudaError, Driver, PinnedBuffer, Stream};
/// # let context = Driver::open()?.device(0)?.context()?;
/// # let (stream, x) = (Stream::new(&context)?, Buffer::<f32>::new(&context, 1 << 20)?);
/// let copy = PinnedBuffer::zeroed(&context, x.len())?.download(&stream, x.view())?;
/// // Something else is done here.
/// let here = copy.wait()?;
/// println!("{}", here[0]);
/// # Ok::<(), CudaError>(())
/// ```
pub struct PinnedBuffer<T: Zeroable> {
    context: Context,
    ptr: NonNull<T>,
    len: usize,
    /// Where in a stream its last copy ends.
    copied: Event,
}

// SAFETY: it owns its elements, as a Vec does.
unsafe impl<T: Zeroable> Send for PinnedBuffer<T> {}
// SAFETY: a shared buffer lends nothing but its elements, which are plain numbers.
unsafe impl<T: Zeroable> Sync for PinnedBuffer<T> {}

impl<T: Zeroable> PinnedBuffer<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// `OutOfMemory`, `Kernel(SizeOverflow)`, `Driver`.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, CudaError> {
        let asked = bytes::<T>(len)?;
        let copied = Event::new(context)?;
        let mut ptr = NonNull::<T>::dangling();
        if asked > 0 {
            let f = context.enter()?;
            let mut raw = null_mut();
            // SAFETY: writes one address.
            match unsafe { f.host_alloc(&mut raw, asked, 0) } {
                sys::OUT_OF_MEMORY => return Err(CudaError::OutOfMemory { asked, free: None }),
                code => f.check("cuMemHostAlloc", code)?,
            }
            ptr = NonNull::new(raw.cast()).ok_or(CudaError::OutOfMemory { asked, free: None })?;
            // SAFETY: the whole allocation, which starts at a page.
            unsafe { ptr.cast::<u8>().write_bytes(0, asked) };
        }
        Ok(Self { context: context.clone(), ptr, len, copied })
    }

    /// Begins to copy `from` into all of it, behind what the stream has. Does not wait.
    ///
    /// # Errors
    /// `WrongSize`, `OtherContext`, `Recording` while this thread records, `Driver`; the memory is freed then.
    pub fn download(self, stream: &Stream, from: View<'_, T>) -> Result<Copying<T>, CudaError> {
        self.check(stream, from.context(), from.len())?;
        if self.len == 0 {
            return Copying::begin(self, stream);
        }
        let f = self.context.enter()?;
        let (to, size) = (self.ptr.as_ptr().cast(), self.len * size_of::<T>());
        // SAFETY: both have `size` bytes, any of which are a valid `T`. Nobody has these before the copy has ended.
        let code = unsafe { f.download(to, from.address(), size, stream.raw()) };
        f.check("cuMemcpyDtoHAsync", code).map_err(|e| stream.blame(e))?;
        self.context.count_download(size);
        drop(f);
        Copying::begin(self, stream)
    }

    /// Begins to copy all of it to `to`, behind what the stream has. Does not wait.
    ///
    /// # Errors
    /// Those of [`download`](Self::download).
    pub fn upload(self, stream: &Stream, to: &mut ViewMut<'_, T>) -> Result<Copying<T>, CudaError> {
        self.check(stream, to.context(), to.len())?;
        if self.len == 0 {
            return Copying::begin(self, stream);
        }
        let f = self.context.enter()?;
        let (from, size) = (self.ptr.as_ptr().cast(), self.len * size_of::<T>());
        // SAFETY: both have `size` bytes. Nobody writes or frees these before the copy has ended; memory of the GPU is used in the order of
        // the stream.
        let code = unsafe { f.upload(to.address(), from, size, stream.raw()) };
        f.check("cuMemcpyHtoDAsync", code)?;
        self.context.count_upload(size);
        drop(f);
        Copying::begin(self, stream)
    }

    /// Whether it can be copied so.
    fn check(&self, stream: &Stream, other: &Context, len: usize) -> Result<(), CudaError> {
        self.context.same(stream.context())?;
        self.context.same(other)?;
        if len != self.len {
            return Err(CudaError::WrongSize { arg: "pinned", need: len, got: self.len });
        }
        // A recording would copy whenever it is started, and nobody knows when that has ended.
        if lifetime::records() {
            return Err(CudaError::Recording);
        }
        Ok(())
    }
}

impl<T: Zeroable> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.len * size_of::<T>() > 0 {
            // Allocated by `zeroed`; nothing copies: whoever copies owns it until that has ended.
            self.context.release(Resource::HostMemory(self.ptr.as_ptr().cast()));
        }
    }
}

impl<T: Zeroable> Deref for PinnedBuffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised elements (or a dangling pointer and no bytes).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `len` initialised elements (or a dangling pointer and no bytes), borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Zeroable + fmt::Debug> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A copy between a [`PinnedBuffer`] and the GPU that may not have ended. It owns the buffer, and lends it to nobody. Dropping it waits for
/// the copy. If even waiting fails, the memory is never freed, as nobody knows whether something still copies.
#[must_use = "dropping it waits for the copy"]
pub struct Copying<T: Zeroable> {
    buffer: ManuallyDrop<PinnedBuffer<T>>,
}

impl<T: Zeroable> Copying<T> {
    /// A copy has been queued.
    fn begin(buffer: PinnedBuffer<T>, stream: &Stream) -> Result<Self, CudaError> {
        let marked = buffer.copied.record(stream);
        let copying = Self { buffer: ManuallyDrop::new(buffer) };
        if let Err(error) = marked {
            // The event says nothing of this copy, so all of the stream is waited for.
            let mut buffer = ManuallyDrop::into_inner(copying.leave());
            if stream.wait().is_err() {
                // Nobody knows whether something still copies.
                buffer.len = 0;
            }
            return Err(error);
        }
        Ok(copying)
    }

    /// The buffer, without waiting for it.
    fn leave(self) -> ManuallyDrop<PinnedBuffer<T>> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, and is not dropped.
        ManuallyDrop::new(unsafe { ManuallyDrop::take(&mut this.buffer) })
    }

    /// Whether the copy has ended.
    ///
    /// # Errors
    /// `Driver`.
    pub fn ended(&self) -> Result<bool, CudaError> {
        self.buffer.copied.reached()
    }

    /// The buffer, once the copy has ended.
    ///
    /// # Errors
    /// `Driver` if something before it has failed.
    pub fn wait(self) -> Result<PinnedBuffer<T>, CudaError> {
        self.buffer.copied.wait()?;
        Ok(ManuallyDrop::into_inner(self.leave()))
    }
}

impl<T: Zeroable> Drop for Copying<T> {
    fn drop(&mut self) {
        if self.buffer.copied.wait().is_ok() {
            // SAFETY: it is dropped once, here: `leave` keeps this from being called.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}

impl<T: Zeroable> fmt::Debug for Copying<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copying<{}>({})", std::any::type_name::<T>(), self.buffer.len)
    }
}
