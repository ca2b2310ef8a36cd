//! `compare --peer llama.cpp`: whole models side by side with llama.cpp.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use gllm_kernels_std::backend::Outputs;
use gllm_kernels_std::model::Model;
use serde::Serialize;

use super::compare::Options;
use crate::compare::llama::{Llama, LlamaModel, Variant};
use crate::error::{Failure, Outcome};
use crate::measure::{median, median_ratio};
use crate::model::{open, tokenizer, Exactness, Loaded, On, Setup};
use crate::options::threads;
use crate::output::{print_json, stdout};
use crate::progress::Progress;
use crate::report::{number, rating};
use crate::table::{Cell, Column, Table};

/// What is read, and continued: prose, for divergences that mean something.
const TEXT: &str = "\
A lighthouse is a tower with a strong light that guides ships at sea. The first ones were fires on hills; the most famous of \
antiquity stood at Alexandria and was about a hundred metres high. For a long time the light came from wood and coal, later from \
oil lamps with mirrors behind them. In 1822 Augustin Fresnel built a lens of many rings of glass, each of which bends the light \
a little, so that nearly all of it leaves in one direction. With it a lamp could be seen from more than thirty kilometres away. \
Each lighthouse has a rhythm of its own, by which sailors know it: two flashes every ten seconds, say, or a long one and three \
short ones. Keepers wound up the clockwork that turned the lens, trimmed the wicks and wrote down the weather. Today most lights \
switch themselves on at dusk, and satellites tell ships where they are; but when the instruments fail, the towers are still there.";

/// Samples of each side.
const SAMPLES: usize = 5;

/// Tokens whose logits are compared, at most.
const JUDGED: usize = 128;

/// Tokens that are generated for a sample.
const GENERATED: usize = 32;

/// One comparison.
#[derive(Debug, Serialize)]
struct Row {
    /// `prompt` or `generate`.
    phase: &'static str,
    /// Tokens of the prompt, or tokens that are generated.
    tokens: usize,
    /// Tokens that were there before.
    depth: usize,
    threads: usize,
    /// Our tokens a second.
    ours: f64,
    /// Theirs.
    peer: f64,
    /// Median of their time over ours in neighbouring samples: above 1, ours is faster.
    ratio: f64,
    /// The fastest way in which llama.cpp can do it.
    variant: String,
    /// Mean divergence of our fast path from our exact one, in nats.
    kl_ours: f64,
    /// That of llama.cpp's.
    kl_peer: f64,
}

/// Compares.
pub fn execute(options: &Options) -> Outcome {
    let path = options.model.as_deref();
    let path = path.ok_or_else(|| Failure::Usage("--peer llama.cpp needs --model FILE".to_owned()))?;
    let named = if options.threads.is_empty() {
        vec!["1".to_owned(), "all".to_owned()]
    } else {
        options.threads.clone()
    };
    let mut counts = named.iter().map(|t| threads(t)).collect::<Outcome<Vec<usize>>>()?;
    counts.dedup();
    let model = open(path)?;
    let text = tokenizer(&model)?.encode(TEXT).map_err(|e| Failure::Failed(e.to_string()))?;
    let longest = options.prompt.iter().chain(&options.depth).max().copied().unwrap_or(0).max(1) + GENERATED;

    let progress =
        Progress::new(2 + counts.len() * (options.prompt.len() + options.depth.len()), options.json);
    progress.step("divergence from exact logits");
    let judged = &text[..text.len().min(JUDGED)];
    let reference = logits(path, &model, Exactness::Exact, judged)?;
    let kl_ours = divergence(&reference, &logits(path, &model, Exactness::Fast, judged)?, judged.len());
    progress.step("divergence of llama.cpp's");
    let packed = LlamaModel::load(path, true)?;
    let plain = LlamaModel::load(path, false)?;
    let theirs = Llama::new(&plain, true, longest.max(JUDGED), counts[counts.len() - 1])?.logits(judged)?;
    let kl_peer = divergence(&reference, &theirs, judged.len());
    drop(theirs);

    let mut rows = Vec::new();
    for &count in &counts {
        let setup =
            Setup { file: path.to_owned(), precision: Exactness::Fast, cache: None, backend: Some(On::Cpu) };
        let (mut ours, _) = setup.load(&model, &count.to_string(), longest, true)?;
        let mut peers = Vec::new();
        for variant in Variant::ALL {
            let model = if variant.repack { &packed } else { &plain };
            peers.push((variant, Llama::new(model, variant.flash, longest, count)?));
        }
        let jobs = options
            .prompt
            .iter()
            .map(|&n| ("prompt", n, 0))
            .chain(options.depth.iter().map(|&d| ("generate", GENERATED, d)));
        for (phase, tokens, depth) in jobs {
            progress.step(&format!("{phase}, {tokens} tokens behind {depth}, {count} threads"));
            let prompt: Vec<u32> = text
                .iter()
                .copied()
                .cycle()
                .take(if phase == "prompt" { tokens } else { depth.max(1) })
                .collect();
            let next: Vec<u32> = text.iter().copied().cycle().take(GENERATED).collect();
            let next = if phase == "prompt" { None } else { Some(next.as_slice()) };
            // Which of its ways is the fastest.
            let mut best = (f64::INFINITY, 0);
            for (i, (_, peer)) in peers.iter_mut().enumerate() {
                let seconds =
                    (0..2).map(|_| their_time(peer, &prompt, next)).collect::<Outcome<Vec<f64>>>()?;
                best = if seconds[1] < best.0 { (seconds[1], i) } else { best };
            }
            let (variant, peer) = &mut peers[best.1];
            our_time(&mut ours, &prompt, next)?;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for _ in 0..SAMPLES {
                a.push(our_time(&mut ours, &prompt, next)?);
                b.push(their_time(peer, &prompt, next)?);
            }
            rows.push(Row {
                phase,
                tokens,
                depth,
                threads: count,
                ours: tokens as f64 / median(&a),
                peer: tokens as f64 / median(&b),
                ratio: median_ratio(&b, &a),
                variant: variant.name(),
                kl_ours,
                kl_peer,
            });
        }
    }
    drop(progress);
    if options.json {
        return print_json(&rows);
    }
    print(path, &rows)
}

/// Seconds that we take to read a prompt, or if there are tokens behind it, for these one by one.
fn our_time(ours: &mut Loaded, prompt: &[u32], next: Option<&[u32]>) -> Outcome<f64> {
    let failed = |e: gllm_kernels_std::backend::BackendError| Failure::Failed(e.to_string());
    let sequence = ours.create();
    let mut started = Instant::now();
    ours.extend(sequence, prompt, Outputs::Last).map_err(failed)?;
    if let Some(next) = next {
        started = Instant::now();
        for &token in next {
            ours.extend(sequence, &[token], Outputs::Last).map_err(failed)?;
        }
    }
    let time = started.elapsed();
    ours.remove(sequence).map_err(failed)?;
    Ok(time.as_secs_f64())
}

/// The same for llama.cpp.
fn their_time(peer: &mut Llama<'_>, prompt: &[u32], next: Option<&[u32]>) -> Outcome<f64> {
    peer.clear();
    let mut started = Instant::now();
    peer.extend(prompt)?;
    if let Some(next) = next {
        started = Instant::now();
        for &token in next {
            peer.extend(&[token])?;
        }
    }
    Ok(started.elapsed().as_secs_f64())
}

fn logits(path: &Path, model: &Model<'_>, precision: Exactness, tokens: &[u32]) -> Outcome<Vec<f32>> {
    let setup = Setup { file: path.to_owned(), precision, cache: None, backend: Some(On::Cpu) };
    let (mut loaded, _) = setup.load(model, "all", tokens.len(), true)?;
    loaded.logits(tokens).map_err(|e| Failure::Failed(e.to_string()))
}

/// Mean Kullback-Leibler divergence `sum p log(p / q)` of the softmax `q` of `other` from that of `reference`, row by row, in nats.
fn divergence(reference: &[f32], other: &[f32], rows: usize) -> f64 {
    let logs = |row: &[f32]| -> Vec<f64> {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
        let sum: f64 = row.iter().map(|&x| (x as f64 - top).exp()).sum();
        row.iter().map(|&x| x as f64 - top - sum.ln()).collect()
    };
    let width = reference.len() / rows;
    let each = reference
        .chunks(width)
        .zip(other.chunks(width))
        .map(|(p, q)| logs(p).iter().zip(logs(q)).map(|(p, q)| p.exp() * (p - q)).sum::<f64>());
    each.sum::<f64>() / rows as f64
}

fn print(path: &Path, rows: &[Row]) -> Outcome {
    let mut out = stdout();
    writeln!(out, "{} by llama.cpp and by us", path.display())?;
    let table = Table::new(vec![
        Column::words("phase", Column::ALWAYS).holding(["generate"]),
        Column::number("tokens", 6, Column::ALWAYS),
        Column::number("behind", 6, 5),
        Column::number("threads", 7, Column::ALWAYS),
        Column::number("ours/s", 8, Column::ALWAYS),
        Column::number("peer/s", 8, Column::ALWAYS),
        Column::number("ratio", 6, Column::ALWAYS),
        Column::words("the peer's best", 1).holding(Variant::ALL.map(Variant::name)),
    ]);
    table.head(&mut out)?;
    for row in rows {
        table.row(
            &mut out,
            vec![
                row.phase.into(),
                row.tokens.to_string().into(),
                row.depth.to_string().into(),
                row.threads.to_string().into(),
                number(row.ours).into(),
                number(row.peer).into(),
                Cell::styled(format!("{:.2}", row.ratio), rating(row.ratio)),
                (&*row.variant).into(),
            ],
        )?;
    }
    table.foot(&mut out)?;
    if let Some(row) = rows.first() {
        writeln!(
            out,
            "mean divergence from exact logits: ours {:.2e}, llama.cpp's {:.2e} nats",
            row.kl_ours, row.kl_peer
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergences_of_known_distributions() {
        let (p, q) = ([0.0f32, 0.0], [0.0f32, 3f32.ln()]);
        assert_eq!(divergence(&p, &p, 1), 0.0);
        // p = (1/2, 1/2), q = (1/4, 3/4): half of log 2 + log (2/3).
        let want = 0.5 * (2f64.ln() + (2.0 / 3.0f64).ln());
        assert!((divergence(&p, &q, 1) - want).abs() < 1e-7);
        // A constant changes nothing, and rows are averaged.
        assert!(
            (divergence(&[0.0, 0.0, 5.0, 5.0], &[7.0, 7.0, 0.0, 3f32.ln()], 2) - want / 2.0).abs() < 1e-7
        );
    }
}
