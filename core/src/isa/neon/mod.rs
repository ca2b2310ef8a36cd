//! The instruction set of aarch64's Advanced SIMD (NEON), with registers of 4 f32, and products of bytes for CPUs with dotprod.

mod bytes;
mod dots;
mod lanes;
mod vector;

use crate::caps::IsaLevel;
use crate::isa::transpose::Transpose;
use crate::isa::{InstructionSet, Neon};
use crate::tile::Tile;

// SAFETY: registers only.
unsafe impl Transpose for Neon {}

// SAFETY: each of the traits that it consists of is implemented, and says why it is safe.
unsafe impl InstructionSet for Neon {
    const LEVEL: IsaLevel = IsaLevel::Neon;
    const TILE: Tile = Tile { rows: 8, cols: 8 };
    const SKINNY_TILE: Tile = Tile { rows: 4, cols: 6 };
}
