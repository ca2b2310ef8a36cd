//! GGUF model files, versions 2 and 3, little-endian.
//!
//! The format is ggml's (docs/gguf.md in its repository): a header, metadata (typed key-value pairs), a
//! table of tensors, and the tensors' data, each tensor at a multiple of the file's alignment.
//!
//! Files come from strangers. Every count and length is compared with the bytes that are left before
//! anything is allocated or skipped, nothing is trusted to be in range, and an error names the byte and
//! the field. Strings and arrays are not copied: a hostile file cannot make the reader use more memory
//! than a small multiple of the file's own header.
//!
//! The reader is our own because those on crates.io (gguf 0.1, gguf-rs 0.1, gguf-rs-lib 0.3) copy every
//! string and array, and their errors do not say which byte of the file is wrong.
//!
//! ```no_run
//! use gllm_kernels_std::gguf::Gguf;
//!
//! // SAFETY: nobody changes the file while it is open.
//! let model = unsafe { Gguf::map("model.gguf") }?;
//! println!("{:?}", model.get("general.architecture"));
//! for tensor in model.tensors() {
//!     println!("{} {} {:?}", tensor.name(), tensor.ggml_type(), tensor.dims());
//! }
//! # Ok::<(), gllm_kernels_std::gguf::GgufError>(())
//! ```
//!
//! [`Writer`] writes such files, tensor by tensor.

mod cursor;
mod error;
mod parse;
mod tensor;
mod types;
mod value;
mod write;

use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

pub use error::{GgufError, Problem};
pub use tensor::Tensor;
pub use types::{BlockLayout, GgmlType};
pub use value::{Array, Value, ValueType};
pub use write::{FileWriter, WriteError, Writer};

use crate::aligned::AlignedVec;
use cursor::Cursor;
use parse::{Entry, Header};

/// Dimensions a tensor has, at most.
pub const MAX_DIMS: usize = 4;

/// An open GGUF file: its header is checked, its tensors lie inside the file.
#[derive(Debug)]
pub struct Gguf<'a> {
    bytes: Bytes<'a>,
    header: Header,
    /// The tensors' data, in the order of the table, if it is not in the file.
    elsewhere: Vec<Bytes<'a>>,
}

/// Where bytes of a file, or of a tensor, are.
pub(crate) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Owned(AlignedVec<u8>),
    Mapped(Mmap),
    /// A range of what others use, too; nothing, if it is not there.
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
            Self::Shared(file, range) => (**file).as_ref().get(range.clone()).unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Gguf<'static> {
    /// Maps a file into memory: nothing is read before it is used.
    ///
    /// # Errors
    /// [`GgufError::Io`], [`GgufError::Invalid`].
    ///
    /// # Safety
    /// While the result lives, no process may change the file (its bytes are shared with `&[u8]`) or
    /// cut it short (reading behind its end kills the process). Where that cannot be promised, use
    /// [`Gguf::read`].
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        Self::from_file(path.as_ref(), |file, len| match len {
            // An empty range cannot be mapped everywhere.
            0 => Ok(Bytes::Borrowed(&[])),
            // SAFETY: the caller promises that the file stays as it is.
            _ => Ok(Bytes::Mapped(unsafe { Mmap::map(&file) }?)),
        })
    }

    /// Reads a whole file into memory.
    ///
    /// # Errors
    /// [`GgufError::Io`], [`GgufError::Invalid`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        Self::from_file(path.as_ref(), |mut file, len| {
            let mut bytes = AlignedVec::zeroed(len);
            file.read_exact(&mut bytes)?;
            Ok(Bytes::Owned(bytes))
        })
    }

    fn from_file(
        path: &Path,
        load: impl FnOnce(File, usize) -> io::Result<Bytes<'static>>,
    ) -> Result<Self, GgufError> {
        let open = || {
            let file = File::open(path)?;
            let meta = file.metadata()?;
            if !meta.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            let len = isize::try_from(meta.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
            load(file, len as usize)
        };
        Gguf::parse(open().map_err(|source| GgufError::Io { path: path.to_owned(), source })?)
    }
}

impl<'a> Gguf<'a> {
    /// Reads a file that is in memory already.
    ///
    /// Tensors can be used as numbers in place ([`Tensor::as_slice`]) if the bytes start at a multiple
    /// of the file's alignment.
    ///
    /// # Errors
    /// [`GgufError::Invalid`].
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, GgufError> {
        Self::parse(Bytes::Borrowed(bytes))
    }

    fn parse(bytes: Bytes<'a>) -> Result<Self, GgufError> {
        let header = Header::parse(&bytes, bytes.len())?;
        Ok(Self { bytes, header, elsewhere: Vec::new() })
    }

    /// A file that was never written: the metadata and tensors that `writer` declares, and the tensors' data in the same order.
    ///
    /// # Errors
    /// A reason: a tensor has other bytes than the writer says, or all of them are too large for a file.
    pub(crate) fn assemble(writer: &Writer, elsewhere: Vec<Bytes<'a>>) -> Result<Self, String> {
        let layout = writer.layout().map_err(|e| e.to_string())?;
        let mut bytes = AlignedVec::zeroed(layout.header.len());
        bytes.copy_from_slice(&layout.header);
        let len = usize::try_from(layout.len).map_err(|_| format!("{} bytes are too many", layout.len))?;
        let header = Header::parse(&bytes, len).map_err(|e| e.to_string())?;
        if elsewhere.len() != header.tensors.len() {
            return Err(format!("{} tensors instead of {}", elsewhere.len(), header.tensors.len()));
        }
        for (info, data) in header.tensors.iter().zip(&elsewhere) {
            if info.size != Some(data.len()) {
                return Err(format!("{} has {} bytes instead of {:?}", info.name, data.len(), info.size));
            }
        }
        Ok(Self { bytes: Bytes::Owned(bytes), header, elsewhere })
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// Bytes at whose multiples tensors start.
    pub fn alignment(&self) -> u64 {
        self.header.alignment
    }

    /// Byte offset, in the file, of the tensors' data.
    pub fn data_offset(&self) -> u64 {
        self.header.data as u64
    }

    /// Bytes of the file.
    pub fn file_size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Number of metadata pairs.
    pub fn metadata_len(&self) -> usize {
        self.header.entries.len()
    }

    /// The metadata, in the file's order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.header.entries.iter().filter_map(|e| Some((&*e.key, self.value(e)?)))
    }

    /// The metadata value of `key`.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.header.entry(key).and_then(|e| self.value(e))
    }

    fn value(&self, entry: &Entry) -> Option<Value<'_>> {
        let mut cursor = Cursor::new(&self.bytes, entry.value);
        match entry.of {
            // Its elements were checked when the file was opened.
            ValueType::Array => Array::open(&mut cursor).ok().map(Value::Array),
            of => Value::read(&mut cursor, of).ok(),
        }
    }

    /// Number of tensors.
    pub fn tensors_len(&self) -> usize {
        self.header.tensors.len()
    }

    /// The tensors, in the file's order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        (0..self.header.tensors.len()).map(|number| self.of(number))
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.header.tensor(name).map(|number| self.of(number))
    }

    fn of(&self, number: usize) -> Tensor<'_> {
        let info = &self.header.tensors[number];
        let in_file = || self.bytes.get(info.start..info.start.checked_add(info.size?)?);
        Tensor::new(info, self.elsewhere.get(number).map_or_else(in_file, |data| Some(data)))
    }
}
