//! One product on four cores: each does a range of rows, and sleeps (`wfe`) until there is one. The result has the bits of
//! a single core's.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use defmt::info;
use fw_rt::{check, signal_event, start_core, wait_for_event, Hvc, Once, Stack};
use gllm_kernels_core::{
    KernelError, Kernels, MatMut, MatRef, PackedQ, Precision, Prepared, QuantFormat, QuantRef, Scratch,
};
use programs::{activations, packed, same_bits, Random};

fw_rt::program!(run);

const CORES: usize = 4;
/// 44 panels of 16 rows, but for the last.
const ROWS: usize = 700;
const COLS: usize = 512;
const BATCH: usize = 2;
const PANEL: usize = PackedQ::ROW_STEP;
const FORMATS: [QuantFormat; 2] = [QuantFormat::Q4_0, QuantFormat::Q8_0];

/// A core's work, and its answer.
struct Core {
    /// There is work.
    go: AtomicBool,
    done: AtomicBool,
    /// Refused calls.
    refused: AtomicU32,
    job: spin::Cell,
}

/// What a core reads and writes: its rows.
struct Job {
    w: PackedQ<'static>,
    x: Prepared<'static, f32>,
    y: MatMut<'static, f32>,
}

/// One owner at a time: the first core before `go`, the other one from there on.
mod spin {
    use super::Job;
    use core::cell::UnsafeCell;

    pub struct Cell(UnsafeCell<Option<Job>>);
    // SAFETY: `go` hands it from core to core.
    unsafe impl Sync for Cell {}

    impl Cell {
        pub const fn new() -> Self {
            Self(UnsafeCell::new(None))
        }
        /// # Safety
        /// Nobody else uses it now.
        #[allow(clippy::mut_from_ref)] // The caller vouches for it.
        pub unsafe fn get(&self) -> &mut Option<Job> {
            // SAFETY: the caller's contract.
            unsafe { &mut *self.0.get() }
        }
    }
}

static TEAM: [Core; CORES - 1] = [const {
    Core {
        go: AtomicBool::new(false),
        done: AtomicBool::new(false),
        refused: AtomicU32::new(0),
        job: spin::Cell::new(),
    }
}; CORES - 1];

static STACKS: Once<[Stack<16>; CORES - 1]> = Once::new([const { Stack::new() }; CORES - 1]);

struct Buffers {
    values: [f32; ROWS * COLS],
    x: [f32; BATCH * COLS],
    blocks: [u8; ROWS * COLS / 32 * 34],
    packed: [u8; packed(&FORMATS, ROWS, COLS)],
    activations: [u8; activations(BATCH, COLS)],
    y: [f32; BATCH * ROWS],
}

static BUFFERS: Once<Buffers> = Once::new(Buffers {
    values: [0.0; _],
    x: [0.0; _],
    blocks: [0; _],
    packed: [0; _],
    activations: [0; _],
    y: [0.0; _],
});
static TOGETHER: Once<[f32; BATCH * ROWS]> = Once::new([0.0; BATCH * ROWS]);

/// What the other cores do, for ever. Each finds out for itself what it has: on big.LITTLE they differ. Results do not.
fn work(core: &'static Core) {
    let k = fw_rt::kernels();
    loop {
        while !core.go.swap(false, Ordering::Acquire) {
            wait_for_event();
        }
        // SAFETY: the first core has given the job away.
        let refused = unsafe { core.job.get() }.take().map_or(1, |job| u32::from(job.run(&k).is_err()));
        core.refused.fetch_add(refused, Ordering::Relaxed);
        core.done.store(true, Ordering::Release);
        signal_event();
    }
}

impl Job {
    fn run(self, k: &Kernels<f32>) -> Result<(), KernelError> {
        let plan = k.qgemm_plan(self.w.format(), BATCH, self.w.rows(), COLS, Precision::Integer)?;
        plan.run(self.y, self.w, self.x, None, Scratch::empty())
    }
}

fn run() -> Result<usize, KernelError> {
    // Interrupts and exceptions apart, SIMD state is a core's own: nothing is to be saved.
    for (i, (core, stack)) in TEAM.iter().zip(STACKS.take()).enumerate() {
        // SAFETY: the stack is this core's alone; `work` does not return.
        let started = unsafe { start_core::<Hvc, _, 16>(i as u64 + 1, stack, move || work(core)) };
        if started.is_err() {
            defmt::error!("core {} does not start", i + 1);
            return Ok(1);
        }
    }

    let Buffers { values, x, blocks, packed, activations, y } = BUFFERS.take();
    let together = TOGETHER.take();
    let mut random = Random(3);
    random.fill(values);
    random.fill(x);
    let k = fw_rt::kernels::<f32>();
    let mut wrong = 0;
    for format in FORMATS {
        let bytes = format.row_bytes(COLS)? * ROWS;
        k.quantize(format, values, None, &mut blocks[..bytes])?;
        // SAFETY: nothing of these is written while cores work, nor used by them later; they are static.
        let (packed, activations, x): (&'static mut [u8], &'static mut [u8], &'static [f32]) = unsafe {
            let whole = |b: &mut [u8]| core::slice::from_raw_parts_mut(b.as_mut_ptr(), b.len());
            (whole(packed), whole(activations), core::slice::from_raw_parts(x.as_ptr(), x.len()))
        };
        let w = k.pack_q(QuantRef::new(&blocks[..bytes], format, ROWS, COLS)?, packed)?;
        let plan = k.qgemm_plan(format, BATCH, ROWS, COLS, Precision::Integer)?.packed(true);
        let a = plan.prepare(MatRef::new(x, BATCH, COLS)?, activations)?;

        y.fill(f32::NAN);
        plan.run(MatMut::new(y, BATCH, ROWS)?, w, a, None, Scratch::empty())?;

        together.fill(f32::NAN);
        wrong += share(&k, w, a, together)?;
        wrong += check(format.name(), same_bits(y, together) && y.iter().all(|y| y.is_finite()));
        info!("{}: {} rows on {} cores", format, ROWS, CORES);
    }
    Ok(wrong)
}

/// The product on all cores; how many have refused theirs.
fn share(
    k: &Kernels<f32>,
    w: PackedQ<'static>,
    x: Prepared<'static, f32>,
    y: &mut [f32; BATCH * ROWS],
) -> Result<usize, KernelError> {
    // SAFETY: this call waits for all cores before it returns, so the view does not outlive what it borrows.
    let y: &'static mut [f32] = unsafe { core::slice::from_raw_parts_mut(y.as_mut_ptr(), y.len()) };
    // Rows of weights are columns of `y`; as rows of its transpose they can be split.
    let mut rest = MatMut::new(y, BATCH, ROWS)?.t();
    let step = ROWS.div_ceil(CORES).next_multiple_of(PANEL);
    for (i, core) in TEAM.iter().enumerate() {
        let (own, others) = rest.split_rows(step)?;
        rest = others;
        let job = Job { w: w.row_range(i * step, step)?, x, y: own.t() };
        // SAFETY: `go` is false and the core's last job done: it waits.
        unsafe { *core.job.get() = Some(job) };
        core.go.store(true, Ordering::Release);
    }
    signal_event();
    let first = (CORES - 1) * step;
    let mine = Job { w: w.row_range(first, ROWS - first)?, x, y: rest.t() }.run(k);
    let mut refused = usize::from(mine.is_err());
    for core in &TEAM {
        while !core.done.swap(false, Ordering::Acquire) {
            wait_for_event();
        }
        refused += core.refused.swap(0, Ordering::Relaxed) as usize;
    }
    Ok(refused)
}
