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
    SampleRow, Sequences, Topology,
};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::cuda::Driver;
use gllm_kernels_std::model::{CacheError, Generator, Model, Options, Pooling, Sampling};
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

/// Both ways in which the emulated driver does its work: when somebody waits, and at once. Kernels that start early must not do anything too early.
fn in_both_modes(test: impl Fn(&Fake)) {
    for at_once in [0, 1] {
        test(&Fake::new(&[("at_once", at_once), ("strict", 1)]));
    }
}

/// All kernels of a step but the first start before those before them are done, where the GPU and its driver know how.
#[test]
fn kernels_overlap() {
    let tiny = Tiny::new("llama", Some(QuantFormat::Q4_1));
    let model = tiny.open();
    for (capability, version, overlap) in
        [(90, 12030, true), (120, 13000, true), (90, 12020, false), (89, 13000, false)]
    {
        let fake = Fake::new(&[("capability", capability), ("driver_version", version), ("strict", 1)]);
        let mut g = on_gpu(&fake, &model, Options { max_tokens: Some(256), ..Options::default() });
        let a = g.create();
        let count = || ["kernels", "early kernels"].map(|what| fake.controls.count(what));
        let before = count();
        g.extend(a, &tokens(5, tiny.vocabulary), Outputs::Last).unwrap();
        let [all, early] = [0, 1].map(|i| count()[i] - before[i]);
        assert_eq!(early, if overlap { all - 1 } else { 0 }, "{all} kernels");
    }
}

/// A step of a running generation: 4 bytes to the GPU, 4 bytes back, no allocation, and one recording that is started.
#[test]
fn a_step_moves_eight_bytes() {
    for name in ["llama", "qwen2moe", "gpt-oss"] {
        in_both_modes(|fake| moves_eight_bytes(fake, Tiny::new(name, Some(QuantFormat::Q4_1))));
    }
}

fn moves_eight_bytes(fake: &Fake, tiny: Tiny) {
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
        // The choice of a token has two kernels, or three by chance, and another notes it.
        let beside = if sampling.temperature == 0.0 { 3 } else { 4 };
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
        // The step takes the token where it was chosen.
        assert_eq!(after.uploaded, before.uploaded);
        assert_eq!(after.downloaded - before.downloaded, 4 * steps);
        assert_eq!(fake.controls.allocations(), allocations);
        assert_eq!(fake.controls.count("graphs") - graphs, steps as i32);
        assert!(fake.controls.count("kernels") - kernels <= beside * steps as i32);
    }
    // Token by token, as whoever looks at each before the next step does.
    let mut g = on_gpu(fake, &model, Options { max_tokens: Some(256), ..Options::default() });
    let context = g.backend().context().clone();
    let a = g.create();
    let sampling = Sampling::greedy();
    let how = SampleRow { sampling: &sampling, history: &[], counter: 0 };
    let mut new = tokens(20, tiny.vocabulary);
    let mut at = Vec::new();
    for _ in 0..14 {
        at.push((context.transfers(), fake.controls.count("graphs"), fake.controls.allocations()));
        let logits = g.extend(a, &new, Outputs::Last).unwrap();
        new = g.backend().sample_from_tensor(&logits, &[how]).unwrap();
    }
    for two in at[4..].windows(2) {
        let [before, after] = [&two[0], &two[1]];
        assert_eq!(after.0.uploaded - before.0.uploaded, 4);
        assert_eq!(after.0.downloaded - before.0.downloaded, 4);
        assert_eq!((after.1 - before.1, after.2), (1, before.2));
    }
}

/// How probable tokens are crosses the bus, 4 bytes of each, and not their logits.
#[test]
fn a_log_probability_moves_four_bytes() {
    in_both_modes(|fake| {
        let tiny = Tiny::new("llama", Some(QuantFormat::Q4_1));
        let model = tiny.open();
        let mut g = on_gpu(fake, &model, Options { chunk: Some(16), ..exact() });
        let context = g.backend().context().clone();
        let text = tokens(40, tiny.vocabulary);
        let before = context.transfers();
        let got = g.log_probabilities(&text).unwrap();
        assert_eq!(context.transfers().downloaded - before.downloaded, 4 * 39);
        assert!(got.len() == 39 && got.iter().all(|&x| x < 0.0), "{got:?}");
        // Rows and tokens there, and nothing where one of them does not exist.
        let a = g.create();
        let logits = g.extend(a, &text[..5], Outputs::All).unwrap();
        let before = context.transfers();
        let got = g.backend().log_probabilities(&logits, &[(4, 1), (0, 96), (4, 1)]).unwrap();
        assert!(got[0] == got[2] && got[0] < 0.0, "{got:?}");
        let after = context.transfers();
        assert_eq!((after.uploaded - before.uploaded, after.downloaded - before.downloaded), (24, 12));
        for bad in [(5, 1), (0, 97)] {
            let refused = g.backend().log_probabilities(&logits, &[(0, 1), bad]).unwrap_err();
            assert!(matches!(refused, BackendError::Tokens(_)), "{refused:?}");
        }
        assert_eq!(context.transfers(), after);
    });
}

/// A step that takes its tokens from the GPU is started before they are read, and before the step that they come from is done. Rows whose text ends
/// are not continued, here or there, and what follows is as if the tokens had been read.
#[test]
fn a_step_ahead() {
    for name in ["llama", "qwen35"] {
        step_ahead(Tiny { layers: 2, ..Tiny::new(name, Some(QuantFormat::Q4_1)) });
    }
}

fn step_ahead(tiny: Tiny) {
    let model = tiny.open();
    let penalised = Sampling { repetition: 1.3, temperature: 0.8, seed: 7, ..Sampling::default() };
    for (how, at_once) in [(Sampling::greedy(), 0), (penalised.clone(), 0), (penalised, 1)] {
        let fake = &Fake::new(&[("at_once", at_once)]);
        let prompts = [tokens(20, tiny.vocabulary), tokens(70, tiny.vocabulary)[40..].to_vec()];
        let run = |sequence| Run { sequence, tokens: 1, outputs: Outputs::Last };
        // Both texts, with tokens that are read before each step.
        let mut g = on_gpu(fake, &model, exact());
        let mut want: [Vec<u32>; 2] = prompts.clone();
        for text in &mut want {
            let sequence = g.create();
            let mut logits = g.extend(sequence, text, Outputs::Last).unwrap();
            for counter in 0..12 {
                let row = SampleRow { sampling: &how, history: text, counter };
                let token = g.backend().sample_from_tensor(&logits, &[row]).unwrap()[0];
                text.push(token);
                logits = g.extend(sequence, &[token], Outputs::Last).unwrap();
            }
        }
        // The first text ends where a token first occurs that it has not had.
        let (first, second) = (prompts[0].len(), prompts[1].len());
        let fresh = |&at: &usize| {
            let token = want[0][at];
            !want[0][first..at].contains(&token) && !want[1][second..].contains(&token)
        };
        let end = (first + 3..want[0].len()).find(fresh).expect("a token of its own");
        let stop = [want[0][end]];
        let context = gpu(fake).context().clone();
        let backend = CudaBackend::with_context(&context).unwrap();
        let weights =
            backend.upload_generator_weights(model.config(), &model.weights().unwrap(), &mut |_| ()).unwrap();
        let Options { cache, forward, .. } = exact();
        let mut kv = backend.alloc_kv_cache(1024, model.config(), &cache).unwrap();
        let ids = [backend.create_sequence(&mut kv), backend.create_sequence(&mut kv)];
        let whole = |i: usize| Run { sequence: ids[i], tokens: prompts[i].len(), outputs: Outputs::Last };
        let topology = Topology { runs: vec![whole(0), whole(1)] };
        let mut logits = backend
            .generator_forward_gpu_pure(&prompts.concat(), &topology, &weights, &mut kv, &forward)
            .unwrap();
        let both = Topology { runs: vec![run(ids[0]), run(ids[1])] };
        let (mut got, mut counter) = (prompts.clone(), 0);
        let started = |fake: &Fake| (fake.controls.count("graphs"), fake.controls.count("graphs_done"));
        while got[0].last() != Some(&stop[0]) {
            let rows = [0, 1].map(|i| SampleRow { sampling: &how, history: &got[i], counter });
            let (before, moved) = (started(fake), context.transfers());
            let next = backend.forward_ahead(&logits, (&rows, &stop), &both, &weights, &mut kv, &forward);
            let next = next.unwrap().expect("steps ahead");
            if counter > 3 {
                assert_eq!(started(fake).0, before.0 + 1);
                // Nobody has waited: the step before has not been done either.
                assert_eq!(started(fake).1, if at_once == 1 { before.1 + 1 } else { before.1 });
                assert_eq!(context.transfers().downloaded - moved.downloaded, 8);
                assert_eq!(context.transfers().uploaded, moved.uploaded);
            }
            let chosen = backend.tokens_ahead(&next, &mut kv).unwrap();
            if counter > 3 && at_once == 0 {
                // The step before had to be done for that, this one has yet to be.
                let (graphs, done) = started(fake);
                assert_eq!(graphs - done, 1);
            }
            assert_eq!(backend.tokens_ahead(&next, &mut kv).unwrap(), chosen);
            assert!(backend.tokens_ahead(&logits, &mut kv).is_err());
            got.iter_mut().zip(chosen).for_each(|(text, token)| text.push(token));
            logits = next;
            counter += 1;
        }
        assert!(counter > 3);
        assert_eq!(got[0], want[0][..=end]);
        assert_eq!(got[1], want[1][..got[1].len()]);
        // The token that ends the text is in no page; the other sequence has been continued.
        assert_eq!(kv.pages().positions(ids[0]).unwrap(), end);
        assert_eq!(kv.pages().positions(ids[1]).unwrap(), got[1].len());
        let all = backend.read_logits(&logits).unwrap();
        let one = |g: &mut Generator<CudaBackend>, text: &[u32]| {
            let all = g.logits(text).unwrap();
            all[all.len() - tiny.vocabulary..].to_vec()
        };
        assert_eq!(all[tiny.vocabulary..], one(&mut g, &got[1]));
        // Both go on, the first one with something else than what ended it, whoever knows of that.
        got[0].pop();
        got[0].push(5);
        let last = [got[0][end], *got[1].last().unwrap()];
        // The second sequence has its last token already.
        let logits = backend
            .generator_forward_gpu_pure(
                &last[..1],
                &Topology { runs: vec![run(ids[0])] },
                &weights,
                &mut kv,
                &forward,
            )
            .unwrap();
        assert_eq!(backend.read_logits(&logits).unwrap(), one(&mut g, &got[0]));
        // Tokens that nobody reads are those of the sequences all the same, and what is removed before is not missed.
        let rows = [SampleRow { sampling: &how, history: &got[0], counter }];
        let alone = Topology { runs: vec![run(ids[0])] };
        let ahead = backend.forward_ahead(&logits, (&rows, &stop), &alone, &weights, &mut kv, &forward);
        drop(ahead.unwrap().expect("a step ahead"));
        backend.remove_sequence(&mut kv, ids[0]).unwrap();
        let topology = Topology { runs: vec![run(ids[1])] };
        let logits =
            backend.generator_forward_gpu_pure(&[7], &topology, &weights, &mut kv, &forward).unwrap();
        got[1].push(7);
        assert_eq!(backend.read_logits(&logits).unwrap(), one(&mut g, &got[1]));
        drop((logits, kv, weights, g));
    }
}

/// A cache that has no room for the step ahead still gives the token before it.
#[test]
fn no_room_ahead() {
    let fake = Fake::new(&[]);
    let tiny = Tiny::new("llama", Some(QuantFormat::Q4_1));
    let model = tiny.open();
    let mut g = on_gpu(&fake, &model, Options { max_tokens: Some(64), ..exact() });
    let mut text = g.generate(&tokens(60, tiny.vocabulary), Sampling::greedy()).unwrap().ignore_end();
    for _ in 0..5 {
        text.next().unwrap().unwrap();
    }
    let full = text.next().unwrap().unwrap_err();
    assert!(matches!(full, BackendError::Cache(CacheError::Full { .. })), "{full:?}");
    assert!(text.next().is_none());
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
    let options = Options { max_tokens: Some(112), cache, chunk: Some(16), ..exact() };
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
    // Experts that the kernels do not have.
    let odd = Tiny { intermediate: 100, ..Tiny::new("qwen3moe", None) }.open();
    let error = Generator::new(gpu(&fake), &odd, exact()).unwrap_err().to_string();
    assert!(error.contains("an expert's feed-forward network of 100"), "{error}");
    let phi = Tiny::new("phimoe", None).open();
    let error = Generator::new(gpu(&fake), &phi, exact()).unwrap_err().to_string();
    assert!(error.contains("scored one after the other (Phi 3.5)"), "{error}");
    // A text that asks for no row.
    let run = Run { sequence: g.create(), tokens: 1, outputs: Outputs::None };
    let refused = g.embed(&[&[]], Pooling::Mean).unwrap_err();
    assert!(refused.to_string().contains("0 tokens"), "{refused}");
    let topology = Topology { runs: vec![run] };
    let (backend, config) = (gpu(&fake), ForwardConfig::default());
    let weights =
        backend.upload_generator_weights(model.config(), &model.weights().unwrap(), &mut |_| ()).unwrap();
    let mut kv = backend.alloc_kv_cache(64, model.config(), &CacheOptions::default()).unwrap();
    let none = backend.embedding_forward_gpu_pure(&[1], &topology, &weights, &mut kv, &config, Pooling::Mean);
    assert!(none.unwrap_err().to_string().contains("no row to be pooled"));
    // Heads that the kernels do not have.
    let refused = |odd: Tiny| Generator::new(gpu(&fake), &odd.open(), exact()).unwrap_err().to_string();
    for head_dim in [514, 528] {
        let error = refused(Tiny { head_dim, ..Tiny::new("llama", None) });
        assert!(error.contains(&format!("heads of {head_dim}")), "{error}");
    }
    let error = refused(Tiny { head_dim: 264, ..Tiny::new("gemma2", None) });
    assert!(error.contains("caps of scores") && error.contains("heads of 264"), "{error}");
}
