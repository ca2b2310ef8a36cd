//! What the programs share: numbers to compute with.
#![no_std]

/// A linear congruential generator.
pub struct Random(pub u32);

impl Random {
    /// 24 bits.
    pub fn bits(&mut self) -> u32 {
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

    macro_rules! vectors {
        ($($name:ident = $file:literal;)*) => {$(
            #[doc = $file]
            pub static $name: &[u8] = include_bytes!(concat!("../../../core/testkit/vectors/", $file, ".q"));
        )*};
    }
    vectors! {
        Q4_0 = "q4_0";
        Q8_0 = "q8_0";
        Q4_K = "q4_k";
        Q6_K = "q6_k";
        MXFP4 = "mxfp4";
    }
}
