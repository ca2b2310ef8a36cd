//! Numbers of activations, which are tensors of each layer, and lists among the metadata of GGUF files.

use std::collections::BTreeMap;

use gllm_kernels_core::{bf16, f16};

use super::text;
use crate::gguf::{Value, ValueType, Writer};
use crate::model::{Architecture, Gate};
use crate::safetensors::{Dtype, Tensor, View, Weight};

/// The numbers of a layer, by the ends of their names in both.
const NUMBERS: [&str; 4] = ["alpha_p", "alpha_n", "beta", "eps"];

/// The numbers of all layers, if activations have any.
pub(super) struct Activations {
    expected: bool,
    found: BTreeMap<(&'static str, u32), f32>,
}

impl Activations {
    pub(super) fn of(architecture: Architecture) -> Self {
        Self { expected: architecture.family().gate == Gate::Xielu, found: BTreeMap::new() }
    }

    /// Takes a weight, if it is a number of an activation.
    ///
    /// # Errors
    /// It is more than one number, or none.
    pub(super) fn take(&mut self, name: &str, weight: &Weight<'_>) -> Result<bool, String> {
        let end = name.split_once(".mlp.act_fn.").map(|(_, end)| end).filter(|_| self.expected);
        let number = end.and_then(|end| NUMBERS.into_iter().find(|number| *number == end));
        let (Some(number), Some(layer), Ok(View::Plain(tensor))) = (number, text::layer(name), &weight.view)
        else {
            return Ok(false);
        };
        self.found.insert((number, layer), one(tensor)?);
        Ok(true)
    }

    /// Sets the lists.
    ///
    /// # Errors
    /// A layer has no such number, and one behind it does.
    pub(super) fn set(&self, writer: &mut Writer) -> Result<(), String> {
        for number in NUMBERS {
            let all = || self.found.range((number, 0)..=(number, u32::MAX));
            let missing = all().zip(0..).find(|((&(_, layer), _), expected)| layer != *expected);
            if let Some((_, layer)) = missing {
                return Err(format!("layer {layer} has no mlp.act_fn.{number}, and one behind it does"));
            }
            if all().next().is_some() {
                let values = all().map(|(_, &x)| Value::F32(x)).collect::<Vec<_>>().into_iter();
                let key = format!("xielu.{number}");
                writer.set_array(&key, ValueType::F32, values).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}

/// The number that a tensor consists of.
fn one(tensor: &Tensor<'_>) -> Result<f32, String> {
    let number = match (tensor.dtype, tensor.data) {
        (Dtype::F32, &[a, b, c, d]) => Some(f32::from_le_bytes([a, b, c, d])),
        (Dtype::F16, &[a, b]) => Some(f16::from_le_bytes([a, b]).to_f32()),
        (Dtype::BF16, &[a, b]) => Some(bf16::from_le_bytes([a, b]).to_f32()),
        _ => None,
    };
    let (name, dtype, bytes) = (&tensor.name, tensor.dtype, tensor.data.len());
    number.ok_or_else(|| format!("{name} has {bytes} bytes of type {dtype:?}: it must be one number"))
}
