//! Instruction sets. Each has a folder with everything that is written for it in Rust, except for algorithms: these are
//! generic, and written once.
//!
//! An instruction set is a type without values that implements [`InstructionSet`]. Its folder has these files:
//!
//! | file | holds |
//! |---|---|
//! | `vector.rs` | registers of f32: arithmetic, loads and stores of every storage type (layer 1) |
//! | `bytes.rs` | registers of 32 bytes, with which formats are unpacked (layer 3) |
//! | `lanes.rs` | words of 32 bits, with which AWQ, GPTQ, SqueezeLLM and FP8 are unpacked |
//! | `dots.rs` | products of bytes, for weights in place |
//! | `transpose.rs` | the transposition of small squares, if the instruction set has something better than the general way |
//! | `wide.rs`, `pairs.rs` | for products: 64 bytes in a register; weights decoded to pairs of 16 bits, likewise if it has something better |
//!
//! `x86` has what AVX2 and AVX-512 share; `machine` has what every CPU of an architecture shares; `detect` finds out what the
//! CPU at hand has.
//!
//! To add an instruction set, add its folder, its lines here and in `list.rs`, and a variant of [`IsaLevel`](crate::IsaLevel).
//! Registers are Rust values, so their length must be known at compile time. For SVE and the V extension of RISC-V, whose
//! registers have no fixed length, there can only be kernels in assembly.

use crate::caps::IsaLevel;
use crate::element::{bf16, f16};
use crate::quant::bytes::{Lookup, Widen};
use crate::quant::dots::CodeRegister;
use crate::quant::lanes::Lanes;
use crate::tile::Tile;
use crate::vector::Prim;
pub(crate) use list::*;
use transpose::Transpose;

#[macro_use]
mod list;
#[macro_use]
mod simd_primitive;
mod detect;
pub(crate) mod machine;
pub(crate) mod pairs;
pub(crate) mod transpose;

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod scalar;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86;

/// Everything that an instruction set implements.
///
/// # Safety
/// The contracts of the traits that it consists of.
pub(crate) unsafe trait InstructionSet:
    Prim<f32> + Prim<f16> + Prim<bf16> + Transpose + CodeRegister + Widen + Lookup + Lanes
{
    /// The capability that a CPU must have.
    const LEVEL: IsaLevel;
    /// The tile of the generic microkernel of matrix products. Its sums, one row of `B` and one element of `A` fill the
    /// register file as far as whole rows can, and there are far fewer loads than multiply-adds.
    const TILE: Tile;
    /// The tile of products of a few rows with contiguous rows of weights: sums, a vector of weights, and one of each row
    /// of `A` fit the register file.
    const SKINNY_TILE: Tile;
}
