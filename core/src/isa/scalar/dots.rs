//! Products of bytes for weights in place, in portable Rust: the definition of what other instruction sets compute.

use crate::arrays::from_fn;
use crate::isa::Scalar;
use crate::quant::dots::{part, CodeRegister, Dots, Factors};
use crate::quant::packed::{Pack, GROUPS, STEPS, STEP_COLS};
use crate::quant::steps::{Coarse, Fine};
use crate::quant::SUPER_BLOCK;

// SAFETY: writes 32 bytes.
unsafe impl CodeRegister for Scalar {
    type Codes = [i8; STEP_COLS];
    #[inline(always)]
    unsafe fn put(codes: [i8; STEP_COLS], p: *mut i8) {
        // SAFETY: the caller vouches for the room.
        unsafe { p.cast::<[i8; STEP_COLS]>().write_unaligned(codes) };
    }
}

// SAFETY: plain Rust. Methods that work on a whole unit or block are not inlined: they are long, and each kernel, for one row of
// activations up to four, would have a copy.
unsafe impl<F: Pack> Dots<F> for Scalar {
    type Isa = Self;
    type Codes = [[i8; STEP_COLS]; STEPS];
    // Code for each step would be long and no faster.
    const COLUMNS: usize = SUPER_BLOCK;
    type Sums = f32;
    #[inline(never)]
    unsafe fn codes(unit: *const F::Block, _: usize, ready: &()) -> [[i8; STEP_COLS]; STEPS] {
        // SAFETY: the caller's contract.
        from_fn(|step| unsafe { part::<F, Self>(unit, step * STEP_COLS, ready) })
    }
    #[inline(always)]
    unsafe fn zeros() -> f32 {
        0.0
    }
    #[inline(never)]
    unsafe fn dot(w: [[i8; STEP_COLS]; STEPS], x: &Fine, _: usize, factors: &Factors, sums: f32) -> f32 {
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
        w: [[i8; STEP_COLS]; STEPS],
        x: &Coarse,
        _: usize,
        factors: &[f32; GROUPS],
        sums: f32,
    ) -> f32 {
        // SAFETY: columns of a unit.
        group_dots::<F>(w, |step| unsafe { &*x.columns(step * STEP_COLS).cast() }, factors, sums)
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
    w: [[i8; STEP_COLS]; STEPS],
    x: impl Fn(usize) -> &'a [i8; STEP_COLS],
    factors: &[f32; GROUPS],
    mut sums: f32,
) -> f32 {
    let mut factors = factors.iter();
    for (step, w) in w.iter().enumerate() {
        for (w, x) in w.chunks_exact(F::GROUP).zip(&mut x(step).chunks_exact(F::GROUP)) {
            let dot: i32 = w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            sums += factors.next().map_or(0.0, |factor| dot as f32 * factor);
        }
    }
    sums
}
