//! What each command does.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use gllm_kernels_core::{kernels, Caps, ElementType, IsaLevel, KernelInfo, Op, QuantFormat};
use gllm_kernels_std::Runtime;
use serde::Serialize;

use crate::cli::{Cli, Command, CompareArgs, QuantizeArgs, RunArgs};
use crate::compare::Request;
use crate::error::{unknown, Failure, Outcome};
use crate::limits::{Limit, Limits};
use crate::machine::{cores, Machine};
use crate::measure::SAMPLES;
use crate::progress::{remove_on_interrupt, Progress};
use crate::quantize::Target;
use crate::report;
use crate::run::{Job, Record, Session};
use crate::workload::{Case, Entry, Shape, Sizes};

/// Runs the command line.
pub fn execute(cli: Cli) -> Outcome {
    match cli.command {
        None => everything(cli.json, cli.html.as_deref()),
        Some(Command::Info { json, limits }) => info(json, limits),
        Some(Command::List { json }) => list(json),
        Some(Command::Run(args)) => run(&args),
        Some(Command::Compare(args)) => compare(&args),
        Some(Command::Inspect { file, json, threads }) => inspect(&file, json, &threads),
        Some(Command::Quantize(args)) => quantize(&args),
        Some(Command::Verify { op, isa, json }) => verify(&op, isa.as_deref(), json),
    }
}

/// Everything measured in one go.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Its limits.
    pub limits: Vec<Limit>,
    /// Its operators.
    pub results: Vec<Record>,
}

/// Standard output; colours only where they are seen.
fn stdout() -> anstream::AutoStream<io::StdoutLock<'static>> {
    anstream::AutoStream::auto(io::stdout().lock())
}

fn print_json(value: &impl Serialize) -> Outcome {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

fn info(json: bool, with_limits: bool) -> Outcome {
    let caps = gllm_kernels_std::caps();
    let machine = Machine::detect(caps);
    let limits =
        if with_limits { measure_limits(&mut Limits::new(caps), &[1, cores()], json)? } else { Vec::new() };
    if json {
        return print_json(&Report { machine, limits, results: Vec::new() });
    }
    let mut out = stdout();
    report::machine(&mut out, &machine)?;
    if with_limits {
        writeln!(out)?;
        report::limits(&mut out, &limits)?;
    }
    Ok(())
}

fn runtimes(threads: &[usize]) -> Outcome<Vec<Runtime>> {
    let mut threads = threads.to_vec();
    threads.dedup();
    threads.into_iter().map(|t| Runtime::new(t).map_err(|e| Failure::Failed(e.to_string()))).collect()
}

fn measure_limits(limits: &mut Limits, threads: &[usize], quiet: bool) -> Outcome<Vec<Limit>> {
    let runtimes = runtimes(threads)?;
    let progress = Progress::new(limits.table_len(), quiet);
    Ok(limits.table(&runtimes.iter().collect::<Vec<_>>(), |what| progress.step(what)))
}

#[derive(Serialize)]
struct Listed {
    kernel: &'static str,
    op: &'static str,
    element: &'static str,
    format: Option<&'static str>,
    isa: &'static str,
    available: bool,
}

fn list(json: bool) -> Outcome {
    let caps = gllm_kernels_std::caps();
    let rows: Vec<Listed> = kernels()
        .map(|k| Listed {
            kernel: k.name,
            op: k.op.name(),
            element: k.element.name(),
            format: k.format.map(|f| f.name()),
            isa: k.level.name(),
            available: caps.restricted_to(k.level).is_ok(),
        })
        .collect();
    if json {
        return print_json(&rows);
    }
    let mut out = stdout();
    let width = rows.iter().map(|r| r.kernel.len()).max().unwrap_or(0);
    for r in rows {
        let there = if r.available { "" } else { "  (not on this machine)" };
        writeln!(out, "{:<width$}  {:<16} {:<5} {}{there}", r.kernel, r.op, r.element, r.isa)?;
    }
    Ok(())
}

/// Capabilities of the level with this name; all of them without a name.
fn level(name: Option<&str>) -> Outcome<Caps> {
    let caps = gllm_kernels_std::caps();
    let Some(name) = name else { return Ok(caps) };
    let level = IsaLevel::from_name(name)
        .ok_or_else(|| unknown("instruction set", name, IsaLevel::ALL.iter().map(|l| l.name())))?;
    caps.restricted_to(level).map_err(|e| Failure::Failed(e.to_string()))
}

/// The storage types of these names; f32 without a name.
fn elements(names: &[String]) -> Outcome<Vec<ElementType>> {
    let known = || ElementType::ALL.into_iter();
    let find = |name: &String| {
        let found = known().find(|e| e.name() == name);
        found.ok_or_else(|| unknown("element type", name, known().map(|e| e.name())))
    };
    if names.is_empty() {
        return Ok(vec![ElementType::F32]);
    }
    names.iter().map(find).collect()
}

fn format(name: &str) -> Outcome<QuantFormat> {
    QuantFormat::from_name(&name.to_lowercase())
        .ok_or_else(|| unknown("format", name, QuantFormat::ALL.iter().map(|f| f.name())))
}

fn threads(text: &str) -> Outcome<usize> {
    match text.parse() {
        _ if text == "all" => Ok(cores()),
        Ok(n @ 1..=1024) => Ok(n),
        _ => Err(Failure::Usage(format!(
            "impossible thread count `{text}`: a number from 1 to 1024, or `all`"
        ))),
    }
}

fn min_time(seconds: f64) -> Outcome<Duration> {
    if seconds > 0.0 && seconds <= 600.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(Failure::Usage(format!("impossible --min-time {seconds}: seconds, above 0, at most 600")))
    }
}

/// The HTML file is opened before anything is measured: a wrong path is told at once.
fn create(html: Option<&Path>) -> Outcome<Option<(&Path, File)>> {
    let Some(path) = html else { return Ok(None) };
    match File::create(path) {
        Ok(file) => Ok(Some((path, file))),
        Err(e) => Err(Failure::Failed(format!("cannot write {}: {e}", path.display()))),
    }
}

fn write_html(html: Option<(&Path, File)>, report: &Report) -> Outcome {
    if let Some((path, mut file)) = html {
        let written = file.write_all(crate::html::page(report).as_bytes());
        written.map_err(|e| Failure::Failed(format!("cannot write {}: {e}", path.display())))?;
    }
    Ok(())
}

fn run(args: &RunArgs) -> Outcome {
    let caps = level(args.isa.as_deref())?;
    let threads = threads(&args.threads)?;
    let min_time = min_time(args.min_time)?;
    let elements = elements(&args.element)?;
    let entries: Vec<&'static Entry> = match args.op.as_slice() {
        [] => Entry::all().collect(),
        names => names.iter().map(|n| Entry::find(n)).collect::<Outcome<_>>()?,
    };
    let formats: Vec<QuantFormat> = args.format.iter().map(|n| format(n)).collect::<Outcome<_>>()?;
    if let Some(dense) = entries.iter().find(|e| !args.op.is_empty() && !formats.is_empty() && !e.quantised) {
        return Err(Failure::Usage(format!("--format: {} has no quantised weights", dense.name)));
    }
    let mut jobs = Vec::new();
    for entry in entries {
        // A format alone chooses the operators that have one.
        for format in entry
            .formats()
            .into_iter()
            .filter(|f| formats.is_empty() || f.is_some_and(|f| formats.contains(&f)))
        {
            for &element in &elements {
                // A type, too.
                if args.op.is_empty() && !entry.takes(element) {
                    continue;
                }
                let mut case = entry.default_case(element, format);
                if let Some(text) = &args.shape {
                    let fits = entry.sizes.parse(entry.name, text).and_then(|shape| {
                        case.shape = shape;
                        entry.check(&case)
                    });
                    match fits {
                        // A shape chooses the operators and formats that it can mean something to.
                        Err(_) if args.op.is_empty() || format.is_some() && formats.is_empty() => continue,
                        fits => fits?,
                    }
                }
                jobs.push(Job { entry, case });
            }
        }
    }

    if jobs.is_empty() {
        let shape = args.shape.as_deref().unwrap_or_default();
        return Err(Failure::Usage(format!("impossible shape `{shape}`: no operator takes it")));
    }
    let html = create(args.html.as_deref())?;
    let rt = Runtime::new(threads).map_err(|e| Failure::Failed(e.to_string()))?;
    let mut session = Session::new(Limits::new(caps), min_time, SAMPLES);
    let progress = Progress::new(jobs.len(), args.json);
    let mut records = Vec::new();
    if !args.json {
        progress.print(|| report::header(&mut stdout()))?;
    }
    for job in jobs {
        progress.step(job.entry.name);
        let record = session.measure(job, caps, &rt)?;
        if !args.json {
            progress.print(|| report::record(&mut stdout(), &record))?;
        }
        records.push(record);
    }
    drop(progress);
    if args.json {
        print_json(&records)?;
    }
    let machine = Machine::detect(gllm_kernels_std::caps());
    write_html(html, &Report { machine, limits: Vec::new(), results: records })
}

fn compare(args: &CompareArgs) -> Outcome {
    let formats: Vec<QuantFormat> = args.format.iter().map(|n| format(n)).collect::<Outcome<_>>()?;
    let threads: Vec<usize> = args.threads.iter().map(|t| threads(t)).collect::<Outcome<_>>()?;
    let plan = crate::compare::compare(
        &args.peer,
        Request {
            ops: &args.op,
            elements: &elements(&args.element)?,
            formats: &formats,
            function: args.function.as_deref(),
            shapes: &args.shape,
            threads: &threads,
            caps: level(args.isa.as_deref())?,
            min_time: min_time(args.min_time)?,
            library: args.library.as_deref(),
        },
    )?;
    if let Some(warning) = &plan.warning {
        writeln!(io::stderr(), "gllm-bench: warning: {warning}")?;
    }
    let progress = Progress::new(plan.len, args.json);
    if !args.json {
        progress.print(|| report::comparisons(&mut stdout()))?;
    }
    let mut results = Vec::new();
    for pair in plan.pairs {
        let pair = pair?;
        progress.step(pair.op);
        if !args.json {
            progress.print(|| report::comparison(&mut stdout(), &pair))?;
        }
        results.push(pair);
    }
    drop(progress);
    if args.json {
        return print_json(&results);
    }
    report::compared_with(&mut stdout(), &args.peer, &plan.version)?;
    Ok(())
}

fn inspect(path: &Path, json: bool, threads_text: &str) -> Outcome {
    let rt = Runtime::new(threads(threads_text)?).map_err(|e| Failure::Failed(e.to_string()))?;
    let mut progress = None;
    let file = crate::inspect::inspect(path, &rt, |count, name| {
        progress.get_or_insert_with(|| Progress::new(count, json)).step(name);
    })?;
    drop(progress);
    if json {
        print_json(&file)?;
    } else {
        report::inspected(&mut stdout(), &file)?;
    }
    match file.tensors.iter().find(|t| t.result.is_wrong()) {
        Some(t) => Err(Failure::Failed(format!("{}: wrong result of {}", file.file, t.name))),
        None => Ok(()),
    }
}

fn quantize(args: &QuantizeArgs) -> Outcome {
    let target = Target::find(&args.format)?;
    let rt = Runtime::new(threads(&args.threads)?).map_err(|e| Failure::Failed(e.to_string()))?;
    let mut progress = None;
    let tick = |steps, name: &str| {
        progress.get_or_insert_with(|| Progress::new(steps, args.json)).step(name);
    };
    let done = crate::quantize::quantize(
        &args.input,
        &args.output,
        target,
        args.force,
        &rt,
        remove_on_interrupt,
        tick,
    );
    drop(progress);
    let report = done?;
    if args.json {
        return print_json(&report);
    }
    Ok(report::quantised(&mut stdout(), &report)?)
}

/// Samples and least time of the table of everything: it has to be done in a minute and a half.
const QUICK: (Duration, usize) = (Duration::from_millis(30), 5);

/// Elements at which functions are shown in the first-level cache.
const SMALL: usize = 4096;

/// The formats of the table of everything: those that most models come in.
const COMMON: [QuantFormat; 4] = [QuantFormat::Q4_0, QuantFormat::Q8_0, QuantFormat::Q4K, QuantFormat::Q6K];

/// The table of everything: main memory on one thread and all; functions in cache.
fn jobs() -> Vec<(Job, usize)> {
    let mut jobs = Vec::new();
    for entry in Entry::all().filter(|e| !e.in_place()) {
        for format in entry.formats().into_iter().filter(|f| f.is_none_or(|f| COMMON.contains(&f))) {
            for element in ElementType::FLOATS.into_iter().filter(|&e| entry.takes(e)) {
                let mut threads = match element {
                    ElementType::F32 => vec![1, cores()],
                    _ if entry.halves => vec![cores()],
                    _ => vec![],
                };
                threads.dedup();
                let case = entry.default_case(element, format);
                jobs.extend(threads.into_iter().map(|t| (Job { entry, case }, t)));
            }
        }
        if entry.sizes == Sizes::Vector {
            let shape = Shape { m: 1, n: SMALL, k: 1 };
            jobs.push((Job { entry, case: Case { element: ElementType::F32, format: None, shape } }, 1));
        }
    }
    jobs
}

fn everything(json: bool, html: Option<&Path>) -> Outcome {
    let html = create(html)?;
    let caps = gllm_kernels_std::caps();
    let machine = Machine::detect(caps);
    if !json {
        let mut out = stdout();
        report::machine(&mut out, &machine)?;
        writeln!(out)?;
    }
    let mut limits = Limits::new(caps);
    let table = measure_limits(&mut limits, &[1, cores()], json)?;
    let jobs = jobs();
    let progress = Progress::new(jobs.len(), json);
    if !json {
        progress.print(|| {
            let mut out = stdout();
            report::limits(&mut out, &table)?;
            writeln!(out)?;
            report::header(&mut out)
        })?;
    }
    let runtimes = runtimes(&[1, cores()])?;
    let mut session = Session::new(limits, QUICK.0, QUICK.1);
    let mut results = Vec::new();
    for (job, threads) in jobs {
        progress.step(job.entry.name);
        let Some(rt) = runtimes.iter().find(|rt| rt.threads() == threads) else { continue };
        let record = session.measure(job, caps, rt)?;
        if !json {
            progress.print(|| report::record(&mut stdout(), &record))?;
        }
        results.push(record);
    }
    drop(progress);
    let report = Report { machine, limits: table, results };
    if json {
        print_json(&report)?;
    }
    write_html(html, &report)
}

#[derive(Serialize)]
struct Verified {
    kernel: &'static str,
    ok: bool,
    cases: usize,
    max_err: f64,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn verify(ops: &[String], isa: Option<&str>, json: bool) -> Outcome {
    let caps = gllm_kernels_std::caps();
    let only = match isa {
        Some(name) => Some(level(Some(name))?.level()),
        None => None,
    };
    let ops: Vec<Op> = ops
        .iter()
        .map(|n| Op::from_name(n).ok_or_else(|| unknown("operator", n, Op::ALL.iter().map(|o| o.name()))))
        .collect::<Outcome<_>>()?;
    let chosen = |k: &&KernelInfo| {
        caps.restricted_to(k.level).is_ok()
            && only.is_none_or(|l| k.level == l)
            && (ops.is_empty() || ops.contains(&k.op))
    };
    let rows: Vec<&KernelInfo> = kernels().filter(chosen).collect();
    let progress = Progress::new(rows.len(), json);
    let mut results = Vec::new();
    for row in rows {
        progress.step(row.name);
        let result = match gllm_testkit::check(row) {
            Ok(r) => Verified {
                kernel: row.name,
                ok: true,
                cases: r.cases,
                max_err: r.max_err,
                unit: r.unit,
                error: None,
            },
            Err(e) => {
                Verified { kernel: row.name, ok: false, cases: 0, max_err: 0.0, unit: "", error: Some(e) }
            }
        };
        if !json {
            progress
                .print(|| report::verified(&mut stdout(), result.kernel, &result_text(&result), result.ok))?;
        }
        results.push(result);
    }
    drop(progress);
    let failed = results.iter().filter(|r| !r.ok).count();
    if json {
        print_json(&results)?;
    } else {
        writeln!(stdout(), "{} kernels verified, {failed} failed", results.len())?;
    }
    match failed {
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} of {} kernels failed", results.len()))),
    }
}

fn result_text(r: &Verified) -> String {
    match &r.error {
        Some(e) => e.clone(),
        None => format!("{:>6} cases, largest error {:.3} {}", r.cases, r.max_err, r.unit),
    }
}
