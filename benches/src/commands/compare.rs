//! `compare`: operators side by side with another library.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::compare::worker::{self, Event, Heard, Opened, Worker};
use crate::compare::{Measured, Pair, Request};
use crate::error::{Failure, Outcome};
use crate::help::wrapped;
use crate::options::{elements, formats, min_time, threads, Selection};
use crate::output::{note, print_json, stdout};
use crate::progress::Progress;
use crate::report::{self, number, rating, time, types, DIM};
use crate::table::{Cell, Column, Table};
use crate::workload::{Entry, Sizes};

/// One line a paragraph: they are wrapped when they are shown.
const COMPARE: &str = "\
Both sides run in one process, a child of this one, on the same data and as many threads, in turn. Ours is verified, and theirs has to agree \
with it within the rounding errors of sums of K terms; what does not is not timed. The ratio is the median of their time \
over ours in neighbouring samples: above 1, ours is faster. Products are shown in GFLOP/s, operators that memory binds \
in GB/s. Where the other library crashes, the line says so, and the next pair runs in a new process; the exit code is 1 then.

mkl and openblas are opened at run time, from the loader's path or where pip, conda, Debian and Intel's installer put them:
  pip install mkl
  pip install scipy-openblas32        (or apt-get install libopenblas0-pthread)
faer, gemm and matrixmultiply are compiled in with:
  cargo build --release -p gllm-bench --features peers
ggml, too; it needs cmake, a C++ compiler and libclang (on Debian and Ubuntu, apt-get install cmake libclang-dev), and is built \
for this processor with:
  CMAKE_C_FLAGS=-march=native CMAKE_CXX_FLAGS=-march=native cargo build --release -p gllm-bench --features peer-ggml
To compare with ggml on AVX2, FMA and F16C, build it without these flags, in a folder of its own, and restrict our side, too:
  cargo build --release -p gllm-bench --features peer-ggml --target-dir target/ggml-avx2
  target/ggml-avx2/release/gllm-bench compare --peer ggml --isa avx2
  target/ggml-avx2/release/gllm-bench compare --peer llama.cpp --model FILE --isa avx2

OpenBLAS chooses its kernels when it is loaded; the line below the table says for which processor. If it is the wrong one, \
OPENBLAS_CORETYPE=SkylakeX (Haswell, Zen, SapphireRapids, ...) names another.

Peers without packed matrices multiply plain ones where ours are prepacked. MKL's exp, tanh, erf and cdfnorm (VML, high \
accuracy) stand beside the operators that are built on them, too: silu, gelu, gelu_tanh; there the peer does a part of the work.

ggml multiplies the same blocks with the same f32 activations, which it quantises in each call, as qgemv_packed and qgemv_q8 \
do and qgemv does not. Its default buffer has weights as they lie in a file, like qgemv_q8; a packed buffer (CPU_REPACK, AMX) \
has them rearranged, like qgemv_packed, where ggml can do that for the format. Its threads wait for work as in llama.cpp, and \
rest while ours run.

With --peer llama.cpp and --model, whole models are compared: prompts of --prompt tokens are read, and 32 tokens are generated behind --depth others. \
llama.cpp does each in the fastest of four ways: default or packed buffers, flash attention on or off. Both keep what they have read of \
the tokens in front. Below the table stands how far the logits of both are from those of our exact arithmetic. It is built as ggml is.";

/// What to compare.
#[derive(Args, Debug)]
#[command(after_help = wrapped(COMPARE))]
pub struct Options {
    /// The other library: mkl, openblas, faer, gemm, matrixmultiply, ggml; with --model, llama.cpp.
    #[arg(long, value_name = "NAME")]
    pub peer: String,
    /// Our operators, comma-separated: gemm, gemm_bt, gemm_prepacked, gemv; for mkl also exp, tanh, silu,
    /// gelu, gelu_tanh; for ggml qgemv_packed, qgemv_q8, qgemv, qgemm, qgemm_packed, qgemm_exact. Default: gemm; for ggml the first
    /// two.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub op: Vec<String>,
    /// Storage types, comma-separated: f32; for mkl also f16, bf16, i8. Default: f32.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub element: Vec<String>,
    /// Weight formats of quantised operators, comma-separated, e.g. q8_0,iq4_xs. Default: all that the other
    /// library has.
    #[arg(long, value_name = "FMT", value_delimiter = ',')]
    pub format: Vec<String>,
    /// Only those functions of the other library whose name, in the column `peer`, contains this; e.g. `packed`
    /// of ggml.
    #[arg(long, value_name = "TEXT")]
    pub function: Option<String>,
    /// Sizes, comma-separated, as for `gllm-bench run`: MxNxK of a product, NxK of a matrix and a vector, N
    /// elements. Default: a table.
    #[arg(long, value_name = "MxNxK|NxK|N", value_delimiter = ',')]
    pub shape: Vec<String>,
    /// Threads of each side, comma-separated: numbers or `all`. Default: 1,all; for matrixmultiply, which
    /// cannot change it, 1.
    #[arg(long, value_name = "T", value_delimiter = ',')]
    pub threads: Vec<String>,
    #[command(flatten)]
    /// Which of our kernels may run.
    pub selection: Selection,
    /// Least time to spend on each side of a pair, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub min_time: f64,
    /// The library's file, if it is none of those that are found without.
    #[arg(long, value_name = "FILE", env = "GLLM_BENCH_LIBRARY")]
    pub library: Option<PathBuf>,
    /// A language model that llama.cpp and we run: a GGUF file.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// With --model: tokens of prompts to read, comma-separated.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "128,512")]
    pub prompt: Vec<usize>,
    /// With --model: tokens that are there already when text is generated, comma-separated.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,512")]
    pub depth: Vec<usize>,
    /// Print a JSON array, one object per pair.
    #[arg(long)]
    pub json: bool,
    /// Measure the pairs from this number on, and print each event as a line of JSON.
    #[arg(long, value_name = "PAIR", hide = true)]
    pub worker: Option<usize>,
}

/// A pair and what came of it.
#[derive(Debug, Serialize)]
struct Comparison {
    #[serde(flatten)]
    pair: Pair,
    /// The other library's version, as it tells it.
    peer_version: String,
    #[serde(flatten)]
    result: Answer,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Answer {
    Timed(Box<Measured>),
    Untimed { error: String },
}

/// Compares: in a process of its own, as the other library may crash.
pub fn execute(options: &Options) -> Outcome {
    if options.peer == "llama.cpp" {
        #[cfg(feature = "peer-ggml")]
        return super::compare_models::execute(options);
        #[cfg(not(feature = "peer-ggml"))]
        return Err(Failure::Failed(
            "llama.cpp is not compiled in: build with --features peer-ggml (compare --help says what that needs)".to_owned(),
        ));
    }
    let threads: Vec<usize> = options.threads.iter().map(|t| threads(t)).collect::<Outcome<_>>()?;
    let request = Request {
        ops: &options.op,
        elements: &elements(&options.element)?,
        formats: &formats(&options.format)?,
        function: options.function.as_deref(),
        shapes: &options.shape,
        threads: &threads,
        caps: options.selection.caps()?,
        min_time: min_time(options.min_time)?,
        library: options.library.as_deref(),
    };
    match options.worker {
        Some(from) => worker::serve(&options.peer, request, from),
        None => follow(options),
    }
}

/// Starts processes that compare, and shows what they tell.
fn follow(options: &Options) -> Outcome {
    let json = options.json;
    let mut shown: Option<Shown> = None;
    let mut results: Vec<Comparison> = Vec::new();
    // A process after another: each goes on behind the pair at which the one before it ended.
    loop {
        let mut worker = Worker::start(results.len())?;
        let mut begun = None;
        let status = loop {
            let (event, shown) = match (worker.hear()?, &mut shown) {
                (Heard::Ended(status), _) => break status,
                (Heard::Event(Event::Refused { usage: true, text }), _) => return Err(Failure::Usage(text)),
                (Heard::Event(Event::Refused { usage: false, text }), _) => {
                    return Err(Failure::Failed(text))
                }
                (Heard::Event(Event::Opened(opened)), shown @ None) => {
                    *shown = Some(Shown::new(opened, json)?);
                    continue;
                }
                (Heard::Event(event), Some(shown)) => (event, shown),
                (Heard::Event(event), None) => return Err(out_of_turn(&event)),
            };
            let result = match event {
                Event::Begun(pair) => {
                    begun = Some(pair);
                    shown.step(pair);
                    continue;
                }
                Event::Measured(measured) => Answer::Timed(measured),
                Event::Failed(error) => Answer::Untimed { error },
                Event::Opened(_) | Event::Refused { .. } => continue,
            };
            begun = None;
            results.push(shown.result(results.len(), result)?);
        };
        let Some(shown) = &shown else {
            let how = worker::ending(status);
            return Err(Failure::Failed(format!("{} crashed when it was opened: {how}", options.peer)));
        };
        if let Some(pair) = begun {
            let Pair { function, peer_name, .. } = &shown.opened.pairs[pair];
            let error = format!("{function} of {peer_name} crashed: {}", worker::ending(status));
            results.push(shown.result(pair, Answer::Untimed { error })?);
        } else if results.len() < shown.opened.pairs.len() {
            let how = worker::ending(status);
            return Err(Failure::Failed(format!("{} crashed between two pairs: {how}", options.peer)));
        }
        if results.len() == shown.opened.pairs.len() {
            break;
        }
    }
    if let Some(shown) = shown {
        shown.finish(&results)?;
    }
    match results.iter().filter(|c| matches!(c.result, Answer::Untimed { .. })).count() {
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} of {} pairs could not be compared", results.len()))),
    }
}

fn out_of_turn(event: &Event) -> Failure {
    Failure::Failed(format!("the process that compares said too early: {event:?}"))
}

/// What the user sees of a comparison.
struct Shown {
    opened: Opened,
    table: Table,
    /// What all rates are in; nothing if they differ.
    unit: Option<&'static str>,
    progress: Progress,
    json: bool,
}

/// What a pair's rate is told in: products are bound by arithmetic, the rest by memory.
fn unit(pair: &Pair) -> &'static str {
    match Entry::find(&pair.op) {
        Ok(entry) if entry.sizes == Sizes::Product => "GFLOP/s",
        _ => "GB/s",
    }
}

impl Shown {
    fn new(opened: Opened, json: bool) -> Outcome<Self> {
        for text in opened.left_out.iter().map(|why| format!("left out: {why}")) {
            note(&text)?;
        }
        if let Some(warning) = &opened.warning {
            note(&format!("warning: {warning}"))?;
        }
        let pairs = &opened.pairs;
        let mut units: Vec<&str> = pairs.iter().map(unit).collect();
        units.dedup();
        let unit = if let [unit] = units[..] { Some(unit) } else { None };
        let rate = |rank| match unit {
            Some(unit) => Column::number(unit, 7, rank),
            None => Column::number("rate", 15, rank),
        };
        let table = Table::new(vec![
            Column::words("operator", Column::ALWAYS).holding(pairs.iter().map(|p| &p.op)),
            Column::words("type", 8).holding(pairs.iter().map(|p| types(&p.format, &p.element))),
            Column::words("isa", 1).holding(pairs.iter().map(|p| &p.isa)),
            Column::number("thr", 3, 5),
            Column::number("shape", 0, 9).holding(pairs.iter().map(|p| &p.shape)),
            Column::number("ours", 9, 7),
            rate(3),
            Column::words("peer", 4).holding(pairs.iter().map(|p| &p.function)),
            Column::number("theirs", 9, 6),
            rate(2),
            Column::number("ratio", 6, Column::ALWAYS),
        ]);
        let progress = Progress::new(pairs.len(), json);
        if !json {
            progress.print(|| table.head(&mut stdout()))?;
        }
        Ok(Self { table, unit, progress, json, opened })
    }

    fn step(&self, pair: usize) {
        let Pair { op, shape, .. } = &self.opened.pairs[pair];
        self.progress.step(&format!("{op} {shape}"));
    }

    /// Shows a result.
    fn result(&self, pair: usize, result: Answer) -> Outcome<Comparison> {
        let pair = self.opened.pairs[pair].clone();
        let rate = |gflops: f64, gbs: f64| match (unit(&pair), self.unit) {
            ("GFLOP/s", Some(_)) => number(gflops),
            (_, Some(_)) => number(gbs),
            ("GFLOP/s", None) => format!("{} GFLOP/s", number(gflops)),
            (_, None) => format!("{} GB/s", number(gbs)),
        };
        let [ours, our_rate, theirs, their_rate, ratio]: [Cell; 5] = match &result {
            Answer::Timed(m) => {
                let style = rating(if m.ratio >= 1.0 { 1.0 } else { m.ratio * 0.89 });
                [
                    time(m.ours).into(),
                    rate(m.ours_gflops, m.ours_gbs).into(),
                    time(m.peer).into(),
                    rate(m.peer_gflops, m.peer_gbs).into(),
                    Cell::styled(format!("{:.3}", m.ratio), style),
                ]
            }
            Answer::Untimed { .. } => {
                ["-".into(), "-".into(), "-".into(), "-".into(), Cell::styled("failed", rating(0.0))]
            }
        };
        let cells = vec![
            pair.op.as_str().into(),
            types(&pair.format, &pair.element).into(),
            pair.isa.as_str().into(),
            pair.threads.to_string().into(),
            pair.shape.as_str().into(),
            ours,
            our_rate,
            pair.function.as_str().into(),
            theirs,
            their_rate,
            ratio,
        ];
        if !self.json {
            self.progress.print(|| self.table.row(&mut stdout(), cells))?;
        }
        Ok(Comparison { pair, peer_version: self.opened.version.clone(), result })
    }

    /// Says what it was, and what went wrong.
    fn finish(self, results: &[Comparison]) -> Outcome {
        let Self { opened, table, progress, json, .. } = self;
        drop(progress);
        if json {
            return print_json(&results);
        }
        let mut out = stdout();
        table.foot(&mut out)?;
        let peer = opened.pairs.first().map_or("", |p| &p.peer_name);
        writeln!(out, "{DIM}{peer}: {}", opened.version)?;
        writeln!(
            out,
            "ratio: their time / ours, median of neighbouring pairs; above 1, ours is faster{DIM:#}"
        )?;
        let bad = rating(0.0);
        for Comparison { pair, result, .. } in results {
            if let Answer::Untimed { error } = result {
                let of = types(&pair.format, &pair.element);
                let (op, shape, threads) = (&pair.op, &pair.shape, report::threads(pair.threads));
                writeln!(out, "{bad}failed{bad:#}: {op} {of} {shape}, {threads}: {error}")?;
            }
        }
        Ok(())
    }
}
