//! Normalisations: `rms_norm`, `layer_norm`.

use crate::check;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::engine::{Access, Join};
use crate::ops::rows::{load, rows, Keep, Row, RowOp, Rows};
use crate::vector::Prim;

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
    /// As [`load`], at element `i`.
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
        // SAFETY: the caller vouches for the instruction set; so below.
        unsafe { [P::fma(x, x, squares), none] }
    }
    #[inline(always)]
    fn center(self, _total: f32) -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn spread(self, _row: &Row<P::V>, x: P::V) -> P::V {
        x
    }
    #[inline(always)]
    fn scale(self, [squares, _]: [f32; 2], _total: f32) -> f32 {
        inverse_root(f64::from(squares) * self.share, self.eps)
    }
    #[inline(always)]
    unsafe fn write<const FULL: bool>(self, row: &Row<P::V>, x: P::V, i: usize, len: usize) -> P::V {
        // SAFETY: as above.
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
        // SAFETY: the caller vouches for the elements and the instruction set; so below.
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
        // SAFETY: as above.
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
    unsafe fn spread(self, _row: &Row<P::V>, x: P::V) -> P::V {
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
        // SAFETY: as above.
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
    // SAFETY: the caller's contract.
    unsafe { rows::<E, P, _>(op, Keep::NONE, Rows { rows: n_rows, stride: cols, n: cols, x, y, access }) }
}

/// # Safety
/// As [`rms_norm`], for weights and biases.
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
    // SAFETY: the caller's contract.
    unsafe { rows::<E, P, _>(op, Keep::NONE, Rows { rows: n_rows, stride: cols, n: cols, x, y, access }) }
}

/// The number of rows, once everything that both norms share has been checked.
fn check_norm<E>(
    cols: usize,
    x: usize,
    y: usize,
    params: [(&'static str, Option<&[E]>); 2],
    eps: f32,
) -> Result<usize, KernelError> {
    let rows = check::rows("x", x, "cols", cols)?;
    check::len("y", y, x)?;
    for (arg, p) in params {
        if let Some(p) = p {
            check::len(arg, p.len(), cols)?;
        }
    }
    if (0.0..f32::INFINITY).contains(&eps) {
        Ok(rows)
    } else {
        Err(KernelError::BadParameter { arg: "eps", expected: "a finite number, 0 or above" })
    }
}

fn pointer<E>(p: Option<&[E]>) -> *const E {
    p.map_or(core::ptr::null(), <[E]>::as_ptr)
}

#[cfg(feature = "rows")]
/// # Norms
///
/// Elements are widened to f32, computed, and narrowed once; sums of `n` terms go to four vectors of
/// accumulators, so their relative error is at most about `(n / (4 * lanes) + 8) * 2^-24`. A NaN or infinity makes its whole row NaN, or 0 where `x / inf`
/// is; so do magnitudes whose squares overflow f32 (from about 1e19 on). A row without spread and
/// `eps = 0` gives `0 / 0`, NaN.
///
/// In the `_rows` forms `x` holds rows of `cols` elements, one behind the other; every row's result
/// is bit for bit that of the one-row form.
impl<E: Element> Kernels<E> {
    /// `y_i = x_i / sqrt(mean(x^2) + eps) * w_i`, without `w`: all ones.
    /// (Zhang and Sennrich, "Root Mean Transpose Layer Normalization", 2019.)
    ///
    /// # Errors
    /// `WrongLength` unless `x`, `y` and `w` have the same length; `BadParameter` if `eps` is
    /// negative, infinite or NaN.
    pub fn rms_norm(&self, x: &[E], w: Option<&[E]>, eps: f32, y: &mut [E]) -> Result<(), KernelError> {
        self.rms_norm_rows(x.len(), x, w, eps, y)
    }

    /// [`rms_norm`](Self::rms_norm) in place.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn rms_norm_inplace(&self, w: Option<&[E]>, eps: f32, x: &mut [E]) -> Result<(), KernelError> {
        self.rms_norm_rows_inplace(x.len(), w, eps, x)
    }

    /// [`rms_norm`](Self::rms_norm) of every row of `cols` elements, with the same `w`.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm), with `cols` for `w`; `NotWhole` if `x` has no whole number of rows.
    pub fn rms_norm_rows(
        &self,
        cols: usize,
        x: &[E],
        w: Option<&[E]>,
        eps: f32,
        y: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_norm(cols, x.len(), y.len(), [("w", w), ("b", None)], eps)?;
        let (w, access) = (pointer(w), self.access(x.len()));
        // SAFETY: checked above; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.rms_norm)(rows, cols, x.as_ptr(), w, eps, y.as_mut_ptr(), access) };
        Ok(())
    }

    /// [`rms_norm_rows`](Self::rms_norm_rows) in place.
    ///
    /// # Errors
    /// As [`rms_norm_rows`](Self::rms_norm_rows).
    pub fn rms_norm_rows_inplace(
        &self,
        cols: usize,
        w: Option<&[E]>,
        eps: f32,
        x: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_norm(cols, x.len(), x.len(), [("w", w), ("b", None)], eps)?;
        let p = x.as_mut_ptr();
        // SAFETY: checked above; the input is the output; the table's instruction set is present.
        unsafe { (self.table.rms_norm)(rows, cols, p, pointer(w), eps, p, self.access_inplace()) };
        Ok(())
    }

    /// `y_i = (x_i - mean(x)) / sqrt(var(x) + eps) * w_i + b_i`, `var` the mean squared deviation;
    /// without `w`: all ones, without `b`: all zeros. (Ba, Kiros and Hinton, "Layer Normalization", 2016.)
    ///
    /// A large mean costs no accuracy: elements are taken relative to the mean `c` of the first 64 (in
    /// shorter rows, to the first). The error of the variance is that of a sum times
    /// `1 + (mean - c)^2 / var`: about 1 for data of any distribution, at most `1 + n / 64`.
    ///
    /// # Errors
    /// `WrongLength` unless `x`, `y`, `w` and `b` have the same length; `BadParameter` if `eps` is
    /// negative, infinite or NaN.
    pub fn layer_norm(
        &self,
        x: &[E],
        w: Option<&[E]>,
        b: Option<&[E]>,
        eps: f32,
        y: &mut [E],
    ) -> Result<(), KernelError> {
        self.layer_norm_rows(x.len(), x, w, b, eps, y)
    }

    /// [`layer_norm`](Self::layer_norm) in place.
    ///
    /// # Errors
    /// As [`layer_norm`](Self::layer_norm).
    pub fn layer_norm_inplace(
        &self,
        w: Option<&[E]>,
        b: Option<&[E]>,
        eps: f32,
        x: &mut [E],
    ) -> Result<(), KernelError> {
        self.layer_norm_rows_inplace(x.len(), w, b, eps, x)
    }

    /// [`layer_norm`](Self::layer_norm) of every row of `cols` elements, with the same `w` and `b`.
    ///
    /// # Errors
    /// As [`layer_norm`](Self::layer_norm), with `cols` for `w` and `b`; `NotWhole` if `x` has no
    /// whole number of rows.
    pub fn layer_norm_rows(
        &self,
        cols: usize,
        x: &[E],
        w: Option<&[E]>,
        b: Option<&[E]>,
        eps: f32,
        y: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_norm(cols, x.len(), y.len(), [("w", w), ("b", b)], eps)?;
        let (params, access) = ([pointer(w), pointer(b)], self.access(x.len()));
        // SAFETY: checked above; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.layer_norm)(rows, cols, x.as_ptr(), params, eps, y.as_mut_ptr(), access) };
        Ok(())
    }

    /// [`layer_norm_rows`](Self::layer_norm_rows) in place.
    ///
    /// # Errors
    /// As [`layer_norm_rows`](Self::layer_norm_rows).
    pub fn layer_norm_rows_inplace(
        &self,
        cols: usize,
        w: Option<&[E]>,
        b: Option<&[E]>,
        eps: f32,
        x: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_norm(cols, x.len(), x.len(), [("w", w), ("b", b)], eps)?;
        let (p, params) = (x.as_mut_ptr(), [pointer(w), pointer(b)]);
        // SAFETY: checked above; the input is the output; the table's instruction set is present.
        unsafe { (self.table.layer_norm)(rows, cols, p, params, eps, p, self.access_inplace()) };
        Ok(())
    }
}
