//! Encoders on the CPU: small models with random weights, and what they compute in f64.

#[path = "decoder/exact.rs"]
mod exact;
#[path = "encoder/small.rs"]
mod small;

use std::io::Write;
use std::path::PathBuf;

use exact::{exact, generator};
use gllm_kernels_std::backend::{choose_for, BackendError, CacheOptions, KvType, Outputs, Run, Topology};
use gllm_kernels_std::core::{Kernels, QuantFormat};
use gllm_kernels_std::model::{
    Config, Gate, HostWeights, Matrix, Model, NormWeights, Options, Pooling, Sampling,
};
use gllm_testkit::effort;
use small::{tokens, Small, CONTEXT, HIDDEN};

fn rows(matrix: &Matrix<'_>) -> Vec<Vec<f64>> {
    let row = |r: usize| {
        let mut row = vec![0f32; matrix.cols()];
        match matrix.row_range(r, 1).unwrap() {
            Matrix::Quantised(w) => Kernels::<f32>::detect().dequant(w, &mut row).unwrap(),
            Matrix::F32(w) => {
                for (c, x) in row.iter_mut().enumerate() {
                    // SAFETY: elements of the view.
                    *x = unsafe { *w.as_ptr().add(c * w.col_stride()) };
                }
            }
        }
        row.into_iter().map(f64::from).collect()
    };
    (0..matrix.rows()).map(row).collect()
}

fn linear(w: &Matrix<'_>, bias: Option<&Vec<f32>>, xs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let w = rows(w);
    let one = |x: &Vec<f64>| {
        let dot = |(i, row): (usize, &Vec<f64>)| {
            row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias.map_or(0.0, |bias| f64::from(bias[i]))
        };
        w.iter().enumerate().map(dot).collect()
    };
    xs.iter().map(one).collect()
}

fn norm(x: &[f64], of: &NormWeights, eps: f32) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let scale = 1.0 / (variance + f64::from(eps)).sqrt();
    let both = of.weight.iter().zip(&of.bias);
    x.iter().zip(both).map(|(x, (&w, &b))| (x - mean) * scale * f64::from(w) + f64::from(b)).collect()
}

fn activation(gate: Gate, x: f64) -> f64 {
    match gate {
        Gate::Silu => x / (1.0 + (-x).exp()),
        Gate::Gelu => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
        _ => unreachable!("an activation that encoders do not have"),
    }
}

/// A part that the oracle leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Without {
    Nothing,
    Later,
    Biases,
    Rotation,
    Positions,
    TokenType,
}

/// The rows of a text's tokens, in f64, from the formulas in the documentation of [`Config`].
fn oracle(c: &Config, weights: &HostWeights<'_>, tokens: &[u32], without: Without) -> Vec<Vec<f64>> {
    let (dim, group) = (c.head_dim, c.heads / c.kv_heads);
    let table = rows(&weights.embedding);
    let mut xs: Vec<Vec<f64>> = tokens.iter().map(|&t| table[t as usize].clone()).collect();
    let add = |xs: &mut [Vec<f64>], more: &dyn Fn(usize, usize) -> f64| {
        for (p, x) in xs.iter_mut().enumerate() {
            x.iter_mut().enumerate().for_each(|(i, x)| *x += more(p, i));
        }
    };
    if let Some(table) = weights.token_types.as_ref().filter(|_| without != Without::TokenType) {
        let first = rows(table).swap_remove(0);
        add(&mut xs, &|_, i| first[i]);
    }
    if let Some(table) = weights.positions.as_ref().filter(|_| without != Without::Positions) {
        let table = rows(table);
        add(&mut xs, &|p, i| table[p][i]);
    }
    let normed = |xs: &mut Vec<Vec<f64>>, of: &Option<NormWeights>| {
        xs.iter_mut().for_each(|x| *x = norm(x, of.as_ref().unwrap(), c.norm_eps));
    };
    normed(&mut xs, &weights.embedding_norm);
    let rope = &c.ropes[0];
    let rotate = |rows: &mut [Vec<f64>]| {
        for (p, row) in rows.iter_mut().enumerate().filter(|_| without != Without::Rotation) {
            for head in row.chunks_mut(dim) {
                let half = rope.dims / 2;
                for i in 0..half {
                    let angle = p as f64 * rope.theta.powf(-2.0 * i as f64 / rope.dims as f64);
                    let (a, b) = (head[i], head[i + half]);
                    head[i] = a * angle.cos() - b * angle.sin();
                    head[i + half] = a * angle.sin() + b * angle.cos();
                }
            }
        }
    };
    for w in &weights.layers {
        let (mut q, mut k) = (linear(&w.q, w.q_bias.as_ref(), &xs), linear(&w.k, w.k_bias.as_ref(), &xs));
        let v = linear(&w.v, w.v_bias.as_ref(), &xs);
        rotate(&mut q);
        rotate(&mut k);
        let mixed = |(p, q): (usize, &Vec<f64>)| {
            let end = if without == Without::Later { p + 1 } else { k.len() };
            let of_head = |(head, q): (usize, &[f64])| {
                let at = head / group * dim;
                let slope = c.alibi_slope(head).filter(|_| without != Without::Biases).map_or(0.0, f64::from);
                let score = |(i, k): (usize, &Vec<f64>)| {
                    let dot: f64 = q.iter().zip(&k[at..at + dim]).map(|(q, k)| q * k).sum();
                    (dot * f64::from(c.attention_scale) - slope * p.abs_diff(i) as f64).exp()
                };
                let scores: Vec<f64> = k[..end].iter().enumerate().map(score).collect();
                let sum: f64 = scores.iter().sum();
                let value = |i: usize| scores.iter().zip(&v).map(|(s, v)| s * v[at + i]).sum::<f64>() / sum;
                (0..dim).map(value).collect::<Vec<_>>()
            };
            q.chunks(dim).enumerate().flat_map(of_head).collect()
        };
        let mixed: Vec<Vec<f64>> = q.iter().enumerate().map(mixed).collect();
        let a = linear(&w.output, w.output_bias.as_ref(), &mixed);
        add(&mut xs, &|p, i| a[p][i]);
        normed(&mut xs, &w.attention_sum_norm);
        let network = w.feed_forward.as_ref().unwrap();
        let mut between = linear(&network.up, w.up_bias.as_ref(), &xs);
        let gates = network.gate.map(|gate| linear(&gate, None, &xs));
        for (p, row) in between.iter_mut().enumerate() {
            for (i, x) in row.iter_mut().enumerate() {
                *x = gates
                    .as_ref()
                    .map_or_else(|| activation(c.gate, *x), |g| activation(c.gate, g[p][i]) * *x);
            }
        }
        let f = linear(&network.down, w.down_bias.as_ref(), &between);
        add(&mut xs, &|p, i| f[p][i]);
        normed(&mut xs, &w.ffn_sum_norm);
    }
    xs
}

fn pooled(of: &[Vec<f64>], pooling: Pooling) -> Vec<f64> {
    let own = match pooling {
        Pooling::First => &of[..1],
        Pooling::Last => &of[of.len() - 1..],
        _ => of,
    };
    let sum: Vec<f64> = (0..HIDDEN).map(|i| own.iter().map(|x| x[i]).sum()).collect();
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    sum.into_iter().map(|x| x / length).collect()
}

fn distance(want: &[f64], got: &[f32]) -> f64 {
    want.iter().zip(got).map(|(x, &y)| (x - f64::from(y)).powi(2)).sum::<f64>().sqrt()
}

const POOLINGS: [Pooling; 3] = [Pooling::Mean, Pooling::First, Pooling::Last];

/// All small models; on an emulator, which is slow, each architecture and each format in one of them.
fn models() -> impl Iterator<Item = Small> {
    Small::all().step_by(if effort() == 1 { 4 } else { 1 })
}

#[test]
fn exact_embeddings_are_the_oracles() {
    for small in models() {
        let model = small.open();
        let text = tokens(40);
        let want = oracle(model.config(), &model.weights().unwrap(), &text, Without::Nothing);
        for pooling in POOLINGS {
            let got = generator(&model, 2, exact()).embed(&[&text], pooling).unwrap();
            let error = distance(&pooled(&want, pooling), &got[0]);
            assert!(error < 3e-6, "{small:?}, {pooling:?}: {error}");
        }
    }
}

/// With activations in 8 bits and a cache of any type, rows are turned a little.
#[test]
fn the_fast_path_is_close() {
    for small in models() {
        let model = small.open();
        let text = tokens(90);
        let want = oracle(model.config(), &model.weights().unwrap(), &text, Without::Nothing);
        for kind in [KvType::F16, KvType::Bf16, KvType::F32, KvType::Q8_0] {
            let cache = CacheOptions { kind, ..CacheOptions::default() };
            let mut g = generator(&model, 2, Options { cache, ..Options::default() });
            for pooling in POOLINGS {
                let got = g.embed(&[&text], pooling).unwrap();
                let error = distance(&pooled(&want, pooling), &got[0]);
                assert!(error < 3e-2, "{small:?}, {pooling:?}, {kind:?}: {error}");
            }
        }
    }
}

/// Each part changes what comes out by far more than the bounds of the tests.
#[test]
fn every_part_counts() {
    for (small, parts) in [
        (Small::BERT, &[Without::Later, Without::Positions, Without::TokenType][..]),
        (Small::NOMIC, &[Without::Later, Without::Rotation, Without::TokenType]),
        (Small::JINA, &[Without::Later, Without::Biases, Without::TokenType]),
    ] {
        let model = small.open();
        let text = tokens(40);
        for &part in parts {
            let of = |without| oracle(model.config(), &model.weights().unwrap(), &text, without);
            for pooling in [Pooling::Mean, Pooling::First] {
                let rest: Vec<f32> = pooled(&of(part), pooling).into_iter().map(|x| x as f32).collect();
                let change = distance(&pooled(&of(Without::Nothing), pooling), &rest);
                assert!(change > 0.1, "{small:?} without {part:?}, {pooling:?}: {change}");
            }
        }
    }
}

/// Several texts in a step have the bits that each has alone, whatever threads and pages there are. The longest take several pieces of attention.
#[test]
fn texts_side_by_side() {
    let bits = |rows: &[Vec<f32>]| rows.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
    // On an emulator each pooling has one model, and texts are side by side in one way.
    let all_pairs = effort() > 1;
    let ways = [(1, 600, 64), (2, 1000, 64), (4, 2000, 128), (3, 600, 16)];
    let models = [Small::BERT, Small::NOMIC, Small { format: Some(QuantFormat::Q8_0), ..Small::JINA }];
    for (i, small) in models.into_iter().enumerate() {
        let model = small.open();
        let all = tokens(560);
        let texts = [&all[..7], &all[3..4], &all[..300], &all[5..45], &all[2..560], &all[100..117]];
        for (j, pooling) in POOLINGS.into_iter().enumerate() {
            if i != j && !all_pairs {
                continue;
            }
            let mut alone = generator(&model, 1, Options { chunk: Some(600), ..exact() });
            let want: Vec<_> =
                texts.iter().map(|text| alone.embed(&[text], pooling).unwrap().remove(0)).collect();
            for (threads, chunk, page_tokens) in ways.into_iter().skip(if all_pairs { 0 } else { 3 }) {
                let cache = CacheOptions { page_tokens, ..exact().cache };
                let mut g = generator(&model, threads, Options { chunk: Some(chunk), cache, ..exact() });
                let got = g.embed(&texts, pooling).unwrap();
                let what = format!("{small:?}, {pooling:?}: {threads} threads, steps of {chunk}");
                assert_eq!(bits(&got), bits(&want), "{what}");
                assert_eq!(g.pages().free(0), 2048usize.div_ceil(page_tokens), "{what}");
            }
        }
    }
}

/// The slopes of the paper, for heads that are a power of two and others.
#[test]
fn slopes_of_biases() {
    let slopes = |heads| {
        let model = Small { heads, ..Small::JINA }.open();
        (0..heads).map(|head| model.config().alibi_slope(head).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(slopes(1), [1.0 / 256.0]);
    assert_eq!(slopes(4), [0.25, 0.0625, 0.015625, 0.00390625]);
    assert_eq!(slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]);
    let twelve = slopes(12);
    assert_eq!(twelve[..8], [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]);
    assert_eq!(twelve[8], 0.5f32.sqrt());
    assert!(Small::BERT.open().config().alibi_slope(0).is_none());
}

/// What encoders cannot do is an error.
#[test]
fn what_encoders_cannot_do() {
    for small in [Small::BERT, Small::NOMIC, Small::JINA] {
        let model = small.open();
        let mut g = generator(&model, 2, Options { chunk: Some(700), ..exact() });
        let text = tokens(9);
        let refused = |result: Result<(), BackendError>, of: &str| match result {
            Err(BackendError::Unsupported(why) | BackendError::Tokens(why)) => {
                assert!(why.contains(of), "{why}");
            }
            other => panic!("{other:?}"),
        };
        let logits = "logits of an encoder";
        refused(g.logits(&text).map(drop), logits);
        refused(g.log_probabilities(&text).map(drop), logits);
        refused(g.generate(&text, Sampling::greedy()).map(drop), logits);
        refused(g.read_prompt(&text), logits);
        refused(g.rank(&[&text], None, &mut |_| ()).map(drop), "no classifier");
        refused(g.rank(&[&text], Some([1, 2]), &mut |_| ()).map(drop), "0 logits");
        let sequence = g.create();
        for outputs in [Outputs::None, Outputs::Last] {
            let topology = Topology { runs: vec![Run { sequence, tokens: 9, outputs }] };
            refused(g.forward(&text, &topology).map(drop), logits);
        }
        g.remove(sequence).unwrap();
        // There are embeddings for so many positions; rotations and biases know no end.
        let long = tokens(CONTEXT + 1);
        let row = g.embed(&[&long], Pooling::Mean);
        match small.architecture {
            "bert" => refused(row.map(drop), "601 tokens, but the model has embeddings for 600 positions"),
            _ => assert!(row.is_ok(), "{row:?}"),
        }
        assert_eq!(g.pages().free(0), 2048 / 64);
    }
}

/// The small models that `ci/make-model.py --tests` writes have the exact reference's embeddings, with the pooling that their files name.
#[test]
fn small_models_in_files() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/ci/models");
    for name in [
        "bert",
        "nomic-bert",
        "jina-bert-v2",
        "jina-bert-v2-gate",
        "gemma-embedding",
        "modern-bert",
        "modern-bert-silu",
    ] {
        let path = folder.join(format!("tiny-{name}.gguf"));
        let Ok(truth) = std::fs::read_to_string(path.with_extension("json")) else {
            // Not by a macro, whose output is shown of tests that fail.
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: {} is missing (ci/setup writes it)", path.display());
            continue;
        };
        let truth: serde_json::Value = serde_json::from_str(&truth).unwrap();
        let numbers = |key: &str| -> Vec<f64> {
            truth[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let text: Vec<u32> = numbers("tokens").into_iter().map(|t| t as u32).collect();
        let model = Model::open(&path).unwrap();
        assert!(model.unused().is_empty(), "{name}: {:?}", model.unused());
        let pooling = model.config().pooling.unwrap();
        for (options, bound) in [(exact(), 3e-6), (Options::default(), 3e-2)] {
            let got = generator(&model, 2, options).embed(&[&text], pooling).unwrap();
            let error = distance(&numbers("embedding"), &got[0]);
            assert!(error < bound, "{name}: {error}");
        }
    }
}

/// No kind of backend lacks a part of an encoder, nor if it had windows.
#[test]
fn no_kind_lacks_a_part() {
    for small in [Small::BERT, Small::NOMIC, Small::JINA] {
        let whole = small.open().config().clone();
        let mut windowed = whole.clone();
        windowed.layer[1].window = Some(8);
        for config in [whole, windowed] {
            for (kind, why) in choose_for(&config, 1).unwrap().passed_over {
                assert!(!matches!(why, BackendError::Unsupported(_)), "{kind:?}: {why}");
            }
        }
    }
}
