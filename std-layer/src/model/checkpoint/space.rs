//! What a configuration says of layers with a state space, of the hybrids of Granite 4, of Nemotron-H, Falcon-H1 and Mamba-2.

use serde_json::Value as Json;

use super::values::Source;
use crate::gguf::{Value, ValueType};
use crate::model::family::Recurrent;
use crate::model::Architecture;

/// What a layer is.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Space,
    Attention,
    Network,
    Experts,
}

const PATTERN: &str = "hybrid_override_pattern";

/// The kind of each layer: of Nemotron-H a string of letters, or, as of Granite, a list. Nothing if there is neither.
pub(super) fn kinds(json: &Json) -> Result<Vec<Kind>, String> {
    let list = ["layers_block_type", "layer_types"].into_iter().find_map(|key| Some((key, json.get(key)?)));
    let kind = |key: &str, name: &str| match name {
        "M" | "mamba" | "linear_attention" => Ok(Kind::Space),
        "*" | "attention" | "full_attention" => Ok(Kind::Attention),
        "-" | "mlp" => Ok(Kind::Network),
        "E" | "moe" => Ok(Kind::Experts),
        _ => Err(format!("{key} has {name:?}, which is not supported")),
    };
    match (json.get(PATTERN).and_then(Json::as_str), list) {
        (Some(letters), _) => letters.split_inclusive(|_| true).map(|letter| kind(PATTERN, letter)).collect(),
        (None, Some((key, Json::Array(all)))) => {
            all.iter().map(|name| kind(key, name.as_str().unwrap_or_default())).collect()
        }
        _ => Ok(Vec::new()),
    }
}

impl Source<'_> {
    /// Sizes of state spaces, and which layers are what.
    pub(super) fn state_space(&mut self, architecture: Architecture) -> Result<(), String> {
        let how = architecture.family().recurrent;
        if !matches!(how, Recurrent::StateSpace | Recurrent::Beside | Recurrent::Alone) {
            return Ok(());
        }
        self.time_steps()?;
        let granite = architecture == Architecture::GraniteHybrid;
        let keys = match architecture {
            Architecture::GraniteHybrid | Architecture::FalconH1 => {
                ["mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"]
            }
            Architecture::Mamba2 => ["num_heads", "head_dim", "n_groups", "state_size", "conv_kernel"],
            _ => ["mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"],
        };
        let needed = |key: &str| self.size(key)?.ok_or_else(|| format!("{key} is missing"));
        let heads = needed(keys[0])?;
        let dim = self.get(keys[1]).filter(|dim| *dim != "auto").map(|_| needed(keys[1])).transpose()?;
        let inner = match dim {
            Some(dim) => heads.saturating_mul(dim),
            None if architecture == Architecture::FalconH1 => needed("mamba_d_ssm")?,
            None => needed("hidden_size")?.saturating_mul(self.size("mamba_expand")?.unwrap_or(2)),
        };
        let [groups, state, taps] = [needed(keys[2])?, needed(keys[3])?, needed(keys[4])?];
        for (key, size) in [
            ("time_step_rank", heads),
            ("inner_size", inner),
            ("group_count", groups),
            ("state_size", state),
            ("conv_kernel", taps),
        ] {
            self.set(&format!("ssm.{key}"), Value::U32(size))?;
        }
        match how {
            Recurrent::Beside => return self.beside(inner),
            // Nothing says how long texts may be: as states forget, they may have any length.
            Recurrent::Alone => return self.set("context_length", Value::U32(1 << 20)),
            _ => {}
        }
        let kinds = kinds(self.json)?;
        if kinds.is_empty() {
            return Err(format!("neither {PATTERN} nor layer_types says what layers are"));
        }
        let count = kinds.len() as u32;
        if let Some(other) = self.size("num_hidden_layers")?.filter(|&layers| layers != count) {
            return Err(format!("num_hidden_layers is {other}, but {count} layers are said to be something"));
        }
        self.set("block_count", Value::U32(count))?;
        self.keys_of_layers(kinds.iter().map(|&kind| kind == Kind::Attention))?;
        if granite {
            return self.granite_hybrid(&kinds);
        }
        // Layers with a network count among the others.
        let network = match architecture {
            Architecture::NemotronHMoe => (Kind::Experts, "moe_intermediate_size"),
            _ => (Kind::Network, "intermediate_size"),
        };
        let other = [Kind::Experts, Kind::Network].into_iter().find(|&kind| kind != network.0);
        if kinds.iter().any(|&kind| Some(kind) == other) {
            return Err(
                "layers with experts and others with a network without any are not supported".to_owned()
            );
        }
        if architecture == Architecture::NemotronH {
            // The library writes sizes of experts even where there are none.
            self.set("expert_count", Value::U32(0))?;
        }
        let width = self.size(network.1)?.ok_or_else(|| format!("{} is missing", network.1))?;
        let widths = kinds.iter().map(|&kind| Value::U32(if kind == network.0 { width } else { 0 }));
        let key = format!("{}.feed_forward_length", self.prefix);
        self.writer.set_array(&key, ValueType::U32, widths).map_err(|e| e.to_string())
    }

    /// What else Falcon-H1 says of states of so many values in all.
    fn beside(&self, inner: u32) -> Result<(), String> {
        const INNER: &str = "mamba_d_ssm";
        let normed = self.flag("mamba_rms_norm")? == Some(true);
        if normed && self.flag("mamba_norm_before_gate")? != Some(false) {
            return Err("mamba_norm_before_gate is true, which is not supported".to_owned());
        }
        match self.size(INNER)?.filter(|&size| size != inner) {
            Some(size) => Err(format!("{INNER} is {size}, but all heads have {inner} elements")),
            None => Ok(()),
        }
    }

    /// Positions, and the network that all tokens go through.
    fn granite_hybrid(&mut self, kinds: &[Kind]) -> Result<(), String> {
        const POSITIONS: &str = "position_embedding_type";
        if kinds.iter().any(|kind| [Kind::Network, Kind::Experts].contains(kind)) {
            return Err("layer_types has networks among the layers, which is not supported".to_owned());
        }
        let rotated = match self.get(POSITIONS).map(|of| (of.as_str(), of)) {
            None | Some((Some("nope"), _)) => false,
            Some((Some("rope"), _)) => true,
            Some((_, other)) => {
                return Err(format!("{POSITIONS} is {other}: only rope and nope are supported"))
            }
        };
        self.set("rope.scaling.finetuned", Value::Bool(rotated))?;
        let Some(width) = self.size("shared_intermediate_size")? else { return Ok(()) };
        match self.size("num_local_experts")?.unwrap_or(0) {
            0 => self.set("feed_forward_length", Value::U32(width)),
            _ => self.set("expert_shared_feed_forward_length", Value::U32(width)),
        }
    }

    /// Bounds of time steps, of which only those are supported that bound nothing. What is no finite number is written in several ways.
    fn time_steps(&self) -> Result<(), String> {
        const LIMIT: &str = "time_step_limit";
        match self.get(LIMIT) {
            None => Ok(()),
            Some(Json::Array(limit)) if limit.len() == 2 && limit[0] == 0.0 && !limit[1].is_number() => {
                Ok(())
            }
            Some(limit) => Err(format!("{LIMIT} is {limit}: only 0 and infinity are supported")),
        }
    }
}
