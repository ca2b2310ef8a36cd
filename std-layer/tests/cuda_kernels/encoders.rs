//! Encoders, compared with the CPU's exact results.

use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, CudaBackend, KvType, Outputs, Run, Topology,
};
use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{Config, Gate, HostWeights, Norm, NormWeights, Options, Pooling};

use super::models::{exact, in_turn, on_cpu, on_gpu};
use super::{context, on_a_gpu, text, trial, Outcome, Trials};
use crate::platform::SHARES_SOURCES;

#[path = "../encoder/small.rs"]
mod small;
use small::{tokens, Small, CONTEXT};

const POOLINGS: [Pooling; 3] = [Pooling::Mean, Pooling::First, Pooling::Last];

fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt()
}

/// `Err` unless rows of length 1 are as near as they have to be.
fn near(what: &str, want: &[f32], got: &[f32], bound: f32) -> Outcome {
    let far = distance(want, got);
    // Not `far >= bound`: NaN is never near.
    let near = want.len() == got.len() && far < bound;
    if near {
        return Ok(());
    }
    Err(format!("{what}: {far:e} away"))
}

/// Rows of texts are the CPU's, beside each other and one by one.
fn exact_rows(small: Small, turn: usize) -> Outcome {
    let model = small.open();
    let all = tokens(60);
    let texts = [&all[..17], &all[5..6], &all[20..60]];
    let (mut cpu, mut gpu) = (on_cpu(&model)?, on_gpu(&model, Options { chunk: 50, ..exact() })?);
    for pooling in in_turn(POOLINGS, turn + turn / 3) {
        let want = cpu.embed(&texts, pooling).map_err(text)?;
        let got = gpu.embed(&texts, pooling).map_err(text)?;
        for (i, of) in texts.iter().enumerate() {
            let what = format!("{small:?}, {pooling:?}, text {i}");
            near(&what, &want[i], &got[i], 3e-6)?;
            let alone = gpu.embed(&[of], pooling).map_err(text)?;
            if alone[0].iter().zip(&got[i]).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("{what}: the row depends on other texts"));
            }
        }
    }
    Ok(())
}

/// Activations and caches of fewer bits turn rows a little. Texts are some that tensor cores attend to, and some that they do not.
fn fast_rows(small: Small, turn: usize) -> Outcome {
    let model = small.open();
    let all = tokens(90);
    let texts = [&all[..], &all[7..19]];
    let mut cpu = on_cpu(&model)?;
    for kind in in_turn([KvType::F16, KvType::Bf16, KvType::F32, KvType::Q8_0], turn) {
        let cache = CacheOptions { kind, ..CacheOptions::default() };
        let mut gpu = on_gpu(&model, Options { cache, max_tokens: Some(256), ..Options::default() })?;
        for pooling in in_turn(POOLINGS, turn + turn / 3) {
            let want = cpu.embed(&texts, pooling).map_err(text)?;
            let got = gpu.embed(&texts, pooling).map_err(text)?;
            for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                near(&format!("{small:?}, {kind:?}, {pooling:?}, text {i}"), want, got, 3e-2)?;
            }
        }
    }
    Ok(())
}

/// A text of several pieces of attention.
fn long_text(small: Small) -> Outcome {
    let model = small.open();
    let all = tokens(300);
    let mut cpu = on_cpu(&model)?;
    let mut gpu = on_gpu(&model, exact())?;
    let mut fast = on_gpu(&model, Options { max_tokens: Some(512), ..Options::default() })?;
    for pooling in [Pooling::Mean, Pooling::First] {
        let want = cpu.embed(&[&all], pooling).map_err(text)?;
        for (g, bound) in [(&mut gpu, 3e-6), (&mut fast, 3e-2)] {
            let got = g.embed(&[&all], pooling).map_err(text)?;
            near(&format!("{small:?}, {pooling:?}"), &want[0], &got[0], bound)?;
        }
    }
    Ok(())
}

/// The row of a text, of a model that may have another configuration than its file's.
fn row<B: Backend>(
    backend: &B,
    weights: &HostWeights<'_>,
    config: &Config,
    tokens: &[u32],
) -> Result<Vec<f32>, BackendError> {
    let Options { forward, cache, .. } = exact();
    let weights = backend.upload_generator_weights(config, weights, &mut |_| ())?;
    let mut kv = backend.alloc_kv_cache(256, config, &cache)?;
    let sequence = backend.create_sequence(&mut kv);
    let topology = Topology { runs: vec![Run { sequence, tokens: tokens.len(), outputs: Outputs::All }] };
    let pooling = Pooling::Mean;
    let row = backend.embedding_forward_gpu_pure(tokens, &topology, &weights, &mut kv, &forward, pooling)?;
    backend.read_logits(&row)
}

type Change = fn(&mut Config, &mut HostWeights<'_>);

/// Without any of these parts rows are others, and the CPU's.
fn parts(small: Small, without: &[(&str, Change)]) -> Outcome {
    let model = small.open();
    let (config, tokens, weights) = (model.config(), tokens(20), model.weights().map_err(text)?);
    let cpu = CpuBackend::new(1).map_err(text)?;
    let gpu = CudaBackend::with_context(context()).map_err(text)?;
    let whole = row(&gpu, &weights, config, &tokens).map_err(text)?;
    for (what, change) in without {
        let (mut config, mut weights) = (config.clone(), weights.clone());
        change(&mut config, &mut weights);
        let want = row(&cpu, &weights, &config, &tokens).map_err(text)?;
        let got = row(&gpu, &weights, &config, &tokens).map_err(text)?;
        near(&format!("{small:?} without {what}"), &want, &got, 3e-6)?;
        let change = distance(&whole, &got);
        let some = change > 1e-3;
        if !some {
            return Err(format!("{small:?} without {what}: {change:e} changes"));
        }
    }
    Ok(())
}

fn without_bias(of: &mut Option<NormWeights>) {
    of.iter_mut().for_each(|norm| norm.bias.fill(0.0));
}

const PARTS: [(&str, Change); 6] = [
    ("token types", |_, weights| weights.token_types = None),
    ("the norm of embeddings", |_, weights| without_bias(&mut weights.embedding_norm)),
    ("the bias of a norm", |_, weights| without_bias(&mut weights.layers[1].ffn_sum_norm)),
    ("means in norms", |config, _| config.norm = Norm::Rms),
    ("the factor of embeddings", |config, _| config.embedding_scale = 0.3),
    ("its activation", |config, _| {
        config.gate = if config.gate == Gate::Silu { Gate::Gelu } else { Gate::Silu };
    }),
];
const OF_BERT: [(&str, Change); 3] = [
    ("positions", |config, weights| (config.position_embeddings, weights.positions) = (false, None)),
    ("the bias of up", |_, weights| weights.layers[0].up_bias = None),
    ("the bias of down", |_, weights| weights.layers[2].down_bias = None),
];
const OF_NOMIC: [(&str, Change); 1] = [("later tokens", |config, _| config.causal = true)];
const OF_JINA: [(&str, Change); 3] = [
    ("linear biases", |config, _| config.alibi = None),
    ("later tokens", |config, _| config.causal = true),
    ("the bias of the output matrix", |_, weights| weights.layers[1].output_bias = None),
];

/// Logits, texts in parts and texts that are too long are refused, and so are windows.
fn refusals() -> Outcome {
    let model = Small::BERT.open();
    let mut g = on_gpu(&model, Options { chunk: 700, ..exact() })?;
    let refused = |result: Result<(), BackendError>, of: &str| match result {
        Err(BackendError::Unsupported(why) | BackendError::Tokens(why)) if why.contains(of) => Ok(()),
        other => Err(format!("{other:?} instead of \"{of}\"")),
    };
    refused(g.logits(&tokens(9)).map(drop), "logits of an encoder")?;
    let long = tokens(CONTEXT + 1);
    let of_positions = "601 tokens, but the model has embeddings for 600 positions";
    refused(g.embed(&[&long], Pooling::Mean).map(drop), of_positions)?;
    // What was refused left nothing behind.
    let texts = [&long[..9]];
    let got = g.embed(&texts, Pooling::Mean).map_err(text)?;
    near("behind refusals", &on_cpu(&model)?.embed(&texts, Pooling::Mean).map_err(text)?[0], &got[0], 3e-6)?;
    let gpu = CudaBackend::with_context(context()).map_err(text)?;
    let weights = model.weights().map_err(text)?;
    let upload = |change: &dyn Fn(&mut Config)| {
        let mut config = model.config().clone();
        change(&mut config);
        gpu.upload_generator_weights(&config, &weights, &mut |_| ()).map(drop)
    };
    refused(upload(&|config| config.layer[1].window = Some(8)), "windows of attention")?;
    refused(upload(&|config| config.causal = true), "embeddings of positions")
}

pub fn trials(trials: &mut Trials) {
    // Emulators are slow: there, a platform with another one's sources takes each architecture in one format, and models take turns with poolings and caches.
    let [bert, nomic, jina] = [Small::BERT, Small::NOMIC, Small::JINA];
    let few = [
        Small { format: Some(QuantFormat::Q8_0), ..bert },
        Small { format: Some(QuantFormat::F16), ..nomic },
        jina,
    ];
    let all = if SHARES_SOURCES && !on_a_gpu() { few.to_vec() } else { Small::all().collect() };
    for (turn, small) in all.into_iter().enumerate() {
        let format = small.format.map_or("f32", QuantFormat::name);
        let fused = if small.fused { "_fused" } else { "" };
        let name = format!("{}_{format}_{}_heads{fused}", small.architecture, small.heads);
        trials.push(trial(format!("encoder_exact_{name}"), move || exact_rows(small, turn)));
        trials.push(trial(format!("encoder_fast_{name}"), move || fast_rows(small, turn)));
    }
    trials.push(trial("encoder_long_text", move || long_text(jina)));
    for (small, own) in [(bert, &OF_BERT[..]), (nomic, &OF_NOMIC), (jina, &OF_JINA)] {
        let parts = move || {
            self::parts(small, &PARTS)?;
            self::parts(small, own)
        };
        trials.push(trial(format!("encoder_parts_{}", small.architecture), parts));
    }
    trials.push(trial("encoder_refusals", refusals));
}
