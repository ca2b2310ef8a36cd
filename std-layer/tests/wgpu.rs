//! Whole models on a GPU through wgpu: on the first adapter of this machine, be it software (`mesa-vulkan-drivers` has one).

#[path = "wgpu/encoders.rs"]
mod encoders;
#[path = "decoder/golden.rs"]
mod golden;
#[path = "wgpu/limits.rs"]
mod limits;
#[path = "wgpu/precision.rs"]
mod precision;
#[path = "wgpu/real.rs"]
mod real;
#[path = "wgpu/sampling.rs"]
mod sampling;
#[path = "wgpu/texts.rs"]
mod texts;
#[path = "decoder/tiny.rs"]
mod tiny;
#[path = "wgpu/traffic.rs"]
mod traffic;
#[path = "wgpu/trees.rs"]
mod trees;

use gllm_kernels_std::backend::{
    Backend, BackendError, BackendKind, CacheOptions, CpuBackend, ForwardConfig, KvType, Outputs, Run,
    Topology, WgpuAdapter, WgpuBackend,
};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::model::{Generator, Model, Options, Sampling};
use tiny::{oracle, Tiny};

/// A backend on the first adapter; where there is none, that is said.
fn backend() -> Option<WgpuBackend> {
    let all = WgpuAdapter::all();
    if all.is_empty() {
        golden::say(format_args!("SKIPPED: there is no adapter with Vulkan, Metal or DirectX 12"));
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

/// Models of gpt-oss: attention with sinks, clamped gates, and biases wherever there is a matrix. In the last one six heads share their keys, which
/// are more than a workgroup has.
fn with_sinks() -> impl Iterator<Item = Tiny> {
    let of = |format| Tiny::new("gpt-oss", format);
    let heads = Tiny { head_dim: 36, heads: 6, kv_heads: 1, ..of(None) };
    [of(Some(QuantFormat::Mxfp4)), of(Some(QuantFormat::Q8_0)), heads].into_iter()
}

#[test]
fn logits_are_the_oracles() {
    let all = Tiny::all().into_iter().chain(Tiny::unusual()).chain(Tiny::mixtures());
    let all = all.chain([Tiny::with_best_of_groups()]);
    for tiny in all.chain(with_sinks()).chain(Tiny::rankers()).chain(Tiny::hybrids()).chain(Tiny::latent()) {
        let Some(backend) = backend() else { return };
        let model = tiny.open();
        let tokens = tokens(40, tiny.vocabulary);
        let config = model.config().for_texts_of(options().max_tokens.unwrap());
        let want = oracle(&config, &model.weights().unwrap(), &tokens);
        let got = Generator::new(backend, &model, options()).unwrap().logits(&tokens).unwrap();
        let scale = want.iter().flatten().fold(0f64, |m, x| m.max(x.abs()));
        for (i, (want, &got)) in want.iter().flatten().zip(&got).enumerate() {
            let error = (want - f64::from(got)).abs();
            assert!(error <= 3e-5 * scale.max(1.0), "{tiny:?}: logit {i} is {got} instead of {want}");
        }
    }
}

/// Texts that share their beginning, side by side and one by one.
#[test]
fn scores_are_the_cpus() {
    for tiny in Tiny::rankers() {
        let model = tiny.open();
        let tokens = tokens(120, tiny.vocabulary);
        let texts =
            [20, 50, 21, 120].map(|end| [&tokens[..19], &tokens[end - 1..end], &tokens[19..end]].concat());
        let texts = [0, 1, 2, 3].map(|i| &texts[i][..]);
        let mut cpu = Generator::new(CpuBackend::new(2).unwrap(), &model, options()).unwrap();
        let want = cpu.rank(&texts, None, &mut |_| ()).unwrap();
        for (chunk, sequences) in [(512, 8), (30, 3)] {
            let Some(backend) = backend() else { return };
            let options = Options {
                chunk: Some(chunk),
                cache: CacheOptions { sequences, ..options().cache },
                ..options()
            };
            let got = Generator::new(backend, &model, options).unwrap().rank(&texts, None, &mut |_| ());
            for (want, got) in want.iter().zip(got.unwrap()) {
                assert!((want - got).abs() <= 3e-5, "{tiny:?}: {got} instead of {want}");
            }
        }
    }
}

#[test]
fn greedy_tokens_are_the_cpus() {
    let all = Tiny::all().into_iter().chain(Tiny::mixtures()).chain(with_sinks());
    let all = all.chain([Tiny::new("gemma3n", None)]);
    for tiny in all.chain(Tiny::hybrids()).chain(Tiny::latent()) {
        let Some(backend) = backend() else { return };
        let model = tiny.open();
        let prompt = tokens(30, tiny.vocabulary);
        let want = greedy(CpuBackend::new(2).unwrap(), &model, &prompt, 24);
        assert_eq!(greedy(backend, &model, &prompt, 24), want, "{tiny:?}");
    }
}

/// Scores that are no numbers choose experts that exist.
#[test]
fn routers_that_overflow_do_no_harm() {
    let Some(backend) = backend() else { return };
    let tiny = Tiny { router_scale: 3e38, ..Tiny::new("qwen3moe", None) };
    let mut g = Generator::new(backend, &tiny.open(), options()).unwrap();
    assert!(g.logits(&tokens(40, tiny.vocabulary)).unwrap().iter().any(|x| x.is_nan()));
    assert!(g.logits(&tokens(3, tiny.vocabulary)).is_ok());
}

/// Logits do not depend, beyond rounding, on how a prompt is cut, on pages, on sequences side by side, or on windows that forget.
#[test]
fn cuts_pages_and_sequences() {
    for name in ["llama", "gemma3", "gemma3n", "qwen2moe", "qwen3moe", "gpt-oss", "qwen35"] {
        let Some(backend) = backend() else { return };
        let tiny = Tiny::new(name, Some(QuantFormat::Q8_0));
        let model = tiny.open();
        let all = tokens(600, tiny.vocabulary);
        let want = oracle(model.config(), &model.weights().unwrap(), &all[..300]);
        let close = |row: &[f32], position: usize, what: &str| {
            for (i, (&got, want)) in row.iter().zip(&want[position]).enumerate() {
                let error = (f64::from(got) - want).abs();
                assert!(error <= 3e-4, "{name}, {what}, position {position}, {i}: {got} instead of {want}");
            }
        };
        let cache = CacheOptions { page_tokens: 16, sequences: 3, ..options().cache };
        let mut g = Generator::new(backend, &model, Options { cache, chunk: Some(77), ..options() }).unwrap();
        let (a, b) = (g.create(), g.create());
        // One in small steps behind a long one, past the length at which attention works in pieces.
        g.extend(a, &all[..260], Outputs::None).unwrap();
        for (position, token) in all.iter().enumerate().take(300).skip(260) {
            let logits = g.extend(a, &[*token], Outputs::Last).unwrap();
            close(&g.backend().read_logits(&logits).unwrap(), position, "steps of one");
        }
        // Another beside it, then a third that goes on from where the second is.
        g.extend(b, &all[..40], Outputs::None).unwrap();
        let c = g.fork(b, 40).unwrap();
        let run = |sequence, tokens, outputs| Run { sequence, tokens, outputs };
        let runs = vec![run(c, 3, Outputs::All), run(a, 1, Outputs::None), run(b, 20, Outputs::Last)];
        let step = [&all[40..43], &all[300..301], &all[40..60]].concat();
        let logits = g.forward(&step, &Topology { runs }).unwrap();
        let rows = g.backend().read_logits(&logits).unwrap();
        let positions = [40, 41, 42, 59];
        assert_eq!(rows.len(), positions.len() * tiny.logits());
        for (row, position) in rows.chunks(tiny.logits()).zip(positions) {
            close(row, position, "side by side");
        }
        g.remove(b).unwrap();
        let logits = g.extend(c, &all[43..44], Outputs::Last).unwrap();
        close(&g.backend().read_logits(&logits).unwrap(), 43, "alone again");
    }
}

/// Software is never chosen by itself, and taken if it is asked for.
#[test]
fn software_is_not_chosen() {
    let choice = gllm_kernels_std::backend::choose(1).unwrap();
    let hardware = WgpuAdapter::all().iter().any(|adapter| !adapter.is_software());
    eprintln!("{choice}");
    if !hardware {
        let why = choice.passed_over.iter().find(|passed| passed.0 == BackendKind::Wgpu).unwrap();
        assert!(matches!(why.1, BackendError::NoDevice(_)), "{why:?}");
        assert_eq!(choice.kind, BackendKind::Cpu);
    }
    if !WgpuAdapter::all().is_empty() {
        assert!(BackendKind::Wgpu.open(1).is_ok() || BackendKind::Metal.open(1).is_ok());
    }
    assert_eq!(BackendKind::from_name("wgpu"), Some(BackendKind::Wgpu));
}
