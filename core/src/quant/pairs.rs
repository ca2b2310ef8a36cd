//! What the decoding of weights to pairs of 16-bit elements takes. `isa/pairs.rs` says which instruction sets have it.

use crate::quant::packed::Packing;

/// Groups of columns of 16 rows of weights.
#[derive(Clone, Copy)]
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

/// Steps of a panel of packed weights, whose scales and offsets have been unpacked.
#[derive(Clone, Copy)]
pub(crate) struct PackedPairsArgs {
    pub(crate) packing: &'static Packing,
    /// The unit that begins with the first of the steps.
    pub(crate) w: *const u8,
    pub(crate) steps: usize,
    /// For each group 16.
    pub(crate) scales: *const f32,
    pub(crate) offsets: Option<*const f32>,
    /// Gets for each two columns 16 pairs, in f16 or bf16, `row` bytes apart.
    pub(crate) dst: *mut u8,
    pub(crate) row: usize,
}
