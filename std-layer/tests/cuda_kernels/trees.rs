//! Trees of drafts, compared with the CPU's.

use gllm_kernels_std::backend::{CudaBackend, KvType};
use gllm_kernels_std::core::QuantFormat;

use super::models::tiny::{self, Tiny};
use super::{context, source, text, trial, Trials};

// What drafts have on the CPU is the business of its tests.
#[allow(dead_code)]
#[path = "../decoder/trees.rs"]
mod pairs;
use pairs::{chains, drafts, refusals};

/// Sequences whose trees are in one piece of attention, and in two.
const LENGTHS: [usize; 3] = [14, 61, 250];
const SIZES: [usize; 3] = [7, 20, 3];
/// On the fast path runs of so many tokens are for tensor cores, and trees are not.
const MANY: usize = 16;

fn gpu() -> Result<CudaBackend, String> {
    CudaBackend::with_context(context()).map_err(text)
}

pub fn trials(trials: &mut Trials) {
    trials.push(trial("model_trees_refusals", || refusals(&gpu()?)));
    for name in ["llama", "gemma3"] {
        let tiny = Tiny { layers: 2, ..Tiny::new(name, Some(QuantFormat::Q8_0)) };
        let chains = move || chains(tiny, &gpu()?, MANY, &mut source("chains"));
        trials.push(trial(format!("model_trees_chains_{name}"), chains));
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
        let drafts = move || drafts((tiny, kind, None), &gpu()?, (&LENGTHS, &SIZES), &mut source("drafts"));
        trials.push(trial(name, drafts));
    }
}
