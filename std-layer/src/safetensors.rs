//! Checkpoints in the format `safetensors`: quantised weights of AWQ, GPTQ, SqueezeLLM, FP8, compressed-tensors, ModelOpt, Quark and bitsandbytes, and plain ones.
//!
//! A quantised matrix is several tensors with a common prefix: [`Checkpoint::weights`] finds them by their names
//! and views them as one. What shapes do not tell is looked up in the model's configuration (`config.json`,
//! `quantize_config.json` or `quant_config.json` beside the file), if there is one.
//!
//! Files come from strangers: whatever does not fit is an error, or the reason why a weight cannot be used.
//!
//! ```no_run
//! use gllm_kernels_std::safetensors::Checkpoint;
//!
//! // SAFETY: nobody changes the file while it is open.
//! let model = unsafe { Checkpoint::map("model.safetensors") }?;
//! for weight in model.weights() {
//!     println!("{} {}: {:?}", weight.name, weight.kind, weight.view);
//! }
//! # Ok::<(), gllm_kernels_std::safetensors::SafetensorsError>(())
//! ```

mod coded;
mod codes;
mod config;
mod weights;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gllm_kernels_core::{bf16, f16};
use memmap2::Mmap;
use safetensors::tensor::{Metadata, TensorInfo};
pub use safetensors::Dtype;

pub(crate) use codes::Codes;
pub use codes::CodesRef;
pub use config::Quantisation;
pub use weights::{View, Weight};

/// Why a file was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The file could not be opened or mapped.
    Io {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file ends before its header, or before its last tensor.
    Truncated {
        /// Bytes that it should have.
        need: u64,
        /// Bytes that it has.
        got: u64,
    },
    /// The contents are not a safetensors file.
    Invalid(String),
}

impl From<String> for SafetensorsError {
    fn from(why: String) -> Self {
        Self::Invalid(why)
    }
}

impl fmt::Display for SafetensorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Truncated { need, got } => {
                write!(f, "the file has {got} bytes of at least {need}: it is cut short, get it again")
            }
            Self::Invalid(why) => write!(f, "not a safetensors file: {why}"),
        }
    }
}

impl std::error::Error for SafetensorsError {}

/// Where the file's bytes are.
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Mapped(Mmap),
}

impl Bytes<'_> {
    fn all(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

/// The longest header that the format allows, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// Where a file's tensors start, and its header.
fn parse(file: &[u8]) -> Result<(usize, Metadata), SafetensorsError> {
    let got = file.len() as u64;
    let truncated = |need| SafetensorsError::Truncated { need, got };
    let (size, rest) = file.split_first_chunk::<8>().ok_or(truncated(8))?;
    let size = u64::from_le_bytes(*size);
    if size > MAX_HEADER {
        return Err(format!("it begins with the length of a header, {size}; the most is {MAX_HEADER}").into());
    }
    let header = usize::try_from(size).ok().and_then(|n| rest.get(..n)).ok_or(truncated(8 + size))?;
    let (data, left) = (8 + header.len(), rest.len() - header.len());
    // A header is right in itself: its tensors follow each other from 0 on.
    let header: Metadata = serde_json::from_slice(header).map_err(|e| format!("header: {e}"))?;
    match header.data_len() {
        need if need > left => Err(truncated((data as u64).saturating_add(need as u64))),
        need if need < left => Err(format!("{} bytes follow behind the last tensor", left - need).into()),
        _ => Ok((data, header)),
    }
}

/// An open file: its header is checked, its tensors lie inside the file.
pub struct Checkpoint<'a> {
    bytes: Bytes<'a>,
    /// Where tensors start.
    data: usize,
    header: Metadata,
    quantisation: Quantisation,
}

impl Checkpoint<'static> {
    /// Maps a file into memory, and reads the configuration beside it.
    ///
    /// # Errors
    /// [`SafetensorsError::Io`], [`SafetensorsError::Truncated`], [`SafetensorsError::Invalid`].
    ///
    /// # Safety
    /// While the result lives, no process may change the file (its bytes are shared with `&[u8]`) or cut it short
    /// (reading behind its end kills the process).
    pub unsafe fn map(path: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        let path = path.as_ref();
        let failed = |source| SafetensorsError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let bytes = if file.metadata().map_err(failed)?.len() == 0 {
            // An empty range cannot be mapped everywhere.
            Bytes::Borrowed(&[][..])
        } else {
            // SAFETY: the caller promises that the file stays as it is.
            Bytes::Mapped(unsafe { Mmap::map(&file) }.map_err(failed)?)
        };
        Self::open(bytes, Quantisation::beside(path))
    }
}

impl<'a> Checkpoint<'a> {
    /// A file in memory, and what is known of its quantisation.
    ///
    /// # Errors
    /// [`SafetensorsError::Truncated`], [`SafetensorsError::Invalid`].
    pub fn from_bytes(bytes: &'a [u8], quantisation: Quantisation) -> Result<Self, SafetensorsError> {
        Self::open(Bytes::Borrowed(bytes), quantisation)
    }

    fn open(bytes: Bytes<'a>, quantisation: Quantisation) -> Result<Self, SafetensorsError> {
        let (data, header) = parse(bytes.all())?;
        Ok(Self { bytes, data, header, quantisation })
    }

    fn file(&self) -> &[u8] {
        self.bytes.all()
    }

    /// Bytes of the file.
    pub fn file_size(&self) -> u64 {
        self.file().len() as u64
    }

    /// Pairs of text in the header.
    pub fn metadata_len(&self) -> usize {
        self.header.metadata().as_ref().map_or(0, |m| m.len())
    }

    /// What is known of the quantisation.
    pub fn quantisation(&self) -> &Quantisation {
        &self.quantisation
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> Vec<Tensor<'_>> {
        let names = self.header.offset_keys();
        names.into_iter().filter_map(|name| self.tensor(&name)).collect()
    }

    /// Where in the file a tensor's bytes are.
    pub(crate) fn place(&self, name: &str) -> Option<Range<usize>> {
        let (from, to) = self.header.info(name)?.data_offsets;
        Some(self.data.checked_add(from)?..self.data.checked_add(to)?)
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let info: &TensorInfo = self.header.info(name)?;
        let (from, to) = info.data_offsets;
        let data = self.file().get(self.data..)?.get(from..to)?;
        Some(Tensor { name: name.to_owned(), dtype: info.dtype, shape: &info.shape, data })
    }
}

impl AsRef<[u8]> for Checkpoint<'_> {
    /// The whole file.
    fn as_ref(&self) -> &[u8] {
        self.file()
    }
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({} bytes, {:?})", self.file_size(), self.quantisation)
    }
}

/// A tensor.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    /// Its name.
    pub name: String,
    /// The type of its numbers.
    pub dtype: Dtype,
    /// Its dimensions, the contiguous one last.
    pub shape: &'a [usize],
    /// Its bytes.
    pub data: &'a [u8],
}

/// Numbers that a tensor may be of.
///
/// # Safety
/// Every bit pattern is a value.
unsafe trait Plain: 'static {
    const TYPES: &'static [Dtype];
}
macro_rules! plain {
    ($($t:ty: $($dtype:ident)*;)*) => {$(
        // SAFETY: numbers.
        unsafe impl Plain for $t {
            const TYPES: &'static [Dtype] = &[$(Dtype::$dtype),*];
        }
    )*};
}
plain! {
    u8: U8 I8 F8_E4M3 F8_E5M2;
    u32: I32 U32;
    f32: F32;
    f16: F16;
    bf16: BF16;
}

#[allow(private_bounds)] // Plain is an implementation detail.
impl<'a> Tensor<'a> {
    /// The numbers, in place; signed words and bytes as unsigned ones.
    ///
    /// # Errors
    /// A reason: they are of another type, or do not lie at a multiple of their size, or the machine is
    /// big-endian.
    pub fn numbers<T: Plain>(&self) -> Result<&'a [T], String> {
        if !T::TYPES.contains(&self.dtype) || cfg!(target_endian = "big") {
            return Err(format!("{} is of type {:?}", self.name, self.dtype));
        }
        // SAFETY: every bit pattern is a value.
        let (head, numbers, tail) = unsafe { self.data.align_to::<T>() };
        if !head.is_empty() || !tail.is_empty() {
            return Err(format!("{} is not aligned for its type", self.name));
        }
        Ok(numbers)
    }
}

/// Rows and columns of a tensor of two dimensions.
fn matrix(t: &Tensor<'_>) -> Result<[usize; 2], String> {
    <[usize; 2]>::try_from(t.shape).map_err(|_| format!("{} has {} dimensions, not 2", t.name, t.shape.len()))
}

/// A tensor that must be there with another one.
fn needed<'t>(of: &Tensor<'_>, end: &str, tensor: Option<Tensor<'t>>) -> Result<Tensor<'t>, String> {
    tensor.ok_or_else(|| format!("{} has no {end}", of.name))
}
