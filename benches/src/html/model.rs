//! The report on a model's speed: where the time of a step goes.

use std::fmt::Write;

use super::{begin, class, escape, END};
use crate::report::{bytes, number, time};
use crate::speed::{Phase, Speed, Speeds};

/// Parts of a step, each a colour of the chart: what they are called, and which kinds of operations they are made of. The last one has all others.
const PARTS: [(&str, &[&str]); 7] = [
    ("queries, keys, values", &["qkv"]),
    ("attention", &["heads", "attention", "join"]),
    ("attention output", &["attention output"]),
    ("gate and up", &["gate, up", "activation"]),
    ("down", &["down"]),
    ("logits", &["logits", "cap"]),
    ("norms and the rest", &[]),
];

/// What the charts need beyond the common styles. Neighbouring colours differ in lightness, too.
const STYLE: &str = "<style>
:root { --c0: #2f6db5; --c1: #e09a3e; --c2: #79b0e8; --c3: #2a8f6d; --c4: #9ad6bb; --c5: #8a5bb0; --c6: #a3a8ae }
@media (prefers-color-scheme: dark) { :root { --c0: #5b97db; --c1: #b8711f; --c2: #93bfee; --c3: #2f8467; --c4: #7fcaa9;
  --c5: #8f64b4; --c6: #7d848b } }
.keys { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .2rem 0 .8rem; font-size: .85rem; color: var(--dim) }
.keys i { display: inline-block; width: .8em; height: .8em; border-radius: .2em; margin-right: .35em }
.step { margin: .3rem 0 .9rem }
.name { display: flex; flex-wrap: wrap; justify-content: space-between; column-gap: 1rem; font-size: .88rem }
.name span { color: var(--dim); font-variant-numeric: tabular-nums }
.bar { display: flex; height: 1.5rem; border-radius: .3rem; overflow: hidden; min-width: 2px }
.bar i { min-width: 0 } .bar i + i { border-left: 1px solid var(--card) }
.c0 { background: var(--c0) } .c1 { background: var(--c1) } .c2 { background: var(--c2) } .c3 { background: var(--c3) }
.c4 { background: var(--c4) } .c5 { background: var(--c5) } .c6 { background: var(--c6) }
</style>";

/// The whole page.
pub fn page(report: &Speeds) -> String {
    let mut h = String::new();
    // Writing to a String cannot fail.
    let _ = build(&mut h, report);
    h
}

fn build(h: &mut String, report: &Speeds) -> std::fmt::Result {
    let name = report.file.file_name().unwrap_or(report.file.as_os_str()).to_string_lossy();
    let what =
        "How fast this model reads prompts and generates text on this machine, and where the time goes.";
    begin(h, &report.origin, [&name, &name, what])?;
    h.push_str(STYLE);
    let memory = report.peak_memory.map(|n| format!(" The process had {} of memory at most.", bytes(n)));
    write!(
        h,
        "<p>Architecture {}; a step reads {} of weights.{}</p>",
        report.architecture,
        bytes(report.weight_bytes as u64),
        memory.unwrap_or_default()
    )?;
    let generation = "A bar has the length of the time that a step takes.";
    let prompts =
        "A bar has the length of the time that a token takes: prompts of different lengths can be compared.";
    for (phase, heading, text) in
        [(Phase::Generate, "Generating", generation), (Phase::Prompt, "Reading a prompt", prompts)]
    {
        let rows: Vec<&Speed> = report.rows.iter().filter(|row| row.case.phase == phase).collect();
        if !rows.is_empty() {
            write!(h, "<h2>{heading}</h2><p>{text}</p>")?;
            chart(h, &rows)?;
        }
    }
    speeds(h, &report.rows)?;
    shares(h, &report.rows)
}

/// The seconds that a bar stands for.
fn length(row: &Speed) -> f64 {
    match row.case.phase {
        Phase::Prompt => row.step_seconds() / row.case.tokens as f64,
        Phase::Generate => row.step_seconds(),
    }
}

/// Per cent of a row's time in each of the parts.
fn parts(row: &Speed) -> [f64; PARTS.len()] {
    let mut sums = [0.0; PARTS.len()];
    // Of GPUs no parts are known.
    if row.operations.is_empty() {
        sums[PARTS.len() - 1] = 100.0;
    }
    for (name, percent) in &row.operations {
        let part = PARTS.iter().position(|(_, kinds)| kinds.contains(name));
        sums[part.unwrap_or(PARTS.len() - 1)] += percent;
    }
    sums
}

/// A bar for each row, cut into its parts.
fn chart(h: &mut String, rows: &[&Speed]) -> std::fmt::Result {
    h.push_str("<div class=\"keys\">");
    for (i, (name, _)) in PARTS.iter().enumerate() {
        write!(h, "<span><i class=\"c{i}\"></i>{name}</span>")?;
    }
    h.push_str("</div><div class=\"wrap\">");
    let longest = rows.iter().map(|row| length(row)).fold(0.0, f64::max);
    for row in rows {
        let all = length(row);
        write!(
            h,
            "<div class=\"step\"><div class=\"name\"><b>{}</b><span>{}, {} tokens/s</span></div>\
             <div class=\"bar\" style=\"width:{:.2}%\" role=\"img\" aria-label=\"Parts of the time\">",
            escape(&row.name()),
            time(1e9 * all),
            number(row.tokens_per_second),
            100.0 * all / longest
        )?;
        for (i, (percent, (name, _))) in parts(row).iter().zip(PARTS).enumerate() {
            let took = time(1e7 * percent * all);
            write!(
                h,
                "<i class=\"c{i}\" style=\"width:{percent:.2}%\" title=\"{name}: {percent:.1} %, {took}\"></i>"
            )?;
        }
        h.push_str("</div></div>");
    }
    h.push_str("</div>");
    Ok(())
}

/// The speeds in numbers.
fn speeds(h: &mut String, rows: &[Speed]) -> std::fmt::Result {
    h.push_str(
        "<h2>Speeds</h2><p>A step of generation reads all weights, once for all its sequences, and what the cache holds of each. The last \
         column is the share of the memory's bandwidth, which was measured on as many threads, or on the GPU, by copying.</p>\
         <div class=\"wrap\"><table><tr><th>what</th><th>tokens</th><th>behind</th><th>sequences</th><th>threads</th>\
         <th>load</th><th>tokens/s</th><th>MB a token</th><th>GB/s of memory</th><th>%</th></tr>",
    );
    for row in rows {
        write!(
            h,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            row.case.phase.name(),
            row.case.tokens,
            row.case.depth,
            row.sequences,
            row.case.threads,
            time(1e9 * row.load_seconds),
            number(row.tokens_per_second)
        )?;
        match row.memory {
            Some(m) => write!(
                h,
                "<td>{}</td><td>{}</td><td class=\"{}\">{:.0}</td></tr>",
                number(m.bytes_per_token as f64 / 1e6),
                number(m.bandwidth),
                class(m.efficiency),
                100.0 * m.efficiency
            )?,
            None => h.push_str("<td>-</td><td>-</td><td>-</td></tr>"),
        }
    }
    h.push_str("</table></div>");
    Ok(())
}

/// The share of each kind of operation.
fn shares(h: &mut String, rows: &[Speed]) -> std::fmt::Result {
    let share = |row: &Speed, kind: &str| {
        row.operations.iter().find(|(name, _)| *name == kind).map_or(0.0, |(_, percent)| *percent)
    };
    let most = |kind: &str| rows.iter().map(|row| share(row, kind)).fold(0.0, f64::max);
    let mut kinds: Vec<&str> = rows.iter().flat_map(|row| row.operations.iter().map(|o| o.0)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.sort_by(|a, b| most(b).total_cmp(&most(a)));
    h.push_str("<h2>Operations</h2><p>Per cent of the time.</p><div class=\"wrap\"><table><tr><th>what</th>");
    for kind in &kinds {
        write!(h, "<th>{}</th>", escape(kind))?;
    }
    h.push_str("</tr>");
    for row in rows {
        write!(h, "<tr><td>{}</td>", escape(&row.name()))?;
        for kind in &kinds {
            write!(h, "<td>{:.1}</td>", share(row, kind))?;
        }
        h.push_str("</tr>");
    }
    h.push_str("</table></div>");
    h.push_str(END);
    Ok(())
}
