//! Weights that ggml quantised in every format, and what it decodes them to: 8 rows of 512.

macro_rules! vectors {
    ($($name:literal)*) => {
        /// Every format there are vectors of.
        pub const NAMES: &[&str] = &[$($name),*];

        /// The blocks of `format` (a [`QuantFormat::name`](gllm_kernels_core::QuantFormat::name)), and what
        /// ggml decodes them to, as little-endian f32.
        pub fn vector(format: &str) -> Option<(&'static [u8], &'static [u8])> {
            Some(match format {
                $($name => (
                    include_bytes!(concat!("../vectors/", $name, ".q")),
                    include_bytes!(concat!("../vectors/", $name, ".f32")),
                ),)*
                _ => return None,
            })
        }
    };
}
vectors! {
    "bf16" "f16" "iq1_m" "iq1_s" "iq2_s" "iq2_xs" "iq2_xxs" "iq3_s" "iq3_xxs"
    "iq4_nl" "iq4_xs" "mxfp4" "nvfp4" "q1_0" "q2_0" "q2_k" "q3_k" "q4_0"
    "q4_1" "q4_k" "q5_0" "q5_1" "q5_k" "q6_k" "q8_0" "tq1_0" "tq2_0"
}

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
