//! What AVX2 and AVX-512 do alike.

pub(super) mod bytes;
pub(super) mod lanes;
