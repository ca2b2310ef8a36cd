//! `model`: how fast a language model runs, and how fast memory would let it.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use gllm_kernels_std::backend::{Backend, Outputs};
use gllm_kernels_std::Runtime;
use serde::Serialize;

use crate::error::{Failure, Outcome};
use crate::limits::memory::Traffic;
use crate::limits::Limits;
use crate::measure::median;
use crate::model::{open, Loaded, Setup};
use crate::options::threads;
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::report::{self, bytes, number, rating, HEAD};
use crate::table::{Cell, Column, Table};

/// What to time.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    /// Which model, and how it computes.
    pub setup: Setup,
    /// Tokens of prompts to read, comma-separated.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "128,512")]
    pub prompt: Vec<usize>,
    /// Tokens that are there already when text is generated, comma-separated.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,512")]
    pub depth: Vec<usize>,
    /// Tokens to generate.
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 64)]
    pub count: usize,
    /// Threads, comma-separated: numbers or `all`.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "1,all")]
    pub threads: Vec<String>,
    /// How often each is repeated; the median is shown.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub repeat: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A model and how fast it is.
#[derive(Debug, Serialize)]
struct Report {
    file: PathBuf,
    architecture: &'static str,
    /// Bytes of weights that a token reads.
    weight_bytes: usize,
    /// Most memory that this process has had with the model on the first number of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory: Option<u64>,
    rows: Vec<Row>,
}

/// One speed.
#[derive(Debug, Serialize)]
struct Row {
    /// `prompt` or `generate`.
    phase: &'static str,
    /// Tokens of the prompt, or tokens that are generated.
    tokens: usize,
    /// Tokens that were there before.
    depth: usize,
    threads: usize,
    /// Seconds to load the model with so many threads.
    load_seconds: f64,
    tokens_per_second: f64,
    /// Bytes of weights and cache that a generated token reads, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_token: Option<usize>,
    /// Bytes that memory can be read at, in GB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth: Option<f64>,
    /// Which share of it the generated tokens' bytes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    efficiency: Option<f64>,
    /// Where the time goes: per cent of each kind of operation.
    operations: Vec<(&'static str, f64)>,
}

/// Times the model.
pub fn execute(options: &Options) -> Outcome {
    let counts = options.threads.iter().map(|t| threads(t)).collect::<Outcome<Vec<usize>>>()?;
    let mut counts: Vec<usize> = counts;
    counts.dedup();
    if options.count == 0 || options.repeat == 0 || options.prompt.contains(&0) {
        return Err(Failure::Usage("lengths and numbers of repetitions must not be 0".to_owned()));
    }
    let model = open(&options.setup.file)?;
    let longest = options.prompt.iter().chain(&options.depth).max().copied().unwrap_or(0);
    let context = longest.saturating_add(options.count);
    let mut report = Report {
        file: options.setup.file.clone(),
        architecture: model.config().architecture.name(),
        weight_bytes: 0,
        peak_memory: None,
        rows: Vec::new(),
    };
    let progress = Progress::new(counts.len() * (options.prompt.len() + options.depth.len()), options.json);
    for &count in &counts {
        let (mut loaded, load) = options.setup.load(&model, &count.to_string(), context, true)?;
        report.weight_bytes = loaded.weights().bytes();
        loaded.forward_mut().profile = true;
        let base = Row {
            phase: "prompt",
            tokens: 0,
            depth: 0,
            threads: count,
            load_seconds: load.as_secs_f64(),
            tokens_per_second: 0.0,
            bytes_per_token: None,
            bandwidth: None,
            efficiency: None,
            operations: Vec::new(),
        };
        for &tokens in &options.prompt {
            progress.step(&format!("prompt {tokens}, {}", report::threads(count)));
            let (time, operations) = timed(&mut loaded, options.repeat, |loaded| {
                let started = Instant::now();
                loaded.read_prompt(&some_tokens(tokens, model.config().vocabulary))?;
                Ok(started.elapsed())
            })?;
            report.rows.push(Row {
                tokens,
                tokens_per_second: tokens as f64 / time,
                operations,
                ..clone(&base)
            });
        }
        let runtime = Runtime::new(count).map_err(|e| Failure::Failed(e.to_string()))?;
        let mut limits = Limits::new(gllm_kernels_std::caps());
        for &depth in &options.depth {
            progress.step(&format!("generate behind {depth}, {}", report::threads(count)));
            let (time, operations) = timed(&mut loaded, options.repeat, |loaded| {
                let sequence = loaded.create();
                let start = some_tokens(depth.max(1), model.config().vocabulary);
                loaded.extend(sequence, &start, Outputs::None)?;
                // What the prompt took does not count.
                loaded.backend().take_times();
                let started = Instant::now();
                for token in some_tokens(options.count, model.config().vocabulary) {
                    let logits = loaded.extend(sequence, &[token], Outputs::Last)?;
                    loaded.backend().wait(&logits)?;
                }
                let time = started.elapsed();
                loaded.remove(sequence)?;
                Ok(time)
            })?;
            // Before memory is taken to measure its bandwidth.
            report.peak_memory = report.peak_memory.or_else(peak_memory);
            let read = loaded.weights().bytes() + loaded.cache().bytes_at(depth + options.count / 2);
            let bandwidth = limits.bandwidth(Traffic::Read, loaded.weights().bytes(), &runtime);
            let speed = options.count as f64 / time;
            report.rows.push(Row {
                phase: "generate",
                tokens: options.count,
                depth,
                tokens_per_second: speed,
                bytes_per_token: Some(read),
                bandwidth: Some(bandwidth / 1e9),
                efficiency: Some(speed * read as f64 / bandwidth),
                operations,
                ..clone(&base)
            });
        }
    }
    drop(progress);
    report.peak_memory = report.peak_memory.or_else(peak_memory);
    if options.json {
        return print_json(&report);
    }
    print(&report)
}

fn clone(row: &Row) -> Row {
    Row { operations: Vec::new(), ..*row }
}

/// Tokens that are all different, as far as there are as many.
fn some_tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    // A prime step meets every token of a vocabulary that it does not divide.
    (0..n).map(|i| ((i * 7919 + 11) % vocabulary) as u32).collect()
}

/// The median of the seconds that `work` takes, after a first time that does not count, and the share of each kind of operation
/// in per cent.
fn timed(
    loaded: &mut Loaded,
    repeat: usize,
    mut work: impl FnMut(&mut Loaded) -> Result<Duration, gllm_kernels_std::backend::BackendError>,
) -> Outcome<(f64, Vec<(&'static str, f64)>)> {
    let mut run = |loaded: &mut Loaded| work(loaded).map_err(|e| Failure::Failed(e.to_string()));
    run(loaded)?;
    loaded.backend().take_times();
    let times = (0..repeat).map(|_| Ok(run(loaded)?.as_secs_f64())).collect::<Outcome<Vec<f64>>>()?;
    let operations = loaded.backend().take_times();
    let all: f64 = operations.iter().map(|(_, t)| t.as_secs_f64()).sum();
    let mut shares: Vec<_> =
        operations.iter().map(|&(name, t)| (name, 100.0 * t.as_secs_f64() / all.max(1e-12))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok((median(&times), shares))
}

/// Most bytes of memory that this process has had, where the operating system tells.
fn peak_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn print(report: &Report) -> Outcome {
    let mut out = stdout();
    writeln!(
        out,
        "{HEAD}{}{HEAD:#}: {}, {} of weights a token{}",
        report.file.display(),
        report.architecture,
        bytes(report.weight_bytes as u64),
        report.peak_memory.map_or(String::new(), |n| format!(", {} of memory at most", bytes(n)))
    )?;
    let table = Table::new(vec![
        Column::words("phase", Column::ALWAYS).holding(["generate"]),
        Column::number("tokens", 6, Column::ALWAYS),
        Column::number("behind", 6, 6),
        Column::number("threads", 7, Column::ALWAYS),
        Column::number("load s", 6, 2),
        Column::number("tokens/s", 9, Column::ALWAYS),
        Column::number("MB a token", 10, 3),
        Column::number("of memory", 9, 5),
        Column::words("most time in", 1).holding(["attention 99 %, products 99 %"]),
    ]);
    table.head(&mut out)?;
    for row in &report.rows {
        let most: Vec<String> =
            row.operations.iter().take(3).map(|(name, p)| format!("{name} {p:.0} %")).collect();
        let share = row
            .efficiency
            .map_or_else(|| Cell::from("-"), |e| Cell::styled(format!("{:.0} %", 100.0 * e), rating(e)));
        table.row(
            &mut out,
            vec![
                row.phase.into(),
                row.tokens.to_string().into(),
                row.depth.to_string().into(),
                row.threads.to_string().into(),
                format!("{:.2}", row.load_seconds).into(),
                number(row.tokens_per_second).into(),
                row.bytes_per_token.map_or("-".to_owned(), |b| number(b as f64 / 1e6)).into(),
                share,
                most.join(", ").into(),
            ],
        )?;
    }
    Ok(table.foot(&mut out)?)
}
