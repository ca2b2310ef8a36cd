//! Matrices whose rows checkpoints store in another order than GGUF files, or that become several ones.

use rayon::prelude::*;

use super::values::Source;
use crate::aligned::AlignedVec;
use crate::gguf::GgmlType;
use crate::model::Architecture;

/// A matrix as it is stored: its bytes are those of its rows, one behind the other.
pub(in crate::model) struct Whole<'a> {
    pub(in crate::model) name: &'a str,
    /// The contiguous dimension first.
    pub(in crate::model) dims: &'a [u64],
    pub(in crate::model) of: GgmlType,
    pub(in crate::model) bytes: &'a [u8],
}

/// A tensor of the file in memory.
pub(in crate::model) struct Part {
    pub(in crate::model) name: String,
    /// The contiguous dimension first.
    pub(in crate::model) dims: Vec<u64>,
    pub(in crate::model) of: GgmlType,
    pub(in crate::model) bytes: AlignedVec<u8>,
}

/// What a model's matrices are stored like, other than in GGUF files.
#[derive(Clone, Copy, Default)]
pub(super) enum Layout {
    #[default]
    Usual,
    /// Of latent attention, a matrix has the rows of all heads: of each head those of keys, `plain`, and those of `values`.
    Latent { heads: usize, plain: usize, values: usize },
    /// Of linear attention, a matrix has the rows of all heads of keys: of each those of its queries, of its keys, `key_size` each, and those of its values and
    /// of their gates, `value_size` each.
    Linear { key_heads: usize, key_size: usize, value_size: usize },
    /// Of all experts together, matrices have the outputs of an input one behind the other.
    Experts { hidden: usize },
    /// Of the network beside experts, gate and up are one matrix, one above the other.
    SharedHalves,
    /// Queries, keys and values are one matrix with the rows of all heads of keys: of each those of its `queries` heads of queries, its own, and those of its values.
    Groups { heads: usize, queries: usize, size: usize },
    /// The matrices of layers have the outputs of an input one behind the other.
    Transposed,
    /// So many rows of positions come before that of the first one.
    Positions { skipped: usize },
    /// Gate and up as in [`SharedHalves`](Self::SharedHalves); and numbers of heads have one dimension, and the weights of norms of these in so many groups.
    StateSpace { groups: usize },
}

impl Source<'_> {
    /// Which matrices are stored in another order than in GGUF files.
    pub(super) fn layout(&mut self, architecture: Architecture) -> Result<Layout, String> {
        let size = |key: &str| Ok::<_, String>(self.size(key)?.unwrap_or(0) as usize);
        Ok(match architecture {
            // The first Falcon has one head of keys, behind those of queries.
            Architecture::Falcon if !self.has_groups()? => Layout::Usual,
            Architecture::InternLm2 | Architecture::GptNeoX | Architecture::Falcon => {
                let heads = self.size("num_attention_heads")?.unwrap_or(0);
                let groups = match architecture {
                    Architecture::GptNeoX => heads,
                    _ => self.size("num_key_value_heads")?.unwrap_or(heads),
                };
                let queries = heads.checked_div(groups).unwrap_or(0) as usize;
                Layout::Groups { heads: groups as usize, queries, size: self.head_dim()? as usize }
            }
            Architecture::Bert => match self.skipped_positions()? {
                0 => Layout::Usual,
                skipped => Layout::Positions { skipped: skipped as usize },
            },
            Architecture::Gpt2 => Layout::Transposed,
            Architecture::GraniteMoe => Layout::SharedHalves,
            Architecture::GraniteHybrid | Architecture::FalconH1 => {
                Layout::StateSpace { groups: size("mamba_n_groups")? }
            }
            Architecture::NemotronH | Architecture::NemotronHMoe | Architecture::Mamba2 => {
                Layout::StateSpace { groups: size("n_groups")? }
            }
            Architecture::Qwen3VlMoe | Architecture::Llama4 => {
                Layout::Experts { hidden: size("hidden_size")? }
            }
            Architecture::Qwen3Next => {
                let (key_heads, heads) = (size("linear_num_key_heads")?, size("linear_num_value_heads")?);
                let each = heads.checked_div(key_heads).unwrap_or(0);
                let value_size = each.saturating_mul(size("linear_value_head_dim")?);
                Layout::Linear { key_heads, key_size: size("linear_key_head_dim")?, value_size }
            }
            _ => self.latent(architecture)?,
        })
    }

    /// Whether heads of keys of Falcon stand with those of queries that they serve.
    pub(super) fn has_groups(&self) -> Result<bool, String> {
        let first = self.get("model_type").is_some_and(|kind| kind == "RefinedWeb");
        Ok(self.flag("new_decoder_architecture")?.unwrap_or(first))
    }
}

impl Layout {
    /// Whether a matrix's numbers change places within rows: then it cannot be stored in blocks.
    pub(super) fn needs_numbers(&self, name: &str) -> bool {
        match self {
            Self::Latent { .. } => name.ends_with(LATENT),
            Self::Experts { .. } => EXPERTS.iter().any(|end| name.ends_with(end)),
            Self::Transposed => name.ends_with("_proj.weight"),
            _ => false,
        }
    }

    /// The dimensions of a tensor of floating point, the contiguous one first, as GGUF files have them.
    pub(super) fn dims(&self, name: &str, mut dims: Vec<u64>) -> Vec<u64> {
        // Channels that are convolved have one input each.
        if name.ends_with(".conv1d.weight") || name.ends_with(".conv.weight") {
            dims.retain(|&d| d != 1);
        }
        let Self::StateSpace { groups } = *self else { return dims };
        match &dims[..] {
            [_] if [".linear_attn.A_log", ".linear_attn.D"].iter().any(|end| name.ends_with(end)) => {
                dims.insert(0, 1);
            }
            &[n] if name.ends_with(".linear_attn.norm.weight")
                && groups > 1
                && n.is_multiple_of(groups as u64) =>
            {
                dims = vec![n / groups as u64, groups as u64];
            }
            _ => {}
        }
        dims
    }

    /// What a matrix becomes; `None` if it stays as it is.
    ///
    /// # Errors
    /// A reason: it does not have the shape that the configuration says.
    pub(super) fn parts(&self, whole: &Whole<'_>) -> Result<Option<Vec<Part>>, String> {
        match *self {
            Self::Latent { heads, plain, values } if whole.name.ends_with(LATENT) => {
                latent(whole, [heads, plain, values]).map(Some)
            }
            Self::Linear { key_heads, key_size, value_size } if whole.name.ends_with(LINEAR) => {
                linear(whole, key_heads, [key_size, value_size]).map(Some)
            }
            Self::Experts { hidden } if self.needs_numbers(whole.name) => experts(whole, hidden),
            Self::Groups { heads, queries, size } if QKV.iter().any(|end| whole.name.ends_with(end)) => {
                groups(whole, heads, [queries, size]).map(|part| Some(vec![part]))
            }
            Self::Transposed if self.needs_numbers(whole.name) => {
                transposed(whole).map(|part| Some(vec![part]))
            }
            Self::Positions { skipped } if whole.name.ends_with(POSITIONS) => {
                positions(whole, skipped).map(|part| Some(vec![part]))
            }
            Self::SharedHalves | Self::StateSpace { .. } if whole.name.ends_with(HALVES) => {
                halves(whole).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Whole<'_> {
    /// Checks that there are so many rows, which are not empty, and gives the bytes of one.
    fn row_bytes(&self, rows: Option<usize>) -> Result<usize, String> {
        match (self.dims, rows) {
            (&[inputs, outputs], Some(rows)) if inputs > 0 && rows > 0 && outputs == rows as u64 => {
                Ok(self.bytes.len() / rows)
            }
            // A bias.
            (&[outputs], Some(rows)) if rows > 0 && outputs == rows as u64 => Ok(self.bytes.len() / rows),
            _ => Err(format!(
                "{} has the dimensions {:?}: the configuration's heads need 2 of them, the second {}",
                self.name,
                self.dims,
                rows.map_or("2^64 or more".to_owned(), |rows| rows.to_string())
            )),
        }
    }

    /// `count` matrices of `rows x cols`, each transposed, of which one begins every so many rows.
    fn transposed(&self, count: usize, [rows, cols]: [usize; 2], every: usize) -> AlignedVec<u8> {
        let size = self.bytes.len() / (count * every * cols);
        let mut bytes = AlignedVec::zeroed(count * cols * rows * size);
        bytes.par_chunks_exact_mut(rows * size).enumerate().for_each(|(i, to)| {
            let (matrix, col) = (i / cols, i % cols);
            for (row, to) in to.chunks_exact_mut(size).enumerate() {
                let from = ((matrix * every + row) * cols + col) * size;
                to.copy_from_slice(&self.bytes[from..][..size]);
            }
        });
        bytes
    }

    /// A matrix of `count` of the rows, each chosen by its number in the new one.
    fn gathered(
        &self,
        name: String,
        dims: Vec<u64>,
        count: usize,
        row: impl Fn(usize) -> usize + Sync,
    ) -> Part {
        let len = self.bytes.len() / self.dims[self.dims.len() - 1] as usize;
        let mut bytes = AlignedVec::zeroed(count * len);
        let fill = |(i, to): (usize, &mut [u8])| to.copy_from_slice(&self.bytes[row(i) * len..][..len]);
        bytes.par_chunks_exact_mut(len).enumerate().for_each(fill);
        Part { name, dims, of: self.of, bytes }
    }
}

/// The matrix of keys and values of latent attention.
const LATENT: &str = ".self_attn.kv_b_proj.weight";

/// For each head a matrix of keys, transposed, and one of values.
pub(in crate::model) fn latent(
    whole: &Whole<'_>,
    [heads, plain, values]: [usize; 3],
) -> Result<Vec<Part>, String> {
    if whole.dims.len() != 2 {
        return Err(format!("{} has the dimensions {:?}: it must have 2", whole.name, whole.dims));
    }
    let each = plain.checked_add(values);
    let row_bytes = whole.row_bytes(each.and_then(|each| each.checked_mul(heads)))?;
    let (each, rank) = (plain + values, whole.dims[0] as usize);
    let size = row_bytes / rank;
    if plain == 0 || values == 0 || size * rank != row_bytes {
        return Err(format!("{} has heads of {plain} and {values} rows of {row_bytes} bytes", whole.name));
    }
    let name = |end: &str| whole.name.replace(".weight", end);
    let keys = whole.transposed(heads, [plain, rank], each);
    let dims = |dims: [usize; 3]| dims.map(|d| d as u64).to_vec();
    let keys = Part { name: name(".keys"), dims: dims([plain, rank, heads]), of: whole.of, bytes: keys };
    let row = |i: usize| i / values * each + plain + i % values;
    Ok(vec![keys, whole.gathered(name(".values"), dims([rank, values, heads]), heads * values, row)])
}

/// The matrix of queries, keys, values and gates of linear attention.
const LINEAR: &str = ".linear_attn.in_proj_qkvz.weight";

/// Queries, keys and values of all heads in one matrix, and gates in another.
fn linear(whole: &Whole<'_>, heads: usize, [key, value]: [usize; 2]) -> Result<Vec<Part>, String> {
    if whole.dims.len() != 2 {
        return Err(format!("{} has the dimensions {:?}: it must have 2", whole.name, whole.dims));
    }
    let half = key.checked_add(value);
    whole.row_bytes(half.and_then(|half| half.checked_mul(2)?.checked_mul(heads)))?;
    let (each, inputs) = (2 * (key + value), whole.dims[0]);
    // Row `i` of what begins at `start` among the rows of a head, and has `len` there.
    let row = |i: usize, start: usize, len: usize| i / len * each + start + i % len;
    let (keys, values) = (heads * key, heads * value);
    let qkv = |i: usize| match i {
        q if q < keys => row(q, 0, key),
        k if k < 2 * keys => row(k - keys, key, key),
        v => row(v - 2 * keys, 2 * key, value),
    };
    let part = |to: &str, count: usize, of: &(dyn Fn(usize) -> usize + Sync)| {
        whole.gathered(whole.name.replace("_qkvz.", to), vec![inputs, count as u64], count, of)
    };
    Ok(vec![part("_qkv.", 2 * keys + values, &qkv), part("_z.", values, &|i| row(i, 2 * key + value, value))])
}

/// Matrices of all experts.
const EXPERTS: [&str; 2] = [".mlp.experts.gate_up_proj", ".mlp.experts.down_proj"];

/// The same with the inputs of an output one behind the other.
fn experts(whole: &Whole<'_>, hidden: usize) -> Result<Option<Vec<Part>>, String> {
    let &[cols, rows, count] = whole.dims else {
        return Err(format!("{} has the dimensions {:?}: it must have 3", whole.name, whole.dims));
    };
    if whole.dims.contains(&0) {
        return Err(format!("{} has the dimensions {:?}: none may be 0", whole.name, whole.dims));
    }
    // Newer versions of Hugging Face's library write the usual shape, which is not changed.
    let [inputs, other] = if whole.name.ends_with(EXPERTS[0]) { [rows, cols] } else { [cols, rows] };
    match [inputs, other].map(|n| n == hidden as u64) {
        [true, true] => {
            return Err(format!(
                "{} has square matrices of {hidden} elements, so that it does not tell whether they are transposed",
                whole.name
            ))
        }
        [false, true] => return Ok(None),
        _ => {}
    }
    let sizes = [rows, cols].map(|n| n as usize);
    let bytes = whole.transposed(count as usize, sizes, sizes[0]);
    Ok(Some(vec![Part { name: whole.name.to_owned(), dims: vec![rows, cols, count], of: whole.of, bytes }]))
}

/// Gate and up of the network beside experts.
const HALVES: &str = ".gate_up_proj.weight";

/// Both apart.
fn halves(whole: &Whole<'_>) -> Result<Vec<Part>, String> {
    let rows = whole.dims.get(1).map(|&rows| rows as usize).filter(|rows| rows.is_multiple_of(2));
    whole.row_bytes(rows)?;
    let half = whole.dims[1] / 2;
    let part = |to: &str, start: u64| {
        let row = move |i: usize| start as usize + i;
        let dims = vec![whole.dims[0], half];
        whole.gathered(whole.name.replace(".gate_up_proj.", to), dims, half as usize, row)
    };
    Ok(vec![part(".gate_proj.", 0), part(".up_proj.", half)])
}

/// A matrix with the inputs of an output one behind the other.
fn transposed(whole: &Whole<'_>) -> Result<Part, String> {
    whole.row_bytes(whole.dims.get(1).map(|&rows| rows as usize))?;
    let sizes = [whole.dims[1], whole.dims[0]].map(|n| n as usize);
    let bytes = whole.transposed(1, sizes, sizes[0]);
    Ok(Part { name: whole.name.to_owned(), dims: vec![whole.dims[1], whole.dims[0]], of: whole.of, bytes })
}

/// The rows of positions.
const POSITIONS: &str = "embeddings.position_embeddings.weight";

/// The same without the first ones.
fn positions(whole: &Whole<'_>, skipped: usize) -> Result<Part, String> {
    let rows = whole.dims.get(1).map(|&rows| rows as usize).filter(|&rows| rows > skipped);
    whole.row_bytes(rows)?;
    let count = whole.dims[1] as usize - skipped;
    let dims = vec![whole.dims[0], count as u64];
    Ok(whole.gathered(whole.name.to_owned(), dims, count, |i| i + skipped))
}

/// Queries, keys and values in one matrix, and their biases.
const QKV: [&str; 2] = [".self_attn.qkv_proj.weight", ".self_attn.qkv_proj.bias"];

/// The same with all queries first, then all keys, then all values.
fn groups(whole: &Whole<'_>, heads: usize, [queries, size]: [usize; 2]) -> Result<Part, String> {
    let each = queries.checked_add(2).and_then(|each| each.checked_mul(size));
    whole.row_bytes(each.and_then(|each| each.checked_mul(heads)))?;
    let (of_queries, of_keys) = (queries * size, size);
    let all = heads * of_queries;
    let row = |i: usize| {
        let (i, len, start) = match i {
            q if q < all => (q, of_queries, 0),
            k if k < all + heads * of_keys => (k - all, of_keys, of_queries),
            v => (v - all - heads * of_keys, of_keys, of_queries + of_keys),
        };
        i / len * (of_queries + 2 * of_keys) + start + i % len
    };
    let rows = heads * (of_queries + 2 * of_keys);
    Ok(whole.gathered(whole.name.to_owned(), whole.dims.to_vec(), rows, row))
}
