//! How fast models read prompts and generate text: what was timed, and our side of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gllm_kernels_std::backend::{Backend, BackendError, CacheOptions, Outputs, Run, Topology};
use gllm_kernels_std::model::SequenceId;
use serde::Serialize;

use crate::html::Origin;
use crate::model::{Loaded, Room};
use crate::report;

/// What a model does while it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It reads a prompt.
    Prompt,
    /// It generates tokens, one in a step.
    Generate,
}

impl Phase {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Generate => "generate",
        }
    }
}

/// What was timed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Case {
    /// What the model did.
    pub phase: Phase,
    /// Tokens of the prompt, or tokens that each sequence generates.
    pub tokens: usize,
    /// Tokens that were there before.
    pub depth: usize,
    /// Threads.
    pub threads: usize,
}

/// How fast a model was.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// At what.
    #[serde(flatten)]
    pub case: Case,
    /// Sequences side by side.
    pub sequences: usize,
    /// Seconds to load the model with so many threads.
    pub load_seconds: f64,
    /// Tokens a second, those of all sequences.
    pub tokens_per_second: f64,
    /// How far memory limits it, of generation.
    #[serde(flatten)]
    pub memory: Option<MemoryShare>,
    /// Where the time goes: per cent of each kind of operation, the largest first.
    pub operations: Vec<(&'static str, f64)>,
}

/// How much of the memory's bandwidth generation uses.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryShare {
    /// Bytes of weights and cache that a step reads, for each of its tokens, on average.
    pub bytes_per_token: usize,
    /// Bytes that memory can be read at, in GB/s; that of a GPU: read and written at by copying.
    pub bandwidth: f64,
    /// Which share of it the generated tokens' bytes are.
    pub efficiency: f64,
}

impl Speed {
    /// Seconds of a step: of a whole prompt, or of a token of each sequence.
    pub fn step_seconds(&self) -> f64 {
        let tokens = match self.case.phase {
            Phase::Prompt => self.case.tokens,
            Phase::Generate => self.sequences,
        };
        tokens as f64 / self.tokens_per_second
    }

    /// What was timed, in words.
    pub fn name(&self) -> String {
        let Case { phase, tokens, depth, threads } = self.case;
        let threads = report::threads(threads);
        match (phase, self.sequences) {
            (Phase::Prompt, _) => format!("prompt of {tokens} tokens, {threads}"),
            (Phase::Generate, 1) => format!("a token behind {depth}, {threads}"),
            (Phase::Generate, n) => format!("a token of each of {n} sequences behind {depth}, {threads}"),
        }
    }
}

/// A model, and how fast it is here.
#[derive(Debug, Serialize)]
pub struct Speeds {
    /// When this was measured, and where.
    #[serde(flatten)]
    pub origin: Origin,
    /// The model's file.
    pub file: PathBuf,
    /// Its architecture.
    pub architecture: &'static str,
    /// Bytes of weights that a step reads.
    pub weight_bytes: usize,
    /// Most memory that this process has had with the model on the first number of threads, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// What was measured.
    pub rows: Vec<Speed>,
}

/// Room for `sequences` prompts of `longest` tokens that are kept while a fork of each is continued by `count` tokens: it may need
/// pages of its own at both ends.
pub fn room(sequences: usize, longest: usize, count: usize) -> Room {
    let pages = 3 * CacheOptions::default().page_tokens;
    let each = longest.max(1).saturating_add(count).saturating_add(pages);
    Room { positions: sequences.saturating_mul(each), sequences: sequences.saturating_mul(2), step: None }
}

/// Reads a prompt, and returns what that took.
///
/// # Errors
/// The backend's.
pub fn read(loaded: &mut Loaded, prompt: &[u32]) -> Result<Duration, BackendError> {
    let started = Instant::now();
    loaded.read_prompt(prompt)?;
    Ok(started.elapsed())
}

/// Sequences that each have read a prompt, and that generation goes on from again and again.
#[derive(Debug)]
pub struct Start {
    sequences: Vec<SequenceId>,
    /// Tokens of each.
    len: usize,
}

impl Start {
    /// Reads the prompt for each of `sequences` sequences, which share nothing.
    ///
    /// # Errors
    /// The backend's.
    pub fn new(loaded: &mut Loaded, prompt: &[u32], sequences: usize) -> Result<Self, BackendError> {
        let mut all = Vec::with_capacity(sequences);
        for _ in 0..sequences {
            let sequence = loaded.create();
            loaded.extend(sequence, prompt, Outputs::None)?;
            all.push(sequence);
        }
        Ok(Self { sequences: all, len: prompt.len() })
    }

    /// Continues each sequence by these tokens, one of each sequence in a step, and returns what that took. Afterwards the sequences are as before.
    ///
    /// # Errors
    /// The backend's.
    pub fn generate(&self, loaded: &mut Loaded, next: &[u32]) -> Result<Duration, BackendError> {
        let forks = self.sequences.iter().map(|&of| loaded.fork(of, self.len));
        let forks = forks.collect::<Result<Vec<SequenceId>, _>>()?;
        let runs = forks.iter().map(|&sequence| Run { sequence, tokens: 1, outputs: Outputs::Last });
        let topology = Topology { runs: runs.collect() };
        let mut tokens = vec![0; forks.len()];
        let started = Instant::now();
        for &token in next {
            tokens.fill(token);
            let logits = loaded.forward(&tokens, &topology)?;
            loaded.backend().wait(&logits)?;
        }
        let time = started.elapsed();
        for sequence in forks {
            loaded.remove(sequence)?;
        }
        Ok(time)
    }

    /// Forgets the sequences.
    ///
    /// # Errors
    /// The backend's.
    pub fn end(self, loaded: &mut Loaded) -> Result<(), BackendError> {
        self.sequences.into_iter().try_for_each(|sequence| loaded.remove(sequence))
    }
}
