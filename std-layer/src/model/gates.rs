//! Gates of attention that files have in a matrix of their own. Backends take those of a head from behind its queries, so both become one matrix in memory.

use gllm_kernels_core::f16;

use super::names::{self, Name};
use super::source::{bad_tensor, Files};
use super::{Config, ModelError};
use crate::aligned::AlignedVec;
use crate::gguf::{Bytes, GgmlType, Gguf, Writer};

impl Files<'_> {
    /// Makes the matrices of queries and gates, if the files have them apart.
    ///
    /// # Errors
    /// One of both is missing or has another shape, or there is a tensor already that is called like what is made.
    pub(super) fn join_gates(&mut self, config: &Config) -> Result<(), ModelError> {
        if !config.gates_apart {
            return Ok(());
        }
        let (mut writer, mut bytes) = (Writer::new(), Vec::with_capacity(config.layers));
        for layer in 0..config.layers {
            let both = &names::QUERIES_AND_GATES;
            let name = both.of(self.naming(), config, [layer, 0]);
            if self.tensor(&name).is_some() {
                return Err(bad_tensor(&name, config.refusal()));
            }
            let (of, joined) = self.joined(config, layer)?;
            let dims = both.dims(self.naming(), config, layer);
            writer.add_tensor(&name, &dims, of).map_err(|e| bad_tensor(&name, e.to_string()))?;
            bytes.push(Bytes::Owned(joined));
        }
        let made = Gguf::assemble(&writer, bytes);
        self.made.push(made.map_err(|e| bad_tensor(names::QUERIES_AND_GATES.gguf, e))?);
        Ok(())
    }

    /// Queries and gates of a layer: as they are stored, or, if they are not stored alike, in f16.
    fn joined(&self, config: &Config, layer: usize) -> Result<(GgmlType, AlignedVec<u8>), ModelError> {
        let both = [&names::Q, &names::GATES];
        let find = |name: &Name| self.find(config, name, [layer, 0]);
        let [q, gates] = both.map(find);
        let [q, gates] = [q?, gates?];
        if q.ggml_type() == gates.ggml_type() {
            let joined = in_turns([&q, &gates].map(|part| part.data().unwrap_or_default()), config.heads);
            return Ok((q.ggml_type(), joined));
        }
        let halves = |name: &Name| {
            let matrix = self.matrix(config, name, [layer, 0])?;
            let rows: Vec<u32> = (0..matrix.rows() as u32).collect();
            let bad = |e: gllm_kernels_core::KernelError| bad_tensor(name.gguf, e.to_string());
            let numbers = matrix.decoded(&rows).map_err(bad)?;
            Ok::<Vec<u8>, ModelError>(numbers.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect())
        };
        let [q, gates] = both.map(halves);
        Ok((GgmlType::F16, in_turns([&q?, &gates?], config.heads)))
    }
}

/// The bytes of each head of the one matrix, and behind them those of the same head of the other one.
fn in_turns(both: [&[u8]; 2], heads: usize) -> AlignedVec<u8> {
    let head = both[0].len() / heads;
    let mut to = AlignedVec::zeroed(2 * heads * head);
    for (i, to) in to.chunks_exact_mut(head.max(1)).enumerate() {
        to.copy_from_slice(&both[i % 2][i / 2 * head..][..head]);
    }
    to
}
