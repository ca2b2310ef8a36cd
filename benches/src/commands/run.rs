//! `run`: chosen operators, verified and timed.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use gllm_kernels_core::QuantFormat;

use super::EXAMPLES;
use crate::error::{Failure, Outcome};
use crate::help::wrapped;
use crate::html::{page, Report};
use crate::limits::Limits;
use crate::machine::Machine;
use crate::measure::SAMPLES;
use crate::options::{elements, formats, min_time, runtime, Selection};
use crate::output::{note, print_json, stdout, Page};
use crate::progress::Progress;
use crate::report::{error, number, rating, time, types};
use crate::run::{Job, Record, Session};
use crate::table::{Cell, Column, Table};
use crate::workload::{Case, Entry};

/// What to run.
#[derive(Args, Debug)]
#[command(after_long_help = wrapped(EXAMPLES))]
pub struct Options {
    /// Operators, comma-separated, as `gllm-bench list` names them; `_inplace` forms too. Default: all.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub op: Vec<String>,
    /// Weight formats of the quantised operators, comma-separated, e.g. q8_0,q4_0. Default: all. Operators
    /// without quantised weights run as they are if --op names them, and not at all if it does not.
    #[arg(long, value_name = "FMT", value_delimiter = ',')]
    pub format: Vec<String>,
    /// Storage types, comma-separated: f32, f16, bf16; of products also i8. Default: f32.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub element: Vec<String>,
    /// Sizes. MxNxK of a product: M rows of activations, N outputs, K the inner dimension; so a matrix of
    /// weights has N rows of K, and with M = 1, which NxK is short for, it is multiplied by a vector. MxN:
    /// M rows of N numbers. N: a vector. Default: operands of 256 MiB, products of 1024x1024x1024.
    #[arg(long, value_name = "MxNxK|NxK|MxN|N")]
    pub shape: Option<String>,
    /// Threads: a number or `all`. Attention and the operators of linear attention run on one, since their callers divide the work.
    #[arg(long, value_name = "T", default_value = "1")]
    pub threads: String,
    #[command(flatten)]
    /// Which kernels may run.
    pub selection: Selection,
    /// Least time to spend on the samples of an operator, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    pub min_time: f64,
    /// Print a JSON array, one object per result.
    #[arg(long)]
    pub json: bool,
    /// Also write a self-contained HTML report with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Runs the operators.
pub fn execute(options: &Options) -> Outcome {
    let caps = options.selection.caps()?;
    let rt = runtime(&options.threads)?;
    let min_time = min_time(options.min_time)?;
    let (jobs, left_out) = jobs(options)?;
    for failure in left_out {
        note(&format!("left out: {failure}"))?;
    }
    let html = Page::create(options.html.as_deref())?;
    let mut session = Session::new(Limits::new(caps), min_time, SAMPLES);
    let progress = Progress::new(jobs.len(), options.json);
    let mut records = Vec::new();
    let table = table(jobs.iter());
    if !options.json {
        progress.print(|| table.head(&mut stdout()))?;
    }
    for job in jobs {
        progress.step(job.entry.name);
        let record = session.measure(job, caps, &rt)?;
        if !options.json {
            progress.print(|| print(&mut stdout(), &table, &record))?;
        }
        records.push(record);
    }
    drop(progress);
    if options.json {
        print_json(&records)?;
    } else {
        table.foot(&mut stdout())?;
    }
    match html {
        Some(file) => file.write(&page(&Report::new(Machine::detect(caps), Vec::new(), records))),
        None => Ok(()),
    }
}

/// What the options ask for, and why a part of it is left out: an option chooses among the operators.
fn jobs(options: &Options) -> Outcome<(Vec<Job>, Vec<Failure>)> {
    let elements = elements(&options.element)?;
    let formats = formats(&options.format)?;
    let named = !options.op.is_empty();
    let entries: Vec<&'static Entry> = match options.op.as_slice() {
        [] => Entry::all().collect(),
        names => names.iter().map(|n| Entry::find(n)).collect::<Outcome<_>>()?,
    };
    if named && !formats.is_empty() && !entries.iter().any(|e| e.quantised) {
        let why = format!("--format: {} has no quantised weights", options.op.join(", "));
        return Err(Failure::Usage(why));
    }
    // A type that none of the operators takes is a mistake.
    if let Some(element) = elements.iter().find(|&&element| !entries.iter().any(|e| e.takes(element))) {
        return Err(Failure::Usage(format!("{} does not take {element}", options.op.join(", "))));
    }
    let wanted = |f: &Option<QuantFormat>| match f {
        _ if formats.is_empty() => true,
        Some(format) => formats.contains(format),
        None => named,
    };
    let (mut jobs, mut left_out) = (Vec::new(), Vec::new());
    for entry in entries {
        let shape = options.shape.as_ref().map(|text| entry.sizes.parse(entry.name, text)).transpose();
        let shape = match shape {
            Ok(shape) => shape,
            Err(why) => {
                // What nobody has named, nobody misses.
                left_out.extend(named.then_some(why));
                continue;
            }
        };
        for format in entry.formats().into_iter().filter(wanted) {
            for &element in &elements {
                let usual = entry.default_case(element, format);
                let case = Case { shape: shape.unwrap_or(usual.shape), ..usual };
                match entry.check(&case) {
                    Ok(()) => jobs.push(Job { entry, case }),
                    Err(why) if named && (format.is_none() || !formats.is_empty()) => left_out.push(why),
                    Err(_) => {}
                }
            }
        }
    }
    if !jobs.is_empty() {
        return Ok((jobs, left_out));
    }
    let shape = options.shape.as_deref().unwrap_or_default();
    let none = || Failure::Usage(format!("impossible shape `{shape}`: no operator takes it"));
    Err(left_out.into_iter().next().unwrap_or_else(none))
}

/// The table of operators, for these.
pub(super) fn table<'a>(jobs: impl Iterator<Item = &'a Job> + Clone) -> Table {
    let of = |job: &Job| {
        types(job.case.format.map_or(job.case.element.name(), |f| f.name()), job.case.element.name())
    };
    Table::new(vec![
        Column::words("operator", Column::ALWAYS).holding(jobs.clone().map(|j| j.entry.name)),
        Column::words("type", 8).holding(jobs.clone().map(of)),
        Column::words("isa", 2).holding(["avx512"]),
        Column::number("thr", 3, 5),
        Column::number("shape", 0, 9).holding(jobs.map(|j| j.case.shape.text(j.entry.sizes))),
        Column::number("time", 9, Column::ALWAYS),
        Column::number("GFLOP/s", 7, 7),
        Column::number("GB/s", 6, 6),
        Column::words("bound", 4).holding(["compute"]),
        Column::number("limit", 6, 3),
        Column::number("%", 5, Column::ALWAYS),
        Column::number("max_err", 5, 1),
    ])
}

/// One line of it.
pub(super) fn print(out: &mut impl Write, table: &Table, r: &Record) -> io::Result<()> {
    table.row(
        out,
        vec![
            r.op.into(),
            types(r.format, r.element).into(),
            r.isa.into(),
            r.threads.to_string().into(),
            r.shape.as_str().into(),
            time(r.ns).into(),
            number(r.gflops).into(),
            number(r.gbs).into(),
            r.bound.into(),
            number(r.limit).into(),
            Cell::styled(format!("{:.1}", 100.0 * r.efficiency), rating(r.efficiency)),
            error(r.max_err).into(),
        ],
    )
}
