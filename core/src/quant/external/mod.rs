//! Quantised weights in the layouts of checkpoints other than GGUF, used as they lie in the file.
//!
//! A weight matrix `W` has `outputs` rows and `inputs` columns: `y = W x`. Which of the two is contiguous in
//! memory depends on the format; each view says it.

pub(crate) mod columns;
pub(crate) mod fp8;
mod grouped;
mod lanes;

pub use fp8::{Fp8Format, Fp8Ref, Fp8Scaling, ScaleSlice};
pub use grouped::{AwqRef, GptqParts, GptqRef, GptqZeros};

use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::Prim;
use crate::ops::check;
use crate::view::MatMut;

/// Weights that are unpacked together.
const STEP: usize = 16;

/// The product of two dimensions.
fn area(what: &'static str, a: usize, b: usize) -> Result<usize, KernelError> {
    a.checked_mul(b).ok_or(KernelError::SizeOverflow { what })
}

/// Checks that an output is `rows x cols` with contiguous rows.
fn output<E>(y: &MatMut<'_, E>, rows: usize, cols: usize) -> Result<(), KernelError> {
    check::dim("y.rows()", y.rows(), rows)?;
    check::dim("y.cols()", y.cols(), cols)?;
    if y.col_stride() != 1 && cols > 1 {
        return Err(KernelError::BadParameter { arg: "y", expected: "contiguous rows" });
    }
    Ok(())
}

/// Stores `n <= LANES` lanes, past the cache if `PAST`: then `p` is aligned to `LANES` elements.
///
/// # Safety
/// Room for `n` elements at `p`; the instruction set.
#[inline(always)]
unsafe fn put<E: Element, P: Prim<E>, const PAST: bool>(p: *mut E, v: P::V, n: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        if n < P::LANES {
            P::store_n(p, v, n);
        } else if PAST {
            P::stream(p, v);
        } else {
            P::store(p, v);
        }
    }
}

/// Whether every row of an output can be streamed to in whole vectors.
fn streams<E, P: Prim<E>>(y: *const E, row_stride: usize) -> bool
where
    E: Element,
{
    P::STREAMS
        && (y as usize).is_multiple_of(P::LANES * size_of::<E>())
        && row_stride.is_multiple_of(P::LANES)
}

mod sealed {
    pub trait Sealed {}
}

/// What the views of external formats have in common. Sealed.
pub trait External: sealed::Sealed + Copy + Send + Sync {
    /// Whether a decoded row is an output's weights (`outputs x inputs`), not those of an input for all outputs
    /// (`inputs x outputs`).
    const BY_OUTPUT: bool;
    /// What the first output of a range has to be a multiple of.
    const STEP: usize;
    /// Rows of `W`.
    fn outputs(&self) -> usize;
    /// Columns of `W`.
    fn inputs(&self) -> usize;
    /// Bytes that a product reads.
    fn size(&self) -> usize;
    /// Outputs `start .. start + len`.
    ///
    /// # Errors
    /// Those of the view's own `output_range`.
    fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError>;
    /// The format's `dequant_..` of [`Kernels`].
    ///
    /// # Errors
    /// As there.
    fn dequant_with<E: Element>(self, k: &Kernels<E>, y: MatMut<'_, E>) -> Result<(), KernelError>;
    /// The format's `qgemv_..` of [`Kernels`].
    ///
    /// # Errors
    /// As there.
    fn qgemv_with<E: Element>(self, k: &Kernels<E>, x: &[E], y: &mut [f32]) -> Result<(), KernelError>;
}

macro_rules! external {
    ($($view:ident: $by_output:literal, $step:expr, $dequant:ident, $qgemv:ident;)*) => {$(
        impl sealed::Sealed for $view<'_> {}
        impl External for $view<'_> {
            const BY_OUTPUT: bool = $by_output;
            const STEP: usize = $step;
            fn outputs(&self) -> usize {
                self.outputs()
            }
            fn inputs(&self) -> usize {
                self.inputs()
            }
            fn size(&self) -> usize {
                self.size()
            }
            fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
                self.output_range(start, len)
            }
            fn dequant_with<E: Element>(self, k: &Kernels<E>, y: MatMut<'_, E>) -> Result<(), KernelError> {
                k.$dequant(self, y)
            }
            fn qgemv_with<E: Element>(self, k: &Kernels<E>, x: &[E], y: &mut [f32]) -> Result<(), KernelError> {
                k.$qgemv(self, x, y)
            }
        }
    )*};
}
external! {
    Fp8Ref: true, 1, dequant_fp8, qgemv_fp8;
    AwqRef: false, 8, dequant_awq, qgemv_awq;
    GptqRef: false, 32, dequant_gptq, qgemv_gptq;
}
