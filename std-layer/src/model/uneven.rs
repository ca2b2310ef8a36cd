//! Reading of models whose layers differ in heads of keys, and may lack attention or a network: those of NVIDIA's that a search made of others (Bercovich et al., "Puzzle:
//! Distillation-Based NAS for Inference-Optimized LLMs", 2024).

use super::keys::{Metadata, LARGEST};
use super::{Layer, ModelError};
use crate::gguf::Value;

const HEADS: &str = ".attention.head_count";
const KV_HEADS: &str = ".attention.head_count_kv";
const WIDTHS: &str = ".feed_forward_length";

/// What each layer of a file has.
pub(super) struct Uneven {
    /// Heads of queries of all layers with attention.
    pub(super) heads: usize,
    /// Heads of keys; 0 without attention.
    pub(super) keys: Vec<usize>,
    /// Elements between the halves of the network; 0 without one.
    pub(super) widths: Vec<usize>,
}

impl Metadata<'_> {
    /// What each of so many layers has.
    pub(super) fn uneven(&self, layers: usize) -> Result<Uneven, ModelError> {
        let each = |key| self.each_of(key, layers);
        let (heads, mut keys, widths) = (each(HEADS)?, each(KV_HEADS)?, each(WIDTHS)?);
        let most = heads.iter().copied().max().unwrap_or(0);
        for (layer, (&heads, keys)) in heads.iter().zip(&mut keys).enumerate() {
            if heads == 0 {
                *keys = 0;
            } else if *keys == 0 {
                let what = format!(
                    "heads of keys in layer {layer}: linear layers in place of attention are not supported"
                );
                return self.unfit(KV_HEADS, 0, what);
            } else if heads != most {
                return self.unfit(HEADS, heads, format!("0 or the {most} heads of other layers"));
            } else if !heads.is_multiple_of(*keys) {
                return self.unfit(KV_HEADS, *keys, format!("a divisor of the {heads} heads"));
            }
        }
        match (most, widths.iter().any(|&width| width > 0)) {
            (0, _) => self.unfit(HEADS, 0, "above 0 in one layer at least".to_owned()),
            (_, false) => self.unfit(WIDTHS, 0, "above 0 in one layer at least".to_owned()),
            _ => Ok(Uneven { heads: most, keys, widths }),
        }
    }

    /// A number for each layer, or one for all of them; 0 is one.
    fn each_of(&self, key: &str, layers: usize) -> Result<Vec<usize>, ModelError> {
        let size = |v: Value<'_>| v.as_u64().filter(|&n| n <= LARGEST).map(|n| n as usize);
        let value = self.needed(key, self.get(key))?;
        let all: Option<Vec<usize>> = match value {
            Value::Array(each) => each.iter().map(size).collect(),
            one => size(one).map(|n| vec![n; layers]),
        };
        let expected = format!("a number for each of the {layers} layers, or one for all, at most {LARGEST}");
        all.filter(|all| all.len() == layers).ok_or_else(|| self.bad(key, value, expected))
    }
}

impl Uneven {
    /// The numbers of layers that have anything, each of which its network shares.
    pub(super) fn counted(&self) -> Vec<[usize; 2]> {
        let has = |&layer: &usize| self.keys[layer] > 0 || self.widths[layer] > 0;
        (0..self.keys.len()).filter(has).map(|layer| [layer; 2]).collect()
    }

    /// The heads of keys, and the width, of the first layer that has some.
    pub(super) fn first(&self) -> [usize; 2] {
        [&self.keys, &self.widths].map(|all| all.iter().copied().find(|&n| n > 0).unwrap_or(0))
    }

    /// Sets what these layers have, of which files have the numbers.
    pub(super) fn set(&self, numbers: &[[usize; 2]], layers: &mut [Layer]) {
        let [first_keys, first_width] = self.first();
        for (layer, &[number, _]) in layers.iter_mut().zip(numbers) {
            let (keys, width) = (self.keys[number], self.widths[number]);
            (layer.without_attention, layer.without_network) = (keys == 0, width == 0);
            layer.kv_heads = Some(keys).filter(|&keys| keys > 0 && keys != first_keys);
            layer.intermediate = Some(width).filter(|&width| width > 0 && width != first_width);
        }
    }
}
