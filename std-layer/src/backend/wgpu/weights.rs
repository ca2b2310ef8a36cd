//! Weights on the device.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use gllm_kernels_core::{MatRef, QuantFormat};
use rayon::prelude::*;
use wgpu::{Buffer, BufferUsages};

use super::device::Gpu;
use super::formats::Format;
use crate::backend::suits::check_for_wgpu;
use crate::backend::tensors::{Tensors, Upload};
use crate::backend::{BackendError, Linear, Progress};
use crate::model::{Config, ExpertWeights as HostExperts, HostWeights, LayerWeights, Matrix as HostMatrix};

pub(super) use super::formats::PART;

/// Some consecutive rows of a matrix, in one buffer.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) buffer: Buffer,
    pub(super) first: usize,
    pub(super) rows: usize,
    /// The word from which on there are scales that do not lie in blocks.
    pub(super) tails: u32,
}

/// A matrix, or several of one format and width, one below the other. No buffer is larger than what shaders can see.
#[derive(Debug)]
pub(super) struct Matrix {
    pub(super) format: Format,
    pub(super) cols: usize,
    pub(super) rows: Vec<Rows>,
}

impl Matrix {
    pub(super) fn height(&self) -> usize {
        self.rows.last().map_or(0, |last| last.first + last.rows)
    }

    /// Parts of a row.
    pub(super) fn parts(&self) -> u32 {
        self.cols.div_ceil(PART) as u32
    }
}

/// A matrix of each expert, one below the other.
#[derive(Debug)]
pub(super) struct OfExperts {
    pub(super) matrix: Matrix,
    /// Rows of one of them.
    pub(super) rows: usize,
}

/// The experts of a layer.
#[derive(Debug)]
pub(super) struct ExpertWeights {
    /// What scores the experts; then the gate of the network beside them, if there is one.
    pub(super) router: Vec<Matrix>,
    /// A number for each row of the router.
    pub(super) router_bias: Option<Buffer>,
    /// A number for each expert.
    pub(super) selection_bias: Option<Buffer>,
    /// A factor of each expert.
    pub(super) factors: Option<Buffer>,
    /// The gate of an expert, and up below it; or the gates of all, and up of all, where their formats differ.
    pub(super) gate_up: Vec<OfExperts>,
    pub(super) down: [OfExperts; 1],
    /// Of each expert the biases of its gate, then those of up.
    pub(super) gate_up_bias: Option<Buffer>,
    /// Of each expert the biases of down.
    pub(super) down_bias: Option<Buffer>,
}

/// A model's weights on a GPU.
#[derive(Debug)]
pub struct WgpuWeights {
    pub(super) id: u64,
    pub(super) config: Config,
    /// The embedding; none where it is the output matrix.
    embedding: Option<Vec<Matrix>>,
    /// A row for each position, if the model has them.
    pub(super) positions: Option<Vec<Matrix>>,
    /// A row for each token, with its embeddings for each layer, if the model has them.
    pub(super) per_layer: Option<Vec<Matrix>>,
    /// The row of the first token type, if the model has them.
    pub(super) token_type: Option<Buffer>,
    /// Of each head by how much a step of distance lowers its scores, if it does.
    pub(super) slopes: Option<Buffer>,
    pub(super) tensors: Tensors<Vec<Matrix>, Buffer, ExpertWeights, OfExperts>,
    bytes: usize,
}

impl WgpuWeights {
    /// The model's sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of weights that a step of one token reads.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn embedding(&self) -> &[Matrix] {
        self.embedding.as_ref().unwrap_or_else(|| self.tensors.linear(Linear::Output))
    }
}

/// The format of a matrix on a GPU.
fn format(matrix: &HostMatrix<'_>) -> Format {
    matrix.format().map_or(Format::F32, Format::Quant)
}

/// How blocks of a format are laid out for shaders: bytes that make up words, and where in a block; bytes of a scale behind all blocks, and where.
struct Layout {
    /// Weights of a block, or of a part where formats have none.
    len: usize,
    bytes: usize,
    words: Range<usize>,
    tail: Range<usize>,
}

impl Layout {
    fn of(format: Format) -> Self {
        let Format::Quant(format) = format else {
            return Self { len: PART, bytes: 4 * PART, words: 0..4 * PART, tail: 0..0 };
        };
        let (len, bytes) = (format.block_len(), format.block_bytes());
        if len == 1 {
            return Self { len: PART, bytes: bytes * PART, words: 0..bytes * PART, tail: 0..0 };
        }
        // Where a block is no multiple of 4 bytes, its scale is at one of its ends, and all other fields are multiples of 4.
        let odd = bytes % 4;
        let last = [QuantFormat::Q3K, QuantFormat::Q6K, QuantFormat::Tq1_0, QuantFormat::Tq2_0];
        if last.contains(&format) {
            Self { len, bytes, words: 0..bytes - odd, tail: bytes - odd..bytes }
        } else {
            Self { len, bytes, words: odd..bytes, tail: 0..odd }
        }
    }
}

/// Uploads matrices.
struct Uploader<'a> {
    gpu: &'a Gpu,
    progress: &'a mut dyn FnMut(Progress),
    done: Progress,
    /// Bytes that a step of one token reads of what has been uploaded, and how many experts of a layer it goes through.
    bytes: usize,
    used: usize,
}

impl<'a> Upload<'a> for Uploader<'_> {
    type Product = Vec<Matrix>;
    type Vector = Buffer;
    type Experts = ExpertWeights;
    type Heads = OfExperts;

    /// Consecutive matrices of one format become one.
    fn product(&mut self, matrices: &[HostMatrix<'a>]) -> Result<Vec<Matrix>, BackendError> {
        let height = |alike: &[HostMatrix<'_>]| alike.iter().map(HostMatrix::rows).sum();
        let alike = matrices.chunk_by(|a, b| format(a) == format(b));
        alike.map(|alike| self.matrix(alike, height(alike))).collect()
    }

    fn heads(&mut self, matrices: &[HostMatrix<'a>]) -> Result<OfExperts, BackendError> {
        let rows = matrices[0].rows();
        Ok(OfExperts { matrix: self.matrix(matrices, rows)?, rows })
    }

    fn vector(&mut self, numbers: &[f32]) -> Result<Buffer, BackendError> {
        let words: Vec<u32> = numbers.iter().map(|x| x.to_bits()).collect();
        self.gpu.constant("a vector of weights", &words, BufferUsages::STORAGE)
    }

    fn experts(&mut self, of: &HostExperts<'a>) -> Result<ExpertWeights, BackendError> {
        let shared = of.shared_gate.as_deref().map(|gate| MatRef::new(gate, 1, gate.len())).transpose()?;
        let router: Vec<_> = [of.router].into_iter().chain(shared.map(HostMatrix::F32)).collect();
        let router = self.product(&router)?;
        let (each, before) = (&of.each, self.bytes);
        let mut of_experts = |all: &[HostMatrix<'_>]| {
            let rows = all.iter().map(HostMatrix::rows).sum::<usize>() / each.len();
            Ok::<_, BackendError>(OfExperts { matrix: self.matrix(all, rows)?, rows })
        };
        let gates: Vec<_> = each.iter().filter_map(|expert| expert.gate).collect();
        let ups: Vec<_> = each.iter().map(|expert| expert.up).collect();
        let gate_up = match gates.first() {
            None => vec![of_experts(&ups)?],
            Some(gate) if format(gate) == format(&ups[0]) => {
                let both = gates.iter().zip(&ups).flat_map(|(&gate, &up)| [gate, up]);
                vec![of_experts(&both.collect::<Vec<_>>())?]
            }
            Some(_) => vec![of_experts(&gates)?, of_experts(&ups)?],
        };
        let down = [of_experts(&each.iter().map(|expert| expert.down).collect::<Vec<_>>())?];
        self.bytes = before + (self.bytes - before) / each.len() * self.used;
        // The gate of the network beside them has none.
        let of_router = |bias: &Vec<f32>| [&bias[..], &[0.0][..of.shared_gate.iter().len()]].concat();
        let of_gates = |[gate, up, _]: &[Vec<f32>; 3]| {
            let rows = each[0].up.rows();
            gate.chunks(rows).zip(up.chunks(rows)).flat_map(|(gate, up)| [gate, up].concat()).collect()
        };
        let mut optional = |bias: Option<Vec<f32>>| bias.map(|bias| self.vector(&bias)).transpose();
        let router_bias = optional(of.router_bias.as_ref().map(of_router))?;
        let selection_bias = optional(of.selection_bias.clone())?;
        let factors = optional(of.factors.clone())?;
        let gate_up_bias = optional(of.biases.as_ref().map(of_gates))?;
        let down_bias = optional(of.biases.as_ref().map(|[_, _, down]| down.clone()))?;
        Ok(ExpertWeights {
            router,
            router_bias,
            selection_bias,
            factors,
            gate_up,
            down,
            gate_up_bias,
            down_bias,
        })
    }
}

impl Uploader<'_> {
    /// Matrices of one format, one below the other. A product has so many of their rows at most.
    fn matrix(&mut self, all: &[HostMatrix<'_>], of_product: usize) -> Result<Matrix, BackendError> {
        let (format, cols) = (format(&all[0]), all[0].cols());
        if !format.is_supported() {
            let what = format!("weights of the format {} on this backend", format.name());
            return Err(BackendError::Unsupported(what));
        }
        let layout = Layout::of(format);
        let blocks = cols.div_ceil(layout.len);
        let row_bytes = (blocks * (layout.words.len() + layout.tail.len())) as u64;
        // Scales behind blocks end with a whole word. A thread may have one row, and 32 threads may share it.
        let book = format.book();
        let beside = 8 + size_of_val(&*book) as u64;
        let fit = self.gpu.largest().saturating_sub(beside) / row_bytes.max(1);
        let most = self.gpu.groups() as usize * 2;
        let fit = (fit as usize).min(if of_product > most { most } else { usize::MAX });
        if fit == 0 {
            let what = "bytes of a row of a matrix".to_owned();
            return Err(BackendError::Limit { what, need: row_bytes + beside, allowed: self.gpu.largest() });
        }
        let height: usize = all.iter().map(HostMatrix::rows).sum();
        let mut rows = Vec::new();
        for first in (0..height).step_by(fit) {
            let n = fit.min(height - first);
            rows.push(self.rows(all, (&layout, &book), (first, n, blocks))?);
            let bytes = all[0].bytes() / all[0].rows().max(1) * n;
            self.done.done += bytes;
            (self.progress)(self.done);
        }
        Ok(Matrix { format, cols, rows })
    }

    /// `n` rows, from the `first` on, of matrices one below the other.
    fn rows(
        &mut self,
        all: &[HostMatrix<'_>],
        (layout, book): (&Layout, &[u32]),
        (first, n, blocks): (usize, usize, usize),
    ) -> Result<Rows, BackendError> {
        let words = blocks * layout.words.len() / 4;
        let tails = book.len() + n * words;
        let tail_bytes = (n * blocks * layout.tail.len()).next_multiple_of(4);
        let mut to = vec![0u32; tails + tail_bytes / 4];
        let (to_words, to_tails) = to.split_at_mut(tails);
        let (to_book, to_words) = to_words.split_at_mut(book.len());
        to_book.copy_from_slice(book);
        let mut tail_of_rows = vec![0u8; tail_bytes];
        // A row without words, or tails, has no chunk in them: formats always have words.
        let tail_row = blocks * layout.tail.len();
        let each = |(i, (to, tails)): (usize, (&mut [u32], &mut [u8]))| {
            let bytes = row_bytes(all, first + i, blocks * layout.bytes)?;
            for (block, from) in bytes.chunks_exact(layout.bytes).enumerate() {
                let from_words = from[layout.words.clone()].chunks_exact(4);
                let at = block * layout.words.len() / 4;
                for (to, b) in to[at..].iter_mut().zip(from_words) {
                    *to = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
                let tail = &from[layout.tail.clone()];
                tails[block * tail.len()..][..tail.len()].copy_from_slice(tail);
            }
            Ok::<_, BackendError>(())
        };
        if tail_row > 0 {
            to_words
                .par_chunks_exact_mut(words)
                .zip(tail_of_rows.par_chunks_mut(tail_row))
                .enumerate()
                .try_for_each(each)?;
        } else {
            to_words
                .par_chunks_exact_mut(words)
                .enumerate()
                .try_for_each(|(i, to)| each((i, (to, &mut []))))?;
        }
        for (to, b) in to_tails.iter_mut().zip(tail_of_rows.chunks_exact(4)) {
            *to = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        }
        self.bytes += size_of_val(&*to);
        let buffer = self.gpu.constant("a matrix", &to, BufferUsages::STORAGE)?;
        self.gpu.flush_writes()?;
        Ok(Rows { buffer, first, rows: n, tails: tails as u32 })
    }
}

/// The bytes of a row, of matrices one below the other, with zeros up to `len`.
fn row_bytes<'a>(all: &[HostMatrix<'a>], mut row: usize, len: usize) -> Result<Cow<'a, [u8]>, BackendError> {
    for matrix in all {
        if row >= matrix.rows() {
            row -= matrix.rows();
            continue;
        }
        let bytes: Cow<'_, [u8]> = match matrix {
            HostMatrix::Quantised(w) => w.row_range(row, 1)?.as_bytes().into(),
            HostMatrix::F32(w) => {
                let at = |c: usize| row * w.row_stride() + c * w.col_stride();
                // SAFETY: elements of the view.
                let numbers = (0..w.cols()).map(|c| unsafe { *w.as_ptr().add(at(c)) });
                numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into()
            }
        };
        if bytes.len() == len {
            return Ok(bytes);
        }
        let mut bytes = bytes.into_owned();
        bytes.resize(len, 0);
        return Ok(bytes.into());
    }
    Err(BackendError::Unsupported(format!("row {row} behind the end of a matrix")))
}

/// A matrix alone.
#[cfg(test)]
pub(super) fn matrix(gpu: &Gpu, all: &[HostMatrix<'_>]) -> Result<Matrix, BackendError> {
    let done = Progress { done: 0, total: 0 };
    Uploader { gpu, progress: &mut |_| (), done, bytes: 0, used: 0 }.matrix(all, usize::MAX)
}

/// Uploads a model's weights.
pub(super) fn upload(
    gpu: &Gpu,
    config: &Config,
    weights: &HostWeights<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<WgpuWeights, BackendError> {
    static IDS: AtomicU64 = AtomicU64::new(0);
    check_for_wgpu(config)?;
    let layers = &weights.layers;
    let mut total = weights.output.bytes()
        + layers.iter().flat_map(LayerWeights::matrices).map(|m| m.bytes()).sum::<usize>();
    for experts in layers.iter().filter_map(|l| l.experts.as_ref()) {
        total += experts.matrices().map(|m| m.bytes()).sum::<usize>();
        total += experts.shared_gate.as_ref().map_or(0, |gate| size_of_val(&gate[..]));
    }
    let tied = config.tied_embeddings;
    let tables = weights.positions.iter().chain((!tied).then_some(&weights.embedding));
    let per_layer = weights.per_layer.as_ref();
    let tables = tables.chain(per_layer.iter().flat_map(|of| [&of.table, &of.projection]));
    total += tables.map(HostMatrix::bytes).sum::<usize>();
    let used = config.experts.map_or(0, |experts| experts.used);
    let mut to = Uploader { gpu, progress, done: Progress { done: 0, total }, bytes: 0, used };
    let tensors = Tensors::upload(&mut to, weights)?;
    // Of tables a step reads a row, and an encoder's output matrix stands for such a table.
    let output = tensors.linear(Linear::Output).iter().flat_map(|matrix| &matrix.rows);
    let idle = output.filter(|_| !config.causal).map(|rows| rows.buffer.size() as usize).sum::<usize>();
    let bytes = to.bytes - idle;
    let embedding = (!tied).then(|| to.product(&[weights.embedding])).transpose()?;
    let positions = weights.positions.map(|table| to.product(&[table])).transpose()?;
    let per_layer = per_layer.map(|of| to.product(&[of.table])).transpose()?;
    let token_type = weights.token_types.map(|types| types.decoded(&[0])).transpose()?;
    let token_type = token_type.map(|row| to.vector(&row)).transpose()?;
    let slopes: Option<Vec<f32>> = (0..config.heads).map(|head| config.alibi_slope(head)).collect();
    let slopes = slopes.map(|slopes| to.vector(&slopes)).transpose()?;
    progress(Progress { done: total, total });
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    let config = config.clone();
    Ok(WgpuWeights { id, config, embedding, positions, per_layer, token_type, slopes, tensors, bytes })
}
