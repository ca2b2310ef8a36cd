//! Tensors of an open file.

use std::fmt;

use gllm_kernels_core::{Element, ElementType, KernelError, QuantFormat, QuantRef};

use super::parse::TensorInfo;
use super::types::GgmlType;

/// A tensor in an open file.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    info: &'a TensorInfo,
    data: Option<&'a [u8]>,
}

impl<'a> Tensor<'a> {
    pub(super) fn new(info: &'a TensorInfo, data: Option<&'a [u8]>) -> Self {
        Self { info, data }
    }

    /// The name.
    pub fn name(&self) -> &'a str {
        &self.info.name
    }

    /// The dimensions, the one that is contiguous in memory first; at most [`MAX_DIMS`](super::MAX_DIMS).
    pub fn dims(&self) -> &'a [u64] {
        &self.info.dims[..self.info.n_dims]
    }

    /// Elements a row: the first dimension, 1 for a scalar.
    pub fn cols(&self) -> u64 {
        self.info.dims[0]
    }

    /// Number of rows: the product of all other dimensions, if it fits.
    pub fn rows(&self) -> Option<u64> {
        self.info.dims[1..].iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.info.elements
    }

    /// The type.
    pub fn ggml_type(&self) -> GgmlType {
        self.info.of
    }

    /// Byte offset of the data in the file.
    pub fn file_offset(&self) -> u64 {
        self.info.start as u64
    }

    /// Bytes of data; `None` if the type is unknown.
    pub fn size(&self) -> Option<u64> {
        self.info.size.map(|s| s as u64)
    }

    /// The data; `None` if the type is unknown.
    pub fn data(&self) -> Option<&'a [u8]> {
        self.data
    }

    /// The storage type, if it is one that kernels compute with.
    pub fn element_type(&self) -> Option<ElementType> {
        match self.info.of {
            GgmlType::F32 => Some(ElementType::F32),
            GgmlType::F16 => Some(ElementType::F16),
            GgmlType::BF16 => Some(ElementType::Bf16),
            _ => None,
        }
    }

    /// The data as numbers of type `E`, in place: `None` unless the tensor has that type, the data is
    /// aligned for it in memory, and the machine is little-endian.
    pub fn as_slice<E: Element>(&self) -> Option<&'a [E]> {
        if self.element_type()? != E::TYPE || cfg!(target_endian = "big") {
            return None;
        }
        // SAFETY: every bit pattern is a value of a storage type.
        let (head, numbers, tail) = unsafe { self.data()?.align_to::<E>() };
        (head.is_empty() && tail.is_empty()).then_some(numbers)
    }

    /// The data as weights for kernels: all dimensions but the first are rows. F16 and BF16 are formats, too, at any
    /// address.
    ///
    /// # Errors
    /// `UnknownFormat` if core has no kernels for the type, `SizeOverflow` if a dimension does not fit
    /// this machine's words.
    pub fn as_quant_ref(&self) -> Result<QuantRef<'a>, KernelError> {
        let format = QuantFormat::from_gguf(self.info.of.0)?;
        let data = self.data().ok_or(KernelError::UnknownFormat(self.info.of.0))?;
        let size = |n: Option<u64>| {
            let n = n.and_then(|n| usize::try_from(n).ok());
            n.ok_or(KernelError::SizeOverflow { what: "tensor dimensions" })
        };
        QuantRef::new(data, format, size(self.rows())?, size(Some(self.cols()))?)
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?}, {}, {:?})", self.name(), self.ggml_type(), self.dims())
    }
}
