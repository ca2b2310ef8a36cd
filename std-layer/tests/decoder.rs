//! Whole models on the CPU.

#[path = "decoder/exact.rs"]
mod exact;
#[path = "decoder/golden.rs"]
mod golden;
#[path = "decoder/real.rs"]
mod real;
#[path = "decoder/tiny.rs"]
mod tiny;

use exact::{exact, generator};
use gllm_kernels_std::backend::{
    choose_for, Backend, BackendError, BackendKind, CacheOptions, CpuBackend, KvType, Outputs, Run, Topology,
};
use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{CacheError, Generator, Options, Pooling, Sampling};
use gllm_testkit::effort;
use tiny::{divergence, embedding, oracle, Tiny};

/// Any tokens, no two stretches alike.
fn tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * i + 7 * i + i / 11) % vocabulary) as u32).collect()
}

/// Attention with sinks, and experts with biases.
fn with_sinks() -> impl Iterator<Item = Tiny> {
    let of = |format| Tiny::new("gpt-oss", format);
    let formats = [None, Some(QuantFormat::Mxfp4), Some(QuantFormat::Q8_0), Some(QuantFormat::F16)].map(of);
    let heads = Tiny { head_dim: 36, heads: 8, ..of(None) };
    formats.into_iter().chain([heads])
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// `otherwise` where all runs on an emulator, which is slow: how models are computed depends on the instruction set in the kernels alone.
fn under_emulation(natively: usize, otherwise: usize) -> usize {
    if effort() == 1 {
        otherwise
    } else {
        natively
    }
}

#[test]
fn exact_logits_are_the_oracles() {
    let all = Tiny::all().into_iter().chain(Tiny::others()).chain(Tiny::mixtures());
    let all = all.chain(Tiny::hybrids()).chain(Tiny::latent()).chain([Tiny::with_best_of_groups()]);
    // Which GPUs refuse.
    let on_the_cpu = [None, Some(QuantFormat::Q8_0)].map(|format| Tiny::new("phimoe", format));
    let all = all.chain(with_sinks()).chain(Tiny::rankers()).chain(on_the_cpu);
    for tiny in all.step_by(under_emulation(1, 7)) {
        let model = tiny.open();
        let tokens = tokens(40, tiny.vocabulary);
        let config = model.config().for_texts_of(exact().max_tokens.unwrap());
        let want = oracle(&config, &model.weights().unwrap(), &tokens);
        let got = generator(&model, 2, exact()).logits(&tokens).unwrap();
        let scale = want.iter().flatten().fold(0f64, |m, x| m.max(x.abs()));
        for (i, (want, &got)) in want.iter().flatten().zip(&got).enumerate() {
            let error = (want - f64::from(got)).abs();
            assert!(error <= 3e-6 * scale.max(1.0) * 10.0, "{tiny:?}: logit {i} is {got} instead of {want}");
        }
    }
}

/// The kernels of GPUs lack what a model may have, but none whose architecture is known, except for several residual streams.
#[test]
fn kinds_that_lack_a_part_are_passed_over() {
    let config = |name| Tiny::new(name, None).open().config().clone();
    let mut bounded = config("olmo2");
    bounded.attention_clamp = Some(1.0);
    let mut grouped = config("deepseek2");
    let experts = grouped.experts.as_mut().unwrap();
    let groups = experts.groups.as_mut().unwrap();
    (groups.count, experts.count) = (33, 66);
    for (config, says) in [
        (bounded, "bounds of queries and keys that are normed as a whole"),
        (grouped, "33 groups of experts"),
        (config("gemma3n"), "several residual streams"),
        (config("phimoe"), "scored one after the other"),
    ] {
        let choice = choose_for(&config, 1).unwrap();
        assert_eq!(choice.kind, BackendKind::Cpu);
        let (_, why) = choice.passed_over.iter().find(|(kind, _)| *kind == BackendKind::Cuda).unwrap();
        assert!(why.to_string().contains(says), "{why}");
    }
    let all = Tiny::all().into_iter().chain(Tiny::others()).chain(Tiny::mixtures()).chain(Tiny::hybrids());
    for tiny in all.filter(|tiny| tiny.architecture != "gemma3n").step_by(under_emulation(1, 20)) {
        let choice = choose_for(tiny.open().config(), 1).unwrap();
        for (kind, why) in choice.passed_over {
            let no_device = !matches!(why, BackendError::Unsupported(_));
            assert!(no_device, "{tiny:?} through {kind:?}: {why}");
        }
    }
}

/// A text has no more tokens than there are embeddings of positions.
#[test]
fn texts_end_where_positions_do() {
    let model = Tiny::new("gpt2", None).open();
    let longest = model.config().longest.unwrap();
    // A step of all tokens is refused before any is computed.
    let options = Options { max_tokens: Some(longest + 1), chunk: Some(longest + 1), ..exact() };
    let mut generator = generator(&model, 1, options);
    let refused = generator.logits(&tokens(longest + 1, 97)).unwrap_err();
    let most = BackendError::Cache(CacheError::TooLong { positions: longest + 1, most: longest });
    assert_eq!(refused, most);
}

/// A model with divisors of frequencies for short texts and for long ones takes those that its cache needs.
#[test]
fn divisors_of_long_texts() {
    let tiny = Tiny::new("phi3", None);
    let model = tiny.open();
    let long = model.config().long_factors.clone().unwrap();
    assert_eq!((long.above, model.config().context), (1024, 4096));
    let tokens = tokens(40, tiny.vocabulary);
    let mut logits = Vec::new();
    for (max_tokens, factors) in
        [(1024, model.config().ropes[0].factors.clone().unwrap()), (1025, long.factors.clone())]
    {
        let config = model.config().for_texts_of(max_tokens);
        assert_eq!(config.ropes[0].factors.as_ref(), Some(&factors));
        let want = oracle(&config, &model.weights().unwrap(), &tokens).concat();
        let options = Options { max_tokens: Some(max_tokens), ..exact() };
        let got = generator(&model, 2, options).logits(&tokens).unwrap();
        assert!(want.iter().zip(&got).all(|(want, &got)| (want - f64::from(got)).abs() < 1e-4));
        logits.push(want);
    }
    assert!(logits[0].iter().zip(&logits[1]).any(|(a, b)| (a - b).abs() > 0.1));
}

/// Where two experts score nearly alike, rounding decides which one a token goes through, and the other one's logits are far off.
/// Mixtures with quantised weights therefore use all of their experts here; which ones are chosen is seen with `Exact`.
#[test]
fn the_fast_path_is_close() {
    let settled = |tiny: Tiny| match (tiny.experts, tiny.format) {
        (Some((count, _)), Some(_)) => Tiny { experts: Some((count, count)), ..tiny },
        _ => tiny,
    };
    let mixtures = Tiny::mixtures().chain(Tiny::latent()).chain(with_sinks()).map(settled);
    let all = Tiny::all().into_iter().chain(Tiny::unusual()).chain(mixtures).chain(Tiny::rankers());
    for tiny in all.step_by(under_emulation(1, 8)) {
        let model = tiny.open();
        let tokens = tokens(90, tiny.vocabulary);
        let config = model.config().for_texts_of(model.config().context);
        let want = oracle(&config, &model.weights().unwrap(), &tokens);
        for (kind, chunk) in [
            (KvType::F16, 512),
            (KvType::F16, 16),
            (KvType::Bf16, 1),
            (KvType::F32, 64),
            (KvType::Q8_0, 512),
            (KvType::Q8_0, 7),
        ] {
            let cache = CacheOptions { kind, ..CacheOptions::default() };
            let options = Options { cache, chunk: Some(chunk), ..Options::default() };
            let got = generator(&model, 2, options).logits(&tokens).unwrap();
            let rows = want.iter().zip(got.chunks(tiny.logits()));
            let mean = rows.map(|(p, q)| divergence(p, q)).sum::<f64>() / want.len() as f64;
            assert!(mean < 4e-3, "{tiny:?}, {kind:?}, chunks of {chunk}: KL divergence {mean}");
        }
    }
}

/// Neither threads, nor how a prompt is cut, nor pages change a bit.
#[test]
fn exact_bits_depend_on_nothing() {
    let models = [
        (Tiny::new("llama", Some(QuantFormat::Q4_1)), KvType::F32),
        (Tiny::new("gemma3", Some(QuantFormat::Q8_0)), KvType::F16),
        (Tiny::new("qwen2", None), KvType::Bf16),
        (Tiny { head_dim: 100, heads: 8, ..Tiny::new("qwen3", Some(QuantFormat::Q4_1)) }, KvType::Q8_0),
        (Tiny::new("qwen2moe", Some(QuantFormat::Q8_0)), KvType::F16),
        (Tiny::new("qwen3moe", None), KvType::F32),
        (Tiny::new("gpt-oss", Some(QuantFormat::Mxfp4)), KvType::F16),
        (Tiny::new("qwen35", Some(QuantFormat::Q8_0)), KvType::F16),
        (Tiny::new("deepseek2", Some(QuantFormat::Q8_0)), KvType::F16),
        (Tiny::new("mistral4", None), KvType::Q8_0),
        (Tiny::new("gemma3n", Some(QuantFormat::Q8_0)), KvType::F16),
    ];
    for (tiny, kind) in models.into_iter().step_by(under_emulation(1, 3)) {
        let model = tiny.open();
        let tokens = tokens(under_emulation(530, 150), tiny.vocabulary);
        let mut want: Option<Vec<u32>> = None;
        for (threads, chunk, page_tokens) in
            [(1, 512, 64), (2, 512, 64), (3, 512, 16), (2, 77, 64), (3, 9, 128), (1, 16, 16)]
        {
            let cache = CacheOptions { page_tokens, kind, ..exact().cache };
            let options = Options { cache, chunk: Some(chunk), ..exact() };
            let got = bits(&generator(&model, threads, options).logits(&tokens).unwrap());
            let what = format!("{tiny:?}: {threads} threads, chunks of {chunk}, pages of {page_tokens}");
            assert!(want.get_or_insert_with(|| got.clone()) == &got, "{what}");
        }
    }
}

/// A row whose logits are asked for is what it is where those of all are.
#[test]
fn rows_that_are_left_out() {
    let models = ["gemma3n", "gemma3", "qwen35"].map(|name| Tiny::new(name, None));
    for tiny in models.into_iter().chain([Tiny::with_per_layer()]) {
        let model = tiny.open();
        let tokens = tokens(50, tiny.vocabulary);
        let mut g = generator(&model, 2, exact());
        let all = g.logits(&tokens).unwrap();
        let sequence = g.create();
        let last = g.extend(sequence, &tokens, Outputs::Last).unwrap();
        let last = g.backend().read_logits(&last).unwrap();
        assert_eq!(bits(&last), bits(&all[49 * tiny.logits()..]), "{tiny:?}");
        // Of nobody logits are asked for.
        let sequence = g.create();
        g.extend(sequence, &tokens[..49], Outputs::None).unwrap();
        let last = g.extend(sequence, &tokens[49..], Outputs::Last).unwrap();
        assert_eq!(
            bits(&g.backend().read_logits(&last).unwrap()),
            bits(&all[49 * tiny.logits()..]),
            "{tiny:?}"
        );
    }
}

/// Of the fast path, threads and pages change no bit.
#[test]
fn fast_bits_depend_on_shapes_alone() {
    for name in ["gemma3", "qwen2moe", "llama", "gpt-oss", "qwen3next", "deepseek2"]
        .into_iter()
        .step_by(under_emulation(1, 3))
    {
        let tiny = Tiny::new(name, Some(QuantFormat::Q4_1));
        let model = tiny.open();
        let tokens = tokens(300, tiny.vocabulary);
        for chunk in [512, 100, 1] {
            let mut want: Option<Vec<u32>> = None;
            for (threads, page_tokens) in [(1, 64), (2, 64), (3, 16), (4, 256)] {
                let cache = CacheOptions { page_tokens, ..CacheOptions::default() };
                let options = Options { cache, chunk: Some(chunk), ..Options::default() };
                let got = bits(&generator(&model, threads, options).logits(&tokens).unwrap());
                let what = format!("{name}: {threads} threads, chunks of {chunk}, pages of {page_tokens}");
                assert!(want.get_or_insert_with(|| got.clone()) == &got, "{what}");
            }
        }
    }
}

/// Sequences that join, leave, and share what they begin with have the bits that each has alone.
#[test]
fn sequences_side_by_side() {
    for name in ["llama", "gemma3", "qwen3moe", "gpt-oss", "qwen35moe", "deepseek2"] {
        let tiny = Tiny::new(name, Some(QuantFormat::Q8_0));
        let model = tiny.open();
        let all = tokens(120, tiny.vocabulary);
        let other: Vec<u32> = all.iter().map(|t| (t + 13) % 97).collect();
        let mut g = generator(&model, 2, exact());
        let alone = |g: &mut Generator<CpuBackend>, tokens: &[u32]| {
            let all = g.logits(tokens).unwrap();
            bits(&all[all.len() - tiny.vocabulary..])
        };
        let (a, b) = (g.create(), g.create());
        let step = |g: &mut Generator<CpuBackend>, runs: &[(_, &[u32])]| {
            let tokens: Vec<u32> = runs.iter().flat_map(|r| r.1).copied().collect();
            let run = |r: &(_, &[u32])| Run { sequence: r.0, tokens: r.1.len(), outputs: Outputs::Last };
            let logits = g.forward(&tokens, &Topology { runs: runs.iter().map(run).collect() }).unwrap();
            logits.data().chunks(tiny.vocabulary).map(bits).collect::<Vec<_>>()
        };
        // One alone, then both, in steps of different sizes.
        let first = step(&mut g, &[(a, &all[..50])]);
        assert_eq!(first, [alone(&mut g, &all[..50])], "{name}");
        let both = step(&mut g, &[(b, &other[..70]), (a, &all[50..51])]);
        assert_eq!(both, [alone(&mut g, &other[..70]), alone(&mut g, &all[..51])], "{name}");
        // A third one goes on from where the second one is; then the second one leaves.
        let c = g.fork(b, 70).unwrap();
        let three = step(&mut g, &[(c, &all[70..75]), (b, &other[70..71]), (a, &all[51..53])]);
        let of_c = [&other[..70], &all[70..75]].concat();
        let wants = [alone(&mut g, &of_c), alone(&mut g, &other[..71]), alone(&mut g, &all[..53])];
        assert_eq!(three, wants, "{name}");
        g.remove(b).unwrap();
        let two = step(&mut g, &[(a, &all[53..54]), (c, &all[75..100])]);
        let of_c = [&other[..70], &all[70..100]].concat();
        assert_eq!(two, [alone(&mut g, &all[..54]), alone(&mut g, &of_c)], "{name}");
    }
}

#[test]
fn a_full_cache_is_an_error_that_passes() {
    let model = Tiny::new("llama", Some(QuantFormat::Q8_0)).open();
    let mut g = generator(&model, 1, Options { max_tokens: Some(128), ..Options::default() });
    let all = tokens(100, 97);
    let (a, b) = (g.create(), g.create());
    g.extend(a, &all[..64], Outputs::Last).unwrap();
    g.extend(b, &all[..60], Outputs::Last).unwrap();
    let full = g.extend(b, &all[60..70], Outputs::Last).unwrap_err();
    assert!(matches!(full, BackendError::Cache(CacheError::Full { needed: 1, free: 0, .. })), "{full:?}");
    assert_eq!(g.pages().positions(b), Ok(60));
    g.remove(a).unwrap();
    let after = g.extend(b, &all[60..70], Outputs::Last).unwrap();
    let whole = g.create();
    g.remove(b).unwrap();
    g.extend(whole, &all[..60], Outputs::None).unwrap();
    let same = g.extend(whole, &all[60..70], Outputs::Last).unwrap();
    assert_eq!(bits(after.data()), bits(same.data()));
}

#[test]
fn windows_free_their_pages() {
    let tiny = Tiny { layers: 2, ..Tiny::new("gemma3", Some(QuantFormat::Q8_0)) };
    let model = tiny.open();
    // Both layers are local: 24 positions are seen. The cache could not hold 400.
    let cache = CacheOptions { page_tokens: 16, step_tokens: 16, ..exact().cache };
    let options = Options {
        max_tokens: Some(112),
        cache: CacheOptions { sequences: 1, ..cache },
        chunk: Some(16),
        ..exact()
    };
    let all = tokens(400, tiny.vocabulary);
    let want = generator(&model, 1, exact()).logits(&all).unwrap();
    let got = generator(&model, 2, options).logits(&all).unwrap();
    assert!(bits(&want) == bits(&got));
}

#[test]
fn what_does_not_fit_is_refused() {
    let model = Tiny::new("llama", Some(QuantFormat::Q8_0)).open();
    let mut g = generator(&model, 1, Options::default());
    let a = g.create();
    let run = |tokens| Run { sequence: a, tokens, outputs: Outputs::Last };
    let mut refused = |tokens: &[u32], runs: Vec<Run>| match g.forward(tokens, &Topology { runs }) {
        Err(BackendError::Tokens(what)) => what,
        other => panic!("{other:?}"),
    };
    assert!(refused(&[1, 97], vec![run(2)]).contains("token 97"));
    assert!(refused(&[1], vec![run(2)]).contains("have 2"));
    assert!(refused(&[], vec![run(0)]).contains("without tokens"));
    assert!(refused(&[1, 2], vec![run(1), run(1)]).contains("two runs"));
    g.remove(a).unwrap();
    let gone = g.extend(a, &[1], Outputs::Last).unwrap_err();
    assert!(matches!(gone, BackendError::Cache(CacheError::Unknown(_))), "{gone:?}");
    assert!(g.generate(&[], Sampling::greedy()).is_err());
    // A model's cache is not another's.
    let other = Tiny { kv_heads: 4, ..Tiny::new("llama", Some(QuantFormat::Q8_0)) }.open();
    let mut g4 = generator(&other, 1, Options::default());
    assert!(g4.logits(&[1, 2, 3]).is_ok());
}

/// Rows of texts, each alone and side by side, in one step and in several.
#[test]
fn texts_become_rows() {
    let decoder = Tiny::new("qwen3", Some(QuantFormat::Q8_0));
    let poolings = [Pooling::Mean, Pooling::First, Pooling::Last];
    for (tiny, pooling) in
        std::iter::once(decoder).chain(Tiny::encoders()).flat_map(|tiny| poolings.map(|of| (tiny, of)))
    {
        let model = tiny.open();
        let all = tokens(60, tiny.vocabulary);
        let texts = [&all[..17], &all[5..6], &all[20..60]];
        let mut g = generator(&model, 2, Options { chunk: Some(50), ..exact() });
        let rows = g.embed(&texts, pooling).unwrap();
        let mut other = generator(&model, 3, exact());
        for (row, text) in rows.iter().zip(texts) {
            assert_eq!(bits(row), bits(&other.embed(&[text], pooling).unwrap()[0]), "{pooling:?}");
            let want = embedding(model.config(), &model.weights().unwrap(), text, pooling);
            for (x, &y) in want.iter().zip(row) {
                assert!((x - f64::from(y)).abs() < 2e-6, "{tiny:?}, {pooling:?}: {y} instead of {x}");
            }
        }
        assert_eq!(g.pages().free(0), 2048 / 64);
        for (text, what) in [(&all[..0], "0 tokens"), (&all[..51], "51 tokens")] {
            match g.embed(&[&all[..3], text], pooling) {
                Err(BackendError::Tokens(why)) => assert!(why.contains(what), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A text's score from its logits, and where it has answers from these.
fn score(logits: &[f64]) -> f64 {
    let (first, others) = logits.split_first().unwrap();
    let others = if others.is_empty() { &[0.0] } else { others };
    1.0 / (1.0 + others.iter().map(|x| (x - first).exp()).sum::<f64>())
}

/// Scores are the oracle's, and have the same bits alone and together, whatever of the beginning is shared, and however steps are cut.
#[test]
fn texts_have_scores() {
    let plain = Tiny::new("qwen3", Some(QuantFormat::Q4_1));
    for tiny in Tiny::rankers().chain([plain]).step_by(under_emulation(1, 8)) {
        let model = tiny.open();
        let all = tokens(400, tiny.vocabulary);
        let texts: Vec<Vec<u32>> = [0..30, 30..31, 31..200, 200..201, 30..31, 201..270, 270..400]
            .map(|own| [&all[5..75], &all[own]].concat())
            .into();
        let texts: Vec<&[u32]> = texts.iter().map(|text| &text[..]).collect();
        let answers = (tiny.labels == 0).then_some([17, 4]);
        let alone: Vec<f32> = {
            let mut g = generator(&model, 1, exact());
            texts.iter().map(|text| g.rank(&[text], answers, &mut |_| ()).unwrap()[0]).collect()
        };
        for (text, &got) in texts.iter().zip(&alone) {
            let logits = oracle(model.config(), &model.weights().unwrap(), text).pop().unwrap();
            let want = score(&answers.map_or(logits.clone(), |of| of.map(|a| logits[a as usize]).to_vec()));
            assert!((f64::from(got) - want).abs() < 1e-5, "{tiny:?}: {got} instead of {want}");
            assert!(want > 1e-3 && want < 1.0 - 1e-3, "{tiny:?}: {want} tells nothing");
        }
        // Sequences, tokens of a step, positions, and tokens of a page. In the last cases a shared beginning or a second text does not fit.
        for (sequences, chunk, max_tokens, page_tokens) in [
            (8, 512, 2048, 64),
            (3, 100, 2048, 64),
            (32, 64, 2048, 16),
            (8, 33, 320, 64),
            (2, 512, 320, 64),
            (1, 512, 2048, 64),
            (8, 512, 256, 64),
        ] {
            let cache = CacheOptions { sequences, page_tokens, ..exact().cache };
            let options = Options { cache, chunk: Some(chunk), max_tokens: Some(max_tokens), ..exact() };
            let mut g = generator(&model, 2, options);
            let (free, mut done) = (g.pages().free(0), vec![0]);
            let got = g.rank(&texts, answers, &mut |n| done.push(n)).unwrap();
            let what = format!("{tiny:?}, {sequences} {chunk} {max_tokens} {page_tokens}");
            assert_eq!(bits(&got), bits(&alone), "{what}");
            assert!(done.is_sorted() && done.last() == Some(&texts.len()), "{what}: {done:?}");
            assert_eq!(g.pages().free(0), free, "{what}");
        }
        let mut g = generator(&model, 2, Options { max_tokens: Some(128), ..exact() });
        assert!(g.rank(&[], answers, &mut |_| ()).unwrap().is_empty());
        let long = tokens(4097, tiny.vocabulary);
        for (text, answers, what) in [
            (&all[..0], answers, ["text 2", "without tokens"]),
            (&all[..129], answers, ["129 tokens", "room for 128"]),
            (&long[..], answers, ["4097 tokens", "4096"]),
            (&all[..9], Some([0, 97]), ["97", &format!("{} logits", tiny.logits())]),
        ] {
            match g.rank(&[&all[..3], text], answers, &mut |_| ()) {
                Err(BackendError::Tokens(why)) => assert!(what.iter().all(|w| why.contains(w)), "{why}"),
                other => panic!("{what:?}: {other:?}"),
            }
        }
        if tiny.labels == 0 {
            let refused = g.rank(&[&all[..3]], None, &mut |_| ()).unwrap_err().to_string();
            assert!(refused.contains("no classifier"), "{refused}");
        } else {
            let refused = g.generate(&all[..3], Sampling::greedy()).unwrap_err().to_string();
            assert!(refused.contains("ranks texts"), "{refused}");
        }
    }
}

/// Scores that are no numbers: the largest weights that a router may have, times inputs, are infinite, and their softmax is no number.
#[test]
fn routers_that_overflow_do_no_harm() {
    let tiny = Tiny { router_scale: 3e38, ..Tiny::new("qwen3moe", None) };
    let model = tiny.open();
    let logits = generator(&model, 2, exact()).logits(&tokens(40, tiny.vocabulary)).unwrap();
    assert!(logits.iter().any(|x| x.is_nan()));
}

/// Probabilities of a text's tokens are those of its logits, in one step and in several.
#[test]
fn texts_are_foreseen() {
    let tiny = Tiny::new("gemma3", Some(QuantFormat::Q8_0));
    let model = tiny.open();
    let text = tokens(50, tiny.vocabulary);
    for chunk in [512, 49, 7, 1] {
        let mut g = generator(&model, 2, Options { chunk: Some(chunk), ..exact() });
        let logits = g.logits(&text).unwrap();
        let got = g.log_probabilities(&text).unwrap();
        assert_eq!(got.len(), 49);
        for ((row, &token), &got) in logits.chunks(tiny.vocabulary).zip(&text[1..]).zip(&got) {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            let want = f64::from(row[token as usize]) - sum.ln();
            assert!((f64::from(got) - want).abs() < 1e-5, "chunks of {chunk}: {got} instead of {want}");
        }
        for short in 0..2 {
            assert!(g.log_probabilities(&text[..short]).unwrap().is_empty());
        }
        // All sequences have ended.
        assert_eq!(g.pages().free(0), 2048 / 64);
        let sequence = g.create();
        let handle = g.extend(sequence, &text[..3], Outputs::All).unwrap();
        for outside in [(3, 0), (0, tiny.vocabulary as u32)] {
            let refused = g.backend().log_probabilities(&handle, &[outside]);
            assert!(matches!(refused, Err(BackendError::Tokens(_))), "{refused:?}");
        }
    }
}

#[test]
fn generation_takes_the_largest_logit() {
    let tiny = Tiny::new("qwen3", Some(QuantFormat::Q8_0));
    let model = tiny.open();
    let mut g = generator(&model, 2, exact());
    let prompt = tokens(30, tiny.vocabulary);
    let text: Vec<u32> =
        g.generate(&prompt, Sampling::greedy()).unwrap().take(12).map(Result::unwrap).collect();
    assert_eq!(text.len(), 12);
    let logits = g.logits(&[&prompt[..], &text].concat()).unwrap();
    for (row, &token) in logits.chunks(tiny.vocabulary).skip(29).zip(&text) {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(row[token as usize], top);
    }
    // All sequences have ended.
    assert_eq!(g.pages().free(0), 2048 / 64);
}
