//! `list`: every kernel of this build.

use std::collections::BTreeSet;
use std::io::Write;

use clap::Args;
use gllm_kernels_core::{kernels, Features};
use serde::Serialize;

use crate::error::Outcome;
use crate::output::{print_json, stdout};
use crate::report::DIM;

/// What to list.
#[derive(Args, Debug)]
pub struct Options {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Listed {
    kernel: &'static str,
    /// The kernel that does its work: one microkernel does that of several rows.
    done_by: &'static str,
    op: &'static str,
    element: &'static str,
    format: Option<&'static str>,
    isa: &'static str,
    /// CPU features that it needs and this machine has not.
    missing: Vec<&'static str>,
    available: bool,
}

/// The names of these features.
pub(super) fn names(features: Features) -> Vec<&'static str> {
    Features::ALL.iter().filter(|(f, _)| features.contains(*f)).map(|&(_, name)| name).collect()
}

/// Lists the kernels.
pub fn execute(options: &Options) -> Outcome {
    let there = gllm_kernels_std::caps().features();
    let rows = kernels().map(|k| {
        let missing = k.requires.without(there);
        Listed {
            kernel: k.name,
            done_by: k.kernel(),
            op: k.op.name(),
            element: k.element.name(),
            format: k.format.map(|f| f.name()),
            isa: k.level.name(),
            missing: names(missing),
            available: missing == Features::NONE,
        }
    });
    let rows: Vec<Listed> = rows.collect();
    if options.json {
        return print_json(&rows);
    }
    let mut out = stdout();
    let width = |text: fn(&Listed) -> &str| rows.iter().map(|r| text(r).len()).max().unwrap_or(0);
    let (kernels, ops) = (width(|r| r.kernel), width(|r| r.op));
    for r in &rows {
        write!(out, "{:<kernels$}  {:<ops$}  {:<4}  ", r.kernel, r.op, r.element)?;
        if r.available {
            writeln!(out, "{}", r.isa)?;
        } else {
            writeln!(out, "{:<6}  {DIM}needs {}{DIM:#}", r.isa, r.missing.join(", "))?;
        }
    }
    let distinct: BTreeSet<_> = rows.iter().map(|r| r.done_by).collect();
    writeln!(out, "{} rows, done by {} kernels", rows.len(), distinct.len())?;
    Ok(())
}
