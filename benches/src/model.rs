//! Language models, as the commands open them.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use gllm_kernels_core::Precision;
use gllm_kernels_std::backend::{choose_for, AnyBackend, BackendKind, CacheOptions, ForwardConfig, KvType};
use gllm_kernels_std::model::{Generator, Model, Options as GeneratorOptions};
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{Failure, Outcome};
use crate::options::{threads, Selection};
use crate::tokenizer::Tokenizer;

/// How exactly a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Exactness {
    /// Weights as decoded, everything in f32, the cache in f32.
    Exact,
    /// Activations are rounded for products with quantised weights; the cache is in f16 unless --cache says otherwise.
    Fast,
}

/// The type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)] // The names say it.
pub enum Cache {
    F16,
    Bf16,
    F32,
    #[value(name = "q8_0")]
    Q8_0,
}

/// What a model runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)] // The names say it.
pub enum On {
    Cuda,
    Rocm,
    Metal,
    Wgpu,
    Cpu,
}

impl On {
    fn kind(self) -> BackendKind {
        match self {
            Self::Cuda => BackendKind::Cuda,
            Self::Rocm => BackendKind::Rocm,
            Self::Metal => BackendKind::Metal,
            Self::Wgpu => BackendKind::Wgpu,
            Self::Cpu => BackendKind::Cpu,
        }
    }
}

/// Which model, and how it computes.
#[derive(Args, Clone, Debug)]
pub struct Setup {
    /// The model: a GGUF file, of several that belong together the first, or the folder of a checkpoint in safetensors.
    pub file: PathBuf,
    /// How exactly it computes.
    #[arg(long, value_enum, default_value = "fast")]
    pub precision: Exactness,
    /// Type of cached keys and values. Default: f16; with --precision exact f32.
    #[arg(long, value_enum)]
    pub cache: Option<Cache>,
    /// What it runs on. Default: the best that `info` finds.
    #[arg(long, value_enum)]
    pub backend: Option<On>,
    #[command(flatten)]
    /// Which kernels may run, if it runs on the CPU.
    pub selection: Selection,
}

/// What a cache has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Positions of all sequences together.
    pub positions: usize,
    /// Sequences at a time.
    pub sequences: usize,
    /// Tokens of a step, at most; `None`: as many as suit the backend.
    pub step: Option<usize>,
}

impl Room {
    /// For one sequence.
    pub fn one(positions: usize) -> Self {
        Self { positions, sequences: 1, step: None }
    }
}

/// A model that is ready to run.
pub type Loaded = Generator<AnyBackend>;

/// Opens the model's file.
pub fn open(file: &Path) -> Outcome<Model<'static>> {
    Model::open(file).map_err(|e| Failure::Failed(e.to_string()))
}

/// The model's tokenizer.
pub fn tokenizer<'m>(model: &'m Model<'_>) -> Outcome<Tokenizer<'m>> {
    Tokenizer::new(|key| model.metadata(key)).map_err(|e| Failure::Failed(e.to_string()))
}

impl Setup {
    /// Opens the model's file, for the kernels that may run.
    pub fn open(&self) -> Outcome<Model<'static>> {
        self.selection.apply()?;
        open(&self.file)
    }

    /// Loads the model for so many threads; also says how long that took.
    pub fn load(
        &self,
        model: &Model<'_>,
        thread_count: &str,
        room: Room,
        quiet: bool,
    ) -> Outcome<(Loaded, Duration)> {
        let failed = |e: &dyn std::fmt::Display| Failure::Failed(e.to_string());
        let kind = match (self.cache, self.precision) {
            (Some(Cache::F16), _) | (None, Exactness::Fast) => KvType::F16,
            (Some(Cache::Bf16), _) => KvType::Bf16,
            (Some(Cache::Q8_0), _) => KvType::Q8_0,
            (Some(Cache::F32), _) | (None, Exactness::Exact) => KvType::F32,
        };
        let precision = match self.precision {
            Exactness::Exact => Precision::Exact,
            Exactness::Fast => Precision::Integer,
        };
        let options = GeneratorOptions {
            max_tokens: Some(room.positions),
            cache: CacheOptions { kind, sequences: room.sequences, ..CacheOptions::default() },
            forward: ForwardConfig { precision, ..ForwardConfig::default() },
            chunk: room.step,
        };
        let count = threads(thread_count)?;
        let backend = match self.backend {
            Some(on) => on.kind().open(count),
            None => choose_for(model.config(), count).map(|choice| choice.backend),
        };
        let backend = backend.map_err(|e| failed(&e))?;
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(0)
        };
        let style = ProgressStyle::with_template("loading {bar:30} {bytes}/{total_bytes}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let started = Instant::now();
        let loaded = Generator::with_progress(backend, model, options, &mut |p| {
            bar.set_length(p.total as u64);
            bar.set_position(p.done as u64);
        });
        bar.finish_and_clear();
        Ok((loaded.map_err(|e| failed(&e))?, started.elapsed()))
    }
}

/// Refuses tokens that the model does not have.
pub fn check(tokens: &[u32], model: &Model<'_>) -> Outcome {
    let vocabulary = model.config().vocabulary;
    match tokens.iter().find(|&&t| t as usize >= vocabulary) {
        Some(token) => {
            Err(Failure::Usage(format!("token {token} does not exist: the vocabulary has {vocabulary}")))
        }
        None => Ok(()),
    }
}
