//! Reading of single values of a configuration, each checked, and writing of metadata.

use serde_json::Value as Json;

use crate::gguf::{Value, Writer};

/// Divisors of frequencies, and the tensors that GGUF files have them in.
pub(super) type Divisors = Vec<(&'static str, Vec<f32>)>;

/// The configuration, with what messages call it.
pub(super) struct Source<'j> {
    pub(super) json: &'j Json,
    pub(super) writer: &'j mut Writer,
    pub(super) prefix: &'static str,
}

impl Source<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn set(&mut self, key: &str, value: Value<'_>) -> Result<(), String> {
        let key = format!("{}.{key}", self.prefix);
        self.writer.set(&key, value).map_err(|e| e.to_string())
    }

    /// A size: metadata have 32 bits for it. Some configurations have it for each layer, and `false` for none.
    pub(super) fn size(&self, key: &str) -> Result<Option<u32>, String> {
        let size = |value: &Json| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let alike = |value: &Json| match value.as_array().map(|all| &all[..]) {
            Some([first, others @ ..]) if others.iter().all(|other| other == first) => size(first),
            _ => size(value),
        };
        let read = |value| {
            alike(value).ok_or_else(|| {
                format!("{key} is {value}: it must be a whole number below 2^32, the same for all layers")
            })
        };
        self.get(key).filter(|&value| value != &Json::Bool(false)).map(read).transpose()
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        let read = |value: &Json| {
            value.as_bool().ok_or_else(|| format!("{key} is {value}: it must be true or false"))
        };
        self.get(key).map(read).transpose()
    }

    /// A number of the configuration, or of an object in it.
    pub(super) fn number(of: &Json, key: &str) -> Result<Option<f64>, String> {
        let read =
            |value: &Json| value.as_f64().ok_or_else(|| format!("{key} is {value}: it must be a number"));
        of.get(key).filter(|value| !value.is_null()).map(read).transpose()
    }

    pub(super) fn positive(of: &Json, key: &str) -> Result<f64, String> {
        let number = Self::number(of, key)?.filter(|&x| x > 0.0 && x.is_finite());
        number.ok_or_else(|| format!("{key} is missing, or is no positive number"))
    }

    /// Refuses keys that have other values than these.
    pub(super) fn refuse_others(&self, usual: &[(&str, &[&str])]) -> Result<(), String> {
        for &(key, usual) in usual {
            if let Some(found) = self.get(key).filter(|found| !usual.contains(&&*found.to_string())) {
                return Err(format!("{key} is {found}, which is not supported"));
            }
        }
        Ok(())
    }

    /// The elements of a head.
    pub(super) fn head_dim(&self) -> Result<u32, String> {
        let heads = self.size("num_attention_heads")?.filter(|&heads| heads > 0);
        match (self.size("head_dim")?, self.size("hidden_size")?, heads) {
            (Some(dim), _, _) => Ok(dim),
            (None, Some(hidden), Some(heads)) => Ok(hidden / heads),
            _ => Err("neither head_dim nor num_attention_heads and hidden_size are there".to_owned()),
        }
    }

    /// Which layers `layer_types` says to be of the first of two kinds, if it is there.
    pub(super) fn layers_of_kind(&self, kinds: [&str; 2]) -> Result<Option<Vec<bool>>, String> {
        let is_first = |kind: &Json| match kind.as_str() {
            Some(kind) if kinds.contains(&kind) => Ok(kind == kinds[0]),
            _ => Err(format!("layer_types has {kind}: only {} and {} are supported", kinds[0], kinds[1])),
        };
        let said = self.get("layer_types").and_then(Json::as_array);
        said.map(|all| all.iter().map(is_first).collect()).transpose()
    }
}

/// Checks the elements of a head of which a list will be as long. Nobody has larger heads, and a file cannot make the list longer.
pub(super) fn check_head_dim(dim: u32) -> Result<u32, String> {
    match dim {
        0..=0x10000 => Ok(dim),
        _ => Err(format!("heads of {dim} elements are too large")),
    }
}
