//! Matrices of keys and values of latent attention that GGUF files of MiniCPM 3 have in one. Backends take one of keys and one of values for each head, so they are made in memory.

use gllm_kernels_core::f16;

use super::checkpoint::layout::{latent, Whole};
use super::names;
use super::source::{bad_tensor, Files};
use super::{Config, ModelError};
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
            let (kind, both): (_, Vec<u8>) = match matrix.format() {
                None => (GgmlType::F32, numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
                Some(_) => {
                    if let Some(x) = numbers.iter().find(|x| !f16::from_f32(**x).to_f32().is_finite()) {
                        return Err(bad_tensor(&name, format!("has {x}, which f16 does not hold")));
                    }
                    (GgmlType::F16, numbers.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect())
                }
            };
            let dims = [matrix.cols() as u64, matrix.rows() as u64];
            let whole = Whole { name: &name, dims: &dims, of: kind, bytes: &both };
            let parts = latent(&whole, [config.heads, of.plain, of.values]);
            let parts = parts.map_err(|e| bad_tensor(&name, e))?;
            for (made, part) in [&names::LATENT_KEYS, &names::LATENT_VALUES].into_iter().zip(parts) {
                let name = made.of(self.naming(), config, [layer, 0]);
                if self.tensor(&name).is_some() {
                    return Err(bad_tensor(&name, config.refusal()));
                }
                let added = writer.add_tensor(&name, &part.dims, kind);
                added.map_err(|e| bad_tensor(&name, e.to_string()))?;
                bytes.push(Bytes::Owned(part.bytes));
            }
        }
        let made = Gguf::assemble(&writer, bytes);
        self.made.push(made.map_err(|e| bad_tensor(names::LATENT_BOTH.gguf, e))?);
        Ok(())
    }
}
