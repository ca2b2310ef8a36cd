//! Threads, files and detection around gllm-kernels-core.
//!
//! - [`caps`] and [`kernels`]: detection with the operating system's help, once per process; [`restrict`]: as on an older CPU.
//! - [`Runtime`] and [`Parallel`]: every core operator on all cores.
//! - [`AlignedVec`]: buffers that start on a cache line.
//! - [`cuda`]: NVIDIA GPUs; with the feature `rocm`, the module `rocm` has GPUs of AMD's.
//! - [`model`], [`backend`]: whole language models, from a file to text.
//! - [`gguf`], [`safetensors`]: model files.
//! - [`model`]: language models.
//!
//! ```
//! use gllm_kernels_std::Parallel;
//!
//! let ops = Parallel::<f32>::global();
//! let x = vec![1.0; 1 << 20];
//! assert_eq!(ops.vec_sum(&x)?, 1048576.0);
//! # Ok::<(), gllm_kernels_std::core::KernelError>(())
//! ```

mod aligned;
pub mod backend;
mod buffers;
#[cfg(feature = "cuda")]
pub mod cuda;
mod detect;
pub mod gguf;
#[cfg(feature = "cuda")]
mod gpu;
pub mod model;
mod parallel;
#[cfg(feature = "rocm")]
pub mod rocm;
mod runtime;
pub mod safetensors;

pub use aligned::{AlignedVec, Zeroable};
pub use detect::{caps, detected, kernels, restrict};
pub use gllm_kernels_core as core;
pub use parallel::{Parallel, QgemmGroup};
pub use runtime::{Runtime, RuntimeError};

/// The examples in README.md, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
