//! Norms.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::table::Kernels;

/// Checks the arguments that both norms have in common, and returns the number of rows.
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
/// Elements are widened to f32, computed, and narrowed once; sums of `n` terms go to four vectors of accumulators, so
/// their relative error is at most about `(n / (4 * lanes) + 8) * 2^-24`. A NaN or an infinity makes every element of
/// its row NaN or, where the formula divides by an infinity, 0; so do magnitudes whose squares overflow f32 (from about
/// 1e19 on). A row without spread and `eps = 0` gives `0 / 0`, NaN.
///
/// In the `_rows` forms `x` holds rows of `cols` elements, one behind the other; every row's result
/// is bit for bit that of the one-row form.
impl<E: Element> Kernels<E> {
    /// `y_i = x_i / sqrt(mean(x^2) + eps) * w_i`, without `w`: all ones.
    /// (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.)
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
    /// Those of [`rms_norm`](Self::rms_norm).
    pub fn rms_norm_inplace(&self, w: Option<&[E]>, eps: f32, x: &mut [E]) -> Result<(), KernelError> {
        self.rms_norm_rows_inplace(x.len(), w, eps, x)
    }

    /// [`rms_norm`](Self::rms_norm) of every row of `cols` elements, with the same `w`.
    ///
    /// # Errors
    /// Those of [`rms_norm`](Self::rms_norm), with `cols` for `w`; `NotWhole` if `x` has no whole number of rows.
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
        // SAFETY: the lengths were checked; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.rms_norm)(rows, cols, x.as_ptr(), w, eps, y.as_mut_ptr(), access) };
        Ok(())
    }

    /// [`rms_norm_rows`](Self::rms_norm_rows) in place.
    ///
    /// # Errors
    /// Those of [`rms_norm_rows`](Self::rms_norm_rows).
    pub fn rms_norm_rows_inplace(
        &self,
        cols: usize,
        w: Option<&[E]>,
        eps: f32,
        x: &mut [E],
    ) -> Result<(), KernelError> {
        let rows = check_norm(cols, x.len(), x.len(), [("w", w), ("b", None)], eps)?;
        let p = x.as_mut_ptr();
        // SAFETY: the lengths were checked; the input is the output; the table's instruction set is present.
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
    /// Those of [`layer_norm`](Self::layer_norm).
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
    /// Those of [`layer_norm`](Self::layer_norm), with `cols` for `w` and `b`; `NotWhole` if `x` has no
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
        // SAFETY: the lengths were checked; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.layer_norm)(rows, cols, x.as_ptr(), params, eps, y.as_mut_ptr(), access) };
        Ok(())
    }

    /// [`layer_norm_rows`](Self::layer_norm_rows) in place.
    ///
    /// # Errors
    /// Those of [`layer_norm_rows`](Self::layer_norm_rows).
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
        // SAFETY: the lengths were checked; the input is the output; the table's instruction set is present.
        unsafe { (self.table.layer_norm)(rows, cols, p, params, eps, p, self.access_inplace()) };
        Ok(())
    }
}
