//! What backends on GPUs share.

mod arena;

pub(crate) use arena::{Access, Layout, Plan};
