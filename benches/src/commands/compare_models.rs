//! `compare --peer llama.cpp`: whole models side by side with llama.cpp.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use gllm_kernels_std::backend::BackendError;
use gllm_kernels_std::model::Model;
use serde::Serialize;

use super::compare::Options;
use crate::compare::ggml;
use crate::compare::llama::{Llama, LlamaModel, Variant};
use crate::error::{Failure, Outcome};
use crate::measure::{median, median_ratio};
use crate::model::{tokenizer, Exactness, On, Room, Setup};
use crate::options::threads;
use crate::output::{note, print_json, stdout};
use crate::progress::Progress;
use crate::report::{number, rating};
use crate::speed::{read, room, Case, Phase, Start};
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
    #[serde(flatten)]
    case: Case,
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
    let setup = |precision| Setup {
        file: path.to_owned(),
        precision,
        cache: None,
        backend: Some(On::Cpu),
        selection: options.selection.clone(),
    };
    let model = setup(Exactness::Exact).open()?;
    if let Some(warning) = ggml::warning(gllm_kernels_std::caps()) {
        note(&format!("warning: {warning}"))?;
    }
    let text = tokenizer(&model)?.encode(TEXT).map_err(|e| Failure::Failed(e.to_string()))?;
    let longest = options.prompt.iter().chain(&options.depth).max().copied().unwrap_or(0).max(1);
    let room = room(1, longest, GENERATED);
    let positions = room.positions.max(JUDGED);

    let progress =
        Progress::new(2 + counts.len() * (options.prompt.len() + options.depth.len()), options.json);
    progress.step("divergence from exact logits");
    let judged = &text[..text.len().min(JUDGED)];
    let reference = logits(&setup(Exactness::Exact), &model, judged)?;
    let kl_ours = divergence(&reference, &logits(&setup(Exactness::Fast), &model, judged)?, judged.len());
    progress.step("divergence of llama.cpp's");
    let packed = LlamaModel::load(path, true)?;
    let plain = LlamaModel::load(path, false)?;
    let theirs = Llama::new(&plain, true, positions, counts[counts.len() - 1])?.logits(judged)?;
    let kl_peer = divergence(&reference, &theirs, judged.len());
    drop(theirs);

    let mut rows = Vec::new();
    for &count in &counts {
        let (mut ours, _) = setup(Exactness::Fast).load(&model, &count.to_string(), room, true)?;
        let mut peers = Vec::new();
        for variant in Variant::ALL {
            let model = if variant.repack { &packed } else { &plain };
            peers.push((variant, Llama::new(model, variant.flash, positions, count)?));
        }
        let prompts = options.prompt.iter().map(|&tokens| (Phase::Prompt, tokens, 0));
        let depths = options.depth.iter().map(|&depth| (Phase::Generate, GENERATED, depth));
        for (phase, tokens, depth) in prompts.chain(depths) {
            let case = Case { phase, tokens, depth, threads: count };
            progress.step(&format!("{}, {tokens} tokens behind {depth}, {count} threads", phase.name()));
            let some = |n: usize| -> Vec<u32> { text.iter().copied().cycle().take(n).collect() };
            let (prompt, next) = match phase {
                Phase::Prompt => (some(tokens), Vec::new()),
                Phase::Generate => (some(depth.max(1)), some(tokens)),
            };
            // Which of its ways is the fastest.
            let mut best = (f64::INFINITY, 0);
            for (i, (_, peer)) in peers.iter_mut().enumerate() {
                let mut theirs = Theirs::new(peer, phase, &prompt, &next)?;
                theirs.time()?;
                let seconds = theirs.time()?;
                best = if seconds < best.0 { (seconds, i) } else { best };
            }
            let (variant, peer) = &mut peers[best.1];
            let mut theirs = Theirs::new(peer, phase, &prompt, &next)?;
            let failed = |e: BackendError| Failure::Failed(e.to_string());
            let start = match phase {
                Phase::Prompt => None,
                Phase::Generate => Some(Start::new(&mut ours, &prompt, 1).map_err(failed)?),
            };
            let mut our_time = || match &start {
                None => read(&mut ours, &prompt).map_err(failed),
                Some(start) => start.generate(&mut ours, &next).map_err(failed),
            };
            our_time()?;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for _ in 0..SAMPLES {
                a.push(our_time()?.as_secs_f64());
                b.push(theirs.time()?);
            }
            if let Some(start) = start {
                start.end(&mut ours).map_err(failed)?;
            }
            rows.push(Row {
                case,
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

/// llama.cpp at its work.
struct Theirs<'a, 'm> {
    peer: &'a mut Llama<'m>,
    phase: Phase,
    prompt: &'a [u32],
    next: &'a [u32],
}

impl<'a, 'm> Theirs<'a, 'm> {
    /// Reads the prompt, if it is what follows that is timed.
    fn new(peer: &'a mut Llama<'m>, phase: Phase, prompt: &'a [u32], next: &'a [u32]) -> Outcome<Self> {
        peer.clear();
        if phase == Phase::Generate {
            peer.extend(prompt)?;
        }
        Ok(Self { peer, phase, prompt, next })
    }

    /// Seconds of a sample.
    fn time(&mut self) -> Outcome<f64> {
        match self.phase {
            Phase::Prompt => self.peer.clear(),
            Phase::Generate => self.peer.rewind(self.prompt)?,
        }
        let started = Instant::now();
        match self.phase {
            Phase::Prompt => self.peer.extend(self.prompt)?,
            Phase::Generate => self.next.iter().try_for_each(|&token| self.peer.extend(&[token]))?,
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

fn logits(setup: &Setup, model: &Model<'_>, tokens: &[u32]) -> Outcome<Vec<f32>> {
    let (mut loaded, _) = setup.load(model, "all", Room::one(tokens.len()), true)?;
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
                row.case.phase.name().into(),
                row.case.tokens.to_string().into(),
                row.case.depth.to_string().into(),
                row.case.threads.to_string().into(),
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
