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
