//! Reading of recurrent layers from a file.

use super::family::{Family, Recurrent};
use super::keys::{Metadata, LARGEST};
use super::names::{self, Naming};
use super::recurrence::UNNORMED;
use super::source::{bad_tensor, Files};
use super::weights::{LinearWeights, RecurrentWeights};
use super::{Config, Layer, LinearAttention, Matrix, ModelError, Recurrence, Rule, ShortConvolution};
use crate::gguf::Value;

impl Metadata<'_> {
    /// What recurrent layers have, if the architecture has such layers, which are marked. `with_keys` says which layers have heads of keys.
    pub(super) fn recurrence(
        &self,
        (family, files): (&Family, &Files<'_>),
        (hidden, with_keys): (usize, &[bool]),
        layers: &mut [Layer],
    ) -> Result<Option<Recurrence>, ModelError> {
        Ok(match family.recurrent {
            Recurrent::No => None,
            Recurrent::Grouped { period } => {
                self.mark_by_period(period, layers)?;
                let of = self.linear(false, false)?;
                let rule = Rule::Delta { decay_heads: of.value_heads / of.key_heads };
                Some(Recurrence::Linear(LinearAttention { rule, ..of }))
            }
            Recurrent::Tiled { period } => {
                self.mark_by_period(period, layers)?;
                let of = self.linear(false, files.naming() == Naming::Gguf)?;
                let rule = Rule::Delta { decay_heads: of.value_heads };
                Some(Recurrence::Linear(LinearAttention { rule, ..of }))
            }
            Recurrent::StateSpace => {
                layers.iter_mut().zip(with_keys).for_each(|(layer, keys)| layer.recurrent = !keys);
                Some(Recurrence::Linear(self.linear(true, false)?))
            }
            Recurrent::Alone => {
                layers.iter_mut().for_each(|layer| layer.recurrent = true);
                Some(Recurrence::Linear(self.linear(true, false)?))
            }
            Recurrent::Beside => {
                layers.iter_mut().step_by(2).for_each(|layer| (layer.recurrent, layer.joined) = (true, true));
                let normed = files.named(&names::LINEAR_NORM).is_some();
                Some(Recurrence::Linear(LinearAttention { normed, ..self.linear(true, false)? }))
            }
            Recurrent::Convolution => {
                let window = |v: Value<'_>| v.as_u64() != Some(0);
                self.refuse(
                    ".attention.sliding_window",
                    "absent: attention sees all positions here",
                    window,
                )?;
                let taps = self.taps(".shortconv.l_cache")?;
                layers.iter_mut().zip(with_keys).for_each(|(layer, keys)| layer.recurrent = !keys);
                Some(Recurrence::Convolution(ShortConvolution { channels: hidden, taps }))
            }
        })
    }

    /// Tokens that a convolution reads.
    fn taps(&self, key: &str) -> Result<usize, ModelError> {
        match self.needed_size(key)? {
            taps @ 2..=8 => Ok(taps),
            taps => self.unfit(key, taps, "2 to 8".to_owned()),
        }
    }

    /// Marks all layers but the last one of each `period`, unless the file says which ones have linear attention.
    fn mark_by_period(&self, period: usize, layers: &mut [Layer]) -> Result<(), ModelError> {
        const PERIOD: &str = ".full_attention_interval";
        const LAYERS: &str = ".attention.recurrent_layers";
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
        for (layer, &recurrent) in layers.iter_mut().zip(&which) {
            layer.recurrent = recurrent;
        }
        match which.contains(&false) {
            true => Ok(()),
            false => {
                let expected = format!("at most the {count} layers: one has another attention at least");
                self.unfit(PERIOD, period, expected)
            }
        }
    }

    /// Linear attention as a state space. Otherwise heads of values are as long as those of keys.
    fn linear(&self, space: bool, tiled: bool) -> Result<LinearAttention, ModelError> {
        const VALUE_HEADS: &str = ".ssm.time_step_rank";
        const INNER: &str = ".ssm.inner_size";
        let (key_heads, key_size) =
            (self.needed_size(".ssm.group_count")?, self.needed_size(".ssm.state_size")?);
        let (value_heads, taps) = (self.needed_size(VALUE_HEADS)?, self.taps(".ssm.conv_kernel")?);
        if value_heads % key_heads != 0 {
            let expected = format!("a multiple of the {key_heads} heads of keys");
            return self.unfit(VALUE_HEADS, value_heads, expected);
        }
        let values = match (self.size(INNER)?, value_heads * key_size) {
            (None, _) if space => return Err(ModelError::MissingKey { key: self.key(INNER) }),
            (Some(inner), _) if space && inner % value_heads != 0 => {
                return self.unfit(INNER, inner, format!("a multiple of the {value_heads} heads"));
            }
            (Some(inner), values) if !space && inner != values => {
                return self.unfit(INNER, inner, format!("{value_heads} heads of {key_size} elements"));
            }
            (inner, values) => inner.unwrap_or(values),
        };
        let [keys, most] = [(2 * key_heads) as u64, LARGEST / key_size as u64];
        if keys * key_size as u64 + values as u64 > LARGEST || values as u64 > most {
            return self.unfit(VALUE_HEADS, value_heads, format!("less: heads have {key_size} elements"));
        }
        let value_size = values / value_heads;
        let rule = Rule::StateSpace;
        let normed = true;
        Ok(LinearAttention { rule, key_heads, value_heads, key_size, value_size, taps, tiled, normed })
    }
}

impl Files<'_> {
    /// What a layer has if it is recurrent.
    pub(super) fn recurrent(
        &self,
        config: &Config,
        of: &Recurrence,
        layer: usize,
    ) -> Result<RecurrentWeights<'_>, ModelError> {
        let (name, linear) = match of {
            Recurrence::Linear(of) => (&names::LINEAR_CONVOLUTION, Some(self.linear(config, of, layer)?)),
            Recurrence::Convolution(_) => (&names::CONVOLUTION, None),
        };
        // Files have the numbers of a channel side by side.
        let (mut by_channel, taps) = (self.vector(config, name, layer)?, of.taps());
        let mut convolution_bias = self.optional(config, &names::STATE_SPACE_BIAS, layer)?;
        if let Recurrence::Linear(of @ LinearAttention { rule: Rule::StateSpace, .. }) = of {
            // Channels of values, keys and queries become those of queries, keys and values.
            for (numbers, each) in [(Some(&mut by_channel), taps), (convolution_bias.as_mut(), 1)] {
                let Some(numbers) = numbers else { continue };
                numbers.rotate_left(of.values() * each);
                let keys = of.key_heads * of.key_size * each;
                numbers[..2 * keys].rotate_left(keys);
            }
        }
        let mut convolution = Vec::with_capacity(by_channel.len());
        (0..taps).for_each(|tap| convolution.extend(by_channel.iter().skip(tap).step_by(taps)));
        Ok(RecurrentWeights { convolution, convolution_bias, linear })
    }

    /// The matrices of a layer with linear attention: queries, keys and values, then gates, then the others.
    pub(super) fn of_linear(
        &self,
        config: &Config,
        of: &LinearAttention,
        layer: usize,
    ) -> Result<([Matrix<'_>; 3], Matrix<'_>, Vec<Matrix<'_>>), ModelError> {
        let (keys, values) = (of.key_heads * of.key_size, of.values());
        if of.rule == Rule::StateSpace {
            let rows = [values, values, keys, keys, of.numbers()];
            let [gates, v, k, q, decays] = self.parts(config, &names::STATE_SPACE, layer, rows)?;
            return Ok(([q, k, v], gates, vec![decays]));
        }
        let matrix = |name| self.matrix(config, name, [layer, 0]);
        let decays = names::LINEAR_DECAYS.iter().chain([&names::LINEAR_ALL_DECAYS]);
        let decays =
            decays.filter(|name| name.needed(config, layer)).map(matrix).collect::<Result<_, _>>()?;
        let inputs = self.parts(config, &names::LINEAR_QKV, layer, [keys, keys, values])?;
        Ok((inputs, matrix(&names::LINEAR_GATES)?, decays))
    }

    /// What a layer has for linear attention alone.
    fn linear(
        &self,
        config: &Config,
        of: &LinearAttention,
        layer: usize,
    ) -> Result<LinearWeights<'_>, ModelError> {
        let vector = |name| self.vector(config, name, layer);
        let (_, gates, decays) = self.of_linear(config, of, layer)?;
        let rate = vector(&names::LINEAR_RATE)?;
        if let Some(at) = rate.iter().position(|&rate| rate > 0.0) {
            let problem = format!("has {} at element {at}: states would grow without bound", rate[at]);
            return Err(bad_tensor(&names::LINEAR_RATE.of(self.naming(), config, [layer, 0]), problem));
        }
        Ok(LinearWeights {
            gates,
            decays,
            decay_bias: vector(&names::LINEAR_DECAY_BIAS)?,
            rate,
            norm: match of.normed {
                true => vector(&names::LINEAR_NORM)?,
                false => vec![UNNORMED; of.values()],
            },
            skip: self.optional(config, &names::STATE_SPACE_SKIP, layer)?,
        })
    }
}
