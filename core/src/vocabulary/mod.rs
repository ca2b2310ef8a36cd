//! What everything else is written with. Knows nothing of formats, instruction sets and kernels.

pub(crate) mod arrays;
pub mod caps;
pub(crate) mod element;
pub(crate) mod error;
pub(crate) mod scratch;
pub(crate) mod tile;
pub(crate) mod vector;
pub(crate) mod view;
