//! Real models, where `ci/setup` has fetched them, and small ones in files.

use gllm_kernels_std::backend::{Backend, CacheOptions, KvType, Outputs};
use gllm_kernels_std::model::{Generator, Options, Sampling};

use super::{backend, golden, options};

/// The small models that `ci/make-model.py --tests` writes have the logits, and the scores of texts, that the exact reference gives: with every scaling of
/// rotation.
#[test]
fn small_models_are_the_references() {
    for (name, golden::Small { model, tokens, logits: want, score }) in golden::small() {
        let Some(backend) = backend() else { return };
        // The reference takes divisors of frequencies by the length of the text, which is within 256 tokens.
        let options = Options { max_tokens: Some(256), ..options() };
        let mut g = match Generator::new(backend, &model, options) {
            // The only one that no shader runs.
            Err(e) if name == "phimoe" => {
                assert!(e.to_string().contains("scored one after the other"), "{e}");
                continue;
            }
            g => g.unwrap(),
        };
        let got = g.logits(&tokens).unwrap();
        assert_eq!(got.len(), want.len(), "{name}");
        let far = |(want, &got): (&f64, &f32)| (want - f64::from(got)).abs();
        let worst = want.iter().zip(&got).map(far).fold(0.0, f64::max);
        assert!(worst < 3e-5, "{name}: off by {worst}");
        if let Some(want) = score {
            let got = g.rank(&[&tokens], None, &mut |_| ()).unwrap()[0];
            assert!((want - f64::from(got)).abs() < 3e-5, "{name}: {got} instead of {want}");
        }
    }
}

/// Real models: logits close to the exact reference's, and its text as far as it is sure.
#[test]
fn real_models() {
    for (name, model) in golden::models() {
        let Some(backend) = backend() else { return };
        // Software is slow.
        let (prompts, tokens) =
            if backend.adapter().is_software() { (1, 6) } else { (usize::MAX, usize::MAX) };
        let cache = CacheOptions { kind: KvType::F16, ..CacheOptions::default() };
        let options = Options { cache, max_tokens: Some(512), ..options() };
        let mut g = Generator::new(backend, &model, options).unwrap();
        let vocabulary = model.config().vocabulary;
        let (mut largest, mut texts) = (0f64, 0);
        for (i, golden) in golden::golden(name).iter().enumerate().take(prompts) {
            let logits = g.logits(&golden.tokens).unwrap();
            for (row, want) in logits.chunks(vocabulary).zip(&golden.rows) {
                for &(token, want) in &want.top {
                    largest = largest.max((f64::from(row[token]) - want).abs());
                }
            }
            let text = g.generate(&golden.tokens, Sampling::greedy()).unwrap();
            for (n, (token, &(want, margin))) in text.zip(&golden.greedy).take(tokens).enumerate() {
                let token = token.unwrap();
                if token != want {
                    assert!(
                        margin <= 0.1,
                        "{name}, prompt {i}, token {n}: {token} instead of {want}, ahead by {margin}"
                    );
                    break;
                }
                texts += 1;
            }
        }
        eprintln!("{name}: logits within {largest:.1e}, {texts} tokens of text");
        // What rounding keys and values to f16 changes.
        assert!(largest <= 0.15, "{name}: {largest}");
    }
}

/// Real models, token by token, with activations that are rounded to 8 bits: logits diverge from the exact reference's by no more than
/// llama.cpp's do.
#[test]
fn rounded_activations() {
    for (name, model) in golden::models() {
        let Some(backend) = backend() else { return };
        let cache = CacheOptions { kind: KvType::F16, ..CacheOptions::default() };
        let mut g =
            Generator::new(backend, &model, Options { cache, max_tokens: Some(512), ..Options::default() })
                .unwrap();
        let golden = &golden::golden(name)[0];
        let sequence = g.create();
        let (mut ours, mut theirs, mut n) = (0.0, 0.0, 0);
        for (token, row) in golden.tokens.iter().zip(&golden.rows).take(24) {
            let logits = g.extend(sequence, &[*token], Outputs::Last).unwrap();
            let logits = g.backend().read_logits(&logits).unwrap();
            let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            // Of the largest logits, and of all others together.
            let pairs: Vec<_> = row
                .top
                .iter()
                .map(|&(token, want)| ((want - row.lse).exp(), f64::from(logits[token]).exp() / sum))
                .collect();
            let rest = pairs.iter().fold((1.0, 1.0), |rest, pair| (rest.0 - pair.0, rest.1 - pair.1));
            let all = pairs.into_iter().chain((rest.0 > 1e-9).then_some(rest));
            ours += all.map(|(p, q): (f64, f64)| p * (p / q).ln()).sum::<f64>();
            theirs += row.kl;
            n += 1;
        }
        let [ours, theirs] = [ours, theirs].map(|sum| sum / f64::from(n));
        eprintln!("{name}: divergence {ours:.1e}, llama.cpp's {theirs:.1e}");
        // Rounding is there, but not more of it.
        assert!(ours > 1e-6 && ours <= theirs, "{name}: {ours} and {theirs}");
    }
}
