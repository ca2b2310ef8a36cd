//! What a configuration says of models whose layers differ: DeciLM and Nemotron 51B, Super and Ultra.

use serde_json::Value as Json;

use super::values::Source;
use crate::gguf::{Value, ValueType};
use crate::model::Architecture;

/// Of each layer heads of keys, which are 0 without attention, and the width of its network, which is 0 without one.
type Sizes = [u32; 2];

impl Source<'_> {
    /// Heads and widths of each layer.
    pub(super) fn uneven(&mut self, architecture: Architecture) -> Result<(), String> {
        const KEYS: &str = "num_key_value_heads_per_layer";
        if architecture != Architecture::Deci {
            return Ok(());
        }
        let heads = self.size("num_attention_heads")?.ok_or("num_attention_heads is missing")?;
        let Some(blocks) = self.get("block_configs") else {
            // The first DeciLM, whose networks are alike.
            let Some(keys) = self.get(KEYS) else { return Ok(()) };
            let wrong = || format!("{KEYS} is {keys}: it must be a list of whole numbers");
            let number = |n: &Json| n.as_u64().and_then(|n| u32::try_from(n).ok());
            let keys: Option<Vec<u32>> = keys.as_array().ok_or_else(wrong)?.iter().map(number).collect();
            let keys = keys.ok_or_else(wrong)?;
            return self.each("attention.head_count_kv", keys.into_iter());
        };
        let hidden = self.size("hidden_size")?.unwrap_or(0);
        let blocks = blocks.as_array().ok_or("block_configs is no list")?;
        let sizes = |(layer, block)| {
            of_block(block, heads, hidden).map_err(|e| format!("block_configs of layer {layer}: {e}"))
        };
        let sizes = blocks.iter().enumerate().map(sizes).collect::<Result<Vec<Sizes>, _>>()?;
        if let Some(layers) = self.size("num_hidden_layers")?.filter(|&layers| layers as usize != sizes.len())
        {
            return Err(format!(
                "num_hidden_layers is {layers}, but block_configs has {} layers",
                sizes.len()
            ));
        }
        self.each("attention.head_count", sizes.iter().map(|&[keys, _]| if keys > 0 { heads } else { 0 }))?;
        self.each("attention.head_count_kv", sizes.iter().map(|&[keys, _]| keys))?;
        self.each("feed_forward_length", sizes.iter().map(|&[_, width]| width))
    }

    /// A number for each layer.
    fn each(&mut self, key: &str, numbers: impl Iterator<Item = u32>) -> Result<(), String> {
        let key = format!("{}.{key}", self.prefix);
        self.writer.set_array(&key, ValueType::U32, numbers.map(Value::U32)).map_err(|e| e.to_string())
    }
}

/// What a layer has, of so many heads of queries and such a width of the model.
fn of_block(block: &Json, heads: u32, hidden: u32) -> Result<Sizes, String> {
    let part = |key: &str| block.get(key).filter(|part| part.is_object()).ok_or(format!("{key} is missing"));
    let (attention, network) = (part("attention")?, part("ffn")?);
    known(block, "a layer", &["attention", "ffn"])?;
    known(
        attention,
        "attention",
        &["n_heads_in_group", "num_key_value_heads", "no_op", "use_prefill_window_in_sink_attention"],
    )?;
    known(network, "ffn", &["ffn_mult", "intermediate_size", "no_op", "hidden_act", "gated"])?;
    if let Some(gated) = network.get("gated").filter(|gated| !gated.is_null() && **gated != Json::Bool(true))
    {
        return Err(format!("gated of ffn is {gated}: only true is supported"));
    }
    if let Some(other) = network.get("hidden_act").filter(|of| !of.is_null() && *of != "silu") {
        return Err(format!("hidden_act of ffn is {other}: only silu is supported"));
    }
    let absent = |part: &Json| part.get("no_op") == Some(&Json::Bool(true));
    let number = |part: &Json, key: &str| {
        let wrong = |value: &Json| format!("{key} is {value}: it must be a whole number from 1 to 2^31");
        let read =
            |value: &Json| value.as_u64().filter(|n| (1..1 << 31).contains(n)).ok_or_else(|| wrong(value));
        part.get(key).filter(|value| !value.is_null()).map(read).transpose()
    };
    let keys = match (absent(attention), number(attention, "n_heads_in_group")?) {
        (true, _) => 0,
        (false, Some(group)) if !u64::from(heads).is_multiple_of(group) => {
            return Err(format!("n_heads_in_group is {group}: it must be a divisor of the {heads} heads"));
        }
        (false, Some(group)) => u64::from(heads) / group,
        (false, None) => number(attention, "num_key_value_heads")?
            .ok_or("neither n_heads_in_group nor no_op says what attention is")?,
    };
    let width = match (absent(network), number(network, "intermediate_size")?) {
        (true, _) => 0,
        (false, Some(width)) => width,
        (false, None) => {
            let factor = Source::positive(network, "ffn_mult")?;
            // As the models' own code rounds it.
            let width = (2.0 * factor * f64::from(hidden) / 3.0) as u64;
            width
                .checked_next_multiple_of(256)
                .filter(|&width| width < 1 << 31)
                .ok_or_else(|| format!("ffn_mult is {factor}: a network of {width} elements is too large"))?
        }
    };
    Ok([keys, width].map(|n| n as u32))
}

/// Refuses what a part has beside these keys, unless it says that there is nothing.
fn known(part: &Json, what: &str, keys: &[&str]) -> Result<(), String> {
    let nothing = |value: &Json| value.is_null() || *value == Json::Bool(false);
    let all = part.as_object().into_iter().flatten();
    match all.into_iter().find(|(key, value)| !keys.contains(&&***key) && !nothing(value)) {
        Some((key, value)) => Err(format!("{key} of {what} is {value}, which is not supported")),
        None => Ok(()),
    }
}
