//! The operations, beyond layer 1, with which the formats of other checkpoints (AWQ, GPTQ, SqueezeLLM, FP8) and E4M3 are unpacked.

use crate::element::f16;
use crate::vector::Prim;

/// Weights that are unpacked at a time.
pub(crate) const UNPACKED: usize = 16;

/// Unpacking.
///
/// # Safety
/// Every method requires that the CPU has the instruction set and that what a pointer is said to point to
/// exists. Nothing else is touched.
pub(crate) unsafe trait Lanes: Prim<f16> + Prim<f32> {
    /// `LANES` words.
    type I: Copy;

    /// The words at `p`.
    unsafe fn words(p: *const u32) -> Self::I;
    /// Each word shifted right by `n < 32`.
    unsafe fn shr(w: Self::I, n: u32) -> Self::I;
    /// Each word shifted left by `n < 32`.
    unsafe fn shl(w: Self::I, n: u32) -> Self::I;
    /// `a | b`
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// The f32 whose bits are `w & mask | above`; the two have no bit in common.
    unsafe fn mantissa(w: Self::I, mask: u32, above: u32) -> Self::V;
    /// 16 integers in the lowest bits of words, in the first `16 / LANES` vectors: eight lie in each of the
    /// first two of `packed`, or if they have 8 bits four in each; the lowest bits come first. Above them are
    /// others.
    unsafe fn codes<const BITS: u32>(packed: [u32; 4]) -> [Self::I; UNPACKED];

    /// A table of 8 numbers (`BITS` = 3) or 16 (4).
    type Table: Copy;

    /// The table at `p`.
    unsafe fn table<const BITS: u32>(p: *const f32) -> Self::Table;
    /// The numbers that the lowest `BITS` bits of words choose.
    unsafe fn lookup<const BITS: u32>(table: Self::Table, w: Self::I) -> Self::V;
    /// 16 numbers at `p`, E5M2 or else E4M3 times 2^-8, in the first `16 / LANES` vectors. Unless `NAN`, a NaN of
    /// E4M3 becomes some number.
    unsafe fn fp8<const E5M2: bool, const NAN: bool>(p: *const u8) -> [Self::V; UNPACKED];
    /// `2 * LANES` numbers of [`BlockE4m3`](crate::blocks::BlockE4m3) at `p`.
    unsafe fn e4m3(p: *const u8) -> [Self::V; 2];
    /// Nothing seen yet by [`Self::peak`].
    unsafe fn none() -> Self::I;
    /// For each byte, the larger of `before` and the lower seven bits of `w`.
    unsafe fn peak(before: Self::I, w: Self::I) -> Self::I;
    /// Whether what [`Self::peak`] saw contains a NaN of E4M3: a byte of seven bits that are set.
    unsafe fn saw_nan(peak: Self::I) -> bool;
}
