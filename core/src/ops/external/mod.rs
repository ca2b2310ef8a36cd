//! Quantised weights in the layouts of checkpoints other than GGUF, used as they lie in the file.
//!
//! A weight matrix `W` has `outputs` rows and `inputs` columns: `y = W x`. Which of the two is contiguous in
//! memory depends on the format; each view says it.

pub(crate) mod columns;
pub(crate) mod fp8;
mod grouped;
mod layout;
pub(crate) mod squeezellm;

pub(crate) use columns::{ColumnsArgs, Inputs};
pub use fp8::{Fp8Format, Fp8Ref, Fp8Scaling, ScaleSlice};
pub use grouped::{AwqRef, GptqParts, GptqRef, GptqZeros};
pub use squeezellm::{Outliers, SqueezeLlmParts, SqueezeLlmRef};

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::engine::Access;
use crate::quant::lanes::UNPACKED;
use crate::vector::Prim;
use crate::view::MatMut;

/// The product of two dimensions.
fn area(what: &'static str, a: usize, b: usize) -> Result<usize, KernelError> {
    a.checked_mul(b).ok_or(KernelError::SizeOverflow { what })
}

/// Eight integers of `BITS` bits, the first of them `8 * i`, of a string of bits: four if they have 8 bits. Above
/// them may be others.
#[inline(always)]
fn eight<const BITS: u32>(i: usize, word: impl Fn(usize) -> u32) -> u32 {
    let width = if BITS == 8 { 32 } else { 8 * BITS };
    let bit = i * width as usize;
    let (at, shift) = (bit / 32, (bit % 32) as u32);
    // The second word is there if the integers reach into it.
    if shift + width > 32 {
        word(at) >> shift | word(at + 1) << (32 - shift)
    } else {
        word(at) >> shift
    }
}

/// The arguments of the kernels.
pub struct ExternalArgs<E, W> {
    pub(crate) w: W,
    /// Of a product.
    pub(crate) x: *const E,
    /// Of a product.
    pub(crate) y: *mut f32,
    /// Of a decode.
    pub(crate) out: *mut E,
    pub(crate) row_stride: usize,
    pub(crate) access: Access,
}

/// Checks that an output is `rows x cols` with contiguous rows.
pub(crate) fn output<E>(y: &MatMut<'_, E>, rows: usize, cols: usize) -> Result<(), KernelError> {
    check::dim("y.rows()", y.rows(), rows)?;
    check::dim("y.cols()", y.cols(), cols)?;
    check::contiguous("y.col_stride()", y.col_stride(), cols)
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
