//! The interface between generic algorithms and kernels in assembly: blocks of arguments, and descriptions of kernels.

pub(crate) mod micro;
pub(crate) mod unpacker;
