//! The one error type of the crate.

use core::fmt;

use crate::format::QuantFormat;
use crate::level::{Features, IsaLevel};

/// Why a call was refused. Every variant carries the numbers that explain it; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KernelError {
    /// A slice is shorter than the call needs. A longer slice is accepted.
    ShortSlice {
        /// Name of the argument.
        arg: &'static str,
        /// Elements (or bytes, for quantised data) needed at least.
        need: usize,
        /// Elements (or bytes) given.
        got: usize,
    },
    /// A slice has another length than the one that fits the other arguments.
    WrongLength {
        /// Name of the argument.
        arg: &'static str,
        /// The only length that fits, in elements (or bytes, for quantised data).
        want: usize,
        /// Elements (or bytes) given.
        got: usize,
    },
    /// A slice does not consist of whole rows, or of whole tokens.
    NotWhole {
        /// Name of the argument.
        arg: &'static str,
        /// Elements given.
        got: usize,
        /// How the length of a row is computed, e.g. `"heads * head_dim"`.
        unit: &'static str,
        /// The length of a row. If it is 0, only an empty slice fits.
        len: usize,
    },
    /// A range of rows, columns or outputs leaves the matrix.
    OutOfRange {
        /// The things that are counted, e.g. `"rows"`.
        what: &'static str,
        /// The first one after the range.
        end: usize,
        /// How many the matrix has.
        len: usize,
    },
    /// Two dimensions that must be equal are not.
    DimMismatch {
        /// The comparison that failed, e.g. `"a.cols != k"`.
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
    /// A buffer that claims to be packed has no valid header, or one for kernels that take another layout.
    WrongPacking {
        /// Which word of the header it is.
        what: &'static str,
        /// The value that the kernels expect.
        want: u64,
        /// The value in the header.
        got: u64,
    },
    /// Weights or activations are of, or were made for, another quantised format.
    WrongFormat {
        /// Name of the argument.
        arg: &'static str,
        /// The format that was expected.
        want: QuantFormat,
        /// The format that was given.
        got: QuantFormat,
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
    /// An index of sparse or reordered weights points outside of them, or is out of order.
    BadIndex {
        /// Name of the argument.
        arg: &'static str,
        /// Which of its entries.
        at: usize,
        /// The value of the entry.
        value: usize,
        /// The least that it may be.
        from: usize,
        /// The first value that is too large.
        below: usize,
    },
    /// A number of things, or an index of one, lies outside its domain.
    BadValue {
        /// Name of the parameter.
        arg: &'static str,
        /// Its value.
        got: usize,
        /// What is allowed.
        expected: &'static str,
    },
    /// A parameter that is no whole number lies outside its domain.
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
    /// The CPU, or the caller's restriction, lacks features that the requested kernels need.
    IsaUnavailable {
        /// The level of these kernels.
        want: IsaLevel,
        /// The level that is there.
        have: IsaLevel,
        /// The features that are missing. If this is empty, the build has no kernels of that level.
        missing: Features,
    },
    /// A size computation does not fit `usize`.
    SizeOverflow {
        /// The size that was being computed.
        what: &'static str,
    },
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ShortSlice { arg, need, got } => {
                write!(f, "`{arg}` has length {got}, needs at least {need}: pass a longer slice")
            }
            Self::WrongLength { arg, want, got } => {
                write!(f, "`{arg}` has length {got}, needs exactly {want}: pass a slice of that length")
            }
            Self::NotWhole { arg, got, unit, len: 0 } => {
                write!(f, "`{arg}` has length {got}, but {unit} is 0, where only an empty slice fits")
            }
            Self::NotWhole { arg, got, unit, len } => {
                write!(f, "`{arg}` has length {got}, needs a multiple of {len} ({unit})")
            }
            Self::OutOfRange { what, end, len } => {
                write!(f, "the range of {what} ends at {end}, must end at {len} or before")
            }
            Self::DimMismatch { what, want, got } => {
                write!(f, "dimension mismatch ({what}): expected {want}, got {got}")
            }
            Self::NotBlockMultiple { cols, block } => {
                write!(f, "{cols} elements are no whole number of blocks of {block}: pass a multiple of that")
            }
            Self::ScratchTooSmall { need, got } => {
                write!(f, "scratch has {got} bytes left, its next part needs {need}: pass as many as the plan's scratch() says")
            }
            Self::WrongPacking { what, want, got } => {
                write!(f, "not packed for these kernels ({what} is {got:#x}, expected {want:#x}): pack the weights again")
            }
            Self::WrongFormat { arg, want, got } => {
                write!(
                    f,
                    "`{arg}` is in the format {got}, expected {want}: use one format for the whole product"
                )
            }
            Self::Overlap { rows, cols, row_stride, col_stride } => {
                write!(
                    f,
                    "a mutable {rows}x{cols} view with strides {row_stride}, {col_stride} addresses an element twice"
                )
            }
            Self::BadIndex { arg, at, value, from, below } => {
                write!(f, "entry {at} of `{arg}` is {value}, must be at least {from} and below {below}")
            }
            Self::BadValue { arg, got, expected } => {
                write!(f, "`{arg}` is {got}: expected {expected}")
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
            Self::SizeOverflow { what } => {
                write!(f, "overflow while computing {what}: pass smaller dimensions")
            }
        }
    }
}

impl core::error::Error for KernelError {}
