//! Trees of drafts, compared with the CPU's.

use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, CudaBackend, ForwardConfig, KvType,
};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::model::Tree;

use super::models::tiny::{self, Tiny};
use super::models::wide_heads;
use super::{context, some_of, source, text, trial, Outcome, Trials};

// What drafts have on the CPU is the business of its tests.
#[allow(dead_code)]
#[path = "../decoder/trees.rs"]
mod pairs;
use pairs::{bits, chains, drafts, mean_divergence, refusals, Loaded};

/// Sequences whose trees are in one piece of attention, and in two.
const LENGTHS: [usize; 3] = [14, 61, 250];
const SIZES: [usize; 3] = [7, 20, 3];
/// On the fast path runs of so many tokens are for `attention_prefill`, and trees are not.
const MANY: usize = 16;

fn gpu() -> Result<CudaBackend, String> {
    CudaBackend::with_context(context()).map_err(text)
}

/// A token and a tree have the bits side by side that each has alone, and the logits of the CPU's: on the fast path, where trees are for tensor cores and a
/// token is if many heads share a KV head. The token is of the second piece of attention, one of the drafts of the first.
fn side_by_side(tiny: Tiny) -> Outcome {
    let model = tiny.open();
    let weights = model.weights().map_err(text)?;
    let (cpu, gpu) = (CpuBackend::new(2).map_err(text)?, gpu()?);
    let [exact, fast] = [Precision::Exact, Precision::Integer].map(|precision| {
        let forward = ForwardConfig { precision, ..ForwardConfig::default() };
        (CacheOptions { sequences: 8, ..CacheOptions::default() }, forward)
    });
    let mut on_cpu = Loaded::new(&cpu, (model.config(), &weights), exact).map_err(text)?;
    let mut on_gpu = Loaded::new(&gpu, (model.config(), &weights), fast).map_err(text)?;
    let both = behind_texts(&mut on_cpu, &[[true, true]]).map_err(text)?;
    let want = both.concat();
    let steps = [[true, true], [true, false], [false, true]];
    let [got, token, tree] =
        behind_texts(&mut on_gpu, &steps).map_err(text)?.try_into().expect("a row for each");
    let mean = mean_divergence(&want, &got, tiny.vocabulary);
    // Not `mean >= 4e-3`: NaN is never near.
    let near = mean < 4e-3;
    if !near {
        return Err(format!("{tiny:?}: KL divergence {mean}"));
    }
    match bits(&[token, tree].concat()) == bits(&got) {
        true => Ok(()),
        false => Err(format!("{tiny:?}: other bits side by side")),
    }
}

/// The logits of steps of a token behind 290 others, if it is wanted, and a tree of four drafts behind 254, if it is.
fn behind_texts<B: Backend>(
    loaded: &mut Loaded<'_, B>,
    steps: &[[bool; 2]],
) -> Result<Vec<Vec<f32>>, BackendError> {
    let mut source = source("side by side");
    let mut text = |n: usize| (0..n).map(|_| source.below(97) as u32).collect::<Vec<u32>>();
    let (texts, next) = ([text(290), text(254)], [text(1), text(4)]);
    let trees = [Tree::default(), Tree::new(&[None, Some(0), Some(0), Some(1)]).expect("a tree")];
    let mut sequences = Vec::new();
    for tokens in &texts {
        sequences.push(loaded.backend.create_sequence(&mut loaded.kv));
        loaded.extend(*sequences.last().expect("a sequence"), tokens)?;
    }
    let mut all = Vec::new();
    for wanted in steps {
        let mut runs = Vec::new();
        for i in (0..2).filter(|&i| wanted[i]) {
            let fork = loaded.backend.fork_sequence(&mut loaded.kv, sequences[i], texts[i].len())?;
            runs.push((fork, next[i].clone(), trees[i].clone()));
        }
        all.push(loaded.step(&runs)?);
        for (fork, ..) in runs {
            loaded.backend.remove_sequence(&mut loaded.kv, fork)?;
        }
    }
    Ok(all)
}

pub fn trials(trials: &mut Trials) {
    trials.push(trial("model_trees_refusals", || refusals(&gpu()?)));
    for name in some_of(["llama", "gemma3"], 2) {
        let tiny = Tiny { layers: 2, ..Tiny::new(name, Some(QuantFormat::Q8_0)) };
        let chains = move || chains(tiny, &gpu()?, MANY, &mut source("chains"));
        trials.push(trial(format!("model_trees_chains_{name}"), chains));
    }
    // Windows that are smaller than trees are deep; sinks; heads of odd sizes, and those that share no keys.
    let like = |name| Tiny { layers: 2, ..Tiny::new(name, None) };
    let [_, wide, _] = wide_heads();
    let all = [
        (like("llama"), KvType::F32),
        (Tiny { window: 5, ..like("gemma3") }, KvType::F32),
        (Tiny { window: 5, ..Tiny::with_per_layer() }, KvType::F32),
        (Tiny { experts: Some((3, 3)), ..like("gpt-oss") }, KvType::F32),
        (Tiny { head_dim: 36, kv_heads: 4, ..like("qwen3") }, KvType::F32),
        (like("llama"), KvType::F16),
        (Tiny { kv_heads: 4, ..like("llama") }, KvType::Bf16),
        (Tiny { head_dim: 100, ..like("qwen2") }, KvType::Q8_0),
        (Tiny { experts: Some((3, 3)), ..like("mistral4") }, KvType::F16),
        (Tiny { experts: Some((3, 3)), ..like("deepseek2") }, KvType::Bf16),
        (wide, KvType::F16),
        (like("gpt2"), KvType::F32),
        (like("mistral3"), KvType::F32),
        // Heads of keys that differ, and layers without attention.
        (Tiny::new("deci", None), KvType::F32),
    ];
    for (tiny, kind) in some_of(all, 4) {
        let name = format!("model_trees_{}_heads_of_{}_{kind:?}", tiny.architecture, tiny.head_dim);
        let drafts = move || {
            drafts((tiny, kind, None), &gpu()?, Precision::Exact, (&LENGTHS, &SIZES), &mut source("drafts"))
        };
        trials.push(trial(name, drafts));
    }
    for (heads, kv_heads) in some_of([(4, 2), (8, 1)], 2) {
        let tiny = Tiny { heads, kv_heads, ..like("llama") };
        trials.push(trial(format!("model_trees_side_by_side_{heads}_heads"), move || side_by_side(tiny)));
    }
    // On tensor cores: one head, two, three, eight and 17 that share keys, with windows and sinks.
    let fast = [
        (Tiny { kv_heads: 4, ..like("llama") }, KvType::F16),
        (Tiny { window: 5, ..like("gemma3") }, KvType::Bf16),
        (Tiny { heads: 6, head_dim: 80, ..like("qwen3") }, KvType::F16),
        (
            Tiny { heads: 8, kv_heads: 1, head_dim: 64, experts: Some((3, 3)), ..like("gpt-oss") },
            KvType::Bf16,
        ),
        (Tiny { heads: 17, kv_heads: 1, head_dim: 40, ..like("qwen2") }, KvType::F16),
    ];
    for (tiny, kind) in some_of(fast, 4) {
        let name = format!("model_trees_fast_{}_{}_heads_{kind:?}", tiny.architecture, tiny.heads);
        let drafts = move || {
            drafts((tiny, kind, None), &gpu()?, Precision::Integer, (&LENGTHS, &SIZES), &mut source("drafts"))
        };
        trials.push(trial(name, drafts));
    }
}
