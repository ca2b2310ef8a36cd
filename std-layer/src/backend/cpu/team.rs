//! A team of threads that do all operations of a step of a model together, one after the other.

use std::any::Any;
use std::fmt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{available_parallelism, yield_now, Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::aligned::AlignedVec;
use crate::runtime::RuntimeError;

/// How long a waiting thread polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// How long a thread keeps its core before it offers it to other programs. That is less than a time slice of the operating
/// system: at its end the thread would be suspended in the middle of a chunk, and all others would wait for it.
const TURN: Duration = Duration::from_millis(1);

/// A list of operations, each of which begins when the one before it is complete.
pub(super) trait Work: Send + Sync {
    /// Number of operations.
    fn operations(&self) -> usize;
    /// How many chunks an operation has.
    fn chunks(&self, operation: usize) -> usize;
    /// Does a chunk. Each chunk is done once, by any thread; chunks of an operation may run at the same time.
    fn run(&self, operation: usize, chunk: usize, memory: &mut Memory);
}

/// Arrays start on a cache line.
pub(super) const LINE: usize = AlignedVec::<u8>::ALIGN;

/// A thread's own memory, kept from chunk to chunk.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: AlignedVec<u8>,
    numbers: AlignedVec<f32>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { bytes: AlignedVec::zeroed(0), numbers: AlignedVec::zeroed(0) }
    }

    /// At least `len` bytes with arbitrary contents, on a cache line.
    pub(super) fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes = AlignedVec::zeroed(len.next_power_of_two());
        }
        &mut self.bytes
    }

    /// Room for at least `len` numbers, with arbitrary contents, beside the [bytes](Self::bytes). It is to be [kept](Self::keep_numbers).
    pub(super) fn take_numbers(&mut self, len: usize) -> AlignedVec<f32> {
        let numbers = std::mem::replace(&mut self.numbers, AlignedVec::zeroed(0));
        if numbers.len() < len {
            return AlignedVec::zeroed(len.next_power_of_two());
        }
        numbers
    }

    /// Keeps this room for the next chunk.
    pub(super) fn keep_numbers(&mut self, numbers: AlignedVec<f32>) {
        self.numbers = numbers;
    }
}

/// A number of threads that do the operations of a [`Work`] together. Chunks are claimed one by one, and an operation is
/// complete when its chunks are. So nobody waits for a thread that holds no chunk, for instance because the operating system
/// has suspended it. Threads offer their cores to other programs while they hold no chunk, so that they are mostly suspended at
/// such times. A thread that comes late finds the counters of past operations used up, and goes on to the current operation.
pub(super) struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The calling thread's memory; one call at a time.
    caller: Mutex<Memory>,
}

#[derive(Default)]
struct Shared {
    news: Mutex<News>,
    /// Calls so far.
    calls: AtomicU64,
    stop: AtomicBool,
    /// Threads that sleep on `wake`, or are about to.
    sleepers: AtomicUsize,
    wake: Condvar,
}

/// The lock that sleepers hold while they look whether to go on.
#[derive(Default)]
struct News {
    job: Option<Arc<Job>>,
}

/// A call's state. Threads that come late keep it alive, and find its counters used up.
struct Job {
    work: Arc<dyn Work>,
    counters: Vec<Counter>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// An operation's chunks: the next one, and how many are done. On a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Counter {
    next: AtomicUsize,
    done: AtomicUsize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready`: watches for a while, then sleeps.
    fn wait(&self, ready: impl Fn() -> bool) {
        let watch = |times: usize| {
            (0..times).any(|_| {
                std::hint::spin_loop();
                ready()
            })
        };
        if ready() || watch(64) {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < SPIN {
            if watch(64) {
                return;
            }
        }
        // Whoever makes it ready either sees the sleeper and wakes it, or did so before the look under the lock.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut news = self.lock();
        while !ready() {
            news = self.wake.wait(news).unwrap_or_else(PoisonError::into_inner);
        }
        drop(news);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes all that sleep.
    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock());
            self.wake.notify_all();
        }
    }

    /// Takes part in a job until its end; `lap` is told when an operation is complete.
    fn follow(&self, job: &Job, memory: &mut Memory, mut lap: impl FnMut(usize)) {
        let mut turn = Instant::now();
        for (operation, counter) in job.counters.iter().enumerate() {
            let chunks = job.work.chunks(operation);
            loop {
                let chunk = counter.next.fetch_add(1, Ordering::Relaxed);
                if chunk >= chunks {
                    break;
                }
                let run = AssertUnwindSafe(|| job.work.run(operation, chunk, memory));
                if let Err(panic) = catch_unwind(run) {
                    job.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                }
                if counter.done.fetch_add(1, Ordering::SeqCst) + 1 == chunks {
                    self.wake();
                }
            }
            if turn.elapsed() >= TURN {
                yield_now();
                turn = Instant::now();
            }
            self.wait(|| counter.done.load(Ordering::SeqCst) >= chunks);
            lap(operation);
        }
    }

    /// The main function of a thread of the team.
    fn serve(&self) {
        let (mut seen, mut memory) = (0, Memory::new());
        loop {
            self.wait(|| self.calls.load(Ordering::SeqCst) != seen || self.stop.load(Ordering::SeqCst));
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            seen = self.calls.load(Ordering::SeqCst);
            let job = self.lock().job.clone();
            if let Some(job) = job {
                self.follow(&job, &mut memory, |_| ());
            }
        }
    }
}

impl Team {
    /// A team of `threads` threads, the calling one included; 0 stands for as many as the machine runs at once.
    pub(super) fn new(threads: usize) -> Result<Self, RuntimeError> {
        let threads = if threads == 0 { available_parallelism().map_or(1, |n| n.get()) } else { threads };
        let mut team =
            Self { shared: Arc::default(), threads: Vec::new(), caller: Mutex::new(Memory::new()) };
        for i in 1..threads {
            let shared = Arc::clone(&team.shared);
            let thread = Builder::new().name(format!("gllm-team-{i}")).spawn(move || shared.serve());
            let thread = thread.map_err(|e| RuntimeError::Spawn { threads, reason: e.to_string() })?;
            team.threads.push(thread);
        }
        Ok(team)
    }

    /// Threads, the calling one included.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    /// Does all operations; returns when the last one is complete. `lap` is told, on the calling thread, when each is.
    ///
    /// # Panics
    /// If a chunk panics: the panic goes on here, when the others are done.
    pub(super) fn run(&self, work: Arc<dyn Work>, lap: impl FnMut(usize)) {
        let mut memory = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = (0..work.operations()).map(|_| Counter::default()).collect();
        let job = Arc::new(Job { work, counters, panic: Mutex::new(None) });
        if !self.threads.is_empty() {
            self.shared.lock().job = Some(Arc::clone(&job));
            self.shared.calls.fetch_add(1, Ordering::SeqCst);
            self.shared.wake();
        }
        self.shared.follow(&job, &mut memory, lap);
        if !self.threads.is_empty() {
            self.shared.lock().job = None;
        }
        let panic = job.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            drop(memory);
            resume_unwind(panic);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        for thread in self.threads.drain(..) {
            // A thread's panic was given to a caller.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team({} threads)", self.threads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Each chunk adds one to its cell; an operation's chunks check that those of the one before are complete.
    struct Count {
        cells: Vec<Vec<AtomicU32>>,
        stalled: Option<(usize, Duration)>,
        panics: Option<usize>,
    }

    impl Count {
        fn new(operations: usize, chunks: usize) -> Self {
            let cells = (0..operations).map(|_| (0..chunks).map(|_| AtomicU32::new(0)).collect()).collect();
            Self { cells, stalled: None, panics: None }
        }
        fn all(&self, count: u32) -> bool {
            self.cells.iter().flatten().all(|c| c.load(Ordering::Relaxed) == count)
        }
    }

    impl Work for Count {
        fn operations(&self) -> usize {
            self.cells.len()
        }
        fn chunks(&self, operation: usize) -> usize {
            self.cells[operation].len()
        }
        fn run(&self, operation: usize, chunk: usize, memory: &mut Memory) {
            memory.bytes(100 * chunk)[..chunk].fill(1);
            if let Some((_, time)) = self.stalled.filter(|s| s.0 == operation && chunk == 0) {
                std::thread::sleep(time);
            }
            assert!(self.panics != Some(operation), "operation {operation}");
            if operation > 0 {
                assert!(self.cells[operation - 1].iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
            self.cells[operation][chunk].fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_chunk_once_and_in_order() {
        for threads in 1..=5 {
            let team = Team::new(threads).unwrap();
            assert_eq!(team.threads(), threads);
            for (operations, chunks) in [(0, 0), (1, 1), (3, 0), (50, 7), (400, 3)] {
                let work = Arc::new(Count::new(operations, chunks));
                let mut laps = Vec::new();
                team.run(work.clone(), |i| laps.push(i));
                assert!(work.all(1), "{threads} threads, {operations} operations");
                assert!(laps.into_iter().eq(0..operations));
            }
        }
    }

    #[test]
    fn many_short_calls_with_pauses() {
        let team = Team::new(3).unwrap();
        for i in 0..400 {
            let work = Arc::new(Count::new(4, 5));
            team.run(work.clone(), |_| ());
            assert!(work.all(1));
            if i % 100 == 0 {
                // Long enough for everybody to fall asleep.
                std::thread::sleep(4 * SPIN);
            }
        }
    }

    /// Whoever waits for the slow chunk sleeps, and is woken.
    #[test]
    fn a_slow_chunk_is_waited_for() {
        let team = Team::new(4).unwrap();
        let mut work = Count::new(6, 8);
        work.stalled = Some((2, Duration::from_millis(20)));
        let work = Arc::new(work);
        team.run(work.clone(), |_| ());
        assert!(work.all(1));
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        for threads in [1, 4] {
            let team = Team::new(threads).unwrap();
            let mut work = Count::new(3, 6);
            work.panics = Some(0);
            let panic = catch_unwind(AssertUnwindSafe(|| team.run(Arc::new(work), |_| ()))).unwrap_err();
            assert!(panic.downcast::<String>().unwrap().starts_with("operation 0"));
            // And the team still works.
            let work = Arc::new(Count::new(3, 6));
            team.run(work.clone(), |_| ());
            assert!(work.all(1));
        }
    }
}
