//! Trees of drafts.

use gllm_kernels_std::backend::{CacheOptions, KvType};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_testkit::data::Source;

use super::tiny::{self, Tiny};
use super::{backend, options};

#[path = "../decoder/trees.rs"]
mod pairs;
use pairs::{chains, drafts, near, refusals, Loaded};

fn like(name: &'static str) -> Tiny {
    Tiny { layers: 2, ..Tiny::new(name, None) }
}

/// Windows that are smaller than trees are deep; sinks; heads that share no keys; linear biases; rows of positions; temperatures of scores; every type of cache. Trees are in one piece of attention and in
/// two, with many rows and with few, whose pieces are joined.
#[test]
fn drafts_are_the_cpus() {
    let Some(backend) = backend() else { return };
    let all = [
        (like("llama"), KvType::F32, None),
        (Tiny { window: 5, ..like("gemma3") }, KvType::F32, None),
        (Tiny { window: 5, ..Tiny::with_per_layer() }, KvType::F32, None),
        (Tiny::new("deci", None), KvType::F32, None),
        (Tiny { experts: Some((3, 3)), ..like("gpt-oss") }, KvType::F32, None),
        (Tiny { head_dim: 36, kv_heads: 4, ..like("qwen3") }, KvType::F32, Some(8.0)),
        (like("llama"), KvType::F16, None),
        (Tiny { kv_heads: 4, ..like("llama") }, KvType::Bf16, None),
        (like("gpt2"), KvType::F32, None),
        (like("mistral3"), KvType::F32, None),
    ];
    for (i, how) in all.into_iter().enumerate() {
        let many: (&[usize], &[usize]) = (&[14, 61, 250], &[7, 20, 3]);
        for (j, rounds) in [many, (&[251], &[7, 8, 5])].into_iter().enumerate() {
            drafts(how, &backend, Precision::Exact, rounds, &mut Source::new((2 * i + j) as u64)).unwrap();
        }
    }
}

#[test]
fn chains_are_tokens_that_follow_one_another() {
    let Some(backend) = backend() else { return };
    for name in ["llama", "gemma3"] {
        let tiny = Tiny { layers: 2, ..Tiny::new(name, Some(QuantFormat::Q8_0)) };
        chains(tiny, &backend, usize::MAX, &mut Source::new(3)).unwrap();
    }
}

/// Drafts, and what follows accepted ones, have the logits of their paths: beside a run of three tokens and a single one.
#[test]
fn drafts_are_their_paths() {
    let Some(backend) = backend() else { return };
    let latent = Tiny { experts: Some((3, 3)), ..like("mistral4") };
    for (tiny, drafts) in [(like("llama"), 7), (Tiny { window: 5, ..like("gemma3") }, 3), (latent, 5)] {
        let model = tiny.open();
        let weights = model.weights().unwrap();
        let cache = CacheOptions { page_tokens: 16, ..options().cache };
        let how = (cache, options().forward);
        let mut loaded = Loaded::new(&backend, (model.config(), &weights), how).unwrap();
        let same = |what: &str, want: &[f32], got: &[f32], _: bool| {
            assert!(near(want, got), "{tiny:?}: {what}: {got:?} instead of {want:?}");
        };
        loaded.rounds((&[13, 252], &[drafts, 4, 5]), &mut Source::new(4), same).unwrap();
    }
}

#[test]
fn what_is_no_tree_is_refused() {
    if let Some(backend) = backend() {
        refusals(&backend).unwrap();
    }
}
