//! Every core operator on all threads.

mod blas1;
mod elementwise;
mod external;
mod gemm;
mod matrix;
pub(crate) mod qgemm;
mod rows;

use std::ops::Range;
use std::sync::OnceLock;

use gllm_kernels_core::{Element, KernelError, Kernels, Operand, StorePolicy};

pub use qgemm::QgemmGroup;

use crate::detect;
use crate::runtime::Runtime;

/// The operators of [`Kernels`] on the threads of a [`Runtime`]: the same names, arguments and errors.
///
/// Results do not depend on the number of threads, bit for bit: sums are cut at places that only the
/// length decides, and their parts are added in order. Small calls run on the calling thread.
#[derive(Debug)]
pub struct Parallel<'a, E: Operand> {
    runtime: &'a Runtime,
    kernels: Kernels<E>,
    stores: StorePolicy,
}

impl<E: Operand> Clone for Parallel<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Operand> Copy for Parallel<'_, E> {}

impl<E: Operand> Parallel<'static, E> {
    /// The best kernels on all of the machine's processors.
    pub fn global() -> Self {
        Self::new(Runtime::global())
    }
}

impl<'a, E: Operand> Parallel<'a, E> {
    /// The best kernels for this machine on the threads of `runtime`.
    pub fn new(runtime: &'a Runtime) -> Self {
        Self::with_kernels(runtime, detect::kernels())
    }

    /// Chosen kernels on the threads of `runtime`.
    pub fn with_kernels(runtime: &'a Runtime, kernels: Kernels<E>) -> Self {
        Self { runtime, kernels, stores: StorePolicy::Auto }
    }

    /// The same operators with another store policy: under [`StorePolicy::Auto`] the size of the whole output decides,
    /// not that of a chunk.
    pub fn with_stores(self, stores: StorePolicy) -> Self {
        Self { stores, ..self }
    }

    /// The kernels.
    pub fn kernels(&self) -> Kernels<E> {
        self.kernels
    }

    /// The threads.
    pub fn runtime(&self) -> &'a Runtime {
        self.runtime
    }
}

impl<E: Element> Parallel<'_, E> {
    /// The kernels with the store policy that fits an output of `bytes` bytes.
    fn kernels_for(&self, bytes: usize) -> Kernels<E> {
        self.kernels.with_stores(match self.stores {
            StorePolicy::Auto if bytes >= self.kernels.stream_from() => StorePolicy::Streamed,
            StorePolicy::Auto => StorePolicy::Cached,
            chosen => chosen,
        })
    }

    /// `f` on chunks of an output whose elements do not depend on each other.
    fn map(
        &self,
        out: &mut [E],
        f: impl Fn(&Kernels<E>, Range<usize>, &mut [E]) -> Result<(), KernelError> + Sync,
    ) -> Result<(), KernelError> {
        let k = self.kernels_for(size_of_val(out));
        let cuts = Cuts::elements(out, self.runtime.threads());
        chunks_mut(self.runtime, out, cuts, |range, part| f(&k, range, part))
    }

    /// `f` of each part of `0..n`, in order. Where the parts end depends on `n` alone.
    fn fold(
        &self,
        n: usize,
        f: impl Fn(Range<usize>) -> Result<f32, KernelError> + Sync,
    ) -> Result<Vec<f32>, KernelError> {
        let cuts = Cuts::fixed::<E>(n);
        let mut parts = vec![0.0; cuts.count(n)];
        chunks_mut(self.runtime, &mut parts, Cuts { first: 1, step: 1 }, |which, part| {
            // One element each.
            for (i, part) in which.zip(part) {
                *part = f(cuts.range(n, i))?;
            }
            Ok(())
        })?;
        Ok(parts)
    }
}

/// Where `0..n` is cut: `0..first`, then every `step`.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    first: usize,
    step: usize,
}

/// A chunk of fewer bytes takes more time to hand out than to process.
const MIN_CHUNK_BYTES: usize = 64 << 10;

/// Bytes of a chunk at most: core walks several pages side by side from here on, and larger chunks are shared out less
/// evenly.
const MAX_CHUNK_BYTES: usize = 1 << 20;

/// Chunks for each thread, where there is enough work. The more there are, the less a thread that is suspended delays the
/// others.
const CHUNKS_PER_THREAD: usize = 8;

const PAGE: usize = 4096;

impl Cuts {
    /// For elements that do not depend on each other. Chunks start on a page.
    fn elements<E>(out: &[E], threads: usize) -> Self {
        let bytes = size_of_val(out);
        if threads == 1 || bytes < 2 * MIN_CHUNK_BYTES {
            return Self { first: out.len().max(1), step: 1 };
        }
        let step = (bytes / (threads * CHUNKS_PER_THREAD))
            .clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES)
            .next_multiple_of(PAGE);
        let to_page = (out.as_ptr() as usize).wrapping_neg() % PAGE;
        Self { first: (to_page + step) / size_of::<E>(), step: step / size_of::<E>() }
    }

    /// For sums over `n` elements of `E`, whatever the number of threads.
    fn fixed<E>(n: usize) -> Self {
        let bytes = (n.saturating_mul(size_of::<E>()) / 64)
            .clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES)
            .next_multiple_of(PAGE);
        Self { first: bytes / size_of::<E>(), step: bytes / size_of::<E>() }
    }

    /// For `rows` independent rows of `bytes` bytes together.
    fn rows(bytes: usize, rows: usize, threads: usize) -> Self {
        if threads == 1 || bytes < 2 * MIN_CHUNK_BYTES {
            return Self { first: rows.max(1), step: 1 };
        }
        let step = (bytes / (threads * CHUNKS_PER_THREAD)).clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES);
        Self::whole_rows(step, bytes, rows, 1)
    }

    /// For `rows` rows of `bytes` bytes together, in multiples of `group`, whatever the number of threads.
    fn rows_fixed(bytes: usize, rows: usize, group: usize) -> Self {
        Self::whole_rows((bytes / 64).clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES), bytes, rows, group)
    }

    /// For `rows` rows of a matrix of `bytes` bytes that is read once, in multiples of `group`. Chunks may be larger
    /// than the second-level cache, because the core prefetches them.
    fn long_rows(bytes: usize, rows: usize, group: usize, threads: usize) -> Self {
        Self::whole_rows(
            (bytes / (threads * CHUNKS_PER_THREAD)).clamp(MIN_CHUNK_BYTES, 4 * MAX_CHUNK_BYTES),
            bytes,
            rows,
            group,
        )
    }

    /// As many rows as have `step` bytes, rounded up to a multiple of `group`.
    fn whole_rows(step: usize, bytes: usize, rows: usize, group: usize) -> Self {
        let row_bytes = (bytes / rows.max(1)).max(1);
        let step = step.div_ceil(row_bytes).next_multiple_of(group);
        Self { first: step, step }
    }

    /// The same cuts where every item has `n` elements.
    fn times(self, n: usize) -> Self {
        Self { first: self.first * n, step: self.step * n }
    }

    /// Number of chunks of `0..n`.
    fn count(self, n: usize) -> usize {
        match n.checked_sub(self.first) {
            None => (n > 0).into(),
            Some(rest) => 1 + rest.div_ceil(self.step),
        }
    }

    /// Chunk `i < count(n)`.
    fn range(self, n: usize, i: usize) -> Range<usize> {
        let end = self.first + i * self.step;
        if i == 0 {
            0..end.min(n)
        } else {
            end - self.step..end.min(n)
        }
    }
}

/// Calls `f` with every chunk of `out` and its range. The first error is returned; other chunks may
/// have been written by then.
fn chunks_mut<T: Send>(
    runtime: &Runtime,
    out: &mut [T],
    cuts: Cuts,
    f: impl Fn(Range<usize>, &mut [T]) -> Result<(), KernelError> + Sync,
) -> Result<(), KernelError> {
    struct Shared<T>(*mut T);
    // SAFETY: used for disjoint ranges of an exclusively borrowed slice of Send elements.
    unsafe impl<T: Send> Sync for Shared<T> {}
    impl<T> Shared<T> {
        /// # Safety
        /// `range` lies in the slice, and no one else uses it.
        #[allow(clippy::mut_from_ref)] // The ranges are disjoint.
        unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
        }
    }

    let n = out.len();
    let base = Shared(out.as_mut_ptr());
    let failed = OnceLock::new();
    runtime.for_each(cuts.count(n), |i| {
        let range = cuts.range(n, i);
        // SAFETY: ranges of different chunks are disjoint and end by `n`; each chunk runs once.
        let part = unsafe { base.part(range.clone()) };
        if let Err(e) = f(range, part) {
            failed.get_or_init(|| e);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_everything_once() {
        let buffer = vec![0f32; 3 << 20];
        for start in [0, 1, 5, 1024] {
            for n in [0, 1, 1000, 32768, 32769, 100_003, (2 << 20) + 1] {
                for threads in [1, 2, 4, 64] {
                    let out = &buffer[start..start + n];
                    let cuts = Cuts::elements(out, threads);
                    let mut end = 0;
                    for i in 0..cuts.count(n) {
                        let range = cuts.range(n, i);
                        assert_eq!(range.start, end);
                        assert!(i == 0 || (out[range.start..].as_ptr() as usize).is_multiple_of(PAGE));
                        assert!(!range.is_empty());
                        end = range.end;
                    }
                    assert_eq!(end, n, "{cuts:?}");
                }
            }
        }
    }

    /// Cores of a processor may differ in speed: what a slow one holds when all else is done is a small part of the whole,
    /// whatever kind of work is cut.
    #[test]
    fn a_slow_core_keeps_one_small_chunk() {
        let (threads, rows) = (2, 4096);
        let mut out = vec![0u8; 16 << 20];
        let bytes = out.len();
        let kinds = [
            Cuts::elements(&out, threads),
            Cuts::fixed::<u8>(bytes),
            Cuts::rows(bytes, rows, threads).times(bytes / rows),
            Cuts::rows_fixed(bytes, rows, 8).times(bytes / rows),
            Cuts::long_rows(bytes, rows, 8, threads).times(bytes / rows),
        ];
        let runtime = Runtime::new(threads).unwrap();
        for cuts in kinds {
            let (tell, hear) = std::sync::mpsc::channel();
            let hear = std::sync::Mutex::new(hear);
            let chunks = cuts.count(bytes);
            let result = chunks_mut(&runtime, &mut out, cuts, |range, part| {
                assert!(part.len() <= bytes / (threads * CHUNKS_PER_THREAD) + PAGE, "{cuts:?}");
                if range.start == 0 {
                    // As slow as can be: the other thread does everything else meanwhile.
                    let hear = hear.lock().unwrap();
                    for _ in 1..chunks {
                        hear.recv_timeout(std::time::Duration::from_secs(20)).expect("the other goes on");
                    }
                } else {
                    tell.send(()).unwrap();
                }
                Ok(())
            });
            assert_eq!(result, Ok(()));
        }
    }

    #[test]
    fn errors_come_back() {
        let runtime = Runtime::new(3).unwrap();
        let mut out = [0u8; 10];
        let wrong = KernelError::SizeOverflow { what: "test" };
        let result = chunks_mut(&runtime, &mut out, Cuts { first: 1, step: 1 }, |r, _| {
            if r.start == 7 {
                Err(wrong)
            } else {
                Ok(())
            }
        });
        assert_eq!(result, Err(wrong));
    }
}
