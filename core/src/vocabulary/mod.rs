//! The types that everything else is written with: number types, views, errors, scratch memory, capabilities, and the names of
//! formats and of instruction sets. They know neither how formats are decoded nor that there are kernels.

#[macro_use]
mod list;

pub(crate) mod arrays;
pub mod caps;
pub(crate) mod check;
pub(crate) mod element;
pub(crate) mod error;
pub(crate) mod format;
pub(crate) mod header;
pub(crate) mod level;
pub(crate) mod scratch;
pub(crate) mod tile;
pub(crate) mod vector;
pub(crate) mod view;
