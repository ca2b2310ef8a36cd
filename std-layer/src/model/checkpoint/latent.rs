//! What a configuration says of latent attention.

use serde_json::Value as Json;

use super::layout::Layout;
use super::values::Source;
use crate::gguf::Value;
use crate::model::Architecture;

impl Source<'_> {
    /// Sizes of heads, if the architecture has latent attention.
    pub(super) fn latent(&mut self, architecture: Architecture) -> Result<Layout, String> {
        if !architecture.family().latent {
            return Ok(Layout::Usual);
        }
        let needed = |key: &str| match (self.size(key)?, architecture, key) {
            (Some(size), ..) => Ok(size),
            // As long as heads would be if they were a part of the model's width.
            (None, Architecture::MiniCpm3, "v_head_dim") => {
                let heads = self.size("num_attention_heads")?.unwrap_or(0);
                let width = self.size("hidden_size")?.and_then(|width| width.checked_div(heads));
                width.ok_or_else(|| format!("{key} is missing"))
            }
            _ => Err(format!("{key} is missing")),
        };
        let [heads, plain, rotated, values, rank] =
            ["num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"]
                .map(needed);
        let [heads, plain, rotated, values, rank] = [heads?, plain?, rotated?, values?, rank?];
        let sum = |a: u32, b: u32| a.checked_add(b).ok_or_else(|| format!("heads of {a} + {b} elements"));
        // Of Mistral, the part is that of a whole query.
        let query = sum(plain, rotated)?;
        let parameters = self.get("rope_parameters").or_else(|| self.get("rope_scaling"));
        let part = self.partial_rotation(parameters.unwrap_or(&Json::Null))?;
        if let Some(part) = part.filter(|&part| part != 1.0) {
            if (part * f64::from(query)).round() != f64::from(rotated) {
                return Err(format!(
                    "partial_rotary_factor is {part}: {rotated} elements of {query} are rotated"
                ));
            }
        }
        if let Some(query_rank) = self.size("q_lora_rank")? {
            self.set("attention.q_lora_rank", Value::U32(query_rank))?;
        }
        for (key, size) in [
            ("attention.kv_lora_rank", rank),
            ("attention.key_length_mla", query),
            ("attention.value_length_mla", values),
            ("attention.key_length", sum(rank, rotated)?),
            ("attention.value_length", rank),
            ("attention.head_count_kv", 1),
            ("rope.dimension_count", rotated),
        ] {
            self.set(key, Value::U32(size))?;
        }
        let [heads, plain, values] = [heads, plain, values].map(|n| n as usize);
        Ok(Layout::Latent { heads, plain, values })
    }

    /// YaRN's factor of angles, and its multiple of the logarithm in scores, which metadata have in one key.
    pub(super) fn latent_yarn(&mut self, of_angles: f64, multiple: Option<f64>) -> Result<(), String> {
        match multiple.filter(|_| (of_angles - 1.0).abs() < 1e-6) {
            Some(multiple) => {
                self.set("rope.scaling.yarn_log_multiplier", Value::F32((0.1 * multiple) as f32))
            }
            None => Err(format!(
                "mscale and mscale_all_dim give angles the factor {of_angles}: only equal ones, above 0, are supported with latent attention"
            )),
        }
    }
}
