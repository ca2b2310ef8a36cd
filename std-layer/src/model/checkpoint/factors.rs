//! Factors of matrices. GGUF files have matrices that were multiplied by them.

use gllm_kernels_core::{bf16, f16};

use super::layout::{Part, Whole};
use super::values::Source;
use crate::aligned::AlignedVec;
use crate::gguf::{GgmlType, Value};
use crate::model::Architecture;

/// A factor for each so many rows; for all rows if no number is said.
type OfRows = Vec<(Option<usize>, f64)>;

/// The ends of names of matrices, and factors of their rows.
#[derive(Default)]
pub(super) struct Factors(Vec<(&'static str, OfRows)>);

impl Source<'_> {
    /// The factors of Falcon-H1. Those of embeddings, logits and scores of attention are metadata.
    pub(super) fn factors(&mut self, architecture: Architecture) -> Result<Factors, String> {
        if architecture != Architecture::FalconH1 {
            return Ok(Factors::default());
        }
        let factor = |key: &str| self.get(key).map_or(Ok(1.0), |_| Self::positive(self.json, key));
        let [attention_in, attention_out, keys, space_in, space_out, logits] = [
            "attention_in_multiplier",
            "attention_out_multiplier",
            "key_multiplier",
            "ssm_in_multiplier",
            "ssm_out_multiplier",
            "lm_head_multiplier",
        ]
        .map(factor);
        let (attention_in, space_in) = (attention_in?, space_in?);
        let [gate, down] = self.list("mlp_multipliers")?;
        let of_space: [f64; 5] = self.list("ssm_multipliers")?;
        let needed = |key: &str| Ok::<_, String>(self.size(key)?.unwrap_or(0) as usize);
        let (heads, values) = (needed("mamba_n_heads")?, needed("mamba_d_ssm")?);
        let keys_of_space = needed("mamba_n_groups")?.saturating_mul(needed("mamba_d_state")?);
        let rows = [values, values, keys_of_space, keys_of_space, heads].map(Some);
        let dim = f64::from(self.head_dim()?);
        self.set("attention.scale", Value::F32((attention_in * attention_in * keys? / dim.sqrt()) as f32))?;
        self.set("logit_scale", Value::F32((1.0 / logits?) as f32))?;
        let all = |factor| vec![(None, factor)];
        let mut factors = vec![
            (".mlp.gate_proj.weight", all(gate)),
            (".mlp.down_proj.weight", all(down)),
            // That of values goes with the sums of them.
            (".self_attn.o_proj.weight", all(attention_in * attention_out?)),
            (".linear_attn.in_proj.weight", rows.into_iter().zip(of_space.map(|x| x * space_in)).collect()),
            (".linear_attn.out_proj.weight", all(space_out?)),
        ];
        factors.retain(|(_, all)| all.iter().any(|&(_, factor)| factor != 1.0));
        Ok(Factors(factors))
    }

    /// A list of positive numbers, which are 1 if it is not there.
    fn list<const N: usize>(&self, key: &str) -> Result<[f64; N], String> {
        let Some(list) = self.get(key) else { return Ok([1.0; N]) };
        let number = |x: &serde_json::Value| x.as_f64().filter(|&x| x > 0.0 && x.is_finite());
        let numbers = list.as_array().and_then(|all| all.iter().map(number).collect::<Option<Vec<_>>>());
        let numbers = numbers.and_then(|all| all.try_into().ok());
        numbers.ok_or_else(|| format!("{key} is {list}: it must have {N} positive numbers"))
    }
}

impl Factors {
    /// Whether a matrix has factors.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(end, _)| name.ends_with(end))
    }

    /// The product of a matrix that is not stored in blocks and its factors, if it has any: in f32 if it is so itself, and otherwise in f16, which rounds less than bfloat16 does.
    ///
    /// # Errors
    /// A reason: the factors are not for as many rows, or a product is too large.
    pub(super) fn part(&self, whole: &Whole<'_>) -> Result<Option<Part>, String> {
        let Some((_, factors)) = self.0.iter().find(|(end, _)| whole.name.ends_with(end)) else {
            return Ok(None);
        };
        let &[cols, rows] = whole.dims else {
            return Err(format!("{} has the dimensions {:?}: it must have 2", whole.name, whole.dims));
        };
        let counts = factors.iter().map(|&(count, _)| count.unwrap_or(rows as usize));
        let said = counts.clone().try_fold(0usize, usize::checked_add);
        if said != Some(rows as usize) {
            return Err(format!("{} has {rows} rows, but factors are for {said:?}", whole.name));
        }
        let decode: fn(&[u8]) -> f32 = match whole.of {
            GgmlType::F32 => |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            GgmlType::F16 => |b| f16::from_le_bytes([b[0], b[1]]).to_f32(),
            GgmlType::BF16 => |b| bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            other => return Err(format!("{} has the type {other}, which has no factors", whole.name)),
        };
        let size = if whole.of == GgmlType::F32 { 4 } else { 2 };
        let mut bytes = AlignedVec::zeroed(whole.bytes.len());
        let mut at = 0;
        for (count, &(_, factor)) in counts.zip(factors) {
            let range = at..at + count * cols as usize * size;
            at = range.end;
            let numbers = whole.bytes[range.clone()].chunks_exact(size);
            for (from, to) in numbers.zip(bytes[range].chunks_exact_mut(size)) {
                let product = (f64::from(decode(from)) * factor) as f32;
                if size == 4 {
                    to.copy_from_slice(&product.to_le_bytes());
                    continue;
                }
                let half = f16::from_f32(product);
                if !half.to_f32().is_finite() {
                    return Err(format!(
                        "{} has {product} with its factor, above what f16 holds",
                        whole.name
                    ));
                }
                to.copy_from_slice(&half.to_le_bytes());
            }
        }
        let of = if size == 4 { GgmlType::F32 } else { GgmlType::F16 };
        Ok(Some(Part { name: whole.name.to_owned(), dims: whole.dims.to_vec(), of, bytes }))
    }
}
