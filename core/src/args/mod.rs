//! What generic algorithms and kernels in assembly have in common: the blocks of their arguments, and how kernels are described.

pub(crate) mod micro;
pub(crate) mod unpacker;
