//! Tensor types by their ggml number.

use std::fmt;

/// A tensor's type: ggml's number, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GgmlType(pub u32);

/// How a type stores elements: in blocks of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// ggml's name.
    pub name: &'static str,
    /// Elements a block.
    pub block: u32,
    /// Bytes a block.
    pub bytes: u32,
}

/// `NAME = number, elements a block, bytes a block`. Numbers that are missing were given up by ggml.
macro_rules! types {
    ($($name:ident = $id:literal, $block:literal, $bytes:literal;)*) => {
        #[allow(missing_docs)] // ggml's names.
        impl GgmlType {
            $(pub const $name: Self = Self($id);)*

            /// Every type this reader knows the size of.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Name and block size; `None` for an unknown number.
            pub const fn layout(self) -> Option<BlockLayout> {
                match self.0 {
                    $($id => Some(BlockLayout { name: stringify!($name), block: $block, bytes: $bytes }),)*
                    _ => None,
                }
            }
        }
    };
}

types! {
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q4_0 = 2, 32, 18;
    Q4_1 = 3, 32, 20;
    Q5_0 = 6, 32, 22;
    Q5_1 = 7, 32, 24;
    Q8_0 = 8, 32, 34;
    Q8_1 = 9, 32, 36;
    Q2_K = 10, 256, 84;
    Q3_K = 11, 256, 110;
    Q4_K = 12, 256, 144;
    Q5_K = 13, 256, 176;
    Q6_K = 14, 256, 210;
    Q8_K = 15, 256, 292;
    IQ2_XXS = 16, 256, 66;
    IQ2_XS = 17, 256, 74;
    IQ3_XXS = 18, 256, 98;
    IQ1_S = 19, 256, 50;
    IQ4_NL = 20, 32, 18;
    IQ3_S = 21, 256, 110;
    IQ2_S = 22, 256, 82;
    IQ4_XS = 23, 256, 136;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    IQ1_M = 29, 256, 56;
    BF16 = 30, 1, 2;
    TQ1_0 = 34, 256, 54;
    TQ2_0 = 35, 256, 66;
    MXFP4 = 39, 32, 17;
    NVFP4 = 40, 64, 36;
    Q1_0 = 41, 128, 18;
    Q2_0 = 42, 64, 18;
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layout() {
            Some(layout) => f.pad(layout.name),
            None => f.pad(&format!("type {}", self.0)),
        }
    }
}
