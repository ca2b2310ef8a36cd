//! Argument checks that every public method shares.

use crate::error::KernelError;
use crate::view::{MatMut, MatRef};

/// `got == need`, for a slice argument.
#[inline]
pub(crate) fn len(arg: &'static str, got: usize, need: usize) -> Result<(), KernelError> {
    if got == need {
        Ok(())
    } else {
        Err(KernelError::ShortSlice { arg, need, got })
    }
}

/// `got == want`, for a dimension.
#[inline]
pub(crate) fn dim(what: &'static str, got: usize, want: usize) -> Result<(), KernelError> {
    if got == want {
        Ok(())
    } else {
        Err(KernelError::DimMismatch { what, want, got })
    }
}

/// Elements of a row lie side by side.
#[inline]
pub(crate) fn contiguous<E>(arg: &'static str, x: MatRef<'_, E>) -> Result<(), KernelError> {
    if x.col_stride() == 1 || x.cols() <= 1 {
        Ok(())
    } else {
        Err(KernelError::BadParameter { arg, expected: "contiguous columns" })
    }
}

/// `y = x w^T`, for weights and activations with these rows and columns.
#[inline]
pub(crate) fn product(w: [usize; 2], x: [usize; 2], y: &MatMut<'_, f32>) -> Result<(), KernelError> {
    dim("x.cols() != w.cols()", x[1], w[1])?;
    dim("y.rows() != x.rows()", y.rows(), x[0])?;
    dim("y.cols() != w.rows()", y.cols(), w[0])
}

/// The number of rows of `cols` elements in a slice of `len`; no rows if `cols` is 0.
#[inline]
pub(crate) fn rows(len: usize, cols: usize) -> Result<usize, KernelError> {
    let rows = len.checked_div(cols).unwrap_or(0);
    // No overflow: rows * cols <= len.
    dim("x.len() is not a multiple of cols", len, rows * cols)?;
    Ok(rows)
}
