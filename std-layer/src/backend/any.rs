//! The choice of a backend at run time, and [`AnyBackend`], which is whichever was chosen.

use std::fmt;
use std::time::Duration;

use super::suits::{check_for_cuda, check_for_wgpu};
use super::{
    Backend, BackendError, CacheOptions, CpuBackend, ForwardConfig, Progress, SampleRow, Sequences, Topology,
};
use crate::model::{Config, HostWeights, Pages, Pooling, SequenceId, Tree};

/// Kinds of backends, the one first that is taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// GPUs of NVIDIA's, by CUDA's driver.
    Cuda,
    /// GPUs of AMD's, by ROCm.
    Rocm,
    /// GPUs of Apple's. They are reached through wgpu.
    Metal,
    /// Any GPU, through Vulkan or DirectX 12.
    Wgpu,
    /// The CPU.
    Cpu,
}

impl BackendKind {
    /// All of them, in the order in which [`detect`] tries them.
    pub const ALL: [Self; 5] = [Self::Cuda, Self::Rocm, Self::Metal, Self::Wgpu, Self::Cpu];

    /// Its name in lower case: `cuda`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Rocm => "rocm",
            Self::Metal => "metal",
            Self::Wgpu => "wgpu",
            Self::Cpu => "cpu",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// A backend of this kind, on the first device that it finds. On the CPU it has this many threads; 0 stands for as many as the
    /// machine runs at once. Software that emulates a GPU is used if there is no GPU.
    ///
    /// # Errors
    /// `NoDevice`, and the backend's own: why there is none.
    pub fn open(self, threads: usize) -> Result<AnyBackend, BackendError> {
        self.find(threads, true)
    }

    /// A backend of this kind, as [`open`](Self::open) finds it. Software that emulates a GPU is considered only if `software` is
    /// set.
    fn find(self, threads: usize, software: bool) -> Result<AnyBackend, BackendError> {
        match self {
            Self::Cuda => cuda(),
            Self::Rocm => rocm(),
            Self::Metal | Self::Wgpu => wgpu(self == Self::Metal, software),
            Self::Cpu => Ok(AnyBackend::Cpu(CpuBackend::new(threads)?)),
        }
    }
}

/// A backend on the first GPU of NVIDIA's.
#[cfg(feature = "cuda")]
fn cuda() -> Result<AnyBackend, BackendError> {
    super::CudaBackend::new(0).map(AnyBackend::Cuda)
}

/// Without the feature there is none.
#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<AnyBackend, BackendError> {
    Err(BackendError::NoDevice("this program was built without the feature `cuda`".to_owned()))
}

/// A backend on the first GPU of AMD's.
#[cfg(feature = "rocm")]
fn rocm() -> Result<AnyBackend, BackendError> {
    super::RocmBackend::new(0).map(AnyBackend::Rocm)
}

/// Without the feature there is none.
#[cfg(not(feature = "rocm"))]
fn rocm() -> Result<AnyBackend, BackendError> {
    Err(BackendError::NoDevice("this program was built without the feature `rocm`".to_owned()))
}

/// A backend on the first adapter of wgpu that is, or is not, reached by Metal.
#[cfg(feature = "wgpu")]
fn wgpu(metal: bool, software: bool) -> Result<AnyBackend, BackendError> {
    use super::{WgpuAdapter, WgpuBackend};
    let all = WgpuAdapter::all();
    let of_kind: Vec<_> = all.into_iter().filter(|a| (a.interface() == "Metal") == metal).collect();
    if of_kind.is_empty() {
        let interfaces = if metal { "Metal" } else { "Vulkan or DirectX 12" };
        return Err(BackendError::NoDevice(format!("no adapter has {interfaces}")));
    }
    match of_kind.iter().find(|adapter| software || !adapter.is_software()) {
        Some(adapter) => WgpuBackend::on(adapter).map(AnyBackend::Wgpu),
        None => {
            let names: Vec<_> = of_kind.iter().map(ToString::to_string).collect();
            let what = format!("{}: software is never chosen by itself", names.join("; "));
            Err(BackendError::NoDevice(what))
        }
    }
}

/// Without the feature there is none.
#[cfg(not(feature = "wgpu"))]
fn wgpu(_metal: bool, _software: bool) -> Result<AnyBackend, BackendError> {
    Err(BackendError::NoDevice("this program was built without the feature `wgpu`".to_owned()))
}

/// The chosen backend, and why others were not chosen.
#[derive(Debug)]
pub struct Choice {
    /// The backend.
    pub backend: AnyBackend,
    /// Its kind.
    pub kind: BackendKind,
    /// The backends that have precedence, and why each was passed over.
    pub passed_over: Vec<(BackendKind, BackendError)>,
}

impl fmt::Display for Choice {
    /// A line for each kind that was tried.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, why) in &self.passed_over {
            writeln!(f, "{:<6} no: {why}", kind.name())?;
        }
        write!(f, "{:<6} chosen: {}", self.kind.name(), self.backend)
    }
}

/// Chooses the best backend of this machine: GPUs first, and if there is none the CPU with this many threads; 0 stands for as many as
/// the machine runs at once. Nothing has to be configured, and no environment variable is read.
///
/// # Errors
/// `Threads` if not even the CPU's threads can be had.
pub fn choose(threads: usize) -> Result<Choice, BackendError> {
    choose_among(threads, |_| Ok(()))
}

/// Like [`choose`], for a model: kinds of backends that lack what it needs are passed over. (A device whose memory the model does not fit is
/// not.)
///
/// # Errors
/// Those of [`choose`].
pub fn choose_for(config: &Config, threads: usize) -> Result<Choice, BackendError> {
    choose_among(threads, |kind| match kind {
        BackendKind::Cuda | BackendKind::Rocm => check_for_cuda(config),
        BackendKind::Metal | BackendKind::Wgpu => check_for_wgpu(config),
        BackendKind::Cpu => Ok(()),
    })
}

/// The first kind that suits, and of which there is a device.
fn choose_among(
    threads: usize,
    suits: impl Fn(BackendKind) -> Result<(), BackendError>,
) -> Result<Choice, BackendError> {
    let mut passed_over = Vec::new();
    for kind in BackendKind::ALL {
        match suits(kind).and_then(|()| kind.find(threads, false)) {
            Ok(backend) => return Ok(Choice { backend, kind, passed_over }),
            Err(why) => passed_over.push((kind, why)),
        }
    }
    let why = passed_over.pop().map(|(_, why)| why);
    Err(why.unwrap_or_else(|| BackendError::NoDevice("no kind of backend".to_owned())))
}

/// The best backend of this machine: [`choose`], without its reasons.
///
/// # Errors
/// Those of [`choose`].
pub fn detect() -> Result<AnyBackend, BackendError> {
    Ok(choose(0)?.backend)
}

/// Weights, caches or logits of one kind of backend that were given to another.
fn mixed() -> BackendError {
    BackendError::Unsupported("what is on another kind of backend".to_owned())
}

/// From a list of backends: the types that have a variant for each, and the interface that all have in common.
macro_rules! backends {
    ($($(#[$attribute:meta])* $name:ident($backend:ty),)*) => {
        /// Any backend.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs)] // The names say it.
        #[allow(clippy::large_enum_variant)] // A program has one or two.
        pub enum AnyBackend { $($(#[$attribute])* $name($backend)),* }

        /// Weights on any backend.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs)] // The names say it.
        #[allow(clippy::large_enum_variant)] // A program has a few.
        pub enum AnyWeights { $($(#[$attribute])* $name(<$backend as Backend>::Weights)),* }

        /// A cache on any backend.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs)] // The names say it.
        #[allow(clippy::large_enum_variant)] // A program has a few.
        pub enum AnyKvCache { $($(#[$attribute])* $name(<$backend as Backend>::KvCache)),* }

        /// Logits on any backend.
        #[derive(Debug)]
        #[non_exhaustive]
        #[allow(missing_docs)] // The names say it.
        pub enum AnyLogits { $($(#[$attribute])* $name(<$backend as Backend>::Logits)),* }

        // With a single backend nothing can be mixed.
        #[allow(unreachable_patterns)]
        impl Backend for AnyBackend {
            type Weights = AnyWeights;
            type KvCache = AnyKvCache;
            type Logits = AnyLogits;

            fn upload_generator_weights(
                &self,
                config: &Config,
                weights: &HostWeights<'_>,
                progress: &mut dyn FnMut(Progress),
            ) -> Result<AnyWeights, BackendError> {
                match self {
                    $($(#[$attribute])* Self::$name(backend) => {
                        backend.upload_generator_weights(config, weights, progress).map(AnyWeights::$name)
                    })*
                }
            }

            fn chunk(&self, config: &Config, options: &CacheOptions) -> usize {
                match self {
                    $($(#[$attribute])* Self::$name(backend) => backend.chunk(config, options)),*
                }
            }

            fn alloc_kv_cache(
                &self,
                max_tokens: usize,
                config: &Config,
                options: &CacheOptions,
            ) -> Result<AnyKvCache, BackendError> {
                match self {
                    $($(#[$attribute])* Self::$name(backend) => {
                        backend.alloc_kv_cache(max_tokens, config, options).map(AnyKvCache::$name)
                    })*
                }
            }

            fn generator_forward_trees(
                &self,
                tokens: &[u32],
                topology: &Topology,
                trees: &[Tree],
                weights: &AnyWeights,
                kv: &mut AnyKvCache,
                config: &ForwardConfig,
            ) -> Result<AnyLogits, BackendError> {
                match (self, weights, kv) {
                    $($(#[$attribute])* (Self::$name(backend), AnyWeights::$name(weights), AnyKvCache::$name(kv)) => {
                        let logits =
                            backend.generator_forward_trees(tokens, topology, trees, weights, kv, config);
                        logits.map(AnyLogits::$name)
                    })*
                    _ => Err(mixed()),
                }
            }

            fn accept_drafts(
                &self,
                kv: &mut AnyKvCache,
                sequence: SequenceId,
                path: &[usize],
            ) -> Result<(), BackendError> {
                match (self, kv) {
                    $($(#[$attribute])* (Self::$name(backend), AnyKvCache::$name(kv)) => {
                        backend.accept_drafts(kv, sequence, path)
                    })*
                    _ => Err(mixed()),
                }
            }

            fn embedding_forward_gpu_pure(
                &self,
                tokens: &[u32],
                topology: &Topology,
                weights: &AnyWeights,
                kv: &mut AnyKvCache,
                config: &ForwardConfig,
                pooling: Pooling,
            ) -> Result<AnyLogits, BackendError> {
                match (self, weights, kv) {
                    $($(#[$attribute])* (Self::$name(backend), AnyWeights::$name(weights), AnyKvCache::$name(kv)) => {
                        let rows =
                            backend.embedding_forward_gpu_pure(tokens, topology, weights, kv, config, pooling);
                        rows.map(AnyLogits::$name)
                    })*
                    _ => Err(mixed()),
                }
            }

            fn sample_from_tensor(
                &self,
                logits: &AnyLogits,
                rows: &[SampleRow<'_>],
            ) -> Result<Vec<u32>, BackendError> {
                match (self, logits) {
                    $($(#[$attribute])* (Self::$name(backend), AnyLogits::$name(logits)) => {
                        backend.sample_from_tensor(logits, rows)
                    })*
                    _ => Err(mixed()),
                }
            }

            fn log_probabilities(
                &self,
                logits: &AnyLogits,
                chosen: &[(usize, u32)],
            ) -> Result<Vec<f32>, BackendError> {
                match (self, logits) {
                    $($(#[$attribute])* (Self::$name(backend), AnyLogits::$name(logits)) => {
                        backend.log_probabilities(logits, chosen)
                    })*
                    _ => Err(mixed()),
                }
            }

            fn forward_ahead(
                &self,
                logits: &AnyLogits,
                how: (&[SampleRow<'_>], &[u32]),
                topology: &Topology,
                weights: &AnyWeights,
                kv: &mut AnyKvCache,
                config: &ForwardConfig,
            ) -> Result<Option<AnyLogits>, BackendError> {
                match (self, logits, weights, kv) {
                    $($(#[$attribute])* (
                        Self::$name(backend),
                        AnyLogits::$name(logits),
                        AnyWeights::$name(weights),
                        AnyKvCache::$name(kv),
                    ) => {
                        let ahead = backend.forward_ahead(logits, how, topology, weights, kv, config)?;
                        Ok(ahead.map(AnyLogits::$name))
                    })*
                    _ => Err(mixed()),
                }
            }

            fn tokens_ahead(&self, logits: &AnyLogits, kv: &mut AnyKvCache) -> Result<Vec<u32>, BackendError> {
                match (self, logits, kv) {
                    $($(#[$attribute])* (Self::$name(backend), AnyLogits::$name(logits), AnyKvCache::$name(kv)) => {
                        backend.tokens_ahead(logits, kv)
                    })*
                    _ => Err(mixed()),
                }
            }

            fn wait(&self, logits: &AnyLogits) -> Result<(), BackendError> {
                match (self, logits) {
                    $($(#[$attribute])* (Self::$name(backend), AnyLogits::$name(logits)) => backend.wait(logits),)*
                    _ => Err(mixed()),
                }
            }

            fn read_logits(&self, logits: &AnyLogits) -> Result<Vec<f32>, BackendError> {
                match (self, logits) {
                    $($(#[$attribute])* (Self::$name(backend), AnyLogits::$name(logits)) => {
                        backend.read_logits(logits)
                    })*
                    _ => Err(mixed()),
                }
            }
        }

        impl Sequences for AnyKvCache {
            fn pages(&self) -> &Pages {
                match self {
                    $($(#[$attribute])* Self::$name(kv) => kv.pages(),)*
                }
            }

            fn pages_mut(&mut self) -> &mut Pages {
                match self {
                    $($(#[$attribute])* Self::$name(kv) => kv.pages_mut(),)*
                }
            }

            fn forget(&mut self, sequence: SequenceId) {
                match self {
                    $($(#[$attribute])* Self::$name(kv) => kv.forget(sequence),)*
                }
            }
        }
    };
}

backends! {
    #[cfg(feature = "cuda")]
    Cuda(super::CudaBackend),
    #[cfg(feature = "rocm")]
    Rocm(super::RocmBackend),
    #[cfg(feature = "wgpu")]
    Wgpu(super::WgpuBackend),
    Cpu(CpuBackend),
}

impl AnyBackend {
    /// How long each kind of operation took since the last call, where a backend can tell: the CPU can, in steps with
    /// [`ForwardConfig::profile`].
    pub fn take_times(&self) -> Vec<(&'static str, Duration)> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => Vec::new(),
            #[cfg(feature = "rocm")]
            Self::Rocm(_) => Vec::new(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(_) => Vec::new(),
            Self::Cpu(backend) => backend.take_times(),
        }
    }
}

impl AnyWeights {
    /// Bytes of weights that a step of one token reads.
    pub fn bytes(&self) -> usize {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(weights) => weights.bytes(),
            #[cfg(feature = "rocm")]
            Self::Rocm(weights) => weights.bytes(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(weights) => weights.bytes(),
            Self::Cpu(weights) => weights.bytes(),
        }
    }
}

impl AnyKvCache {
    /// Bytes that attention of a token at `position` reads.
    pub fn bytes_at(&self, position: usize) -> usize {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(kv) => kv.bytes_at(position),
            #[cfg(feature = "rocm")]
            Self::Rocm(kv) => kv.bytes_at(position),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(kv) => kv.bytes_at(position),
            Self::Cpu(kv) => kv.bytes_at(position),
        }
    }
}

impl fmt::Display for AnyBackend {
    /// The device that it computes on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda(backend) => {
                let device = backend.context().device();
                write!(f, "CUDA: {}, compute capability {}", device.name(), device.capability())
            }
            #[cfg(feature = "rocm")]
            Self::Rocm(backend) => {
                let device = backend.context().device();
                write!(f, "ROCm: {}, {}", device.name(), device.capability())
            }
            #[cfg(feature = "wgpu")]
            Self::Wgpu(backend) => {
                write!(f, "wgpu ({}): {}", backend.adapter().interface(), backend.adapter())
            }
            Self::Cpu(backend) => write!(f, "{} threads", backend.threads()),
        }
    }
}
