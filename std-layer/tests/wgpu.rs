//! Whole models on a GPU through wgpu: on the first adapter of this machine, be it software (`mesa-vulkan-drivers` has one).

#[path = "decoder/tiny.rs"]
mod tiny;

use gllm_kernels_std::backend::{
    Backend, CacheOptions, CpuBackend, ForwardConfig, KvType, Traffic, WgpuAdapter, WgpuBackend,
};
use gllm_kernels_std::core::Precision;
use gllm_kernels_std::model::{Generator, Model, Options, Sampling};
use tiny::{oracle, Tiny};

/// A backend on the first adapter; where there is none, that is said.
fn backend() -> Option<WgpuBackend> {
    let all = WgpuAdapter::all();
    if all.is_empty() {
        eprintln!("skipped: no adapter with Vulkan, Metal or DirectX 12");
    }
    all.first().map(|adapter| WgpuBackend::on(adapter).unwrap())
}

/// Any tokens, no two stretches alike.
fn tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * i + 7 * i + i / 11) % vocabulary) as u32).collect()
}

fn options() -> Options {
    let forward = ForwardConfig { precision: Precision::Exact, ..ForwardConfig::default() };
    let cache = CacheOptions { kind: KvType::F32, sequences: 8, ..CacheOptions::default() };
    Options { forward, cache, max_tokens: Some(2048), ..Options::default() }
}

fn greedy<B: Backend>(backend: B, model: &Model<'_>, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut g = Generator::new(backend, model, options()).unwrap();
    g.generate(prompt, Sampling::greedy()).unwrap().take(n).map(Result::unwrap).collect()
}

#[test]
fn logits_are_the_oracles() {
    for tiny in Tiny::all() {
        let Some(backend) = backend() else { return };
        let model = tiny.open();
        let tokens = tokens(40, tiny.vocabulary);
        let want = oracle(model.config(), &model.weights().unwrap(), &tokens);
        let got = Generator::new(backend, &model, options()).unwrap().logits(&tokens).unwrap();
        let scale = want.iter().flatten().fold(0f64, |m, x| m.max(x.abs()));
        for (i, (want, &got)) in want.iter().flatten().zip(&got).enumerate() {
            let error = (want - f64::from(got)).abs();
            assert!(error <= 3e-5 * scale.max(1.0), "{tiny:?}: logit {i} is {got} instead of {want}");
        }
    }
}

#[test]
fn greedy_tokens_are_the_cpus() {
    for tiny in Tiny::all() {
        let Some(backend) = backend() else { return };
        let model = tiny.open();
        let prompt = tokens(30, tiny.vocabulary);
        let want = greedy(CpuBackend::new(2).unwrap(), &model, &prompt, 24);
        assert_eq!(greedy(backend, &model, &prompt, 24), want, "{tiny:?}");
    }
}

/// A step of one token takes 8 bytes and a submission; where a page begins, its number goes across, too.
#[test]
fn eight_bytes_a_step() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("llama", None).open();
    let cache = CacheOptions { page_tokens: 16, ..options().cache };
    let mut g = Generator::new(backend, &model, Options { cache, ..options() }).unwrap();
    let sequence = g.create();
    let mut logits = g.extend(sequence, &tokens(9, 97), gllm_kernels_std::backend::Outputs::Last).unwrap();
    let sampling = Sampling::greedy();
    for position in 9..60 {
        let how = gllm_kernels_std::backend::SampleRow { sampling: &sampling, history: &[], counter: 0 };
        let token = g.backend().sample_from_tensor(&logits, &[how]).unwrap();
        let before = g.backend().traffic();
        logits = g.extend(sequence, &token, gllm_kernels_std::backend::Outputs::Last).unwrap();
        g.backend().sample_from_tensor(&logits, &[how]).unwrap();
        let after = g.backend().traffic();
        let page = if position % 16 == 0 { 4 } else { 0 };
        // The first step of one token has a table of its own.
        if position > 9 {
            assert_eq!(after.to_device - before.to_device, 4 + page, "position {position}");
        }
        assert_eq!(after.from_device - before.from_device, 4);
        assert_eq!(after.submissions - before.submissions, 1);
    }
    assert_ne!(g.backend().traffic(), Traffic::default());
}
