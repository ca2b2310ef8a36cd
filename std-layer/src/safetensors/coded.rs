//! Finding the tensors that together are a matrix of codes with scales.
//!
//! | written by | recognised by | tensors |
//! |---|---|---|
//! | compressed-tensors | `weight_packed` in words | `weight_scale`, `weight_shape`, perhaps `weight_zero_point`, `weight_g_idx` |
//! | compressed-tensors | `weight` of I8 | `weight_scale`, perhaps `weight_zero_point` |
//! | compressed-tensors | `weight_packed` in bytes | `weight_scale`, of NVFP4 `weight_global_scale`, by which scales are divided |
//! | compressed-tensors | `weight` of F8_E4M3 | `weight_scale` in bytes (other scales are those of FP8, see [`weights`](super::weights)) |
//! | ModelOpt | `weight` of U8 | `weight_scale`, `weight_scale_2`, by which scales are multiplied |
//! | Quark | `weight` of U8 | `weight_scale` in bytes |
//! | bitsandbytes, 4 bits | `weight` of U8 | `weight.absmax`, `weight.quant_map`, `weight.quant_state.bitsandbytes__nf4` (or `fp4`), perhaps `weight.nested_absmax`, `weight.nested_quant_map` |
//! | bitsandbytes, 8 bits | `weight` of I8 | `SCB`: 127 times the scale of each output |
//!
//! Scales of activations are not used.

use gllm_kernels_core::ScaleSlice;
use serde_json::Value;

use super::codes::{Codes, CodesRef, Scales, Sharing, Zeros};
use super::{matrix, needed, Checkpoint, Dtype, Tensor};

/// The ends of the names of tensors that belong to a matrix beside them: to `weight_packed`, or to a `weight` of codes.
const BESIDE: [&str; 11] = [
    "weight_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "weight_global_scale",
    "weight_scale_2",
    "input_scale",
    "input_global_scale",
    "input_zero_point",
    "SCB",
    "weight_format",
];

/// The ends of names that follow that of the matrix itself.
const BEHIND: [&str; 6] = [
    ".absmax",
    ".quant_map",
    ".nested_absmax",
    ".nested_quant_map",
    ".quant_state.bitsandbytes__nf4",
    ".quant_state.bitsandbytes__fp4",
];

/// A matrix that was found: its name without the last part, kind, outputs and inputs, bytes of all its tensors, and the view.
pub(super) struct Found<'t> {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: u64,
    pub(super) view: Result<CodesRef<'t>, String>,
}

/// Whether a tensor is a part of a matrix of codes, but not the one by which it is recognised.
pub(super) fn is_part<'t>(name: &str, named: impl Fn(&str) -> Option<Tensor<'t>>) -> bool {
    let of_codes = |t: Tensor<'_>| matches!(t.dtype, Dtype::U8 | Dtype::I8);
    let (base, end) = name.rsplit_once('.').unwrap_or(("", name));
    let beside = || {
        named(&format!("{base}.weight_packed")).is_some()
            || named(&format!("{base}.weight")).is_some_and(of_codes)
    };
    let behind = || {
        let whole = BEHIND.iter().find_map(|end| name.strip_suffix(end));
        whole.and_then(&named).is_some_and(of_codes)
    };
    BESIDE.contains(&end) && beside() || behind()
}

impl Checkpoint<'_> {
    /// The matrix of codes that is recognised by this tensor.
    pub(super) fn coded<'t>(
        &self,
        tensor: &Tensor<'t>,
        named: impl Fn(&str) -> Option<Tensor<'t>>,
    ) -> Option<Found<'t>> {
        let (base, end) = tensor.name.rsplit_once('.')?;
        let part = |end: &str| named(&format!("{base}.{end}"));
        let behind = |end: &str| named(&format!("{}{end}", tensor.name));
        let has_powers_of_two =
            || part("weight_scale").is_some_and(|t| matches!(t.dtype, Dtype::U8 | Dtype::F8_E8M0));
        let (kind, view) = match (end, tensor.dtype) {
            ("weight_packed", Dtype::I32) => self.strings(tensor, &part),
            ("weight_packed" | "weight", Dtype::U8) if has_powers_of_two() => {
                ("mxfp4".to_owned(), mx(tensor, &part, 2))
            }
            ("weight", Dtype::F8_E4M3) if has_powers_of_two() => ("mxfp8".to_owned(), mx(tensor, &part, 1)),
            ("weight_packed", Dtype::U8) => {
                let divisor = factor(tensor, "weight_global_scale", part("weight_global_scale"));
                ("nvfp4".to_owned(), divisor.and_then(|divisor| nvfp4(tensor, &part, 1.0 / divisor)))
            }
            ("weight", Dtype::I8) if part("weight_scale").is_some() || part("SCB").is_some() => {
                ("int8".to_owned(), self.bytes(tensor, &part))
            }
            ("weight", Dtype::U8) if part("weight_scale_2").is_some() => {
                let scale = factor(tensor, "weight_scale_2", part("weight_scale_2"));
                ("nvfp4".to_owned(), scale.and_then(|scale| nvfp4(tensor, &part, scale)))
            }
            ("weight", Dtype::U8) if behind(".absmax").is_some() => {
                let kind = if behind(BEHIND[5]).is_some() { "fp4" } else { "nf4" };
                (kind.to_owned(), table(tensor, &behind))
            }
            _ => return None,
        };
        let parts =
            BESIDE.iter().filter_map(|end| part(end)).chain(BEHIND.iter().filter_map(|end| behind(end)));
        let bytes = tensor.data.len() as u64 + parts.map(|t| t.data.len() as u64).sum::<u64>();
        let shape = view.as_ref().map_or(tensor.shape.to_vec(), |w| vec![w.outputs, w.inputs]);
        Some(Found { name: base.to_owned(), kind, shape, bytes, view })
    }

    /// Whole numbers in strings of bits.
    fn strings<'t>(
        &self,
        packed: &Tensor<'t>,
        part: &dyn Fn(&str) -> Option<Tensor<'t>>,
    ) -> (String, Result<CodesRef<'t>, String>) {
        let mut kind = "int".to_owned();
        let view = (|| {
            let (words, [rows, row]) = (packed.numbers::<u32>()?, matrix(packed)?);
            let shape = needed(packed, "weight_shape", part("weight_shape"))?;
            let [outputs, inputs] = sizes(&shape)?;
            let words_of = |n: usize, bits: u32| Some(n.checked_mul(bits as usize)?.div_ceil(32));
            let mut fitting = (1..=8).filter(|&bits| words_of(inputs, bits) == Some(row));
            let (bits, other) = (fitting.next(), fitting.next());
            let bits = bits.filter(|_| outputs == rows && other.is_none()).ok_or_else(|| {
                format!(
                    "{} is {rows} x {row}, for {outputs} outputs and {inputs} inputs: how many bits?",
                    packed.name
                )
            })?;
            kind = format!("int{bits}");
            let index = part("weight_g_idx").filter(|t| !t.data.is_empty());
            let index = index.map(|t| t.numbers::<u32>()).transpose()?;
            let (scales, sharing) = self.scales(packed, [outputs, inputs], index, part)?;
            let groups = scales.len().checked_div(outputs).unwrap_or(0);
            let zeros = match part("weight_zero_point") {
                Some(t) if t.dtype == Dtype::I32 => {
                    let words = t.numbers::<u32>()?;
                    let expected = words_of(outputs, bits).and_then(|n| n.checked_mul(groups));
                    if groups == 0 || expected != Some(words.len()) {
                        return Err(format!("{} has {} words, of {groups} groups", t.name, words.len()));
                    }
                    Some(Zeros::Strings { words, bits, groups })
                }
                other => signed_zeros(other, &scales)?,
            };
            Ok(CodesRef { outputs, inputs, codes: Codes::Strings { words, bits }, zeros, scales, sharing })
        })();
        (kind, view)
    }

    /// Whole numbers of 8 bits.
    fn bytes<'t>(
        &self,
        weight: &Tensor<'t>,
        part: &dyn Fn(&str) -> Option<Tensor<'t>>,
    ) -> Result<CodesRef<'t>, String> {
        let [outputs, inputs] = matrix(weight)?;
        let codes = Codes::Signed(weight.numbers()?);
        if let Some(largest) = part("SCB") {
            let scales = Scales::Floats(ScaleSlice::F32(largest.numbers()?), 1.0 / 127.0);
            if scales.len() != outputs {
                return Err(format!("{} has {} numbers for {outputs} outputs", largest.name, scales.len()));
            }
            let sharing = Sharing::Runs { len: inputs.max(1), groups: 1 };
            return Ok(CodesRef { outputs, inputs, codes, zeros: None, scales, sharing });
        }
        let (scales, sharing) = self.scales(weight, [outputs, inputs], None, part)?;
        let zeros = signed_zeros(part("weight_zero_point"), &scales)?;
        Ok(CodesRef { outputs, inputs, codes, zeros, scales, sharing })
    }

    /// The scales of whole numbers, and which weights share one.
    fn scales<'t>(
        &self,
        weight: &Tensor<'t>,
        [outputs, inputs]: [usize; 2],
        index: Option<&'t [u32]>,
        part: &dyn Fn(&str) -> Option<Tensor<'t>>,
    ) -> Result<(Scales<'t>, Sharing<'t>), String> {
        let scale = needed(weight, "weight_scale", part("weight_scale"))?;
        let scales = match scale.dtype {
            Dtype::F16 => ScaleSlice::F16(scale.numbers()?),
            Dtype::BF16 => ScaleSlice::Bf16(scale.numbers()?),
            _ => ScaleSlice::F32(scale.numbers()?),
        };
        let sharing = match (scale.shape, index) {
            (&[n, groups], Some(of)) if n == outputs => {
                if of.len() != inputs || of.iter().any(|&g| g as usize >= groups) {
                    return Err(format!(
                        "weight_g_idx has {} numbers, which must be {inputs} below {groups}",
                        of.len()
                    ));
                }
                Sharing::Index { of, groups }
            }
            ([] | [1] | [1, 1], None) => Sharing::Whole,
            (&[n] | &[n, 1], None) if n == outputs => Sharing::Runs { len: inputs.max(1), groups: 1 },
            (&[n, groups], None) if n == outputs => {
                Sharing::Runs { len: self.group(inputs, groups)?, groups }
            }
            (shape, _) => return Err(format!("{} has {shape:?} scales for {outputs} outputs", scale.name)),
        };
        Ok((Scales::Floats(scales, 1.0), sharing))
    }
}

/// Zero points of 8 bits, if there are any.
fn signed_zeros<'t>(zeros: Option<Tensor<'t>>, scales: &Scales<'_>) -> Result<Option<Zeros<'t>>, String> {
    let Some(zeros) = zeros else { return Ok(None) };
    if zeros.dtype != Dtype::I8 || zeros.data.len() != scales.len() {
        return Err(format!(
            "{} is of type {:?}, with {} bytes for {} scales",
            zeros.name,
            zeros.dtype,
            zeros.data.len(),
            scales.len()
        ));
    }
    Ok(Some(Zeros::Signed(zeros.numbers()?)))
}

/// The only number of a tensor.
fn factor(weight: &Tensor<'_>, end: &str, tensor: Option<Tensor<'_>>) -> Result<f32, String> {
    let tensor = needed(weight, end, tensor)?;
    match tensor.numbers::<f32>()? {
        [one] => Ok(*one),
        numbers => Err(format!("{} has {} numbers, not 1", tensor.name, numbers.len())),
    }
}

/// The sizes of a matrix, which a tensor says.
fn sizes(tensor: &Tensor<'_>) -> Result<[usize; 2], String> {
    let bytes = match tensor.dtype {
        Dtype::I64 => 8,
        Dtype::I32 => 4,
        other => return Err(format!("{} is of type {other:?}", tensor.name)),
    };
    let number = |of: &[u8]| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(of);
        usize::try_from(u64::from_le_bytes(word)).ok()
    };
    let all: Option<Vec<usize>> = tensor.data.chunks_exact(bytes).map(number).collect();
    match all.as_deref() {
        Some(&[outputs, inputs]) => Ok([outputs, inputs]),
        all => Err(format!("{} says {all:?}, not 2 sizes", tensor.name)),
    }
}

/// E2M1 numbers with scales in E4M3 and a factor of the matrix.
fn nvfp4<'t>(
    weight: &Tensor<'t>,
    part: &dyn Fn(&str) -> Option<Tensor<'t>>,
    factor: f32,
) -> Result<CodesRef<'t>, String> {
    let scale = needed(weight, "weight_scale", part("weight_scale"))?;
    if scale.dtype != Dtype::F8_E4M3 {
        return Err(format!("{} is of type {:?}", scale.name, scale.dtype));
    }
    in_groups(weight, &scale, 16, (Codes::Fp4(weight.data), 2), Scales::E4m3(scale.data, factor))
}

/// E2M1 numbers, two in a byte, or E4M3 numbers, with powers of 2.
fn mx<'t>(
    weight: &Tensor<'t>,
    part: &dyn Fn(&str) -> Option<Tensor<'t>>,
    in_byte: usize,
) -> Result<CodesRef<'t>, String> {
    let scale = needed(weight, "weight_scale", part("weight_scale"))?;
    let codes = if in_byte == 2 { Codes::Fp4(weight.data) } else { Codes::Fp8(weight.data) };
    in_groups(weight, &scale, 32, (codes, in_byte), Scales::E8m0(scale.data))
}

/// A matrix of which so many inputs that follow each other share a scale.
fn in_groups<'t>(
    weight: &Tensor<'t>,
    scale: &Tensor<'t>,
    len: usize,
    (codes, in_byte): (Codes<'t>, usize),
    scales: Scales<'t>,
) -> Result<CodesRef<'t>, String> {
    let [outputs, bytes] = matrix(weight)?;
    let inputs = bytes.checked_mul(in_byte).ok_or_else(|| format!("{} is too large", weight.name))?;
    let groups = inputs.div_ceil(len);
    if scale.shape != [outputs, groups] {
        let shape = scale.shape;
        return Err(format!("{} has {shape:?} scales for {outputs} outputs and {inputs} inputs", scale.name));
    }
    let sharing = Sharing::Runs { len, groups };
    Ok(CodesRef { outputs, inputs, codes, zeros: None, scales, sharing })
}

/// Numbers of a table.
fn table<'t>(
    weight: &Tensor<'t>,
    behind: &dyn Fn(&str) -> Option<Tensor<'t>>,
) -> Result<CodesRef<'t>, String> {
    let part = |end: &str| needed(weight, end, behind(end));
    let state = part(BEHIND[4]).or_else(|_| part(BEHIND[5]))?;
    let wrong = |what: &str| format!("{} says no {what}", state.name);
    let said: Value = serde_json::from_slice(state.data).map_err(|e| format!("{}: {e}", state.name))?;
    let size = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    let number = |key: &str| said.get(key).and_then(size).filter(|&n| n > 0).ok_or_else(|| wrong(key));
    let shape: Option<Vec<usize>> =
        said.get("shape").and_then(Value::as_array).and_then(|all| all.iter().map(size).collect());
    let Some(&[outputs, inputs]) = shape.as_deref() else { return Err(wrong("shape of a matrix")) };
    let (len, bytes) = (number("blocksize")?, weight.numbers::<u8>()?);
    let count = outputs.checked_mul(inputs).filter(|n| n.div_ceil(2) == bytes.len()).ok_or_else(|| {
        format!("{} has {} bytes for {outputs} x {inputs} weights", weight.name, bytes.len())
    })?;
    let map = part(BEHIND[1])?;
    let values = map.numbers::<f32>()?;
    if values.len() != 16 {
        return Err(format!("{} has {} numbers, not 16", map.name, values.len()));
    }
    let largest = part(BEHIND[0])?;
    let scales = match largest.dtype {
        Dtype::U8 => {
            let (outer, map) = (part(BEHIND[2])?, part(BEHIND[3])?);
            let (outer, map, len) =
                (outer.numbers::<f32>()?, map.numbers::<f32>()?, number("nested_blocksize")?);
            let codes = largest.numbers::<u8>()?;
            if map.len() != 256 || outer.len() < codes.len().div_ceil(len) {
                return Err(format!(
                    "{} has {} codes, with {} numbers for blocks of {len}, and {} in their map",
                    largest.name,
                    codes.len(),
                    outer.len(),
                    map.len()
                ));
            }
            let offset =
                said.get("nested_offset").and_then(Value::as_f64).ok_or_else(|| wrong("nested_offset"))?;
            Scales::Nested { codes, map, outer, len, offset: offset as f32 }
        }
        _ => Scales::Floats(ScaleSlice::F32(largest.numbers()?), 1.0),
    };
    if scales.len() != count.div_ceil(len) {
        return Err(format!(
            "{} has {} scales for {count} weights in blocks of {len}",
            largest.name,
            scales.len()
        ));
    }
    let (codes, sharing) = (Codes::Table { bytes, values }, Sharing::Flat(len));
    Ok(CodesRef { outputs, inputs, codes, zeros: None, scales, sharing })
}
