//! Threads, files, GPUs and whole models, on top of the arithmetic of gllm-kernels-core.
//!
//! - [`model`], [`backend`]: language models, from a file to text, on the CPU or a GPU. Begin with
//!   [`Generator`](model::Generator).
//! - [`Parallel`]: every operator of the core on all threads of a [`Runtime`].
//! - [`kernels`] and [`caps`]: the core's kernels for this machine, detected with the operating system's help once per process;
//!   [`restrict`] makes them choose as on an older CPU.
//! - [`gguf`], [`safetensors`]: files of models.
//! - [`cuda`]: buffers, streams and operators of NVIDIA GPUs; with the feature `rocm`, the module `rocm` opens GPUs of AMD's.
//! - [`AlignedVec`]: buffers that start on a cache line.
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
