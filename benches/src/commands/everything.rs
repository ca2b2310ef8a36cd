//! Without a command: the machine, its limits, and every operator.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gllm_kernels_core::{ElementType, QuantFormat};

use super::info::{measure, one_and_all, print_limits, print_machine};
use super::run::{print, table};
use crate::error::Outcome;
use crate::html::{page, Report};
use crate::limits::Limits;
use crate::machine::{cores, Machine};
use crate::output::{print_json, stdout, Page};
use crate::progress::Progress;
use crate::run::{Job, Session};
use crate::workload::{Case, Entry, Shape, Sizes};

/// Where the results go.
#[derive(Args, Debug)]
pub struct Options {
    /// Also write a self-contained HTML report with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print JSON: machine, limits and results.
    #[arg(long)]
    pub json: bool,
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
                let all = if entry.on_one_thread() { 1 } else { cores() };
                let mut threads = match element {
                    ElementType::F32 => vec![1, all],
                    _ if entry.halves => vec![all],
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

/// Measures everything.
pub fn execute(options: &Options) -> Outcome {
    let json = options.json;
    let html = Page::create(options.html.as_deref())?;
    let caps = gllm_kernels_std::caps();
    let machine = Machine::detect(caps);
    if !json {
        let mut out = stdout();
        print_machine(&mut out, &machine)?;
        writeln!(out)?;
    }
    let runtimes = one_and_all()?;
    let mut limits = Limits::new(caps);
    let measured = measure(&mut limits, &runtimes, json)?;
    let jobs = jobs();
    let table = table(jobs.iter().map(|(job, _)| job));
    let progress = Progress::new(jobs.len(), json);
    if !json {
        progress.print(|| {
            let mut out = stdout();
            print_limits(&mut out, &measured)?;
            writeln!(out)?;
            table.head(&mut out)
        })?;
    }
    let mut session = Session::new(limits, QUICK.0, QUICK.1);
    let mut results = Vec::new();
    for (job, threads) in jobs {
        progress.step(job.entry.name);
        let Some(rt) = runtimes.iter().find(|rt| rt.threads() == threads) else { continue };
        let record = session.measure(job, caps, rt)?;
        if !json {
            progress.print(|| print(&mut stdout(), &table, &record))?;
        }
        results.push(record);
    }
    drop(progress);
    let report = Report::new(machine, measured, results);
    if json {
        print_json(&report)?;
    } else {
        table.foot(&mut stdout())?;
    }
    match html {
        Some(file) => file.write(&page(&report)),
        None => Ok(()),
    }
}
