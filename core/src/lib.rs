//! The arithmetic of LLM inference, close to the hardware limit.
//!
//! `no_std`, allocates nothing, never panics. Every function checks its arguments and returns a `Result`; an error carries
//! the numbers that do not fit, and its text says what to do. Working memory is the caller's: a call that needs some has a
//! query for its size.
//!
//! # Which function do I want?
//!
//! Start with [`Kernels::detect`]: it chooses the best kernels for this CPU, of one storage type. With an operating system,
//! `gllm_kernels_std::kernels` finds more, and `gllm_kernels_std::Parallel` has the same operators on all threads.
//!
//! | I have | I want | Call |
//! |---|---|---|
//! | a quantised matrix `W` (of a GGUF file, say) and one or more rows `X` | `Y = X W^T` | [`Kernels::qgemm_plan`], then [`QgemmPlan::run`] |
//! | the same `W` for many calls | to be faster | [`Kernels::pack_q`] once, then `run` with the packed matrix |
//! | the same `X` for several matrices or threads | to round it once | [`QgemmPlan::prepare`], then `run` with the prepared rows |
//! | a quantised matrix | its weights as numbers | [`Kernels::dequant`] |
//! | numbers | to quantise them | [`Kernels::quantize`] |
//! | two matrices of f32, f16, bf16 or i8 | `C = f(alpha A B + beta C + bias)` | [`Kernels::gemm_plan`], then [`GemmPlan::run`]; [`Right`] says how `B` lies |
//! | a matrix and a vector of floats | `y = alpha A x + beta y` | [`Kernels::gemv`] |
//! | weights of AWQ, GPTQ, SqueezeLLM or FP8 checkpoints | a product, or numbers | [`External`] |
//! | a row | its norm, its softmax | [`Kernels::rms_norm`], [`Kernels::layer_norm`], [`Kernels::softmax`] |
//! | heads of queries and keys | to rotate them by their positions | [`RopeFreqs`], then [`Kernels::rope`] |
//! | queries and a cache of keys and values | attention | [`Kernels::attend`] |
//! | a layer with linear attention | its state after more tokens, and what these read | [`Kernels::causal_conv1d`], then [`Kernels::gated_delta_rule`] |
//! | vectors | an activation, a sum, a dot product | the method of that name of [`Kernels`] |
//! | firmware with one format and little flash | the product alone | [`single`] |
//!
//! # Words
//!
//! - *Storage type* ([`Element`]): the type that numbers have in memory: f32, f16 or bf16. Arithmetic is in f32.
//! - *Format* ([`QuantFormat`]): how quantised weights lie in memory. A *block* is 32 to 256 weights that are stored together; a
//!   *group* of 16 or 32 of them has a scale of its own. A weight is its *code*, a small integer, times the scale, and in some
//!   formats plus an *offset*.
//! - *Level* ([`IsaLevel`]): an instruction set that kernels are written for. *Features* ([`Features`]) are the extensions that a
//!   CPU may have beside its level. *Capabilities* ([`Caps`]) are the level, the features and the caches of a CPU.
//! - *Kernel* ([`KernelInfo`]): one implementation of an operator for one storage type or format and one level. The
//!   [`registry`] lists all; [`Kernels`] is a choice among them.
//! - *Plan* ([`GemmPlan`], [`QgemmPlan`]): a product of one shape, for which kernels and blocks have been chosen. It is a small
//!   value that borrows nothing.
//! - *Scratch* ([`Scratch`]): memory that a call uses while it runs. A plan says how much ([`ScratchReq`]).
//! - *Packed* ([`PackedB`], [`PackedQ`]): a matrix in the order in which kernels read it, behind a checked header. *Panels* are
//!   its parts: some rows or columns that lie side by side.
//! - *Prepared* ([`Prepared`]): activations as a product multiplies them, for instance rounded to 8 bits.
#![no_std]
// Helpers that several families of formats or operators share are unused where these families are switched off.
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
mod vocabulary;

#[macro_use]
mod isa;
mod quant;

mod args;

#[macro_use]
mod asm;
mod ops;

mod table;

mod api;

pub use table::registry;
pub use vocabulary::caps;
// The vocabulary is used everywhere, without its floor's name.
use vocabulary::{arrays, check, element, error, format, header, level, scratch, tile, vector, view};

pub use api::external::External;
pub use api::gemm::{Activation, GemmPlan, Right};
pub use api::qgemm::{Precision, Prepared, QgemmPlan, QuantWeights};
pub use api::single;
pub use caps::{CacheSizes, Caps, Features, IsaLevel, Prefetcher, Prefetches};
pub use element::{bf16, f16, Element, ElementType, Operand};
pub use error::KernelError;
pub use ops::attention::{Alibi, Attended, KvHead, KvPiece, KvTree, KV_BLOCK};
pub use ops::causal_conv::ConvFilter;
pub use ops::external::{
    AwqRef, Fp8Format, Fp8Ref, Fp8Scaling, GptqParts, GptqRef, GptqZeros, Outliers, ScaleSlice,
    SqueezeLlmParts, SqueezeLlmRef,
};
pub use ops::gated_delta::DeltaGates;
pub use ops::pack::PackedB;
pub use ops::qpack::PackedQ;
pub use ops::rope::{RopeFreqs, RopePairing, RopePositions, RopeScaling, RopeShape};
pub use ops::softmax::Softmax;
pub use quant::{blocks, codebooks, QuantFormat, QuantRef};
pub use registry::{kernels, KernelInfo, Op};
pub use scratch::{Scratch, ScratchReq};
pub use table::{Kernels, StorePolicy};
pub use view::{MatMut, MatRef};
