//! Matrices whose rows checkpoints store in another order than GGUF files, or that become several ones.

use rayon::prelude::*;

use crate::aligned::AlignedVec;
use crate::gguf::GgmlType;

/// A matrix as it is stored: its bytes are those of its rows, one behind the other.
pub(super) struct Whole<'a> {
    pub(super) name: &'a str,
    /// The contiguous dimension first.
    pub(super) dims: &'a [u64],
    pub(super) of: GgmlType,
    pub(super) bytes: &'a [u8],
}

/// A tensor of the file in memory.
pub(super) struct Part {
    pub(super) name: String,
    /// The contiguous dimension first.
    pub(super) dims: Vec<u64>,
    pub(super) of: GgmlType,
    pub(super) bytes: AlignedVec<u8>,
}

/// What a model's matrices are stored like, other than in GGUF files.
#[derive(Clone, Copy, Default)]
pub(super) enum Layout {
    #[default]
    Usual,
    /// Of latent attention, a matrix has the rows of all heads: of each head those of keys, `plain`, and those of `values`.
    Latent { heads: usize, plain: usize, values: usize },
}

impl Layout {
    /// Whether a matrix's numbers change places within rows: then it cannot be stored in blocks.
    pub(super) fn needs_numbers(&self, name: &str) -> bool {
        matches!(self, Self::Latent { .. }) && name.ends_with(LATENT)
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
            _ => Err(format!(
                "{} has the dimensions {:?}: the configuration's heads need 2 of them, the second {}",
                self.name,
                self.dims,
                rows.map_or("2^64 or more".to_owned(), |rows| rows.to_string())
            )),
        }
    }

    /// A matrix of `count` of the rows, each chosen by its number in the new one.
    fn gathered(
        &self,
        name: String,
        dims: Vec<u64>,
        count: usize,
        row: impl Fn(usize) -> usize + Sync,
    ) -> Part {
        let len = self.bytes.len() / self.dims[1] as usize;
        let mut bytes = AlignedVec::zeroed(count * len);
        let fill = |(i, to): (usize, &mut [u8])| to.copy_from_slice(&self.bytes[row(i) * len..][..len]);
        bytes.par_chunks_exact_mut(len).enumerate().for_each(fill);
        Part { name, dims, of: self.of, bytes }
    }
}

/// The matrix of keys and values of latent attention.
const LATENT: &str = ".self_attn.kv_b_proj.weight";

/// For each head a matrix of keys, transposed, and one of values.
fn latent(whole: &Whole<'_>, [heads, plain, values]: [usize; 3]) -> Result<Vec<Part>, String> {
    let each = plain.checked_add(values);
    let row_bytes = whole.row_bytes(each.and_then(|each| each.checked_mul(heads)))?;
    let (each, rank) = (plain + values, whole.dims[0] as usize);
    let size = row_bytes / rank;
    if plain == 0 || values == 0 || size * rank != row_bytes {
        return Err(format!("{} has heads of {plain} and {values} rows of {row_bytes} bytes", whole.name));
    }
    let name = |end: &str| whole.name.replace(".weight", end);
    let mut keys = AlignedVec::zeroed(heads * rank * plain * size);
    keys.par_chunks_exact_mut(plain * size).enumerate().for_each(|(row, to)| {
        let (head, input) = (row / rank, row % rank);
        for (output, to) in to.chunks_exact_mut(size).enumerate() {
            let from = (head * each + output) * row_bytes + input * size;
            to.copy_from_slice(&whole.bytes[from..][..size]);
        }
    });
    let dims = |dims: [usize; 3]| dims.map(|d| d as u64).to_vec();
    let keys = Part { name: name(".keys"), dims: dims([plain, rank, heads]), of: whole.of, bytes: keys };
    let row = |i: usize| i / values * each + plain + i % values;
    Ok(vec![keys, whole.gathered(name(".values"), dims([rank, values, heads]), heads * values, row)])
}
