//! Real models, where `ci/setup` has fetched them: logits and texts of the exact reference, in `golden.json`.

use gllm_kernels_std::backend::{Backend, CpuBackend, Outputs};
use gllm_kernels_std::model::{Generator, Options, Sampling, SequenceId};
use serde_json::Value;

use super::golden::{golden, models, say, small, Golden, Row, Small};

/// The small models that `ci/make-model.py --tests` writes have the logits, and the scores of texts, that the exact reference gives.
#[test]
fn small_models_are_the_references() {
    for (name, Small { model, tokens, logits: want, score }) in small() {
        // The reference takes divisors of frequencies by the length of the text, which is within 256 tokens.
        let options = Options { max_tokens: Some(256), ..super::exact() };
        let mut g = Generator::new(CpuBackend::new(2).unwrap(), &model, options).unwrap();
        let got = g.logits(&tokens).unwrap();
        assert_eq!(got.len(), want.len(), "{name}");
        let far = |(want, &got): (&f64, &f32)| (want - f64::from(got)).abs();
        let worst = want.iter().zip(&got).map(far).fold(0.0, f64::max);
        // What the first tokens read from a state is in proportion to products of queries and keys, which may be near 0; then a norm makes rounding errors larger.
        // Latent attention has two products more behind each other, those with matrices of heads: 1.06e-5 on Arm.
        let most = match (model.config().recurrence.is_some(), model.config().latent_attention.is_some()) {
            (true, _) => 5e-5,
            (_, true) => 1.5e-5,
            _ => 1e-5,
        };
        assert!(worst < most, "{name}: off by {worst}");
        assert_eq!(score.is_some(), model.config().classifier.is_some(), "{name}");
        if let Some(want) = score {
            let got = g.rank(&[&tokens], None, &mut |_| ()).unwrap()[0];
            assert!((want - f64::from(got)).abs() < 1e-6, "{name}: {got} instead of {want}");
        }
    }
}

fn log_sum(row: &[f32]) -> f64 {
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(top) + row.iter().map(|&x| f64::from(x - top).exp()).sum::<f64>().ln()
}

#[test]
fn exact_logits_of_real_models() {
    for (name, model) in models() {
        let mut g = Generator::new(CpuBackend::new(2).unwrap(), &model, super::exact()).unwrap();
        let vocabulary = model.config().vocabulary;
        let mut worst = 0f64;
        for (i, golden) in golden(name).iter().enumerate() {
            let logits = g.logits(&golden.tokens).unwrap();
            for (p, (row, Row { top, lse, .. })) in logits.chunks(vocabulary).zip(&golden.rows).enumerate() {
                for &(token, want) in top {
                    let got = f64::from(row[token]);
                    let what = format!("{name}, prompt {i}, position {p}, token {token}");
                    worst = worst.max((got - want).abs());
                    assert!((got - want).abs() <= 2e-3, "{what}: {got} instead of {want}");
                }
                let got = log_sum(row);
                assert!(
                    (got - lse).abs() <= 2e-3,
                    "{name}, prompt {i}, position {p}: sum {got} instead of {lse}"
                );
            }
            greedy(&mut g, golden, 4e-3, &format!("{name}, prompt {i}"));
        }
        say(format_args!("{name}: exact logits differ from the reference by {worst:.6} at most"));
    }
}

/// The text that follows is the reference's, as long as that is ahead by more than `sure` with each token.
fn greedy(g: &mut Generator<CpuBackend>, golden: &Golden, sure: f64, what: &str) {
    let text = g.generate(&golden.tokens, Sampling::greedy()).unwrap();
    for (n, (token, &(want, margin))) in text.zip(&golden.greedy).enumerate() {
        let token = token.unwrap();
        if token != want {
            assert!(margin <= sure, "{what}, token {n}: {token} instead of {want}, ahead by {margin}");
            break;
        }
    }
}

/// A text of some thousand characters, prose and code: its tokens, llama.cpp's mean KL divergence on them, and the usual one of the fast path.
fn long(model: &str) -> (Vec<u32>, [f64; 2]) {
    let all: Value = serde_json::from_str(include_str!("../data/long.json")).unwrap();
    let of = &all["models"][model];
    let tokens = of["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32);
    (tokens.collect(), ["kl_llama_cpp", "kl_usual"].map(|key| of[key].as_f64().unwrap()))
}

/// The mean KL divergence of the fast path from exact logits is at most llama.cpp's, and the usual one, in steps of many tokens, whose products
/// are tiles, and in short ones. Both programs round activations to 8 bits. Whatever sums in another order rounds some numbers the other way, and some layers
/// later half of all roundings are others: on 1100 tokens the mean varies by 3 % with that, and the ratio of two means by 5. A scale or
/// a rounding that is wrong would multiply it.
#[test]
fn real_models_on_the_fast_path() {
    for (name, model) in models() {
        let mut exact = Generator::new(CpuBackend::new(2).unwrap(), &model, super::exact()).unwrap();
        let fast = || Generator::new(CpuBackend::new(2).unwrap(), &model, Options::default()).unwrap();
        // Generators, how many tokens their steps have, and the sums of their divergences.
        let mut all = [(fast(), 60, 0.0), (fast(), 6, 0.0)];
        let (mut theirs, mut count) = (0.0, 0);
        let prompts = golden(name);
        let (long, [mean, usual]) = long(name);
        let texts = prompts.iter().map(|p| (&p.tokens, p.rows.iter().map(|row| row.kl).sum()));
        for (tokens, kl) in texts.chain([(&long, mean * long.len() as f64)]) {
            let sequence = exact.create();
            let sequences = all.each_mut().map(|(g, ..)| g.create());
            for part in tokens.chunks(60) {
                let p: Vec<f64> = next(&mut exact, sequence, part, 60).into_iter().map(f64::from).collect();
                for ((g, step, ours), sequence) in all.iter_mut().zip(sequences) {
                    let q = next(g, sequence, part, *step);
                    let rows = p.chunks(p.len() / part.len()).zip(q.chunks(q.len() / part.len()));
                    *ours += rows.map(|(p, q)| super::divergence(p, q)).sum::<f64>();
                }
            }
            (theirs, count) = (theirs + kl, count + tokens.len());
        }
        let theirs = theirs / count as f64;
        for (g, step, ours) in &mut all {
            let ours = *ours / count as f64;
            let what = format!(
                "{name}, steps of {step} tokens: mean KL divergence {ours:.6}, llama.cpp's {theirs:.6}"
            );
            say(format_args!("{what}"));
            assert!(ours <= theirs && ours <= 1.15 * usual, "{what}, usually {usual}");
            for (i, golden) in prompts.iter().enumerate() {
                greedy(g, golden, 0.5, &format!("{name}, prompt {i}"));
            }
        }
    }
}

/// The logits behind each of some tokens that continue a sequence, in steps of `step` tokens.
fn next(g: &mut Generator<CpuBackend>, sequence: SequenceId, tokens: &[u32], step: usize) -> Vec<f32> {
    let logits = |tokens| {
        let logits = g.extend(sequence, tokens, Outputs::All).unwrap();
        g.backend().read_logits(&logits).unwrap()
    };
    tokens.chunks(step).flat_map(logits).collect()
}
