//! The instruction set AVX-512 F + BW + VL + DQ, with registers of 16 f32, and products of bytes for CPUs with VNNI.

mod bytes;
mod dots;
mod lanes;
pub(super) mod pairs;
mod vector;
mod wide;

use crate::caps::IsaLevel;
use crate::isa::transpose::Transpose;
use crate::isa::{Avx512, InstructionSet};
use crate::tile::Tile;

// SAFETY: registers only.
unsafe impl Transpose for Avx512 {}

// SAFETY: each of the traits that it consists of is implemented, and says why it is safe.
unsafe impl InstructionSet for Avx512 {
    const LEVEL: IsaLevel = IsaLevel::Avx512;
    const TILE: Tile = Tile { rows: 8, cols: 32 };
    const SKINNY_TILE: Tile = Tile { rows: 4, cols: 6 };
}
