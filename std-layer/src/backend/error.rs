//! Errors of backends.

use std::fmt;

use gllm_kernels_core::KernelError;

#[cfg(feature = "cuda")]
use crate::cuda::CudaError;
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
    /// No device that could be used, and why.
    NoDevice(String),
    /// The device has too little memory left.
    OutOfMemory {
        /// For what.
        what: String,
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// More than the device allows.
    Limit {
        /// Of what.
        what: String,
        /// How much would be needed.
        need: u64,
        /// How much is allowed.
        allowed: u64,
    },
    /// The device is gone: all that was on it is lost. A new backend can be made.
    Lost(String),
    /// The device, or its driver, refused.
    Device(String),
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
            Self::NoDevice(why) => write!(f, "no device can be used: {why}"),
            Self::OutOfMemory { what, bytes } => {
                write!(f, "the device has no memory left for {what} of {bytes} bytes")
            }
            Self::Limit { what, need, allowed } => {
                write!(f, "{what}: {need} would be needed, but the device allows {allowed}")
            }
            Self::Lost(why) => {
                write!(f, "the device is lost ({why}), and all that was on it: make a new backend")
            }
            Self::Device(why) => write!(f, "the device refused: {why}"),
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
            Self::Unsupported(_)
            | Self::Tokens(_)
            | Self::NoDevice(_)
            | Self::OutOfMemory { .. }
            | Self::Limit { .. }
            | Self::Lost(_)
            | Self::Device(_) => None,
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
#[cfg(feature = "cuda")]
impl From<CudaError> for BackendError {
    fn from(e: CudaError) -> Self {
        match e {
            CudaError::Kernel(e) => Self::Kernel(e),
            CudaError::NoDriver { .. }
            | CudaError::NoRuntime { .. }
            | CudaError::MissingFunction { .. }
            | CudaError::DriverTooOld { .. }
            | CudaError::NoDevice
            | CudaError::NoSuchDevice { .. }
            | CudaError::NoKernels { .. } => Self::NoDevice(e.to_string()),
            CudaError::OutOfMemory { asked, free } => {
                let free = free.map_or("page-locked host memory".to_owned(), |free| {
                    format!("a piece of GPU memory, of which {free} bytes are free,")
                });
                Self::OutOfMemory { what: free, bytes: asked as u64 }
            }
            CudaError::Geometry { kernel, what, asked, limit } => {
                let what = format!("{what} of the kernel {kernel}");
                Self::Limit { what, need: asked as u64, allowed: limit as u64 }
            }
            // The codes behind which a context does nothing any more, from an illegal address to an unspecified failure.
            CudaError::Launch { ref why, .. } | CudaError::Driver { ref why, .. }
                if (700..720).contains(&why.code) =>
            {
                Self::Lost(e.to_string())
            }
            e => Self::Device(e.to_string()),
        }
    }
}
