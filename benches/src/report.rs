//! Text tables. Styles are ANSI escapes; the stream drops them where nobody would see colours.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::compare::Comparison;
use crate::inspect::{File, Result as Answer};
use crate::limits::Limit;
use crate::machine::Machine;
use crate::quantize::Report as Quantised;
use crate::run::Record;

const HEAD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// From fractions of the limit to a colour: green from 90 %, yellow from 60 %.
fn rating(efficiency: f64) -> Style {
    let colour = match efficiency {
        e if e >= 0.9 => AnsiColor::Green,
        e if e >= 0.6 => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    Style::new().fg_color(Some(colour.into()))
}

/// Bytes with a binary unit.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// Nanoseconds with a unit that leaves three or four digits.
pub fn time(ns: f64) -> String {
    match ns {
        t if t < 1e3 => format!("{t:.1} ns"),
        t if t < 1e6 => format!("{:.2} us", t / 1e3),
        t if t < 1e9 => format!("{:.2} ms", t / 1e6),
        t => format!("{:.2} s", t / 1e9),
    }
}

/// Four significant digits, more or less.
pub fn number(x: f64) -> String {
    match x.abs() {
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 0.01 || a == 0.0 => format!("{x:.2}"),
        _ => format!("{x:.0e}"),
    }
}

/// Storage type; for quantised operators the weight format and the type of the rest.
pub fn types(format: &str, element: &str) -> String {
    if format == element {
        element.to_owned()
    } else {
        format!("{format}/{element}")
    }
}

/// A relative error.
pub fn error(e: f64) -> String {
    if e == 0.0 {
        "exact".to_owned()
    } else {
        format!("{e:.0e}")
    }
}

/// The machine.
pub fn machine(out: &mut impl Write, m: &Machine) -> io::Result<()> {
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

/// Limits: one line per limit, one column per thread count.
pub fn limits(out: &mut impl Write, limits: &[Limit]) -> io::Result<()> {
    let mut threads: Vec<usize> = limits.iter().map(|l| l.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut rows: Vec<(&str, Vec<&Limit>)> = Vec::new();
    for l in limits {
        match rows.iter_mut().find(|(name, _)| *name == l.name) {
            Some((_, row)) => row.push(l),
            None => rows.push((&l.name, vec![l])),
        }
    }
    write!(out, "{HEAD}{:<26}", "Limits (measured)")?;
    for t in &threads {
        write!(out, "{:>14}", format!("{t} thread{}", if *t == 1 { "" } else { "s" }))?;
    }
    writeln!(out, "{HEAD:#}")?;
    for (name, row) in rows {
        write!(out, "  {name:<24}")?;
        for t in &threads {
            let value = row.iter().find(|l| l.threads == *t).map_or_else(String::new, |l| number(l.value));
            write!(out, "{value:>14}")?;
        }
        writeln!(out, " {:<8} {DIM}{}{DIM:#}", row[0].unit, row[0].by)?;
    }
    Ok(())
}

/// Headings of the operator table.
pub fn header(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{HEAD}{:<18} {:<9} {:<7} {:>3} {:>15} {:>10} {:>9} {:>8}  {:<7} {:>8} {:>7} {:>8}{HEAD:#}",
        "operator",
        "type",
        "isa",
        "thr",
        "shape",
        "time",
        "GFLOP/s",
        "GB/s",
        "bound",
        "limit",
        "%",
        "max_err"
    )
}

/// One line of it.
pub fn record(out: &mut impl Write, r: &Record) -> io::Result<()> {
    let style = rating(r.efficiency);
    writeln!(
        out,
        "{:<18} {:<9} {:<7} {:>3} {:>15} {:>10} {:>9} {:>8}  {:<7} {:>8} {style}{:>7.1}{style:#} {:>8}",
        r.op,
        types(r.format, r.element),
        r.isa,
        r.threads,
        r.shape,
        time(r.ns),
        number(r.gflops),
        number(r.gbs),
        r.bound,
        number(r.limit),
        100.0 * r.efficiency,
        error(r.max_err)
    )
}

/// One line of `verify`.
pub fn verified(out: &mut impl Write, kernel: &str, text: &str, ok: bool) -> io::Result<()> {
    let style = rating(if ok { 1.0 } else { 0.0 });
    writeln!(out, "{style}{}{style:#} {kernel:<36} {text}", if ok { "ok  " } else { "FAIL" })
}

/// Headings of the comparisons with another library.
pub fn comparisons(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{HEAD}{:<15} {:<11} {:<7} {:>3} {:>16} {:>10} {:>7}   {:<31} {:>10} {:>7} {:>7}{HEAD:#}",
        "operator", "type", "isa", "thr", "shape", "ours", "GB/s", "peer", "theirs", "GB/s", "ratio"
    )
}

/// One line of them.
pub fn comparison(out: &mut impl Write, c: &Comparison) -> io::Result<()> {
    let style = rating(if c.ratio >= 1.0 { 1.0 } else { c.ratio * 0.89 });
    writeln!(
        out,
        "{:<15} {:<11} {:<7} {:>3} {:>16} {:>10} {:>7}   {:<31} {:>10} {:>7} {style}{:>7.3}{style:#}",
        c.op,
        types(c.format, c.element),
        c.isa,
        c.threads,
        c.shape,
        time(c.ours),
        number(c.ours_gbs),
        c.function,
        time(c.peer),
        number(c.peer_gbs),
        c.ratio
    )
}

/// What they mean.
pub fn compared_with(out: &mut impl Write, peer: &str, version: &str) -> io::Result<()> {
    writeln!(out, "{DIM}{peer}: {version}")?;
    writeln!(out, "ratio: their time / ours, median of neighbouring pairs; above 1, ours is faster{DIM:#}")
}

/// A GGUF file.
pub fn inspected(out: &mut impl Write, file: &File) -> io::Result<()> {
    writeln!(
        out,
        "{HEAD}{}{HEAD:#}: {}{}, {}, {} metadata pairs, {} tensors; {} threads",
        file.file,
        file.format,
        file.version.map_or(String::new(), |v| format!(" version {v}")),
        bytes(file.bytes),
        file.metadata,
        file.tensors.len(),
        file.threads
    )?;
    let width = file.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0).clamp(6, 48);
    writeln!(
        out,
        "{HEAD}{:<width$} {:<12} {:>18} {:>11} {:>12} {:>10} {:>10} {:>10}{HEAD:#}",
        "tensor", "type", "shape", "bytes", "decode GB/s", "error", "gemv GB/s", "error"
    )?;
    for t in &file.tensors {
        let shape = t.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let size = t.bytes.map_or("?".to_owned(), bytes);
        write!(out, "{:<width$} {:<12} {shape:>18} {size:>11} ", t.name, t.of)?;
        match &t.result {
            Answer::Timed { decode_gbs, decode_err, gemv_gbs, gemv_err } => {
                let style = rating(if t.result.is_wrong() { 0.0 } else { 1.0 });
                let decode = decode_gbs.map_or("-".to_owned(), number);
                let decode_err = decode_err.map_or("-".to_owned(), error);
                writeln!(
                    out,
                    "{decode:>12} {style}{decode_err:>10}{style:#} {:>10} {style}{:>10}{style:#}",
                    number(*gemv_gbs),
                    error(*gemv_err)
                )?;
            }
            Answer::Untouched { reason } => writeln!(out, "{DIM}{reason}{DIM:#}")?,
        }
    }
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

/// A file that was quantised.
pub fn quantised(out: &mut impl Write, r: &Quantised) -> io::Result<()> {
    let width = r.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0).clamp(6, 48);
    writeln!(
        out,
        "{HEAD}{:<width$} {:>18} {:<8} {:<8} {:>11} {:>11}{HEAD:#}",
        "tensor", "shape", "from", "to", "bytes", "bytes"
    )?;
    for t in &r.tensors {
        let shape = t.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let (from, to) = (bytes(t.bytes_from), bytes(t.bytes_to));
        write!(out, "{:<width$} {shape:>18} {:<8} {:<8} {from:>11} {to:>11}", t.name, t.from, t.to)?;
        match &t.note {
            Some(note) => writeln!(out, "  {DIM}{note}{DIM:#}")?,
            None => writeln!(out)?,
        }
    }
    writeln!(
        out,
        "{HEAD}{}{HEAD:#}: {} tensors, {} to {} ({:.1} %), {:.1} s on {} threads",
        r.output,
        r.tensors.len(),
        bytes(r.bytes_from),
        bytes(r.bytes_to),
        100.0 * r.bytes_to as f64 / r.bytes_from as f64,
        r.seconds,
        r.threads
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(48 << 10), "48 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(time(12.34), "12.3 ns");
        assert_eq!(time(2.5e6), "2.50 ms");
        assert_eq!((error(0.0), error(6.1e-8)), ("exact".to_owned(), "6e-8".to_owned()));
        assert_eq!(number(0.0), "0.00");
        assert_eq!(number(12345.6), "12346");
    }
}
