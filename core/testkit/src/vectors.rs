//! Weights that ggml quantised in every format, and what it decodes them to: 8 rows of 512.

use gllm_kernels_core::QuantFormat;

macro_rules! vectors {
    ($($format:ident = $name:literal;)*) => {
        /// The blocks of `format`, and what ggml decodes them to, as little-endian f32.
        pub fn vector(format: QuantFormat) -> Option<(&'static [u8], &'static [u8])> {
            Some(match format {
                $(QuantFormat::$format => (
                    include_bytes!(concat!("../vectors/", $name, ".q")),
                    include_bytes!(concat!("../vectors/", $name, ".f32")),
                ),)*
                _ => return None,
            })
        }
    };
}
include!("../vectors/list.rs");

/// Rows of the matrix.
pub const MATRIX_ROWS: usize = 8;
/// Columns of the matrix.
pub const MATRIX_COLS: usize = 512;

/// What was quantised, in every format.
pub fn input() -> Vec<f32> {
    floats(include_bytes!("../vectors/w.f32"))
}

/// Little-endian f32.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}
