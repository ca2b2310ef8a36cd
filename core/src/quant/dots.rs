//! Products of weights in place with activations of 8 bits: the operations in which instruction sets differ.

use crate::quant::bytes::{Bytes, SimdUnpack};
use crate::quant::packed::{Pack, Scales, GROUPS};
use crate::quant::steps::{Coarse, Fine};
use crate::quant::{Unpack, MIN_GROUP};
use crate::vector::Prim;

/// The type that holds 32 unpacked codes: a register, or an array.
///
/// # Safety
/// The method requires that the CPU has the instruction set and that there is room.
pub(crate) unsafe trait CodeRegister: Prim<f32> {
    /// 32 codes.
    type Codes: Copy;
    /// Writes 32 codes to `p`.
    unsafe fn put(codes: Self::Codes, p: *mut i8);
}

// SAFETY: writes 32 bytes.
unsafe impl<P: SimdUnpack> CodeRegister for P {
    type Codes = P::Bytes;
    #[inline(always)]
    unsafe fn put(codes: P::Bytes, p: *mut i8) {
        // SAFETY: the caller vouches for the room.
        unsafe { codes.store(p) };
    }
}

/// Factors of the groups of a unit. They start on a cache line, so that they can be read back at once after they have been written
/// as vectors.
#[repr(C, align(64))]
pub(crate) struct Factors(pub(crate) [f32; GROUPS]);

/// Sums of products of the bytes of a format.
///
/// # Safety
/// Methods require that the CPU has the instructions, and what [`Unpack`] does.
pub(crate) unsafe trait Dots<F: Pack> {
    /// The instruction set that unpacks codes.
    type Isa: Unpack<F>;
    /// Codes of [`COLUMNS`](Self::COLUMNS) columns.
    type Codes: Copy;
    /// How many are multiplied at a time; divides a unit.
    const COLUMNS: usize;
    /// Partial sums, f32.
    type Sums: Copy;
    /// Codes from column `i` of a unit.
    unsafe fn codes(unit: *const F::Block, i: usize, ready: &<Self::Isa as Unpack<F>>::Ready) -> Self::Codes;
    /// No sums.
    unsafe fn zeros() -> Self::Sums;
    /// `a + b`
    unsafe fn plus(a: Self::Sums, b: Self::Sums) -> Self::Sums;
    /// Their sum.
    unsafe fn total(sums: Self::Sums) -> f32;

    /// Multiplies the codes from column `i` of a unit with the activations of `x`, which are -127 to 127, exactly, and adds the
    /// products times their group's factor to the sums.
    unsafe fn dot(w: Self::Codes, x: &Fine, i: usize, factors: &Factors, sums: Self::Sums) -> Self::Sums;

    /// The integers of a block's groups, as [`dot_coarse`](Self::dot_coarse) takes them.
    type Integers: Copy;
    /// The integers of a block's minima, as [`dot_sums`](Self::dot_sums) takes them.
    type Minima: Copy;
    /// Partial sums of a block.
    type Partial: Copy;
    /// [`Unpack::factors`]; writes the integers.
    unsafe fn factors(b: *const F::Block, out: *mut Self::Integers) -> f32;
    /// [`Unpack::minima`]; writes the integers.
    unsafe fn minima(b: *const F::Block, out: *mut Self::Minima) -> f32;
    /// No sums, for even steps and for odd ones.
    unsafe fn start(x: &Coarse) -> [Self::Partial; 2];
    /// The same as [`dot`](Self::dot), but groups have integers as their factors.
    unsafe fn dot_coarse(
        w: Self::Codes,
        x: &Coarse,
        i: usize,
        factors: &Self::Integers,
        sums: Self::Partial,
    ) -> Self::Partial;
    /// The same sums, computed before what follows is begun. Entries of codebooks take many registers: the compiler
    /// must not collect those of all steps first.
    unsafe fn settled(sums: Self::Partial) -> Self::Partial;
    /// Sums over a block, of its even and of its odd steps.
    unsafe fn joined(steps: [Self::Partial; 2], x: &Coarse) -> Self::Sums;
    /// The sums of each group's activations times its number of [`minima`](Self::minima).
    unsafe fn dot_sums(x: &Coarse, minima: &Self::Minima) -> Self::Sums;
    /// `a * b`
    unsafe fn times(a: Self::Sums, b: f32) -> Self::Sums;
    /// `a * b + c`
    unsafe fn fma(a: Self::Sums, b: f32, c: Self::Sums) -> Self::Sums;
}

/// Whether all groups of a block have the same scale.
pub(crate) const fn one_scale<F: Pack>() -> bool {
    matches!(F::PACKING.scales, Scales::Whole)
}

/// Codes `i .. i + 32` of a unit; `i` is a multiple of 32.
///
/// # Safety
/// The contract of [`Unpack::codes`].
#[inline(always)]
pub(crate) unsafe fn part<F: Pack, P: Unpack<F>>(
    unit: *const F::Block,
    i: usize,
    ready: &P::Ready,
) -> P::Codes {
    // SAFETY: the caller vouches for all blocks of the unit.
    unsafe { P::codes(unit.add(i / F::LEN), i % F::LEN, ready) }
}

/// Whether the halves of a step have factors of their own.
pub(crate) const fn two_groups<F: Pack>() -> bool {
    F::GROUP == MIN_GROUP
}
