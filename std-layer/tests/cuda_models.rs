//! Whole models on an emulated GPU: what moves between it and the host, and what happens where memory or the device is lost. What they compute is
//! compared in `cuda_kernels`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod cuda;
// What these models compute in f64 is the business of the CPU's tests.
#[allow(dead_code)]
#[path = "decoder/tiny.rs"]
mod tiny;

use cuda::Fake;
use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, CudaBackend, ForwardConfig, KvType, Outputs, Run,
    Topology,
};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::cuda::Driver;
use gllm_kernels_std::model::{CacheError, Generator, Model, Options, Sampling};
use tiny::Tiny;

/// Any tokens, no two stretches alike.
fn tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * i + 7 * i + i / 11) % vocabulary) as u32).collect()
}

fn exact() -> Options {
    let forward = ForwardConfig { precision: Precision::Exact, ..ForwardConfig::default() };
    let cache = CacheOptions { kind: KvType::F32, sequences: 8, ..CacheOptions::default() };
    Options { forward, cache, max_tokens: Some(1024), ..Options::default() }
}

fn gpu(fake: &Fake) -> CudaBackend {
    let context = Driver::open_at(&fake.path).and_then(|driver| driver.device(0)?.context()).unwrap();
    CudaBackend::with_context(&context).unwrap()
}

fn on_cpu(model: &Model<'_>) -> Generator<CpuBackend> {
    Generator::new(CpuBackend::new(1).unwrap(), model, exact()).unwrap()
}

fn on_gpu(fake: &Fake, model: &Model<'_>, options: Options) -> Generator<CudaBackend> {
    Generator::new(gpu(fake), model, options).unwrap()
}

/// The largest difference of logits, relative to the largest logit.
fn difference(want: &[f32], got: &[f32]) -> f32 {
    assert_eq!(want.len(), got.len());
    let scale = want.iter().fold(1f32, |m, x| m.max(x.abs()));
    let far = |(a, b): (&f32, &f32)| if b.is_nan() { f32::INFINITY } else { (a - b).abs() };
    want.iter().zip(got).map(far).fold(0f32, f32::max) / scale
}

/// Both ways in which the emulated driver does its work: when somebody waits, and at once.
fn in_both_modes(test: impl Fn(&Fake)) {
    for at_once in [0, 1] {
        test(&Fake::new(&[("at_once", at_once)]));
    }
}

/// A step of a running generation: 4 bytes to the GPU, 4 bytes back, no allocation, and one recording that is started.
#[test]
fn a_step_moves_eight_bytes() {
    in_both_modes(|fake| {
        let tiny = Tiny::new("llama", Some(QuantFormat::Q4_1));
        let model = tiny.open();
        let sampling = Sampling { repetition: 1.1, top_k: 20, top_p: 0.95, ..Sampling::default() };
        for (sampling, options) in [
            (Sampling::greedy(), Options::default()),
            (sampling, Options::default()),
            (Sampling::greedy(), exact()),
        ] {
            let options = Options { max_tokens: Some(256), ..options };
            let mut g = on_gpu(fake, &model, options);
            let context = g.backend().context().clone();
            let mut text = g.generate(&tokens(20, tiny.vocabulary), sampling).unwrap();
            // The first steps make room and are recorded.
            for _ in 0..4 {
                text.next().unwrap().unwrap();
            }
            let (before, allocations) = (context.transfers(), fake.controls.allocations());
            let (graphs, kernels) = (fake.controls.count("graphs"), fake.controls.count("kernels"));
            let steps = 10;
            for _ in 0..steps {
                text.next().unwrap().unwrap();
            }
            let after = context.transfers();
            assert_eq!(after.uploaded - before.uploaded, 4 * steps);
            assert_eq!(after.downloaded - before.downloaded, 4 * steps);
            assert_eq!(fake.controls.allocations(), allocations);
            assert_eq!(fake.controls.count("graphs") - graphs, steps as i32);
            // Beside it only the choice of the token, and what is noted of it.
            assert!(fake.controls.count("kernels") - kernels <= 2 * steps as i32);
        }
    });
}

#[test]
fn a_full_cache_is_an_error_that_passes() {
    let fake = Fake::new(&[]);
    let model = Tiny::new("llama", Some(QuantFormat::Q8_0)).open();
    let mut g = on_gpu(&fake, &model, Options { max_tokens: Some(128), ..exact() });
    let all = tokens(100, 97);
    let (a, b) = (g.create(), g.create());
    g.extend(a, &all[..64], Outputs::Last).unwrap();
    g.extend(b, &all[..60], Outputs::Last).unwrap();
    let full = g.extend(b, &all[60..70], Outputs::Last).unwrap_err();
    assert!(matches!(full, BackendError::Cache(CacheError::Full { needed: 1, free: 0, .. })), "{full:?}");
    assert_eq!(g.pages().positions(b), Ok(60));
    g.remove(a).unwrap();
    let after = g.extend(b, &all[60..70], Outputs::Last).unwrap();
    let got = g.backend().read_logits(&after).unwrap();
    let want = on_cpu(&model).logits(&all[..70]).unwrap();
    assert!(difference(&want[69 * 97..], &got) <= 3e-5);
}

#[test]
fn windows_free_their_pages() {
    let fake = Fake::new(&[]);
    let tiny = Tiny { layers: 2, ..Tiny::new("gemma3", Some(QuantFormat::Q8_0)) };
    let model = tiny.open();
    // Both layers are local: 24 positions are seen. The cache could not hold 200, and the tables begin with fewer.
    let cache = CacheOptions { page_tokens: 16, step_tokens: 16, sequences: 1, ..exact().cache };
    let options = Options { max_tokens: Some(112), cache, chunk: 16, ..exact() };
    let all = tokens(200, tiny.vocabulary);
    let want = on_cpu(&model).logits(&all).unwrap();
    let got = on_gpu(&fake, &model, options).logits(&all).unwrap();
    let far = difference(&want, &got);
    assert!(far <= 3e-5, "off by {far}");
}

/// Too little memory, at whatever point: an error, nothing is left behind, and the CPU goes on.
#[test]
fn out_of_memory() {
    let tiny = Tiny::new("llama", Some(QuantFormat::Q8_0));
    let model = tiny.open();
    let prompt = tokens(30, tiny.vocabulary);
    let run = |fake: &Fake| -> Result<Vec<f32>, String> {
        let options = Options { max_tokens: Some(256), ..exact() };
        let mut g = Generator::new(gpu(fake), &model, options).map_err(|e| e.to_string())?;
        g.logits(&prompt).map_err(|e| e.to_string())
    };
    let (mut enough, mut refused) = (false, 0);
    for memory in (12..28).map(|bits| 1i64 << bits) {
        let fake = Fake::new(&[("memory", memory)]);
        match run(&fake) {
            Ok(_) => enough = true,
            Err(error) => {
                assert!(error.contains("a piece of GPU memory") && !enough, "{memory} bytes: {error}");
                refused += 1;
            }
        }
        assert_eq!(fake.controls.allocations(), 0, "{memory} bytes");
    }
    assert!(enough && refused > 3, "{refused} refused");
    on_cpu(&model).logits(&prompt).unwrap();
}

/// A device that is lost in the middle of a text: an error that says so, from then on.
#[test]
fn a_lost_device() {
    let fake = Fake::new(&[]);
    let tiny = Tiny::new("llama", Some(QuantFormat::Q8_0));
    let model = tiny.open();
    let mut g = on_gpu(&fake, &model, exact());
    let mut text = g.generate(&tokens(10, tiny.vocabulary), Sampling::greedy()).unwrap();
    for _ in 0..3 {
        text.next().unwrap().unwrap();
    }
    fake.controls.set("wait", 719);
    let lost = text.next().unwrap().unwrap_err();
    assert!(matches!(&lost, BackendError::Lost(why) if why.contains("CUDA_ERROR_LAUNCH_FAILED")), "{lost:?}");
    assert!(text.next().is_none());
    drop(text);
    drop(g);
    assert_eq!(fake.controls.allocations(), 0);
    on_cpu(&model).logits(&[1, 2, 3]).unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let fake = Fake::new(&[]);
    let model = Tiny::new("llama", Some(QuantFormat::Q8_0)).open();
    let mut g = on_gpu(&fake, &model, exact());
    let a = g.create();
    let run = |tokens| Run { sequence: a, tokens, outputs: Outputs::Last };
    let refused = |e: Result<_, BackendError>| match e {
        Err(BackendError::Tokens(what)) => what,
        other => panic!("{other:?}"),
    };
    assert!(refused(g.forward(&[1, 97], &Topology { runs: vec![run(2)] })).contains("token 97"));
    assert!(refused(g.forward(&[1], &Topology { runs: vec![run(2)] })).contains("have 2"));
    g.remove(a).unwrap();
    let gone = g.extend(a, &[1], Outputs::Last).unwrap_err();
    assert!(matches!(gone, BackendError::Cache(CacheError::Unknown(_))), "{gone:?}");
    // Heads that the kernels do not have.
    for head_dim in [6, 36, 100, 120, 272] {
        let odd = Tiny { head_dim, ..Tiny::new("llama", None) }.open();
        let error = Generator::new(gpu(&fake), &odd, exact()).unwrap_err().to_string();
        assert!(error.contains(&format!("heads of {head_dim}")), "{error}");
    }
}
