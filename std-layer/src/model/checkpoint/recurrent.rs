//! What a configuration says of layers that have something else than attention, and of how their matrices are stored.

use serde_json::Value as Json;

use super::layout::Layout;
use super::values::Source;
use crate::gguf::{Value, ValueType};
use crate::model::family::Recurrent;
use crate::model::Architecture;

impl Source<'_> {
    /// Which matrices are stored in another order than in GGUF files.
    pub(super) fn layout(&mut self, architecture: Architecture) -> Result<Layout, String> {
        let size = |key: &str| Ok::<_, String>(self.size(key)?.unwrap_or(0) as usize);
        Ok(match architecture {
            // The first Falcon has one head of keys, behind those of queries.
            Architecture::Falcon if !self.has_groups()? => Layout::Usual,
            Architecture::InternLm2 | Architecture::GptNeoX | Architecture::Falcon => {
                let heads = self.size("num_attention_heads")?.unwrap_or(0);
                let groups = match architecture {
                    Architecture::GptNeoX => heads,
                    _ => self.size("num_key_value_heads")?.unwrap_or(heads),
                };
                let queries = heads.checked_div(groups).unwrap_or(0) as usize;
                Layout::Groups { heads: groups as usize, queries, size: self.head_dim()? as usize }
            }
            Architecture::Bert => match self.skipped_positions()? {
                0 => Layout::Usual,
                skipped => Layout::Positions { skipped: skipped as usize },
            },
            Architecture::Gpt2 => Layout::Transposed,
            Architecture::GraniteMoe => Layout::SharedHalves,
            Architecture::GraniteHybrid => Layout::StateSpace { groups: size("mamba_n_groups")? },
            Architecture::NemotronH | Architecture::NemotronHMoe => {
                Layout::StateSpace { groups: size("n_groups")? }
            }
            Architecture::Qwen3VlMoe => Layout::Experts { hidden: size("hidden_size")? },
            Architecture::Qwen3Next => {
                let (key_heads, heads) = (size("linear_num_key_heads")?, size("linear_num_value_heads")?);
                let each = heads.checked_div(key_heads).unwrap_or(0);
                let value_size = each.saturating_mul(size("linear_value_head_dim")?);
                Layout::Linear { key_heads, key_size: size("linear_key_head_dim")?, value_size }
            }
            _ => self.latent(architecture)?,
        })
    }

    /// Whether heads of keys of Falcon stand with those of queries that they serve.
    pub(super) fn has_groups(&self) -> Result<bool, String> {
        let first = self.get("model_type").is_some_and(|kind| kind == "RefinedWeb");
        Ok(self.flag("new_decoder_architecture")?.unwrap_or(first))
    }

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
