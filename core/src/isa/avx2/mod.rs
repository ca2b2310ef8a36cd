//! The instruction set AVX2 + FMA + F16C, with registers of 8 f32.

mod bytes;
mod dots;
mod lanes;
mod transpose;
mod vector;

use crate::caps::IsaLevel;
use crate::isa::{Avx2, InstructionSet};
use crate::tile::Tile;

// SAFETY: each of the traits that it consists of is implemented, and says why it is safe.
unsafe impl InstructionSet for Avx2 {
    const LEVEL: IsaLevel = IsaLevel::Avx2;
    const TILE: Tile = Tile { rows: 4, cols: 24 };
    const SKINNY_TILE: Tile = Tile { rows: 4, cols: 3 };
}
