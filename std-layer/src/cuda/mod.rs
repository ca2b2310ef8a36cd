//! NVIDIA GPUs: memory, queues and kernels, through the driver alone. Needs no CUDA toolkit, neither to build nor to run.
//!
//! ```no_run
//! use gllm_kernels_std::cuda::{Buffer, Driver, Ops, Stream};
//!
//! let context = Driver::open()?.device(0)?.context()?;
//! let (ops, stream) = (Ops::new(&context)?, Stream::new(&context)?);
//! let x = Buffer::from_slice(&stream, &[1.0f32, -2.0])?;
//! let mut y = Buffer::new(&context, 2)?;
//! ops.relu(&stream, &x, &mut y)?;
//! assert_eq!(y.to_vec(&stream)?, [1.0, 0.0]);
//! # Ok::<(), gllm_kernels_std::cuda::CudaError>(())
//! ```
//!
//! Launches only queue work: they neither wait nor allocate, and can be [captured](Stream::capture). Errors of kernels
//! show when somebody waits. The first launch of a kernel loads the file that it is in, or [`Ops::load`] all of them.

mod attention;
mod catalogue;
mod check;
pub(crate) mod decoder;
pub(crate) mod driver;
mod elementwise;
pub(crate) mod error;
pub(crate) mod experts;
mod gemm;
mod gemv;
pub(crate) mod geometry;
mod grouped;
mod kernels;
pub(crate) mod latent;
mod lifetime;
pub(crate) mod linear;
mod memory;
pub(crate) mod module;
mod pinned;
mod prefill;
mod quant;
mod rows;
mod sampling;
pub(crate) mod segments;
mod stream;
pub(crate) mod sys;

use std::fmt;

use gllm_kernels_core::Element;

use crate::aligned::Zeroable;
use kernels::Loader;

pub use attention::{Decode, DecodeRoom, KvCache, KvFormat, KvShape, PageTables};
#[doc(hidden)]
pub use catalogue::{catalogue, Listed};
pub use driver::{Context, Device, Driver, Transfers};
pub use error::{Capability, CudaError, CudaVersion, DriverCode};
pub use gemm::Split;
pub use grouped::{GroupedLayout, GroupedParts, GroupedView};
#[doc(hidden)]
pub use kernels::{embedded_cubins, Cubin};
pub use memory::{Buffer, View, ViewMut};
pub use pinned::{Copying, PinnedBuffer};
pub use prefill::{Mask, Prefill};
pub use quant::{Activations, QuantView};
pub use rows::Norm;
pub use sampling::{History, SamplingRoom, SamplingTable};
pub use stream::{Event, Graph, Stream};

/// Storage types of kernels: f32, f16, bf16.
pub trait Float: Element + Zeroable {}
impl<T: Element + Zeroable> Float for T {}

/// The operators, on one GPU.
pub struct Ops {
    context: Context,
    loader: Loader,
}

impl Ops {
    /// Chooses the kernels for the GPU of a context.
    ///
    /// # Errors
    /// `NoKernels`.
    pub fn new(context: &Context) -> Result<Self, CudaError> {
        Ok(Self { context: context.clone(), loader: Loader::new(context)? })
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// What the kernels in use were compiled for.
    pub fn capability(&self) -> Capability {
        self.loader.capability()
    }

    fn here(&self, context: &Context) -> Result<(), CudaError> {
        self.context.same(context)
    }

    fn multiprocessors(&self) -> usize {
        self.context.device().multiprocessors().max(1) as usize
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ops({:?}, kernels for {})", self.context, self.capability())
    }
}
