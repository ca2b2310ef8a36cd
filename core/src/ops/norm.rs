//! Normalisations: `rms_norm`, `layer_norm`.

use crate::element::Element;
use crate::ops::engine::{Access, Join};
use crate::ops::rows::{crowded, load, rows, Keep, Row, RowOp, Rows};
use crate::vector::{Arithmetic, Prim};

/// Weights or biases; where there are none, one vector of a constant that every index maps to.
#[derive(Clone, Copy)]
struct Param<E> {
    p: *const E,
    mask: usize,
}

impl<E: Element> Param<E> {
    #[inline(always)]
    fn new(p: *const E, absent: &[E; 16]) -> Self {
        if p.is_null() {
            Self { p: absent.as_ptr(), mask: 0 }
        } else {
            Self { p, mask: usize::MAX }
        }
    }

    /// # Safety
    /// The contract of [`load`], at element `i`.
    #[inline(always)]
    unsafe fn at<P: Prim<E>, const FULL: bool>(self, i: usize, len: usize) -> P::V {
        // SAFETY: the caller's contract; the constant has as many elements as any vector.
        unsafe { load::<E, P, FULL>(self.p.add(i & self.mask), len) }
    }
}

/// `1 / sqrt(mean + eps)`, which is 0 where the mean overflowed.
///
/// Newton's iteration from an estimate that halves the exponent; three steps take its error from 3.4 % below
/// 2^-32. (A library's square root may be an SSE instruction: among AVX-512 code it costs hundreds
/// of cycles, as much as the row.)
#[inline(always)]
fn inverse_root(mean: f64, eps: f32) -> f32 {
    let t = mean + f64::from(eps);
    if t == f64::INFINITY {
        return 0.0;
    }
    let mut y = f64::from_bits(0x5fe6_eb50_c7b5_37a9_u64.wrapping_sub(t.to_bits() >> 1));
    for _ in 0..3 {
        y *= 1.5 - 0.5 * t * y * y;
    }
    y as f32
}

#[derive(Clone, Copy)]
struct RmsNorm<E> {
    w: Param<E>,
    /// `1 / n`.
    share: f64,
    eps: f32,
}

impl<E: Element, P: Prim<E> + Prim<f32>> RowOp<E, P> for RmsNorm<E> {
    const GATHER: Join = Join::Sum;
    const SPREAD: bool = false;
    const KEEP: bool = false;

    #[inline(always)]
    unsafe fn shift(self, _x: *const E, _n: usize) -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn gather(self, _shift: P::V, [squares, none]: [P::V; 2], x: P::V) -> [P::V; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { [P::fma(x, x, squares), none] }
    }
    #[inline(always)]
    fn center(self, _total: f32) -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn spread<A: Arithmetic>(self, _row: &Row<A::V>, x: A::V) -> A::V {
        x
    }
    #[inline(always)]
    fn scale(self, [squares, _]: [f32; 2], _total: f32) -> f32 {
        inverse_root(f64::from(squares) * self.share, self.eps)
    }
    #[inline(always)]
    unsafe fn write<const FULL: bool>(self, row: &Row<P::V>, x: P::V, i: usize, len: usize) -> P::V {
        // SAFETY: the caller vouches for the instruction set and the columns, each of which has a weight.
        unsafe { P::mul(P::mul(x, row.scale), self.w.at::<P, FULL>(i, len)) }
    }
}

/// Elements whose mean all elements of a row are taken relative to.
const SAMPLE: usize = 64;

/// Elements are taken relative to the mean `c` of some, so that a large mean costs no digits. One
/// stage sums these differences and their squares; `var = mean((x - c)^2) - (mean - c)^2` loses the
/// factor `1 + (mean - c)^2 / var`, about 1, and at worst `1 + n / 64`: what moves the mean of 64
/// elements adds to the variance too.
#[derive(Clone, Copy)]
struct LayerNorm<E> {
    w: Param<E>,
    b: Param<E>,
    /// `1 / n`.
    share: f64,
    eps: f32,
}

impl<E: Element, P: Prim<E> + Prim<f32>> RowOp<E, P> for LayerNorm<E> {
    const GATHER: Join = Join::Sum;
    const SPREAD: bool = false;
    const KEEP: bool = false;

    #[inline(always)]
    unsafe fn shift(self, x: *const E, n: usize) -> f32 {
        // SAFETY: the caller vouches for the elements and the instruction set.
        unsafe {
            if n < SAMPLE {
                return (*x).to_f32();
            }
            let mut sum = <P as Prim<E>>::load(x);
            let mut i = P::LANES;
            while i < SAMPLE {
                sum = P::add(sum, <P as Prim<E>>::load(x.add(i)));
                i += P::LANES;
            }
            P::reduce_sum(sum) * (1.0 / SAMPLE as f32)
        }
    }
    #[inline(always)]
    unsafe fn gather(self, shift: P::V, [sum, squares]: [P::V; 2], x: P::V) -> [P::V; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let d = P::sub(x, shift);
            [P::add(sum, d), P::fma(d, d, squares)]
        }
    }
    #[inline(always)]
    fn center(self, total: f32) -> f32 {
        (f64::from(total) * self.share) as f32
    }
    #[inline(always)]
    unsafe fn spread<A: Arithmetic>(self, _row: &Row<A::V>, x: A::V) -> A::V {
        x
    }
    #[inline(always)]
    fn scale(self, [sum, squares]: [f32; 2], _total: f32) -> f32 {
        let mean = f64::from(sum) * self.share;
        let var = f64::from(squares) * self.share - mean * mean;
        // Rounding may leave less than nothing; NaN stays.
        inverse_root(if var < 0.0 { 0.0 } else { var }, self.eps)
    }
    #[inline(always)]
    unsafe fn write<const FULL: bool>(self, row: &Row<P::V>, x: P::V, i: usize, len: usize) -> P::V {
        // SAFETY: the caller vouches for the instruction set and the columns, each of which has a weight and a bias.
        unsafe {
            let deviation = P::sub(P::sub(x, row.shift), row.center);
            let y = P::mul(deviation, row.scale);
            P::fma(y, self.w.at::<P, FULL>(i, len), self.b.at::<P, FULL>(i, len))
        }
    }
}

/// # Safety
/// `rows * cols` elements at `x` and `y`, equal or apart; `w` null or with `cols` elements; the
/// instruction set is present.
#[inline(always)]
pub(crate) unsafe fn rms_norm<E: Element, P: Prim<E> + Prim<f32>>(
    n_rows: usize,
    cols: usize,
    x: *const E,
    w: *const E,
    eps: f32,
    y: *mut E,
    access: Access,
) {
    let ones = [E::from_f32(1.0); 16];
    let op = RmsNorm { w: Param::new(w, &ones), share: 1.0 / cols as f64, eps };
    let crowded = crowded(cols, x, [w, y]);
    // SAFETY: the caller's contract.
    unsafe {
        rows::<E, P, _>(op, Keep::NONE, Rows { rows: n_rows, stride: cols, n: cols, x, y, access, crowded })
    }
}

/// # Safety
/// The contract of [`rms_norm`], for weights and biases.
#[inline(always)]
pub(crate) unsafe fn layer_norm<E: Element, P: Prim<E> + Prim<f32>>(
    n_rows: usize,
    cols: usize,
    x: *const E,
    [w, b]: [*const E; 2],
    eps: f32,
    y: *mut E,
    access: Access,
) {
    let (ones, zeros) = ([E::from_f32(1.0); 16], [E::ZERO; 16]);
    let op = LayerNorm { w: Param::new(w, &ones), b: Param::new(b, &zeros), share: 1.0 / cols as f64, eps };
    let crowded = crowded(cols, x, [w, y]);
    // SAFETY: the caller's contract.
    unsafe {
        rows::<E, P, _>(op, Keep::NONE, Rows { rows: n_rows, stride: cols, n: cols, x, y, access, crowded })
    }
}
