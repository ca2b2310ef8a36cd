//! The one error type of the crate.

use core::fmt;

use crate::caps::{Features, IsaLevel};
use crate::quant::QuantFormat;

/// Why a call was refused. Every variant carries the numbers that explain it; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KernelError {
    /// A slice is shorter (or, where lengths must agree, of another length) than the call needs.
    ShortSlice {
        /// Name of the argument.
        arg: &'static str,
        /// Elements (or bytes, for quantised data) needed.
        need: usize,
        /// Elements (or bytes) given.
        got: usize,
    },
    /// Two dimensions that must be equal are not.
    DimMismatch {
        /// What was compared, e.g. `"a.cols != k"`.
        what: &'static str,
        /// The size that was expected.
        want: usize,
        /// The size that was given.
        got: usize,
    },
    /// A row of a quantised matrix does not consist of whole blocks.
    NotBlockMultiple {
        /// Row length in elements.
        cols: usize,
        /// Elements per block.
        block: usize,
    },
    /// The scratch buffer is too small (after alignment).
    ScratchTooSmall {
        /// Bytes needed.
        need: usize,
        /// Bytes available.
        got: usize,
    },
    /// A buffer that claims to be packed has no valid header, or one for another kernel or shape.
    WrongPacking {
        /// What the kernel expects.
        want: u64,
        /// What the header says.
        got: u64,
    },
    /// A mutable view would address one element twice.
    Overlap {
        /// Rows of the view.
        rows: usize,
        /// Columns of the view.
        cols: usize,
        /// Row stride in elements.
        row_stride: usize,
        /// Column stride in elements.
        col_stride: usize,
    },
    /// An index of sparse or reordered weights points outside of them, or out of order.
    BadIndex {
        /// Name of the argument.
        arg: &'static str,
        /// Which of its entries.
        at: usize,
        /// What the entry says.
        value: usize,
        /// What it must be below.
        below: usize,
    },
    /// A parameter lies outside its domain.
    BadParameter {
        /// Name of the parameter.
        arg: &'static str,
        /// What is allowed.
        expected: &'static str,
    },
    /// No quantised format has this GGUF type number.
    UnknownFormat(u32),
    /// Weights cannot be quantised to this format here, only decoded.
    NoEncoder(QuantFormat),
    /// The CPU (or the caller's restriction) lacks what the kernels that were asked for need.
    IsaUnavailable {
        /// The level of these kernels.
        want: IsaLevel,
        /// The level that is there.
        have: IsaLevel,
        /// What they need that is not there. Nothing: this build has no kernels of the level.
        missing: Features,
    },
    /// A size computation does not fit `usize`.
    SizeOverflow {
        /// What was being computed.
        what: &'static str,
    },
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ShortSlice { arg, need, got } => {
                write!(f, "`{arg}` has {got} elements, needs {need}: pass a slice of {need}")
            }
            Self::DimMismatch { what, want, got } => {
                write!(f, "dimension mismatch ({what}): expected {want}, got {got}")
            }
            Self::NotBlockMultiple { cols, block } => {
                write!(f, "row length {cols} is not a multiple of the block size {block}")
            }
            Self::ScratchTooSmall { need, got } => {
                write!(f, "scratch holds {got} bytes, needs {need}: ask the plan's scratch() first")
            }
            Self::WrongPacking { want, got } => {
                write!(f, "buffer is not packed for this kernel and shape (header {got:#018x}, expected {want:#018x}): pack it again")
            }
            Self::Overlap { rows, cols, row_stride, col_stride } => {
                write!(
                    f,
                    "a mutable {rows}x{cols} view with strides {row_stride}, {col_stride} addresses an element twice"
                )
            }
            Self::BadIndex { arg, at, value, below } => {
                write!(f, "entry {at} of `{arg}` is {value}, must be below {below}")
            }
            Self::BadParameter { arg, expected } => {
                write!(f, "`{arg}` is out of range: expected {expected}")
            }
            Self::NoEncoder(format) => write!(f, "there is no encoder for {format}: choose another format"),
            Self::UnknownFormat(id) => write!(f, "no quantised format has the GGUF type number {id}"),
            Self::IsaUnavailable { want, have, missing: Features::NONE } => {
                write!(f, "this build has no kernels for {want} (best is {have})")
            }
            Self::IsaUnavailable { want, have, missing } => {
                write!(f, "{missing} is missing, which these kernels for {want} need (best is {have})")
            }
            Self::SizeOverflow { what } => write!(f, "size overflow while computing {what}"),
        }
    }
}

impl core::error::Error for KernelError {}
