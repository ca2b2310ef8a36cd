//! Decoding of weights to pairs of 16-bit elements, where an instruction set has something better than the general way.

use crate::caps::Features;
use crate::element::ElementType;

/// Groups of columns of 16 rows of weights.
#[derive(Clone, Copy)]
#[allow(dead_code)] // Not every target has something better.
pub(crate) struct PairsArgs {
    /// For each four columns 64 bytes, byte `4 * r + t` being the signed code of row `r`, column `t`.
    pub(crate) codes: *const u8,
    /// For each group 16.
    pub(crate) scales: *const f32,
    pub(crate) offsets: Option<*const f32>,
    pub(crate) groups: usize,
    /// Fours of columns in a group.
    pub(crate) cells: usize,
    /// Gets for each two columns 16 pairs, in f16 or bf16, `row` bytes apart.
    pub(crate) dst: *mut u8,
    pub(crate) row: usize,
}

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
