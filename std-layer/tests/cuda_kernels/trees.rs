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
/// then they are alike on the average.
fn drafts(tiny: Tiny, kind: KvType) -> Outcome {
    let model = tiny.open();
    let weights = model.weights().map_err(text)?;
    let forward = ForwardConfig { precision: Precision::Exact, ..ForwardConfig::default() };
    let how = (CacheOptions { kind, page_tokens: 16, sequences: 8, ..CacheOptions::default() }, forward);
    let (cpu, gpu) = (CpuBackend::new(2).map_err(text)?, CudaBackend::with_context(context()).map_err(text)?);
    let mut a = Loaded::new(&cpu, (model.config(), &weights), how).map_err(text)?;
    let mut b = Loaded::new(&gpu, (model.config(), &weights), how).map_err(text)?;
    let logits = a.logits;
    let near = |what: &str, want: &[f32], got: &[f32]| match kind {
        KvType::F32 => same(what, want, got),
        _ => {
            let mean = divergence(want, got, logits);
            // Not `mean >= 1e-4`: NaN is never near.
            let near = mean < 1e-4;
            if near {
                Ok(())
            } else {
                Err(format!("{what}: KL divergence {mean}"))
            }
        }
    };
    on_both((&mut a, &mut b), (&LENGTHS, &SIZES), &mut source("drafts"), near)
        .map_err(|e| format!("{tiny:?}, {kind:?}: {e}"))
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
        trials.push(trial(name, move || drafts(tiny, kind)));
    }
}
