//! What AVX2 and AVX-512 share.

pub(super) mod bytes;
pub(super) mod lanes;
