//! What a configuration says of Gemma 3n, whose layers differ in how many gates of their networks count.

use serde_json::Value as Json;

use super::values::Source;
use crate::gguf::{Value, ValueType};
use crate::model::Architecture;

/// Sizes that it must have: their names in both.
const SIZES: [(&str, &str); 5] = [
    ("num_kv_shared_layers", "attention.shared_kv_layers"),
    ("hidden_size_per_layer_input", "embedding_length_per_layer_input"),
    ("vocab_size_per_layer_input", "vocab_size_per_layer_input"),
    ("altup_num_inputs", "altup.num_inputs"),
    ("altup_active_idx", "altup.active_idx"),
];
/// Elements between the halves of networks: a number, or one for each layer.
pub(super) const WIDTH: &str = "intermediate_size";

/// The normal distribution function: the integral of the density from 0 on is that times `x + x^3 / 3 + x^5 / (3 * 5) + ..`.
fn normal(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= x * x / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 + sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// Of a normal distribution with a mean of 0 and a standard deviation of 1, what the part `p` is below: between -8 and 8.
fn quantile(p: f64) -> f64 {
    let [mut low, mut high] = [-8.0, 8.0];
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        *(if normal(middle) < p { &mut low } else { &mut high }) = middle;
    }
    low
}

impl Source<'_> {
    /// Sizes, widths of networks, and how many gates of each layer count.
    pub(super) fn gemma3n(&mut self, architecture: Architecture) -> Result<(), String> {
        const SPARSITY: &str = "activation_sparsity_pattern";
        if architecture != Architecture::Gemma3n {
            return Ok(());
        }
        for (key, to) in SIZES {
            let size = self.size(key)?.ok_or_else(|| format!("{key} is missing"))?;
            self.set(to, Value::U32(size))?;
        }
        // The library assumes another base than that of most models.
        if ["rope_parameters", "rope_theta"].iter().all(|key| self.get(key).is_none()) {
            return Err("rope_parameters is missing".to_owned());
        }
        let width = |of: &Json| of.as_u64().and_then(|n| u32::try_from(n).ok());
        match self.get(WIDTH) {
            Some(Json::Array(each)) => {
                let each: Option<Vec<u32>> = each.iter().map(width).collect();
                let each = each.ok_or_else(|| format!("{WIDTH} has others than whole numbers below 2^32"))?;
                self.for_each_layer("feed_forward_length", each.into_iter())?;
            }
            _ => {
                let width = self.size(WIDTH)?.ok_or_else(|| format!("{WIDTH} is missing"))?;
                self.set("feed_forward_length", Value::U32(width))?;
            }
        }
        let Some(said) = self.get(SPARSITY) else { return Err(format!("{SPARSITY} is missing")) };
        let part = |of: &Json| of.as_f64().filter(|part| (0.0..1.0).contains(part));
        let parts: Option<Vec<f64>> = said.as_array().and_then(|all| all.iter().map(part).collect());
        let parts = parts.ok_or_else(|| format!("{SPARSITY} is no list of parts from 0 to below 1"))?;
        // Where the part is 0, all gates count.
        let least = |part: f64| if part > 0.0 { quantile(part) as f32 } else { f32::NEG_INFINITY };
        let key = format!("{}.activation_sparsity_scale", self.prefix);
        let all: Vec<_> = parts.into_iter().map(|part| Value::F32(least(part))).collect();
        self.writer.set_array(&key, ValueType::F32, all).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known values, and what the function is the inverse of.
    #[test]
    fn quantiles() {
        for (p, x) in
            [(0.5, 0.0), (0.95, 1.644_853_626_951), (0.841_344_746_069, 1.0), (0.999, 3.090_232_306_168)]
        {
            assert!((quantile(p) - x).abs() < 1e-9 && (quantile(1.0 - p) + x).abs() < 1e-9, "{p}");
        }
        for p in [1e-9, 1e-6, 0.2, 0.7, 1.0 - 1e-9] {
            assert!((normal(quantile(p)) / p - 1.0).abs() < 1e-4, "{p}");
        }
    }
}
