//! Models on the CPU.
//!
//! A step is recorded as a list of operations ([`step`]), which a team of threads does together ([`team`]). Weights are packed once
//! ([`weights`]); activations are rounded once for all products that take them, by whoever computes them ([`rows`], [`product`]);
//! attention goes over blocks of pages ([`attention`], [`cache`], [`cached`]); experts are products of the rows that
//! chose them ([`experts`]).

mod attention;
mod cache;
mod cached;
mod expanded;
mod experts;
mod head_products;
mod latent;
mod layers;
mod product;
mod program;
mod recurrent;
mod rows;
mod shares;
mod step;
mod streams;
mod team;
mod weights;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gllm_kernels_core::KernelError;
use rayon::prelude::*;

use super::{
    check_chosen, check_rows, Backend, BackendError, CacheOptions, ForwardConfig, Progress, Run, SampleRow,
    Topology,
};
use crate::aligned::AlignedVec;
use crate::model::{decode, embed, sample, Config, HostWeights, Pooling, SequenceId, Tree};
pub use cache::CpuKvCache;
use shares::TokenRun;
use step::Recorder;
use team::Team;
pub use weights::CpuWeights;

/// A team of threads that runs models.
pub struct CpuBackend {
    team: Team,
    /// Buffers of logits that were dropped, for later steps.
    free: Arc<Mutex<Vec<AlignedVec<f32>>>>,
    times: Mutex<Vec<(&'static str, Duration)>>,
}

/// Rows of logits.
#[derive(Debug)]
pub struct CpuLogits {
    memory: AlignedVec<f32>,
    rows: usize,
    vocabulary: usize,
    home: Arc<Mutex<Vec<AlignedVec<f32>>>>,
}

/// How many buffers of dropped logits are kept.
const MAX_IDLE: usize = 4;

impl CpuLogits {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// All rows, one behind the other.
    pub fn data(&self) -> &[f32] {
        &self.memory[..self.rows * self.vocabulary]
    }
}

impl Drop for CpuLogits {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, AlignedVec::zeroed(0));
        let mut free = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MAX_IDLE {
            free.push(memory);
        }
    }
}

impl CpuBackend {
    /// A backend of `threads` threads; 0 stands for as many as the machine runs at once.
    ///
    /// # Errors
    /// `Threads` if the operating system refuses them.
    pub fn new(threads: usize) -> Result<Self, BackendError> {
        Ok(Self { team: Team::new(threads)?, free: Arc::default(), times: Mutex::default() })
    }

    /// Threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// How long each kind of operation took since the last call, in steps with [`ForwardConfig::profile`].
    pub fn take_times(&self) -> Vec<(&'static str, Duration)> {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A buffer for logits: one that was dropped, if it is large enough.
    fn logits(&self, rows: usize, vocabulary: usize) -> CpuLogits {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.iter().position(|memory| memory.len() >= rows * vocabulary);
        let memory = at.map(|at| free.swap_remove(at));
        drop(free);
        let memory = memory.unwrap_or_else(|| AlignedVec::zeroed(rows * vocabulary));
        CpuLogits { memory, rows, vocabulary, home: Arc::clone(&self.free) }
    }

    /// A step, for logits or for rows that are pooled.
    fn forward(
        &self,
        (tokens, topology, trees): (&[u32], &Topology, &[Tree]),
        weights: &CpuWeights,
        kv: &mut CpuKvCache,
        config: &ForwardConfig,
        pooling: Option<Pooling>,
    ) -> Result<CpuLogits, BackendError> {
        let model = &weights.config;
        topology.check(tokens, model)?;
        topology.check_trees(trees, model)?;
        let (mut runs, mut row) = (Vec::new(), 0);
        for (i, &Run { sequence, tokens, .. }) in topology.runs.iter().enumerate() {
            let first = kv.pages.positions(sequence)?;
            let paths = trees.get(i).map_or(Vec::new(), |tree| tree.paths().to_vec());
            runs.push((sequence, TokenRun { row, tokens, first, paths }));
            row += tokens;
        }
        let positions: Vec<_> = runs.iter().map(|(_, run)| run.first).collect();
        topology.check_whole(&positions, pooling.is_none(), model)?;
        let outputs = topology.output_rows();
        kv.fits(model)?;
        kv.append(&topology.tokens())?;
        for (run, tree) in topology.runs.iter().zip(trees) {
            kv.pages.set_drafts(run.sequence, tree)?;
        }
        // Logits, or a row for each run.
        let mut logits = match pooling {
            None => self.logits(outputs.len(), model.logits()),
            Some(_) => self.logits(topology.runs.len(), model.hidden),
        };
        if tokens.is_empty() {
            return Ok(logits);
        }
        let how = (config, self.threads());
        let mut step = Recorder::new(weights, kv, (tokens, runs, outputs), how, logits.memory.as_mut_ptr())?;
        match pooling {
            None => decode(model, &mut step)?,
            Some(pooling) => embed(model, &mut step, pooling)?,
        }
        let program = Arc::new(step.finish());
        let mut times: Vec<(&'static str, Duration)> = Vec::new();
        let mut last = Instant::now();
        self.team.run(Arc::clone(&program) as Arc<dyn team::Work>, |operation| {
            if config.profile {
                let (name, now) = (program.name(operation), Instant::now());
                match times.iter_mut().find(|(n, _)| *n == name) {
                    Some((_, time)) => *time += now - last,
                    None => times.push((name, now - last)),
                }
                last = now;
            }
        });
        let mut all = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, time) in times {
            match all.iter_mut().find(|(n, _)| *n == name) {
                Some((_, sum)) => *sum += time,
                None => all.push((name, time)),
            }
        }
        program.failed().map_or(Ok(logits), |e: KernelError| Err(e.into()))
    }
}

impl fmt::Debug for CpuBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuBackend({:?})", self.team)
    }
}

impl Backend for CpuBackend {
    type Weights = CpuWeights;
    type KvCache = CpuKvCache;
    type Logits = CpuLogits;

    fn upload_generator_weights(
        &self,
        config: &Config,
        weights: &HostWeights<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CpuWeights, BackendError> {
        weights::upload(config, weights, self.threads(), progress)
    }

    fn alloc_kv_cache(
        &self,
        max_tokens: usize,
        config: &Config,
        options: &CacheOptions,
    ) -> Result<CpuKvCache, BackendError> {
        CpuKvCache::new(max_tokens, config, options)
    }

    fn generator_forward_trees(
        &self,
        tokens: &[u32],
        topology: &Topology,
        trees: &[Tree],
        weights: &CpuWeights,
        kv: &mut CpuKvCache,
        config: &ForwardConfig,
    ) -> Result<CpuLogits, BackendError> {
        self.forward((tokens, topology, trees), weights, kv, config, None)
    }

    fn accept_drafts(
        &self,
        kv: &mut CpuKvCache,
        sequence: SequenceId,
        path: &[usize],
    ) -> Result<(), BackendError> {
        kv.accept(sequence, path)
    }

    fn embedding_forward_gpu_pure(
        &self,
        tokens: &[u32],
        topology: &Topology,
        weights: &CpuWeights,
        kv: &mut CpuKvCache,
        config: &ForwardConfig,
        pooling: Pooling,
    ) -> Result<CpuLogits, BackendError> {
        topology.check_pooled()?;
        self.forward((tokens, topology, &[]), weights, kv, config, Some(pooling))
    }

    fn sample_from_tensor(
        &self,
        logits: &CpuLogits,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError> {
        check_rows(rows, logits.rows)?;
        let each = logits.data().chunks_exact(logits.vocabulary.max(1)).zip(rows);
        let mut memory = Vec::new();
        each.map(|(row, how)| {
            memory.clear();
            memory.extend_from_slice(row);
            // The random numbers are those of the sequence, whatever row it is in.
            Ok(sample(&mut memory, how.history, how.counter, 0, how.sampling)?)
        })
        .collect()
    }

    fn log_probabilities(
        &self,
        logits: &CpuLogits,
        chosen: &[(usize, u32)],
    ) -> Result<Vec<f32>, BackendError> {
        check_chosen(chosen, logits.rows, logits.vocabulary)?;
        let k = crate::kernels::<f32>();
        let each = chosen.par_iter().map_init(
            || vec![0.0; logits.vocabulary],
            |memory, &(row, token)| {
                let row = &logits.data()[row * logits.vocabulary..][..logits.vocabulary];
                // The largest probability is 1 over the sum of exp(logit - largest logit).
                k.softmax(row, memory)?;
                let largest = k.vec_max(row)?;
                let most = k.vec_max(memory)?;
                Ok(row[token as usize] - largest + most.ln())
            },
        );
        each.collect()
    }

    fn read_logits(&self, logits: &CpuLogits) -> Result<Vec<f32>, BackendError> {
        Ok(logits.data().to_vec())
    }
}
