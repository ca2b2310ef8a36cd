//! What a configuration says of Gemma 4, whose layers without windows have other heads than those with one.

use serde_json::Value as Json;

use super::values::{check_head_dim, Divisors, Source};
use crate::gguf::{Value, ValueType};
use crate::model::{names, Architecture};

/// Divides a frequency so far that nothing turns.
const STILL: f32 = 1e30;

impl Source<'_> {
    /// Heads, widths of networks, experts and embeddings of single layers. What is not said is what the library assumes.
    pub(super) fn gemma4(&mut self, architecture: Architecture) -> Result<(), String> {
        if architecture != Architecture::Gemma4 {
            return Ok(());
        }
        let needed = |key: &str| self.size(key)?.ok_or_else(|| format!("{key} is missing"));
        let [layers, heads, dim, width] =
            ["num_hidden_layers", "num_key_value_heads", "head_dim", "intermediate_size"].map(needed);
        let [layers, heads, dim, width] = [layers?, heads?, dim?, width?];
        let windows = self.windows(layers)?;
        let (all_dim, all_heads) = self.global_heads(&windows, heads)?;
        for (key, size) in [("key", all_dim), ("value", all_dim)] {
            self.set(&format!("attention.{key}_length"), Value::U32(size))?;
            self.set(&format!("attention.{key}_length_swa"), Value::U32(dim))?;
        }
        let each = windows.iter().map(|&window| if window { heads } else { all_heads });
        self.for_each_layer("attention.head_count_kv", each)?;
        let shared = self.size("num_kv_shared_layers")?.unwrap_or(0);
        self.set("attention.shared_kv_layers", Value::U32(shared))?;
        if self.get("use_double_wide_mlp") == Some(&Json::Bool(true)) {
            let wide = |layer: u32| if layer < layers.saturating_sub(shared) { 1 } else { 2 };
            let count = windows.len() as u32;
            self.for_each_layer("feed_forward_length", (0..count).map(|l| width.saturating_mul(wide(l))))?;
        }
        // Nothing said means that there are some.
        let elements = self.size("hidden_size_per_layer_input")?.unwrap_or(256);
        self.set("embedding_length_per_layer_input", Value::U32(elements))?;
        if self.get("enable_moe_block") != Some(&Json::Bool(true)) {
            return self.set("expert_count", Value::U32(0));
        }
        for (key, to) in
            [("top_k_experts", "expert_used_count"), ("moe_intermediate_size", "expert_feed_forward_length")]
        {
            let size = self.size(key)?.ok_or_else(|| format!("{key} is missing"))?;
            self.set(to, Value::U32(size))?;
        }
        Ok(())
    }

    /// Which layers have a window.
    fn windows(&self, layers: u32) -> Result<Vec<bool>, String> {
        let Some(windows) = self.layers_of_kind(["sliding_attention", "full_attention"])? else {
            // As many as any model has; what is wrong with their number is found where metadata are read.
            return Ok((1..=layers.min(1 << 16)).map(|layer| layer % 6 != 0).collect());
        };
        match windows.last() {
            Some(true) => {
                Err("layer_types must end with full_attention: others are not supported".to_owned())
            }
            _ => Ok(windows),
        }
    }

    /// Elements of a head, and heads of keys, of layers without a window, where others have so many heads.
    fn global_heads(&self, windows: &[bool], heads: u32) -> Result<(u32, u32), String> {
        const EACH: &str = "per_layer_config";
        let Some(each) = self.get(EACH) else {
            let dim = self.size("global_head_dim")?.unwrap_or(512);
            let own = self.size("num_global_key_value_heads")?;
            let fewer = own.filter(|_| self.get("attention_k_eq_v") == Some(&Json::Bool(true)));
            return Ok((dim, fewer.unwrap_or(heads)));
        };
        let wrong =
            || format!("{EACH} is not the same of all layers without a window, and nothing of others");
        let each = each.as_object().ok_or_else(wrong)?;
        let full = || windows.iter().enumerate().filter(|(_, window)| !**window).map(|(layer, _)| layer);
        let mut of_layers = full().map(|layer| each.get(&layer.to_string()));
        let first = of_layers.next().flatten().ok_or_else(wrong)?;
        if each.len() != full().count() || of_layers.any(|other| other != Some(first)) {
            return Err(wrong());
        }
        let keys = ["head_dim", "num_key_value_heads"];
        if let Some(key) = first.as_object().and_then(|of| of.keys().find(|key| !keys.contains(&&***key))) {
            return Err(format!("{EACH} has {key}, which is not supported"));
        }
        let size = |key: &str| {
            let read = |value: &Json| value.as_u64().and_then(|n| u32::try_from(n).ok());
            let found = first.get(key).map(|value| read(value).ok_or(value)).transpose();
            found.map_err(|value| format!("{key} of {EACH} is {value}: it must be a whole number below 2^32"))
        };
        let dim = size(keys[0])?.ok_or_else(|| format!("{EACH} has no {}", keys[0]))?;
        Ok((dim, size(keys[1])?.unwrap_or(heads)))
    }

    /// A size of each layer.
    pub(super) fn for_each_layer(
        &mut self,
        key: &str,
        sizes: impl Iterator<Item = u32>,
    ) -> Result<(), String> {
        let key = format!("{}.{key}", self.prefix);
        self.writer.set_array(&key, ValueType::U32, sizes.map(Value::U32)).map_err(|e| e.to_string())
    }

    /// Divisors of frequencies of layers without a window, of which the first part turns. `parameters` are theirs.
    pub(super) fn proportional(&self, parameters: &Json) -> Result<Divisors, String> {
        let layers = self.size("num_hidden_layers")?.unwrap_or(0);
        let (dim, _) = self.global_heads(&self.windows(layers)?, 1)?;
        let dim = check_head_dim(dim)?;
        let part = self.partial_rotation(parameters)?.unwrap_or(1.0);
        let factor = Self::number(parameters, "factor")?.unwrap_or(1.0);
        if !(part > 0.0 && part <= 1.0 && factor > 0.0 && (factor as f32).is_normal()) {
            return Err(format!(
                "partial_rotary_factor is {part}, and factor {factor}: they must be above 0, the first at most 1"
            ));
        }
        let turning = (part * f64::from(dim) / 2.0).floor() as u32;
        let divisor = |i: u32| if i < turning { factor as f32 } else { STILL };
        Ok(vec![(names::ROPE_FACTORS.gguf, (0..dim / 2).map(divisor).collect())])
    }
}
