//! Generation of tokens, and embeddings, with a model on any backend.

use std::fmt;
use std::ops::Range;

use super::dense::Dense;
use super::{Classifier, Model, ModelError, Pages, Pooling, Sampling, SequenceId, Tree};
use crate::backend::{
    Backend, BackendError, CacheOptions, ForwardConfig, Outputs, Progress, Run, SampleRow, Topology,
};

/// How a [`Generator`] works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Positions that the cache has room for, those of all sequences together; `None`: as many as the model was trained
    /// for, and 4096 at most. Where frequencies are divided otherwise for long texts, this says whether texts may be so long
    /// ([`Config::for_texts_of`](super::Config::for_texts_of)).
    pub max_tokens: Option<usize>,
    /// The options of the cache.
    pub cache: CacheOptions,
    /// How steps compute.
    pub forward: ForwardConfig,
    /// Tokens of a prompt in a step, at most; `None`: as many as suit the backend ([`Backend::chunk`]).
    pub chunk: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        let (cache, forward) = (CacheOptions::default(), ForwardConfig::default());
        Self { max_tokens: None, cache, forward, chunk: None }
    }
}

/// Why nothing was generated.
#[derive(Debug)]
#[non_exhaustive]
pub enum GeneratorError {
    /// The model.
    Model(ModelError),
    /// The backend.
    Backend(BackendError),
}

impl fmt::Display for GeneratorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(e) => e.fmt(f),
            Self::Backend(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for GeneratorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Model(e) => Some(e),
            Self::Backend(e) => Some(e),
        }
    }
}

impl From<ModelError> for GeneratorError {
    fn from(e: ModelError) -> Self {
        Self::Model(e)
    }
}
impl From<BackendError> for GeneratorError {
    fn from(e: BackendError) -> Self {
        Self::Backend(e)
    }
}

/// A model on a backend, with a cache for its sequences.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/decoder/example.rs"));
/// use gllm_kernels_std::backend;
/// use gllm_kernels_std::model::{Generator, Model, Options, Sampling};
///
/// let model = Model::open("model.gguf")?;
/// let mut generator = Generator::new(backend::detect()?, &model, Options::default())?;
/// for token in generator.generate(&[1, 2, 3], Sampling::greedy())?.take(64) {
///     println!("{}", token?);
/// }
/// # Ok::<(), gllm_kernels_std::model::GeneratorError>(())
/// ```
#[derive(Debug)]
pub struct Generator<B: Backend> {
    pub(super) backend: B,
    weights: B::Weights,
    kv: B::KvCache,
    pub(super) options: Options,
    /// Tokens of a prompt in a step, at most.
    pub(super) chunk: usize,
    stop_tokens: Vec<u32>,
    /// Logits of a token.
    pub(super) width: usize,
    /// Positions that the model was trained for.
    pub(super) context: usize,
    pub(super) classifier: Option<Classifier>,
    dense: Dense,
}

impl<B: Backend> Generator<B> {
    /// Loads a model.
    ///
    /// # Errors
    /// The model's and the backend's.
    pub fn new(backend: B, model: &Model<'_>, options: Options) -> Result<Self, GeneratorError> {
        Self::with_progress(backend, model, options, &mut |_| ())
    }

    /// Loads a model; `progress` is told how far loading has come. First, every weight is looked at: what is not a
    /// finite number is refused ([`Model::verify`]).
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_progress(
        backend: B,
        model: &Model<'_>,
        options: Options,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, GeneratorError> {
        let max_tokens = options.max_tokens.unwrap_or(model.config().context.min(4096));
        let config = &model.config().for_texts_of(max_tokens);
        model.verify()?;
        let on_host = model.weights()?;
        let dense = Dense::new(&on_host.dense).map_err(BackendError::from)?;
        let weights = backend.upload_generator_weights(config, &on_host, progress)?;
        let chunk = options.chunk.unwrap_or_else(|| backend.chunk(config, &options.cache)).max(1);
        let cache = CacheOptions { step_tokens: options.cache.step_tokens.max(chunk), ..options.cache };
        let options = Options { cache, ..options };
        let kv = backend.alloc_kv_cache(max_tokens, config, &options.cache)?;
        let (width, context) = (config.logits(), config.context);
        let (stop_tokens, classifier) = (config.stop_tokens.clone(), config.classifier.clone());
        Ok(Self { backend, weights, kv, options, chunk, stop_tokens, width, context, classifier, dense })
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The weights on the backend.
    pub fn weights(&self) -> &B::Weights {
        &self.weights
    }

    /// The cache.
    pub fn cache(&self) -> &B::KvCache {
        &self.kv
    }

    /// The cache's pages and sequences.
    pub fn pages(&self) -> &Pages {
        self.backend.pages(&self.kv)
    }

    /// How it works; what steps compute can be changed between them.
    pub fn forward_mut(&mut self) -> &mut ForwardConfig {
        &mut self.options.forward
    }

    /// A new sequence.
    pub fn create(&mut self) -> SequenceId {
        self.backend.create_sequence(&mut self.kv)
    }

    /// A new sequence that shares the first `len` positions of another.
    ///
    /// # Errors
    /// `Cache`.
    pub fn fork(&mut self, of: SequenceId, len: usize) -> Result<SequenceId, BackendError> {
        self.backend.fork_sequence(&mut self.kv, of, len)
    }

    /// Ends a sequence.
    ///
    /// # Errors
    /// `Cache` if there is none.
    pub fn remove(&mut self, sequence: SequenceId) -> Result<(), BackendError> {
        self.backend.remove_sequence(&mut self.kv, sequence)
    }

    /// One step of any runs; the handle has the logits that they ask for.
    ///
    /// # Errors
    /// The backend's.
    pub fn forward(&mut self, tokens: &[u32], topology: &Topology) -> Result<B::Logits, BackendError> {
        let Self { backend, weights, kv, options, .. } = self;
        backend.generator_forward_gpu_pure(tokens, topology, weights, kv, &options.forward)
    }

    /// One step in which the tokens of a run may be a tree of drafts, for speculative decoding: [`Backend::generator_forward_trees`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/decoder/example.rs"));
    /// use gllm_kernels_std::backend::{CpuBackend, Outputs, Run, Topology};
    /// use gllm_kernels_std::model::{Generator, Model, Options, Tree};
    ///
    /// let model = Model::open("model.gguf")?;
    /// let mut generator = Generator::new(CpuBackend::new(2)?, &model, Options::default())?;
    /// let sequence = generator.create();
    /// generator.extend(sequence, &[5, 17, 3], Outputs::None)?;
    /// // Token 8 comes next; behind it a smaller model proposes 21, or 4 and then 11.
    /// let (tokens, tree) = ([8, 21, 4, 11], Tree::new(&[None, Some(0), Some(0), Some(2)])?);
    /// let topology = Topology { runs: vec![Run { sequence, tokens: 4, outputs: Outputs::All }] };
    /// let logits = generator.forward_trees(&tokens, &topology, &[tree])?;
    /// // The logits say that 4 comes behind 8, but not 11 behind 4.
    /// generator.accept(sequence, &[0, 2])?;
    /// assert_eq!(generator.pages().positions(sequence)?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The backend's.
    pub fn forward_trees(
        &mut self,
        tokens: &[u32],
        topology: &Topology,
        trees: &[Tree],
    ) -> Result<B::Logits, BackendError> {
        let Self { backend, weights, kv, options, .. } = self;
        backend.generator_forward_trees(tokens, topology, trees, weights, kv, &options.forward)
    }

    /// Continues a sequence by the drafts on a path of its tree, and takes back the others: [`Backend::accept_drafts`].
    ///
    /// # Errors
    /// The backend's.
    pub fn accept(&mut self, sequence: SequenceId, path: &[usize]) -> Result<(), BackendError> {
        self.backend.accept_drafts(&mut self.kv, sequence, path)
    }

    /// Continues a sequence by tokens, in steps of at most [`Options::chunk`]; the handle has the logits of the last step that `outputs` asks for,
    /// and none if there are no tokens.
    ///
    /// # Errors
    /// The backend's: tokens of steps before the one that failed are in the sequence.
    pub fn extend(
        &mut self,
        sequence: SequenceId,
        tokens: &[u32],
        outputs: Outputs,
    ) -> Result<B::Logits, BackendError> {
        let mut rest = tokens;
        loop {
            let (chunk, behind) = rest.split_at(rest.len().min(self.chunk));
            let wanted = match outputs {
                Outputs::Last if !behind.is_empty() => Outputs::None,
                outputs => outputs,
            };
            let run = Run { sequence, tokens: chunk.len(), outputs: wanted };
            let runs = if chunk.is_empty() { Vec::new() } else { vec![run] };
            let logits = self.forward(chunk, &Topology { runs })?;
            if behind.is_empty() {
                return Ok(logits);
            }
            rest = behind;
        }
    }

    /// The logits behind each of the tokens, which begin a sequence: a row for each, of the vocabulary's, or of the labels of a model that
    /// ranks texts.
    ///
    /// # Errors
    /// The backend's.
    pub fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        self.each_step((tokens, self.width), |backend, logits, _| backend.read_logits(logits))
    }

    /// Reads tokens in a sequence of their own, and puts together what `of` makes of the logits of each step, which are those behind these of the
    /// tokens: `width` numbers for each.
    fn each_step(
        &mut self,
        (tokens, width): (&[u32], usize),
        of: impl Fn(&B, &B::Logits, Range<usize>) -> Result<Vec<f32>, BackendError>,
    ) -> Result<Vec<f32>, BackendError> {
        let (sequence, chunk) = (self.create(), self.chunk);
        let mut all = Vec::with_capacity(tokens.len() * width);
        let result = (0..tokens.len()).step_by(chunk).try_for_each(|first| {
            let these = first..tokens.len().min(first + chunk);
            let logits = self.extend(sequence, &tokens[these.clone()], Outputs::All)?;
            all.extend(of(&self.backend, &logits, these)?);
            Ok(())
        });
        self.remove(sequence)?;
        result.map(|()| all)
    }

    /// How probable the model finds each token of a text but the first, behind those before it: natural logarithms of probabilities. Perplexity is
    /// `exp` of their negative mean.
    ///
    /// # Errors
    /// The backend's; `Unsupported` if the model ranks texts.
    pub fn log_probabilities(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        if self.classifier.is_some() {
            let what = "probabilities of tokens from a model that ranks texts: it has labels in their place";
            return Err(BackendError::Unsupported(what.to_owned()));
        }
        self.each_step((tokens, 1), |backend, logits, these| {
            let next = tokens[these.start + 1..].iter().copied();
            backend.log_probabilities(logits, &next.take(these.len()).enumerate().collect::<Vec<_>>())
        })
    }

    /// Embeddings of texts: of each a row of `hidden` numbers, of length 1, so that the product of two rows says how alike the texts are. As many texts
    /// as [`Options::chunk`] has room for make a step together. `pooling` is usually [`Config::pooling`](super::Config::pooling). Texts have the
    /// tokens that the model was trained with, usually one that ends them.
    ///
    /// # Errors
    /// The backend's; `Tokens` if a text is empty, or longer than a step.
    pub fn embed(&mut self, texts: &[&[u32]], pooling: Pooling) -> Result<Vec<Vec<f32>>, BackendError> {
        let most = self.chunk;
        if let Some(text) = texts.iter().find(|text| text.is_empty() || text.len() > most) {
            let what =
                format!("a text of {} tokens: there must be 1 to {most}, the tokens of a step", text.len());
            return Err(BackendError::Tokens(what));
        }
        let outputs = if pooling == Pooling::Last { Outputs::Last } else { Outputs::All };
        let (mut all, mut rest) = (Vec::with_capacity(texts.len()), texts);
        while !rest.is_empty() {
            let mut tokens = 0;
            let fits = |text: &&&[u32]| {
                tokens += text.len();
                tokens <= most
            };
            let count = rest.iter().take_while(fits).take(self.options.cache.sequences.max(1)).count();
            let (now, behind) = rest.split_at(count);
            let run = |text: &&[u32]| Run { sequence: self.create(), tokens: text.len(), outputs };
            let runs: Vec<_> = now.iter().map(run).collect();
            let topology = Topology { runs };
            let Self { backend, weights, kv, options, .. } = self;
            let how = &options.forward;
            let rows =
                backend.embedding_forward_gpu_pure(&now.concat(), &topology, weights, kv, how, pooling);
            let rows = rows.and_then(|rows| backend.read_logits(&rows));
            for run in &topology.runs {
                self.remove(run.sequence)?;
            }
            let rows = rows?;
            for row in rows.chunks(rows.len() / count) {
                all.push(self.dense.apply(row.to_vec())?);
            }
            rest = behind;
        }
        Ok(all)
    }

    /// Reads a prompt, without any logits, in a sequence of its own that ends with it: for measurements.
    ///
    /// # Errors
    /// The backend's.
    pub fn read_prompt(&mut self, tokens: &[u32]) -> Result<(), BackendError> {
        let sequence = self.create();
        let result = self.extend(sequence, tokens, Outputs::Last);
        let result = result.and_then(|logits| self.backend.wait(&logits));
        self.remove(sequence)?;
        result
    }

    /// The tokens that follow a prompt, one by one, in a sequence that ends with the iterator. Those that end a text end it.
    ///
    /// # Errors
    /// The backend's; `Tokens` if the prompt is empty; `Unsupported` if the model ranks texts.
    pub fn generate(&mut self, prompt: &[u32], sampling: Sampling) -> Result<Tokens<'_, B>, BackendError> {
        if prompt.is_empty() {
            return Err(BackendError::Tokens("a prompt without tokens".to_owned()));
        }
        if self.classifier.is_some() {
            let what = "text from a model that ranks texts: it has labels in place of tokens";
            return Err(BackendError::Unsupported(what.to_owned()));
        }
        let sequence = self.create();
        let logits = match self.extend(sequence, prompt, Outputs::Last) {
            Ok(logits) => logits,
            Err(e) => {
                self.remove(sequence)?;
                return Err(e);
            }
        };
        let history = prompt.to_vec();
        let logits = Some(logits);
        Ok(Tokens { generator: self, sequence, sampling, history, counter: 0, logits, ends: true })
    }
}

/// Tokens as they are generated: [`Generator::generate`].
#[derive(Debug)]
pub struct Tokens<'a, B: Backend> {
    generator: &'a mut Generator<B>,
    sequence: SequenceId,
    sampling: Sampling,
    history: Vec<u32>,
    counter: u64,
    /// Of the last token; `None` when the text has ended.
    logits: Option<B::Logits>,
    /// Whether tokens that end a text end it.
    ends: bool,
}

impl<B: Backend> Tokens<'_, B> {
    /// Goes on behind tokens that end a text, for as long as the cache has room.
    #[must_use]
    pub fn ignore_end(mut self) -> Self {
        self.ends = false;
        self
    }

    /// The prompt and all tokens so far.
    pub fn history(&self) -> &[u32] {
        &self.history
    }

    /// A token. Where the backend can, the step behind it is started before the token is known.
    fn step(&mut self, logits: &B::Logits) -> Result<u32, BackendError> {
        let how = SampleRow { sampling: &self.sampling, history: &self.history, counter: self.counter };
        let Generator { backend, weights, kv, options, stop_tokens, .. } = &mut *self.generator;
        let stop: &[u32] = if self.ends { stop_tokens } else { &[] };
        let run = Run { sequence: self.sequence, tokens: 1, outputs: Outputs::Last };
        let topology = Topology { runs: vec![run] };
        let ahead =
            backend.forward_ahead(logits, (&[how], stop), &topology, weights, kv, &options.forward)?;
        let token = match ahead {
            Some(ahead) => {
                let token = backend.tokens_ahead(&ahead, kv)?[0];
                self.logits = (!stop.contains(&token)).then_some(ahead);
                token
            }
            None => backend.sample_from_tensor(logits, &[how])?[0],
        };
        self.counter += 1;
        self.history.push(token);
        Ok(token)
    }
}

impl<B: Backend> Iterator for Tokens<'_, B> {
    type Item = Result<u32, BackendError>;

    /// The step behind a token is computed when the next token is requested, or before that on backends that start steps ahead.
    fn next(&mut self) -> Option<Self::Item> {
        let logits = match self.logits.take() {
            Some(logits) => logits,
            None => {
                let last = self.history.last().copied().filter(|_| self.counter > 0)?;
                if self.ends && self.generator.stop_tokens.contains(&last) {
                    return None;
                }
                match self.generator.extend(self.sequence, &[last], Outputs::Last) {
                    Ok(logits) => logits,
                    Err(e) => {
                        self.counter = 0;
                        return Some(Err(e));
                    }
                }
            }
        };
        let token = self.step(&logits);
        if token.is_err() {
            self.counter = 0;
        }
        Some(token)
    }
}

impl<B: Backend> Drop for Tokens<'_, B> {
    fn drop(&mut self) {
        // It exists: nobody else knows it.
        let _ = self.generator.remove(self.sequence);
    }
}
