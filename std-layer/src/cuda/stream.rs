//! Streams, events, and work that is recorded once and started as a whole.

use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::driver::Context;
use super::error::CudaError;
use super::lifetime::{self, Kept, Modules, Resource};
use super::sys::{self, Handle};

/// A queue of work for the GPU, done in order. Kernels stay loaded until what was queued is done, also if the
/// [`Ops`](super::Ops) are dropped before; dropping a stream waits for its kernels.
pub struct Stream {
    context: Context,
    raw: Handle,
    queued: Mutex<Queued>,
    /// [`ALONE`], [`FIRST`] or [`EARLY`].
    next: AtomicU8,
}

/// When the next kernel starts: when those before it are done; then too, but those behind it may start earlier; earlier.
const ALONE: u8 = 0;
const FIRST: u8 = 1;
const EARLY: u8 = 2;

/// What is known of the work of a stream.
#[derive(Default)]
struct Queued {
    /// The last kernel started: errors of kernels show later, without a name.
    last: Option<Arc<str>>,
    /// Where the kernels come from that were started since the stream was waited for.
    modules: Modules,
}

// SAFETY: the driver's functions may be called from any thread; the handle is never changed.
unsafe impl Send for Stream {}
// SAFETY: the driver's functions may be called from several threads at once; the handle is never changed.
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
        let code = unsafe { f.stream_create(&mut raw, sys::STREAM_NON_BLOCKING) };
        f.check("cuStreamCreate", code)?;
        Ok(Self { context: context.clone(), raw, queued: Mutex::default(), next: AtomicU8::new(ALONE) })
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
        // Other threads may start kernels while this one waits.
        let before = std::mem::take(&mut self.queued().modules);
        // SAFETY: the stream exists.
        let done = f.check("cuStreamSynchronize", unsafe { f.stream_wait(self.raw) });
        done.map_err(|e| {
            self.queued().modules.add_all(&before);
            self.blame(e)
        })
    }

    /// What is queued from now on waits for `event`.
    ///
    /// # Errors
    /// `OtherContext`, `Driver`.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        self.context.same(&event.context)?;
        let f = self.context.enter()?;
        // SAFETY: both exist.
        f.check("cuStreamWaitEvent", unsafe { f.stream_after(self.raw, event.raw, 0) })
    }

    /// Records what `work` queues on this stream, instead of doing it: launches, fills and copies on the GPU; nothing
    /// that waits or allocates, and no kernel of a file that has not been loaded, as [`Ops::load`](super::Ops::load) does. The
    /// recording ends even if `work` fails. Buffers that `work` drops are freed when the graph is.
    ///
    /// # Errors
    /// Those of `work`; `Driver`.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let f = self.context.enter()?;
        // SAFETY: the stream exists.
        let code = unsafe { f.capture_begin(self.raw, sys::CAPTURE_THREAD_LOCAL) };
        f.check("cuStreamBeginCapture", code)?;
        let end = EndCapture::begin(self);
        let done = work();
        let (recorded, mut kept) = end.finish();
        done?;
        let recorded = recorded?;
        // Other threads may have started kernels on this stream.
        kept.modules.add_all(&self.queued().modules);
        let mut raw = null_mut();
        // SAFETY: the recording exists; writes one handle.
        let code = unsafe { f.graph_instantiate(&mut raw, recorded.raw, 0) };
        f.check("cuGraphInstantiate", code)?;
        Ok(Graph { context: self.context.clone(), raw, last: self.queued().last.clone(), kept })
    }

    /// Kernels that `work` starts on this stream may start before those before them are done, where the GPU and its driver know how; the first one may not. All
    /// of them wait for those before them before they write, and before they read what these write. Earlier they read weights, and which tokens rows are
    /// and where their pages stand: no kernel that `work` starts writes any of that, but for the last one.
    pub(crate) fn overlap<R>(&self, work: impl FnOnce() -> R) -> R {
        struct End<'a>(&'a AtomicU8);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(ALONE, Relaxed);
            }
        }
        if self.context.device().overlaps() {
            self.next.store(FIRST, Relaxed);
        }
        let _end = End(&self.next);
        work()
    }

    /// The stream for the next kernel, and whether that may start before those before it are done.
    pub(super) fn next(&self) -> (Handle, bool) {
        let first = self.next.compare_exchange(FIRST, EARLY, Relaxed, Relaxed);
        (self.raw, first == Err(EARLY))
    }

    /// An error that a kernel may have caused, with its name.
    pub(super) fn blame(&self, error: CudaError) -> CudaError {
        match (error, &self.queued().last) {
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

    /// Work is being started: its last kernel, and where its kernels come from.
    pub(super) fn starts(&self, kernel: Option<&Arc<str>>, add: impl Fn(&mut Modules)) {
        let mut queued = self.queued();
        if kernel.is_some() {
            queued.last = kernel.cloned();
        }
        add(&mut queued.modules);
        lifetime::keep(add);
    }

    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let running = std::mem::take(&mut self.queued().modules);
        self.context.release(Resource::Stream(self.raw, running));
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.context)
    }
}

/// Ends a recording, also where its work panics.
struct EndCapture<'a>(&'a Stream);

impl<'a> EndCapture<'a> {
    fn begin(stream: &'a Stream) -> Self {
        lifetime::begin();
        Self(stream)
    }

    fn end(&self) -> (Result<Recorded<'a>, CudaError>, Kept) {
        let mut raw = null_mut();
        let ended = self.0.context.enter().and_then(|f| {
            // SAFETY: the stream is recording; writes one handle.
            f.check("cuStreamEndCapture", unsafe { f.capture_end(self.0.raw, &mut raw) })
        });
        (ended.map(|()| Recorded { context: &self.0.context, raw }), lifetime::end())
    }

    fn finish(self) -> (Result<Recorded<'a>, CudaError>, Kept) {
        let ended = self.end();
        std::mem::forget(self);
        ended
    }
}

impl Drop for EndCapture<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What was recorded, not yet in the form that can be started.
struct Recorded<'a> {
    context: &'a Context,
    raw: Handle,
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        self.context.release(Resource::Recording(self.raw));
    }
}

/// Work that was recorded; see [`Stream::capture`]. The kernels that it starts stay loaded as long as it exists.
pub struct Graph {
    context: Context,
    raw: Handle,
    last: Option<Arc<str>>,
    kept: Kept,
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
    /// The buffers that the work uses still exist, until it is done. Those that were dropped while it was recorded do.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.context.same(&stream.context)?;
        let f = self.context.enter()?;
        stream.starts(self.last.as_ref(), |modules| modules.add_all(&self.kept.modules));
        // SAFETY: both exist; the caller vouches for the buffers.
        let code = unsafe { f.graph_launch(self.raw, stream.raw) };
        f.check("cuGraphLaunch", code).map_err(|e| stream.blame(e))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // What was started is still done.
        self.context.release(Resource::Graph(self.raw));
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
// SAFETY: the driver's functions may be called from several threads at once; the handle is never changed.
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
        f.check("cuEventCreate", unsafe { f.event_create(&mut raw, 0) })?;
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
        f.check("cuEventRecord", unsafe { f.event_record(self.raw, stream.raw) })
    }

    /// Whether it has been reached.
    ///
    /// # Errors
    /// `Driver`.
    pub fn reached(&self) -> Result<bool, CudaError> {
        let f = self.context.enter()?;
        // SAFETY: the event exists.
        match unsafe { f.event_query(self.raw) } {
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
        f.check("cuEventSynchronize", unsafe { f.event_wait(self.raw) })
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
        f.check("cuEventElapsedTime", unsafe { f.event_elapsed(&mut ms, earlier.raw, self.raw) })?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // The driver keeps it as long as it needs it.
        self.context.release(Resource::Event(self.raw));
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.context)
    }
}
