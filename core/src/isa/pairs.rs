//! Decoding of weights to pairs of 16-bit elements, where an instruction set has something better than the general way.

use crate::caps::Features;
use crate::element::ElementType;
use crate::quant::pairs::{PackedPairsArgs, PairsArgs};

/// Functions that write pairs of 16-bit elements, rounded to nearest even. With bf16, numbers that are denormal in f32 become
/// zeros, because instructions for products of bf16 take all denormals for zeros.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    /// From codes of 8 bits.
    pub(crate) codes: unsafe fn(&PairsArgs),
    /// From packed weights.
    pub(crate) packed: unsafe fn(&PackedPairsArgs),
}

/// The functions for elements of this type on a CPU with these features.
#[allow(unused_variables)] // Not every target has some.
pub(crate) fn writer(element: ElementType, features: Features) -> Option<Writer> {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        use super::avx512::pairs;
        match element {
            ElementType::Bf16 if features.contains(Features::AVX512.union(Features::AVX512_BF16)) => {
                return Some(Writer { codes: pairs::bf16, packed: pairs::packed_bf16 });
            }
            ElementType::F16 if features.contains(Features::AVX512) => {
                return Some(Writer { codes: pairs::f16, packed: pairs::packed_f16 });
            }
            _ => {}
        }
    }
    None
}
