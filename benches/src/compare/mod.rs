//! Comparison with other libraries, in one process: the same data, as many threads, calls alternating. A
//! library is a [`Peer`], what it can do a [`Row`] of it. That process is a [`worker`]: a library may crash.

use std::cell::RefCell;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use gllm_kernels_core::{Caps, ElementType, QuantFormat};
use gllm_kernels_std::{AlignedVec, Runtime};
use serde::{Deserialize, Serialize};

use crate::arena::{numbers, Arena, Plain};
use crate::error::{unknown, Failure, Outcome};
use crate::machine::cores;
use crate::measure::{interleave_after, median, median_ratio, seconds};
use crate::run::timed_calls;
use crate::workload::{refused, Case, Entry, Shape, Sizes};

mod cblas;
mod check;
#[cfg(feature = "peer-ggml")]
pub mod ggml;
mod library;
#[cfg(feature = "peer-ggml")]
pub mod llama;
mod mkl;
mod openblas;
#[cfg(any(test, debug_assertions))]
mod plain;
#[cfg(any(test, feature = "peer-ggml"))]
mod quantised;
#[cfg(feature = "peers")]
mod rust;
pub mod worker;
mod worst;

use check::Check;
use worker::Opened;

/// Pairs of samples, most and least; the machine's mood changes, ratios of neighbours less.
const PAIRS: (usize, usize) = (25, 5);

/// Idle threads of a library go on looking for work for a while, on the cores that the other side needs:
/// about a millisecond, as the peers are set up here.
const SETTLE: Duration = Duration::from_millis(5);

/// Products without `--shape`: M, N, K.
const PRODUCTS: &[[usize; 3]] = &[
    [256, 256, 256],
    [512, 512, 512],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [1023, 1025, 1027],
    [512, 4096, 4096],
    [128, 11008, 4096],
    [8, 4096, 4096],
    [32, 4096, 4096],
];

/// Matrices times a vector without `--shape`.
const MATRICES: &[[usize; 3]] = &[[1, 4096, 4096], [1, 32768, 4096]];

/// Vectors and rows without `--shape`: in the first-level cache.
const VECTORS: &[[usize; 3]] = &[[1, 4096, 1]];

/// Another library, opened.
pub trait Peer: Sized + 'static {
    /// What `--peer` calls it.
    const NAME: &'static str;
    /// What it can be compared in.
    const ROWS: &'static [Row<Self>];
    /// Our operators without `--op`.
    const OPS: &'static [&'static str] = &["gemm"];
    /// Whether it has a row for a case of this row's operator and type.
    fn takes(_row: &Row<Self>, _case: &Case) -> bool {
        true
    }
    /// Finds it, for the rest of the process; `library` is the file that the user named.
    fn open(library: Option<&Path>) -> Outcome<&'static Self>;
    /// What it says about itself.
    fn version(&self) -> String;
    /// Why a comparison with our kernels for `caps` may mean little.
    fn warning(&self, _caps: Caps) -> Option<String> {
        None
    }
    /// All later calls run on so many threads.
    fn set_threads(&self, threads: usize) -> Outcome;
    /// Its idle threads stop looking for work, if they do that for long; the next call wakes them.
    fn rest(&self) {}
    /// The thread counts to measure: those that the user named, if it can run on them, or a choice.
    fn threads(named: &[usize]) -> Outcome<Vec<usize>> {
        Ok(if named.is_empty() { one_and_all() } else { named.to_vec() })
    }
}

/// One thread, and one for each core.
fn one_and_all() -> Vec<usize> {
    let mut threads = vec![1, cores()];
    threads.dedup();
    threads
}

/// One operator and its counterpart.
pub struct Row<P: 'static> {
    /// Our operator.
    op: &'static str,
    /// Its storage type.
    element: ElementType,
    /// The peer's function.
    function: &'static str,
    /// Makes the peer's side of a case.
    make: fn(&'static P, &Self, &Case) -> Outcome<Routine>,
    /// What its result is compared with.
    check: Check,
}

/// The peer's side: one call on the operands of our workload, into an output of its own.
pub type Routine = Box<dyn FnMut(&[&[u8]], &mut [u8])>;

/// A product `C = A B` of row-major matrices. That of a matrix of weights and a vector has the weights for `A`, as
/// BLAS has.
#[derive(Clone, Copy, Debug)]
struct Product {
    m: usize,
    n: usize,
    k: usize,
    /// Whether `B` is stored as `n x k`.
    transposed: bool,
}

impl Product {
    fn new<P>(row: &Row<P>, shape: Shape) -> Self {
        let Shape { m, n, k } = shape;
        let (m, n) = if row.op == "gemv" { (n, m) } else { (m, n) };
        Self { m, n, k, transposed: row.op == "gemm_bt" }
    }

    /// Elements from one row of `B` as stored to the next.
    fn ldb(&self) -> usize {
        if self.transposed {
            self.k
        } else {
            self.n
        }
    }

    /// `A`, `B` and `C`, whose sizes are right.
    fn operands<E: Plain, C: Plain>(
        &self,
        inputs: &[&[u8]],
        output: &mut [u8],
    ) -> (*const E, *const E, *mut C) {
        let (a, b) = (numbers::<E>(inputs[0]), numbers::<E>(inputs[1]));
        assert_eq!((a.len(), b.len()), (self.m * self.k, self.k * self.n));
        assert_eq!(numbers::<C>(output).len(), self.m * self.n);
        (a.as_ptr(), b.as_ptr(), output.as_mut_ptr().cast())
    }
}

/// An operator and its counterpart, on one shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// The other library.
    pub peer_name: String,
    /// Its function.
    pub function: String,
    /// Our operator.
    pub op: String,
    /// Storage type.
    pub element: String,
    /// Weight format; for dense operators the storage type.
    pub format: String,
    /// Our instruction set level.
    pub isa: String,
    /// Rows; 1 for vectors.
    pub m: usize,
    /// Columns or elements.
    pub n: usize,
    /// Inner dimension; 1 where there is none.
    pub k: usize,
    /// Threads, of each side.
    pub threads: usize,
    /// The shape as `--shape` takes it.
    pub shape: String,
}

impl Pair {
    fn new<P: Peer>(row: &Row<P>, case: &Case, caps: Caps, threads: usize) -> Outcome<Self> {
        let Shape { m, n, k } = case.shape;
        Ok(Self {
            peer_name: P::NAME.to_owned(),
            function: row.function.to_owned(),
            op: row.op.to_owned(),
            element: row.element.name().to_owned(),
            format: case.format.map_or(row.element.name(), QuantFormat::name).to_owned(),
            isa: caps.level().name().to_owned(),
            m,
            n,
            k,
            threads,
            shape: case.shape.text(Entry::find(row.op)?.sizes),
        })
    }
}

/// A pair's times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Our kernel.
    pub kernel: String,
    /// Our nanoseconds per call, median.
    pub ours: f64,
    /// Theirs.
    pub peer: f64,
    /// Our 10^9 operations per second; a multiply-add is two.
    pub ours_gflops: f64,
    /// Theirs.
    pub peer_gflops: f64,
    /// Our 10^9 bytes per second; every operand counts once, weights at their format's own size.
    pub ours_gbs: f64,
    /// Theirs.
    pub peer_gbs: f64,
    /// Their time over ours, median of neighbouring pairs: above 1, ours is faster.
    pub ratio: f64,
    /// The largest difference of the results, relative to the magnitudes of the terms.
    pub max_diff: f64,
}

/// What to compare.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Our operators; none means the peer's usual ones.
    pub ops: &'a [String],
    /// Storage types.
    pub elements: &'a [ElementType],
    /// Weight formats; none means all that the peer has.
    pub formats: &'a [QuantFormat],
    /// A part of the names of the peer's functions, if not all of them are wanted.
    pub function: Option<&'a str>,
    /// Shapes as `--shape` takes them; none means the operator's table.
    pub shapes: &'a [String],
    /// Thread counts; none means the peer's default.
    pub threads: &'a [usize],
    /// What our kernels may use.
    pub caps: Caps,
    /// Least time to spend on each side of a pair.
    pub min_time: Duration,
    /// The peer's file.
    pub library: Option<&'a Path>,
}

/// An opened peer.
pub struct Plan {
    /// What it is, and what is to be measured.
    pub opened: Opened,
    /// Measures the pair of this number.
    pub measure: Box<dyn FnMut(usize) -> Outcome<Measured>>,
}

type Planner = fn(Request<'_>) -> Outcome<Plan>;

/// Every library we know how to call.
const PEERS: &[(&str, Planner)] = &[
    (mkl::Mkl::NAME, plan::<mkl::Mkl>),
    (openblas::OpenBlas::NAME, plan::<openblas::OpenBlas>),
    #[cfg(feature = "peers")]
    (rust::Faer::NAME, plan::<rust::Faer>),
    #[cfg(feature = "peers")]
    (rust::Gemm::NAME, plan::<rust::Gemm>),
    #[cfg(feature = "peers")]
    (rust::MatrixMultiply::NAME, plan::<rust::MatrixMultiply>),
    #[cfg(not(feature = "peers"))]
    ("faer", left_out),
    #[cfg(not(feature = "peers"))]
    ("gemm", left_out),
    #[cfg(not(feature = "peers"))]
    ("matrixmultiply", left_out),
    #[cfg(feature = "peer-ggml")]
    (ggml::Ggml::NAME, plan::<ggml::Ggml>),
    #[cfg(not(feature = "peer-ggml"))]
    ("ggml", ggml_left_out),
];

#[cfg(not(feature = "peers"))]
fn left_out(_: Request<'_>) -> Outcome<Plan> {
    Err(Failure::Failed(
        "built without the Rust crates to compare with; build with: cargo build --release -p gllm-bench \
         --features peers"
            .to_owned(),
    ))
}

#[cfg(not(feature = "peer-ggml"))]
fn ggml_left_out(_: Request<'_>) -> Outcome<Plan> {
    Err(Failure::Failed(
        "built without ggml; build with (it needs cmake and libclang): CMAKE_C_FLAGS=-march=native \
         CMAKE_CXX_FLAGS=-march=native cargo build --release -p gllm-bench --features peer-ggml"
            .to_owned(),
    ))
}

/// Checks the request and opens the peer of this name.
pub fn compare(peer: &str, request: Request<'_>) -> Outcome<Plan> {
    #[cfg(any(test, debug_assertions))]
    if peer == plain::Plain::NAME {
        return plan::<plain::Plain>(request);
    }
    match PEERS.iter().find(|(name, _)| *name == peer) {
        Some((_, plan)) => plan(request),
        None => Err(unknown("peer", peer, PEERS.iter().map(|(name, _)| *name))),
    }
}

/// What a request asks for, and why a part of it is left out: an option chooses among the operators.
struct Jobs<P: 'static> {
    jobs: Vec<(&'static Row<P>, Case)>,
    left_out: Vec<Failure>,
}

/// The rows and cases of a request.
fn jobs<P: Peer>(request: Request<'_>) -> Outcome<Jobs<P>> {
    let usual: Vec<String> = P::OPS.iter().map(|&op| op.to_owned()).collect();
    let ops = if request.ops.is_empty() { &usual } else { request.ops };
    for op in ops {
        if rows::<P>(op).next().is_none() {
            let mut known: Vec<&str> = P::ROWS.iter().map(|row| row.op).collect();
            known.dedup();
            return Err(unknown(&format!("operator of {}", P::NAME), op, known.into_iter()));
        }
    }
    let entries: Vec<&'static Entry> = ops.iter().map(|op| Entry::find(op)).collect::<Outcome<_>>()?;
    if !request.formats.is_empty() && !entries.iter().any(|e| e.quantised) {
        return Err(Failure::Usage(format!("--format: {} has no quantised weights", ops.join(", "))));
    }
    // What applies to none of the operators is a mistake.
    for &element in request.elements {
        if !entries.iter().any(|e| rows::<P>(e.name).any(|row| row.element == element)) {
            return Err(lacking::<P>(entries[0].name, element));
        }
    }
    for text in request.shapes {
        let wrong: Vec<_> = entries.iter().filter_map(|e| e.sizes.parse(e.name, text).err()).collect();
        if wrong.len() == entries.len() {
            return Err(wrong.into_iter().next().expect("there are operators"));
        }
    }
    let (mut jobs, mut left_out) = (Vec::new(), Vec::new());
    for entry in entries {
        let op = entry.name;
        for &element in request.elements {
            if !rows::<P>(op).any(|row| row.element == element) {
                left_out.push(lacking::<P>(op, element));
                continue;
            }
            let wanted = |row: &&'static Row<P>| {
                row.element == element && request.function.is_none_or(|part| row.function.contains(part))
            };
            let named = |f: &Option<QuantFormat>| {
                request.formats.is_empty() || f.is_none_or(|f| request.formats.contains(&f))
            };
            for shape in shapes(entry, request.shapes) {
                let shape = match shape {
                    Ok(shape) => shape,
                    Err(why) => {
                        left_out.push(why);
                        continue;
                    }
                };
                for format in entry.formats().into_iter().filter(named) {
                    let case = Case { element, format, shape };
                    match entry.check(&case) {
                        Ok(()) => {
                            let there = rows::<P>(op).filter(wanted).filter(|row| P::takes(row, &case));
                            jobs.extend(there.map(|row| (row, case)));
                        }
                        // What nobody has named, nobody misses.
                        Err(_) if format.is_some() && request.formats.is_empty() => {}
                        Err(why) => left_out.push(why),
                    }
                }
            }
        }
    }
    if jobs.is_empty() {
        let none = || Failure::Usage(format!("{} has no function for any of this", P::NAME));
        return Err(left_out.into_iter().next().unwrap_or_else(none));
    }
    Ok(Jobs { jobs, left_out })
}

fn lacking<P: Peer>(op: &str, element: ElementType) -> Failure {
    let mut known: Vec<&str> = rows::<P>(op).map(|row| row.element.name()).collect();
    known.dedup();
    Failure::Usage(format!("{} has no {op} of {element}; it has {}", P::NAME, known.join(", ")))
}

/// The peer's rows of one of our operators.
fn rows<'a, P: Peer>(op: &'a str) -> impl Iterator<Item = &'static Row<P>> + use<'a, P> {
    P::ROWS.iter().filter(move |row| row.op == op)
}

/// The shapes that the user named, or those of the operator's table.
fn shapes(entry: &Entry, named: &[String]) -> Vec<Outcome<Shape>> {
    if !named.is_empty() {
        return named.iter().map(|text| entry.sizes.parse(entry.name, text)).collect();
    }
    let table = match entry.sizes {
        Sizes::Product => PRODUCTS,
        Sizes::MatVec => MATRICES,
        Sizes::Vector | Sizes::Rows => VECTORS,
    };
    table.iter().map(|&[m, n, k]| Ok(Shape { m, n, k })).collect()
}

fn plan<P: Peer>(request: Request<'_>) -> Outcome<Plan> {
    let Jobs { jobs, left_out } = jobs::<P>(request)?;
    let mut left_out: Vec<String> = left_out.iter().map(Failure::to_string).collect();
    let threads = P::threads(request.threads)?;
    let on_one = |case: &Case| case.element == ElementType::I8;
    let jobs: Vec<_> =
        threads.iter().flat_map(|&t| jobs.iter().map(move |&(row, case)| (t, row, case))).collect();
    let (jobs, several): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|(t, _, case)| *t == 1 || !on_one(case));
    if !several.is_empty() {
        let why = "products of i8 run on one thread so far: --threads 1".to_owned();
        if jobs.is_empty() {
            return Err(Failure::Usage(why));
        }
        left_out.push(why);
    }
    let peer = P::open(request.library)?;
    let Request { caps, min_time, .. } = request;
    let pairs = jobs.iter().map(|&(t, row, case)| Pair::new(row, &case, caps, t)).collect::<Outcome<_>>()?;
    let opened = Opened { version: peer.version(), warning: peer.warning(caps), left_out, pairs };
    let mut arena = Arena::new(0);
    let mut runtime: Option<Runtime> = None;
    let measure = move |pair: usize| {
        let (threads, row, case) = jobs[pair];
        peer.set_threads(threads)?;
        let rt = match runtime.take() {
            Some(rt) if rt.threads() == threads => rt,
            _ => crate::options::start(threads)?,
        };
        measure(peer, row, case, caps, runtime.insert(rt), &mut arena, min_time)
    };
    Ok(Plan { opened, measure: Box::new(measure) })
}

/// Checks both sides against each other, and times them in turn.
fn measure<P: Peer>(
    peer: &'static P,
    row: &'static Row<P>,
    case: Case,
    caps: Caps,
    rt: &Runtime,
    arena: &mut Arena,
    min_time: Duration,
) -> Outcome<Measured> {
    let entry = Entry::find(row.op)?;
    let wrong = |e: String| Failure::Failed(format!("wrong result: {e}"));
    let mut ours = entry.make(case, caps, rt, arena)?;
    ours.verify().map_err(wrong)?;
    let kernel = entry.kernel(&case, caps, &*ours);

    let mut theirs = (row.make)(peer, row, &case)?;
    let mut output = AlignedVec::<u8>::zeroed(ours.output().len());
    // What is not written is NaN.
    output.fill(0xff);
    theirs(&ours.inputs(), &mut output);
    let agreed = row.check.run(entry.op, &case, &ours.inputs(), ours.output(), &output);
    let max_diff = agreed.map_err(|e| wrong(format!("{} of {}: {e}", row.function, P::NAME)))?;

    let ours = RefCell::new(ours);
    let mut refusal = None;
    let mut our_calls = |rounds| timed_calls(&mut **ours.borrow_mut(), rounds, &mut refusal);
    let mut their_calls = |rounds| {
        let ours = ours.borrow();
        let inputs = ours.inputs();
        seconds(|| {
            for _ in 0..rounds {
                theirs(&inputs, &mut output);
            }
        })
    };
    let both = our_calls(1) + their_calls(1);
    let pairs = ((8.0 * min_time.as_secs_f64() / both) as usize).clamp(PAIRS.1, PAIRS.0);
    let mut settle = || {
        peer.rest();
        if rt.threads() > 1 {
            sleep(SETTLE);
        }
    };
    let times = interleave_after(&mut settle, &mut [&mut our_calls, &mut their_calls], min_time, pairs);
    if let Some(e) = refusal {
        return Err(refused(row.op, e));
    }
    let (ours, theirs) = (median(&times[0]), median(&times[1]));
    let cost = (entry.cost)(&case);
    Ok(Measured {
        kernel: kernel.to_owned(),
        ours: ours * 1e9,
        peer: theirs * 1e9,
        ours_gflops: cost.flops / ours / 1e9,
        peer_gflops: cost.flops / theirs / 1e9,
        ours_gbs: cost.moved / ours / 1e9,
        peer_gbs: cost.moved / theirs / 1e9,
        ratio: median_ratio(&times[1], &times[0]),
        max_diff,
    })
}

#[cfg(test)]
mod tests;
