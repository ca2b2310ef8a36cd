//! The errors of files: what is wrong, and at which byte.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a file was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum GgufError {
    /// The file could not be opened, read or mapped.
    Io {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The contents are not a GGUF file that this reader accepts.
    Invalid {
        /// Byte offset, in the file, of the field.
        offset: u64,
        /// The field, e.g. `tensor 3 "blk.0.attn_q.weight": offset`.
        field: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends before the field does.
    Truncated {
        /// Bytes the field has.
        need: u64,
        /// Bytes that follow.
        left: u64,
    },
    /// The file does not begin with `GGUF`.
    NotGguf([u8; 4]),
    /// The numbers are big-endian.
    BigEndian,
    /// A version other than 2 and 3.
    Version(u32),
    /// More items than the rest of the file can hold.
    TooMany {
        /// How many.
        count: u64,
        /// The least bytes an item has.
        each: u64,
        /// Bytes that follow.
        left: u64,
    },
    /// A number that no metadata type has.
    ValueType(u32),
    /// A bool that is neither 0 nor 1.
    Bool(u8),
    /// A string that is not UTF-8.
    Utf8,
    /// Arrays in arrays, deeper than the reader goes.
    TooDeep,
    /// A name that an earlier item has.
    Duplicate {
        /// Where that item begins.
        first: u64,
    },
    /// An alignment that is not a power of two, or not a u32.
    Alignment,
    /// More dimensions than four.
    Dimensions(u32),
    /// A number that no known tensor type has, where its size is needed.
    UnknownType(u32),
    /// A number of elements or bytes beyond 64 bits.
    Overflow,
    /// A row that does not consist of whole blocks.
    PartialBlock {
        /// Elements a row.
        row: u64,
        /// Elements a block.
        block: u64,
    },
    /// A tensor that starts between two alignment boundaries.
    Misaligned {
        /// Its offset.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A tensor that ends behind the end of the file.
    OutsideFile {
        /// Its offset in the data section.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// Bytes in the data section.
        data: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { need, left } => {
                write!(f, "needs {need} bytes, but the file ends after {left}: it is cut short or damaged")
            }
            Self::NotGguf(found) => {
                write!(f, "is \"{}\", not \"GGUF\": this is no GGUF file", found.escape_ascii())
            }
            Self::BigEndian => f.write_str("is big-endian: convert the file to little-endian"),
            Self::Version(1) => {
                f.write_str("is 1: this reader knows versions 2 and 3, convert the model again")
            }
            Self::Version(v) => write!(f, "is {v}: this reader knows versions 2 and 3"),
            Self::TooMany { count, each, left } => {
                write!(
                    f,
                    "is {count}, each of at least {each} bytes, but the file ends after {left}: it is cut short or damaged"
                )
            }
            Self::ValueType(t) => write!(f, "is {t}: no metadata type has this number"),
            Self::Bool(b) => write!(f, "is {b}: a bool is 0 or 1"),
            Self::Utf8 => f.write_str("is not UTF-8"),
            Self::TooDeep => write!(f, "has more than {} arrays in each other", super::value::MAX_DEPTH),
            Self::Duplicate { first } => write!(f, "occurs twice, the first time at byte {first}"),
            Self::Alignment => f.write_str("must be a u32 and a power of two"),
            Self::Dimensions(n) => write!(f, "is {n}, more than {}", super::MAX_DIMS),
            Self::UnknownType(t) => write!(f, "is {t}: no known tensor type has this number"),
            Self::Overflow => f.write_str("overflows 64 bits"),
            Self::PartialBlock { row, block } => {
                write!(f, "row length {row} is not a multiple of the block size {block}")
            }
            Self::Misaligned { offset, alignment } => {
                write!(f, "{offset} is not a multiple of the alignment {alignment}")
            }
            Self::OutsideFile { offset, size, data } => {
                write!(
                    f,
                    "{offset} plus {size} bytes, but the file ends {data} bytes after its first tensor: it is cut short \
                     or damaged"
                )
            }
        }
    }
}

impl fmt::Display for GgufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Invalid { offset, field, problem } => write!(f, "at byte {offset}: {field} {problem}"),
        }
    }
}

impl std::error::Error for GgufError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Invalid { .. } => None,
        }
    }
}

/// A problem and where it is; whoever knows the field's name adds it.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) problem: Problem,
}

impl Fault {
    pub(super) fn of(self, field: impl fmt::Display) -> GgufError {
        GgufError::Invalid { offset: self.offset as u64, field: field.to_string(), problem: self.problem }
    }
}

/// A name from a file: quoted, escaped, and cut where it would fill the screen.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(64) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}..", &self.0[..end]),
        }
    }
}
