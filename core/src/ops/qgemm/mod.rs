//! The algorithms of products of quantised weights with many rows of activations.

pub(crate) mod few;
pub(crate) mod packed;
pub(crate) mod tile;
