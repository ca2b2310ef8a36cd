//! Types of tensors that are not quantised.

use crate::gguf::GgmlType;
use crate::safetensors::{Dtype, Tensor};

/// The type, and bytes of an element.
///
/// # Errors
/// It is not one of floating point of 16 or 32 bits.
pub(super) fn dense(tensor: &Tensor<'_>) -> Result<(GgmlType, usize), String> {
    match tensor.dtype {
        Dtype::F32 => Ok((GgmlType::F32, 4)),
        Dtype::F16 => Ok((GgmlType::F16, 2)),
        Dtype::BF16 => Ok((GgmlType::BF16, 2)),
        other => Err(format!("{} is of type {other:?}", tensor.name)),
    }
}
