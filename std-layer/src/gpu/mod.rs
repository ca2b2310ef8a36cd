//! What backends on GPUs share.

mod arena;
pub(crate) mod check;
pub(crate) mod geometry;

pub(crate) use arena::{Access, Layout, Plan};
