// Trees of drafts on any backend, compared with their paths as ordinary sequences, and with another backend's.

use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, CpuBackend, ForwardConfig, KvType, Outputs, Run, Topology,
};
use gllm_kernels_std::core::Precision;
use gllm_kernels_std::model::{Config, HostWeights, SequenceId, Tree};
use gllm_testkit::data::Source;

use super::tiny::{divergence, Tiny};

pub fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Whether no logit is off by more than 3e-5 of the largest one, or 3e-5.
pub fn near(want: &[f32], got: &[f32]) -> bool {
    let scale = want.iter().fold(1f32, |m, x| m.max(x.abs()));
    want.len() == got.len() && want.iter().zip(got).all(|(want, got)| (want - got).abs() <= 3e-5 * scale)
}

/// The KL divergence of rows of logits, on the average.
pub fn mean_divergence(want: &[f32], got: &[f32], vocabulary: usize) -> f64 {
    let row = |(want, got): (&[f32], &[f32])| {
        divergence(&want.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), got)
    };
    let pairs = want.chunks(vocabulary).zip(got.chunks(vocabulary));
    pairs.map(row).sum::<f64>() / (want.len() / vocabulary) as f64
}

/// The forms of trees.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Chain,
    /// Many children of one root.
    Wide,
    /// Three roots, with a chain behind each.
    Roots,
    Random,
}

impl Shape {
    pub const ALL: [Self; 4] = [Self::Chain, Self::Wide, Self::Roots, Self::Random];

    /// The parents of so many drafts.
    pub fn parents(self, drafts: usize, source: &mut Source) -> Vec<Option<usize>> {
        let parent = |draft: usize| match self {
            Self::Chain => draft.checked_sub(1),
            Self::Wide => (draft > 0).then_some(0),
            Self::Roots => draft.checked_sub(3),
            Self::Random => source.below(draft + 1).checked_sub(1),
        };
        (0..drafts).map(parent).collect()
    }
}

/// The drafts from the root to this one.
pub fn path_to(parents: &[Option<usize>], end: Option<usize>) -> Vec<usize> {
    let mut path: Vec<usize> = std::iter::successors(end, |&draft| parents[draft]).collect();
    path.reverse();
    path
}

/// A model on a backend, with a cache.
pub struct Loaded<'a, B: Backend> {
    pub backend: &'a B,
    pub weights: B::Weights,
    pub kv: B::KvCache,
    pub forward: ForwardConfig,
    pub logits: usize,
}

impl<'a, B: Backend> Loaded<'a, B> {
    pub fn new(
        backend: &'a B,
        (config, weights): (&Config, &HostWeights<'_>),
        (cache, forward): (CacheOptions, ForwardConfig),
    ) -> Result<Self, BackendError> {
        let weights = backend.upload_generator_weights(config, weights, &mut |_| ())?;
        let kv = backend.alloc_kv_cache(4096, config, &cache)?;
        Ok(Self { backend, weights, kv, forward, logits: config.logits() })
    }

    /// A step of these runs: the logits of all of their tokens.
    pub fn step(&mut self, runs: &[(SequenceId, Vec<u32>, Tree)]) -> Result<Vec<f32>, BackendError> {
        let tokens: Vec<u32> = runs.iter().flat_map(|run| run.1.clone()).collect();
        let run = |run: &(SequenceId, Vec<u32>, Tree)| Run {
            sequence: run.0,
            tokens: run.1.len(),
            outputs: Outputs::All,
        };
        let topology = Topology { runs: runs.iter().map(run).collect() };
        let trees: Vec<Tree> = runs.iter().map(|run| run.2.clone()).collect();
        let Self { backend, weights, kv, forward, .. } = self;
        let logits = match trees.iter().all(Tree::is_empty) {
            true => backend.generator_forward_gpu_pure(&tokens, &topology, weights, kv, forward)?,
            false => backend.generator_forward_trees(&tokens, &topology, &trees, weights, kv, forward)?,
        };
        backend.read_logits(&logits)
    }

    /// Continues a sequence; the logits of all tokens.
    pub fn extend(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        match tokens {
            [] => Ok(Vec::new()),
            _ => self.step(&[(sequence, tokens.to_vec(), Tree::default())]),
        }
    }

    /// The logits of the last of these tokens behind a sequence, which stays as it is.
    fn behind(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        let positions = self.backend.pages(&self.kv).positions(sequence)?;
        let fork = self.backend.fork_sequence(&mut self.kv, sequence, positions)?;
        let all = self.extend(fork, tokens)?;
        self.backend.remove_sequence(&mut self.kv, fork)?;
        Ok(all[all.len() - self.logits..].to_vec())
    }

    /// Sequences of these lengths get trees of drafts in one step, beside a run of three tokens and a single one; of each a path is accepted; and
    /// so on, for each size. What each draft gets is compared with what it gets behind its path in a sequence that never had drafts: `same` takes a
    /// description, both rows, and whether the tree has always been within a piece of 256 positions.
    pub fn rounds(
        &mut self,
        (lengths, sizes): (&[usize], &[usize]),
        source: &mut Source,
        mut same: impl FnMut(&str, &[f32], &[f32], bool),
    ) -> Result<(), BackendError> {
        let (backend, vocabulary) = (self.backend, self.logits);
        let token = |source: &mut Source| source.below(vocabulary) as u32;
        let mut pairs = Vec::new();
        for &length in lengths {
            let plain = backend.create_sequence(&mut self.kv);
            let tokens: Vec<u32> = (0..length).map(|_| token(source)).collect();
            self.extend(plain, &tokens)?;
            let drafted = backend.fork_sequence(&mut self.kv, plain, length)?;
            pairs.push((plain, drafted, true));
        }
        let beside = [backend.create_sequence(&mut self.kv), backend.create_sequence(&mut self.kv)];
        for (round, &drafts) in sizes.iter().enumerate() {
            let (mut runs, mut forms) = (Vec::new(), Vec::new());
            for (i, &(_, drafted, _)) in pairs.iter().enumerate() {
                let shape = Shape::ALL[(i + round) % 4];
                let parents = shape.parents(drafts, source);
                let tokens: Vec<u32> = (0..drafts).map(|_| token(source)).collect();
                runs.push((drafted, tokens, Tree::new(&parents).expect("a tree")));
                forms.push((shape, parents));
            }
            for (&sequence, count) in beside.iter().zip([3, 1]) {
                let tokens = (0..count).map(|_| token(source)).collect();
                runs.push((sequence, tokens, Tree::default()));
            }
            let got = self.step(&runs)?;
            let mut rows = got.chunks(vocabulary);
            for ((pair, (_, tokens, _)), (shape, parents)) in pairs.iter_mut().zip(&runs).zip(&forms) {
                let (plain, drafted, ref mut whole) = *pair;
                let first = backend.pages(&self.kv).positions(plain)?;
                *whole &= first / 256 == (first + drafts - 1) / 256;
                let of = |path: &[usize]| path.iter().map(|&draft| tokens[draft]).collect::<Vec<_>>();
                for draft in 0..drafts {
                    let want = self.behind(plain, &of(&path_to(parents, Some(draft))))?;
                    let what =
                        format!("{shape:?}, draft {draft} of {drafts} behind {first} tokens, round {round}");
                    same(&what, &want, rows.next().expect("a row for each draft"), *whole);
                }
                // The last draft of all, that of the longest path, or any.
                let depth = |&draft: &usize| path_to(parents, Some(draft)).len();
                let end = match round % 3 {
                    0 => drafts.checked_sub(1),
                    1 => (0..drafts).max_by_key(depth),
                    _ => source.below(drafts + 1).checked_sub(1),
                };
                let path = path_to(parents, end);
                backend.accept_drafts(&mut self.kv, drafted, &path)?;
                self.extend(plain, &of(&path))?;
                let both = [plain, drafted].map(|id| backend.pages(&self.kv).positions(id));
                assert_eq!(both, [Ok(first + path.len()); 2]);
            }
        }
        // What follows is as if there had never been drafts, and every page is free in the end.
        for (plain, drafted, whole) in pairs {
            let tokens: Vec<u32> = (0..5).map(|_| token(source)).collect();
            let (want, got) = (self.extend(plain, &tokens)?, self.extend(drafted, &tokens)?);
            same("behind drafts", &want, &got, whole);
            backend.remove_sequence(&mut self.kv, plain)?;
            backend.remove_sequence(&mut self.kv, drafted)?;
        }
        for sequence in beside {
            backend.remove_sequence(&mut self.kv, sequence)?;
        }
        Ok(())
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

const EXACT: ForwardConfig = ForwardConfig { precision: Precision::Exact, profile: false };

/// Sequences of these lengths get trees of drafts on the CPU and on another backend; of each a path is accepted; and so on, for each size. The logits of these
/// steps, and of one that follows, are the same. Numbers of a narrow cache are rounded, where few differ by a digit, and more
/// are rounded if the other backend is not to be exact: then logits are alike on the average. The model may have linear biases.
pub fn drafts<B: Backend>(
    (tiny, kind, alibi): (Tiny, KvType, Option<f32>),
    gpu: &B,
    precision: Precision,
    (lengths, sizes): (&[usize], &[usize]),
    source: &mut Source,
) -> Result<(), String> {
    let (model, cpu) = (tiny.open(), CpuBackend::new(2).map_err(text)?);
    let (weights, mut config) = (model.weights().map_err(text)?, model.config().clone());
    config.alibi = alibi;
    let cache = CacheOptions { kind, page_tokens: 16, sequences: 8, ..CacheOptions::default() };
    let mut a = Loaded::new(&cpu, (&config, &weights), (cache, EXACT)).map_err(text)?;
    let mut b =
        Loaded::new(gpu, (&config, &weights), (cache, ForwardConfig { precision, ..EXACT })).map_err(text)?;
    let vocabulary = a.logits;
    let pairs: Vec<_> = lengths
        .iter()
        .map(|_| (a.backend.create_sequence(&mut a.kv), b.backend.create_sequence(&mut b.kv)))
        .collect();
    // The prompts, the trees, and what follows: of each run its tokens, and the parents of drafts.
    for round in 0..sizes.len() + 2 {
        let drafts = round.checked_sub(1).and_then(|round| sizes.get(round).copied());
        let (mut of_a, mut of_b, mut paths) = (Vec::new(), Vec::new(), Vec::new());
        for (i, (&pair, &length)) in pairs.iter().zip(lengths).enumerate() {
            let count = drafts.unwrap_or(if round == 0 { length } else { 3 });
            let parents = drafts.map(|drafts| Shape::ALL[(i + round) % 4].parents(drafts, source));
            let tokens: Vec<u32> = (0..count).map(|_| source.below(vocabulary) as u32).collect();
            let tree = Tree::new(parents.as_deref().unwrap_or(&[])).expect("a tree");
            of_a.push((pair.0, tokens.clone(), tree.clone()));
            of_b.push((pair.1, tokens, tree));
            paths.extend(parents.map(|of| path_to(&of, source.below(count + 1).checked_sub(1))));
        }
        let (want, got) = (a.step(&of_a).map_err(text)?, b.step(&of_b).map_err(text)?);
        let mean = mean_divergence(&want, &got, vocabulary);
        // Not `mean >= ..`: NaN is never near.
        let alike = match (precision, kind) {
            (Precision::Exact, KvType::F32) => near(&want, &got),
            (Precision::Exact, _) => mean < 1e-4,
            _ => mean < 4e-3,
        };
        if !alike {
            return Err(format!(
                "{tiny:?}, {kind:?}, {alibi:?}, {precision:?}, step {round}: KL divergence {mean}"
            ));
        }
        for (pair, path) in pairs.iter().zip(&paths) {
            a.backend.accept_drafts(&mut a.kv, pair.0, path).map_err(text)?;
            b.backend.accept_drafts(&mut b.kv, pair.1, path).map_err(text)?;
        }
    }
    Ok(())
}

/// Chains of less than `few` drafts have the bits of tokens that follow one another, longer ones nearly their logits; a tree that is no chain has others.
pub fn chains<B: Backend>(tiny: Tiny, gpu: &B, few: usize, source: &mut Source) -> Result<(), String> {
    let model = tiny.open();
    let weights = model.weights().map_err(text)?;
    for (forward, drafts) in [(EXACT, 9), (ForwardConfig::default(), 9), (ForwardConfig::default(), 40)] {
        let how = (CacheOptions { sequences: 8, ..CacheOptions::default() }, forward);
        let mut loaded = Loaded::new(gpu, (model.config(), &weights), how).map_err(text)?;
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
        let [chain, wide] = [Shape::Chain, Shape::Wide].map(|shape| shape.parents(drafts, source));
        let (chain, wide) = (rows(&chain).map_err(text)?, rows(&wide).map_err(text)?);
        if drafts < few && bits(&plain) != bits(&chain) {
            return Err(format!("{tiny:?}, {drafts} drafts: a chain has other bits"));
        }
        let [same, other] = [&chain, &wide].map(|rows| mean_divergence(&plain, rows, tiny.vocabulary));
        let differs = same < 4e-3 && other > 4e-2;
        if !differs {
            return Err(format!("{tiny:?}, {drafts} drafts: KL divergences {same} and {other}"));
        }
    }
    Ok(())
}

/// What is no tree is refused, and so is whatever continues a sequence before a path has been accepted.
pub fn refusals<B: Backend>(gpu: &B) -> Result<(), String> {
    let model = Tiny { layers: 1, ..Tiny::new("llama", None) }.open();
    let how = (CacheOptions::default(), ForwardConfig::default());
    let mut loaded =
        Loaded::new(gpu, (model.config(), &model.weights().map_err(text)?), how).map_err(text)?;
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
