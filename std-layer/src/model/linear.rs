//! Reading of linear attention from a file's metadata.

use super::family::{Family, Linear};
use super::keys::{Metadata, LARGEST};
use super::names::Naming;
use super::{Layer, LinearAttention, ModelError};
use crate::gguf::Value;

impl Metadata<'_> {
    /// Linear attention, if the architecture has it, and which layers have it: these are marked.
    pub(super) fn linear_attention(
        &self,
        (family, naming): (&Family, Naming),
        layers: &mut [Layer],
    ) -> Result<Option<LinearAttention>, ModelError> {
        const PERIOD: &str = ".full_attention_interval";
        const LAYERS: &str = ".attention.recurrent_layers";
        const TAPS: &str = ".ssm.conv_kernel";
        const VALUE_HEADS: &str = ".ssm.time_step_rank";
        const INNER: &str = ".ssm.inner_size";
        let (tiled, period) = match family.linear {
            Linear::No => return Ok(None),
            Linear::Grouped { period } => (false, period),
            Linear::Tiled { period } => (naming == Naming::Gguf, period),
        };
        let period = self.size(PERIOD)?.unwrap_or(period);
        let count = layers.len();
        let which = |v: Value<'_>| {
            let array = v.as_array().filter(|array| array.len() == count)?;
            array.iter().map(|linear| linear.as_bool()).collect::<Option<Vec<_>>>()
        };
        let which = match self.read(LAYERS, &format!("{count} times true or false"), which)? {
            Some(which) => which,
            None => (1..=count).map(|layer| layer % period != 0).collect(),
        };
        for (layer, &linear) in layers.iter_mut().zip(&which) {
            layer.linear = linear;
        }
        if !which.contains(&false) {
            let expected = format!("at most the {count} layers: one has another attention at least");
            return self.unfit(PERIOD, period, expected);
        }
        let (key_heads, size) = (self.needed_size(".ssm.group_count")?, self.needed_size(".ssm.state_size")?);
        let (value_heads, taps) = (self.needed_size(VALUE_HEADS)?, self.needed_size(TAPS)?);
        if value_heads % key_heads != 0 {
            return self.unfit(
                VALUE_HEADS,
                value_heads,
                format!("a multiple of the {key_heads} heads of keys"),
            );
        }
        if !(2..=8).contains(&taps) {
            return self.unfit(TAPS, taps, "2 to 8".to_owned());
        }
        let (heads, most) = (2 * key_heads as u64 + value_heads as u64, LARGEST / size as u64);
        if heads > most || (value_heads * size) as u64 > most {
            return self.unfit(VALUE_HEADS, value_heads, format!("less: heads have {size} elements"));
        }
        if let Some(inner) = self.size(INNER)?.filter(|&inner| inner != value_heads * size) {
            return self.unfit(INNER, inner, format!("{value_heads} heads of {size} elements"));
        }
        let decay_heads = match family.linear {
            Linear::Grouped { .. } => value_heads / key_heads,
            _ => value_heads,
        };
        Ok(Some(LinearAttention { key_heads, value_heads, size, taps, tiled, decay_heads }))
    }
}
