//! `info`: the machine and its measured limits.

use std::io::{self, Write};

use clap::Args;
use gllm_kernels_std::backend::{choose, Choice};
use gllm_kernels_std::Runtime;
use serde::Serialize;

use crate::error::{Failure, Outcome};
use crate::html::Report;
use crate::limits::{Limit, Limits};
use crate::machine::{cores, Machine};
use crate::options::{start, Without};
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::report::{self, bytes, number, DIM, HEAD};
use crate::table::{Cell, Column, Table};

/// What to tell.
#[derive(Args, Debug)]
pub struct Options {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Measure and print the limits too.
    #[arg(long)]
    pub limits: bool,
    #[command(flatten)]
    /// Features that are as if the CPU had not got them.
    pub without: Without,
}

/// What `--json` prints: a report without results, and the backends.
#[derive(Serialize)]
struct Described {
    #[serde(flatten)]
    report: Report,
    /// In the order in which they were tried.
    backends: Vec<Considered>,
}

/// A backend that models might run on.
#[derive(Serialize)]
struct Considered {
    name: &'static str,
    chosen: bool,
    /// What it runs on, or why it was passed over.
    about: String,
}

/// Describes the machine.
pub fn execute(options: &Options) -> Outcome {
    let caps = options.without.caps()?;
    let machine = Machine::detect(caps);
    let limits = if options.limits {
        measure(&mut Limits::new(caps), &one_and_all()?, options.json)?
    } else {
        Vec::new()
    };
    if options.json {
        let report = Report::new(machine, limits, Vec::new());
        return print_json(&Described { report, backends: considered(&choice()?) });
    }
    let mut out = stdout();
    print_machine(&mut out, &machine)?;
    print_backends(&mut out)?;
    if options.limits {
        writeln!(out)?;
        print_limits(&mut out, &limits)?;
    }
    Ok(())
}

/// One thread, and one for each core.
pub(super) fn one_and_all() -> Outcome<Vec<Runtime>> {
    let mut threads = vec![1, cores()];
    threads.dedup();
    threads.into_iter().map(start).collect()
}

/// Measures the table of limits.
pub(super) fn measure(limits: &mut Limits, runtimes: &[Runtime], quiet: bool) -> Outcome<Vec<Limit>> {
    let progress = Progress::new(limits.table_len(), quiet);
    Ok(limits.table(runtimes, |what| progress.step(what)))
}

pub(super) fn print_machine(out: &mut impl Write, m: &Machine) -> io::Result<()> {
    let size = |n: usize| if n == 0 { "none".to_owned() } else { bytes(n as u64) };
    writeln!(out, "{HEAD}Machine{HEAD:#}")?;
    writeln!(out, "  CPU       {} ({}, {})", m.cpu, m.arch, m.os)?;
    writeln!(out, "  cores     {}", m.cores)?;
    writeln!(out, "  levels    {}", m.levels.join(" "))?;
    writeln!(
        out,
        "  features  {}",
        if m.features.is_empty() { "none".to_owned() } else { m.features.join(" ") }
    )?;
    let c = &m.caches;
    writeln!(
        out,
        "  caches    L1d {}, L2 {}, L3 {}, lines of {} B",
        size(c.l1d),
        size(c.l2),
        size(c.l3),
        c.line
    )?;
    if let Some(memory) = m.memory {
        writeln!(out, "  memory    {}", bytes(memory))?;
    }
    if let Some(load) = m.load.filter(|&l| l > 0.5) {
        writeln!(out, "  {DIM}load {load:.1}: other processes are running; timings will suffer{DIM:#}")?;
    }
    Ok(())
}

/// What models run on.
fn choice() -> Outcome<Choice> {
    choose(0).map_err(|e| Failure::Failed(e.to_string()))
}

/// The backends of a choice.
fn considered(choice: &Choice) -> Vec<Considered> {
    let passed_over = choice.passed_over.iter().map(|(kind, why)| Considered {
        name: kind.name(),
        chosen: false,
        about: why.to_string(),
    });
    let chosen = Considered { name: choice.kind.name(), chosen: true, about: choice.backend.to_string() };
    passed_over.chain([chosen]).collect()
}

/// What models run on, and why not on something else.
fn print_backends(out: &mut impl Write) -> Outcome {
    writeln!(out, "{HEAD}Models run on{HEAD:#}")?;
    for line in choice()?.to_string().lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// One line per limit, one column per thread count.
pub(super) fn print_limits(out: &mut impl Write, limits: &[Limit]) -> io::Result<()> {
    let mut threads: Vec<usize> = limits.iter().map(|l| l.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut columns =
        vec![Column::words("limit, measured", Column::ALWAYS).holding(limits.iter().map(|l| &l.name))];
    columns.extend(threads.iter().map(|&t| Column::number(report::threads(t), 6, Column::ALWAYS)));
    columns.push(Column::words("unit", 2).holding(limits.iter().map(|l| l.unit)));
    columns.push(Column::words("reached by", 1).holding(limits.iter().map(|l| l.by)));
    let table = Table::new(columns);
    table.head(out)?;
    // Limits of one name stand together, one for each number of threads.
    for row in limits.chunk_by(|a, b| a.name == b.name) {
        let mut cells = vec![Cell::from(&*row[0].name)];
        cells.extend(threads.iter().map(|&t| {
            let value = row.iter().find(|l| l.threads == t);
            Cell::from(value.map_or_else(String::new, |l| number(l.value)))
        }));
        cells.push(row[0].unit.into());
        cells.push(Cell::styled(row[0].by, DIM));
        table.row(out, cells)?;
    }
    table.foot(out)
}
