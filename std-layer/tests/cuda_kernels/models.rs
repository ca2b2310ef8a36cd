//! Whole models, compared with the CPU's exact results.

use std::path::Path;

use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, CudaBackend, ForwardConfig, KvType, Outputs, Run,
    Topology,
};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::model::{Config, Generator, HostWeights, Model, Options, Pooling, Sampling};

use super::{brief, context, on_a_gpu, some_of, text, trial, Outcome, Trials};

// What these models compute in f64 is the business of the CPU's tests.
#[allow(dead_code)]
#[path = "../decoder/tiny.rs"]
pub mod tiny;
use tiny::Tiny;

#[path = "mixtures.rs"]
mod mixtures;
use mixtures::{many_rows_of_an_expert, mixtures, parts_of_gpt_oss, routers_that_overflow};

/// Any tokens, no two stretches alike.
fn tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * i + 7 * i + i / 11) % vocabulary) as u32).collect()
}

pub fn exact() -> Options {
    let forward = ForwardConfig { precision: Precision::Exact, ..ForwardConfig::default() };
    let cache = CacheOptions { kind: KvType::F32, sequences: 8, ..CacheOptions::default() };
    Options { forward, cache, max_tokens: Some(1024), ..Options::default() }
}

pub fn on_cpu(model: &Model<'_>) -> Result<Generator<CpuBackend>, String> {
    Generator::new(CpuBackend::new(2).map_err(text)?, model, exact()).map_err(text)
}

pub fn on_gpu(model: &Model<'_>, options: Options) -> Result<Generator<CudaBackend>, String> {
    Generator::new(CudaBackend::with_context(context()).map_err(text)?, model, options).map_err(text)
}

/// `Err` if a logit is off by more than 3e-5 of the largest one.
pub fn same(what: &str, want: &[f32], got: &[f32]) -> Outcome {
    let scale = want.iter().fold(1f32, |m, x| m.max(x.abs()));
    if want.len() != got.len() {
        return Err(format!("{what}: {} logits instead of {}", got.len(), want.len()));
    }
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        // Not `far > allowed`: NaN is never near.
        let near = (want - got).abs() <= 3e-5 * scale;
        if !near {
            return Err(format!("{what}: logit {i} is {got} instead of {want}, the largest is {scale}"));
        }
    }
    Ok(())
}

/// KL divergence of `q` from `p`, the mean of all rows of logits.
pub fn divergence(p: &[f32], q: &[f32], vocabulary: usize) -> f64 {
    let log_sum = |x: &[f32]| x.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
    let row = |(p, q): (&[f32], &[f32])| {
        let (lp, lq) = (log_sum(p), log_sum(q));
        let one = |(&p, &q): (&f32, &f32)| {
            let (p, q) = (f64::from(p) - lp, f64::from(q) - lq);
            p.exp() * (p - q)
        };
        p.iter().zip(q).map(one).sum::<f64>()
    };
    p.chunks(vocabulary).zip(q.chunks(vocabulary)).map(row).sum::<f64>() / (p.len() / vocabulary) as f64
}

/// All of `choices` on a GPU. Emulators are slow: there, the one whose turn it is.
pub(super) fn in_turn<T: Copy, const N: usize>(choices: [T; N], turn: usize) -> impl Iterator<Item = T> {
    let (skip, take) = if on_a_gpu() { (0, N) } else { (turn % N, 1) };
    choices.into_iter().skip(skip).take(take)
}

fn exact_logits(tiny: Tiny, turn: usize) -> Outcome {
    let model = tiny.open();
    let tokens = tokens(40, tiny.vocabulary);
    let want = on_cpu(&model)?.logits(&tokens).map_err(text)?;
    for chunk in in_turn([512, 7], turn) {
        let got = on_gpu(&model, Options { chunk: Some(chunk), ..exact() })?.logits(&tokens).map_err(text)?;
        same(&format!("{tiny:?}, chunks of {chunk}"), &want, &got)?;
    }
    Ok(())
}

/// Where two experts score nearly alike, rounding decides: all are used then, or which ones are is settled.
fn settled(tiny: Tiny) -> Tiny {
    if tiny.router_scale == 0.0 {
        tiny
    } else {
        Tiny { experts: tiny.experts.map(|(count, _)| (count, count)), ..tiny }
    }
}

fn fast_path(tiny: Tiny, turn: usize) -> Outcome {
    let model = tiny.open();
    let tokens = tokens(70, tiny.vocabulary);
    let want = on_cpu(&model)?.logits(&tokens).map_err(text)?;
    for (kind, chunk) in in_turn([(KvType::F16, 512), (KvType::Bf16, 9), (KvType::F32, 64)], turn) {
        let cache = CacheOptions { kind, ..CacheOptions::default() };
        let options = Options { cache, chunk: Some(chunk), max_tokens: Some(256), ..Options::default() };
        let got = on_gpu(&model, options)?.logits(&tokens).map_err(text)?;
        let mean = divergence(&want, &got, tiny.logits());
        // Not `mean >= 4e-3`: NaN is never near.
        let near = mean < 4e-3;
        if !near {
            return Err(format!("{tiny:?}, {kind:?}, chunks of {chunk}: KL divergence {mean}"));
        }
    }
    Ok(())
}

/// Probabilities of a text's tokens are those of its logits, whatever steps it takes; rows and tokens that do not exist are refused.
fn log_probabilities(name: &'static str) -> Outcome {
    let tiny = Tiny { layers: 1, ..Tiny::new(name, Some(QuantFormat::Q8_0)) };
    let model = tiny.open();
    let tokens = tokens(40, tiny.vocabulary);
    let mut g = on_gpu(&model, Options { chunk: Some(13), ..exact() })?;
    let logits = g.logits(&tokens).map_err(text)?;
    let got = g.log_probabilities(&tokens).map_err(text)?;
    if got.len() != tokens.len() - 1 {
        return Err(format!("{} probabilities of {} tokens", got.len(), tokens.len()));
    }
    for (i, (row, &got)) in logits.chunks(tiny.vocabulary).zip(&got).enumerate() {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        let want = f64::from(row[tokens[i + 1] as usize]) - sum.ln();
        // Not `far > 1e-5`: NaN is never near.
        let near = (f64::from(got) - want).abs() <= 1e-5;
        if !near {
            return Err(format!("{tiny:?}: token {} has {got} instead of {want}", i + 1));
        }
    }
    let sequence = g.create();
    let logits = g.extend(sequence, &tokens[..3], Outputs::All).map_err(text)?;
    let last = tiny.vocabulary as u32 - 1;
    let of = |chosen: &[(usize, u32)]| g.backend().log_probabilities(&logits, chosen);
    assert_eq!(of(&[]), Ok(Vec::new()));
    assert_eq!(of(&[(2, last), (0, 0), (2, last)]).map_err(text)?.len(), 3);
    for (row, token) in [(3, 0), (0, last + 1)] {
        assert!(matches!(of(&[(0, 0), (row, token)]), Err(BackendError::Tokens(_))));
    }
    Ok(())
}

/// Logits of labels, and scores of texts that share their beginning.
fn scores(tiny: Tiny) -> Outcome {
    exact_logits(tiny, 0)?;
    let model = tiny.open();
    let tokens = tokens(50, tiny.vocabulary);
    let texts = [20, 30, 21, 50].map(|end| [&tokens[..19], &tokens[end - 1..end], &tokens[19..end]].concat());
    let texts = [0, 1, 2, 3].map(|i| &texts[i][..]);
    let want = on_cpu(&model)?.rank(&texts, None, &mut |_| ()).map_err(text)?;
    for (chunk, sequences) in [(512, 8), (30, 3)] {
        let options =
            Options { chunk: Some(chunk), cache: CacheOptions { sequences, ..exact().cache }, ..exact() };
        let got = on_gpu(&model, options)?.rank(&texts, None, &mut |_| ()).map_err(text)?;
        same(&format!("{tiny:?}, {sequences} sequences"), &want, &got)?;
    }
    Ok(())
}

/// Heads of more than 256 elements: as many as Gemma 4 has in layers without windows; those of layers with windows half as wide; and all of queries with one of keys, more
/// than a block has.
pub(super) fn wide_heads() -> [Tiny; 3] {
    let of = |head_dim, name, format| Tiny { head_dim, layers: 2, ..Tiny::new(name, format) };
    [
        of(512, "llama", None),
        of(160, "gemma4", None),
        Tiny { heads: 17, kv_heads: 1, ..of(264, "qwen3", Some(QuantFormat::F16)) },
    ]
}

/// Rows of texts are those of the CPU, beside each other, one by one, and between steps that generate.
fn embeddings(tiny: Tiny) -> Outcome {
    let model = tiny.open();
    let all = tokens(60, tiny.vocabulary);
    let texts = [&all[..17], &all[5..6], &all[20..60]];
    let (mut cpu, mut gpu) = (on_cpu(&model)?, on_gpu(&model, Options { chunk: Some(50), ..exact() })?);
    let mut fast = on_gpu(&model, Options { max_tokens: Some(256), ..Options::default() })?;
    for pooling in [Pooling::Mean, Pooling::First, Pooling::Last] {
        let want = cpu.embed(&texts, pooling).map_err(text)?;
        let got = gpu.embed(&texts, pooling).map_err(text)?;
        let near = fast.embed(&texts, pooling).map_err(text)?;
        for (i, of) in texts.iter().enumerate() {
            let what = format!("{tiny:?}, {pooling:?}, text {i}");
            same(&what, &want[i], &got[i])?;
            let alone = gpu.embed(&[of], pooling).map_err(text)?;
            if alone[0].iter().zip(&got[i]).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("{what}: the row depends on other texts"));
            }
            let alike: f32 = want[i].iter().zip(&near[i]).map(|(a, b)| a * b).sum();
            // Not `alike <= 0.998`: NaN is never near.
            let near = alike > 0.998;
            if !near {
                return Err(format!("{what}: {alike} alike on the fast path"));
            }
        }
        if !model.config().causal {
            continue;
        }
        let next = |tokens: &mut dyn Iterator<Item = Result<u32, BackendError>>| {
            tokens.take(3).collect::<Result<Vec<u32>, _>>().map_err(text)
        };
        let want = next(&mut cpu.generate(&all[..9], Sampling::greedy()).map_err(text)?)?;
        let got = next(&mut gpu.generate(&all[..9], Sampling::greedy()).map_err(text)?)?;
        if want != got {
            return Err(format!("{tiny:?}: {got:?} instead of {want:?} behind embeddings"));
        }
    }
    Ok(())
}

/// A cache of 8 bits gives what the CPU's gives: codes are the same, but where a number lies between two.
fn cache_of_codes(tiny: Tiny) -> Outcome {
    let model = tiny.open();
    let tokens = tokens(70, tiny.vocabulary);
    let cache = CacheOptions { kind: KvType::Q8_0, ..CacheOptions::default() };
    let options = Options { cache, chunk: Some(40), max_tokens: Some(256), ..exact() };
    let cpu =
        Generator::new(CpuBackend::new(2).map_err(text)?, &model, options).map_err(text)?.logits(&tokens);
    let want = cpu.map_err(text)?;
    let got = on_gpu(&model, options)?.logits(&tokens).map_err(text)?;
    // On the average: where a number lies between two codes, few logits differ, but not by little.
    let far = |other: &[f32]| {
        let far: f32 = want.iter().zip(other).map(|(a, b)| (a - b).abs()).sum();
        far / want.len() as f32
    };
    // Numbers in f32 are further away, or this says nothing. Not `>`: NaN is never near.
    let (codes, numbers) = (far(&got), far(&on_cpu(&model)?.logits(&tokens).map_err(text)?));
    let near = 20.0 * codes < numbers;
    if !near {
        return Err(format!("{tiny:?}: off by {codes:e}, a cache in f32 by {numbers:e}"));
    }
    Ok(())
}

/// Tokens that are taken are the same, chosen in every way.
fn same_tokens(name: &'static str) -> Outcome {
    let tiny = Tiny::new(name, Some(QuantFormat::Q4_1));
    let model = tiny.open();
    let prompt = tokens(20, tiny.vocabulary);
    let ways = [
        Sampling::greedy(),
        Sampling { seed: 3, ..Sampling::default() },
        Sampling { temperature: 0.7, top_k: 9, top_p: 0.9, min_p: 0.01, seed: 5, ..Sampling::default() },
        Sampling { repetition: 1.3, frequency: 0.2, presence: 0.4, last_n: 8, ..Sampling::default() },
        Sampling { logit_bias: vec![(5, 30.0), (9, f32::NEG_INFINITY)], ..Sampling::greedy() },
    ];
    let mut cpu = on_cpu(&model)?;
    let mut gpu = on_gpu(&model, exact())?;
    for way in &ways {
        let all = |tokens: &mut dyn Iterator<Item = Result<u32, BackendError>>| {
            tokens.take(8).collect::<Result<Vec<u32>, _>>().map_err(text)
        };
        let want = all(&mut cpu.generate(&prompt, way.clone()).map_err(text)?)?;
        let got = all(&mut gpu.generate(&prompt, way.clone()).map_err(text)?)?;
        if want != got {
            return Err(format!("{name}, {way:?}: {got:?} instead of {want:?}"));
        }
    }
    Ok(())
}

/// Sequences that join, leave and share what they begin with have the logits that each has alone.
fn side_by_side(name: &'static str) -> Outcome {
    let tiny = Tiny::new(name, Some(QuantFormat::Q8_0));
    let model = tiny.open();
    let all = tokens(90, tiny.vocabulary);
    let other: Vec<u32> = all.iter().map(|t| (t + 13) % 97).collect();
    let (mut g, mut cpu) = (on_gpu(&model, exact())?, on_cpu(&model)?);
    let (a, b) = (g.create(), g.create());
    let mut step = |g: &mut Generator<CudaBackend>, runs: &[(_, &[u32])], whole: &[&[u32]]| {
        let tokens: Vec<u32> = runs.iter().flat_map(|r| r.1).copied().collect();
        let run = |r: &(_, &[u32])| Run { sequence: r.0, tokens: r.1.len(), outputs: Outputs::Last };
        let topology = Topology { runs: runs.iter().map(run).collect() };
        let logits = g.forward(&tokens, &topology).map_err(text)?;
        let got = g.backend().read_logits(&logits).map_err(text)?;
        let mut want = Vec::new();
        for tokens in whole {
            let all = cpu.logits(tokens).map_err(text)?;
            want.extend_from_slice(&all[all.len() - tiny.vocabulary..]);
        }
        same(&format!("{name}, {} tokens", tokens.len()), &want, &got)
    };
    step(&mut g, &[(a, &all[..40])], &[&all[..40]])?;
    step(&mut g, &[(b, &other[..50]), (a, &all[40..41])], &[&other[..50], &all[..41]])?;
    let c = g.fork(b, 50).map_err(text)?;
    let of_c = |n: usize| [&other[..50], &all[50..n]].concat();
    let runs: [(_, &[u32]); 3] = [(c, &all[50..55]), (b, &other[50..51]), (a, &all[41..43])];
    step(&mut g, &runs, &[&of_c(55), &other[..51], &all[..43]])?;
    // Steps of single tokens: recorded, started as recorded, and with a sequence less.
    for i in 0..3 {
        let runs: [(_, &[u32]); 3] =
            [(c, &all[55 + i..56 + i]), (b, &other[51 + i..52 + i]), (a, &all[43 + i..44 + i])];
        step(&mut g, &runs, &[&of_c(56 + i), &other[..52 + i], &all[..44 + i]])?;
    }
    g.remove(b).map_err(text)?;
    step(&mut g, &[(a, &all[46..47]), (c, &all[58..59])], &[&all[..47], &of_c(59)])
}

/// The logits behind `tokens` of a model, which may have another configuration than its file's.
fn run<B: Backend>(
    backend: &B,
    weights: HostWeights<'_>,
    config: &Config,
    tokens: &[u32],
) -> Result<Vec<f32>, BackendError> {
    let Options { forward, cache, .. } = exact();
    let weights = backend.upload_generator_weights(config, &weights, &mut |_| ())?;
    let mut kv = backend.alloc_kv_cache(256, config, &cache)?;
    let sequence = backend.create_sequence(&mut kv);
    let topology = Topology { runs: vec![Run { sequence, tokens: tokens.len(), outputs: Outputs::All }] };
    let logits = backend.generator_forward_gpu_pure(tokens, &topology, &weights, &mut kv, &forward)?;
    backend.read_logits(&logits)
}

/// Scores of attention and logits are capped, rotations take a part of a head, embeddings have a factor.
fn other_configurations() -> Outcome {
    let model = Tiny::new("llama", Some(QuantFormat::Q8_0)).open();
    let mut config = model.config().clone();
    config.attention_softcap = Some(0.7);
    config.logit_softcap = Some(1.5);
    config.embedding_scale = 3.0;
    config.ropes[0].dims = 16;
    let tokens = tokens(30, config.vocabulary);
    let weights = || model.weights().map_err(text);
    let want = run(&CpuBackend::new(1).map_err(text)?, weights()?, &config, &tokens).map_err(text)?;
    let gpu = CudaBackend::with_context(context()).map_err(text)?;
    let got = run(&gpu, weights()?, &config, &tokens).map_err(text)?;
    same("capped", &want, &got)?;
    let plain = run(&gpu, weights()?, model.config(), &tokens).map_err(text)?;
    if same("", &plain, &got).is_ok() {
        return Err("the configuration changes nothing".to_owned());
    }
    Ok(())
}

/// More tokens than a piece of attention, large heads, more columns than a warp takes at once; on a GPU more of everything.
fn large_shapes(like: Tiny, head_dim: usize) -> Outcome {
    let (hidden, intermediate, n) = if on_a_gpu() { (2048, 5632, 1500) } else { (256, 320, 300) };
    let tiny = Tiny {
        hidden,
        intermediate,
        heads: hidden / 128,
        kv_heads: (hidden / 256).max(1),
        head_dim,
        layers: 2,
        vocabulary: 1003,
        ..like
    };
    let model = tiny.open();
    let tokens = tokens(n, tiny.vocabulary);
    let options = |options: Options| Options { max_tokens: Some(2048), ..options };
    let cpu = Generator::new(CpuBackend::new(0).map_err(text)?, &model, options(exact()));
    let want = cpu.map_err(text)?.logits(&tokens).map_err(text)?;
    let mut gpu = on_gpu(&model, options(exact()))?;
    let sequence = gpu.create();
    // The last rows alone: a prompt, and then single tokens.
    let (prompt, rest) = tokens.split_at(n - 3);
    let mut got = Vec::new();
    for tokens in [prompt, &rest[..1], &rest[1..2], &rest[2..]] {
        let logits = gpu.extend(sequence, tokens, Outputs::Last).map_err(text)?;
        got.extend(gpu.backend().read_logits(&logits).map_err(text)?);
    }
    same("exact", &want[(n - 4) * tiny.vocabulary..], &got)?;
    let mut fast = on_gpu(&model, options(Options::default()))?;
    let sequence = fast.create();
    // The last token by kernels for single ones.
    let (prompt, last) = tokens.split_at(n - 1);
    fast.extend(sequence, prompt, Outputs::None).map_err(text)?;
    let logits = fast.extend(sequence, last, Outputs::Last).map_err(text)?;
    let got = fast.backend().read_logits(&logits).map_err(text)?;
    let far = divergence(&want[(n - 1) * tiny.vocabulary..], &got, tiny.vocabulary);
    let near = far < 4e-3;
    if !near {
        return Err(format!("KL divergence {far}"));
    }
    Ok(())
}

const REAL: &str = "smollm2-135m-instruct-q4_1.gguf";

/// The first tokens that a real model goes on with are those of the CPU's exact results.
fn real_model(path: &Path) -> Outcome {
    let n = if on_a_gpu() { 8 } else { 3 };
    let model = Model::open(path).map_err(text)?;
    let prompt = [504, 6330, 282, 4649, 314];
    let mut cpu = on_cpu(&model)?;
    let want: Result<Vec<u32>, _> =
        cpu.generate(&prompt, Sampling::greedy()).map_err(text)?.take(n).collect();
    let options = Options { max_tokens: Some(64), ..Options::default() };
    let mut gpu = on_gpu(&model, options)?;
    let got: Result<Vec<u32>, _> = gpu.generate(&prompt, Sampling::greedy()).map_err(text)?.take(n).collect();
    let (want, got) = (want.map_err(text)?, got.map_err(text)?);
    if want != got {
        return Err(format!("{got:?} instead of {want:?}"));
    }
    Ok(())
}

pub fn trials(trials: &mut Trials) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ci/models").join(REAL);
    let missing = !path.exists();
    if missing {
        eprintln!("skipped: {} is not there; `ci/setup` fetches it", path.display());
    }
    let real = trial("model_real_smollm2", move || real_model(&path));
    trials.push(real.with_ignored_flag(missing));
    for (turn, tiny) in Tiny::all().into_iter().enumerate() {
        let format = tiny.format.map_or("f32", QuantFormat::name);
        let name = format!("{}_{format}_heads_of_{}", tiny.architecture, tiny.head_dim);
        // Architectures and formats have nothing to do with each other: where models take seconds, each of both is taken once. The tests
        // of the CPU's models take all pairs.
        if on_a_gpu() || tiny.architecture == "llama" || format == "q8_0" || tiny.head_dim != 32 {
            trials.push(trial(format!("model_exact_{name}"), move || exact_logits(tiny, turn)));
            // Sizes of heads are the same sources' matter on both platforms.
            if !brief() || tiny.head_dim == 32 {
                trials.push(trial(format!("model_fast_{name}"), move || fast_path(tiny, turn)));
            }
        }
    }
    // There are no kernels for several residual streams: such models are refused.
    let unusual = Tiny::unusual().filter(|tiny| tiny.architecture != "gemma3n");
    for (turn, tiny) in unusual.chain(Tiny::hybrids()).enumerate() {
        // Of Gemma 4 there are three, of Falcon-H1 two.
        let kind = match (tiny.per_layer > 0, tiny.experts) {
            (true, _) => "_with_per_layer",
            (false, Some(_)) if tiny.architecture == "gemma4" => "_with_experts",
            _ if tiny.plain => "_without_norms",
            _ => "",
        };
        let name = format!("{}{kind}", tiny.architecture);
        trials.push(trial(format!("model_exact_{name}"), move || exact_logits(tiny, turn)));
        if on_a_gpu() {
            let settled = settled(tiny);
            trials.push(trial(format!("model_fast_{name}"), move || fast_path(settled, turn)));
        }
    }
    // Emulators are slow, and each format and architecture has trials of its own.
    for tiny in Tiny::rankers().take(if on_a_gpu() { usize::MAX } else { 1 }) {
        let format = tiny.format.map_or("f32", QuantFormat::name);
        let name = format!("model_scores_{}_{format}_{}_labels", tiny.architecture, tiny.labels);
        trials.push(trial(name, move || scores(tiny)));
    }
    trials.push(trial("model_parts_of_gpt-oss", parts_of_gpt_oss));
    for (turn, tiny) in mixtures().enumerate() {
        let (name, format) = (tiny.architecture, tiny.format.map_or("f32", QuantFormat::name));
        let (count, used) = tiny.experts.unwrap_or_default();
        let best = if tiny.counted == 1 { "_best_of_groups" } else { "" };
        let name = format!("{name}_{format}_{used}_of_{count}{best}_heads_of_{}", tiny.head_dim);
        trials.push(trial(format!("model_exact_{name}"), move || exact_logits(tiny, turn)));
        let settled = settled(tiny);
        if count < 10 {
            trials.push(trial(format!("model_fast_{name}"), move || fast_path(settled, turn)));
        }
    }
    for format in some_of([None, Some(QuantFormat::F16), Some(QuantFormat::Q4_1)], 3) {
        let name = format.map_or("f32", QuantFormat::name);
        trials.push(trial(format!("model_expert_of_many_{name}"), move || many_rows_of_an_expert(format)));
    }
    trials.push(trial("model_routers_that_overflow", routers_that_overflow));
    let embedders = [("gemma3", None), ("qwen2moe", None), ("qwen3", Some(QuantFormat::Q8_0))];
    for (name, format) in embedders.into_iter().take(if on_a_gpu() { usize::MAX } else { 1 }) {
        let like = Tiny::new(name, format);
        // All experts, as which ones are chosen is a matter of rounding on the fast path.
        let tiny = Tiny { experts: like.experts.map(|(count, _)| (count, count)), layers: 2, ..like };
        trials.push(trial(format!("model_embeddings_{name}"), move || embeddings(tiny)));
    }
    for tiny in Tiny::encoders() {
        let format = tiny.format.map_or("f32", QuantFormat::name);
        let name = format!("model_embeddings_{}_{format}", tiny.architecture);
        trials.push(trial(name, move || embeddings(tiny)));
    }
    for name in ["llama", "gemma3"] {
        trials.push(trial(format!("model_log_probabilities_{name}"), move || log_probabilities(name)));
    }
    for name in
        some_of(["llama", "qwen2", "qwen3", "gpt2", "gemma3", "qwen2moe", "llama4", "qwen3moe", "gpt-oss"], 3)
    {
        trials.push(trial(format!("model_tokens_{name}"), move || same_tokens(name)));
    }
    // Heads that share keys, and one that does not: there are kernels for both.
    for (name, head_dim, kv_heads) in
        [("llama", 32, 4), ("qwen2", 36, 2), ("gemma3", 120, 2), ("gpt-oss", 32, 2)]
    {
        let like = Tiny::new(name, None);
        let tiny =
            Tiny { head_dim, kv_heads, experts: like.experts.map(|(count, _)| (count, count)), ..like };
        trials.push(trial(format!("model_cache_of_codes_{name}"), move || cache_of_codes(tiny)));
    }
    for (turn, tiny) in wide_heads().into_iter().enumerate() {
        let name = format!("{}_heads_of_{}", tiny.architecture, tiny.head_dim);
        trials.push(trial(format!("model_exact_{name}"), move || exact_logits(tiny, turn)));
        trials.push(trial(format!("model_fast_{name}"), move || fast_path(tiny, turn)));
        trials.push(trial(format!("model_cache_of_codes_{name}"), move || cache_of_codes(tiny)));
    }
    let latent = Tiny { experts: Some((3, 3)), layers: 2, ..Tiny::new("mistral4", None) };
    trials.push(trial("model_cache_of_codes_mistral4", move || cache_of_codes(latent)));
    for name in some_of(["llama", "gemma3", "qwen2moe", "gpt-oss"], 2) {
        trials.push(trial(format!("model_side_by_side_{name}"), move || side_by_side(name)));
    }
    trials.push(trial("model_other_configurations", other_configurations));
    let experts = Tiny { experts: Some((2, 2)), ..Tiny::new("gpt-oss", Some(QuantFormat::Mxfp4)) };
    for (like, head_dim) in [
        (Tiny::new("qwen3", Some(QuantFormat::Q8_0)), 128),
        (experts, 128),
        (Tiny::new("llama", Some(QuantFormat::F16)), 512),
        (Tiny::new("qwen2", Some(QuantFormat::Q8_0)), 256),
    ] {
        let name = format!("model_large_shapes_{}_heads_of_{head_dim}", like.architecture);
        trials.push(trial(name, move || large_shapes(like, head_dim)));
    }
}
