//! Instruction sets: a folder each, with everything that is written for it in Rust.
//!
//! An instruction set is a type without values and an [`InstructionSet`]: registers of f32 and their arithmetic
//! (`vector.rs`), 32 bytes that formats are unpacked with (`bytes.rs`), words of other checkpoints' formats (`lanes.rs`),
//! products of bytes (`dots.rs`), and, where there is something better than the general way, squares of numbers that
//! change rows and columns (`transpose.rs`). Algorithms are written once, for any of them. `x86` has what two sets do
//! alike, `machine` what is the same on every CPU of an architecture.
//!
//! A new one is a folder, its lines here and in `list.rs`, and [`IsaLevel`](crate::IsaLevel). Registers must have a length that is known at compile
//! time, as parts of Rust values: of SVE and RISC-V's V there can only be kernels in assembly.

use crate::caps::IsaLevel;
use crate::element::{bf16, f16};
use crate::quant::bytes::{Lookup, Widen};
use crate::quant::dots::Hold;
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
    Prim<f32> + Prim<f16> + Prim<bf16> + Transpose + Hold + Widen + Lookup + Lanes
{
    /// The capability that a CPU must have.
    const LEVEL: IsaLevel;
    /// The tile of the generic microkernel of matrix products: accumulators plus one row of `B` and an element of `A`
    /// fill the register file as far as whole rows allow; loads stay well below one a multiply-add.
    const TILE: Tile;
    /// The tile of products of a few rows with contiguous rows of weights: sums, a vector of weights, and one of each row
    /// of `A` fit the register file.
    const SKINNY_TILE: Tile;
}
