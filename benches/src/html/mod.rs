//! Reports, each one HTML file: styles and charts are inside, nothing is fetched.

mod model;
mod operators;

use std::fmt::Write;
use std::time::SystemTime;

use serde::Serialize;

use crate::machine::Machine;
use crate::report::bytes;

pub use model::page as model_page;
pub use operators::{page, Report};

/// When something was measured, with what and where.
#[derive(Debug, Serialize)]
pub struct Origin {
    /// Of this program.
    pub version: &'static str,
    /// When it was written: UTC, RFC 3339.
    pub date: String,
    /// The command line that asked for it.
    pub command: String,
    /// The machine.
    pub machine: Machine,
}

impl Origin {
    /// This run, now.
    pub fn new(machine: Machine) -> Self {
        let arguments = std::env::args().skip(1).map(|argument| quoted(&argument));
        Self {
            version: env!("CARGO_PKG_VERSION"),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: ["gllm-bench".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" "),
            machine,
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

/// The head of a page and the machine: what every report begins with.
fn begin(h: &mut String, origin: &Origin, [title, heading, what]: [&str; 3]) -> std::fmt::Result {
    let m = &origin.machine;
    write!(
        h,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>gllm-bench: {}</title><style>{STYLE}</style></head><body>\
         <h1>{}</h1><p>{}</p><p class=\"run\">version {}, {}<br><code>{}</code></p><div class=\"cards\">",
        escape(title),
        escape(heading),
        escape(what),
        origin.version,
        origin.date.replace('T', " ").replace('Z', " UTC"),
        escape(&origin.command)
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
    Ok(())
}

/// The end of a page.
const END: &str = "</body></html>\n";
