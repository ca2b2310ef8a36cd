//! The arithmetic of LLM inference, close to the hardware limit.
//!
//! `no_std`, allocates nothing, never panics. Start with [`Kernels`].
#![no_std]
// What families of formats and operators share is left over where some are switched off.
#![cfg_attr(
    not(all(
        feature = "legacy",
        feature = "k",
        feature = "iq",
        feature = "ternary",
        feature = "mx",
        feature = "external",
        feature = "rows"
    )),
    allow(dead_code, unused_imports, unused_macros, unreachable_patterns)
)]

// Macros are known behind their definitions: floors stand in their order, from the ground up.
#[macro_use]
mod macros;

#[macro_use]
mod vocabulary;

#[macro_use]
mod isa;
mod quant;

mod api;
mod asm;
mod dispatch;
mod ops;
pub mod registry;

pub use vocabulary::caps;
// The vocabulary is used everywhere, without its floor's name.
use vocabulary::{arrays, check, element, error, format, header, level, scratch, tile, vector, view};

pub use api::external::External;
pub use caps::{CacheSizes, Caps, Features, IsaLevel, Prefetcher};
pub use dispatch::{single, Kernels, StorePolicy};
pub use element::{bf16, f16, Element, ElementType, Operand};
pub use error::KernelError;
pub use ops::activations::Activations;
pub use ops::attention::{Attended, KvPiece, KV_BLOCK};
pub use ops::external::{
    AwqRef, Fp8Format, Fp8Ref, Fp8Scaling, GptqParts, GptqRef, GptqZeros, Outliers, ScaleSlice,
    SqueezeLlmParts, SqueezeLlmRef,
};
pub use ops::gemm::{Activation, GemmPlan, Right};
pub use ops::pack::PackedB;
pub use ops::qgemm::{ActivationPanels, Precision, QgemmGroup, QgemmPlan, QuantWeights};
pub use ops::qpack::PackedQ;
pub use ops::rope::{RopeFreqs, RopePairing, RopePositions, RopeScaling, RopeShape};
pub use ops::softmax::Softmax;
pub use quant::{blocks, codebooks, QuantFormat, QuantRef};
pub use registry::{kernels, KernelInfo, Op};
pub use scratch::{Scratch, ScratchReq};
pub use view::{MatMut, MatRef};
