//! Experts of gpt-oss, of which a checkpoint has those of a layer in one tensor, with the outputs of gate and up in turns: gate, up, gate ..
//!
//! They are stored anew as GGUF files have them: gate and up apart, the inputs of an output one behind the other.
//!
//! | | in checkpoints | here |
//! |---|---|---|
//! | MXFP4 | `experts x outputs x groups x 16` bytes, input `2 i` of a group of 32 in the low half of byte `i`, `2 i + 1` in the high half; `experts x outputs x groups` scales | blocks of a scale and 16 bytes, input `i` in the low half of byte `i`, `i + 16` in the high half |
//! | floating point | `experts x inputs x outputs` | `experts x outputs x inputs` |
//! | biases | `experts x outputs` | the same |
//!
//! Codes and scales stay what they are. (Source: `GptOssExperts` and `convert_moe_packed_tensors` of Hugging Face's library.)

use rayon::prelude::*;

use super::dense::dense;
use super::layout::Part;
use crate::aligned::AlignedVec;
use crate::gguf::GgmlType;
use crate::safetensors::{Dtype, Tensor};

/// Inputs of a group, which has a scale, and bytes of their codes.
const GROUP: usize = 32;
const CODES: usize = GROUP / 2;

/// What a tensor of experts becomes: gate and up, or one; nothing, if it is a part of another. `None` if it stays as it is. `named` has the tensors
/// of all files.
///
/// # Errors
/// A reason: types or shapes are not those of such tensors, or one is missing.
pub(super) fn parts<'t>(
    tensor: &Tensor<'t>,
    named: impl Fn(&str) -> Option<Tensor<'t>>,
) -> Result<Option<Vec<Part>>, String> {
    let Some((_, end)) = tensor.name.rsplit_once(".mlp.experts.") else { return Ok(None) };
    let needed = |name: String| named(&name).ok_or_else(|| format!("{name} is missing"));
    match end {
        "gate_up_proj_blocks" | "down_proj_blocks" => {
            quantised(tensor, &needed(tensor.name.replace("_blocks", "_scales"))?).map(Some)
        }
        "gate_up_proj_scales" | "down_proj_scales" => {
            needed(tensor.name.replace("_scales", "_blocks")).map(|_| Some(Vec::new()))
        }
        "gate_up_proj" | "down_proj" => transposed(tensor).map(Some),
        "gate_up_proj_bias" => biases(tensor).map(Some),
        _ => Ok(None),
    }
}

/// Rows of outputs, each made by its number in the file, on all threads: `dims` are those of the file, of which outputs are the last but one. Where gate
/// and up take turns, each of them gets its own.
fn dealt(
    name: &str,
    of: GgmlType,
    dims: &[usize],
    row_bytes: usize,
    row: impl Fn(usize, &mut [u8]) + Sync,
) -> Result<Vec<Part>, String> {
    let ends: &[&str] = if name.contains("gate_up") { &[".gate", ".up"] } else { &[""] };
    let turns = ends.len();
    let &[.., outputs, experts] = dims else { return Err(format!("{name} has no outputs")) };
    if dims.contains(&0) || !outputs.is_multiple_of(turns) {
        return Err(format!(
            "{name} has the dimensions {dims:?}: none may be 0, and {outputs} must be a multiple of {turns}"
        ));
    }
    let part = |(turn, end): (usize, &&str)| {
        let mut bytes = AlignedVec::zeroed(experts * outputs / turns * row_bytes);
        bytes.par_chunks_exact_mut(row_bytes).enumerate().for_each(|(i, to)| row(i * turns + turn, to));
        let mut own = dims.to_vec();
        own[dims.len() - 2] /= turns;
        let dims = own.into_iter().map(|d| d as u64).collect();
        Part { name: format!("{name}{end}"), dims, of, bytes }
    };
    Ok(ends.iter().enumerate().map(part).collect())
}

fn quantised(blocks: &Tensor<'_>, scales: &Tensor<'_>) -> Result<Vec<Part>, String> {
    let name = blocks.name.trim_end_matches("_blocks");
    let (&[experts, outputs, groups, CODES], true) =
        (blocks.shape, blocks.shape.starts_with(scales.shape) && scales.shape.len() == 3)
    else {
        let (blocks, scales) = (blocks.shape, scales.shape);
        return Err(format!(
            "{name} has blocks of {blocks:?} bytes and scales of {scales:?}: each group has {CODES} bytes and a scale"
        ));
    };
    if let Some(other) = [blocks, scales].into_iter().find(|tensor| tensor.dtype != Dtype::U8) {
        return Err(format!("{} is of type {:?}, not U8", other.name, other.dtype));
    }
    let row = |output: usize, to: &mut [u8]| {
        for (g, to) in (output * groups..).zip(to.chunks_exact_mut(1 + CODES)) {
            let from = &blocks.data[g * CODES..][..CODES];
            let code = |i: usize| from[i / 2] >> (i % 2 * 4) & 15;
            to[0] = scales.data[g];
            to[1..].iter_mut().enumerate().for_each(|(i, to)| *to = code(i) | code(i + CODES) << 4);
        }
    };
    dealt(name, GgmlType::MXFP4, &[groups * GROUP, outputs, experts], groups * (1 + CODES), row)
}

/// Matrices of which a checkpoint has the outputs of an input one behind the other.
fn transposed(tensor: &Tensor<'_>) -> Result<Vec<Part>, String> {
    let (of, size) = dense(tensor)?;
    let &[experts, inputs, outputs] = tensor.shape else { return Err(dimensions(tensor, 3)) };
    let row = |output: usize, to: &mut [u8]| {
        let first = output / outputs * inputs * outputs + output % outputs;
        for (input, to) in to.chunks_exact_mut(size).enumerate() {
            to.copy_from_slice(&tensor.data[(first + input * outputs) * size..][..size]);
        }
    };
    dealt(&tensor.name, of, &[inputs, outputs, experts], inputs * size, row)
}

fn biases(tensor: &Tensor<'_>) -> Result<Vec<Part>, String> {
    let (of, size) = dense(tensor)?;
    let &[experts, outputs] = tensor.shape else { return Err(dimensions(tensor, 2)) };
    let number = |output: usize, to: &mut [u8]| to.copy_from_slice(&tensor.data[output * size..][..size]);
    dealt(&tensor.name, of, &[outputs, experts], size, number)
}

fn dimensions(tensor: &Tensor<'_>, expected: usize) -> String {
    format!("{} has the shape {:?}: it must have {expected} dimensions", tensor.name, tensor.shape)
}
