//! `verify`: every kernel that this machine can run, against the f64 oracle.

use std::io::{self, Write};

use clap::Args;
use gllm_kernels_core::{kernels, Caps, Features, KernelInfo};
use serde::Serialize;

use super::list::names;
use crate::error::{Failure, Outcome};
use crate::options::{level, operators, Without};
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::report::{rating, DIM};

/// What to verify.
#[derive(Args, Debug)]
pub struct Options {
    /// Only these operators, comma-separated.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub op: Vec<String>,
    /// Only the kernels of this instruction set level: scalar, neon, avx2, avx512.
    #[arg(long, value_name = "LEVEL")]
    pub isa: Option<String>,
    #[command(flatten)]
    /// Features that kernels must not need.
    pub without: Without,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Verified {
    kernel: &'static str,
    #[serde(flatten)]
    result: Answer,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Right {
        ok: bool,
        cases: usize,
        max_err: f64,
        unit: &'static str,
    },
    Wrong {
        ok: bool,
        error: String,
    },
    /// The machine cannot run it.
    Lacking {
        missing: Vec<&'static str>,
    },
}

fn verified(row: &KernelInfo, caps: Caps) -> Answer {
    let missing = row.requires.without(caps.features());
    if missing != Features::NONE {
        return Answer::Lacking { missing: names(missing) };
    }
    match gllm_testkit::check(row) {
        Ok(r) => Answer::Right { ok: true, cases: r.cases, max_err: r.max_err, unit: r.unit },
        Err(error) => Answer::Wrong { ok: false, error },
    }
}

fn line(out: &mut impl Write, width: usize, v: &Verified) -> io::Result<()> {
    let (good, bad) = (rating(1.0), rating(0.0));
    let kernel = v.kernel;
    match &v.result {
        Answer::Right { cases, max_err, unit, .. } => writeln!(
            out,
            "{good}ok  {good:#} {kernel:<width$} {cases:>6} cases, largest error {max_err:.3} {unit}"
        ),
        Answer::Wrong { error, .. } => writeln!(out, "{bad}FAIL{bad:#} {kernel:<width$} {error}"),
        Answer::Lacking { missing } => {
            writeln!(
                out,
                "{DIM}-    {kernel:<width$} not run: this machine has no {}{DIM:#}",
                missing.join(", ")
            )
        }
    }
}

/// Verifies the kernels.
pub fn execute(options: &Options) -> Outcome {
    let only = options.isa.as_deref().map(level).transpose()?;
    let ops = operators(&options.op)?;
    let caps = options.without.caps()?;
    let chosen =
        |k: &&KernelInfo| only.is_none_or(|l| k.level == l) && (ops.is_empty() || ops.contains(&k.op));
    let rows: Vec<&KernelInfo> = kernels().filter(chosen).collect();
    let width = rows.iter().map(|r| r.name.len()).max().unwrap_or(0);
    let progress = Progress::new(rows.len(), options.json);
    let mut results = Vec::new();
    for row in rows {
        progress.step(row.name);
        let result = Verified { kernel: row.name, result: verified(row, caps) };
        if !options.json {
            progress.print(|| line(&mut stdout(), width, &result))?;
        }
        results.push(result);
    }
    drop(progress);
    let count = |which: fn(&Answer) -> bool| results.iter().filter(|r| which(&r.result)).count();
    let failed = count(|r| matches!(r, Answer::Wrong { .. }));
    let lacking = count(|r| matches!(r, Answer::Lacking { .. }));
    let run = results.len() - lacking;
    if options.json {
        print_json(&results)?;
    } else {
        write!(stdout(), "{run} kernels verified, {failed} failed")?;
        match lacking {
            0 => writeln!(stdout())?,
            n => writeln!(stdout(), "; {n} not run: they need what this machine does not have")?,
        }
    }
    match failed {
        0 if run == 0 => {
            Err(Failure::Failed("nothing was verified: this machine runs none of these".to_owned()))
        }
        0 => Ok(()),
        n => Err(Failure::Failed(format!("{n} of {run} kernels failed"))),
    }
}
