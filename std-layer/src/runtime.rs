//! Threads, and how work is divided among them.

use std::any::Any;
use std::fmt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{available_parallelism, park, Thread};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::buffers::Buffers;

/// A number of threads that share work.
///
/// The thread that calls takes part, so `n` threads mean `n - 1` in the pool, and one thread means no
/// pool. Work is cut into more chunks than there are threads; a thread that is free takes the next one, so
/// a core that is busy with something else delays only the chunk it holds. Calls may come from many
/// threads at once, and from inside a chunk.
pub struct Runtime {
    threads: usize,
    pool: Option<ThreadPool>,
    buffers: Buffers,
}

impl Runtime {
    /// A runtime of `threads` threads; 0 stands for as many as the machine runs at once
    /// ([`available_parallelism`]: affinity masks and container quotas count).
    ///
    /// # Errors
    /// [`RuntimeError::TooMany`] for more than 64 threads that are more than 8 for each of these, as the time to start
    /// threads grows with the square of their number; [`RuntimeError::Spawn`] if the operating system refuses them.
    pub fn new(threads: usize) -> Result<Self, RuntimeError> {
        let processors = available_parallelism().map_or(1, |n| n.get());
        let threads = if threads == 0 { processors } else { threads };
        let most = processors.saturating_mul(8).max(64);
        if threads > most {
            return Err(RuntimeError::TooMany { threads, most, processors });
        }
        let pool = match threads {
            1 => None,
            n => {
                let pool =
                    ThreadPoolBuilder::new().num_threads(n - 1).thread_name(|i| format!("gllm-{}", i + 1));
                Some(pool.build().map_err(|e| RuntimeError::Spawn { threads, reason: e.to_string() })?)
            }
        };
        Ok(Self { threads, pool, buffers: Buffers::default() })
    }

    /// The process's runtime: as set by [`Runtime::set_global`], otherwise one with a thread for every
    /// processor (or a single thread, where the operating system refuses more).
    pub fn global() -> &'static Self {
        GLOBAL.get_or_init(|| {
            Self::new(0).unwrap_or(Self { threads: 1, pool: None, buffers: Buffers::default() })
        })
    }

    /// Sets the thread count of [`Runtime::global`]; possible until its first use.
    ///
    /// # Errors
    /// [`RuntimeError::AlreadySet`] afterwards; those of [`Runtime::new`].
    pub fn set_global(threads: usize) -> Result<(), RuntimeError> {
        match GLOBAL.get() {
            Some(_) => Err(RuntimeError::AlreadySet),
            None => GLOBAL.set(Self::new(threads)?).map_err(|_| RuntimeError::AlreadySet),
        }
    }

    /// Number of threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Scratch memory.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Calls `f(0)`, `f(1)`, .. `f(chunks - 1)`, each once, on whichever threads are free, and returns
    /// when all have returned.
    ///
    /// # Panics
    /// If a chunk panics: chunks that have not begun are dropped, and the panic goes on in the caller.
    pub fn for_each(&self, chunks: usize, f: impl Fn(usize) + Sync) {
        self.for_each_with(chunks, || (), |(), i| f(i));
    }

    /// Does what [`Runtime::for_each`] does, with a value of each thread's own, such as scratch memory: `init` runs
    /// once on every thread that takes part.
    ///
    /// # Panics
    /// Those of [`Runtime::for_each`].
    pub fn for_each_with<S>(
        &self,
        chunks: usize,
        init: impl Fn() -> S + Sync,
        f: impl Fn(&mut S, usize) + Sync,
    ) {
        let Some(pool) = self.pool.as_ref().filter(|_| chunks > 1) else {
            if chunks > 0 {
                let mut own = init();
                (0..chunks).for_each(|i| f(&mut own, i));
            }
            return;
        };
        let work = |next: &AtomicUsize| {
            let claim = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < chunks);
            if let Some(first) = claim() {
                let mut own = init();
                f(&mut own, first);
                while let Some(i) = claim() {
                    f(&mut own, i);
                }
            }
        };
        share(pool, chunks.min(self.threads) - 1, chunks, &work);
    }
}

static GLOBAL: OnceLock<Runtime> = OnceLock::new();

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Runtime({} threads)", self.threads)
    }
}

/// Why there is no such runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Many times more threads than could run at once.
    TooMany {
        /// How many were asked for.
        threads: usize,
        /// How many are possible.
        most: usize,
        /// How many run at once.
        processors: usize,
    },
    /// The operating system refused the threads.
    Spawn {
        /// How many were asked for.
        threads: usize,
        /// What it said.
        reason: String,
    },
    /// The global runtime is in use; its thread count can no longer change.
    AlreadySet,
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { threads, most, processors } => write!(
                f,
                "{threads} threads are more than {most}, the most for the {processors} that run at once here: pass \
                 {processors}, or 0 for as many as that"
            ),
            Self::Spawn { threads, reason } => write!(f, "cannot start {threads} threads: {reason}"),
            Self::AlreadySet => f.write_str(
                "the global runtime is in use: set its thread count before the first operator runs",
            ),
        }
    }
}

impl std::error::Error for RuntimeError {}

/// The work of a call, on the caller's stack: a function that takes chunks from a counter until there are none.
type Work<'a> = &'a (dyn Fn(&AtomicUsize) + Sync + 'a);

/// One call's state. Helpers may see it after the call has returned: a pool thread that wakes up late
/// finds the door shut. So the caller never waits for a thread that has not begun.
struct Job {
    /// The next chunk.
    next: AtomicUsize,
    chunks: usize,
    /// Helpers inside, and [`SHUT`].
    inside: AtomicUsize,
    /// Valid while the door is open or someone is inside.
    work: *const (dyn Fn(&AtomicUsize) + Sync + 'static),
    caller: Thread,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `work` points at something Sync, and `inside` guards its life; the rest is Send and Sync.
unsafe impl Send for Job {}
// SAFETY: `work` points at something Sync, and `inside` guards its life; the rest is Send and Sync.
unsafe impl Sync for Job {}

const SHUT: usize = 1 << (usize::BITS - 1);

/// How often the caller looks whether the helpers have left before it sleeps: a few microseconds.
const SPINS: u32 = 2000;

impl Job {
    /// Works until no chunk is left; keeps a panic for the caller and drops the chunks nobody has begun.
    ///
    /// # Safety
    /// The door must be open, or the calling thread be inside.
    unsafe fn work(&self) {
        // SAFETY: the door is open or this thread is inside, so `work` is valid.
        let work = unsafe { &*self.work };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&self.next))) {
            self.next.store(self.chunks, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    /// A pool thread's part.
    fn help(&self) {
        let enter = |n| (n & SHUT == 0).then_some(n + 1);
        if self.inside.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_err() {
            return;
        }
        // SAFETY: inside since `fetch_update`.
        unsafe { self.work() };
        if self.inside.fetch_sub(1, Ordering::Release) == SHUT + 1 {
            self.caller.unpark();
        }
    }

    /// Shuts the door and waits until everybody has left.
    fn finish(&self) {
        self.inside.fetch_or(SHUT, Ordering::Relaxed);
        let mut spins = 0;
        while self.inside.load(Ordering::Acquire) != SHUT {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                park();
            }
        }
    }
}

/// Runs `work` on this thread and on up to `helpers` threads of the pool.
fn share(pool: &ThreadPool, helpers: usize, chunks: usize, work: Work<'_>) {
    // SAFETY: only the lifetime changes. `work` is used by those inside and by this function, which
    // does not return before the door is shut and everybody has left; no panic passes on the way.
    let work = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
    let job = Arc::new(Job {
        next: AtomicUsize::new(0),
        chunks,
        inside: AtomicUsize::new(0),
        work,
        caller: std::thread::current(),
        panic: Mutex::new(None),
    });
    for _ in 0..helpers {
        let job = Arc::clone(&job);
        pool.spawn(move || job.help());
    }
    // SAFETY: the door is open.
    unsafe { job.work() };
    job.finish();
    let panic = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn every_chunk_once() {
        for threads in 1..=5 {
            let rt = Runtime::new(threads).unwrap();
            assert_eq!(rt.threads(), threads);
            for chunks in [0, 1, 2, 3, 7, 1000] {
                let seen: Vec<_> = (0..chunks).map(|_| AtomicU32::new(0)).collect();
                rt.for_each(chunks, |i| {
                    seen[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1), "{threads} threads, {chunks}");
            }
        }
    }

    #[test]
    fn absurd_numbers_of_threads_are_refused_at_once() {
        let processors = available_parallelism().map_or(1, |n| n.get());
        let most = (8 * processors).max(64);
        for threads in [most + 1, usize::MAX] {
            let e = Runtime::new(threads).unwrap_err();
            assert_eq!(e, RuntimeError::TooMany { threads, most, processors });
            for number in [threads, most, processors] {
                assert!(e.to_string().contains(&number.to_string()), "{e}");
            }
        }
    }

    #[test]
    fn many_small_jobs() {
        let rt = Runtime::new(4).unwrap();
        let count = AtomicUsize::new(0);
        for _ in 0..5000 {
            rt.for_each(4, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(count.into_inner(), 20000);
    }

    /// The chunk that is taken first waits until all others are done: only threads that do not wait
    /// for it can do them.
    #[test]
    fn a_stalled_thread_stalls_only_its_chunk() {
        let rt = Runtime::new(3).unwrap();
        let (tell, hear) = channel();
        let hear = Mutex::new(hear);
        let chunks = 50;
        rt.for_each(chunks, |i| {
            if i == 0 {
                let hear = hear.lock().unwrap();
                for _ in 1..chunks {
                    hear.recv_timeout(Duration::from_secs(20)).expect("the others go on");
                }
            } else {
                tell.send(i).unwrap();
            }
        });
    }

    /// Every pool thread is held by one caller; another caller's work is done without them.
    #[test]
    fn a_caller_does_not_wait_for_busy_threads() {
        let rt = Runtime::new(3).unwrap();
        let (held, is_held) = channel();
        let (release, released) = channel::<()>();
        let released = Mutex::new(released);
        std::thread::scope(|s| {
            s.spawn(|| {
                rt.for_each(3, |_| {
                    held.send(()).unwrap();
                    released.lock().unwrap().recv().unwrap();
                })
            });
            for _ in 0..3 {
                is_held.recv().unwrap();
            }
            let count = AtomicUsize::new(0);
            rt.for_each(100, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 100);
            for _ in 0..3 {
                release.send(()).unwrap();
            }
        });
    }

    #[test]
    fn calls_inside_chunks() {
        let rt = Runtime::new(4).unwrap();
        let count = AtomicUsize::new(0);
        rt.for_each(8, |_| {
            rt.for_each(8, |_| {
                rt.for_each(8, |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                })
            })
        });
        assert_eq!(count.into_inner(), 512);
    }

    #[test]
    fn calls_from_many_threads() {
        let rt = Runtime::new(4).unwrap();
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    for chunks in 0..200 {
                        let sum = AtomicUsize::new(0);
                        rt.for_each(chunks, |i| {
                            sum.fetch_add(i + 1, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), chunks * (chunks + 1) / 2);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        for threads in [1, 4] {
            let rt = Runtime::new(threads).unwrap();
            let result = catch_unwind(AssertUnwindSafe(|| {
                rt.for_each(100, |i| assert!(i != 37, "chunk 37"));
            }));
            let message = *result.unwrap_err().downcast::<&str>().unwrap();
            assert_eq!(message, "chunk 37");
            // And the runtime still works.
            let count = AtomicUsize::new(0);
            rt.for_each(10, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 10);
        }
    }

    #[test]
    fn own_state_once_a_thread() {
        let rt = Runtime::new(4).unwrap();
        let made = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let init = || made.fetch_add(1, Ordering::Relaxed);
        rt.for_each_with(1000, init, |_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert!((1..=4).contains(&made.into_inner()));
        assert_eq!(done.into_inner(), 1000);
    }
}
