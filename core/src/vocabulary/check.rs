//! Argument checks that every public method shares.

use crate::error::KernelError;
use crate::format::QuantFormat;

/// Checks that `got == want`, for the length of a slice.
#[inline]
pub(crate) fn len(arg: &'static str, got: usize, want: usize) -> Result<(), KernelError> {
    if got == want {
        Ok(())
    } else {
        Err(KernelError::WrongLength { arg, want, got })
    }
}

/// Checks that `got == want`, for a dimension.
#[inline]
pub(crate) fn dim(what: &'static str, got: usize, want: usize) -> Result<(), KernelError> {
    if got == want {
        Ok(())
    } else {
        Err(KernelError::DimMismatch { what, want, got })
    }
}

/// Checks that `got == want`, for a format.
#[inline]
pub(crate) fn format(arg: &'static str, got: QuantFormat, want: QuantFormat) -> Result<(), KernelError> {
    if got == want {
        Ok(())
    } else {
        Err(KernelError::WrongFormat { arg, want, got })
    }
}

/// Checks that the elements of a row of `cols` lie side by side; `arg` names the stride of its columns.
#[inline]
pub(crate) fn contiguous(arg: &'static str, stride: usize, cols: usize) -> Result<(), KernelError> {
    if stride == 1 || cols <= 1 {
        Ok(())
    } else {
        Err(KernelError::BadValue { arg, got: stride, expected: "1, that is contiguous rows" })
    }
}

/// Checks that weights, activations and results with these rows and columns fit each other in `y = x w^T`.
#[inline]
pub(crate) fn product(w: [usize; 2], x: [usize; 2], y: [usize; 2]) -> Result<(), KernelError> {
    dim("x.cols() != w.cols()", x[1], w[1])?;
    dim("y.rows() != x.rows()", y[0], x[0])?;
    dim("y.cols() != w.rows()", y[1], w[0])
}

/// The number of rows of `cols` elements in a slice of `len`, checked to be whole rows; none if `cols` is 0. `unit`
/// is the name of `cols` in errors.
#[inline]
pub(crate) fn rows(
    arg: &'static str,
    len: usize,
    unit: &'static str,
    cols: usize,
) -> Result<usize, KernelError> {
    let rows = len.checked_div(cols).unwrap_or(0);
    // No overflow: rows * cols <= len.
    if rows * cols == len {
        Ok(rows)
    } else {
        Err(KernelError::NotWhole { arg, got: len, unit, len: cols })
    }
}

/// The end of the range `start .. start + count`, checked to lie within the `len` things that there are.
#[inline]
pub(crate) const fn range(
    what: &'static str,
    start: usize,
    count: usize,
    len: usize,
) -> Result<usize, KernelError> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(end),
        Some(end) => Err(KernelError::OutOfRange { what, end, len }),
        None => Err(KernelError::SizeOverflow { what: "the end of a range" }),
    }
}
