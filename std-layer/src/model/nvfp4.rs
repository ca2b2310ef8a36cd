//! NVFP4 with a scale for the whole matrix, for which its blocks have no place: such matrices are stored anew in memory.
//!
//! In GGUF files `NAME.scale` beside `NAME.weight` is that scale, or those of all experts. Blocks of `Q6_K` hold the weights where rows are multiples of 256: they have whole numbers for the
//! scales of 16 weights, as many as a group of NVFP4 has, and 6 bits hold twice an E2M1 number. What that costs in accuracy is in
//! [`checkpoint::codes`](super::checkpoint); other rows become f16.

use std::path::PathBuf;

use gllm_kernels_core::blocks::BlockNvfp4;
use gllm_kernels_core::codebooks::{ue4m3_half, FP4_VALUES};
use gllm_kernels_core::{QuantFormat, QuantRef};
use rayon::prelude::*;

use super::halves::{half, halves};
use super::source::{bad_tensor, numbers};
use super::ModelError;
use crate::aligned::AlignedVec;
use crate::detect::kernels;
use crate::gguf::{Bytes, GgmlType, Gguf, Tensor, Writer};

/// Weights of a block of `Q6_K`, its bytes, and the weights that share a scale there and in NVFP4.
pub(super) const SUPER: usize = 256;
pub(super) const BYTES: usize = 210;
pub(super) const GROUP: usize = 16;
/// The end of the name of a matrix, of its scale, and of that of what it multiplies, which is not used.
const WEIGHT: &str = ".weight";
const SCALE: &str = ".scale";
const INPUT_SCALE: &str = ".input_scale";

/// Writes a block of `Q6_K` of E2M1 codes, the scales of its groups, and a factor for all; whether that was possible. Of the largest scale, 64 to 127 units are
/// taken; E4M3 has 4 digits, so that scales down to an eighth of it are whole numbers of units, too.
pub(super) fn store(
    to: &mut [u8],
    code: impl Fn(usize) -> u8,
    scales: [f32; SUPER / GROUP],
    factor: f32,
) -> bool {
    let largest = scales.iter().fold(0.0f32, |most, scale| most.max(scale.abs()));
    // The largest power of 2 that is not above it has the same exponent.
    let unit = f32::from_bits(largest.to_bits() & 0x7f80_0000) / 64.0;
    // A number of the block stands for twice an E2M1 number. Weights of up to 0.08 have such scales below 2^-14, and those of up to 0.02 below 2^-16.
    let (d, finite) = (half(unit * factor / 2.0, 9), scales.iter().all(|scale| scale.is_finite()));
    let Some(d) = d.filter(|_| finite) else { return false };
    let number = |i: usize| (FP4_VALUES[usize::from(code(i) & 15)] + 32) as u8;
    let (low, rest) = to.split_at_mut(128);
    let (high, rest) = rest.split_at_mut(64);
    for (i, to) in low.iter_mut().enumerate() {
        let first = i / 64 * 128 + i % 64;
        *to = number(first) & 15 | (number(first + 64) & 15) << 4;
    }
    for (i, to) in high.iter_mut().enumerate() {
        let first = i / 32 * 128 + i % 32;
        *to = (0..4).fold(0, |byte, pair| byte | number(first + 32 * pair) >> 4 << (2 * pair));
    }
    let units = |scale: f32| if unit > 0.0 { (scale / unit).round() as i8 as u8 } else { 0 };
    rest.iter_mut().zip(scales).for_each(|(to, scale)| *to = units(scale));
    rest[SUPER / GROUP..].copy_from_slice(&d.to_le_bytes());
    true
}

/// The matrix in NVFP4 that a scale belongs to, by the name without its end.
fn matrix<'t>(files: &'t [(PathBuf, Gguf<'_>)], base: &str) -> Option<Tensor<'t>> {
    let weight = files.iter().find_map(|(_, file)| file.tensor(&format!("{base}{WEIGHT}")));
    weight.filter(|weight| weight.ggml_type() == GgmlType::NVFP4)
}

/// Whether a tensor is the scale of such a matrix, or of what it multiplies.
pub(super) fn is_scale(files: &[(PathBuf, Gguf<'_>)], name: &str) -> bool {
    let base = [SCALE, INPUT_SCALE].iter().find_map(|end| name.strip_suffix(end));
    base.is_some_and(|base| matrix(files, base).is_some())
}

/// All matrices in NVFP4 that have a scale, stored anew under their names; nothing if there are none.
///
/// # Errors
/// `BadTensor`: a scale is not finite, or there are neither one nor as many as the matrix has experts.
pub(super) fn scaled(files: &[(PathBuf, Gguf<'_>)]) -> Result<Option<Gguf<'static>>, ModelError> {
    let (mut writer, mut bytes) = (Writer::new(), Vec::new());
    for scale in files.iter().flat_map(|(_, file)| file.tensors()) {
        let Some(base) = scale.name().strip_suffix(SCALE) else { continue };
        let Some(weight) = matrix(files, base) else { continue };
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
    let assembled = |bytes| Gguf::assemble(&writer, bytes).map_err(|e| bad_tensor(SCALE, e));
    (!bytes.is_empty()).then(|| assembled(bytes)).transpose()
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
                self::store(to, code, std::array::from_fn(scale), factor(row))
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
