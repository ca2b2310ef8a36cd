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
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

pub use error::{GgufError, Problem};
pub use tensor::Tensor;
pub use types::{BlockLayout, GgmlType};
pub use value::{Array, Value, ValueType};
pub use write::{FileWriter, WriteError, Writer};

use crate::aligned::AlignedVec;
use cursor::Cursor;
use parse::{Entry, Header, TensorInfo};

/// Dimensions a tensor has, at most.
pub const MAX_DIMS: usize = 4;

/// An open GGUF file: its header is checked, its tensors lie inside the file.
#[derive(Debug)]
pub struct Gguf<'a> {
    bytes: Bytes<'a>,
    header: Header,
}

/// Where the file's bytes are.
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Owned(AlignedVec<u8>),
    Mapped(Mmap),
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
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
        let header = Header::parse(&bytes)?;
        Ok(Self { bytes, header })
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
        self.header.tensors.iter().map(|info| self.of(info))
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.header.tensor(name).map(|info| self.of(info))
    }

    fn of<'g>(&'g self, info: &'g TensorInfo) -> Tensor<'g> {
        Tensor::new(info, &self.bytes)
    }
}
