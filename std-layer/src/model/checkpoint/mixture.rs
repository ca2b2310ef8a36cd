//! What a configuration says of experts.

use serde_json::Value as Json;

use super::values::Source;
use crate::gguf::Value;
use crate::model::family::Mixture;
use crate::model::Architecture;

impl Source<'_> {
    /// How wide an expert is, and whether scores are normalised: what the library assumes where nothing is said is not what GGUF files mean.
    pub(super) fn experts(&mut self, architecture: Architecture) -> Result<(), String> {
        const NORMALISED: &str = "norm_topk_prob";
        let kind = &architecture.family().experts;
        // Youtu has DeepSeek's attention alone.
        if architecture.family().latent && self.get("n_routed_experts").is_none() {
            let layers = self.size("num_hidden_layers")?.unwrap_or(0);
            return self.set("leading_dense_block_count", Value::U32(layers));
        }
        let width = match kind {
            Mixture::No | Mixture::Some | Mixture::Normed => return Ok(()),
            _ if architecture == Architecture::MiniMaxM2 => "intermediate_size",
            Mixture::Always | Mixture::Shared | Mixture::DeepSeek(_) => "moe_intermediate_size",
            Mixture::Wide | Mixture::Biased | Mixture::Scaling => "intermediate_size",
        };
        if architecture == Architecture::PhiMoe {
            // How near a product must be to the largest one, in which two experts are taken.
            for (key, usual) in [("router_jitter_noise", 0.01), ("num_experts_per_tok", 2.0)] {
                if let Some(other) = Self::number(self.json, key)?.filter(|&other| other != usual) {
                    return Err(format!("{key} is {other}: only {usual} is supported with phimoe"));
                }
            }
        }
        let size = self.size(width)?.ok_or_else(|| format!("{width} is missing"))?;
        self.set("expert_feed_forward_length", Value::U32(size))?;
        if matches!(kind, Mixture::Biased | Mixture::Scaling) {
            return Ok(());
        }
        if architecture == Architecture::Ernie45Moe {
            return self.experts_of_ernie(size);
        }
        let deepseek = matches!(kind, Mixture::DeepSeek(_));
        if deepseek {
            self.scoring()?;
        }
        let normalised = match self.flag(NORMALISED)? {
            // What the library assumes, or does with all models.
            None => match architecture {
                Architecture::Qwen3Next | Architecture::Qwen35Moe | Architecture::Qwen3VlMoe => true,
                Architecture::MiniMaxM2 | Architecture::HunyuanMoe | Architecture::GraniteMoe => true,
                Architecture::Afmoe => true,
                _ if deepseek => return Err(format!("{NORMALISED} is missing")),
                _ => false,
            },
            Some(normalised) => normalised,
        };
        self.set("expert_weights_norm", Value::Bool(normalised))?;
        self.shared(architecture, size)
    }

    /// How wide the network beside experts is, where these are `width` wide.
    fn shared(&mut self, architecture: Architecture, width: u32) -> Result<(), String> {
        const WIDTH: &str = "shared_intermediate_size";
        const EACH: &str = "moe_intermediate_size";
        let size = match (architecture, self.size(WIDTH)?) {
            (Architecture::HunyuanMoe, _) => {
                if let Some(each) = self.size(EACH)?.filter(|&each| each != width) {
                    return Err(format!(
                        "{EACH} is {each}: only that of intermediate_size, {width}, is supported"
                    ));
                }
                let count = match self.get("use_mixed_mlp_moe") {
                    Some(Json::Bool(false)) => 0,
                    _ => self.size("num_shared_expert")?.unwrap_or(1),
                };
                width.saturating_mul(count)
            }
            (Architecture::GraniteMoe | Architecture::GraniteHybrid, Some(size)) => size,
            (_, Some(size)) if size > 0 => {
                return Err(format!("{WIDTH} is {size}, which is not supported with {}", self.prefix))
            }
            _ => return Ok(()),
        };
        self.set("expert_shared_feed_forward_length", Value::U32(size))
    }

    /// How experts of DeepSeek's kind are scored and chosen, and in which layers they are.
    fn scoring(&mut self) -> Result<(), String> {
        const SCORES: &str = "scoring_func";
        const METHOD: &str = "topk_method";
        const LAYERS: &str = "mlp_layer_types";
        match self.get(SCORES).map(|of| (of.as_str(), of)) {
            None => {}
            Some((Some("softmax"), _)) => self.set("expert_gating_func", Value::U32(1))?,
            Some((Some("sigmoid"), _)) => self.set("expert_gating_func", Value::U32(2))?,
            Some((_, of)) => return Err(format!("{SCORES} is {of}: only softmax and sigmoid are supported")),
        }
        // Of MiniMax, 1 is attention, and 0 linear attention.
        let kinds = self.get("attn_type_list").and_then(Json::as_array);
        if let Some(kind) = kinds.and_then(|all| all.iter().find(|kind| **kind != 1)) {
            return Err(format!("attn_type_list has {kind}: only 1 is supported"));
        }
        let v2 = self.json.get("model_type").and_then(Json::as_str) == Some("deepseek_v2");
        if v2 && self.get("norm_topk_prob") == Some(&Json::Bool(true)) {
            return Err("norm_topk_prob is true: only false is supported with deepseek_v2".to_owned());
        }
        let usual = Json::String(if v2 { "greedy" } else { "noaux_tc" }.to_owned());
        let method = self.get(METHOD).unwrap_or(&usual);
        match method.as_str() {
            Some("noaux_tc") => {}
            // Groups do not count.
            Some("greedy") => self.set("expert_group_count", Value::U32(1))?,
            // The best expert of a group counts alone.
            Some("group_limited_greedy") => self.set("expert_group_counted", Value::U32(1))?,
            _ => {
                return Err(format!(
                    "{METHOD} is {method}: only greedy, group_limited_greedy and noaux_tc are supported"
                ))
            }
        }
        let Some(kinds) = self.get(LAYERS).and_then(Json::as_array) else { return Ok(()) };
        let dense = kinds.iter().take_while(|kind| kind.as_str() == Some("dense")).count();
        match kinds[dense..].iter().find(|kind| kind.as_str() != Some("sparse")) {
            Some(kind) => Err(format!("{LAYERS} has {kind} behind sparse, which is not supported")),
            None => self.set("leading_dense_block_count", Value::U32(dense as u32)),
        }
    }

    /// What is not a key of its own in GGUF files, or has no place there, where experts are `width` wide.
    fn experts_of_ernie(&mut self, width: u32) -> Result<(), String> {
        const SHARED: &str = "moe_num_shared_experts";
        const END: &str = "moe_layer_end_index";
        let all = self.size(SHARED)?.unwrap_or(0).checked_mul(width);
        let all =
            all.ok_or_else(|| format!("{SHARED} times the {width} elements of an expert is 2^32 or more"))?;
        self.set("expert_shared_feed_forward_length", Value::U32(all))?;
        if let Some(step) = self.size("moe_layer_interval")? {
            self.set("interleave_moe_layer_step", Value::U32(step))?;
        }
        let last = self.size("num_hidden_layers")?.map_or(-1, |layers| i64::from(layers) - 1);
        match self.get(END) {
            Some(end) if ![Some(-1), Some(last)].contains(&end.as_i64()) => Err(format!(
                "{END} is {end}: layers without experts behind those with them are not supported"
            )),
            _ => Ok(()),
        }
    }
}
