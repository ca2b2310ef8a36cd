//! Whole models on a device: the interface that every backend has, the backends, and the choice of one.
//!
//! Engines are written against the trait [`Backend`]. Weights are uploaded to the device once, and caches stay there. A step takes
//! tokens and returns a handle to logits; sampling takes the handle. Most programs need no more than
//! [`Generator`](crate::model::Generator), which does all that.

mod any;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod error;
mod step;
mod suits;
mod tensors;
#[cfg(feature = "wgpu")]
mod wgpu;

use std::collections::HashSet;
use std::fmt::Debug;

use gllm_kernels_core::Precision;

#[cfg(feature = "wgpu")]
pub use self::wgpu::{Traffic, WgpuAdapter, WgpuBackend, WgpuKvCache, WgpuLogits, WgpuWeights};
pub use any::{
    choose, choose_for, detect, AnyBackend, AnyKvCache, AnyLogits, AnyWeights, BackendKind, Choice,
};
pub use cpu::{CpuBackend, CpuKvCache, CpuLogits, CpuWeights};
#[cfg(feature = "rocm")]
pub use cuda::{Amd, RocmBackend};
#[cfg(feature = "cuda")]
pub use cuda::{CudaBackend, CudaKvCache, CudaLogits, CudaWeights, GpuBackend, Nvidia, Platform};
pub use error::BackendError;
pub use step::{Linear, NormWeight, Slot, Step, StreamOperation};

use crate::model::{
    CacheError, Config, Group, HostWeights, KvHeads, Pages, Pooling, Sampling, SequenceId, Tree,
};

/// How far loading has come, in bytes of weights as they are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: usize,
    /// All bytes.
    pub total: usize,
}

/// The type of cached keys and values. Queries and sums are f32 with each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvType {
    /// IEEE 754 binary16.
    #[default]
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// 8 bits, with a scale of 16 bits for each 32 elements of a head: 8.5 bits a number. The CPU, CUDA and ROCm have it; wgpu refuses
    /// it with `Unsupported`.
    Q8_0,
}

/// What a cache holds, and for how much it has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The type of its numbers.
    pub kind: KvType,
    /// How many positions a page has: a multiple of 16.
    pub page_tokens: usize,
    /// How many sequences there will be at a time. Layers with windows have room for so many, as long as no step has
    /// more than `step_tokens` tokens of a sequence, and so have recurrent layers.
    pub sequences: usize,
    /// How many tokens of a sequence a step has at most.
    pub step_tokens: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { kind: KvType::F16, page_tokens: 64, sequences: 1, step_tokens: 512 }
    }
}

impl CacheOptions {
    /// The groups of pages that a model's layers need, one for all layers with the same window and heads, and the group of each
    /// layer, which says nothing of those without attention. Layers that see everything have pages for `max_tokens` positions, layers with a window have pages for
    /// what they see. Recurrent layers are of a group behind these, which has a state for each sequence.
    pub(crate) fn groups(&self, max_tokens: usize, config: &Config) -> (Vec<Group>, Vec<usize>) {
        let (size, all) = (self.page_tokens.max(1), max_tokens.div_ceil(self.page_tokens.max(1)));
        let kinds = config.kinds();
        let group_of = |layer: usize| match config.layer[layer].recurrent {
            true => kinds.len(),
            false => {
                let own = (config.layer[layer].window, config.heads_of(layer));
                kinds.iter().position(|&kind| kind == own).unwrap_or(0)
            }
        };
        let group = |&(window, _): &(Option<usize>, KvHeads)| {
            // What a sequence sees, the tokens of a step, and beginnings of pages on both sides.
            let each = |w: usize| (w.saturating_add(self.step_tokens) / size).saturating_add(2);
            let pages = window.map_or(all, |w| all.min(each(w).saturating_mul(self.sequences.max(1))));
            Group { window, pages }
        };
        (kinds.iter().map(group).collect(), (0..config.layers).map(group_of).collect())
    }

    /// Pages of these groups, all of them free, for texts that the model can have.
    ///
    /// # Errors
    /// `BadGeometry`.
    pub(crate) fn pages(&self, groups: &[Group], config: &Config) -> Result<Pages, CacheError> {
        let pages = Pages::new(self.page_tokens, groups)?.with_longest(config.longest.unwrap_or(usize::MAX));
        match config.recurrence {
            Some(_) => pages.with_states(self.sequences.max(1)),
            None => Ok(pages),
        }
    }
}

/// Which of a sequence's new tokens get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outputs {
    /// None: there are more tokens to come.
    None,
    /// The last one.
    Last,
    /// All.
    All,
}

/// A sequence's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The sequence.
    pub sequence: SequenceId,
    /// How many of the step's tokens continue it.
    pub tokens: usize,
    /// Which of them need logits.
    pub outputs: Outputs,
}

impl Run {
    /// How many of its tokens need logits: the last ones.
    fn output_count(&self) -> usize {
        match self.outputs {
            Outputs::None => 0,
            Outputs::Last => self.tokens.min(1),
            Outputs::All => self.tokens,
        }
    }
}

/// Which sequences the tokens of a step continue: the first run has the first tokens. A sequence occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The runs.
    pub runs: Vec<Run>,
}

impl Topology {
    /// Rows of logits that the step gives.
    pub fn outputs(&self) -> usize {
        self.runs.iter().map(Run::output_count).sum()
    }

    /// The step's rows whose logits are requested.
    pub(crate) fn output_rows(&self) -> Vec<usize> {
        let (mut rows, mut end) = (Vec::with_capacity(self.outputs()), 0);
        for run in &self.runs {
            end += run.tokens;
            rows.extend(end - run.output_count()..end);
        }
        rows
    }

    /// Checks what steps of an encoder must be: whole texts, which become rows, and are no longer than there are embeddings of positions. Sequences
    /// of decoders may be continued.
    ///
    /// # Errors
    /// `Unsupported` if logits are asked for; `Tokens`.
    pub(crate) fn check_whole(
        &self,
        positions: &[usize],
        logits: bool,
        config: &Config,
    ) -> Result<(), BackendError> {
        if config.causal {
            return Ok(());
        }
        if logits {
            let what = "logits of an encoder: it gives rows for embeddings alone";
            return Err(BackendError::Unsupported(what.to_owned()));
        }
        let refuse = |what: String| Err(BackendError::Tokens(what));
        for (run, &position) in self.runs.iter().zip(positions) {
            if position > 0 {
                return refuse(format!(
                    "{:?} is continued behind {position} tokens, but an encoder reads a text in one step",
                    run.sequence
                ));
            }
            if config.position_embeddings && run.tokens > config.context {
                return refuse(format!(
                    "a text of {} tokens, but the model has embeddings for {} positions",
                    run.tokens, config.context
                ));
            }
        }
        Ok(())
    }

    /// Checks that each run asks for rows that can be pooled.
    ///
    /// # Errors
    /// `Tokens`.
    pub(crate) fn check_pooled(&self) -> Result<(), BackendError> {
        match self.runs.iter().find(|run| run.output_count() == 0) {
            Some(run) => {
                Err(BackendError::Tokens(format!("{:?} asks for no row to be pooled", run.sequence)))
            }
            None => Ok(()),
        }
    }

    /// Of the rows that are asked for, how many each run and those before it have.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn output_ends(&self) -> Vec<u32> {
        let ends = self.runs.iter().scan(0, |end, run| {
            *end += run.output_count() as u32;
            Some(*end)
        });
        ends.collect()
    }

    /// How many tokens continue each sequence.
    pub(crate) fn tokens(&self) -> Vec<(SequenceId, usize)> {
        self.runs.iter().map(|run| (run.sequence, run.tokens)).collect()
    }

    /// Checks that there is a tree for each run, of its tokens or of none; without any tree, `trees` may be empty.
    ///
    /// # Errors
    /// `Tokens`; `Unsupported` if drafts would change states, which cannot be taken back.
    pub(crate) fn check_trees(&self, trees: &[Tree], config: &Config) -> Result<(), BackendError> {
        if config.recurrence.is_some() && trees.iter().any(|tree| !tree.is_empty()) {
            let what = "drafts in recurrent layers, whose states cannot be taken back";
            return Err(BackendError::Unsupported(what.to_owned()));
        }
        if !trees.is_empty() && trees.len() != self.runs.len() {
            let what = format!("{} trees, but the topology has {} runs", trees.len(), self.runs.len());
            return Err(BackendError::Tokens(what));
        }
        let fits = |(run, tree): &(&Run, &Tree)| tree.is_empty() || tree.len() == run.tokens;
        match self.runs.iter().zip(trees).find(|both| !fits(both)) {
            Some((run, tree)) => Err(BackendError::Tokens(format!(
                "a tree of {} drafts for {:?}, whose run has {} tokens",
                tree.len(),
                run.sequence,
                run.tokens
            ))),
            None => Ok(()),
        }
    }

    /// Checks that tokens, topology and model fit each other.
    ///
    /// # Errors
    /// `Tokens`.
    pub(crate) fn check(&self, tokens: &[u32], config: &Config) -> Result<(), BackendError> {
        let wanted: usize = self.runs.iter().map(|run| run.tokens).sum();
        if wanted != tokens.len() {
            let what = format!("{} tokens, but the topology's runs have {wanted}", tokens.len());
            return Err(BackendError::Tokens(what));
        }
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= config.vocabulary) {
            let what = format!("token {token}, but the vocabulary has {}", config.vocabulary);
            return Err(BackendError::Tokens(what));
        }
        if let Some(run) = self.runs.iter().find(|run| run.tokens == 0) {
            return Err(BackendError::Tokens(format!("a run without tokens ({:?})", run.sequence)));
        }
        let mut seen = HashSet::new();
        match self.runs.iter().find(|run| !seen.insert(run.sequence)) {
            Some(run) => Err(BackendError::Tokens(format!("{:?} has two runs", run.sequence))),
            None => Ok(()),
        }
    }
}

/// How a step computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardConfig {
    /// [`Precision::Exact`]: weights as decoded, everything in f32, and the same bits for any number of threads, batch,
    /// page size and way to cut a prompt into steps. Otherwise products are as fast as [`Precision::Fast`] is for their
    /// number of rows: bits do not depend on threads and pages, but those of a step with many rows may differ from
    /// those of smaller ones. Where a CPU rounds activations to 8 bits for such products, the output matrix gets at least 15 bits if a step
    /// has one row of logits, or more rows than sequences: nothing behind it evens out the errors of logits.
    pub precision: Precision,
    /// Whether the time of each kind of operation is measured.
    pub profile: bool,
}

impl Default for ForwardConfig {
    fn default() -> Self {
        Self { precision: Precision::Integer, profile: false }
    }
}

/// How a row of logits becomes a token.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow<'a> {
    /// How the token is chosen.
    pub sampling: &'a Sampling,
    /// The tokens so far, for penalties.
    pub history: &'a [u32],
    /// How many tokens were sampled with this seed before: the counter of the random numbers.
    pub counter: u64,
}

/// Checks that there is a way to sample each row of logits.
///
/// # Errors
/// `Tokens`.
pub(crate) fn check_rows(rows: &[SampleRow<'_>], of: usize) -> Result<(), BackendError> {
    if rows.len() != of {
        let what = format!("{of} rows of logits, but {} ways to sample them", rows.len());
        return Err(BackendError::Tokens(what));
    }
    Ok(())
}

/// Checks that there are such rows of logits, and such tokens.
///
/// # Errors
/// `Tokens`.
pub(crate) fn check_chosen(
    chosen: &[(usize, u32)],
    of: usize,
    vocabulary: usize,
) -> Result<(), BackendError> {
    match chosen.iter().find(|&&(row, token)| row >= of || token as usize >= vocabulary) {
        Some((row, token)) => Err(BackendError::Tokens(format!(
            "token {token} of row {row} of logits, where {of} rows have {vocabulary} tokens each"
        ))),
        None => Ok(()),
    }
}

/// The part of a cache of keys and values that does not depend on the device: its pages, and the sequences in them.
pub trait Sequences: Debug {
    /// The pages and sequences.
    fn pages(&self) -> &Pages;

    /// The pages and sequences, to be changed. This is for backends: positions that are added here are never computed.
    fn pages_mut(&mut self) -> &mut Pages;

    /// Tells the device that a sequence has been removed, so that it can drop its data about it.
    fn forget(&mut self, _sequence: SequenceId) {}
}

/// A device that runs models.
///
/// Two sequences in the same steps, each going on with its most probable token:
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/decoder/example.rs"));
/// use gllm_kernels_std::backend::*;
/// use gllm_kernels_std::model::{Model, Sampling};
///
/// let model = Model::open("model.gguf")?;
/// let backend = CpuBackend::new(2)?;
/// let weights = backend.upload_generator_weights(model.config(), &model.weights()?, &mut |_| ())?;
/// let mut kv = backend.alloc_kv_cache(512, model.config(), &CacheOptions { sequences: 2, ..Default::default() })?;
/// let (forward, sampling) = (ForwardConfig::default(), Sampling::greedy());
/// let mut texts = [vec![5, 17, 3], vec![40, 2]];
/// let sequences = [backend.create_sequence(&mut kv), backend.create_sequence(&mut kv)];
/// // What is not in the cache yet: first the prompts, then a token each.
/// let mut new = texts.clone();
/// for _ in 0..8 {
///     let run = |i: usize| Run { sequence: sequences[i], tokens: new[i].len(), outputs: Outputs::Last };
///     let topology = Topology { runs: vec![run(0), run(1)] };
///     let logits = backend.generator_forward_gpu_pure(&new.concat(), &topology, &weights, &mut kv, &forward)?;
///     let row = |i: usize| SampleRow { sampling: &sampling, history: &texts[i], counter: 0 };
///     let next = backend.sample_from_tensor(&logits, &[row(0), row(1)])?;
///     for (i, token) in next.into_iter().enumerate() {
///         texts[i].push(token);
///         new[i] = vec![token];
///     }
/// }
/// assert_eq!(texts.map(|text| text.len()), [11, 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Backend: Debug {
    /// Weights on the device.
    type Weights: Debug;
    /// A cache on the device.
    type KvCache: Sequences;
    /// A handle to logits on the device.
    type Logits: Debug;

    /// Brings weights to the device, in the form that it multiplies; `progress` is told how far it is.
    ///
    /// # Errors
    /// `Unsupported`, `Kernel`; those of the device.
    fn upload_generator_weights(
        &self,
        config: &Config,
        weights: &HostWeights<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self::Weights, BackendError>;

    /// A cache for `max_tokens` positions, those of all sequences together.
    ///
    /// # Errors
    /// `Unsupported`, `Cache`; those of the device.
    fn alloc_kv_cache(
        &self,
        max_tokens: usize,
        config: &Config,
        options: &CacheOptions,
    ) -> Result<Self::KvCache, BackendError>;

    /// Tokens of a prompt that make a step, unless somebody says otherwise: the more, the less often weights are read for a prompt, and the more memory
    /// intermediate results and layers with windows take. To be asked when weights are there, and the cache is not.
    fn chunk(&self, _config: &Config, _options: &CacheOptions) -> usize {
        512
    }

    /// A step: continues the topology's sequences with `tokens`, and yields a handle to the logits that are asked for, in the order of tokens.
    ///
    /// # Errors
    /// `Cache` if it is full: nothing has changed then, and the same can be tried again when sequences have been
    /// removed; `Tokens` if tokens and topology do not fit each other or the model, which changes nothing either;
    /// `Kernel`; those of the device. After the last two kinds of error the step's sequences may have positions that
    /// were never computed: remove these sequences.
    fn generator_forward_gpu_pure(
        &self,
        tokens: &[u32],
        topology: &Topology,
        weights: &Self::Weights,
        kv: &mut Self::KvCache,
        config: &ForwardConfig,
    ) -> Result<Self::Logits, BackendError> {
        self.generator_forward_trees(tokens, topology, &[], weights, kv, config)
    }

    /// A [step](Self::generator_forward_gpu_pure) in which the tokens of a run may be drafts that form a [tree](Tree): `trees` has one for each run,
    /// one without drafts where the tokens follow each other, or is empty if they do everywhere. Each draft has the logits that it has as the last token of a sequence that
    /// consists of what was there before the step and of the path to it. Afterwards [`accept_drafts`](Self::accept_drafts) says which of them the sequence goes on
    /// with; until then it cannot be continued.
    ///
    /// # Errors
    /// Those of [`generator_forward_gpu_pure`](Self::generator_forward_gpu_pure); `Tokens` unless there are as many trees as runs, each of the run's
    /// tokens or of none.
    fn generator_forward_trees(
        &self,
        tokens: &[u32],
        topology: &Topology,
        trees: &[Tree],
        weights: &Self::Weights,
        kv: &mut Self::KvCache,
        config: &ForwardConfig,
    ) -> Result<Self::Logits, BackendError>;

    /// Continues a sequence by those of its drafts that are on `path`, from the root on, and takes back the others: their keys and values are moved to
    /// where those of such tokens are. An empty path takes back all.
    ///
    /// # Errors
    /// `Cache` if there is no such sequence, or no such path in its tree; nothing has changed then. Those of the device.
    fn accept_drafts(
        &self,
        kv: &mut Self::KvCache,
        sequence: SequenceId,
        path: &[usize],
    ) -> Result<(), BackendError>;

    /// A step that gives a row of `hidden` elements for each run, of length 1: that of the run's tokens whose logits would be asked for,
    /// made one by `pooling`. [`read_logits`](Self::read_logits) reads these rows.
    ///
    /// # Errors
    /// Those of [`generator_forward_gpu_pure`](Self::generator_forward_gpu_pure); `Tokens` if a run asks for no row.
    fn embedding_forward_gpu_pure(
        &self,
        tokens: &[u32],
        topology: &Topology,
        weights: &Self::Weights,
        kv: &mut Self::KvCache,
        config: &ForwardConfig,
        pooling: Pooling,
    ) -> Result<Self::Logits, BackendError>;

    /// A token for each row of logits.
    ///
    /// # Errors
    /// `Tokens` unless there are as many `rows`; `Sampling`; those of the device.
    fn sample_from_tensor(
        &self,
        logits: &Self::Logits,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError>;

    /// How probable tokens are: for each pair of a row of logits and a token `logit[token] - ln(sum over t of exp(logit[t]))`, the
    /// natural logarithm of the token's probability, which temperature, penalties and biases do not change. The device computes them; nothing
    /// else crosses the bus.
    ///
    /// # Errors
    /// `Tokens` if there is no such row or token; those of the device.
    fn log_probabilities(
        &self,
        logits: &Self::Logits,
        chosen: &[(usize, u32)],
    ) -> Result<Vec<f32>, BackendError>;

    /// Chooses a token for each row of logits, and starts the step that continues each of the topology's sequences by its token, before anybody
    /// has read them: the topology's runs have one token each and ask for its logits, and row `i` of `logits` is of its run `i`. The handle is to
    /// the logits of that step; [`tokens_ahead`](Self::tokens_ahead) tells the tokens. Until it has, positions of the sequences count them.
    ///
    /// A sequence whose token is among `stop` ends with it: the step does not continue it, and its row of logits says nothing.
    ///
    /// `None`: the backend does not start steps ahead, or not this one, and nothing has changed. The tokens then come from
    /// [`sample_from_tensor`](Self::sample_from_tensor).
    ///
    /// # Errors
    /// Those of [`sample_from_tensor`](Self::sample_from_tensor) and [`generator_forward_gpu_pure`](Self::generator_forward_gpu_pure). A cache that
    /// is full is none: the answer is `None`.
    fn forward_ahead(
        &self,
        _logits: &Self::Logits,
        (_rows, _stop): (&[SampleRow<'_>], &[u32]),
        _topology: &Topology,
        _weights: &Self::Weights,
        _kv: &mut Self::KvCache,
        _config: &ForwardConfig,
    ) -> Result<Option<Self::Logits>, BackendError> {
        Ok(None)
    }

    /// The tokens that the step of these logits took, which [`forward_ahead`](Self::forward_ahead) gave: waits until they have been chosen, but not
    /// for that step. It is the cache's last one.
    ///
    /// # Errors
    /// `Tokens` if the logits are of another step; those of the device.
    fn tokens_ahead(
        &self,
        _logits: &Self::Logits,
        _kv: &mut Self::KvCache,
    ) -> Result<Vec<u32>, BackendError> {
        Err(BackendError::Tokens("no step was started ahead".to_owned()))
    }

    /// Waits until the step behind a handle is computed: for measurements, where nothing is read. Backends whose steps are complete when they
    /// return have nothing to wait for.
    ///
    /// # Errors
    /// Those of the device.
    fn wait(&self, _logits: &Self::Logits) -> Result<(), BackendError> {
        Ok(())
    }

    /// The numbers behind a handle, row by row.
    ///
    /// # Errors
    /// Those of the device.
    fn read_logits(&self, logits: &Self::Logits) -> Result<Vec<f32>, BackendError>;

    /// The cache's pages and sequences.
    fn pages<'a>(&self, kv: &'a Self::KvCache) -> &'a Pages {
        kv.pages()
    }

    /// A new sequence without positions.
    fn create_sequence(&self, kv: &mut Self::KvCache) -> SequenceId {
        kv.pages_mut().create()
    }

    /// A new sequence that shares the first `len` positions of another.
    ///
    /// # Errors
    /// `Cache`.
    fn fork_sequence(
        &self,
        kv: &mut Self::KvCache,
        of: SequenceId,
        len: usize,
    ) -> Result<SequenceId, BackendError> {
        Ok(kv.pages_mut().fork(of, len)?)
    }

    /// Ends a sequence, and frees the pages that no other one shares.
    ///
    /// # Errors
    /// `Cache` if there is no such sequence.
    fn remove_sequence(&self, kv: &mut Self::KvCache, sequence: SequenceId) -> Result<(), BackendError> {
        kv.pages_mut().remove(sequence)?;
        kv.forget(sequence);
        Ok(())
    }
}
