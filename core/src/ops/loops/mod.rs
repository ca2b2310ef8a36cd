//! The loops around the microkernel of a matrix product.

pub(crate) mod blocks;
pub(crate) mod drive;
pub(crate) mod operands;
pub(crate) mod tiles;
