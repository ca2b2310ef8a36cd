//! Tensor types by their ggml number.

use std::fmt;

use gllm_kernels_core::QuantFormat;

/// A tensor's type: ggml's number, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GgmlType(pub u32);

/// How a type stores elements: in blocks of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Elements a block.
    pub block: u32,
    /// Bytes a block.
    pub bytes: u32,
}

/// Names of types: those of plain numbers that are no formats of the core, with their bytes, and those that are. The numbers and
/// sizes of formats are the core's, which may know more formats than have a name here.
macro_rules! types {
    ({ $($plain:ident = $id:literal, $bytes:literal;)* } $($name:ident = $format:ident;)*) => {
        #[allow(missing_docs)] // ggml's names.
        impl GgmlType {
            $(pub const $plain: Self = Self($id);)*
            $(pub const $name: Self = Self(QuantFormat::$format.gguf_type());)*

            /// Sizes of a block; `None` for an unknown number.
            pub const fn layout(self) -> Option<BlockLayout> {
                match (QuantFormat::from_gguf(self.0), self.0) {
                    (Ok(f), _) => Some(BlockLayout { block: f.block_len() as u32, bytes: f.block_bytes() as u32 }),
                    $((_, $id) => Some(BlockLayout { block: 1, bytes: $bytes }),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for GgmlType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match (QuantFormat::from_gguf(self.0), self.0) {
                    (Ok(format), _) => f.pad(&format.name().to_ascii_uppercase()),
                    $((_, $id) => f.pad(stringify!($plain)),)*
                    _ => f.pad(&format!("type {}", self.0)),
                }
            }
        }
    };
}

types! {
    {
        F32 = 0, 4;
        I8 = 24, 1;
        I16 = 25, 2;
        I32 = 26, 4;
        I64 = 27, 8;
        F64 = 28, 8;
    }
    F16 = F16;
    BF16 = Bf16;
    Q4_0 = Q4_0;
    Q4_1 = Q4_1;
    Q5_0 = Q5_0;
    Q5_1 = Q5_1;
    Q8_0 = Q8_0;
    Q8_1 = Q8_1;
    Q2_K = Q2K;
    Q3_K = Q3K;
    Q4_K = Q4K;
    Q5_K = Q5K;
    Q6_K = Q6K;
    Q8_K = Q8K;
    IQ2_XXS = Iq2Xxs;
    IQ2_XS = Iq2Xs;
    IQ3_XXS = Iq3Xxs;
    IQ1_S = Iq1S;
    IQ4_NL = Iq4Nl;
    IQ3_S = Iq3S;
    IQ2_S = Iq2S;
    IQ4_XS = Iq4Xs;
    IQ1_M = Iq1M;
    TQ1_0 = Tq1_0;
    TQ2_0 = Tq2_0;
    MXFP4 = Mxfp4;
    NVFP4 = Nvfp4;
    Q1_0 = Q1_0;
    Q2_0 = Q2_0;
}
