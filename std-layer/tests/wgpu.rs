//! Whole models on a GPU through wgpu: on the first adapter of this machine, be it software (`mesa-vulkan-drivers` has one).

#[path = "decoder/golden.rs"]
mod golden;
#[path = "decoder/tiny.rs"]
mod tiny;

use gllm_kernels_std::backend::{
    Backend, BackendError, BackendKind, CacheOptions, CpuBackend, ForwardConfig, KvType, Outputs, Run,
    SampleRow, Topology, WgpuAdapter, WgpuBackend,
};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::model::{sample, CacheError, Generator, Model, Options, Pooling, Sampling};
use gllm_testkit::data::Source;
use tiny::{divergence, hidden, oracle, Tiny};

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

#[test]
fn logits_are_the_oracles() {
    for tiny in Tiny::all().into_iter().chain(Tiny::mixtures()).chain(Tiny::rankers()) {
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
            let options =
                Options { chunk, cache: CacheOptions { sequences, ..options().cache }, ..options() };
            let got = Generator::new(backend, &model, options).unwrap().rank(&texts, None, &mut |_| ());
            for (want, got) in want.iter().zip(got.unwrap()) {
                assert!((want - got).abs() <= 3e-5, "{tiny:?}: {got} instead of {want}");
            }
        }
    }
}

#[test]
fn greedy_tokens_are_the_cpus() {
    for tiny in Tiny::all().into_iter().chain(Tiny::mixtures()) {
        let Some(backend) = backend() else { return };
        let model = tiny.open();
        let prompt = tokens(30, tiny.vocabulary);
        let want = greedy(CpuBackend::new(2).unwrap(), &model, &prompt, 24);
        assert_eq!(greedy(backend, &model, &prompt, 24), want, "{tiny:?}");
    }
}

/// A step of one token takes 8 bytes and a submission; where a page begins, its number goes across, too.
fn takes_eight_bytes(tiny: Tiny, page_tokens: usize, positions: std::ops::Range<usize>) {
    let Some(backend) = backend() else { return };
    let model = tiny.open();
    let cache = CacheOptions { page_tokens, ..options().cache };
    let mut g = Generator::new(backend, &model, Options { cache, ..options() }).unwrap();
    let sequence = g.create();
    let mut logits = g.extend(sequence, &tokens(positions.start, 97), Outputs::Last).unwrap();
    let sampling = Sampling::greedy();
    for position in positions.clone() {
        let how = SampleRow { sampling: &sampling, history: &[], counter: 0 };
        let token = g.backend().sample_from_tensor(&logits, &[how]).unwrap();
        let before = g.backend().traffic();
        logits = g.extend(sequence, &token, Outputs::Last).unwrap();
        g.backend().sample_from_tensor(&logits, &[how]).unwrap();
        let after = g.backend().traffic();
        let page = if position % page_tokens == 0 { 4 } else { 0 };
        // The first step of one token has a table of its own.
        if position > positions.start {
            assert_eq!(after.to_device - before.to_device, 4 + page, "{tiny:?}, position {position}");
        }
        assert_eq!(after.from_device - before.from_device, 4);
        assert_eq!(after.submissions - before.submissions, 1);
    }
}

#[test]
fn eight_bytes_a_step() {
    takes_eight_bytes(Tiny::new("llama", None), 16, 9..60);
}

/// With experts, whose choice the host never learns, it is the same.
#[test]
fn eight_bytes_a_step_with_experts() {
    for tiny in Tiny::mixtures() {
        takes_eight_bytes(tiny, 64, 9..15);
    }
}

/// Token by token, with what experts multiply rounded to 8 bits: logits diverge from the oracle's by no more than the CPU's may. All experts
/// are used, as rounding decides between two that score nearly alike.
#[test]
fn experts_with_rounded_activations() {
    for tiny in Tiny::mixtures().filter(|tiny| tiny.format.is_some_and(|format| format.block_len() > 1)) {
        let Some(backend) = backend() else { return };
        let tiny = Tiny { experts: tiny.experts.map(|(count, _)| (count, count)), ..tiny };
        let model = tiny.open();
        let tokens = tokens(40, tiny.vocabulary);
        let want = oracle(model.config(), &model.weights().unwrap(), &tokens);
        let forward = ForwardConfig::default();
        let mut g = Generator::new(backend, &model, Options { forward, ..options() }).unwrap();
        let sequence = g.create();
        let of_token = |(token, want): (&u32, &Vec<f64>)| {
            let logits = g.extend(sequence, &[*token], Outputs::Last).unwrap();
            divergence(want, &g.backend().read_logits(&logits).unwrap())
        };
        let mean = tokens.iter().zip(&want).map(of_token).sum::<f64>() / want.len() as f64;
        // Rounding is there, but not more of it.
        assert!(mean > 1e-7 && mean < 4e-3, "{tiny:?}: KL divergence {mean}");
    }
}

/// Prompts in f16: logits diverge from the oracle's a little, weights in f32 and `Exact` aside, where they are the same with f16 and without.
#[test]
fn prompts_in_f16() {
    let mixtures = Tiny::mixtures().map(|tiny| Tiny { experts: tiny.experts.map(|(n, _)| (n, n)), ..tiny });
    for tiny in Tiny::all().into_iter().chain(mixtures) {
        let Some(adapter) = WgpuAdapter::all().into_iter().next() else { return };
        let model = tiny.open();
        let tokens = tokens(40, tiny.vocabulary);
        let logits = |backend, precision| {
            let forward = ForwardConfig { precision, ..ForwardConfig::default() };
            let mut g = Generator::new(backend, &model, Options { forward, ..options() }).unwrap();
            g.logits(&tokens).unwrap()
        };
        let in_f16 = |precision| match WgpuBackend::with_f16(&adapter) {
            Ok(backend) => Some(logits(backend, precision)),
            Err(why) => {
                golden::say(format_args!("SKIPPED: {why}"));
                None
            }
        };
        let exact = logits(WgpuBackend::on(&adapter).unwrap(), Precision::Exact);
        let (Some(same), Some(got)) = (in_f16(Precision::Exact), in_f16(Precision::Integer)) else { return };
        assert!(exact == same, "{tiny:?}");
        let want = oracle(model.config(), &model.weights().unwrap(), &tokens);
        let of_row = |(want, got): (&Vec<f64>, &[f32])| divergence(want, got);
        let mean = want.iter().zip(got.chunks(want[0].len())).map(of_row).sum::<f64>() / want.len() as f64;
        // Rounding is there, but not more of it.
        assert!((got == exact) == tiny.format.is_none() && mean < 1e-3, "{tiny:?}: KL divergence {mean}");
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

/// Rows of texts, in one step and in several, are those of the oracle and the CPU.
#[test]
fn texts_become_rows() {
    for tiny in [Tiny::new("qwen3", Some(QuantFormat::Q8_0)), Tiny::new("qwen2moe", Some(QuantFormat::Q8_0))]
    {
        let model = tiny.open();
        let weights = model.weights().unwrap();
        let all = tokens(60, tiny.vocabulary);
        let texts = [&all[..17], &all[5..6], &all[20..60], &all[1..2]];
        let of: Vec<_> = texts.iter().map(|text| hidden(model.config(), &weights, text)).collect();
        for pooling in [Pooling::Mean, Pooling::First, Pooling::Last] {
            let Some(backend) = backend() else { return };
            let mut g = Generator::new(backend, &model, Options { chunk: 50, ..options() }).unwrap();
            let rows = g.embed(&texts, pooling).unwrap();
            let mut cpu = Generator::new(CpuBackend::new(2).unwrap(), &model, options()).unwrap();
            let of_cpu = cpu.embed(&texts, pooling).unwrap();
            for (i, ((row, cpu), of)) in rows.iter().zip(&of_cpu).zip(&of).enumerate() {
                let own = match pooling {
                    Pooling::First => &of[..1],
                    Pooling::Last => &of[of.len() - 1..],
                    _ => &of[..],
                };
                let sum: Vec<f64> = (0..tiny.hidden).map(|c| own.iter().map(|x| x[c]).sum()).collect();
                let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
                for ((x, &y), &cpu) in sum.iter().zip(row).zip(cpu) {
                    let (x, y) = (x / length, f64::from(y));
                    assert!((x - y).abs() < 2e-5, "{tiny:?}, {pooling:?}, text {i}: {y} instead of {x}");
                    assert!((f64::from(cpu) - y).abs() < 2e-5, "{tiny:?}, {pooling:?}, text {i}: {y}, {cpu}");
                }
            }
            // A prompt behind it has logits again.
            let logits = g.logits(&all[..17]).unwrap();
            let want = oracle(model.config(), &weights, &all[..17]);
            let near = |(want, &got): (&f64, &f32)| (want - f64::from(got)).abs() <= 1e-3;
            assert!(want.iter().flatten().zip(&logits).all(near), "{tiny:?}, {pooling:?}");
        }
    }
}

/// A text of which no row is asked for cannot be pooled, and changes nothing.
#[test]
fn texts_without_rows_are_refused() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("qwen3", None).open();
    let (config, options) = (model.config(), options());
    let weights = backend.upload_generator_weights(config, &model.weights().unwrap(), &mut |_| ()).unwrap();
    let mut kv = backend.alloc_kv_cache(64, config, &options.cache).unwrap();
    let sequence = backend.create_sequence(&mut kv);
    let mut embed = |outputs| {
        let topology = Topology { runs: vec![Run { sequence, tokens: 2, outputs }] };
        let how = &options.forward;
        backend.embedding_forward_gpu_pure(&[1, 2], &topology, &weights, &mut kv, how, Pooling::Mean)
    };
    let refused = embed(Outputs::None);
    assert!(matches!(refused, Err(BackendError::Tokens(_))), "{refused:?}");
    assert_eq!(embed(Outputs::All).unwrap().rows(), 1);
    assert_eq!(backend.pages(&kv).positions(sequence), Ok(2));
}

/// The same with chance and penalties: random numbers and histories go on by themselves.
#[test]
fn eight_bytes_a_step_with_chance() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("llama", None).open();
    let mut g = Generator::new(backend, &model, options()).unwrap();
    let sequence = g.create();
    let prompt = tokens(9, 97);
    let mut logits = g.extend(sequence, &prompt, Outputs::Last).unwrap();
    let sampling = Sampling { seed: 5, repetition: 1.2, top_k: 20, top_p: 0.9, ..Sampling::default() };
    let mut history = prompt;
    // Room for 32 tokens is made at first.
    for counter in 0..20 {
        let before = g.backend().traffic();
        let how = SampleRow { sampling: &sampling, history: &history, counter };
        let token = g.backend().sample_from_tensor(&logits, &[how]).unwrap()[0];
        let after = g.backend().traffic();
        let mut row = g.backend().read_logits(&logits).unwrap();
        assert_eq!(token, sample(&mut row, &history, counter, 0, &sampling).unwrap());
        if counter > 0 && history.len() != 16 {
            assert_eq!(after.to_device, before.to_device, "token {counter}");
        }
        assert_eq!(after.from_device - before.from_device, 4);
        assert_eq!(after.submissions - before.submissions, 1);
        history.push(token);
        logits = g.extend(sequence, &[token], Outputs::Last).unwrap();
    }
}

/// Every combination of parameters, on logits of every kind: the token that the definition chooses.
#[test]
fn sampling_is_its_definition() {
    let Some(backend) = backend() else { return };
    let mut source = Source::new(3);
    for n in [1, 2, 31, 255, 256, 257, 1000, 5000] {
        for kind in 0..6 {
            let rows = 7;
            let mut logits: Vec<f32> = source.normals::<f32>(n * rows).iter().map(|x| x * 5.0).collect();
            match kind {
                1 => logits.iter_mut().for_each(|x| *x = x.round()),
                2 => logits.iter_mut().step_by(3).for_each(|x| *x = f32::NAN),
                3 => logits.iter_mut().step_by(2).for_each(|x| *x = f32::NEG_INFINITY),
                4 => logits.fill([f32::NAN, f32::NEG_INFINITY, 0.0, -0.0][n % 4]),
                5 => logits.iter_mut().step_by(n).for_each(|x| *x = f32::INFINITY),
                _ => {}
            }
            let handle = backend.upload_logits(&logits, n).unwrap();
            let history: Vec<u32> = (0..40).map(|_| source.below(n.min(20) + 2) as u32).collect();
            for _ in 0..8 {
                let all: Vec<(Sampling, u64)> = (0..rows).map(|_| some_sampling(&mut source, n)).collect();
                let ways: Vec<_> = all
                    .iter()
                    .map(|(sampling, counter)| SampleRow { sampling, history: &history, counter: *counter })
                    .collect();
                let got = backend.sample_from_tensor(&handle, &ways).unwrap();
                for (((row, way), got), i) in logits.chunks(n).zip(&ways).zip(got).zip(0..) {
                    let want = sample(&mut row.to_vec(), &history, way.counter, 0, way.sampling).unwrap();
                    assert_eq!(got, want, "{n} logits of kind {kind}, row {i}: {:?}", way.sampling);
                }
            }
        }
    }
}

/// Any parameters, and a number of random numbers.
fn some_sampling(source: &mut Source, n: usize) -> (Sampling, u64) {
    let token = source.below(n) as u32;
    let mut pick = |all: &[f32]| all[source.below(all.len())];
    let sampling = Sampling {
        repetition: pick(&[1.0, 1.3, 0.5, 1e30]),
        frequency: pick(&[0.0, 0.4, -0.7]),
        presence: pick(&[0.0, 1.1, -2.0]),
        temperature: pick(&[0.0, 1e-30, 0.1, 0.8, 1.0, 3.0, 1e30]),
        top_p: pick(&[1.0, 2.0, 0.95, 0.5, 1e-9]),
        min_p: pick(&[0.0, 0.05, 0.3, 1.0]),
        last_n: [0, 7, usize::MAX][source.below(3)],
        logit_bias: [vec![], vec![(token, 8.0)], vec![(token, f32::NEG_INFINITY), (0, 1.5), (token, 2.0)]]
            [source.below(3)]
        .clone(),
        top_k: [0, 1, 2, 40, n, n + 5, 300][source.below(7)],
        seed: source.below(1 << 50) as u64,
    };
    (sampling, source.below(1 << 40) as u64)
}

/// Logits do not depend, beyond rounding, on how a prompt is cut, on pages, on sequences side by side, or on windows that forget.
#[test]
fn cuts_pages_and_sequences() {
    for name in ["llama", "gemma3", "qwen2moe", "qwen3moe"] {
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
        let mut g = Generator::new(backend, &model, Options { cache, chunk: 77, ..options() }).unwrap();
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

/// Real models: logits close to the exact reference's, and its text as far as it is sure.
#[test]
fn real_models() {
    for (name, model) in golden::models() {
        let Some(backend) = backend() else { return };
        // Software is slow.
        let (prompts, tokens) =
            if backend.adapter().is_software() { (2, 12) } else { (usize::MAX, usize::MAX) };
        let cache = CacheOptions { kind: KvType::F16, ..CacheOptions::default() };
        let options = Options { cache, max_tokens: Some(512), ..options() };
        let mut g = Generator::new(backend, &model, options).unwrap();
        let vocabulary = model.config().vocabulary;
        let (mut largest, mut texts) = (0f64, 0);
        for (i, golden) in golden::golden(name).iter().enumerate().take(prompts) {
            let logits = g.logits(&golden.tokens).unwrap();
            for (row, want) in logits.chunks(vocabulary).zip(&golden.rows) {
                for &(token, want) in &want.top {
                    largest = largest.max((f64::from(row[token]) - want).abs());
                }
            }
            let text = g.generate(&golden.tokens, Sampling::greedy()).unwrap();
            for (n, (token, &(want, margin))) in text.zip(&golden.greedy).take(tokens).enumerate() {
                let token = token.unwrap();
                if token != want {
                    assert!(
                        margin <= 0.1,
                        "{name}, prompt {i}, token {n}: {token} instead of {want}, ahead by {margin}"
                    );
                    break;
                }
                texts += 1;
            }
        }
        eprintln!("{name}: logits within {largest:.1e}, {texts} tokens of text");
        // What rounding keys and values to f16 changes.
        assert!(largest <= 0.15, "{name}: {largest}");
    }
}

/// Real models, token by token, with activations that are rounded to 8 bits: logits diverge from the exact reference's by no more than
/// llama.cpp's do.
#[test]
fn rounded_activations() {
    for (name, model) in golden::models() {
        let Some(backend) = backend() else { return };
        let cache = CacheOptions { kind: KvType::F16, ..CacheOptions::default() };
        let mut g =
            Generator::new(backend, &model, Options { cache, max_tokens: Some(512), ..Options::default() })
                .unwrap();
        let golden = &golden::golden(name)[0];
        let sequence = g.create();
        let (mut ours, mut theirs, mut n) = (0.0, 0.0, 0);
        for (token, row) in golden.tokens.iter().zip(&golden.rows).take(24) {
            let logits = g.extend(sequence, &[*token], Outputs::Last).unwrap();
            let logits = g.backend().read_logits(&logits).unwrap();
            let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            // Of the largest logits, and of all others together.
            let pairs: Vec<_> = row
                .top
                .iter()
                .map(|&(token, want)| ((want - row.lse).exp(), f64::from(logits[token]).exp() / sum))
                .collect();
            let rest = pairs.iter().fold((1.0, 1.0), |rest, pair| (rest.0 - pair.0, rest.1 - pair.1));
            let all = pairs.into_iter().chain((rest.0 > 1e-9).then_some(rest));
            ours += all.map(|(p, q): (f64, f64)| p * (p / q).ln()).sum::<f64>();
            theirs += row.kl;
            n += 1;
        }
        let [ours, theirs] = [ours, theirs].map(|sum| sum / f64::from(n));
        eprintln!("{name}: divergence {ours:.1e}, llama.cpp's {theirs:.1e}");
        // Rounding is there, but not more of it.
        assert!(ours > 1e-6 && ours <= theirs, "{name}: {ours} and {theirs}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("llama", None).open();
    let mut g = Generator::new(backend, &model, Options { max_tokens: Some(128), ..options() }).unwrap();
    let a = g.create();
    let run = |tokens| Run { sequence: a, tokens, outputs: Outputs::Last };
    let refused = g.forward(&[1, 97], &Topology { runs: vec![run(2)] });
    assert!(matches!(refused, Err(BackendError::Tokens(_))), "{refused:?}");
    let full = g.extend(a, &tokens(200, 97), Outputs::Last).unwrap_err();
    assert!(matches!(full, BackendError::Cache(CacheError::Full { .. })), "{full:?}");
    // What was on the device before is still there.
    g.remove(a).unwrap();
    let a = g.create();
    assert!(g.extend(a, &tokens(100, 97), Outputs::Last).is_ok());
    // A cache larger than the device's buffers.
    let Some(backend) = self::backend() else { return };
    let huge = backend.alloc_kv_cache(1 << 40, model.config(), &CacheOptions::default()).unwrap_err();
    assert!(matches!(huge, BackendError::Limit { need, allowed, .. } if need > allowed), "{huge:?}");
    // More rows of logits than a buffer has room for a tile of.
    let wide = backend.upload_logits(&[0.0; 9], 1).and_then(|_| backend.upload_logits(&[0.0; 3], 2));
    assert!(matches!(wide, Err(BackendError::Tokens(_))), "{wide:?}");
}

/// Where a buffer may be small, matrices and logits are split: products of a few rows that a split leaves over are summed in another
/// order, so results are the same within rounding. What cannot be split is refused with both numbers.
#[test]
fn small_buffers_are_enough() {
    let all = WgpuAdapter::all();
    let Some(adapter) = all.first() else { return drop(backend()) };
    small_buffers(adapter, Tiny { vocabulary: 400, ..Tiny::new("qwen2", None) }, 64 << 10);
    // Gates and up of six experts have 288 KiB, and the gates of 64 rows and their three experts 144 KiB.
    small_buffers(adapter, Tiny { vocabulary: 400, ..Tiny::new("qwen2moe", None) }, 160 << 10);
}

fn small_buffers(adapter: &WgpuAdapter, tiny: Tiny, bytes: u64) {
    let model = tiny.open();
    let tokens = tokens(70, tiny.vocabulary);
    let cache = CacheOptions { page_tokens: 16, ..options().cache };
    let options = Options { max_tokens: Some(80), chunk: 40, cache, ..options() };
    let logits = |bytes: u64| {
        let backend = WgpuBackend::with_largest(adapter, bytes)?;
        let mut g = Generator::new(backend, &model, options).map_err(|e| match e {
            gllm_kernels_std::model::GeneratorError::Backend(e) => e,
            e => panic!("{e}"),
        })?;
        g.logits(&tokens)
    };
    // What a step has room for without experts: 64 rows of 256 numbers of heads. The largest matrices have 100 KiB, and 40 rows of logits 64,000
    // bytes, but products fill tiles of 32 rows.
    let want = logits(u64::MAX).unwrap();
    let got = logits(bytes).unwrap();
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let off = got.iter().zip(&want).fold(0.0, |most: f32, (a, b)| most.max((a - b).abs()));
    assert!(off <= 4e-6 * largest, "with buffers of {bytes} bytes: off by {off} of {largest}");
    let refused = logits(4 << 10).unwrap_err();
    assert!(matches!(refused, BackendError::Limit { need, allowed: 4096, .. } if need > 4096), "{refused:?}");
}

/// A device that is lost gives errors, whatever is done; a new backend works.
#[test]
fn a_lost_device_is_an_error() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("llama", None).open();
    let mut g = Generator::new(backend, &model, options()).unwrap();
    let a = g.create();
    let logits = g.extend(a, &[1, 2, 3], Outputs::Last).unwrap();
    g.backend().destroy();
    let read = g.backend().read_logits(&logits).unwrap_err();
    assert!(matches!(read, BackendError::Lost(_)), "{read:?}");
    let step = g.extend(a, &[4], Outputs::Last).unwrap_err();
    assert!(matches!(step, BackendError::Lost(_)), "{step:?}");
    let cache = g.backend().alloc_kv_cache(64, model.config(), &CacheOptions::default()).unwrap_err();
    assert!(matches!(cache, BackendError::Lost(_)), "{cache:?}");
    let Some(backend) = self::backend() else { return };
    assert_eq!(greedy(backend, &model, &[1, 2, 3], 4).len(), 4);
}

/// Memory that runs out is an error with its numbers; what was had until then is free again, the backend goes on, and a new one can be made.
/// A limit on the memory of a process stands in for that of a GPU, as long as the adapter is software: it has a process of its own.
#[cfg(target_os = "linux")]
#[test]
fn memory_runs_out() {
    let Some(backend) = backend() else { return };
    if !backend.adapter().is_software() {
        return golden::say(format_args!("SKIPPED: memory of {} cannot be limited", backend.adapter()));
    }
    let test = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["in_little_memory", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = [test.stdout, test.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(test.status.success() && said.contains("1 passed"), "{}: {said}", test.status);
}

/// The most memory that this process may have, from now on: so much more than it has.
#[cfg(target_os = "linux")]
fn limit_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    // SAFETY: it takes a number and gives a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let has = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * page;
    let limit = libc::rlimit { rlim_cur: has + more, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it reads a structure that is there.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "it limits the memory of its process: `memory_runs_out` makes one for it"]
fn in_little_memory() {
    const MIB: usize = 1 << 20;
    let Some(backend) = backend() else { return };
    let model = Tiny { layers: 8, ..Tiny::new("llama", None) }.open();
    let mut g = Generator::new(backend, &model, options()).unwrap();
    let text = |g: &mut Generator<WgpuBackend>| -> Vec<u32> {
        g.generate(&[1, 2, 3], Sampling::greedy()).unwrap().take(8).map(Result::unwrap).collect()
    };
    let want = text(&mut g);
    // A token has 2 heads of 32 keys and values in f32: 512 bytes a layer. All caches together would take more than there is.
    limit_memory(512 << 20);
    let cache = |mib: usize| g.backend().alloc_kv_cache(mib * MIB / 512, model.config(), &options().cache);
    for _ in 0..4 {
        let error = cache(120).map(drop).unwrap_err();
        let BackendError::OutOfMemory { what, bytes } = &error else { panic!("{error:?}") };
        assert!(what.contains("keys and values") && *bytes >= 120 << 20, "{error}");
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        drop(cache(40).unwrap());
    }
    assert_eq!(text(&mut g), want);
    drop(g);
    let mut g = Generator::new(self::backend().unwrap(), &model, options()).unwrap();
    assert_eq!(text(&mut g), want);
}

/// What only the CPU computes is refused when weights are uploaded.
#[test]
fn sinks_are_refused() {
    let Some(backend) = backend() else { return };
    let error = Generator::new(backend, &Tiny::new("gpt-oss", None).open(), options()).unwrap_err();
    assert!(
        error.to_string().contains("gpt-oss on a GPU: only the CPU backend has attention sinks"),
        "{error}"
    );
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
