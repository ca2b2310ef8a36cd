//! The instruction set of portable Rust, with registers of one f32. It runs everywhere.

mod bytes;
mod dots;
mod lanes;
mod vector;

use crate::caps::IsaLevel;
use crate::isa::transpose::Transpose;
use crate::isa::{InstructionSet, Scalar};
use crate::tile::Tile;

// SAFETY: registers only.
unsafe impl Transpose for Scalar {}

// SAFETY: each of the traits that it consists of is implemented, and says why it is safe.
unsafe impl InstructionSet for Scalar {
    const LEVEL: IsaLevel = IsaLevel::Scalar;
    const TILE: Tile = Tile { rows: 4, cols: 4 };
    const SKINNY_TILE: Tile = Tile { rows: 4, cols: 2 };
}
