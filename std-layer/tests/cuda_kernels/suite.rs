//! The trials, and what they share.

use std::cell::Cell;
use std::sync::OnceLock;

use gllm_kernels_std::core::ElementType;
use gllm_kernels_std::cuda::{catalogue, Buffer, Context, Float, Ops, Stream};
use gllm_kernels_std::Zeroable;
use gllm_testkit::data::Source;
use libtest_mimic::{Arguments, Trial};

use crate::cuda::Controls;
use crate::platform::{emulated, emulator, real, suffix, KINDS, SHARES_SOURCES};

#[path = "attention.rs"]
mod attention;
#[path = "bench.rs"]
mod bench;
#[path = "elementwise.rs"]
mod elementwise;
#[path = "encoders.rs"]
mod encoders;
#[path = "gemm.rs"]
mod gemm;
#[path = "gemv.rs"]
mod gemv;
#[path = "grouped.rs"]
mod grouped;
#[path = "model_bench.rs"]
mod model_bench;
#[path = "models.rs"]
mod models;
#[path = "prefill.rs"]
mod prefill;
#[path = "quant.rs"]
mod quant;
#[path = "rows.rs"]
mod rows;
#[path = "sampling.rs"]
mod sampling;
#[path = "trees.rs"]
mod trees;

pub type Outcome = Result<(), String>;

/// What operators run on.
pub struct Gpu {
    pub ops: &'static Ops,
    pub stream: Stream,
}

fn on_a_gpu() -> bool {
    std::env::var("GLLM_TEST_CUDA").is_ok_and(|v| v == "gpu")
}

/// Whether kernels are another platform's, whose trials run all of them, and an emulator is slow: some cases are enough then.
fn brief() -> bool {
    SHARES_SOURCES && !on_a_gpu()
}

/// All of `cases`; if trials are brief, each `nth` of them.
fn some_of<T>(cases: impl IntoIterator<Item = T>, nth: usize) -> impl Iterator<Item = T> {
    cases.into_iter().step_by(if brief() { nth } else { 1 })
}

thread_local! {
    /// The kind of GPU that the trial on this thread is for; 0 on a real one.
    static KIND: Cell<usize> = const { Cell::new(0) };
}

fn context() -> &'static Context {
    static CONTEXTS: [OnceLock<Context>; KINDS] = [const { OnceLock::new() }; KINDS];
    let kind = KIND.get();
    CONTEXTS[kind].get_or_init(|| {
        let driver = if on_a_gpu() { real() } else { emulated(kind) };
        driver.and_then(|d| d.device(0)?.context()).unwrap_or_else(|e| panic!("{e}"))
    })
}

/// The operators of all trials for one kind of GPU: files of kernels are unpacked and loaded once.
fn operators() -> Result<&'static Ops, String> {
    static OPERATORS: [OnceLock<Result<Ops, String>>; KINDS] = [const { OnceLock::new() }; KINDS];
    OPERATORS[KIND.get()].get_or_init(|| Ops::new(context()).map_err(text)).as_ref().map_err(Clone::clone)
}

impl Gpu {
    pub fn new() -> Result<Self, String> {
        Ok(Self { ops: operators()?, stream: Stream::new(context()).map_err(text)? })
    }

    /// A copy on the GPU.
    pub fn put<T: Zeroable>(&self, data: &[T]) -> Result<Buffer<T>, String> {
        Buffer::from_slice(&self.stream, data).map_err(text)
    }

    /// An output: every byte 0xff, NaN in every type.
    pub fn room<T: Float>(&self, n: usize) -> Result<Buffer<T>, String> {
        let mut buffer = Buffer::new(context(), n).map_err(text)?;
        buffer.fill_bytes(&self.stream, 0xff).map_err(text)?;
        Ok(buffer)
    }

    pub fn get<T: Float>(&self, buffer: &Buffer<T>) -> Result<Vec<T>, String> {
        buffer.to_vec(&self.stream).map_err(text)
    }
}

pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A stream of numbers of its own for each name; on a GPU other ones in every run.
pub fn source(name: &str) -> Source {
    let fresh = if on_a_gpu() { std::process::id() } else { 0 };
    Source::new(name.bytes().fold(u64::from(fresh), |h, b| h.wrapping_mul(31).wrapping_add(b.into())))
}

/// Half the distance of neighbouring numbers, relative to them, and the smallest one.
pub fn rounding<T: Float>() -> (f64, f64) {
    match T::TYPE {
        ElementType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
        ElementType::Bf16 => (2f64.powi(-8), 1e-37),
        _ => (2f64.powi(-24), 1e-37),
    }
}

/// `Err` unless all numbers are what they should be: within `error(i)` before they are narrowed.
pub fn compare<T: Float>(got: &[T], want: &[f64], error: impl Fn(usize) -> f64) -> Outcome {
    if got.len() != want.len() {
        return Err(format!("{} results instead of {}", got.len(), want.len()));
    }
    let (relative, least) = rounding::<T>();
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let got = f64::from(got.to_f32());
        let (far, allowed) =
            ((got - want).abs(), error(i) + relative * 1.001 * (want.abs() + error(i)) + least);
        // Not `far > allowed`: NaN is never near.
        let near = far <= allowed || (got.is_nan() && want.is_nan()) || got == want;
        // What is too large for the type is infinite.
        let overflow = got.is_infinite()
            && want.signum() == got.signum()
            && want.abs() >= f64::from(T::from_f32(f32::INFINITY).to_f32()).min(65504.0);
        if !near && !overflow {
            return Err(format!("{i}: {got:e} instead of {want:e}, off by {far:e}, allowed {allowed:e}"));
        }
    }
    Ok(())
}

/// A trial that reports how long it took, on the kind of GPU for which trials are made just now.
pub fn trial(name: impl Into<String>, check: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    let kind = KIND.get();
    let name = name.into() + &suffix(kind);
    Trial::test(name.clone(), move || {
        KIND.set(kind);
        Ok(gllm_testkit::timed(&name, check)?)
    })
}

/// One trial for each storage type.
macro_rules! each_type {
    ($trials:expr, $name:expr, $check:ident($($arg:expr),*)) => {
        $trials.push($crate::suite::trial(format!("{}_f32", $name), move || $check::<f32>($($arg),*)));
        $trials.push($crate::suite::trial(format!("{}_f16", $name), move || $check::<gllm_kernels_std::core::f16>($($arg),*)));
        $trials.push($crate::suite::trial(format!("{}_bf16", $name), move || $check::<gllm_kernels_std::core::bf16>($($arg),*)));
    };
}
use each_type;

/// `bench` on the command line, and parts of it, measures instead, which takes a GPU.
pub fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "bench") {
        if let Err(error) = bench::main(&words[1..]) {
            eprintln!("{error}");
            std::process::exit(1);
        }
        return;
    }
    let args = Arguments::from_args();
    let mut trials = Vec::new();
    if !brief() {
        elementwise::trials(&mut trials);
        rows::trials(&mut trials);
        quant::trials(&mut trials);
        attention::trials(&mut trials);
        sampling::trials(&mut trials);
        gemv::trials(&mut trials);
    }
    quant::integer_trials(&mut trials);
    grouped::trials(&mut trials);
    prefill::trials(&mut trials);
    gemm::trials(&mut trials);
    models::trials(&mut trials);
    encoders::trials(&mut trials);
    trees::trials(&mut trials);
    // Kinds of GPUs differ in how tiles are multiplied.
    for kind in 1..if on_a_gpu() { 1 } else { KINDS } {
        KIND.set(kind);
        gemm::dense_trials(&mut trials);
        if brief() {
            prefill::trials(&mut trials);
        } else {
            gemm::block_trials(&mut trials);
        }
    }
    let everything = !brief() && args.filter.is_none() && args.skip.is_empty() && !args.list;
    let result = libtest_mimic::run(&args, trials);
    if everything && !on_a_gpu() && !result.has_failed() {
        coverage();
    }
    result.exit();
}

/// Every kernel was launched, those that have wide tiles also with these, and its arguments are as large in C as they are in Rust.
fn coverage() {
    let controls = Controls::of(emulator(0));
    let mut wrong = Vec::new();
    for kernel in catalogue(context().device().capability()) {
        if controls.arguments(&kernel.name) != kernel.arguments as i32 {
            wrong.push(format!("{}: arguments differ in size", kernel.name));
        } else if !controls.launched(&kernel.name) {
            wrong.push(format!("{}: never launched", kernel.name));
        }
        let wide = ["gemm_f16", "gemm_bf16"].contains(&kernel.name.as_str());
        if wide && !controls.launched(&format!("{} by 256 threads", kernel.name)) {
            wrong.push(format!("{}: never launched with wide tiles", kernel.name));
        }
    }
    if !wrong.is_empty() {
        eprintln!("{}", wrong.join("\n"));
        std::process::exit(101);
    }
}

pub type Trials = Vec<Trial>;
