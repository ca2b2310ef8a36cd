//! Why a backend refused.

use std::fmt;

use gllm_kernels_core::KernelError;

use crate::model::{CacheError, SamplingError};
use crate::runtime::RuntimeError;

/// Why a backend refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BackendError {
    /// A kernel refused its arguments.
    Kernel(KernelError),
    /// The cache is full, or has no such sequence.
    Cache(CacheError),
    /// Logits cannot be sampled so.
    Sampling(SamplingError),
    /// The operating system refused threads.
    Threads(RuntimeError),
    /// Something that this backend cannot do.
    Unsupported(String),
    /// Tokens that do not fit the topology or the model.
    Tokens(String),
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(e) => write!(f, "a kernel refused its arguments: {e}"),
            Self::Cache(e) => e.fmt(f),
            Self::Sampling(e) => e.fmt(f),
            Self::Threads(e) => e.fmt(f),
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::Tokens(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for BackendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kernel(e) => Some(e),
            Self::Cache(e) => Some(e),
            Self::Sampling(e) => Some(e),
            Self::Threads(e) => Some(e),
            Self::Unsupported(_) | Self::Tokens(_) => None,
        }
    }
}

impl From<KernelError> for BackendError {
    fn from(e: KernelError) -> Self {
        Self::Kernel(e)
    }
}
impl From<CacheError> for BackendError {
    fn from(e: CacheError) -> Self {
        Self::Cache(e)
    }
}
impl From<SamplingError> for BackendError {
    fn from(e: SamplingError) -> Self {
        Self::Sampling(e)
    }
}
impl From<RuntimeError> for BackendError {
    fn from(e: RuntimeError) -> Self {
        Self::Threads(e)
    }
}
