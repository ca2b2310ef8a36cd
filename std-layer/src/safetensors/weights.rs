//! Finding the tensors that together are one quantised weight matrix.

use gllm_kernels_core::{
    AwqRef, Fp8Format, Fp8Ref, Fp8Scaling, GptqParts, GptqRef, GptqZeros, Outliers, ScaleSlice,
    SqueezeLlmParts, SqueezeLlmRef,
};

use super::codes::CodesRef;
use super::{coded, matrix, needed, Checkpoint, Dtype, Tensor};

/// A weight matrix, or any other tensor.
#[derive(Clone, Debug)]
pub struct Weight<'a> {
    /// The tensor's name; of several, what their names have in common.
    pub name: String,
    /// Its kind: `awq`, `gptq-4`, `squeezellm-3`, `f8_e4m3`, those of [`CodesRef`]; of plain tensors, the type.
    pub kind: String,
    /// Dimensions: outputs and inputs of a quantised matrix, else the tensor's.
    pub shape: Vec<usize>,
    /// Bytes of all tensors together.
    pub bytes: u64,
    /// The weights, or why they cannot be used.
    pub view: Result<View<'a>, String>,
}

/// Weights as kernels take them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum View<'a> {
    /// Not quantised.
    Plain(Tensor<'a>),
    /// AWQ.
    Awq(AwqRef<'a>),
    /// GPTQ.
    Gptq(GptqRef<'a>),
    /// SqueezeLLM.
    SqueezeLlm(SqueezeLlmRef<'a>),
    /// FP8.
    Fp8(Fp8Ref<'a>),
    /// Other codes with scales.
    Codes(CodesRef<'a>),
}

/// A scale of 1, for FP8 without one.
static ONE: [f32; 1] = [1.0];

/// The ends of the names of the tensors that make a quantised matrix. The first of them is the one by which a matrix is recognised.
const PARTS: [&str; 8] = ["qweight", "qzeros", "scales", "g_idx", "lookup_table", "rows", "cols", "vals"];

/// Scales of FP8: of the weights, by either name, and of activations, which are not used.
const SCALES: [&str; 4] = ["weight_scale", "weight_scale_inv", "input_scale", "activation_scale"];

/// The same of matrices that are stacked in one tensor: their names begin with that of the tensor.
const SCALES_OF_MANY: [&str; 2] = ["_scale_inv", "_activation_scale"];

/// The type's name in lower case.
fn name_of(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}

impl Checkpoint<'_> {
    /// All weights: quantised matrices as one, other tensors as they are, in the order of the file.
    pub fn weights(&self) -> Vec<Weight<'_>> {
        self.weights_among(|name| self.tensor(name))
    }

    /// The same, where other tensors of a matrix may be in other files: `named` has the tensors of all of them.
    pub(crate) fn weights_among<'t>(&'t self, named: impl Fn(&str) -> Option<Tensor<'t>>) -> Vec<Weight<'t>> {
        let is_fp8 = |t: &Tensor<'_>| matches!(t.dtype, Dtype::F8_E4M3 | Dtype::F8_E5M2);
        let mut weights = Vec::new();
        for tensor in self.tensors() {
            let (base, end) = tensor.name.rsplit_once('.').unwrap_or(("", &tensor.name));
            let part = |end: &str| named(&format!("{base}.{end}"));
            let scaled = SCALES_OF_MANY.iter().find_map(|end| named(tensor.name.strip_suffix(end)?));
            let weight = if end == "qweight" {
                let (kind, shape, view) = self.quantised(&tensor, &part);
                let bytes = PARTS.iter().filter_map(|end| part(end)).map(|t| t.data.len() as u64).sum();
                Weight { name: base.to_owned(), kind, shape, bytes, view }
            } else if PARTS.contains(&end) && part(PARTS[0]).is_some()
                || SCALES.contains(&end) && part("weight").is_some_and(|t| is_fp8(&t))
                || scaled.is_some_and(|t| is_fp8(&t))
                || coded::is_part(&tensor.name, &named)
            {
                // A part of another.
                continue;
            } else if let Some(found) = self.coded(&tensor, &named) {
                let coded::Found { name, kind, shape, bytes, view } = found;
                Weight { name, kind, shape, bytes, view: view.map(View::Codes) }
            } else {
                let scale = match end {
                    "weight" => part(SCALES[0]).or_else(|| part(SCALES[1])),
                    _ => part(&format!("{end}{}", SCALES_OF_MANY[0])),
                };
                let mut bytes = tensor.data.len() as u64;
                let view = match tensor.dtype {
                    Dtype::F32 | Dtype::F16 | Dtype::BF16 => Ok(View::Plain(tensor.clone())),
                    Dtype::F8_E4M3 | Dtype::F8_E5M2 => {
                        bytes += scale.as_ref().map_or(0, |s| s.data.len() as u64);
                        self.fp8(&tensor, scale).map(View::Fp8)
                    }
                    other => Err(format!("type {other:?} is not supported")),
                };
                let (kind, shape) = (name_of(tensor.dtype), tensor.shape.to_vec());
                Weight { name: tensor.name.clone(), kind, shape, bytes, view }
            };
            weights.push(weight);
        }
        weights
    }

    /// Kind, shape and view of the matrix that `qweight` belongs to.
    fn quantised<'t>(
        &self,
        qweight: &Tensor<'t>,
        part: &dyn Fn(&str) -> Option<Tensor<'t>>,
    ) -> (String, Vec<usize>, Result<View<'t>, String>) {
        let (mut kind, mut shape) = ("quantised".to_owned(), qweight.shape.to_vec());
        let view = (|| {
            let words = qweight.numbers::<u32>()?;
            let [rows, cols] = matrix(qweight)?;
            let many = || format!("{} is too large", qweight.name);
            // What is no multiple of 32 is refused later, with the numbers.
            let inputs_of = |bits: u32| Some(rows.checked_mul(32)? / bits as usize);
            if let Some(table) = part("lookup_table") {
                let [outputs, entries] = matrix(&table)?;
                let bits = if entries == 8 { 3 } else { 4 };
                let inputs = inputs_of(bits).ok_or_else(many)?;
                (kind, shape) = (format!("squeezellm-{bits}"), vec![outputs, inputs]);
                let outliers = match (part("rows"), part("cols"), part("vals")) {
                    (Some(rows), Some(cols), Some(vals)) => {
                        Some(Outliers { rows: rows.numbers()?, cols: cols.numbers()?, vals: vals.numbers()? })
                    }
                    _ => None,
                };
                if part("full_rows").is_some() {
                    return Err("full_rows are not supported".to_owned());
                }
                let lookup_table = table.numbers()?;
                let parts = SqueezeLlmParts { bits, qweight: words, lookup_table, outliers };
                let view = SqueezeLlmRef::new(parts, outputs, inputs).map_err(|e| e.to_string())?;
                return Ok(View::SqueezeLlm(view));
            }
            let needed = |end: &str| needed(qweight, end, part(end));
            let (zeros, scales) = (needed("qzeros")?, needed("scales")?);
            let ([groups, zero_words], [_, outputs]) = (matrix(&zeros)?, matrix(&scales)?);
            let (qzeros, scales) = (zeros.numbers()?, scales.numbers()?);
            let q = &self.quantisation;
            // Eight outputs share a word in AWQ, and none do in GPTQ.
            let awq = match q.method.as_deref() {
                Some("awq") => true,
                Some("gptq") => false,
                _ => cols != outputs,
            };
            if awq {
                let inputs = rows;
                (kind, shape) = ("awq".to_owned(), vec![outputs, inputs]);
                if q.bits.is_some_and(|bits| bits != 4) {
                    return Err(format!("AWQ of {} bits is not supported", q.bits.unwrap_or(0)));
                }
                let group = self.group(inputs, groups)?;
                let view = AwqRef::new(words, qzeros, scales, outputs, inputs, group);
                return view.map(View::Awq).map_err(|e| e.to_string());
            }
            let inferred = zero_words.checked_mul(32).and_then(|b| b.checked_div(outputs));
            let bits =
                q.bits.or(inferred.and_then(|b| u32::try_from(b).ok())).filter(|b| (1..=8).contains(b));
            let bits = bits.ok_or_else(|| format!("{}: how many bits?", qweight.name))?;
            let inputs = inputs_of(bits).ok_or_else(many)?;
            (kind, shape) = (format!("gptq-{bits}"), vec![outputs, inputs]);
            let g_idx = part("g_idx").filter(|t| !t.data.is_empty());
            let g_idx = g_idx.map(|t| t.numbers()).transpose()?;
            let zeros = if q.gptq_v2 { GptqZeros::V2 } else { GptqZeros::V1 };
            let group = self.group(inputs, groups)?;
            let parts = GptqParts { bits, group, zeros, qweight: words, qzeros, scales, g_idx };
            GptqRef::new(parts, outputs, inputs).map(View::Gptq).map_err(|e| e.to_string())
        })();
        (kind, shape, view)
    }

    /// Inputs of a group, where there are `groups`.
    pub(super) fn group(&self, inputs: usize, groups: usize) -> Result<usize, String> {
        let told = self.quantisation.group.map(|g| if g == 0 { inputs } else { g });
        let equal = inputs.checked_div(groups).unwrap_or(0);
        let fits = |g: &usize| *g > 0 && inputs.div_ceil(*g) == groups;
        let mut likely = told.into_iter().chain([equal, 128, 64, 32, 256, 512, 1024]);
        likely.find(fits).ok_or_else(|| format!("{groups} groups of {inputs} inputs: of which size?"))
    }

    fn fp8<'t>(&self, weight: &Tensor<'t>, scale: Option<Tensor<'t>>) -> Result<Fp8Ref<'t>, String> {
        // Matrices that are stacked are one below the other.
        let (each, outputs, inputs) = match *weight.shape {
            [count, each, inputs] => (each, count.saturating_mul(each), inputs),
            _ => matrix(weight).map(|[outputs, inputs]| (outputs, outputs, inputs))?,
        };
        let format = if weight.dtype == Dtype::F8_E4M3 { Fp8Format::E4m3 } else { Fp8Format::E5m2 };
        let (mut scales, mut scaling) = (ScaleSlice::F32(&ONE), Fp8Scaling::Tensor);
        if let Some(scale) = &scale {
            scales = match scale.dtype {
                Dtype::F16 => ScaleSlice::F16(scale.numbers()?),
                Dtype::BF16 => ScaleSlice::Bf16(scale.numbers()?),
                _ => ScaleSlice::F32(scale.numbers()?),
            };
            let shape = match *scale.shape {
                [count, down, across] if weight.shape.len() == 3 => vec![count.saturating_mul(down), across],
                [count] if weight.shape.len() == 3 && count == weight.shape[0] => vec![count, 1],
                ref shape => shape.to_vec(),
            };
            scaling = match *shape {
                [] | [1] | [1, 1] => Fp8Scaling::Tensor,
                [n] | [n, 1] if n == outputs => Fp8Scaling::Row,
                [down, across] => {
                    let fits = |&[r, c]: &[usize; 2]| {
                        r > 0
                            && c > 0
                            && outputs.div_ceil(r) == down
                            && inputs.div_ceil(c) == across
                            && (each == outputs || each.is_multiple_of(r))
                    };
                    let equal = [outputs, inputs].into_iter().zip([down, across]);
                    let equal: Vec<usize> =
                        equal.map(|(n, tiles)| n.checked_div(tiles).unwrap_or(0)).collect();
                    let likely = self.quantisation.tile.into_iter().chain([[128, 128], [equal[0], equal[1]]]);
                    let found = likely.into_iter().find(fits);
                    let [rows, cols] =
                        found.ok_or_else(|| format!("{}: tiles of which size?", scale.name))?;
                    Fp8Scaling::Block { rows, cols }
                }
                _ => return Err(format!("{} has {:?} scales", scale.name, scale.shape)),
            };
        }
        Fp8Ref::new(weight.numbers()?, format, outputs, inputs, scales, scaling).map_err(|e| e.to_string())
    }
}
