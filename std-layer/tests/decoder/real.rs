//! Real models, where `ci/setup` has fetched them: logits and texts of the exact reference, in `golden.json`.

use std::path::PathBuf;

use gllm_kernels_std::backend::CpuBackend;
use gllm_kernels_std::model::{Generator, Model, Options, Sampling};
use serde_json::Value;

use super::golden::{golden, models, say, Golden, Row};

/// The small models that `ci/make-model.py --tests` writes have the logits, and the scores of texts, that the exact reference gives.
#[test]
fn small_models_are_the_references() {
    const MODELS: [&str; 14] = [
        "llama",
        "llama-tied",
        "llama-factors",
        "llama-linear",
        "llama-yarn",
        "mistral",
        "qwen2",
        "qwen3",
        "mixtral",
        "qwen2moe",
        "qwen3moe",
        "gemma3",
        "qwen3-ranker",
        "gpt-oss",
    ];
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/ci/models");
    for name in MODELS {
        let path = folder.join(format!("tiny-{name}.gguf"));
        let Ok(truth) = std::fs::read_to_string(path.with_extension("json")) else {
            say(format_args!("SKIPPED: {} is missing (ci/setup writes it)", path.display()));
            continue;
        };
        let truth: Value = serde_json::from_str(&truth).unwrap();
        let numbers =
            |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
        let tokens: Vec<u32> = numbers(&truth["tokens"]).into_iter().map(|t| t as u32).collect();
        let want: Vec<f64> = truth["logits"].as_array().unwrap().iter().flat_map(numbers).collect();
        let model = Model::open(&path).unwrap();
        let mut g = Generator::new(CpuBackend::new(2).unwrap(), &model, super::exact()).unwrap();
        let got = g.logits(&tokens).unwrap();
        assert_eq!(got.len(), want.len(), "{name}");
        let far = |(want, &got): (&f64, &f32)| (want - f64::from(got)).abs();
        let worst = want.iter().zip(&got).map(far).fold(0.0, f64::max);
        assert!(worst < 1e-5, "{name}: off by {worst}");
        assert_eq!(truth["score"].is_number(), model.config().classifier.is_some(), "{name}");
        if let Some(want) = truth["score"].as_f64() {
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

#[test]
fn real_models_on_the_fast_path() {
    for (name, model) in models() {
        let mut exact = Generator::new(CpuBackend::new(2).unwrap(), &model, super::exact()).unwrap();
        let mut fast = Generator::new(CpuBackend::new(2).unwrap(), &model, Options::default()).unwrap();
        let vocabulary = model.config().vocabulary;
        let (mut ours, mut theirs, mut rows) = (0.0, 0.0, 0);
        for (i, golden) in golden(name).iter().enumerate() {
            let p = exact.logits(&golden.tokens).unwrap();
            let q = fast.logits(&golden.tokens).unwrap();
            for ((p, q), Row { kl, .. }) in p.chunks(vocabulary).zip(q.chunks(vocabulary)).zip(&golden.rows) {
                let p: Vec<f64> = p.iter().map(|&x| x.into()).collect();
                (ours, theirs, rows) = (ours + super::divergence(&p, q), theirs + kl, rows + 1);
            }
            greedy(&mut fast, golden, 0.5, &format!("{name}, prompt {i}"));
        }
        let (ours, theirs) = (ours / f64::from(rows), theirs / f64::from(rows));
        say(format_args!("{name}: mean KL divergence {ours:.6}, llama.cpp's {theirs:.6}"));
        assert!(ours <= theirs, "{name}: mean KL divergence {ours}, llama.cpp's {theirs}");
    }
}
