//! Reading how a model is quantised from its configuration.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// Bytes of a configuration that are read at most.
const MOST: u64 = 16 << 20;

/// Properties of a checkpoint's quantisation that shapes do not tell. All of them may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantisation {
    /// `quant_method`: "awq", "gptq", "fp8", "squeezellm", "compressed-tensors" ..
    pub method: Option<String>,
    /// `bits` (AutoAWQ's `w_bit`).
    pub bits: Option<u32>,
    /// `group_size` (`q_group_size`; of compressed-tensors that of all `config_groups`); 0 if there is one group of all inputs.
    pub group: Option<usize>,
    /// Whether GPTQ's zero points are stored as they are (`checkpoint_format` "gptq_v2").
    pub gptq_v2: bool,
    /// `weight_block_size`: outputs and inputs of a tile.
    pub tile: Option<[usize; 2]>,
}

impl Quantisation {
    /// Reads the configuration beside a file. What is not there, or not understood, stays unknown.
    pub fn beside(file: &Path) -> Self {
        let folder = file.parent().unwrap_or(Path::new(""));
        let read = |name: &str| {
            let mut text = String::new();
            File::open(folder.join(name)).ok()?.take(MOST).read_to_string(&mut text).ok()?;
            Self::from_json(&text)
        };
        ["config.json", "quantize_config.json", "quant_config.json"]
            .into_iter()
            .find_map(read)
            .unwrap_or_default()
    }

    /// What a configuration in JSON says: in its `quantization_config`, if it has one, else itself. `None` if
    /// it says nothing.
    pub fn from_json(text: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(text).ok()?;
        let part = all.get("quantization_config").or_else(|| all.get("compression_config")).unwrap_or(&all);
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| part.get(name)?.as_i64());
        let size = |v: &Value| usize::try_from(v.as_u64()?).ok();
        let of_all = || {
            let groups = part.get("config_groups")?.as_object()?.values();
            let mut sizes = groups.map(|group| group.get("weights")?.get("group_size")?.as_i64());
            let first = sizes.next()??;
            sizes.all(|other| other == Some(first)).then_some(first)
        };
        let tile = part.get("weight_block_size").and_then(Value::as_array);
        let found = Self {
            method: part.get("quant_method").and_then(Value::as_str).map(str::to_lowercase),
            bits: first(["bits", "w_bit"]).and_then(|b| u32::try_from(b).ok()),
            group: first(["group_size", "q_group_size"])
                .or_else(of_all)
                .map(|g| usize::try_from(g).unwrap_or(0)),
            gptq_v2: part.get("checkpoint_format").and_then(Value::as_str) == Some("gptq_v2"),
            tile: tile.and_then(|t| Some([size(t.first()?)?, size(t.get(1)?)?])),
        };
        (found != Self::default()).then_some(found)
    }
}
