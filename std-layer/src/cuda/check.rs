//! Checks of arguments that several operators of GPUs share.

use gllm_kernels_core::KernelError;

use super::error::CudaError;
use super::sys::Address;

/// `Ok` if an argument has as many elements as it must.
pub(super) fn same_len(arg: &'static str, got: usize, need: usize) -> Result<(), CudaError> {
    if got == need {
        Ok(())
    } else {
        Err(CudaError::WrongSize { arg, need, got })
    }
}

/// A product of dimensions.
pub(super) fn area(what: &'static str, dims: &[usize]) -> Result<usize, CudaError> {
    let product = dims.iter().try_fold(1usize, |a, &b| a.checked_mul(b));
    product.ok_or(CudaError::Kernel(KernelError::SizeOverflow { what }))
}

/// A dimension as kernels count.
pub(super) fn small(what: &'static str, n: usize) -> Result<u32, CudaError> {
    // Half of the range, so that sums of a dimension and a tile do not overflow.
    match u32::try_from(n) {
        Ok(n) if n <= u32::MAX / 2 => Ok(n),
        _ => Err(CudaError::Kernel(KernelError::SizeOverflow { what })),
    }
}

/// Whole rows of `cols` elements in `len`.
pub(super) fn rows(len: usize, cols: usize) -> Result<usize, CudaError> {
    match len.checked_div(cols) {
        Some(rows) if rows * cols == len => Ok(rows),
        None if len == 0 => Ok(0),
        _ => Err(CudaError::Kernel(KernelError::NotWhole { arg: "x", got: len, unit: "cols", len: cols })),
    }
}

/// `Ok` if a buffer starts at a multiple of 16 bytes.
pub(super) fn aligned(arg: &'static str, address: Address) -> Result<(), CudaError> {
    if address.is_multiple_of(16) {
        Ok(())
    } else {
        Err(CudaError::Misaligned { arg, align: 16 })
    }
}

/// A parameter outside of its domain.
pub(super) fn bad(arg: &'static str, expected: &'static str) -> CudaError {
    CudaError::Kernel(KernelError::BadParameter { arg, expected })
}
