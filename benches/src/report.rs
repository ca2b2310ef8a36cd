//! Text tables. Styles are ANSI escapes; the stream drops them where nobody would see colours.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::limits::Limit;
use crate::machine::Machine;
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
        "{HEAD}{:<20} {:<5} {:<8} {:>3} {:>15} {:>10} {:>9} {:>8}  {:<7} {:>8} {:>7} {:>8}{HEAD:#}",
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
    let kind = if r.format == r.element { r.element.to_owned() } else { r.format.clone() };
    writeln!(
        out,
        "{:<20} {:<5} {:<8} {:>3} {:>15} {:>10} {:>9} {:>8}  {:<7} {:>8} {style}{:>7.1}{style:#} {:>8.0e}",
        r.op,
        kind,
        r.isa,
        r.threads,
        r.shape,
        time(r.ns),
        number(r.gflops),
        number(r.gbs),
        r.bound,
        number(r.limit),
        100.0 * r.efficiency,
        r.max_err
    )
}

/// One line of `verify`.
pub fn verified(out: &mut impl Write, kernel: &str, text: &str, ok: bool) -> io::Result<()> {
    let style = rating(if ok { 1.0 } else { 0.0 });
    writeln!(out, "{style}{}{style:#} {kernel:<36} {text}", if ok { "ok  " } else { "FAIL" })
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
        assert_eq!(number(0.0), "0.00");
        assert_eq!(number(12345.6), "12346");
    }
}
