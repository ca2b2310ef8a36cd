//! Trees of drafts on the CPU.

#[path = "decoder/exact.rs"]
mod exact;
// What these models compute in f64 is the business of the decoders' tests.
#[allow(dead_code)]
#[path = "decoder/tiny.rs"]
mod tiny;
// Two backends are compared where the other one is tested.
#[allow(dead_code)]
#[path = "decoder/trees.rs"]
mod trees;

use exact::{exact, generator};
use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, ForwardConfig, KvType, Outputs, Run, Topology,
};
use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{CacheError, Options, Tree, TreeError};
use gllm_testkit::{data::Source, effort};
use tiny::Tiny;
use trees::{bits, mean_divergence, near, Loaded, Shape};

/// Each draft has the logits of its path, bit by bit while the trees of its sequence are within a piece of attention; and what follows an accepted
/// path is what follows these tokens.
#[test]
fn drafts_are_their_paths() {
    let models = [
        (Tiny::new("llama", Some(QuantFormat::Q8_0)), KvType::F32),
        // Layers with a window of 24.
        (Tiny::new("gemma3", Some(QuantFormat::Q8_0)), KvType::F16),
        (Tiny { window: 5, ..Tiny::new("gemma3", None) }, KvType::F32),
        (Tiny { head_dim: 100, heads: 8, ..Tiny::new("qwen3", Some(QuantFormat::Q4_1)) }, KvType::Q8_0),
        (Tiny::new("qwen2", None), KvType::Bf16),
        // Sinks, experts, a window.
        (Tiny::new("gpt-oss", Some(QuantFormat::Mxfp4)), KvType::Q8_0),
        (Tiny::new("qwen3moe", None), KvType::F16),
        // With linear biases, and without.
        (Tiny { head_dim: 36, ..Tiny::new("llama", None) }, KvType::F32),
        (Tiny::new("gemma3", None), KvType::Q8_0),
        (Tiny::new("deepseek2", None), KvType::F16),
    ];
    let rounds: [(&[usize], &[usize]); 4] = [
        (&[0, 13, 60, 100], &[7, 20, 9]),
        (&[61, 5], &[64, 33, 1]),
        // Pieces end within trees.
        (&[250, 240, 200], &[12, 30]),
        (&[256, 30], &[16, 17, 64]),
    ];
    let mut seen = [0, 0];
    // On an emulator some of the models: how they are computed depends on the instruction set in the kernels alone.
    for (i, (tiny, kind)) in models.into_iter().enumerate().step_by(if effort() == 1 { 4 } else { 1 }) {
        let model = tiny.open();
        let mut config = model.config().clone();
        config.alibi = (i >= 7).then_some(8.0);
        let weights = model.weights().unwrap();
        // There each model takes every other one of the rounds.
        let (skip, step) = if effort() == 1 { (i / 4 % 2, 2) } else { (0, 1) };
        for (j, &(lengths, sizes)) in rounds.iter().enumerate().skip(skip).step_by(step) {
            let (threads, page_tokens) = [(1, 64), (3, 16), (2, 16), (4, 64)][(i + j) % 4];
            let cache = CacheOptions { kind, page_tokens, sequences: 16, ..CacheOptions::default() };
            let backend = CpuBackend::new(threads).unwrap();
            let how = (cache, exact().forward);
            let mut loaded = Loaded::new(&backend, (&config, &weights), how).unwrap();
            let free = backend.pages(&loaded.kv).free(0);
            let mut source = Source::new(7 + j as u64);
            let of =
                |what: &str| format!("{tiny:?}, {kind:?}, {threads} threads, pages of {page_tokens}: {what}");
            let same = |what: &str, want: &[f32], got: &[f32], whole: bool| {
                seen[usize::from(whole)] += 1;
                let close = match kind {
                    KvType::F32 => near(want, got),
                    // Of what is rounded to few bits some is rounded to the other side.
                    _ => mean_divergence(want, got, tiny.vocabulary) < 1e-4,
                };
                assert!(close, "{}: {got:?} instead of {want:?}", of(what));
                assert!(!whole || bits(want) == bits(got), "{}: other bits", of(what));
            };
            loaded.rounds((lengths, sizes), &mut source, same).unwrap();
            assert_eq!(backend.pages(&loaded.kv).free(0), free);
        }
    }
    assert!(seen.iter().all(|&n| n > 100), "{seen:?}");
}

/// On the fast path a chain has the bits of an ordinary run; other trees are as close to the exact logits as these are.
#[test]
fn the_fast_path_is_close() {
    for (name, kind) in [("llama", KvType::F16), ("gemma3", KvType::Q8_0), ("gpt-oss", KvType::F16)] {
        let tiny = Tiny::new(name, Some(QuantFormat::Q8_0));
        // Rounding does not decide which experts there are.
        let tiny = Tiny { experts: tiny.experts.map(|(count, _)| (count, count)), ..tiny };
        let (model, backend) = (tiny.open(), CpuBackend::new(2).unwrap());
        let weights = model.weights().unwrap();
        let cache = CacheOptions { kind, sequences: 8, ..CacheOptions::default() };
        let load = |forward| Loaded::new(&backend, (model.config(), &weights), (cache, forward)).unwrap();
        let [mut fast, mut exact] = [ForwardConfig::default(), exact().forward].map(load);
        let mut source = Source::new(3);
        let prompt: Vec<u32> = (0..70).map(|_| source.below(tiny.vocabulary) as u32).collect();
        for (drafts, shape) in [5, 40].iter().flat_map(|&n| Shape::ALL.map(|shape| (n, shape))) {
            let parents = shape.parents(drafts, &mut source);
            let tokens: Vec<u32> = (0..drafts).map(|_| source.below(tiny.vocabulary) as u32).collect();
            let tree = Tree::new(&parents).unwrap();
            let rows = |loaded: &mut Loaded<'_, _>, tree: &Tree| {
                let sequence = backend.create_sequence(&mut loaded.kv);
                loaded.extend(sequence, &prompt).unwrap();
                let rows = loaded.step(&[(sequence, tokens.clone(), tree.clone())]).unwrap();
                backend.remove_sequence(&mut loaded.kv, sequence).unwrap();
                rows
            };
            let got = rows(&mut fast, &tree);
            if matches!(shape, Shape::Chain) {
                assert_eq!(bits(&got), bits(&rows(&mut fast, &Tree::default())), "{name}");
            }
            let want = rows(&mut exact, &tree);
            let mean = mean_divergence(&want, &got, tiny.vocabulary);
            assert!(mean < 4e-3, "{name}, {kind:?}, {shape:?} of {drafts}: KL divergence {mean}");
        }
    }
}

#[test]
fn what_is_no_tree_is_refused() {
    let model = Tiny::new("llama", Some(QuantFormat::Q8_0)).open();
    let mut g = generator(&model, 1, Options { max_tokens: Some(192), ..Options::default() });
    let sequence = g.create();
    g.extend(sequence, &[1, 2, 3], Outputs::None).unwrap();
    let topology = |tokens| Topology { runs: vec![Run { sequence, tokens, outputs: Outputs::All }] };
    let tree = Tree::new(&[None, Some(0), Some(0)]).unwrap();
    let mut refused =
        |tokens: &[u32], trees: &[Tree]| match g.forward_trees(tokens, &topology(tokens.len()), trees) {
            Err(BackendError::Tokens(what)) => what,
            other => panic!("{other:?}"),
        };
    let two = refused(&[4, 5, 6], &[tree.clone(), Tree::default()]);
    assert_eq!(two, "2 trees, but the topology has 1 runs");
    let long = refused(&[4, 5], std::slice::from_ref(&tree));
    assert!(
        long.starts_with("a tree of 3 drafts for ") && long.ends_with("whose run has 2 tokens"),
        "{long}"
    );
    // Nothing has changed.
    assert_eq!(g.pages().positions(sequence), Ok(3));
    // A cache that is full stays as it is.
    let chain: Vec<_> = (0..64usize).map(|i| i.checked_sub(1)).collect();
    let chain = Tree::new(&chain).unwrap();
    g.extend(sequence, &[7; 100], Outputs::None).unwrap();
    let other = g.create();
    g.extend(other, &[1], Outputs::None).unwrap();
    let full = g.forward_trees(&[9; 64], &topology(64), &[chain]).unwrap_err();
    assert!(matches!(full, BackendError::Cache(CacheError::Full { .. })), "{full}");
    g.remove(other).unwrap();
    g.forward_trees(&[4, 5, 6], &topology(3), &[tree]).unwrap();
    // Nothing goes on before a path has been accepted.
    let pending = BackendError::Cache(CacheError::Drafts { sequence, drafts: 3 });
    assert_eq!(g.extend(sequence, &[1], Outputs::Last).unwrap_err(), pending);
    assert_eq!(g.fork(sequence, 104), Err(pending.clone()));
    assert!(pending.to_string().contains("3 drafts, of which a path must be accepted"), "{pending}");
    let fork = g.fork(sequence, 103).unwrap();
    let refused = |e: TreeError| Err(BackendError::Cache(CacheError::Tree(e)));
    assert_eq!(g.accept(sequence, &[0, 3]), refused(TreeError::NoDraft { draft: 3, drafts: 3 }));
    let wrong = TreeError::NotNext { draft: 2, behind: Some(1), parent: Some(0) };
    assert_eq!(g.accept(sequence, &[0, 1, 2]), refused(wrong));
    g.accept(sequence, &[0, 2]).unwrap();
    assert_eq!(g.accept(sequence, &[0]), refused(TreeError::NoDraft { draft: 0, drafts: 0 }));
    assert_eq!(g.pages().positions(sequence), Ok(105));
    // The other sequence, which shares the page, has not seen any of this.
    let want = g.extend(fork, &[4, 6, 8], Outputs::Last).unwrap();
    let got = g.extend(sequence, &[8], Outputs::Last).unwrap();
    assert!(mean_divergence(want.data(), got.data(), 97) < 4e-3);
    g.remove(fork).unwrap();
    g.remove(sequence).unwrap();
    assert!(matches!(g.accept(sequence, &[]), Err(BackendError::Cache(CacheError::Unknown(_)))));
}
