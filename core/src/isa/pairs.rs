//! Decoding of weights to pairs of 16-bit elements, where an instruction set has something better than the general way.

use crate::caps::Features;
use crate::element::ElementType;
use crate::quant::pairs::PairsArgs;

/// The function that writes pairs of this type, rounded to nearest even, on a CPU with these features. With bf16, numbers that are
/// denormal in f32 become zeros, because instructions for products of bf16 take all denormals for zeros.
#[allow(unused_variables)] // Not every target has one.
pub(crate) fn writer(element: ElementType, features: Features) -> Option<unsafe fn(&PairsArgs)> {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    match element {
        ElementType::Bf16 if features.contains(Features::AVX512.union(Features::AVX512_BF16)) => {
            return Some(super::avx512::pairs::bf16);
        }
        ElementType::F16 if features.contains(Features::AVX512) => return Some(super::avx512::pairs::f16),
        _ => {}
    }
    None
}
