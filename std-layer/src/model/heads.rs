//! Reading of heads, and of what else depends on whether a layer has a window, from a file's metadata.

use super::family::{Family, Recurrent, Windows};
use super::keys::{Metadata, LARGEST};
use super::source::{numbers, Files};
use super::uneven::Uneven;
use super::{names, KvHeads, LatentAttention, Layer, ModelError};
use crate::gguf::Value;

const HEADS: &str = ".attention.head_count";
/// How many of the last layers attend to what others have.
const SHARED: &str = ".attention.shared_kv_layers";
const KV_HEADS: &str = ".attention.head_count_kv";

/// The heads of a model.
pub(super) struct Heads {
    /// Of queries.
    pub(super) count: usize,
    /// Of keys and values.
    pub(super) kv: KvHeads,
    /// The same in layers with a window, where these have others.
    pub(super) local: Option<KvHeads>,
    /// Which layers have heads of keys.
    pub(super) with_keys: Vec<bool>,
    pub(super) latent: Option<LatentAttention>,
    /// What each layer has, where layers differ.
    pub(super) uneven: Option<Uneven>,
}

impl Metadata<'_> {
    /// The heads of a model with so many layers and such a width.
    pub(super) fn heads(
        &self,
        (family, files): (&Family, &Files<'_>),
        [layers, hidden]: [usize; 2],
    ) -> Result<Heads, ModelError> {
        if family.recurrent == Recurrent::Alone {
            let (kv, with_keys) = (KvHeads { count: 1, dim: 2 }, vec![false; layers]);
            return Ok(Heads { count: 1, kv, local: None, with_keys, latent: None, uneven: None });
        }
        let uneven = family.uneven.then(|| self.uneven(layers)).transpose()?;
        let (heads, ([count, local_count], with_keys)) = match &uneven {
            Some(uneven) => (uneven.heads, ([uneven.first()[0]; 2], vec![true; layers])),
            None => {
                let heads = self.needed_size(HEADS)?;
                (heads, self.kv_heads(family, heads, layers)?)
            }
        };
        let latent = self.latent_attention((family, files), [hidden, heads])?;
        if let Some(of) = latent.filter(|_| files.latent_in_one(family.architecture)) {
            let kv = KvHeads { count: 1, dim: of.cached() };
            return Ok(Heads { count: heads, kv, local: None, with_keys, latent, uneven });
        }
        let dim = match self.size(".attention.key_length")? {
            Some(dim) => dim,
            None if hidden % heads == 0 => hidden / heads,
            None => {
                return self.unfit(HEADS, heads, format!("a divisor of the embedding length {hidden}"));
            }
        };
        let kv = KvHeads { count, dim };
        let value = if latent.is_some() { ".attention.key_length" } else { ".attention.value_length" };
        self.check_heads(heads, kv, [".attention.key_length", value])?;
        if !family.local_heads {
            return Ok(Heads { count: heads, kv, local: None, with_keys, latent, uneven });
        }
        let keys = [".attention.key_length_swa", ".attention.value_length_swa"];
        let local = KvHeads { count: local_count, dim: self.size(keys[0])?.unwrap_or(dim) };
        self.check_heads(heads, local, keys)?;
        let local = Some(local).filter(|&local| local != kv);
        Ok(Heads { count: heads, kv, local, with_keys, latent, uneven })
    }

    /// Checks what heads must be; the keys are those of lengths of keys and of values.
    fn check_heads(&self, heads: usize, of: KvHeads, [key, value]: [&str; 2]) -> Result<(), ModelError> {
        let KvHeads { count, dim } = of;
        if !heads.is_multiple_of(count) {
            return self.unfit(KV_HEADS, count, format!("a divisor of the {heads} heads"));
        }
        if !dim.is_multiple_of(2) {
            return self.unfit(key, dim, "even".to_owned());
        }
        if heads as u64 * dim as u64 > LARGEST {
            return self.unfit(HEADS, heads, format!("at most {LARGEST} / {dim}"));
        }
        match self.size(value)?.filter(|&v| v != dim) {
            Some(other) => self.unfit(value, other, format!("the length of keys, {dim}")),
            None => Ok(()),
        }
    }

    /// How many heads of keys layers without a window have, and those with one, and which layers have any: files may have a number for each layer.
    fn kv_heads(
        &self,
        family: &Family,
        heads: usize,
        layers: usize,
    ) -> Result<([usize; 2], Vec<bool>), ModelError> {
        if matches!(family.recurrent, Recurrent::Convolution | Recurrent::StateSpace) {
            let (count, with_keys) =
                self.size_of_some(KV_HEADS, layers)?.unwrap_or_else(|| (heads, vec![true; layers]));
            return Ok(([count; 2], with_keys));
        }
        let each = self.get(KV_HEADS).and_then(|v| v.as_array()).filter(|_| family.local_heads);
        let (Some(each), Windows::Periodic { period, without, .. }) = (each, &family.windows) else {
            return Ok(([self.size(KV_HEADS)?.unwrap_or(heads); 2], vec![true; layers]));
        };
        let local = self.local_layers(layers, (*period, *without))?;
        let size = |v: Value<'_>| v.as_u64().filter(|n| (1..=LARGEST).contains(n)).map(|n| n as usize);
        let counts: Vec<Option<usize>> = each.iter().map(size).collect();
        let of = |is: bool| {
            let mut own = counts.iter().zip(&local).filter(|(_, &local)| local == is).map(|(&n, _)| n);
            let first = own.next()?;
            Some(first.filter(|_| own.all(|n| n == first)))
        };
        // Where there are no layers of a kind, it is like the other.
        let both = [of(false).or(of(true)).flatten(), of(true).or(of(false)).flatten()];
        match (both, counts.len() == layers) {
            ([Some(all), Some(local)], true) => Ok(([all, local], vec![true; layers])),
            _ => Err(self.bad(
                KV_HEADS,
                Value::Array(each),
                format!("a number for each of the {layers} layers, the same for those with a window, and for the others"),
            )),
        }
    }

    /// Elements of a head that are rotated: of so many, unless the file says it.
    pub(super) fn rotated(&self, key: &str, dim: usize) -> Result<usize, ModelError> {
        let dims = self.size(key)?.unwrap_or(dim);
        match !dims.is_multiple_of(2) || dims > dim {
            true => self.unfit(key, dims, format!("even and at most the head's {dim}")),
            false => Ok(dims),
        }
    }

    /// What else files say of single layers: factors of the residual stream, and which layers attend to what others have; and whether keys are the values of layers
    /// without a window.
    pub(super) fn single_layers(
        &self,
        files: &Files<'_>,
        family: &Family,
        layers: &mut [Layer],
    ) -> Result<bool, ModelError> {
        if !family.local_heads {
            return Ok(false);
        }
        for (i, layer) in layers.iter_mut().enumerate().filter(|_| !family.streams) {
            let scale = files.of_any(&names::SCALE, i).map(numbers).transpose()?;
            layer.scale = scale.and_then(|scale| scale.first().copied());
        }
        let own = match self.size_or_none(SHARED)? {
            None => layers.len(),
            Some(shared) if shared < layers.len() => layers.len() - shared,
            Some(shared) => return self.unfit(SHARED, shared, format!("below the {} layers", layers.len())),
        };
        let (before, behind) = layers.split_at_mut(own);
        for layer in behind {
            layer.keys_of = before.iter().rposition(|other| other.window == layer.window);
            if layer.keys_of.is_none() {
                let expected = "such that layers with keys of their own have each of the windows";
                return self.unfit(SHARED, layers.len() - own, expected.to_owned());
            }
        }
        let global = layers.iter().position(|layer| layer.window.is_none());
        Ok(!family.streams && global.is_some_and(|layer| files.of_any(&names::V, layer).is_none()))
    }
}
