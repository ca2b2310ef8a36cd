//! Real models, where `ci/setup` has fetched them: logits and texts of the exact reference, in `golden.json`.

use std::io::Write;
use std::path::PathBuf;

use gllm_kernels_std::backend::CpuBackend;
use gllm_kernels_std::model::{Generator, Model, Options, Sampling};
use serde_json::Value;

const MODELS: [&str; 2] = ["smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m"];

/// A position's largest logits, the logarithm of the sum of all exponentials, and the KL divergence of llama.cpp.
struct Row {
    top: Vec<(usize, f64)>,
    lse: f64,
    kl: f64,
}

/// A prompt, and what the exact reference makes of it.
struct Golden {
    tokens: Vec<u32>,
    rows: Vec<Row>,
    /// The tokens that follow, and by how much each is ahead.
    greedy: Vec<(u32, f64)>,
}

fn golden(model: &str) -> Vec<Golden> {
    let all: Value = serde_json::from_str(include_str!("../data/golden.json")).unwrap();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let prompt = |p: &Value| Golden {
        tokens: numbers(&p["tokens"]).into_iter().map(|t| t as u32).collect(),
        rows: p["top"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row.as_array().unwrap().iter().map(numbers).map(|t| (t[0] as usize, t[1])).collect())
            .zip(numbers(&p["lse"]))
            .zip(numbers(&p["kl_llama_cpp"]))
            .map(|((top, lse), kl)| Row { top, lse, kl })
            .collect(),
        greedy: numbers(&p["greedy"]).into_iter().map(|t| t as u32).zip(numbers(&p["margin"])).collect(),
    };
    all[model].as_array().unwrap().iter().map(prompt).collect()
}

/// Not by a macro, whose output is shown of tests that fail.
fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// The models that are there; what is missing is said.
fn models() -> Vec<(&'static str, Model<'static>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/ci/models");
    let mut all = Vec::new();
    for name in MODELS {
        let path = folder.join(format!("{name}.gguf"));
        if path.exists() {
            all.push((name, Model::open(&path).unwrap()));
        } else {
            say(format_args!("SKIPPED: {} is missing (ci/setup fetches it)", path.display()));
        }
    }
    all
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
