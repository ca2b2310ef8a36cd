//! How long the driver's things live: kernels as long as work that uses them is queued or recorded, and what is dropped
//! during a recording until it can be released.

use std::cell::RefCell;
use std::ffi::c_void;

use super::driver::Context;
use super::module::Module;
use super::sys::{Address, Api, Handle};

/// Something of the driver's that is not used any more.
pub(super) enum Resource {
    Memory(Address),
    HostMemory(*mut c_void),
    /// A stream, and the kernels that it may still be running.
    Stream(Handle, Modules),
    Event(Handle),
    Module(Handle),
    Recording(Handle),
    Graph(Handle),
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for Resource {}

impl Resource {
    /// Gives it back to the driver, in the context that is current.
    pub(super) fn release(self, f: &(dyn Api + 'static)) {
        // SAFETY: whoever made a resource had it from the driver, and gave it up with this.
        unsafe {
            match self {
                Self::Memory(address) => f.memory_free(address),
                Self::HostMemory(start) => f.host_free(start),
                Self::Stream(stream, running) => {
                    // What is queued is done even after the stream is destroyed; the kernels must be there as long.
                    if !running.0.is_empty() {
                        f.stream_wait(stream);
                    }
                    f.stream_destroy(stream)
                }
                Self::Event(event) => f.event_destroy(event),
                Self::Module(module) => f.module_unload(module),
                Self::Recording(recording) => f.graph_destroy(recording),
                Self::Graph(graph) => f.graph_exec_destroy(graph),
            }
        };
    }
}

/// Files of kernels that stay loaded as long as this exists.
#[derive(Clone, Default)]
pub(super) struct Modules(Vec<Module>);

impl Modules {
    pub(super) fn add(&mut self, module: &Module) {
        if !self.0.contains(module) {
            self.0.push(module.clone());
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|module| self.add(module));
    }
}

/// What a recording keeps: the kernels that it starts, and what was dropped while it was made, which its work may use.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) modules: Modules,
    dropped: Vec<(Context, Resource)>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        for (context, resource) in self.dropped.drain(..) {
            context.release(resource);
        }
    }
}

thread_local! {
    /// What the recordings keep that this thread is making, the innermost last.
    static RECORDINGS: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with the recordings of this thread. A thread that is ending has none.
fn recordings<R>(f: impl FnOnce(&mut Vec<Kept>) -> R) -> Option<R> {
    RECORDINGS.try_with(|all| f(&mut all.borrow_mut())).ok()
}

/// Whether this thread records.
pub(super) fn records() -> bool {
    recordings(|all| !all.is_empty()).unwrap_or(false)
}

/// Begins to keep things on this thread.
pub(super) fn begin() {
    recordings(|all| all.push(Kept::default()));
}

/// What has been kept since the last `begin`.
pub(super) fn end() -> Kept {
    recordings(Vec::pop).flatten().unwrap_or_default()
}

/// Adds to the kernels of all recordings of this thread: other streams than those they began with can take part in them.
pub(super) fn keep(add: impl Fn(&mut Modules)) {
    recordings(|all| all.iter_mut().for_each(|kept| add(&mut kept.modules)));
}

/// Keeps a resource if this thread is recording; else gives it back.
pub(super) fn defer(context: &Context, resource: Resource) -> Option<Resource> {
    let mut resource = Some(resource);
    recordings(|all| {
        if let Some(kept) = all.last_mut() {
            kept.dropped.extend(resource.take().map(|r| (context.clone(), r)));
        }
    });
    resource
}
