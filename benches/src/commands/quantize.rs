//! `quantize`: writes a GGUF file anew, with its matrices in another format.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use crate::error::Outcome;
use crate::options::runtime;
use crate::output::{print_json, stdout};
use crate::progress::{remove_on_interrupt, Progress};
use crate::quantize::{Report, Target};
use crate::report::{bytes, dimensions, rating, threads, DIM, HEAD};
use crate::table::{Cell, Column, Table};

/// What to write.
#[derive(Args, Debug)]
pub struct Options {
    /// The file to read: f32, f16, bf16 or quantised.
    pub input: PathBuf,
    /// The file to write.
    pub output: PathBuf,
    /// What matrices become: q4_0, q4_k, iq4_xs, mxfp4, ..., f16, bf16, f32.
    #[arg(long, value_name = "FMT")]
    pub format: String,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
    /// Overwrite the output if it exists.
    #[arg(long)]
    pub force: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Writes the file.
pub fn execute(options: &Options) -> Outcome {
    let target = Target::find(&options.format)?;
    let rt = runtime(&options.threads)?;
    let mut progress = None;
    let tick = |steps, name: &str| {
        progress.get_or_insert_with(|| Progress::new(steps, options.json)).step(name);
    };
    let done = crate::quantize::quantize(
        &options.input,
        &options.output,
        target,
        options.force,
        &rt,
        remove_on_interrupt,
        tick,
    );
    drop(progress);
    let report = done?;
    if options.json {
        return print_json(&report);
    }
    Ok(print(&mut stdout(), &report)?)
}

fn print(out: &mut impl Write, r: &Report) -> io::Result<()> {
    let shapes: Vec<String> = r.tensors.iter().map(|t| dimensions(&t.shape)).collect();
    let table = Table::new(vec![
        Column::words("tensor", Column::ALWAYS).holding(r.tensors.iter().map(|t| &t.name)),
        Column::number("shape", 0, 3).holding(&shapes),
        Column::words("from", 4).holding(r.tensors.iter().map(|t| &t.from)),
        Column::words("to", Column::ALWAYS).holding(r.tensors.iter().map(|t| &t.to)),
        Column::number("before", 10, 2),
        Column::number("after", 10, 5),
        Column::words("why", 1).holding(r.tensors.iter().map(|t| t.note.as_deref().unwrap_or(""))),
    ]);
    table.head(out)?;
    for (t, shape) in r.tensors.iter().zip(shapes) {
        table.row(
            out,
            vec![
                Cell::from(&*t.name),
                shape.into(),
                t.from.as_str().into(),
                t.to.as_str().into(),
                bytes(t.bytes_from).into(),
                bytes(t.bytes_to).into(),
                Cell::styled(t.note.as_deref().unwrap_or(""), DIM),
            ],
        )?;
    }
    table.foot(out)?;
    writeln!(
        out,
        "{HEAD}{}{HEAD:#}: {} tensors, {} to {} ({:.1} %), {:.1} s on {}",
        r.output,
        r.tensors.len(),
        bytes(r.bytes_from),
        bytes(r.bytes_to),
        100.0 * r.bytes_to as f64 / r.bytes_from as f64,
        r.seconds,
        threads(r.threads)
    )?;
    if r.decoded > 0 {
        let style = rating(0.6);
        writeln!(out, "{style}{} tensors were quantised already: decoded first{style:#}", r.decoded)?;
    }
    if r.not_finite > 0 {
        let style = rating(0.0);
        writeln!(out, "{style}{} numbers were infinite or NaN{style:#}", r.not_finite)?;
    }
    Ok(())
}
