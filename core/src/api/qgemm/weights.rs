//! Quantised weights as a product takes them.

use crate::error::KernelError;
use crate::ops::qpack::PackedQ;
use crate::quant::{QuantFormat, QuantRef};

/// Quantised weights as a product takes them.
#[derive(Clone, Copy, Debug)]
pub enum QuantWeights<'a> {
    /// As they lie in a file.
    InPlace(QuantRef<'a>),
    /// From [`Kernels::pack_q`](crate::Kernels::pack_q).
    Packed(PackedQ<'a>),
}

impl<'a> From<QuantRef<'a>> for QuantWeights<'a> {
    fn from(w: QuantRef<'a>) -> Self {
        Self::InPlace(w)
    }
}
impl<'a> From<PackedQ<'a>> for QuantWeights<'a> {
    fn from(w: PackedQ<'a>) -> Self {
        Self::Packed(w)
    }
}

impl QuantWeights<'_> {
    /// Whether they are packed.
    pub fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::InPlace(w) => w.rows(),
            Self::Packed(w) => w.rows(),
        }
    }
    /// Number of columns.
    pub fn cols(&self) -> usize {
        match self {
            Self::InPlace(w) => w.cols(),
            Self::Packed(w) => w.cols(),
        }
    }
    /// Their format.
    pub fn format(&self) -> QuantFormat {
        match self {
            Self::InPlace(w) => w.format(),
            Self::Packed(w) => w.format(),
        }
    }
    /// Rows `start .. start + len`.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix; `BadValue` if the weights are packed and `start` is neither a
    /// multiple of [`PackedQ::ROW_STEP`] nor the end.
    pub fn row_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        Ok(match self {
            Self::InPlace(w) => Self::InPlace(w.row_range(start, len)?),
            Self::Packed(w) => Self::Packed(w.row_range(start, len)?),
        })
    }
}
