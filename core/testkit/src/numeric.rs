//! Distances between floats, and error bounds.

use gllm_kernels_core::{bf16, f16, Element, ElementType};

/// A number, to be compared in f64.
pub trait Number: Copy {
    /// Exact.
    fn wide(self) -> f64;
    /// Of a value that it holds exactly.
    fn narrow(x: f32) -> Self;
}
macro_rules! numbers {
    ($($t:ident)*) => {$(
        impl Number for $t {
            fn wide(self) -> f64 {
                self.into()
            }
            fn narrow(x: f32) -> Self {
                numbers!(@$t x)
            }
        }
    )*};
    (@f16 $x:ident) => { f16::from_f32($x) };
    (@bf16 $x:ident) => { bf16::from_f32($x) };
    (@$t:ident $x:ident) => { $x as $t };
}
numbers! { f32 f16 bf16 i8 i32 }

/// Explicit mantissa bits, smallest normal exponent, largest exponent.
const fn format(e: ElementType) -> (i32, i32, i32) {
    match e {
        ElementType::F16 => (10, -14, 15),
        ElementType::Bf16 => (7, -126, 127),
        _ => (23, -126, 127),
    }
}

/// The exponent `e` with `2^e <= |x| < 2^(e+1)`; of 0, f64's smallest.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52 & 0x7ff) as i32) - 1023
}

/// `2^n` where f64 is normal.
const fn power(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The distance between neighbours of `E` at `x`.
pub fn ulp<E: Element>(x: f64) -> f64 {
    let (bits, min, max) = format(E::TYPE);
    power(exponent(x).clamp(min, max) - bits)
}

/// Distance of a stored result from the exact value, in units in the last place of `E` there.
///
/// Two NaNs agree, as do two values that overflow alike: infinity counts as the next power of two
/// above the largest finite value. A NaN where none belongs is infinitely far away. The sign of a zero
/// is not looked at.
pub fn ulp_error<E: Element>(got: E, exact: f64) -> f64 {
    let got = f64::from(got.to_f32());
    if got.is_nan() || exact.is_nan() {
        return if got.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let top = power(format(E::TYPE).2 + 1);
    let (got, exact) = (got.clamp(-top, top), exact.clamp(-top, top));
    (got - exact).abs() / ulp::<E>(exact)
}

/// The error, in ulp of `E`, that a computation in f32 with at most `ulps` ulp of error may show once
/// its result is narrowed to `E`.
pub fn narrowed<E: Element>(ulps: f64) -> f64 {
    match format(E::TYPE).0 {
        23 => ulps,
        bits => 0.5 + ulps * power(bits - 23) * 1.001,
    }
}

/// The largest error of an f32 sum whose terms go through `steps` roundings each, given the sum of
/// their magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: gamma_n).
pub fn gamma(steps: usize, magnitudes: f64) -> f64 {
    let nu = steps as f64 * f64::from(f32::EPSILON) / 2.0;
    nu / (1.0 - nu) * magnitudes
}

/// Sum of `terms` and of their magnitudes, in f64: of `n` terms off by at most `n * 2^-53` of the magnitudes, which is 2^-29 of
/// what [`gamma`] allows for as many roundings in f32, and not at all if they are whole numbers. Correcting it would take an
/// emulator as long again.
pub fn sum(terms: impl Iterator<Item = f64>) -> (f64, f64) {
    terms.fold((0.0, 0.0), |(sum, magnitudes), t| (sum + t, magnitudes + t.abs()))
}

/// Whether both have the same bits, or both are NaN.
pub fn same<E: Element>(a: E, b: E) -> bool {
    bits(a) == bits(b) || a.to_f32().is_nan() && b.to_f32().is_nan()
}

/// The bits of a number.
fn bits<E: Element>(x: E) -> u32 {
    // SAFETY: `Element` is sealed; its types have two or four bytes, all of which mean something.
    unsafe {
        if size_of::<E>() == 2 {
            std::mem::transmute_copy::<E, u16>(&x).into()
        } else {
            std::mem::transmute_copy(&x)
        }
    }
}

/// `values` as f64.
pub fn wide<E: Element>(values: &[E]) -> Vec<f64> {
    values.iter().map(|v| f64::from(v.to_f32())).collect()
}
