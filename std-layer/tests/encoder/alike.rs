// Encoders on any backend, compared with the CPU's exact results.

use std::fmt::Display;

use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, ForwardConfig, KvType, Outputs, Run, Topology,
};
use gllm_kernels_std::model::{
    Config, Gate, Generator, HostWeights, Model, Norm, NormWeights, Options, Pooling,
};

#[path = "../decoder/exact.rs"]
mod exact;
#[path = "small.rs"]
pub mod small;
use exact::{exact, generator};
use small::{tokens, Small, CONTEXT};

pub type Outcome = Result<(), String>;

pub const POOLINGS: [Pooling; 3] = [Pooling::Mean, Pooling::First, Pooling::Last];
/// How far a row of length 1 may be from the CPU's exact one.
const EXACT: f32 = 3e-6;
/// The same where activations or the cache have fewer bits.
const FAST: f32 = 3e-2;

fn text(e: impl Display) -> String {
    e.to_string()
}

pub fn distance(a: &[f32], b: &[f32]) -> f32 {
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

/// A model on a backend, with a cache.
pub struct Loaded<'a, B: Backend> {
    backend: &'a B,
    weights: B::Weights,
    kv: B::KvCache,
    forward: ForwardConfig,
    hidden: usize,
}

impl<'a, B: Backend> Loaded<'a, B> {
    /// A model that may have another configuration than its file's.
    fn new(
        backend: &'a B,
        (config, weights): (&Config, &HostWeights<'_>),
        &Options { forward, cache, .. }: &Options,
    ) -> Result<Self, String> {
        let weights = backend.upload_generator_weights(config, weights, &mut |_| ()).map_err(text)?;
        let kv = backend.alloc_kv_cache(1024, config, &cache).map_err(text)?;
        Ok(Self { backend, weights, kv, forward, hidden: config.hidden })
    }

    pub fn of(backend: &'a B, model: &Model<'_>, options: &Options) -> Result<Self, String> {
        Self::new(backend, (model.config(), &model.weights().map_err(text)?), options)
    }

    /// The rows of these texts, which are one step.
    pub fn rows(&mut self, texts: &[&[u32]], pooling: Pooling) -> Result<Vec<Vec<f32>>, String> {
        let Self { backend, weights, kv, forward, hidden } = self;
        let run = |text: &&[u32]| Run {
            sequence: backend.create_sequence(kv),
            tokens: text.len(),
            outputs: Outputs::All,
        };
        let topology = Topology { runs: texts.iter().map(run).collect() };
        let tokens = texts.concat();
        let rows = backend.embedding_forward_gpu_pure(&tokens, &topology, weights, kv, forward, pooling);
        let rows = backend.read_logits(&rows.map_err(text)?).map_err(text)?;
        for run in &topology.runs {
            backend.remove_sequence(kv, run.sequence).map_err(text)?;
        }
        Ok(rows.chunks(*hidden).map(<[f32]>::to_vec).collect())
    }
}

/// Rows of texts are the CPU's, beside each other and one by one. Those of texts with more than `few` tokens have the same bits then.
pub fn exact_rows<B: Backend>(small: Small, backend: &B, poolings: &[Pooling], few: usize) -> Outcome {
    let (model, all) = (small.open(), tokens(60));
    let texts = [&all[..17], &all[5..6], &all[20..60]];
    let (mut cpu, mut loaded) = (generator(&model, 2, exact()), Loaded::of(backend, &model, &exact())?);
    for &pooling in poolings {
        let want = cpu.embed(&texts, pooling).map_err(text)?;
        let got = loaded.rows(&texts, pooling)?;
        for (i, of) in texts.iter().enumerate() {
            let what = format!("{small:?}, {pooling:?}, text {i}");
            near(&what, &want[i], &got[i], EXACT)?;
            let alone = loaded.rows(&[of], pooling)?;
            near(&format!("{what}, alone"), &want[i], &alone[0], EXACT)?;
            if of.len() > few && alone[0].iter().zip(&got[i]).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("{what}: the row depends on other texts"));
            }
        }
    }
    Ok(())
}

/// Activations and caches of fewer bits turn rows a little. One text is long, and one has few tokens.
pub fn fast_rows<B: Backend>(
    small: Small,
    backend: &B,
    kinds: impl Iterator<Item = KvType>,
    poolings: &[Pooling],
) -> Outcome {
    let (model, all) = (small.open(), tokens(90));
    let texts = [&all[..], &all[7..19]];
    let mut cpu = generator(&model, 2, exact());
    for kind in kinds {
        let cache = CacheOptions { kind, ..CacheOptions::default() };
        let mut loaded = Loaded::of(backend, &model, &Options { cache, ..Options::default() })?;
        for &pooling in poolings {
            let want = cpu.embed(&texts, pooling).map_err(text)?;
            let got = loaded.rows(&texts, pooling)?;
            for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                near(&format!("{small:?}, {kind:?}, {pooling:?}, text {i}"), want, got, FAST)?;
            }
        }
    }
    Ok(())
}

/// A text of several pieces of attention.
pub fn long_text<B: Backend>(small: Small, backend: &B) -> Outcome {
    let (model, all) = (small.open(), tokens(300));
    let mut cpu = generator(&model, 2, exact());
    let ways = [(exact(), EXACT, Pooling::Mean), (Options::default(), FAST, Pooling::First)];
    for (options, bound, pooling) in ways {
        let want = cpu.embed(&[&all], pooling).map_err(text)?;
        let got = Loaded::of(backend, &model, &options)?.rows(&[&all], pooling)?;
        near(&format!("{small:?}, {pooling:?}"), &want[0], &got[0], bound)?;
    }
    Ok(())
}

pub type Change = fn(&mut Config, &mut HostWeights<'_>);

/// Without any of these parts rows are others, and the CPU's.
pub fn parts<B: Backend>(small: Small, backend: &B, without: &[(&str, Change)]) -> Outcome {
    fn row<B: Backend>(backend: &B, of: (&Config, &HostWeights<'_>)) -> Result<Vec<f32>, String> {
        Ok(Loaded::new(backend, of, &exact())?.rows(&[&tokens(20)], Pooling::Mean)?.swap_remove(0))
    }
    let model = small.open();
    let (config, weights) = (model.config(), model.weights().map_err(text)?);
    let cpu = CpuBackend::new(1).map_err(text)?;
    let whole = row(backend, (config, &weights))?;
    for (what, change) in without {
        let (mut config, mut weights) = (config.clone(), weights.clone());
        change(&mut config, &mut weights);
        let want = row(&cpu, (&config, &weights))?;
        let got = row(backend, (&config, &weights))?;
        near(&format!("{small:?} without {what}"), &want, &got, EXACT)?;
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

/// The parts that all of them have.
pub const PARTS: [(&str, Change); 6] = [
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
/// A model of each architecture, and the parts that not all have.
pub const OWN: [(Small, &[(&str, Change)]); 3] =
    [(Small::BERT, &OF_BERT), (Small::NOMIC, &OF_NOMIC), (Small::JINA, &OF_JINA)];

/// Logits, texts in parts and texts that are too long are refused.
pub fn refusals<B: Backend>(backend: impl Fn() -> Result<B, String>) -> Outcome {
    let model = Small::BERT.open();
    let mut g = Generator::new(backend()?, &model, Options { chunk: Some(700), ..exact() }).map_err(text)?;
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
    let want = generator(&model, 2, exact()).embed(&texts, Pooling::Mean).map_err(text)?;
    near("behind refusals", &want[0], &got[0], EXACT)
}
