//! Models on NVIDIA GPUs, and on GPUs of AMD's.
//!
//! Weights, caches and intermediate results stay on the GPU. Operations of a step become launches ([`step`]), which fuse what stands between
//! products; a step in which every sequence has one token is recorded when it first occurs and started as a whole from then on. Where rows stand in
//! their sequences is counted on the GPU, so that such a step takes 4 bytes of each sequence, its token, and gives back 4, the next one ([`sampler`]).
//! A step can also take the tokens that the GPU has just chosen, before the host knows them: [`Backend::forward_ahead`].

mod arena;
mod cache;
mod experts;
mod kept;
mod latent;
mod layers;
mod layout;
mod platform;
mod product;
mod recurrent;
mod rows;
mod sampler;
mod step;
mod weights;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gllm_kernels_core::Precision;

use super::{
    check_chosen, check_rows, Backend, BackendError, CacheOptions, ForwardConfig, KvType, Outputs, Progress,
    Run, SampleRow, Topology,
};
use crate::cuda::decoder::{StepRows, NO_SEQUENCE};
use crate::cuda::{Buffer, Context, CudaError, Ops, PinnedBuffer, Stream};
use crate::model::{decode, embed, CacheError, Config, HostWeights, Pooling, SequenceId, Tree};
use arena::{Memory, Place};
pub use cache::CudaKvCache;
use cache::{pieces, Ahead, Chosen, Recorded, Room};
use layout::Layout;
#[cfg(feature = "rocm")]
pub use platform::Amd;
pub use platform::{Nvidia, Platform};
use rows::{Rows, RunRows};
use sampler::{Sampler, To};
use step::Lowering;
pub use weights::CudaWeights;
use weights::Stored;

/// Bytes of free memory for each token of a prompt's step: intermediate results of a token take a small part of that.
const MEMORY_FOR_TOKEN: usize = 16 << 20;
/// Of free memory, the part that layers with windows may take to have room for as many tokens more.
const PART_FOR_WINDOWS: usize = 8;

/// Where everything is queued.
#[derive(Debug)]
struct Gpu {
    ops: Ops,
    stream: Stream,
}

/// A GPU that runs models: [`CudaBackend`], or `RocmBackend` with the feature `rocm`.
#[derive(Debug)]
pub struct GpuBackend<P> {
    gpu: Gpu,
    sampler: Mutex<Option<Sampler>>,
    /// Steps so far that took their tokens from the GPU.
    steps_ahead: AtomicU64,
    platform: PhantomData<P>,
}

/// An NVIDIA GPU that runs models.
pub type CudaBackend = GpuBackend<Nvidia>;

/// A GPU of AMD's that runs models, through the HSA runtime of ROCm. It has not run on a GPU.
///
/// ```no_run
/// use gllm_kernels_std::backend::RocmBackend;
/// use gllm_kernels_std::model::{Generator, Model, Options};
///
/// let model = Model::open("model.gguf")?;
/// let generator = Generator::new(RocmBackend::new(0)?, &model, Options::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "rocm")]
pub type RocmBackend = GpuBackend<Amd>;

/// Rows of logits in the memory of a GPU.
#[derive(Debug)]
pub struct CudaLogits {
    memory: Arc<Buffer<f32>>,
    rows: usize,
    vocabulary: usize,
    /// Which step they are of, if it took its tokens from the GPU.
    ahead: Option<u64>,
}

impl CudaLogits {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// All operations of a step.
fn lower(config: &Config, step: &mut Lowering<'_>, pooling: Option<Pooling>) -> Result<(), BackendError> {
    match pooling {
        None => decode(config, step),
        Some(pooling) => embed(config, step, pooling),
    }
}

/// Recorded steps that are kept, at most.
const RECORDINGS: usize = 32;
/// Rows up to which steps are recorded.
const RECORDED_ROWS: usize = 256;

impl<P: Platform> GpuBackend<P> {
    /// GPU `index`, counted from 0.
    ///
    /// # Errors
    /// `NoDevice`: no driver, no such GPU, no kernels for it; `Device`.
    pub fn new(index: usize) -> Result<Self, BackendError> {
        Self::with_context(&P::driver()?.device(index)?.context()?)
    }

    /// The GPU of a context.
    ///
    /// # Errors
    /// `NoDevice` without kernels for it; `Device`.
    pub fn with_context(context: &Context) -> Result<Self, BackendError> {
        let gpu = Gpu { ops: Ops::new(context)?, stream: Stream::new(context)? };
        Ok(Self { gpu, sampler: Mutex::new(None), steps_ahead: AtomicU64::new(0), platform: PhantomData })
    }

    /// Where its memory is: for counters of bytes, and what is free.
    pub fn context(&self) -> &Context {
        self.gpu.stream.context()
    }

    /// Queues the operations of a step on memory that has been prepared for it.
    fn queue(
        &self,
        weights: &Stored,
        kv: &mut CudaKvCache,
        rows: &Rows,
        layout: &Layout<Place>,
        logits: &Buffer<f32>,
    ) -> Result<(), BackendError> {
        let n = rows.rows;
        let CudaKvCache { layers, group_of, tables, angles, inputs, arena, activations, .. } = kv;
        let groups = group_of.iter().max().map_or(0, |last| last + 1);
        let [integer, exact] = activations;
        let memory = Memory {
            layers,
            group_of,
            tables: (0..groups).map(|group| tables.group(group).view()).collect(),
            table_len: tables.len,
            angles: &angles.tables,
            temperatures: angles.temperatures.as_ref().map(|(of, factors)| (factors.view(), of.length)),
            tokens: inputs.tokens.range(0..n)?,
            rows: StepRows {
                sequences: inputs.sequences.there.range(0..n)?,
                lengths: inputs.lengths.there.range(0..n)?,
                positions: match weights.config.causal {
                    true => None,
                    false => Some(inputs.positions.there.range(0..n)?),
                },
                seen: match rows.runs.iter().any(|run| run.drafts) {
                    true => Some(inputs.seen.range(0..n)?),
                    false => None,
                },
            },
            outputs: inputs.outputs.there.range(0..rows.outputs)?,
            starts: inputs.starts.there.view(),
            pools: inputs.pools.there.view(),
            arena,
            activations: [integer, exact],
            logits,
        };
        let mut step = Lowering::new(&self.gpu, weights, rows, Some((memory, layout)));
        lower(&weights.config, &mut step, rows.pooling)
    }

    /// The arena of a step.
    fn layout(&self, weights: &Stored, rows: &Rows) -> Result<Layout<Place>, BackendError> {
        let mut dry = Lowering::new(&self.gpu, weights, rows, None);
        lower(&weights.config, &mut dry, rows.pooling)?;
        Ok(dry.plan.layout())
    }

    /// A step in which every run has one token: started as it was recorded, or done and then recorded.
    fn decode_step(
        &self,
        weights: &Arc<Stored>,
        kv: &mut CudaKvCache,
        rows: Rows,
    ) -> Result<Arc<Buffer<f32>>, BackendError> {
        let (stream, key) = (&self.gpu.stream, (rows.rows, rows.pieces, rows.exact));
        let usable = |r: &Recorded| {
            r.key == key && Arc::ptr_eq(&r.weights, weights) && Arc::strong_count(&r.logits) == 1
        };
        if let Some(recorded) = kv.recorded.iter_mut().find(|r| usable(r)) {
            // SAFETY: the recording keeps weights and logits; all else belongs to the cache, which forgets recordings before it frees
            // or moves anything.
            unsafe { recorded.graph.launch(stream)? };
            let logits = Arc::clone(&recorded.logits);
            kv.inputs.advanced(rows.rows);
            return Ok(logits);
        }
        let layout = self.layout(weights, &rows)?;
        kv.reserve(&self.gpu, &layout)?;
        // Of this recording alone, so that nobody else writes there.
        let len = rows.outputs * weights.config.logits();
        let logits = Arc::new(Buffer::new(stream.context(), len)?);
        let mut queue = || {
            stream.overlap(|| {
                self.queue(weights, kv, &rows, &layout, &logits)?;
                Ok::<_, BackendError>(self.advance(kv, rows.rows)?)
            })
        };
        // The first time loads the kernels, which a recording cannot.
        queue()?;
        let mut queued = Ok(());
        let graph = stream.capture(|| {
            queued = queue();
            Ok(())
        });
        queued?;
        if kv.recorded.len() >= RECORDINGS {
            kv.recorded.remove(0);
        }
        kv.inputs.advanced(rows.rows);
        let recorded =
            Recorded { graph: graph?, weights: Arc::clone(weights), key, logits: Arc::clone(&logits) };
        kv.recorded.push(recorded);
        Ok(logits)
    }

    /// The next step's rows stand one position further.
    fn advance(&self, kv: &mut CudaKvCache, rows: usize) -> Result<(), CudaError> {
        let sequences = kv.inputs.sequences.there.range(0..rows)?;
        let lengths = kv.inputs.lengths.there.range_mut(0..rows)?;
        self.gpu.ops.decoder_advance(&self.gpu.stream, sequences, lengths)
    }

    fn sampler(&self) -> MutexGuard<'_, Option<Sampler>> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the host know what the GPU chose for the cache's last step, if that has not happened yet.
    fn settle(&self, kv: &mut CudaKvCache) -> Result<(), BackendError> {
        if let Some((step, tokens)) = kv.settle()? {
            if let Some(sampler) = &mut *self.sampler() {
                sampler.settle(step, tokens);
            }
        }
        Ok(())
    }

    /// Makes room for a step with `count` tokens, and tells the GPU which rows it has.
    fn prepare(
        &self,
        count: usize,
        (topology, trees): (&Topology, &[Tree]),
        weights: &Stored,
        kv: &mut CudaKvCache,
        config: &ForwardConfig,
        pooling: Option<Pooling>,
    ) -> Result<Rows, BackendError> {
        let gpu = &self.gpu;
        let (mut lengths, mut positions, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for &Run { sequence, tokens, .. } in &topology.runs {
            let position = kv.pages.positions(sequence)?;
            starts.push(lengths.len() as u32);
            if weights.config.causal {
                lengths.extend((1..=tokens).map(|t| (position + t) as u32));
            } else {
                positions.extend(0..tokens as u32);
                lengths.extend(std::iter::repeat_n(tokens as u32, tokens));
            }
        }
        starts.push(lengths.len() as u32);
        kv.append(gpu, &topology.tokens())?;
        for (run, tree) in topology.runs.iter().zip(trees) {
            kv.pages.set_drafts(run.sequence, tree)?;
        }
        let with_trees = trees.iter().any(|tree| !tree.is_empty());
        let ids: Vec<_> = topology.runs.iter().map(|run| run.sequence).collect();
        let recorded = single(topology) && count <= RECORDED_ROWS && pooling.is_none() && !with_trees;
        let n = if recorded { count.next_power_of_two() } else { count };
        let longest = lengths.iter().max().map_or(0, |&n| n as usize);
        // There are fast ways and exact ones.
        let exact = config.precision == Precision::Exact;
        kv.prepare(gpu, weights, Room { rows: n, positions: longest, exact }, &ids)?;
        let slot = |id: SequenceId| kv.tables.row(id).ok_or(CacheError::Unknown(id));
        let slots = ids.iter().map(|&id| slot(id)).collect::<Result<Vec<_>, _>>()?;
        let mut sequences: Vec<u32> = Vec::with_capacity(n);
        let mut runs = Vec::with_capacity(ids.len());
        for (index, (run, &slot)) in topology.runs.iter().zip(&slots).enumerate() {
            let drafts = trees.get(index).is_some_and(|tree| !tree.is_empty());
            runs.push(RunRows { index, row: sequences.len(), tokens: run.tokens, slot, drafts });
            sequences.extend(std::iter::repeat_n(slot as u32, run.tokens));
        }
        // Rows that fill up a recorded step belong to no sequence.
        sequences.resize(n, NO_SEQUENCE);
        let inputs = &mut kv.inputs;
        inputs.sequences.set(&gpu.stream, &sequences)?;
        if !inputs.lengths.are(&lengths) {
            lengths.resize(n, 0);
            inputs.lengths.set(&gpu.stream, &lengths)?;
        }
        if with_trees {
            let mut seen = Vec::with_capacity(n);
            for (i, run) in topology.runs.iter().enumerate() {
                let words = trees.get(i).map_or(Vec::new(), Tree::seen);
                seen.extend(words.into_iter().chain(std::iter::repeat(u64::MAX)).take(run.tokens));
            }
            inputs.seen.range_mut(0..n)?.upload(&gpu.stream, &seen)?;
        }
        let outputs: Vec<_> = topology.output_rows().into_iter().map(|row| row as u32).collect();
        if !recorded {
            inputs.outputs.set(&gpu.stream, &outputs)?;
            inputs.starts.set(&gpu.stream, &starts)?;
            inputs.positions.set_all(&gpu.stream, &positions)?;
            if pooling.is_some() {
                inputs.pools.set_all(&gpu.stream, &[&[0], &topology.output_ends()[..]].concat())?;
            }
        }
        Ok(Rows {
            rows: n,
            outputs: if recorded { n } else { outputs.len() },
            pieces: pieces(longest),
            exact,
            narrow_cache: matches!(kv.options.kind, KvType::F16 | KvType::Bf16),
            recorded,
            runs: if recorded { Vec::new() } else { runs },
            pooling,
        })
    }

    /// A step, whose tokens the host knows.
    fn forward(
        &self,
        (tokens, topology, trees): (&[u32], &Topology, &[Tree]),
        weights: &CudaWeights,
        kv: &mut CudaKvCache,
        config: &ForwardConfig,
        pooling: Option<Pooling>,
    ) -> Result<CudaLogits, BackendError> {
        let (gpu, weights) = (&self.gpu, &weights.0);
        let (rows, vocabulary) = match pooling {
            None => (topology.outputs(), weights.config.logits()),
            Some(_) => (topology.runs.len(), weights.config.hidden),
        };
        topology.check(tokens, &weights.config)?;
        topology.check_trees(trees, &weights.config)?;
        kv.fits(&weights.config)?;
        self.settle(kv)?;
        let positions = topology.runs.iter().map(|run| kv.pages.positions(run.sequence));
        topology.check_whole(
            &positions.collect::<Result<Vec<_>, _>>()?,
            pooling.is_none(),
            &weights.config,
        )?;
        if tokens.is_empty() {
            let memory = kv.free_logits(gpu, 0)?;
            return Ok(CudaLogits { memory, rows: 0, vocabulary, ahead: None });
        }
        let prepared = self.prepare(tokens.len(), (topology, trees), weights, kv, config, pooling)?;
        kv.inputs.tokens.range_mut(0..tokens.len())?.upload(&gpu.stream, tokens)?;
        let memory = self.start(weights, kv, prepared)?;
        Ok(CudaLogits { memory, rows, vocabulary, ahead: None })
    }

    /// Starts a step that has been prepared and whose tokens are on the GPU.
    fn start(
        &self,
        weights: &Arc<Stored>,
        kv: &mut CudaKvCache,
        rows: Rows,
    ) -> Result<Arc<Buffer<f32>>, BackendError> {
        let done = match rows.recorded {
            true => self.decode_step(weights, kv, rows),
            false => self.any_step(weights, kv, rows),
        };
        if done.is_err() {
            // Whether rows have been counted depends on how far it came.
            kv.inputs.forget();
        }
        done
    }

    /// A step that is not recorded.
    fn any_step(
        &self,
        weights: &Stored,
        kv: &mut CudaKvCache,
        rows: Rows,
    ) -> Result<Arc<Buffer<f32>>, BackendError> {
        let layout = self.layout(weights, &rows)?;
        kv.reserve(&self.gpu, &layout)?;
        let (count, width) = rows.results(&weights.config);
        let logits = kv.free_logits(&self.gpu, count * width)?;
        self.gpu.stream.overlap(|| self.queue(weights, kv, &rows, &layout, &logits))?;
        Ok(logits)
    }
}

/// Whether each sequence has one token, whose logits are asked for.
fn single(topology: &Topology) -> bool {
    topology.runs.iter().all(|run| run.tokens == 1 && run.outputs == Outputs::Last)
}

impl<P: Platform> Backend for GpuBackend<P> {
    type Weights = CudaWeights;
    type KvCache = CudaKvCache;
    type Logits = CudaLogits;

    fn upload_generator_weights(
        &self,
        config: &Config,
        weights: &HostWeights<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CudaWeights, BackendError> {
        weights::upload((&self.gpu.stream, self.gpu.ops.capability()), config, weights, progress)
    }

    /// A power of two: from 512, whatever memory is free, to 4096, from 64 GiB on.
    fn chunk(&self, config: &Config, options: &CacheOptions) -> usize {
        let free = self.context().memory().map_or(0, |(free, _)| free);
        // Keys and values of a token in all layers with windows.
        let windowed = (0..config.layer.len()).filter(|&l| config.layer[l].window.is_some());
        let numbers: usize =
            windowed.map(|l| config.heads_of(l)).map(|heads| 2 * heads.count * heads.dim).sum();
        let each =
            numbers.saturating_mul(options.sequences).saturating_mul(size_of::<f32>() * PART_FOR_WINDOWS);
        1 << (free / each.saturating_add(MEMORY_FOR_TOKEN)).clamp(512, 4096).ilog2()
    }

    fn alloc_kv_cache(
        &self,
        max_tokens: usize,
        config: &Config,
        options: &CacheOptions,
    ) -> Result<CudaKvCache, BackendError> {
        CudaKvCache::new(&self.gpu, max_tokens, config, options)
    }

    fn generator_forward_trees(
        &self,
        tokens: &[u32],
        topology: &Topology,
        trees: &[Tree],
        weights: &CudaWeights,
        kv: &mut CudaKvCache,
        config: &ForwardConfig,
    ) -> Result<CudaLogits, BackendError> {
        self.forward((tokens, topology, trees), weights, kv, config, None)
    }

    fn accept_drafts(
        &self,
        kv: &mut CudaKvCache,
        sequence: SequenceId,
        path: &[usize],
    ) -> Result<(), BackendError> {
        self.settle(kv)?;
        kv.accept(&self.gpu, sequence, path)
    }

    fn embedding_forward_gpu_pure(
        &self,
        tokens: &[u32],
        topology: &Topology,
        weights: &CudaWeights,
        kv: &mut CudaKvCache,
        config: &ForwardConfig,
        pooling: Pooling,
    ) -> Result<CudaLogits, BackendError> {
        topology.check_pooled()?;
        self.forward((tokens, topology, &[]), weights, kv, config, Some(pooling))
    }

    fn forward_ahead(
        &self,
        logits: &CudaLogits,
        (rows, stop): (&[SampleRow<'_>], &[u32]),
        topology: &Topology,
        weights: &CudaWeights,
        kv: &mut CudaKvCache,
        config: &ForwardConfig,
    ) -> Result<Option<CudaLogits>, BackendError> {
        let (gpu, weights) = (&self.gpu, &weights.0);
        let n = topology.runs.len();
        check_rows(rows, logits.rows)?;
        check_rows(rows, n)?;
        topology.check(&vec![0; n], &weights.config)?;
        kv.fits(&weights.config)?;
        rows.iter().try_for_each(|row| row.sampling.check(logits.vocabulary))?;
        self.settle(kv)?;
        if n == 0 || n > RECORDED_ROWS || !single(topology) || logits.vocabulary != weights.config.logits() {
            return Ok(None);
        }
        let prepared = match self.prepare(n, (topology, &[]), weights, kv, config, None) {
            // Whether these positions are needed depends on the tokens.
            Err(BackendError::Cache(CacheError::Full { .. } | CacheError::TooLong { .. })) => {
                return Ok(None)
            }
            prepared => prepared?,
        };
        let step = self.steps_ahead.fetch_add(1, Ordering::Relaxed);
        let pinned = match kv.pinned.take().filter(|pinned| pinned.len() == n) {
            Some(pinned) => pinned,
            None => PinnedBuffer::zeroed(gpu.stream.context(), n)?,
        };
        let inputs = &mut kv.inputs;
        let ends = match stop {
            [] => None,
            stop => {
                let sequences = inputs.sequences.there.range_mut(0..n)?;
                Some((inputs.stops.set_all(&gpu.stream, stop)?, sequences))
            }
        };
        let all = (logits.memory.range(0..n * logits.vocabulary)?, logits.vocabulary);
        let to = To { tokens: inputs.tokens.range_mut(0..n)?, ends };
        Sampler::sample_ahead(&mut self.sampler(), gpu, all, rows, (step, to))?;
        let copying = pinned.download(&gpu.stream, inputs.tokens.range(0..n)?)?;
        let sequences = topology.runs.iter().map(|run| run.sequence).collect();
        kv.ahead = Some(Ahead { step, tokens: Chosen::Coming(copying), sequences, stop: stop.to_vec() });
        let memory = self.start(weights, kv, prepared)?;
        Ok(Some(CudaLogits { memory, rows: n, vocabulary: logits.vocabulary, ahead: Some(step) }))
    }

    fn tokens_ahead(&self, logits: &CudaLogits, kv: &mut CudaKvCache) -> Result<Vec<u32>, BackendError> {
        self.settle(kv)?;
        match &kv.ahead {
            Some(Ahead { step, tokens: Chosen::Here(tokens), .. }) if logits.ahead == Some(*step) => {
                Ok(tokens.clone())
            }
            _ => Err(BackendError::Tokens("logits of another step than the cache's last one".to_owned())),
        }
    }

    fn sample_from_tensor(
        &self,
        logits: &CudaLogits,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError> {
        check_rows(rows, logits.rows)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let all = logits.memory.range(0..logits.rows * logits.vocabulary)?;
        Sampler::sample(&mut self.sampler(), &self.gpu, (all, logits.vocabulary), rows)
    }

    fn wait(&self, _logits: &CudaLogits) -> Result<(), BackendError> {
        Ok(self.gpu.stream.wait()?)
    }

    fn log_probabilities(
        &self,
        logits: &CudaLogits,
        chosen: &[(usize, u32)],
    ) -> Result<Vec<f32>, BackendError> {
        check_chosen(chosen, logits.rows, logits.vocabulary)?;
        let (stream, n) = (&self.gpu.stream, chosen.len());
        let all = logits.memory.range(0..logits.rows * logits.vocabulary)?;
        let rows = chosen.iter().map(|&(row, _)| row as u32);
        let indices: Vec<u32> = rows.chain(chosen.iter().map(|&(_, token)| token)).collect();
        let indices = Buffer::from_slice(stream, &indices)?;
        let mut results = Buffer::new(stream.context(), n)?;
        let pairs = (indices.range(0..n)?, indices.range(n..2 * n)?);
        self.gpu.ops.log_probabilities(stream, (all, logits.vocabulary), pairs, &mut results)?;
        Ok(results.to_vec(stream)?)
    }

    fn read_logits(&self, logits: &CudaLogits) -> Result<Vec<f32>, BackendError> {
        let all = logits.memory.range(0..logits.rows * logits.vocabulary)?;
        Ok(all.to_vec(&self.gpu.stream)?)
    }
}
