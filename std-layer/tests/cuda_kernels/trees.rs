//! Trees of drafts, compared with the CPU's.

use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, CudaBackend, ForwardConfig, KvType, Outputs, Run,
    Topology,
};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::model::Tree;

use super::models::{divergence, same, tiny::Tiny};
use super::{context, source, text, trial, Outcome, Trials};

// What drafts have on the CPU is the business of its tests.
#[allow(dead_code)]
#[path = "../decoder/trees.rs"]
mod pairs;
use pairs::{on_both, Loaded, Shape};

/// Sequences whose trees are in one piece of attention, and in two.
const LENGTHS: [usize; 3] = [14, 61, 250];
const SIZES: [usize; 3] = [7, 20, 3];

/// Drafts have the logits of the CPU's, and so has what follows an accepted path. Numbers of a narrow cache are rounded, where few differ by a digit:
/// then they are alike on the average, as they are on the fast path, where more numbers are rounded.
fn drafts(tiny: Tiny, kind: KvType, precision: Precision) -> Outcome {
    let model = tiny.open();
    let weights = model.weights().map_err(text)?;
    let cache = CacheOptions { kind, page_tokens: 16, sequences: 8, ..CacheOptions::default() };
    let [exact, forward] = [Precision::Exact, precision]
        .map(|precision| (cache, ForwardConfig { precision, ..ForwardConfig::default() }));
    let (cpu, gpu) = (CpuBackend::new(2).map_err(text)?, CudaBackend::with_context(context()).map_err(text)?);
    let mut a = Loaded::new(&cpu, (model.config(), &weights), exact).map_err(text)?;
    let mut b = Loaded::new(&gpu, (model.config(), &weights), forward).map_err(text)?;
    let logits = a.logits;
    let near = |what: &str, want: &[f32], got: &[f32]| match kind {
        KvType::F32 => same(what, want, got),
        _ => {
            let mean = divergence(want, got, logits);
            // Not `mean >= ..`: NaN is never near.
            let near = mean < if precision == Precision::Exact { 1e-4 } else { 4e-3 };
            if near {
                Ok(())
            } else {
                Err(format!("{what}: KL divergence {mean}"))
            }
        }
    };
    on_both((&mut a, &mut b), (&LENGTHS, &SIZES), &mut source("drafts"), near)
        .map_err(|e| format!("{tiny:?}, {kind:?}, {precision:?}: {e}"))
}

/// A chain has the bits of tokens that follow one another, a tree that is none does not; on the fast path too, where runs of many tokens are for
/// tensor cores and trees are not.
fn chains(tiny: Tiny) -> Outcome {
    let model = tiny.open();
    let weights = model.weights().map_err(text)?;
    let gpu = CudaBackend::with_context(context()).map_err(text)?;
    let exact = ForwardConfig { precision: Precision::Exact, ..ForwardConfig::default() };
    for (forward, drafts) in [(exact, 9), (ForwardConfig::default(), 9), (ForwardConfig::default(), 40)] {
        let how = (CacheOptions { sequences: 8, ..CacheOptions::default() }, forward);
        let mut loaded = Loaded::new(&gpu, (model.config(), &weights), how).map_err(text)?;
        let mut source = source("chains");
        let tokens: Vec<u32> = (0..30 + drafts).map(|_| source.below(loaded.logits) as u32).collect();
        let mut rows = |parents: &[Option<usize>]| {
            let sequence = gpu.create_sequence(&mut loaded.kv);
            loaded.extend(sequence, &tokens[..30])?;
            let tree = Tree::new(parents).expect("a tree");
            let rows = loaded.step(&[(sequence, tokens[30..].to_vec(), tree)])?;
            gpu.remove_sequence(&mut loaded.kv, sequence)?;
            Ok::<_, BackendError>(rows)
        };
        let plain = rows(&[]).map_err(text)?;
        let [chain, wide] = [Shape::Chain, Shape::Wide].map(|shape| shape.parents(drafts, &mut source));
        let (chain, wide) = (rows(&chain).map_err(text)?, rows(&wide).map_err(text)?);
        let bits = |rows: &[f32]| rows.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        if drafts < 16 && bits(&plain) != bits(&chain) {
            return Err(format!("{tiny:?}, {drafts} drafts: a chain has other bits"));
        }
        let [near, far] = [&chain, &wide].map(|rows| divergence(&plain, rows, tiny.vocabulary));
        let differs = near < 4e-3 && far > 4e-2;
        if !differs {
            return Err(format!("{tiny:?}, {drafts} drafts: KL divergences {near} and {far}"));
        }
    }
    Ok(())
}

/// A token and a tree have the bits side by side that each has alone, and the logits of the CPU's: on the fast path, where trees are for tensor cores and a
/// token is if many heads share a KV head. The token is of the second piece of attention, one of the drafts of the first.
fn side_by_side(tiny: Tiny) -> Outcome {
    let model = tiny.open();
    let weights = model.weights().map_err(text)?;
    let (cpu, gpu) = (CpuBackend::new(2).map_err(text)?, CudaBackend::with_context(context()).map_err(text)?);
    let [exact, fast] = [Precision::Exact, Precision::Integer].map(|precision| {
        let forward = ForwardConfig { precision, ..ForwardConfig::default() };
        (CacheOptions { sequences: 8, ..CacheOptions::default() }, forward)
    });
    let mut on_cpu = Loaded::new(&cpu, (model.config(), &weights), exact).map_err(text)?;
    let mut on_gpu = Loaded::new(&gpu, (model.config(), &weights), fast).map_err(text)?;
    let want = beside(&mut on_cpu, [true, true]).map_err(text)?;
    let got = beside(&mut on_gpu, [true, true]).map_err(text)?;
    let mean = divergence(&want, &got, tiny.vocabulary);
    // Not `mean >= 4e-3`: NaN is never near.
    let near = mean < 4e-3;
    if !near {
        return Err(format!("{tiny:?}: KL divergence {mean}"));
    }
    let token = beside(&mut on_gpu, [true, false]).map_err(text)?;
    let tree = beside(&mut on_gpu, [false, true]).map_err(text)?;
    let bits = |rows: &[f32]| rows.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    match bits(&[token, tree].concat()) == bits(&got) {
        true => Ok(()),
        false => Err(format!("{tiny:?}: other bits side by side")),
    }
}

/// The logits of a token behind 290 others, if it is wanted, and those of a tree of four drafts behind 254, if they are.
fn beside<B: Backend>(loaded: &mut Loaded<'_, B>, wanted: [bool; 2]) -> Result<Vec<f32>, BackendError> {
    let mut source = source("side by side");
    let mut text = |n: usize| (0..n).map(|_| source.below(97) as u32).collect::<Vec<u32>>();
    let (texts, next) = ([text(290), text(254)], [text(1), text(4)]);
    let tree = Tree::new(&[None, Some(0), Some(0), Some(1)]).expect("a tree");
    let mut runs = Vec::new();
    for ((tokens, next), tree) in texts.iter().zip(next).zip([Tree::default(), tree]) {
        let sequence = loaded.backend.create_sequence(&mut loaded.kv);
        loaded.extend(sequence, tokens)?;
        runs.push((sequence, next, tree));
    }
    let sequences: Vec<_> = runs.iter().map(|run| run.0).collect();
    let runs: Vec<_> = runs.into_iter().zip(wanted).filter(|run| run.1).map(|run| run.0).collect();
    let rows = loaded.step(&runs)?;
    for sequence in sequences {
        loaded.backend.remove_sequence(&mut loaded.kv, sequence)?;
    }
    Ok(rows)
}

/// What is no tree is refused, and so is whatever continues a sequence before a path has been accepted.
fn refusals() -> Outcome {
    let model = Tiny { layers: 1, ..Tiny::new("llama", None) }.open();
    let gpu = CudaBackend::with_context(context()).map_err(text)?;
    let how = (CacheOptions::default(), ForwardConfig::default());
    let mut loaded =
        Loaded::new(&gpu, (model.config(), &model.weights().map_err(text)?), how).map_err(text)?;
    let sequence = gpu.create_sequence(&mut loaded.kv);
    let tree = Tree::new(&[None, Some(0)]).map_err(text)?;
    let topology = Topology { runs: vec![Run { sequence, tokens: 3, outputs: Outputs::Last }] };
    let Loaded { weights, kv, forward, .. } = &mut loaded;
    let wrong =
        gpu.generator_forward_trees(&[1, 2, 3], &topology, std::slice::from_ref(&tree), weights, kv, forward);
    let expect = |of: Result<(), String>, what: &str| match of {
        Err(e) if e.contains(what) => Ok(()),
        other => Err(format!("{other:?} instead of {what}")),
    };
    expect(wrong.map(drop).map_err(text), "a tree of 2 drafts")?;
    loaded.step(&[(sequence, vec![1, 2], tree)]).map_err(text)?;
    expect(loaded.extend(sequence, &[3]).map(drop).map_err(text), "has 2 drafts")?;
    expect(gpu.accept_drafts(&mut loaded.kv, sequence, &[1]).map_err(text), "draft 1 continues draft 0")?;
    gpu.accept_drafts(&mut loaded.kv, sequence, &[0]).map_err(text)?;
    loaded.extend(sequence, &[3]).map(drop).map_err(text)
}

pub fn trials(trials: &mut Trials) {
    trials.push(trial("model_trees_refusals", refusals));
    for name in ["llama", "gemma3"] {
        let tiny = Tiny { layers: 2, ..Tiny::new(name, Some(QuantFormat::Q8_0)) };
        trials.push(trial(format!("model_trees_chains_{name}"), move || chains(tiny)));
    }
    // Windows that are smaller than trees are deep; sinks; heads of odd sizes, and those that share no keys.
    let like = |name| Tiny { layers: 2, ..Tiny::new(name, None) };
    let all = [
        (like("llama"), KvType::F32),
        (Tiny { window: 5, ..like("gemma3") }, KvType::F32),
        (Tiny { experts: Some((3, 3)), ..like("gpt-oss") }, KvType::F32),
        (Tiny { head_dim: 36, kv_heads: 4, ..like("qwen3") }, KvType::F32),
        (like("llama"), KvType::F16),
        (Tiny { kv_heads: 4, ..like("llama") }, KvType::Bf16),
        (Tiny { head_dim: 100, ..like("qwen2") }, KvType::Q8_0),
    ];
    for (tiny, kind) in all {
        let name = format!("model_trees_{}_heads_of_{}_{kind:?}", tiny.architecture, tiny.head_dim);
        trials.push(trial(name, move || drafts(tiny, kind, Precision::Exact)));
    }
    for (heads, kv_heads) in [(4, 2), (8, 1)] {
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
    for (tiny, kind) in fast {
        let name = format!("model_trees_fast_{}_{}_heads_{kind:?}", tiny.architecture, tiny.heads);
        trials.push(trial(name, move || drafts(tiny, kind, Precision::Integer)));
    }
}
