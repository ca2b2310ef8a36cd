//! Streams, events, and work that is recorded once and started as a whole.

use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::driver::Context;
use super::error::CudaError;
use super::sys::{self, Handle};

/// A queue of work for the GPU, done in order.
pub struct Stream {
    context: Context,
    raw: Handle,
    /// The last kernel started: errors of kernels show later, without a name.
    last: Mutex<Option<Arc<str>>>,
}

// SAFETY: the driver's functions may be called from any thread; the handle is never changed.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A queue that waits for no other.
    ///
    /// # Errors
    /// `Driver`.
    pub fn new(context: &Context) -> Result<Self, CudaError> {
        let f = context.enter()?;
        let mut raw = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (f.stream_create)(&mut raw, sys::STREAM_NON_BLOCKING) };
        f.check("cuStreamCreate", code)?;
        Ok(Self { context: context.clone(), raw, last: Mutex::new(None) })
    }

    /// Where it lives.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits until all work is done.
    ///
    /// # Errors
    /// `Launch` if a kernel failed, `Driver`.
    pub fn wait(&self) -> Result<(), CudaError> {
        let f = self.context.enter()?;
        // SAFETY: the stream exists.
        f.check("cuStreamSynchronize", unsafe { (f.stream_wait)(self.raw) }).map_err(|e| self.blame(e))
    }

    /// What is queued from now on waits for `event`.
    ///
    /// # Errors
    /// `OtherContext`, `Driver`.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        self.context.same(&event.context)?;
        let f = self.context.enter()?;
        // SAFETY: both exist.
        f.check("cuStreamWaitEvent", unsafe { (f.stream_after)(self.raw, event.raw, 0) })
    }

    /// Records what `work` queues on this stream, instead of doing it: launches, fills and copies on the GPU; nothing
    /// that waits or allocates, and no kernel of a file that has not been loaded, as [`Ops::load`](super::Ops::load) does. The
    /// recording ends even if `work` fails.
    ///
    /// # Errors
    /// Those of `work`; `Driver`.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let f = self.context.enter()?;
        // SAFETY: the stream exists.
        let code = unsafe { (f.capture_begin)(self.raw, sys::CAPTURE_THREAD_LOCAL) };
        f.check("cuStreamBeginCapture", code)?;
        let end = EndCapture(self);
        let done = work();
        let recorded = end.finish();
        done?;
        let recorded = recorded?;
        let mut raw = null_mut();
        // SAFETY: the recording exists, and is not needed any more afterwards.
        let code = unsafe {
            let code = (f.graph_instantiate)(&mut raw, recorded, 0);
            (f.graph_destroy)(recorded);
            code
        };
        f.check("cuGraphInstantiate", code)?;
        Ok(Graph { context: self.context.clone(), raw, last: self.last().clone() })
    }

    /// An error that a kernel may have caused, with its name.
    pub(super) fn blame(&self, error: CudaError) -> CudaError {
        match (error, &*self.last()) {
            // The codes of sticky errors, from an illegal address to an unspecified failure.
            (CudaError::Driver { why, .. }, Some(kernel)) if (700..720).contains(&why.code) => {
                CudaError::Launch { kernel: kernel.to_string(), why }
            }
            (error, _) => error,
        }
    }

    pub(super) fn raw(&self) -> Handle {
        self.raw
    }

    pub(super) fn last(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `new`; work that is queued is still done.
        self.context.release(|f| unsafe { (f.stream_destroy)(self.raw) });
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.context)
    }
}

/// Ends a recording, also where its work panics.
struct EndCapture<'a>(&'a Stream);

impl EndCapture<'_> {
    fn end(&self) -> Result<Handle, CudaError> {
        let f = self.0.context.enter()?;
        let mut recorded = null_mut();
        // SAFETY: the stream is recording; writes one handle.
        f.check("cuStreamEndCapture", unsafe { (f.capture_end)(self.0.raw, &mut recorded) })?;
        Ok(recorded)
    }

    fn finish(self) -> Result<Handle, CudaError> {
        let recorded = self.end();
        std::mem::forget(self);
        recorded
    }
}

impl Drop for EndCapture<'_> {
    fn drop(&mut self) {
        if let Ok(recorded) = self.end() {
            // SAFETY: the recording is not used.
            self.0.context.release(|f| unsafe { (f.graph_destroy)(recorded) });
        }
    }
}

/// Work that was recorded; see [`Stream::capture`].
pub struct Graph {
    context: Context,
    raw: Handle,
    last: Option<Arc<str>>,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for Graph {}

impl Graph {
    /// Queues all of it.
    ///
    /// # Errors
    /// `OtherContext`, `Launch`, `Driver`.
    ///
    /// # Safety
    /// The buffers that the work uses still exist, until it is done.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.context.same(&stream.context)?;
        let f = self.context.enter()?;
        if self.last.is_some() {
            *stream.last() = self.last.clone();
        }
        // SAFETY: both exist; the caller vouches for the buffers.
        let code = unsafe { (f.graph_launch)(self.raw, stream.raw) };
        f.check("cuGraphLaunch", code).map_err(|e| stream.blame(e))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`; what was started is still done.
        self.context.release(|f| unsafe { (f.graph_exec_destroy)(self.raw) });
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({:?})", self.context)
    }
}

/// A point in the work of a stream.
pub struct Event {
    context: Context,
    raw: Handle,
}

// SAFETY: the driver's functions may be called from any thread; the handle is never changed.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// A point that lies in no stream yet: it counts as reached.
    ///
    /// # Errors
    /// `Driver`.
    pub fn new(context: &Context) -> Result<Self, CudaError> {
        let f = context.enter()?;
        let mut raw = null_mut();
        // SAFETY: writes one handle.
        f.check("cuEventCreate", unsafe { (f.event_create)(&mut raw, 0) })?;
        Ok(Self { context: context.clone(), raw })
    }

    /// Moves it behind what is queued on `stream`.
    ///
    /// # Errors
    /// `OtherContext`, `Driver`.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.same(&stream.context)?;
        let f = self.context.enter()?;
        // SAFETY: both exist.
        f.check("cuEventRecord", unsafe { (f.event_record)(self.raw, stream.raw) })
    }

    /// Whether it has been reached.
    ///
    /// # Errors
    /// `Driver`.
    pub fn reached(&self) -> Result<bool, CudaError> {
        let f = self.context.enter()?;
        // SAFETY: the event exists.
        match unsafe { (f.event_query)(self.raw) } {
            sys::NOT_READY => Ok(false),
            code => f.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits until it is reached.
    ///
    /// # Errors
    /// `Driver`.
    pub fn wait(&self) -> Result<(), CudaError> {
        let f = self.context.enter()?;
        // SAFETY: the event exists.
        f.check("cuEventSynchronize", unsafe { (f.event_wait)(self.raw) })
    }

    /// Milliseconds from `earlier` to this one; both have been reached.
    ///
    /// # Errors
    /// `OtherContext`, `Driver`.
    pub fn ms_since(&self, earlier: &Event) -> Result<f32, CudaError> {
        self.context.same(&earlier.context)?;
        let f = self.context.enter()?;
        let mut ms = 0.0;
        // SAFETY: both exist; writes one number.
        f.check("cuEventElapsedTime", unsafe { (f.event_elapsed)(&mut ms, earlier.raw, self.raw) })?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the driver keeps it as long as it needs it.
        self.context.release(|f| unsafe { (f.event_destroy)(self.raw) });
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.context)
    }
}
