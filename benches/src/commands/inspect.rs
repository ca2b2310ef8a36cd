//! `inspect`: the tensors of a model file, decoded and multiplied.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use crate::error::{Failure, Outcome};
use crate::inspect::{File, Result as Answer};
use crate::options::runtime;
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::report::{bytes, dimensions, error, number, rating, threads, DIM, HEAD};
use crate::table::{Cell, Column, Table};

/// What to look into.
#[derive(Args, Debug)]
pub struct Options {
    /// The file.
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
}

/// Looks into the file.
pub fn execute(options: &Options) -> Outcome {
    let rt = runtime(&options.threads)?;
    let mut progress = None;
    let file = crate::inspect::inspect(&options.file, &rt, |count, name| {
        progress.get_or_insert_with(|| Progress::new(count, options.json)).step(name);
    })?;
    drop(progress);
    if options.json {
        print_json(&file)?;
    } else {
        print(&mut stdout(), &file)?;
    }
    match file.tensors.iter().find(|t| t.result.is_wrong()) {
        Some(t) => Err(Failure::Failed(format!("{}: wrong result of {}", file.file, t.name))),
        None => Ok(()),
    }
}

fn print(out: &mut impl Write, file: &File) -> io::Result<()> {
    writeln!(
        out,
        "{HEAD}{}{HEAD:#}: {}{}, {}, {} metadata pairs, {} tensors; {}",
        file.file,
        file.format,
        file.version.map_or(String::new(), |v| format!(" version {v}")),
        bytes(file.bytes),
        file.metadata,
        file.tensors.len(),
        threads(file.threads)
    )?;
    let shapes: Vec<String> = file.tensors.iter().map(|t| dimensions(&t.shape)).collect();
    let reason = |a: &Answer| match a {
        Answer::Untouched { reason } => reason.clone(),
        Answer::Timed { .. } => String::new(),
    };
    let reasons: Vec<String> = file.tensors.iter().map(|t| reason(&t.result)).collect();
    let mut columns = vec![
        Column::words("tensor", Column::ALWAYS).holding(file.tensors.iter().map(|t| &t.name)),
        Column::words("type", Column::ALWAYS).holding(file.tensors.iter().map(|t| &t.of)),
        Column::number("shape", 0, 5).holding(&shapes),
        Column::number("bytes", 9, 4),
        Column::number("decode GB/s", 6, 3),
        Column::number("error", 5, 1),
        Column::number("gemv GB/s", 6, 6),
        Column::number("error", 5, 2),
    ];
    if reasons.iter().any(|r| !r.is_empty()) {
        columns.push(Column::words("not run", 0).holding(&reasons));
    }
    let table = Table::new(columns);
    table.head(out)?;
    for ((t, shape), reason) in file.tensors.iter().zip(shapes).zip(reasons) {
        let size = t.bytes.map_or("?".to_owned(), bytes);
        let mut cells: Vec<Cell> =
            vec![t.name.as_str().into(), t.of.as_str().into(), shape.into(), size.into()];
        match &t.result {
            Answer::Timed { decode_gbs, decode_err, gemv_gbs, gemv_err } => {
                let style = rating(if t.result.is_wrong() { 0.0 } else { 1.0 });
                cells.extend([
                    decode_gbs.map_or("-".to_owned(), number).into(),
                    Cell::styled(decode_err.map_or("-".to_owned(), error), style),
                    number(*gemv_gbs).into(),
                    Cell::styled(error(*gemv_err), style),
                ]);
            }
            Answer::Untouched { .. } => cells.extend(["-"; 4].map(Cell::from)),
        }
        cells.push(Cell::styled(reason, DIM));
        table.row(out, cells)?;
    }
    table.foot(out)?;
    let left = file.tensors.iter().filter(|t| !t.supported).count();
    if left > 0 {
        let mut types: Vec<&str> = file.tensors.iter().filter(|t| !t.supported).map(|t| &*t.of).collect();
        types.sort_unstable();
        types.dedup();
        writeln!(
            out,
            "{left} of {} tensors are of types without kernels yet: {}",
            file.tensors.len(),
            types.join(", ")
        )?;
    }
    Ok(())
}
