//! Softmax.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::engine::Access;
use crate::ops::softmax::Softmax;
use crate::table::Kernels;

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
        // SAFETY: the lengths and those of masks were checked; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.softmax)(rows, cols, softmax, x.as_ptr(), y.as_mut_ptr(), access) };
        Ok(())
    }

    /// [`softmax_rows`](Self::softmax_rows) in place.
    ///
    /// # Errors
    /// Those of [`softmax_rows`](Self::softmax_rows).
    pub fn softmax_rows_inplace(
        &self,
        cols: usize,
        softmax: Softmax,
        x: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_softmax(cols, softmax, x.len())?;
        let p = x.as_mut_ptr();
        // SAFETY: the lengths and those of masks were checked; the input is the output; the table's instruction set is present.
        unsafe { (self.table.softmax)(rows, cols, softmax, p, p, self.access_inplace()) };
        Ok(())
    }

    /// [`softmax_rows`](Self::softmax_rows) with a mask length for each row: the first `valid[r]` elements of row `r` take part, as
    /// under a causal mask. Each row has the bits that it has alone.
    ///
    /// # Errors
    /// Those of [`softmax_rows`](Self::softmax_rows); `DimMismatch` unless there is a length for each row, `BadIndex`
    /// if one is above `cols`.
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
        // SAFETY: the lengths and those of masks were checked; `y` is exclusive.
        unsafe { self.masked(cols, scale, valid, (x.as_ptr(), y.as_mut_ptr()), self.access(x.len())) };
        Ok(())
    }

    /// [`softmax_masked_rows`](Self::softmax_masked_rows) in place.
    ///
    /// # Errors
    /// Those of [`softmax_masked_rows`](Self::softmax_masked_rows).
    pub fn softmax_masked_rows_inplace(
        &self,
        cols: usize,
        scale: f32,
        valid: &[usize],
        x: &mut [E],
    ) -> Result<(), KernelError> {
        check_masked(cols, scale, valid, x.len())?;
        let p = x.as_mut_ptr();
        // SAFETY: the lengths and those of masks were checked; the input is the output.
        unsafe { self.masked(cols, scale, valid, (p, p), self.access_inplace()) };
        Ok(())
    }

    /// The softmax of each row, with its own mask length.
    ///
    /// # Safety
    /// At `x` and at `y`, which are equal or apart, there are as many rows of `cols` elements as lengths, and no length
    /// is above `cols`.
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

/// Checks that there is a mask length for each row, and that none is above `cols`.
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

/// Checks the arguments, and yields the number of rows.
fn check_softmax(cols: usize, softmax: Softmax, x: usize) -> Result<usize, KernelError> {
    if !(softmax.scale > 0.0 && softmax.scale < f32::INFINITY) {
        return Err(KernelError::BadParameter { arg: "scale", expected: "a positive, finite number" });
    }
    if let Some(got) = softmax.valid.filter(|&valid| valid > cols) {
        return Err(KernelError::BadValue { arg: "valid", got, expected: "at most cols" });
    }
    check::rows("x", x, "cols", cols)
}
