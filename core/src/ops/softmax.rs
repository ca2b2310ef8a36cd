//! Softmax over rows.

use crate::check;
use crate::dispatch::Kernels;
use crate::element::{Element, ElementType};
use crate::error::KernelError;
use crate::ops::engine::{map, Access, Function, Join};
use crate::ops::math;
use crate::ops::rows::{rows, Keep, Row, RowOp, Rows};
use crate::vector::{Prim, Vector};

/// Scale and mask of a softmax.
///
/// ```
/// # use gllm_kernels_core::{Kernels, Softmax};
/// let mut scores = [2.0, 2.0, 7.0];
/// let masked = Softmax { scale: 0.125, valid: Some(2) };
/// Kernels::<f32>::detect().softmax_rows_inplace(3, masked, &mut scores)?;
/// assert_eq!(scores, [0.5, 0.5, 0.0]);
/// # Ok::<(), gllm_kernels_core::KernelError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    /// Factor of every input: attention's `1 / sqrt(head_dim)`, or an inverse temperature.
    pub scale: f32,
    /// Mask length: only this many elements of a row take part, the others give 0. `None`: all.
    pub valid: Option<usize>,
}

impl Default for Softmax {
    /// Scale 1, no mask.
    fn default() -> Self {
        Self { scale: 1.0, valid: None }
    }
}

/// Exponentials that fit a kernel's buffer for one row. Only where stores can bypass the cache is
/// a large one worth its stack.
const BUFFER: usize = if cfg!(target_arch = "x86_64") { 4096 } else { 512 };

/// `KEEP`: the exponentials are kept between the stages; else they are computed twice.
#[derive(Clone, Copy)]
struct Op<const KEEP: bool> {
    scale: f32,
}

impl<const KEEP: bool> Op<KEEP> {
    /// # Safety
    /// The instruction set must be present.
    #[inline(always)]
    unsafe fn exp<P: Vector>(self, max: P::V, x: P::V) -> P::V {
        // SAFETY: the caller's contract. The difference comes first: it cannot exceed 0.
        unsafe { math::exp::<P>(P::mul(P::sub(x, max), P::splat(self.scale))) }
    }
}

impl<E: Element, P: Prim<E> + Prim<f32>, const KEEP: bool> RowOp<E, P> for Op<KEEP> {
    const GATHER: Join = Join::Max;
    const SPREAD: bool = true;
    const KEEP: bool = KEEP;

    #[inline(always)]
    unsafe fn shift(self, _x: *const E, _n: usize) -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn gather(self, _shift: P::V, [max, none]: [P::V; 2], x: P::V) -> [P::V; 2] {
        // SAFETY: the caller vouches for the instruction set; so below. A NaN leaves `max`.
        unsafe { [P::max(x, max), none] }
    }
    /// Of -inf alone the maximum is taken as 0, so that all exponentials are 0.
    #[inline(always)]
    fn center(self, total: f32) -> f32 {
        if total == f32::NEG_INFINITY {
            0.0
        } else {
            total
        }
    }
    #[inline(always)]
    unsafe fn spread(self, row: &Row<P::V>, x: P::V) -> P::V {
        // SAFETY: as above.
        unsafe { self.exp::<P>(row.center, x) }
    }
    #[inline(always)]
    fn scale(self, _gathered: [f32; 2], total: f32) -> f32 {
        if total == 0.0 {
            0.0
        } else {
            1.0 / total
        }
    }
    #[inline(always)]
    unsafe fn write<const FULL: bool>(self, row: &Row<P::V>, x: P::V, _i: usize, _len: usize) -> P::V {
        // SAFETY: as above.
        unsafe {
            let e = if KEEP { x } else { self.exp::<P>(row.center, x) };
            P::mul(e, row.scale)
        }
    }
}

#[derive(Clone, Copy)]
struct Zero;
impl Function<0> for Zero {
    #[inline(always)]
    unsafe fn eval<P: Vector>(self, []: [P::V; 0]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::splat(0.0) }
    }
}

/// # Safety
/// `rows * cols` elements at `x` and `y`, equal or apart; `valid <= cols`; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn softmax<E: Element, P: Prim<E> + Prim<f32>>(
    n_rows: usize,
    cols: usize,
    Softmax { scale, valid }: Softmax,
    x: *const E,
    y: *mut E,
    access: Access,
) {
    let n = valid.unwrap_or(cols);
    let shape = Rows { rows: n_rows, stride: cols, n, x, y, access };
    // SAFETY: the caller's contract; the kept rows fit the buffer, or are the output rows, which
    // hold f32 and are not streamed past the cache that they are read back from.
    unsafe {
        let in_output = E::TYPE == ElementType::F32 && !(P::STREAMS && access.streamed);
        if in_output {
            let keep = Keep { base: y.cast(), stride: cols };
            rows::<E, P, _>(Op::<true> { scale }, keep, shape);
        } else if n <= BUFFER {
            let mut buffer = [core::mem::MaybeUninit::<f32>::uninit(); BUFFER];
            let keep = Keep { base: buffer.as_mut_ptr().cast(), stride: 0 };
            rows::<E, P, _>(Op::<true> { scale }, keep, shape);
        } else {
            rows::<E, P, _>(Op::<false> { scale }, Keep::NONE, shape);
        }
        if n < cols {
            for r in 0..n_rows {
                map::<E, P, _, 0, 4>(Zero, cols - n, [], y.add(r * cols + n), access);
            }
        }
    }
}

#[cfg(feature = "rows")]
/// # Softmax
///
/// Elements are widened to f32, computed, and narrowed once: in f32 the relative error is at most about
/// `(n / (4 * lanes) + 8) * 2^-24` for the sum of `n` terms, plus 2 ulp for the exponential and as much as
/// the rounding of its argument gives (`|scale * (x_i - max)| * 2^-23`).
///
/// - The maximum is subtracted first, so inputs of any finite size are right.
/// - -inf gives 0; a row of -inf alone (masked entirely), or with `valid = 0`, gives zeros.
/// - A NaN or +inf among the valid elements makes these NaN; beyond `valid` there are zeros always.
///
/// In the `_rows` forms `x` holds rows of `cols` elements, one behind the other; every row's result
/// is bit for bit that of the one-row form. Rows of f16 and bf16, and outputs larger than the caches,
/// use up to 16 KiB of stack on x86-64, 2 KiB elsewhere.
impl<E: Element> Kernels<E> {
    /// `y_i = exp(x_i - max(x)) / sum_j exp(x_j - max(x))`.
    ///
    /// # Errors
    /// `WrongLength` unless both have the same length.
    pub fn softmax(&self, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
        self.softmax_rows(x.len(), Softmax::default(), x, y)
    }

    /// [`softmax`](Self::softmax) in place.
    ///
    /// # Errors
    /// None today.
    pub fn softmax_inplace(&self, x: &mut [E]) -> Result<(), KernelError> {
        self.softmax_rows_inplace(x.len(), Softmax::default(), x)
    }

    /// [`softmax`](Self::softmax) of the first `valid` elements, times `scale`, of every row of
    /// `cols`; zeros behind them.
    ///
    /// # Errors
    /// `WrongLength` unless both slices have the same length; `NotWhole` if `x` has no whole
    /// number of rows; `BadValue` if `valid > cols`, `BadParameter` if `scale` is not positive and finite.
    pub fn softmax_rows(
        &self,
        cols: usize,
        softmax: Softmax,
        x: &[E],
        y: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_softmax(cols, softmax, x.len())?;
        check::len("y", y.len(), x.len())?;
        let access = self.access(x.len());
        // SAFETY: checked above; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.softmax)(rows, cols, softmax, x.as_ptr(), y.as_mut_ptr(), access) };
        Ok(())
    }

    /// [`softmax_rows`](Self::softmax_rows) in place.
    ///
    /// # Errors
    /// As [`softmax_rows`](Self::softmax_rows).
    pub fn softmax_rows_inplace(
        &self,
        cols: usize,
        softmax: Softmax,
        x: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_softmax(cols, softmax, x.len())?;
        let p = x.as_mut_ptr();
        // SAFETY: checked above; the input is the output; the table's instruction set is present.
        unsafe { (self.table.softmax)(rows, cols, softmax, p, p, self.access_inplace()) };
        Ok(())
    }

    /// [`softmax_rows`](Self::softmax_rows) with a mask length for each row: the first `valid[r]` elements of row `r` take part, as
    /// under a causal mask. Each row has the bits that it has alone.
    ///
    /// # Errors
    /// As there; `DimMismatch` unless there is a length for each row, `BadIndex` if one is above `cols`.
    pub fn softmax_masked_rows(
        &self,
        cols: usize,
        scale: f32,
        valid: &[usize],
        x: &[E],
        y: &mut [E],
    ) -> Result<(), KernelError> {
        check_masked(cols, scale, valid, x.len())?;
        check::len("y", y.len(), x.len())?;
        // SAFETY: checked above; `y` is exclusive.
        unsafe { self.masked(cols, scale, valid, (x.as_ptr(), y.as_mut_ptr()), self.access(x.len())) };
        Ok(())
    }

    /// [`softmax_masked_rows`](Self::softmax_masked_rows) in place.
    ///
    /// # Errors
    /// As there.
    pub fn softmax_masked_rows_inplace(
        &self,
        cols: usize,
        scale: f32,
        valid: &[usize],
        x: &mut [E],
    ) -> Result<(), KernelError> {
        check_masked(cols, scale, valid, x.len())?;
        let p = x.as_mut_ptr();
        // SAFETY: checked above; the input is the output.
        unsafe { self.masked(cols, scale, valid, (p, p), self.access_inplace()) };
        Ok(())
    }

    /// A softmax of each row.
    ///
    /// # Safety
    /// As many rows of `cols` elements at both places, equal or apart, as there are lengths; none is above `cols`.
    unsafe fn masked(
        &self,
        cols: usize,
        scale: f32,
        valid: &[usize],
        (x, y): (*const E, *mut E),
        access: Access,
    ) {
        for (r, &valid) in valid.iter().enumerate() {
            let softmax = Softmax { scale, valid: Some(valid) };
            // SAFETY: the caller's contract; the table's instruction set is present.
            unsafe { (self.table.softmax)(1, cols, softmax, x.add(r * cols), y.add(r * cols), access) };
        }
    }
}

/// Whether lengths fit the rows.
fn check_masked(cols: usize, scale: f32, valid: &[usize], x: usize) -> Result<(), KernelError> {
    let rows = check_softmax(cols, Softmax { scale, valid: None }, x)?;
    check::dim("valid.len() != rows", valid.len(), rows)?;
    match valid.iter().enumerate().find(|(_, &valid)| valid > cols) {
        Some((at, &value)) => {
            Err(KernelError::BadIndex { arg: "valid", at, value, from: 0, below: cols.saturating_add(1) })
        }
        None => Ok(()),
    }
}

/// The number of rows, once everything has been checked.
fn check_softmax(cols: usize, softmax: Softmax, x: usize) -> Result<usize, KernelError> {
    if !(softmax.scale > 0.0 && softmax.scale < f32::INFINITY) {
        return Err(KernelError::BadParameter { arg: "scale", expected: "a positive, finite number" });
    }
    if let Some(got) = softmax.valid.filter(|&valid| valid > cols) {
        return Err(KernelError::BadValue { arg: "valid", got, expected: "at most cols" });
    }
    check::rows("x", x, "cols", cols)
}
