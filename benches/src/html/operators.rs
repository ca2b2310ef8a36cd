//! The report on the machine's limits and operators.

use std::fmt::Write;

use serde::Serialize;

use super::{begin, class, escape, Origin, END};
use crate::limits::Limit;
use crate::machine::Machine;
use crate::report::{bytes, error, number, time};
use crate::run::Record;

/// Everything that was measured in one go, and what was asked for.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When and where.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine's limits.
    pub limits: Vec<Limit>,
    /// Its operators.
    pub results: Vec<Record>,
}

impl Report {
    /// Of this run, now.
    pub fn new(machine: Machine, limits: Vec<Limit>, results: Vec<Record>) -> Self {
        Self { origin: Origin::new(machine), limits, results }
    }
}

/// The whole page.
pub fn page(report: &Report) -> String {
    let mut h = String::new();
    // Writing to a String cannot fail.
    let _ = build(&mut h, report);
    h
}

fn build(h: &mut String, report: &Report) -> std::fmt::Result {
    let what = "How close the operators of gllm-kernels come to the limits of this machine. All figures were measured in one run.";
    begin(h, &report.origin, [&report.origin.machine.cpu, "gllm-bench", what])?;
    if !report.results.is_empty() {
        charts(h, &report.results)?;
    }
    if !report.limits.is_empty() {
        limits(h, &report.limits)?;
    }
    if !report.results.is_empty() {
        results(h, &report.results)?;
    }
    h.push_str(END);
    Ok(())
}

/// A chart of bars for each number of threads.
fn charts(h: &mut String, results: &[Record]) -> std::fmt::Result {
    h.push_str(
        "<h2>Efficiency</h2><p>Per cent of the limit that binds the operator, arithmetic or bandwidth. The limit was \
         measured in turn with the operator, on as many threads and bytes.\
         <span class=\"key\"><i class=\"good\"></i>from 90 %</span> <span class=\"key\"><i class=\"fair\"></i>from 60 %</span> \
         <span class=\"key\"><i class=\"poor\"></i>below</span></p>",
    );
    let mut threads: Vec<usize> = results.iter().map(|r| r.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    for t in threads {
        let rows: Vec<&Record> = results.iter().filter(|r| r.threads == t).collect();
        write!(h, "<h3>{}</h3><div class=\"wrap\">", crate::report::threads(t))?;
        bars(h, &rows)?;
        h.push_str("</div>");
    }
    Ok(())
}

fn bars(h: &mut String, rows: &[&Record]) -> std::fmt::Result {
    const ROW: f64 = 22.0;
    const WIDTH: f64 = 480.0;
    const RIGHT: f64 = 130.0;
    // The scale ends at 110 %; what exceeds it is cut and says so.
    const SCALE: f64 = 1.1;
    // Columns of text: the operator, its type and shape, and behind the bars what they mean.
    let longest = |text: fn(&Record) -> String| rows.iter().map(|r| width(&text(r))).fold(0.0, f64::max);
    let of = |r: &Record| format!("{} {}", crate::report::types(r.format, r.element), r.shape);
    let left = longest(|r| r.op.to_owned()) + 14.0 + longest(of) + 10.0;
    let right = left + WIDTH + 52.0;
    let height = rows.len() as f64 * ROW + 26.0;
    write!(
        h,
        "<svg viewBox=\"0 0 {:.0} {height}\" role=\"img\" aria-label=\"Efficiency of each operator\">",
        left + WIDTH + RIGHT
    )?;
    for percent in [0, 25, 50, 75, 90, 100] {
        let x = left + WIDTH * f64::from(percent) / 100.0 / SCALE;
        let kind = if percent == 100 { " class=\"limit\"" } else { "" };
        write!(
            h,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"18\" y2=\"{height}\"{kind}/>\
             <text x=\"{x:.1}\" y=\"12\" text-anchor=\"middle\" class=\"dim\">{percent}</text>"
        )?;
    }
    for (i, r) in rows.iter().enumerate() {
        let y = 22.0 + i as f64 * ROW;
        let length = (r.efficiency.clamp(0.0, SCALE) / SCALE * WIDTH).max(1.0);
        write!(
            h,
            "<text x=\"0\" y=\"{0:.1}\">{1}</text><text x=\"{2:.1}\" y=\"{0:.1}\" text-anchor=\"end\" class=\"dim\">{3}</text>\
             <rect x=\"{left:.1}\" y=\"{4:.1}\" width=\"{length:.1}\" height=\"{5}\" rx=\"3\" class=\"{6}\">\
             <title>{1} {3}: {7} per call, {8} GFLOP/s, {9} GB/s; limit {10} ({11}, {12})</title></rect>\
             <text x=\"{right:.1}\" y=\"{0:.1}\" text-anchor=\"end\">{13:.1} %</text>\
             <text x=\"{14:.1}\" y=\"{0:.1}\" class=\"dim\">{11}</text>",
            y + 14.0,
            escape(r.op),
            left - 10.0,
            escape(&of(r)),
            y + 3.0,
            ROW - 6.0,
            class(r.efficiency),
            time(r.ns),
            number(r.gflops),
            number(r.gbs),
            number(r.limit),
            r.bound,
            escape(r.limit_by),
            100.0 * r.efficiency,
            right + 8.0,
        )?;
    }
    h.push_str("</svg>");
    Ok(())
}

/// About how wide a text is, a little generously: most fonts' letters and digits take 0.56 em, and `m` and `w` more.
fn width(text: &str) -> f64 {
    text.chars().map(|c| if "mwMW%".contains(c) { 10.5 } else { 7.0 }).sum()
}

fn limits(h: &mut String, limits: &[Limit]) -> std::fmt::Result {
    h.push_str(
        "<h2>Limits</h2><p>Compute: independent multiply-adds on registers, of random numbers; products: the highest of \
         those that a storage type allows. Memory: the fastest of several loops \
         (pages one by one or side by side, stores through the caches or past them): read; copy, 1 read and 1 write; \
         triad, 2 reads and 1 write; update, in place. Every operand counts once per direction.</p>\
         <div class=\"wrap\"><table><tr><th>limit</th><th>threads</th><th>working set</th><th>value</th>\
         <th class=\"l\">unit</th><th class=\"l\">reached by</th></tr>",
    );
    for l in limits {
        write!(
            h,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
            escape(&l.name),
            l.threads,
            l.working_set.map_or(String::new(), |w| bytes(w as u64)),
            number(l.value),
            l.unit,
            escape(l.by)
        )?;
    }
    h.push_str("</table></div>");
    Ok(())
}

fn results(h: &mut String, results: &[Record]) -> std::fmt::Result {
    h.push_str(
        "<h2>Operators</h2><p>max_err: largest |result - exact| / |exact|, for sums over the magnitudes of their \
         terms. Results were verified before they were timed.</p><div class=\"wrap\"><table><tr><th>kernel</th>\
         <th>shape</th><th>threads</th><th>time</th><th>GFLOP/s</th><th>GB/s</th><th class=\"l\">bound</th>\
         <th>limit</th><th>%</th><th>max_err</th></tr>",
    );
    for r in results {
        write!(
            h,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"l\">{}</td><td>{}</td>\
             <td class=\"{}\">{:.1}</td><td>{}</td></tr>",
            escape(&r.kernel),
            escape(&r.shape),
            r.threads,
            time(r.ns),
            number(r.gflops),
            number(r.gbs),
            r.bound,
            number(r.limit),
            class(r.efficiency),
            100.0 * r.efficiency,
            error(r.max_err)
        )?;
    }
    h.push_str("</table></div>");
    Ok(())
}
