//! Models on any GPU, through Vulkan, Metal or DirectX 12.
//!
//! Shaders are written in WGSL and embedded as text ([`shaders`]); a format of weights is decoded by one function, whatever the operator. A step
//! is encoded as its operations are named ([`step`]) and submitted together with the sampling of its logits: of a token, 4 bytes go to the
//! device and 4 come back. Positions advance on the device; tables are written where they differ from what is there ([`mirror`]).
//!
//! Which experts a row goes through is known to the device alone ([`experts`]).
//!
//! Arithmetic is that of [`Precision::Exact`], up to the order of sums and the accuracy of the device's functions: weights as decoded, activations
//! and sums in f32. With [`Precision::Integer`] a step of one row rounds what it multiplies with blocks of weights to 8 bits, and a step of many
//! rows multiplies in f16 on GPUs that do so.

mod adapter;
mod cache;
mod composer;
mod device;
mod drafts;
mod experts;
mod formats;
mod latent;
mod layers;
mod mirror;
mod recurrent;
mod sampling;
mod shaders;
mod shapes;
mod step;
mod streams;
#[cfg(test)]
mod tests;
mod weights;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gllm_kernels_core::Precision;
use wgpu::{Buffer, BufferUsages, CommandEncoder, Features};

use super::{
    check_chosen, check_rows, Backend, BackendError, CacheOptions, ForwardConfig, Progress, Run, SampleRow,
    Topology,
};
use crate::model::{decode, embed, Config, HostWeights, Pooling, SequenceId, Tree};
pub use adapter::WgpuAdapter;
pub use cache::WgpuKvCache;
use device::Gpu;
pub use device::Traffic;
use sampling::{log_probabilities, Sampler};
use shaders::MAX_GEMV_ROWS;
use step::Recorder;
pub use weights::WgpuWeights;

/// Memory for rows of logits. A buffer has as many as shaders can see of it.
#[derive(Debug)]
struct LogitsMemory {
    /// Tells it, and its parts, from others.
    id: u64,
    parts: Vec<Buffer>,
    rows_of_part: usize,
    /// Logits that there is room for in each part.
    room: usize,
}

/// Memory of logits that were dropped, and the number of the next one.
#[derive(Debug)]
struct Home {
    free: Vec<LogitsMemory>,
    next: u64,
}

/// Memory of logits that is kept, at most.
const MAX_IDLE: usize = 4;

/// Rows of logits on a GPU.
#[derive(Debug)]
pub struct WgpuLogits {
    memory: Option<LogitsMemory>,
    rows: usize,
    vocabulary: usize,
    home: Arc<Mutex<Home>>,
}

impl WgpuLogits {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The memory, and of each part its rows.
    fn parts(&self) -> impl Iterator<Item = (&Buffer, usize)> {
        let rows = self.rows;
        self.memory.iter().flat_map(move |memory| {
            let each = memory.rows_of_part;
            let part = move |(i, buffer)| (buffer, rows.saturating_sub(i * each).min(each));
            memory.parts.iter().enumerate().map(part).filter(|part| part.1 > 0)
        })
    }
}

impl Drop for WgpuLogits {
    fn drop(&mut self) {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        if home.free.len() < MAX_IDLE {
            home.free.extend(self.memory.take());
        }
    }
}

/// A GPU that runs models.
///
/// Of what not every adapter has, operations of subgroups are used where there are such, and products of packed bytes, which WGSL has
/// everywhere. With [`Precision::Integer`] a step of more than 8 rows multiplies in f16 where the adapter does so: weights that are not f32 and
/// activations are rounded to f16, 32 columns of a row with a scale of their own, and products and sums of these columns are f16. That costs
/// 11 * 2^-11 of the terms' magnitudes at most; sums over more columns are f32. Software has no fast arithmetic in f16, and computes in f32.
pub struct WgpuBackend {
    gpu: Gpu,
    home: Arc<Mutex<Home>>,
    /// A step that is encoded, but not submitted: sampling follows.
    pending: Mutex<Option<CommandEncoder>>,
    sampler: Mutex<Option<Sampler>>,
}

impl WgpuBackend {
    /// A backend on this adapter, software or not.
    ///
    /// # Errors
    /// `NoDevice` if the driver refuses; `Limit` if it allows too little.
    pub fn on(adapter: &WgpuAdapter) -> Result<Self, BackendError> {
        Self::with_largest(adapter, u64::MAX)
    }

    /// A backend on this adapter that has no buffer larger than `bytes`, even if the adapter allows it: what is larger
    /// is split, or refused.
    ///
    /// # Errors
    /// Those of [`on`](Self::on).
    pub fn with_largest(adapter: &WgpuAdapter, bytes: u64) -> Result<Self, BackendError> {
        let slow = if adapter.is_software() { Features::SHADER_F16 } else { Features::empty() };
        Ok(Self::with(Gpu::new(adapter.clone(), bytes, device::USEFUL - slow)?))
    }

    /// A backend on this adapter that multiplies in f16 even if the adapter is software, which is slower: for tests.
    ///
    /// # Errors
    /// Those of [`on`](Self::on); `NoDevice` if the adapter has no arithmetic in f16.
    pub fn with_f16(adapter: &WgpuAdapter) -> Result<Self, BackendError> {
        let gpu = Gpu::new(adapter.clone(), u64::MAX, device::USEFUL)?;
        if !gpu.has_f16() {
            return Err(BackendError::NoDevice(format!("{adapter} has no arithmetic in f16")));
        }
        Ok(Self::with(gpu))
    }

    fn with(gpu: Gpu) -> Self {
        let home = Arc::new(Mutex::new(Home { free: Vec::new(), next: 1 }));
        Self { gpu, home, pending: Mutex::default(), sampler: Mutex::default() }
    }

    /// The adapter.
    pub fn adapter(&self) -> &WgpuAdapter {
        &self.gpu.adapter
    }

    /// What crossed the bus so far.
    pub fn traffic(&self) -> Traffic {
        self.gpu.traffic()
    }

    /// Gives up the device at once: whatever is done with it from now on is the error `Lost`, as after a driver's failure.
    pub fn destroy(&self) {
        self.gpu.destroy();
    }

    /// Submits a step that was waiting for its sampling.
    fn flush(&self) -> Result<(), BackendError> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
        pending.map_or(Ok(()), |encoder| self.gpu.submit(encoder))
    }

    /// The step that waits for its sampling, or a new encoder.
    fn continued(&self) -> Result<CommandEncoder, BackendError> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
        pending.map_or_else(|| self.gpu.encoder(), Ok)
    }

    /// Rows of logits from elsewhere, one behind the other, brought to the device: so that they can be sampled there.
    ///
    /// # Errors
    /// `Tokens` unless there are rows of `vocabulary` logits; `Limit`, `OutOfMemory`, and the device's.
    pub fn upload_logits(&self, logits: &[f32], vocabulary: usize) -> Result<WgpuLogits, BackendError> {
        if vocabulary == 0 || !logits.len().is_multiple_of(vocabulary) {
            let what = format!("{} logits are no rows of {vocabulary}", logits.len());
            return Err(BackendError::Tokens(what));
        }
        self.flush()?;
        let handle = self.logits(logits.len() / vocabulary, vocabulary)?;
        let mut rest = logits;
        for (part, rows) in handle.parts() {
            let (these, behind) = rest.split_at(rows * vocabulary);
            let words: Vec<u32> = these.iter().map(|x| x.to_bits()).collect();
            self.gpu.write(part, 0, &words)?;
            rest = behind;
        }
        Ok(handle)
    }

    /// Room for logits.
    fn logits(&self, rows: usize, vocabulary: usize) -> Result<WgpuLogits, BackendError> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        let row = 4 * vocabulary as u64;
        let fit = (self.gpu.largest() / row.max(1)) as usize;
        // Products compute 8 rows, or tiles of 32 rows.
        let wanted = if rows <= MAX_GEMV_ROWS { MAX_GEMV_ROWS } else { rows.next_multiple_of(32) };
        let each = wanted.min(if wanted == MAX_GEMV_ROWS { MAX_GEMV_ROWS } else { fit / 32 * 32 });
        if each == 0 || fit < each {
            let what = format!("bytes of {} rows of {vocabulary} logits", wanted.min(32));
            let need = wanted.min(32) as u64 * row;
            return Err(BackendError::Limit { what, need, allowed: self.gpu.largest() });
        }
        let parts = rows.div_ceil(each);
        let enough = |memory: &LogitsMemory| {
            memory.rows_of_part == each && memory.parts.len() >= parts && memory.room >= each * vocabulary
        };
        let at = home.free.iter().position(enough);
        let memory = match at.map(|at| home.free.swap_remove(at)) {
            Some(memory) => memory,
            None => {
                let part = |_| self.gpu.storage("logits", each as u64 * row);
                let id = home.next;
                home.next += parts.max(1) as u64;
                let parts = (0..parts).map(part).collect::<Result<_, _>>()?;
                LogitsMemory { id, parts, rows_of_part: each, room: each * vocabulary }
            }
        };
        Ok(WgpuLogits { memory: Some(memory), rows, vocabulary, home: Arc::clone(&self.home) })
    }

    /// A step, for logits or for rows that are pooled.
    fn forward(
        &self,
        (tokens, topology, trees): (&[u32], &Topology, &[Tree]),
        weights: &WgpuWeights,
        kv: &mut WgpuKvCache,
        config: &ForwardConfig,
        pooling: Option<Pooling>,
    ) -> Result<WgpuLogits, BackendError> {
        self.flush()?;
        let model = &weights.config;
        topology.check(tokens, model)?;
        topology.check_trees(trees, model)?;
        kv.fits(model)?;
        let firsts = topology.runs.iter().map(|run| kv.pages.positions(run.sequence));
        let firsts = firsts.collect::<Result<Vec<_>, _>>()?;
        topology.check_whole(&firsts, pooling.is_none(), model)?;
        let (mut places, mut run_of, mut run_ends, mut end) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (i, (&Run { tokens, .. }, first)) in topology.runs.iter().zip(firsts).enumerate() {
            end = end.max(first + tokens);
            places.extend((first..first + tokens).map(|place| place as u32));
            run_of.extend(std::iter::repeat_n(i as u32, tokens));
            run_ends.push(places.len() as u32);
        }
        let outputs: Vec<_> = topology.output_rows().into_iter().map(|row| row as u32).collect();
        let runs = topology.runs.len();
        // Logits, or a row for each run.
        let (logits, ends) = match pooling {
            None => (self.logits(outputs.len(), model.logits())?, Vec::new()),
            Some(_) => (self.logits(runs, model.hidden)?, topology.output_ends()),
        };
        let Some(memory) = logits.memory.as_ref().filter(|_| !tokens.is_empty()) else { return Ok(logits) };
        let copies = kv.pages.append(&topology.tokens())?;
        for (run, tree) in topology.runs.iter().zip(trees) {
            kv.pages.set_drafts(run.sequence, tree)?;
        }
        let mut encoder = self.gpu.encoder()?;
        kv.copy_pages(&self.gpu, &mut encoder, &copies)?;
        let sequences: Vec<_> = topology.runs.iter().map(|run| run.sequence).collect();
        kv.make_room(&self.gpu, model, (tokens.len(), &sequences))?;
        kv.reach(&self.gpu, model, end)?;
        let (sight, seen) = drafts::sight(topology, trees, model.causal);
        let of_rows = [&places, &run_of, &outputs, &ends, &seen, &run_ends].map(Vec::as_slice);
        kv.set_table(&self.gpu, of_rows, &sequences, tokens)?;
        let sizes = [tokens.len(), outputs.len(), runs, end];
        let exact = config.precision != Precision::Integer;
        let mut step = Recorder::new(&self.gpu, weights, (kv, memory), &mut encoder, sizes, (sight, exact));
        match pooling {
            None => decode(model, &mut step)?,
            Some(pooling) => embed(model, &mut step, pooling)?,
        }
        if tokens.len() == runs {
            step.advance()?;
        } else {
            drop(step);
        }
        if outputs.is_empty() {
            self.gpu.submit(encoder)?;
        } else {
            *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(encoder);
        }
        Ok(logits)
    }
}

impl fmt::Debug for WgpuBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuBackend({})", self.gpu.adapter)
    }
}

impl Backend for WgpuBackend {
    type Weights = WgpuWeights;
    type KvCache = WgpuKvCache;
    type Logits = WgpuLogits;

    fn upload_generator_weights(
        &self,
        config: &Config,
        weights: &HostWeights<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<WgpuWeights, BackendError> {
        weights::upload(&self.gpu, config, weights, progress)
    }

    fn alloc_kv_cache(
        &self,
        max_tokens: usize,
        config: &Config,
        options: &CacheOptions,
    ) -> Result<WgpuKvCache, BackendError> {
        WgpuKvCache::new(&self.gpu, max_tokens, config, options)
    }

    fn generator_forward_trees(
        &self,
        tokens: &[u32],
        topology: &Topology,
        trees: &[Tree],
        weights: &WgpuWeights,
        kv: &mut WgpuKvCache,
        config: &ForwardConfig,
    ) -> Result<WgpuLogits, BackendError> {
        self.forward((tokens, topology, trees), weights, kv, config, None)
    }

    fn accept_drafts(
        &self,
        kv: &mut WgpuKvCache,
        sequence: SequenceId,
        path: &[usize],
    ) -> Result<(), BackendError> {
        self.flush()?;
        kv.accept(&self.gpu, sequence, path)
    }

    fn embedding_forward_gpu_pure(
        &self,
        tokens: &[u32],
        topology: &Topology,
        weights: &WgpuWeights,
        kv: &mut WgpuKvCache,
        config: &ForwardConfig,
        pooling: Pooling,
    ) -> Result<WgpuLogits, BackendError> {
        topology.check_pooled()?;
        self.forward((tokens, topology, &[]), weights, kv, config, Some(pooling))
    }

    fn sample_from_tensor(
        &self,
        logits: &WgpuLogits,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError> {
        check_rows(rows, logits.rows)?;
        for row in rows {
            row.sampling.check(logits.vocabulary)?;
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        let mut with_room = Sampler::with_room(sampler.take(), &self.gpu, rows)?;
        let tokens = with_room.sample(&self.gpu, self.continued()?, logits, rows)?;
        *sampler = Some(with_room);
        Ok(tokens)
    }

    fn wait(&self, _logits: &WgpuLogits) -> Result<(), BackendError> {
        self.flush()?;
        self.gpu.wait()
    }

    fn log_probabilities(
        &self,
        logits: &WgpuLogits,
        chosen: &[(usize, u32)],
    ) -> Result<Vec<f32>, BackendError> {
        check_chosen(chosen, logits.rows, logits.vocabulary)?;
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        log_probabilities(&self.gpu, self.continued()?, logits, chosen)
    }

    fn read_logits(&self, logits: &WgpuLogits) -> Result<Vec<f32>, BackendError> {
        let mut encoder = self.continued()?;
        let mut copies = Vec::new();
        for (part, rows) in logits.parts() {
            let words = (rows * logits.vocabulary) as u64;
            let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
            let copy = self.gpu.buffer("a copy of logits", 4 * words, usage)?;
            encoder.copy_buffer_to_buffer(part, 0, &copy, 0, 4 * words);
            copies.push((copy, words));
        }
        self.gpu.submit(encoder)?;
        let mut all = Vec::with_capacity(logits.rows * logits.vocabulary);
        for (copy, words) in copies {
            all.extend(self.gpu.read(&copy, words)?.into_iter().map(f32::from_bits));
        }
        Ok(all)
    }
}
