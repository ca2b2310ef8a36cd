//! What the programs share: numbers to compute with.
#![no_std]

pub mod external;
pub mod ops;

use gllm_kernels_core::{KernelError, QgemmPlan, QuantFormat, ScratchReq};

/// Bytes for what `size` says, wherever they start. For static memory: a size that does not exist does not compile.
pub const fn room(size: Result<ScratchReq, KernelError>) -> usize {
    match size {
        Ok(req) => req.size_unaligned(),
        Err(_) => panic!("there is no such size"),
    }
}

/// Bytes for activations that are prepared for products with quantised weights.
pub const fn activations(batch: usize, cols: usize) -> usize {
    room(QgemmPlan::<f32>::prepared_bound(batch, cols))
}

/// Bytes for packed weights of whichever of these formats takes most.
pub const fn packed(formats: &[QuantFormat], rows: usize, cols: usize) -> usize {
    let (mut most, mut rest) = (0, formats);
    while let [format, others @ ..] = rest {
        most = match format.packed_size(rows, cols) {
            Ok(size) if size > most => size,
            Ok(_) => most,
            Err(_) => panic!("there is no such size"),
        };
        rest = others;
    }
    most
}

/// A linear congruential generator.
pub struct Random(pub u32);

impl Random {
    /// 24 bits.
    pub const fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }
    /// Uniform in [-1, 1).
    pub fn number(&mut self) -> f32 {
        self.bits() as f32 / (1 << 23) as f32 - 1.0
    }
    /// Fills a slice with numbers.
    pub fn fill(&mut self, x: &mut [f32]) {
        x.fill_with(|| self.number());
    }
}

/// Whether two results have the same bits.
pub fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// Weights that ggml has quantised: 8 rows of 512.
pub mod vectors {
    /// Rows.
    pub const ROWS: usize = 8;
    /// Columns.
    pub const COLS: usize = 512;

    use gllm_kernels_core::QuantFormat;

    /// A format, blocks of it, and what ggml decodes them to: f32, little-endian.
    pub type Vector = (QuantFormat, &'static [u8], &'static [u8]);

    macro_rules! file {
        ($name:literal, $end:literal) => {
            include_bytes!(concat!("../../../core/testkit/vectors/", $name, $end))
        };
    }
    macro_rules! vectors {
        ($($format:ident = $name:literal;)*) => {
            /// Of every format for weights.
            pub static ALL: &[Vector] = &[$((QuantFormat::$format, file!($name, ".q"), file!($name, ".f32"))),*];
        };
    }
    include!("../../../core/testkit/vectors/list.rs");

    /// Blocks of Q4_0.
    pub static Q4_0: &[u8] = file!("q4_0", ".q");
    /// Blocks of Q8_0.
    pub static Q8_0: &[u8] = file!("q8_0", ".q");
}
