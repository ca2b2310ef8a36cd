//! Products of weights and activations of 8 bits, by groups, as far as instruction sets differ.

use crate::arrays::from_fn;
use crate::isa::{Prim, Scalar};
use crate::ops::activations::{Coarse, Unit};
use crate::quant::packed::{Pack, Scales, GROUPS, STEP, STEPS};
use crate::quant::{Unpack, MIN_GROUP, TILE};

/// How 32 codes are held.
///
/// # Safety
/// The method requires that the CPU has the instruction set and that there is room.
pub(crate) unsafe trait Hold: Prim<f32> {
    /// 32 codes.
    type Codes: Copy;
    /// Writes 32 codes to `p`.
    unsafe fn put(codes: Self::Codes, p: *mut i8);
}

/// Factors of the groups of a unit, at the start of a cache line: what is written as a vector is read back at once.
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
    unsafe fn dot(w: Self::Codes, x: &Unit, i: usize, factors: &Factors, sums: Self::Sums) -> Self::Sums;

    /// The integers of a block's groups, as [`dot_coarse`](Self::dot_coarse) takes them.
    type Integers: Copy;
    /// As [`dot_sums`](Self::dot_sums) takes them.
    type Minima: Copy;
    /// Partial sums of a block.
    type Partial: Copy;
    /// [`Unpack::factors`]; writes the integers.
    unsafe fn factors(b: *const F::Block, out: *mut Self::Integers) -> f32;
    /// [`Unpack::minima`]; writes the integers.
    unsafe fn minima(b: *const F::Block, out: *mut Self::Minima) -> f32;
    /// No sums, for even steps and for odd ones.
    unsafe fn start(x: &Coarse) -> [Self::Partial; 2];
    /// As [`dot`](Self::dot), times integers.
    unsafe fn dot_coarse(
        w: Self::Codes,
        x: &Coarse,
        i: usize,
        factors: &Self::Integers,
        sums: Self::Partial,
    ) -> Self::Partial;
    /// The same, computed before what follows is begun. Entries of codebooks take many registers: the compiler must not
    /// collect those of all steps first.
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
/// That of [`Unpack::codes`].
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
pub(crate) const fn halves<F: Pack>() -> bool {
    F::GROUP == MIN_GROUP
}

// SAFETY: writes 32 bytes.
unsafe impl Hold for Scalar {
    type Codes = [i8; STEP];
    #[inline(always)]
    unsafe fn put(codes: [i8; STEP], p: *mut i8) {
        // SAFETY: the caller vouches for the room.
        unsafe { p.cast::<[i8; STEP]>().write_unaligned(codes) };
    }
}

// SAFETY: plain Rust. What takes a unit or a block is called, not inlined: it is long, and there are kernels for several
// numbers of rows of activations.
unsafe impl<F: Pack> Dots<F> for Scalar {
    type Isa = Self;
    type Codes = [[i8; STEP]; STEPS];
    // Code for each step would be long and no faster.
    const COLUMNS: usize = TILE;
    type Sums = f32;
    #[inline(never)]
    unsafe fn codes(unit: *const F::Block, _: usize, ready: &()) -> [[i8; STEP]; STEPS] {
        // SAFETY: the caller's contract.
        from_fn(|step| unsafe { part::<F, Self>(unit, step * STEP, ready) })
    }
    #[inline(always)]
    unsafe fn zeros() -> f32 {
        0.0
    }
    #[inline(never)]
    unsafe fn dot(w: [[i8; STEP]; STEPS], x: &Unit, _: usize, factors: &Factors, sums: f32) -> f32 {
        group_dots::<F>(w, |step| x.step(step), &factors.0, sums)
    }
    #[inline(always)]
    unsafe fn plus(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    unsafe fn total(sums: f32) -> f32 {
        sums
    }
    // Scales as the specification gives them.
    type Integers = [f32; GROUPS];
    type Minima = [f32; GROUPS];
    type Partial = f32;
    #[inline(never)]
    unsafe fn factors(b: *const F::Block, out: *mut [f32; GROUPS]) -> f32 {
        // SAFETY: the caller vouches for the block, and the room.
        let (b, out) = unsafe { (&*b, &mut *out) };
        *out = from_fn(|g| if g < F::LEN / F::GROUP { F::scale(b, g) } else { 0.0 });
        1.0
    }
    #[inline(never)]
    unsafe fn minima(b: *const F::Block, out: *mut [f32; GROUPS]) -> f32 {
        // SAFETY: the caller vouches for the block, and the room.
        let (b, out) = unsafe { (&*b, &mut *out) };
        *out = from_fn(|g| if g < F::LEN / F::GROUP { F::offset(b, g) } else { 0.0 });
        1.0
    }
    #[inline(always)]
    unsafe fn start(_: &Coarse) -> [f32; 2] {
        [0.0; 2]
    }
    #[inline(never)]
    unsafe fn dot_coarse(
        w: [[i8; STEP]; STEPS],
        x: &Coarse,
        _: usize,
        factors: &[f32; GROUPS],
        sums: f32,
    ) -> f32 {
        // SAFETY: columns of a unit.
        group_dots::<F>(w, |step| unsafe { &*x.columns(step * STEP).cast() }, factors, sums)
    }
    #[inline(always)]
    unsafe fn settled(sums: f32) -> f32 {
        sums
    }
    #[inline(always)]
    unsafe fn joined([even, odd]: [f32; 2], _: &Coarse) -> f32 {
        even + odd
    }
    #[inline(always)]
    unsafe fn dot_sums(x: &Coarse, minima: &[f32; GROUPS]) -> f32 {
        minima.iter().zip(x.sums).fold(0.0, |all, (minimum, sum)| all + minimum * f32::from(sum))
    }
    #[inline(always)]
    unsafe fn times(a: f32, b: f32) -> f32 {
        a * b
    }
    #[inline(always)]
    unsafe fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// `sums` plus the products of a unit, each group's times its factor.
#[inline(always)]
fn group_dots<'a, F: Pack>(
    w: [[i8; STEP]; STEPS],
    x: impl Fn(usize) -> &'a [i8; STEP],
    factors: &[f32; GROUPS],
    mut sums: f32,
) -> f32 {
    let mut factors = factors.iter();
    for (step, w) in w.iter().enumerate() {
        for (w, x) in w.chunks_exact(F::GROUP).zip(x(step).chunks_exact(F::GROUP)) {
            let dot: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            sums += factors.next().map_or(0.0, |factor| dot as f32 * factor);
        }
    }
    sums
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) use x86_64::Vnni;

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod aarch64;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
pub(crate) use aarch64::Dotprod;
