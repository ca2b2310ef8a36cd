//! Weights of compressed-tensors, ModelOpt, Quark and bitsandbytes, stored anew in formats that products of whole models have.
//!
//! | weights | format | error |
//! |---|---|---|
//! | whole numbers from -8 to 7: up to 4 bits, with zero points up to 3 | `Q4_0` | the scale is rounded to f16: by 2^-11 of it if it was f32, not at all if it was f16, or bf16 within f16's range |
//! | those of 4 bits with zero points | `Q4_1` | the same, and the least number of a block, times the scale, is rounded to f16: by at most 15 * 2^-11 scales |
//! | those from -128 to 127: up to 8 bits, with zero points up to 7 | `Q8_0` | that of the scale |
//! | MXFP4 | `MXFP4` | none |
//! | NVFP4, in rows of a multiple of 256 | `Q6_K`, which has whole numbers for scales of 16 weights, too: twice a weight's number times that of its scale | that of the scale of 256 weights, by up to 2^-9 where that is below 2^-14; and scales of 16 below an eighth of the largest of these are rounded, by at most 1/128 of it |
//!
//! Blocks are not possible where scales belong to other weights than theirs. Then, and for all else (NF4, FP4 of bitsandbytes, MXFP8, numbers beyond 8 bits, scales that f16
//! cannot hold to so many digits), weights become f16. NVFP4's scale of the whole matrix would not fit into blocks of `NVFP4`, whose scales have 4 digits.

use gllm_kernels_core::QuantFormat;
use rayon::prelude::*;
use serde_json::Value as Json;

use super::blocks::{Block, Stored, BLOCK};
use crate::aligned::AlignedVec;
use crate::model::anew::{self, half, halves};
use crate::safetensors::{Codes, CodesRef};

/// Refuses what a configuration says of quantised matrices that their tensors do not: rotations of activations (`transform_config`), as of SpinQuant and QuIP.
///
/// # Errors
/// A reason.
pub(super) fn check(config: &Json) -> Result<(), String> {
    let parts = [Some(config), config.get("text_config")].into_iter().flatten();
    let said = parts.flat_map(|part| ["quantization_config", "compression_config"].map(|key| part.get(key)));
    let is_empty = |value: &Json| match value.get("config_groups").unwrap_or(value) {
        Json::Object(groups) => groups.is_empty(),
        other => other.is_null(),
    };
    let mut rotations = said.filter_map(|quantisation| quantisation?.get("transform_config"));
    match rotations.find(|transform| !is_empty(transform)) {
        Some(transform) => Err(format!(
            "has transform_config {transform}: rotations of what quantised matrices multiply are not supported"
        )),
        None => Ok(()),
    }
}

/// Stores a matrix anew: in blocks, if they may be and a format has its weights.
///
/// # Errors
/// A reason: a weight is not finite.
pub(super) fn stored(w: &CodesRef<'_>, in_blocks: bool) -> Result<Stored, String> {
    if w.outputs() == 0 || w.inputs() == 0 {
        return Ok(Stored { format: None, bytes: AlignedVec::zeroed(0) });
    }
    let Some((format, len, bytes)) = format(w).filter(|_| in_blocks) else { return in_halves(w) };
    let store = |output: usize, values: &mut Vec<f32>, to: &mut [u8]| {
        if !matches!(w.codes(), Codes::Fp4(_)) {
            values.resize(w.inputs(), 0.0);
            w.values(output, values);
        }
        to.chunks_exact_mut(bytes).zip((0..).step_by(len)).all(|(to, input)| match format {
            QuantFormat::Mxfp4 => mxfp4(w, [output, input], to),
            QuantFormat::Q6K => q6_k(w, [output, input], to),
            _ => whole(w.scale(output, input), &values[input..], format, to),
        })
    };
    let row = w.inputs() / len * bytes;
    let mut all = AlignedVec::zeroed(w.outputs() * row);
    let rows = all.par_chunks_exact_mut(row).enumerate();
    match rows.map_init(Vec::new, |values, (output, to)| store(output, values, to)).all(|held| held) {
        true => Ok(Stored { format: Some(format), bytes: all }),
        false => in_halves(w),
    }
}

/// The format of blocks, the weights and the bytes of one.
fn format(w: &CodesRef<'_>) -> Option<(QuantFormat, usize, usize)> {
    let (format, len, group, bytes) = match (w.codes(), w.has_zeros()) {
        (Codes::Strings { bits: ..=4, .. }, false) | (Codes::Strings { bits: ..=3, .. }, true) => {
            (QuantFormat::Q4_0, BLOCK, BLOCK, 18)
        }
        (Codes::Strings { bits: 4, .. }, true) => (QuantFormat::Q4_1, BLOCK, BLOCK, 20),
        (Codes::Strings { .. } | Codes::Signed(_), false) | (Codes::Strings { bits: ..=7, .. }, true) => {
            (QuantFormat::Q8_0, BLOCK, BLOCK, 34)
        }
        (Codes::Fp4(_), _) if w.has_powers_of_two() => (QuantFormat::Mxfp4, BLOCK, BLOCK, 17),
        (Codes::Fp4(_), _) => (QuantFormat::Q6K, anew::SUPER, anew::GROUP, anew::BYTES),
        _ => return None,
    };
    let fits = w.inputs().is_multiple_of(len) && w.run()?.is_multiple_of(group);
    fits.then_some((format, len, bytes))
}

/// Stores a block of whole numbers; whether that was possible.
fn whole(scale: f32, values: &[f32], format: QuantFormat, to: &mut [u8]) -> bool {
    let Some(scale) = half(scale, 11) else { return false };
    Block { scale, numbers: std::array::from_fn(|i| values[i] as i32) }.store(format, to);
    true
}

/// The same of E2M1 numbers with powers of 2, from an output and its input on: blocks have their codes in another order.
fn mxfp4(w: &CodesRef<'_>, [output, input]: [usize; 2], to: &mut [u8]) -> bool {
    // 255 is not a number.
    let Some(scale) = w.e8m0_scale(output, input).filter(|&scale| scale < 255) else { return false };
    let code = |i: usize| w.nibble(output, input + i);
    to[0] = scale;
    to[1..].iter_mut().enumerate().for_each(|(i, to)| *to = code(i) | code(i + BLOCK / 2) << 4);
    true
}

/// The same of E2M1 numbers with E4M3 scales.
fn q6_k(w: &CodesRef<'_>, [output, input]: [usize; 2], to: &mut [u8]) -> bool {
    let scales = std::array::from_fn(|g| w.e4m3_scale(output, input + g * anew::GROUP));
    anew::q6_k(to, |i| w.nibble(output, input + i), scales, w.factor())
}

/// The weights in f16.
fn in_halves(w: &CodesRef<'_>) -> Result<Stored, String> {
    let mut bytes = AlignedVec::zeroed(2 * w.outputs() * w.inputs());
    let rows = bytes.par_chunks_exact_mut(2 * w.inputs()).enumerate();
    rows.try_for_each_init(
        || vec![0.0; w.inputs()],
        |weights, (output, to)| {
            w.row(output, weights)?;
            halves(output, weights.iter().copied(), to)
        },
    )?;
    Ok(Stored { format: None, bytes })
}
