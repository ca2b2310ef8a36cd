//! Matrices of keys and values of latent attention that GGUF files of MiniCPM 3 have in one. Backends take one of keys and one of values for each head, so they are made in memory.

use gllm_kernels_core::f16;

use super::names;
use super::source::{bad_tensor, Files};
use super::{Config, ModelError};
use crate::aligned::AlignedVec;
use crate::gguf::{Bytes, GgmlType, Gguf, Writer};

impl Files<'_> {
    /// Makes the matrices of heads of all layers, if the files have them in one: in f32 if it is so itself, and otherwise in f16, as those of keys are transposed and
    /// cannot stay in blocks.
    ///
    /// # Errors
    /// The one matrix is missing or has another shape, a number is too large for f16, or there is a tensor already that is called like what is made.
    pub(super) fn part_keys_and_values(&mut self, config: &Config) -> Result<(), ModelError> {
        let Some(of) = config.latent_attention.filter(|_| config.latent_both) else { return Ok(()) };
        let (mut writer, mut bytes) = (Writer::new(), Vec::with_capacity(2 * config.layers));
        for layer in 0..config.layers {
            let name = names::LATENT_BOTH.of(self.naming(), config, [layer, 0]);
            let matrix = self.matrix(config, &names::LATENT_BOTH, [layer, 0])?;
            let rows: Vec<u32> = (0..matrix.rows() as u32).collect();
            let numbers = matrix.decoded(&rows).map_err(|e| bad_tensor(&name, e.to_string()))?;
            let whole = matrix.format().is_none();
            if let Some(x) =
                numbers.iter().filter(|_| !whole).find(|x| !f16::from_f32(**x).to_f32().is_finite())
            {
                return Err(bad_tensor(&name, format!("has {x}, which f16 does not hold")));
            }
            let (rank, each) = (of.rank, (of.plain + of.values) * of.rank);
            let number = |to: &mut Vec<u8>, i: usize| match whole {
                true => to.extend(numbers[i].to_le_bytes()),
                false => to.extend(f16::from_f32(numbers[i]).to_le_bytes()),
            };
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for head in (0..config.heads).map(|head| head * each) {
                for row in 0..rank {
                    (0..of.plain).for_each(|i| number(&mut keys, head + i * rank + row));
                }
                (of.plain * rank..each).for_each(|i| number(&mut values, head + i));
            }
            let kind = if whole { GgmlType::F32 } else { GgmlType::F16 };
            for (made, own) in [(&names::LATENT_KEYS, keys), (&names::LATENT_VALUES, values)] {
                let name = made.of(self.naming(), config, [layer, 0]);
                if self.tensor(&name).is_some() {
                    return Err(bad_tensor(&name, config.refusal()));
                }
                let dims = made.dims(self.naming(), config, layer);
                let added = writer.add_tensor(&name, &dims, kind);
                added.map_err(|e| bad_tensor(&name, e.to_string()))?;
                let mut to = AlignedVec::zeroed(own.len());
                to.copy_from_slice(&own);
                bytes.push(Bytes::Owned(to));
            }
        }
        let made = Gguf::assemble(&writer, bytes);
        self.made.push(made.map_err(|e| bad_tensor(names::LATENT_BOTH.gguf, e))?);
        Ok(())
    }
}
