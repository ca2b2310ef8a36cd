//! `model`: how fast a language model runs, and how fast memory would let it.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gllm_kernels_std::backend::{AnyBackend, BackendError};
use gllm_kernels_std::model::Model;

use crate::error::{Failure, Outcome};
use crate::html::{model_page, Origin};
use crate::limits::memory::Traffic;
use crate::limits::{gpu, Limits};
use crate::machine::Machine;
use crate::measure::median;
use crate::model::{Loaded, Room, Setup};
use crate::options::{start, threads};
use crate::output::{print_json, stdout, Page};
use crate::progress::Progress;
use crate::report::{self, bytes, number, rating, HEAD};
use crate::speed::{read, room, Case, MemoryShare, Phase, Speed, Speeds, Start};
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
    /// Sequences that generate side by side, comma-separated.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub sequences: Vec<usize>,
    /// Tokens of a prompt in a step, at most. Default: as many as suit what it runs on.
    #[arg(long, value_name = "N")]
    pub chunk: Option<usize>,
    /// Threads, comma-separated: numbers or `all`.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "1,all")]
    pub threads: Vec<String>,
    /// How often each is repeated; the median is shown.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub repeat: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Also write a page for a browser, with a chart of where the time goes.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Times the model.
pub fn execute(options: &Options) -> Outcome {
    let html = Page::create(options.html.as_deref())?;
    let mut counts = options.threads.iter().map(|t| threads(t)).collect::<Outcome<Vec<usize>>>()?;
    counts.dedup();
    let once = [options.count, options.repeat, options.chunk.unwrap_or(1)];
    let lengths = [&options.prompt[..], &options.sequences, &once].concat();
    if lengths.contains(&0) {
        let what = "lengths and numbers of sequences and repetitions must not be 0";
        return Err(Failure::Usage(what.to_owned()));
    }
    let model = options.setup.open()?;
    let mut report = Speeds {
        origin: Origin::new(Machine::detect(gllm_kernels_std::caps())),
        file: options.setup.file.clone(),
        architecture: model.config().architecture.name(),
        weight_bytes: 0,
        peak_memory: None,
        rows: Vec::new(),
    };
    let each = 1 + options.prompt.len() + options.depth.len() * options.sequences.len();
    let progress = Progress::new(counts.len() * each, options.json);
    for &count in &counts {
        measure(options, &model, count, &progress, &mut report)?;
    }
    drop(progress);
    if options.json {
        print_json(&report)?;
    } else {
        print(&report)?;
    }
    match html {
        Some(file) => file.write(&model_page(&report)),
        None => Ok(()),
    }
}

/// Adds what so many threads do to the report.
fn measure(
    options: &Options,
    model: &Model<'_>,
    count: usize,
    progress: &Progress,
    report: &mut Speeds,
) -> Outcome {
    let failed = |e: BackendError| Failure::Failed(e.to_string());
    let on_threads = report::threads(count);
    let tokens = |n: usize| some_tokens(n, model.config().vocabulary);
    let longest = options.prompt.iter().chain(&options.depth).max().copied().unwrap_or(0);
    let most = options.sequences.iter().max().copied().unwrap_or(1);
    progress.step(&format!("loading for {on_threads}"));
    let room = Room { step: options.chunk, ..room(most, longest, options.count) };
    let (mut loaded, load) = options.setup.load(model, &count.to_string(), room, true)?;
    let weights = loaded.weights().bytes();
    report.weight_bytes = weights;
    let on_gpu = gpu::bandwidth(loaded.backend()).map_err(|e| failed(e.into()))?;
    loaded.forward_mut().profile = true;
    let speed = |phase, [tokens, depth, sequences]: [usize; 3], (time, operations): (f64, Vec<_>)| Speed {
        case: Case { phase, tokens, depth, threads: count },
        sequences,
        load_seconds: load.as_secs_f64(),
        tokens_per_second: (sequences * tokens) as f64 / time,
        memory: None,
        operations,
    };
    for &n in &options.prompt {
        progress.step(&format!("prompt of {n}, {on_threads}"));
        let prompt = tokens(n);
        let timed = timed(&mut loaded, options.repeat, |loaded| read(loaded, &prompt))?;
        report.rows.push(speed(Phase::Prompt, [n, 0, 1], timed));
    }
    let runtime = start(count)?;
    let mut limits = Limits::new(gllm_kernels_std::caps());
    for &depth in &options.depth {
        for &sequences in &options.sequences {
            progress.step(&format!("{sequences} generating behind {depth}, {on_threads}"));
            let start = Start::new(&mut loaded, &tokens(depth.max(1)), sequences).map_err(failed)?;
            let next = tokens(options.count);
            let timed = timed(&mut loaded, options.repeat, |loaded| start.generate(loaded, &next))?;
            start.end(&mut loaded).map_err(failed)?;
            // Before memory is taken to measure its bandwidth.
            report.peak_memory = report.peak_memory.or_else(peak_memory);
            let bytes_per_token = weights / sequences + loaded.cache().bytes_at(depth + options.count / 2);
            let bandwidth = match loaded.backend() {
                AnyBackend::Cpu(_) => Some(limits.bandwidth(Traffic::Read, weights, &runtime)),
                _ => on_gpu,
            };
            let speed = speed(Phase::Generate, [options.count, depth, sequences], timed);
            let memory = bandwidth.map(|bandwidth| MemoryShare {
                bytes_per_token,
                bandwidth: bandwidth / 1e9,
                efficiency: speed.tokens_per_second * bytes_per_token as f64 / bandwidth,
            });
            report.rows.push(Speed { memory, ..speed });
        }
    }
    report.peak_memory = report.peak_memory.or_else(peak_memory);
    Ok(())
}

/// Tokens that are all different, as far as there are as many.
fn some_tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    // A prime step meets every token of a vocabulary that it does not divide.
    (0..n).map(|i| ((i * 7919 + 11) % vocabulary) as u32).collect()
}

/// The median of the seconds that `work` takes, after a first time that does not count, and the share of each kind of operation
/// in per cent, that of what happens between steps included.
fn timed(
    loaded: &mut Loaded,
    repeat: usize,
    mut work: impl FnMut(&mut Loaded) -> Result<Duration, BackendError>,
) -> Outcome<(f64, Vec<(&'static str, f64)>)> {
    let mut run = |loaded: &mut Loaded| work(loaded).map_err(|e| Failure::Failed(e.to_string()));
    run(loaded)?;
    loaded.backend().take_times();
    let times = (0..repeat).map(|_| Ok(run(loaded)?.as_secs_f64())).collect::<Outcome<Vec<f64>>>()?;
    let all: f64 = times.iter().sum();
    let mut operations: Vec<(&'static str, f64)> =
        loaded.backend().take_times().into_iter().map(|(name, time)| (name, time.as_secs_f64())).collect();
    // On GPUs nobody knows.
    if !operations.is_empty() {
        let inside: f64 = operations.iter().map(|(_, time)| time).sum();
        operations.push(("between steps", (all - inside).max(0.0)));
    }
    for (_, time) in &mut operations {
        *time *= 100.0 / all.max(1e-12);
    }
    operations.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok((median(&times), operations))
}

/// Most bytes of memory that this process has had, where the operating system tells.
fn peak_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn print(report: &Speeds) -> Outcome {
    let mut out = stdout();
    writeln!(
        out,
        "{HEAD}{}{HEAD:#}: {}, {} of weights a step{}",
        report.file.display(),
        report.architecture,
        bytes(report.weight_bytes as u64),
        report.peak_memory.map_or(String::new(), |n| format!(", {} of memory at most", bytes(n)))
    )?;
    let table = Table::new(vec![
        Column::words("phase", Column::ALWAYS).holding(["generate"]),
        Column::number("tokens", 6, Column::ALWAYS),
        Column::number("behind", 6, 6),
        Column::number("sequences", 9, 4),
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
        let efficiency = row.memory.map(|m| m.efficiency);
        let share = efficiency
            .map_or_else(|| Cell::from("-"), |e| Cell::styled(format!("{:.0} %", 100.0 * e), rating(e)));
        table.row(
            &mut out,
            vec![
                row.case.phase.name().into(),
                row.case.tokens.to_string().into(),
                row.case.depth.to_string().into(),
                row.sequences.to_string().into(),
                row.case.threads.to_string().into(),
                format!("{:.2}", row.load_seconds).into(),
                number(row.tokens_per_second).into(),
                row.memory.map_or("-".to_owned(), |m| number(m.bytes_per_token as f64 / 1e6)).into(),
                share,
                most.join(", ").into(),
            ],
        )?;
    }
    Ok(table.foot(&mut out)?)
}
