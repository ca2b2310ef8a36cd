//! The report as one HTML file: styles and charts are inside, nothing is fetched.

use std::fmt::Write;
use std::time::SystemTime;

use serde::Serialize;

use crate::limits::Limit;
use crate::machine::Machine;
use crate::report::{bytes, error, number, time};
use crate::run::Record;

/// Everything that was measured in one go, and what was asked for.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Of this program.
    pub version: &'static str,
    /// When it was written: UTC, RFC 3339.
    pub date: String,
    /// The command line that asked for it.
    pub command: String,
    /// The machine.
    pub machine: Machine,
    /// Its limits.
    pub limits: Vec<Limit>,
    /// Its operators.
    pub results: Vec<Record>,
}

impl Report {
    /// Of this run, now.
    pub fn new(machine: Machine, limits: Vec<Limit>, results: Vec<Record>) -> Self {
        let arguments = std::env::args().skip(1).map(|argument| quoted(&argument));
        Self {
            version: env!("CARGO_PKG_VERSION"),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: ["gllm-bench".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" "),
            machine,
            limits,
            results,
        }
    }
}

/// As a shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

const STYLE: &str = "
:root { --bg: #fbfbfa; --fg: #1c1d1f; --dim: #6b7076; --line: #e1e3e5; --card: #fff;
  --good: #2a9d62; --fair: #d99a1c; --poor: #cf4a3c; --limit: #1c1d1f }
@media (prefers-color-scheme: dark) { :root { --bg: #15171a; --fg: #e8eaec; --dim: #969ca3; --line: #2c3036;
  --card: #1c1f23; --good: #3fb97a; --fair: #e0ab3a; --poor: #e2685b; --limit: #e8eaec } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 76rem; padding: 2.5rem 1.5rem 4rem; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.7rem; margin: 0 0 .2rem } h2 { font-size: 1.15rem; margin: 2.6rem 0 .8rem }
h3 { font-size: 1rem; font-weight: 600; margin: 1.4rem 0 .5rem }
p { color: var(--dim); max-width: 52rem; text-wrap: pretty; margin: .3rem 0 .9rem }
.run { font-size: .88rem } code { font: .92em ui-monospace, monospace; color: var(--fg); overflow-wrap: anywhere }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; margin: 1.4rem 0 }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .7rem .9rem }
.card b { display: block; font-size: 1.05rem; overflow-wrap: anywhere } .card span { color: var(--dim); font-size: .85rem }
.wrap { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .9rem }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .28rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th { color: var(--dim); font-weight: 500 } tr:last-child td { border-bottom: 0 }
th:first-child, td:first-child, .l { text-align: left }
svg { display: block; width: 100%; min-width: 40rem; height: auto } svg text { font: 12px system-ui, sans-serif; fill: var(--fg);
  paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round }
svg .dim { fill: var(--dim) } .good { fill: var(--good); color: var(--good) } .fair { fill: var(--fair); color: var(--fair) }
.poor { fill: var(--poor); color: var(--poor) } svg line { stroke: var(--line) } svg .limit { stroke: var(--limit); stroke-dasharray: 3 3 }
.key { white-space: nowrap; margin-left: .8em }
.key i { display: inline-block; width: .8em; height: .8em; border-radius: .2em; background: currentColor; margin-right: .3em }
";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn class(efficiency: f64) -> &'static str {
    match efficiency {
        e if e >= 0.9 => "good",
        e if e >= 0.6 => "fair",
        _ => "poor",
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
    let m = &report.machine;
    write!(
        h,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>gllm-bench: {0}</title><style>{STYLE}</style></head><body>\
         <h1>gllm-bench</h1><p>How close the operators of gllm-kernels come to the limits of this machine. \
         All figures were measured in one run.</p><p class=\"run\">version {1}, {2}<br><code>{3}</code></p>\
         <div class=\"cards\">",
        escape(&m.cpu),
        report.version,
        report.date.replace('T', " ").replace('Z', " UTC"),
        escape(&report.command)
    )?;
    let size = |n: usize| if n == 0 { "none".to_owned() } else { bytes(n as u64) };
    let caches = format!("{} / {} / {}", size(m.caches.l1d), size(m.caches.l2), size(m.caches.l3));
    let extensions: Vec<&str> = m.features.iter().copied().filter(|f| !m.levels.contains(f)).collect();
    let cards = [
        ("processor", m.cpu.clone()),
        ("cores", m.cores.to_string()),
        ("instruction sets", m.levels.join(", ")),
        ("extensions", if extensions.is_empty() { "none".to_owned() } else { extensions.join(", ") }),
        ("caches L1d / L2 / L3", caches),
        ("memory", m.memory.map_or("unknown".to_owned(), bytes)),
    ];
    for (name, value) in cards {
        write!(h, "<div class=\"card\"><span>{name}</span><b>{}</b></div>", escape(&value))?;
    }
    h.push_str("</div>");
    if let Some(load) = m.load.filter(|&l| l > 0.5) {
        write!(h, "<p>Load {load:.1} at the start: other processes were running, and timings suffered.</p>")?;
    }
    if !report.results.is_empty() {
        charts(h, &report.results)?;
    }
    if !report.limits.is_empty() {
        limits(h, &report.limits)?;
    }
    if !report.results.is_empty() {
        results(h, &report.results)?;
    }
    h.push_str("</body></html>\n");
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
    const END: f64 = 1.1;
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
        let x = left + WIDTH * f64::from(percent) / 100.0 / END;
        let kind = if percent == 100 { " class=\"limit\"" } else { "" };
        write!(
            h,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"18\" y2=\"{height}\"{kind}/>\
             <text x=\"{x:.1}\" y=\"12\" text-anchor=\"middle\" class=\"dim\">{percent}</text>"
        )?;
    }
    for (i, r) in rows.iter().enumerate() {
        let y = 22.0 + i as f64 * ROW;
        let length = (r.efficiency.clamp(0.0, END) / END * WIDTH).max(1.0);
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
