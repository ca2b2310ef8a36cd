//! What a configuration says of layers that have something else than attention.

use serde_json::Value as Json;

use super::values::Source;
use crate::gguf::{Value, ValueType};
use crate::model::family::Recurrent;
use crate::model::Architecture;

impl Source<'_> {
    /// Linear attention: what has no key of the same meaning in GGUF files.
    pub(super) fn linear_attention(&mut self, architecture: Architecture) -> Result<(), String> {
        if !matches!(architecture.family().recurrent, Recurrent::Grouped { .. } | Recurrent::Tiled { .. }) {
            return Ok(());
        }
        let [heads, size] = ["linear_num_value_heads", "linear_value_head_dim"].map(|key| self.size(key));
        if let (Some(heads), Some(size)) = (heads?, size?) {
            self.set("ssm.inner_size", Value::U32(heads.saturating_mul(size)))?;
        }
        let Some(linear) = self.layers_of_kind(["linear_attention", "full_attention"])? else {
            return Ok(());
        };
        let key = format!("{}.attention.recurrent_layers", self.prefix);
        let linear = linear.into_iter().map(Value::Bool);
        self.writer.set_array(&key, ValueType::Bool, linear).map_err(|e| e.to_string())
    }

    /// Short convolutions: which layers have attention, and how wide networks are.
    pub(super) fn convolution(&mut self, architecture: Architecture, layers: u32) -> Result<(), String> {
        if !matches!(architecture.family().recurrent, Recurrent::Convolution) {
            return Ok(());
        }
        let convolves = self.layers_of_kind(["conv", "full_attention"])?;
        let attends: Vec<bool> = match (convolves, self.get("full_attn_idxs")) {
            (Some(convolves), _) => convolves.into_iter().map(|convolves| !convolves).collect(),
            (_, Some(Json::Array(all))) => {
                (0..layers.min(1 << 16)).map(|layer| all.contains(&Json::from(layer))).collect()
            }
            _ => return Err("neither layer_types nor full_attn_idxs is a list".to_owned()),
        };
        self.keys_of_layers(attends.into_iter())?;
        let Some(width) = self.size("block_ff_dim")?.or(self.size("intermediate_size")?) else {
            return Ok(());
        };
        // What the library assumes.
        let adjusts = match self.get("block_auto_adjust_ff_dim") {
            None => architecture == Architecture::Lfm2,
            adjusts => adjusts != Some(&Json::Bool(false)),
        };
        let width = match adjusts {
            false => width,
            true => {
                let factor = Self::number(self.json, "block_ffn_dim_multiplier")?.unwrap_or(1.0);
                let multiple = self.size("block_multiple_of")?.unwrap_or(256).max(1);
                let width = (u64::from(width) * 2 / 3) as f64 * factor;
                (width as u32).div_ceil(multiple).saturating_mul(multiple)
            }
        };
        self.set("feed_forward_length", Value::U32(width))
    }

    /// The heads of keys of each layer: none, unless it has attention.
    pub(super) fn keys_of_layers(&mut self, attends: impl Iterator<Item = bool>) -> Result<(), String> {
        const HEADS: &str = "num_key_value_heads";
        let heads = self.size(HEADS)?.ok_or_else(|| format!("{HEADS} is missing"))?;
        let heads = attends.map(|attends| Value::U32(if attends { heads } else { 0 }));
        let key = format!("{}.attention.head_count_kv", self.prefix);
        self.writer.set_array(&key, ValueType::U32, heads).map_err(|e| e.to_string())
    }
}
