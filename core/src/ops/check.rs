//! Argument checks that every public method shares.

use crate::error::KernelError;

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

/// The number of rows of `cols` elements in a slice of `len`; no rows if `cols` is 0.
#[inline]
pub(crate) fn rows(len: usize, cols: usize) -> Result<usize, KernelError> {
    let rows = len.checked_div(cols).unwrap_or(0);
    // No overflow: rows * cols <= len.
    dim("x.len() is not a multiple of cols", len, rows * cols)?;
    Ok(rows)
}
