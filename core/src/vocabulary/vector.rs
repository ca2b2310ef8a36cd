//! The operations of layer 1, which every instruction set implements on its vector registers.

use crate::element::Element;

/// `1.5 * 2^23 + 254`. Added to a number of magnitude 2^21 or less, it leaves the nearest integer `n`, ties to even, in the last bits
/// of the sum: these are `n + 254`. For [`Arithmetic::scale2`] half of that is the exponent of about `2^(n / 2)`, as f32 stores it.
pub(crate) const POWER_OF_ZERO: f32 = 12_583_166.0;

/// The 13 operations on registers that treat every lane alike. All arithmetic is IEEE single precision, rounded to nearest even.
///
/// # Safety
/// Every method requires that the CPU has the instruction set.
pub unsafe trait Arithmetic: Copy + 'static {
    /// A register, or several.
    type V: Copy;

    /// `x` in every lane.
    unsafe fn splat(x: f32) -> Self::V;
    /// `a + b`
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`, rounded once
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once; scalar code may round denormal results twice.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once.
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `if a < b { a } else { b }`: `b` if either is NaN.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`: `b` if either is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The magnitude of `m` with the sign of `s`.
    unsafe fn copysign(m: Self::V, s: Self::V) -> Self::V;
    /// The nearest integer, ties to even, for `|a| <= 2^22`.
    unsafe fn round(a: Self::V) -> Self::V;
    /// `a * 2^n` for integral `|n| <= 252`, rounded once for `|a| >= 2^-100`, denormal results included. `power` is
    /// `n + POWER_OF_ZERO`.
    unsafe fn scale2(a: Self::V, power: Self::V) -> Self::V;
    /// `if a < b { x } else { y }`: `y` if either of `a`, `b` is NaN.
    unsafe fn select_lt(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
}

/// Registers of `LANES` f32, and the 4 operations across their lanes.
///
/// # Safety
/// Every method requires that the CPU has the instruction set.
pub unsafe trait Vector: Arithmetic {
    /// f32 lanes in a register.
    const LANES: usize;
    /// Whether `stream` bypasses the cache.
    const STREAMS: bool;

    /// The sum of all lanes, in any order.
    unsafe fn reduce_sum(a: Self::V) -> f32;
    /// The largest lane; unspecified if a lane is NaN.
    unsafe fn reduce_max(a: Self::V) -> f32;
    /// From `2 * LANES` consecutive lanes `a ++ b`: those at even places, those at odd places.
    unsafe fn unzip(a: Self::V, b: Self::V) -> (Self::V, Self::V);
    /// The inverse of `unzip`.
    unsafe fn zip(even: Self::V, odd: Self::V) -> (Self::V, Self::V);
}

/// The 5 memory operations per storage type; with [`Arithmetic`] and [`Vector`] the 22 operations of layer 1.
///
/// # Safety
/// The contract of [`Vector`]; the addressed elements must be valid for the access. Nothing else is touched.
pub unsafe trait Prim<E: Element>: Vector {
    /// `LANES` elements, widened; any alignment.
    unsafe fn load(p: *const E) -> Self::V;
    /// The first `n <= LANES` elements, widened; the other lanes are 0.
    unsafe fn load_n(p: *const E, n: usize) -> Self::V;
    /// Narrows and stores `LANES` elements; any alignment.
    unsafe fn store(p: *mut E, v: Self::V);
    /// Narrows and stores the first `n <= LANES` lanes.
    unsafe fn store_n(p: *mut E, v: Self::V, n: usize);
    /// Narrows and stores `LANES` elements, past the caches if [`STREAMS`](Vector::STREAMS); `p` is aligned to `LANES`
    /// elements.
    unsafe fn stream(p: *mut E, v: Self::V);
}
