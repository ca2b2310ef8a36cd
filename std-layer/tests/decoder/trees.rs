// Trees of drafts on any backend, compared with their paths as ordinary sequences.

use gllm_kernels_std::backend::{Backend, BackendError, CacheOptions, ForwardConfig, Outputs, Run, Topology};
use gllm_kernels_std::model::{Config, HostWeights, SequenceId, Tree};
use gllm_testkit::data::Source;

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

/// Sequences of these lengths get trees of drafts on two backends; of each a path is accepted; and so on, for each size. `same` compares the logits of
/// these steps, and of one that follows.
pub fn on_both<A: Backend, B: Backend>(
    (a, b): (&mut Loaded<'_, A>, &mut Loaded<'_, B>),
    (lengths, sizes): (&[usize], &[usize]),
    source: &mut Source,
    mut same: impl FnMut(&str, &[f32], &[f32]) -> Result<(), String>,
) -> Result<(), String> {
    let text = |e: BackendError| e.to_string();
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
        let want = a.step(&of_a).map_err(text)?;
        same(&format!("step {round}"), &want, &b.step(&of_b).map_err(text)?)?;
        for (pair, path) in pairs.iter().zip(&paths) {
            a.backend.accept_drafts(&mut a.kv, pair.0, path).map_err(text)?;
            b.backend.accept_drafts(&mut b.kv, pair.1, path).map_err(text)?;
        }
    }
    Ok(())
}
