//! NVFP4 with a scale for the whole matrix, for which its blocks have no place: such matrices are stored anew in memory.
//!
//! In GGUF files `NAME.scale` beside `NAME.weight` is that scale, or those of all experts. Blocks of `Q6_K` hold the weights where rows are multiples of 256: they have whole numbers for the
//! scales of 16 weights, as many as a group of NVFP4 has, and 6 bits hold twice an E2M1 number. What that costs in accuracy is in
//! [`checkpoint::codes`](super::checkpoint); other rows become f16.

use gllm_kernels_core::blocks::BlockNvfp4;
use gllm_kernels_core::codebooks::ue4m3_half;
use gllm_kernels_core::{QuantFormat, QuantRef};
use rayon::prelude::*;

use super::anew::{halves, q6_k, BYTES, SUPER};
use super::source::{bad_tensor, numbers, Files};
use super::ModelError;
use crate::aligned::AlignedVec;
use crate::detect::kernels;
use crate::gguf::{Bytes, GgmlType, Gguf, Tensor, Writer};

/// The end of the name of a matrix, of its scale, and of that of what it multiplies, which is not used.
const WEIGHT: &str = ".weight";
const SCALE: &str = ".scale";
const INPUT_SCALE: &str = ".input_scale";

impl Files<'_> {
    /// The matrix in NVFP4 that a scale belongs to, by the name without its end.
    fn in_nvfp4(&self, base: &str) -> Option<Tensor<'_>> {
        let weight = self.parts.iter().find_map(|(_, file)| file.tensor(&format!("{base}{WEIGHT}")));
        weight.filter(|weight| weight.ggml_type() == GgmlType::NVFP4)
    }

    /// Whether a tensor is the scale of such a matrix, or of what it multiplies.
    pub(super) fn is_scale(&self, name: &str) -> bool {
        let base = [SCALE, INPUT_SCALE].iter().find_map(|end| name.strip_suffix(end));
        base.is_some_and(|base| self.in_nvfp4(base).is_some())
    }

    /// Stores all matrices in NVFP4 that have a scale anew.
    ///
    /// # Errors
    /// `BadTensor`: a scale is not finite, or there are neither one nor as many as the matrix has experts.
    pub(super) fn scale_nvfp4(&mut self) -> Result<(), ModelError> {
        let (mut writer, mut bytes) = (Writer::new(), Vec::new());
        for scale in self.parts.iter().flat_map(|(_, file)| file.tensors()) {
            let Some(base) = scale.name().strip_suffix(SCALE) else { continue };
            let Some(weight) = self.in_nvfp4(base) else { continue };
            let name = weight.name();
            let bad = |problem: String| bad_tensor(name, problem);
            let w = weight.as_quant_ref().map_err(|e| bad(e.to_string()))?;
            let scales = numbers(scale)?;
            let experts = weight.dims().get(2).map_or(1, |&n| n as usize);
            if scales.is_empty() || scales.len() != experts || w.rows() == 0 || w.cols() == 0 {
                return Err(bad(format!(
                    "has the dimensions {:?}, and {} numbers in {}",
                    weight.dims(),
                    scales.len(),
                    scale.name()
                )));
            }
            let (of, all) = stored(w, &scales).map_err(bad)?;
            writer.add_tensor(name, weight.dims(), of).map_err(|e| bad(e.to_string()))?;
            bytes.push(Bytes::Owned(all));
        }
        if !bytes.is_empty() {
            self.made.push(Gguf::assemble(&writer, bytes).map_err(|e| bad_tensor(SCALE, e))?);
        }
        Ok(())
    }
}

/// The rows of a matrix, which as many experts share as there are scales.
fn stored(w: QuantRef<'_>, scales: &[f32]) -> Result<(GgmlType, AlignedVec<u8>), String> {
    let (rows, cols) = (w.rows(), w.cols());
    let factor = |row: usize| scales[row / (rows / scales.len())];
    if cols.is_multiple_of(SUPER) {
        let len = cols / SUPER * BYTES;
        let mut all = AlignedVec::zeroed(rows * len);
        let (blocks, _) = w.as_bytes().as_chunks::<{ size_of::<BlockNvfp4>() }>();
        let store = |(row, to): (usize, &mut [u8])| {
            let blocks = blocks[row * cols / 64..][..cols / 64].chunks_exact(4);
            blocks.zip(to.chunks_exact_mut(BYTES)).all(|(four, to)| {
                let code = |i: usize| four[i / 64][4 + i / 16 % 4 * 8 + i % 8] >> (i / 8 % 2 * 4);
                let scale = |g: usize| 2.0 * ue4m3_half(four[g / 4][g % 4]);
                q6_k(to, code, std::array::from_fn(scale), factor(row))
            })
        };
        if all.par_chunks_exact_mut(len).enumerate().all(store) {
            return Ok((GgmlType(QuantFormat::Q6K.gguf_type()), all));
        }
    }
    let mut all = AlignedVec::zeroed(rows * 2 * cols);
    all.par_chunks_exact_mut(2 * cols).enumerate().try_for_each_init(
        || vec![0.0; cols],
        |weights, (row, to)| {
            let one = w.row_range(row, 1).map_err(|e| e.to_string())?;
            kernels::<f32>().dequant(one, weights).map_err(|e| e.to_string())?;
            halves(row, weights.iter().map(|w| w * factor(row)), to)
        },
    )?;
    Ok((GgmlType::F16, all))
}
