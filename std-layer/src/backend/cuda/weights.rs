//! Weights in the memory of a GPU.

use std::sync::Arc;

use gllm_kernels_core::{ElementType, QuantFormat};

use crate::backend::suits::check_for_cuda;
use crate::backend::tensors::{Tensors, Upload};
use crate::backend::{BackendError, Linear, Progress};
use crate::cuda::geometry::{Tile, MAX_SMALL_TILE_ROWS};
use crate::cuda::{Buffer, Capability, CudaError, QuantView, Stream, View};
use crate::model::{Config, ExpertWeights as HostExperts, HostWeights, LayerWeights, Matrix as HostMatrix};

/// How the numbers of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// One by one.
    Dense(ElementType),
    /// In blocks.
    Blocks(QuantFormat),
}

impl Storage {
    fn of(matrix: &HostMatrix<'_>) -> Self {
        match matrix.format() {
            None => Self::Dense(ElementType::F32),
            Some(format) => format.element().map_or(Self::Blocks(format), Self::Dense),
        }
    }
}

/// A matrix of weights, `rows x cols`, by rows; or of several experts, one behind the other.
#[derive(Debug)]
pub(super) struct Matrix {
    pub(super) kind: Storage,
    /// How many there are, of so many rows each.
    pub(super) count: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    bytes: Buffer<u8>,
    /// What the kernels that multiply it are for.
    capability: Capability,
}

impl Matrix {
    /// Its bytes.
    pub(super) fn bytes(&self) -> View<'_, u8> {
        self.bytes.view()
    }

    /// Weights in blocks.
    pub(super) fn blocks(&self, format: QuantFormat) -> Result<QuantView<'_>, CudaError> {
        QuantView::new(&self.bytes, format, self.count * self.rows, self.cols)
    }
}

/// Matrices that multiply the same input. Those that are stored alike lie one behind the other, and are one product.
#[derive(Debug)]
pub(super) struct Product {
    pub(super) matrices: Vec<Arc<Matrix>>,
    /// For each of the model's matrices the one that it is part of, its first row there, and its rows.
    pub(super) members: Vec<(usize, usize, usize)>,
}

impl Product {
    /// For `m` vectors, where the results of a matrix begin in the slot of the product, and how far rows are apart: each of the matrices
    /// has the results of all rows, one matrix behind the other.
    pub(super) fn results(&self, matrix: usize, m: usize) -> (usize, usize) {
        let before: usize = self.matrices[..matrix].iter().map(|matrix| matrix.rows).sum();
        (before * m, self.matrices[matrix].rows)
    }

    /// For `m` vectors, where the results of one of the model's matrices begin in the slot of the product, and how far
    /// rows are apart.
    pub(super) fn member(&self, member: usize, m: usize) -> (usize, usize) {
        let (matrix, first, _) = self.members[member];
        let (from, stride) = self.results(matrix, m);
        (from + first, stride)
    }
}

/// The experts of a layer.
#[derive(Debug)]
pub(super) struct ExpertWeights {
    pub(super) router: Product,
    /// Those of all experts.
    pub(super) gate_up: Product,
    pub(super) down: Product,
    pub(super) router_bias: Option<Buffer<f32>>,
    /// Of gate, up and down, those of all experts one behind the other.
    pub(super) biases: Option<[Buffer<f32>; 3]>,
    pub(super) selection_bias: Option<Buffer<f32>>,
    pub(super) factors: Option<Buffer<f32>>,
    pub(super) shared_gate: Option<Buffer<f32>>,
}

/// What [`CudaWeights`] refers to: recordings of steps keep it, too.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) config: Config,
    pub(super) embedding: Arc<Matrix>,
    /// A row for each position, if the model has them.
    pub(super) positions: Option<Matrix>,
    /// A row for each token, with its embeddings for each layer, if the model has them.
    pub(super) per_layer: Option<Matrix>,
    /// The row of the first token type, if the model has them.
    pub(super) token_type: Option<Buffer<f32>>,
    /// Of each head by how much a step of distance lowers its scores, if it does.
    pub(super) slopes: Option<Buffer<f32>>,
    pub(super) tensors: Tensors<Product, Buffer<f32>, ExpertWeights, Product>,
    /// Whether matrices have floating point in blocks, which takes activations as they are.
    pub(super) float_blocks: bool,
    bytes: usize,
}

/// A model's weights in the memory of a GPU.
#[derive(Clone, Debug)]
pub struct CudaWeights(pub(super) Arc<Stored>);

impl CudaWeights {
    /// The model's sizes.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Bytes of weights that a step of one token reads.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// Brings matrices to the GPU, and tells how far it is.
struct Uploader<'a> {
    stream: &'a Stream,
    /// What kernels in use are for.
    capability: Capability,
    progress: &'a mut dyn FnMut(Progress),
    done: Progress,
    /// Whether a matrix had floating point in blocks.
    float_blocks: bool,
}

/// Bytes that go to the GPU at a time, so that progress is told now and then.
const UPLOAD_BYTES: usize = 64 << 20;

impl Uploader<'_> {
    /// Matrices one behind the other, which are stored alike; of several experts those of the first one, then those of the next.
    fn matrix(&mut self, experts: &[&[HostMatrix<'_>]]) -> Result<Matrix, BackendError> {
        let first = experts[0];
        let (kind, count, cols) = (Storage::of(&first[0]), experts.len(), first[0].cols());
        self.float_blocks |= matches!(kind, Storage::Blocks(format) if format.is_float());
        let rows = first.iter().map(HostMatrix::rows).sum();
        let parts = experts.iter().copied().flatten();
        let mut buffer = Buffer::new(self.stream.context(), parts.clone().map(HostMatrix::bytes).sum())?;
        let mut at = 0;
        for part in parts {
            match part {
                HostMatrix::Quantised(w) => self.bytes(&mut buffer, &mut at, w.as_bytes())?,
                HostMatrix::F32(w) => {
                    let mut row = vec![0; w.cols() * size_of::<f32>()];
                    for r in 0..w.rows() {
                        for (c, to) in row.chunks_exact_mut(size_of::<f32>()).enumerate() {
                            // SAFETY: an element of the view.
                            let x = unsafe { *w.as_ptr().add(r * w.row_stride() + c * w.col_stride()) };
                            to.copy_from_slice(&x.to_le_bytes());
                        }
                        self.bytes(&mut buffer, &mut at, &row)?;
                    }
                }
            }
        }
        Ok(Matrix { kind, count, rows, cols, bytes: buffer, capability: self.capability })
    }

    fn bytes(&mut self, to: &mut Buffer<u8>, at: &mut usize, bytes: &[u8]) -> Result<(), BackendError> {
        for piece in bytes.chunks(UPLOAD_BYTES) {
            to.range_mut(*at..*at + piece.len())?.upload(self.stream, piece)?;
            *at += piece.len();
            self.done.done += piece.len();
            (self.progress)(self.done);
        }
        Ok(())
    }

    /// Matrices of one product, or those of several experts, which are alike in all of them. They may be joined where they are stored alike.
    fn products(&mut self, experts: &[&[HostMatrix<'_>]], joined: bool) -> Result<Product, BackendError> {
        let (mut matrices, mut members, mut first) = (Vec::new(), Vec::new(), 0);
        for alike in experts[0].chunk_by(|a, b| joined && Storage::of(a) == Storage::of(b)) {
            let mut row = 0;
            for matrix in alike {
                members.push((matrices.len(), row, matrix.rows()));
                row += matrix.rows();
            }
            let parts: Vec<_> = experts.iter().map(|all| &all[first..first + alike.len()]).collect();
            matrices.push(Arc::new(self.matrix(&parts)?));
            first += alike.len();
        }
        Ok(Product { matrices, members })
    }
}

impl<'a> Upload<'a> for Uploader<'_> {
    type Product = Product;
    type Vector = Buffer<f32>;
    type Experts = ExpertWeights;
    type Heads = Product;

    fn product(&mut self, matrices: &[HostMatrix<'a>]) -> Result<Product, BackendError> {
        self.products(&[matrices], true)
    }

    fn apart(&mut self, matrices: &[HostMatrix<'a>]) -> Result<Product, BackendError> {
        self.products(&[matrices], false)
    }

    fn heads(&mut self, matrices: &[HostMatrix<'a>]) -> Result<Product, BackendError> {
        let each: Vec<_> = matrices.iter().map(std::slice::from_ref).collect();
        self.products(&each, true)
    }

    fn vector(&mut self, numbers: &[f32]) -> Result<Buffer<f32>, BackendError> {
        Ok(Buffer::from_slice(self.stream, numbers)?)
    }

    fn experts(&mut self, of: &HostExperts<'a>) -> Result<ExpertWeights, BackendError> {
        let gate_up = of.each.iter().map(|expert| expert.gate.into_iter().chain([expert.up]).collect());
        let gate_up: Vec<Vec<_>> = gate_up.collect();
        let gate_up: Vec<_> = gate_up.iter().map(|matrices| &matrices[..]).collect();
        let down: Vec<_> = of.each.iter().map(|expert| std::slice::from_ref(&expert.down)).collect();
        Ok(ExpertWeights {
            router: self.products(&[&[of.router]], true)?,
            gate_up: self.products(&gate_up, true)?,
            down: self.products(&down, true)?,
            router_bias: of.router_bias.as_deref().map(|bias| self.vector(bias)).transpose()?,
            biases: match &of.biases {
                Some([gate, up, down]) => Some([self.vector(gate)?, self.vector(up)?, self.vector(down)?]),
                None => None,
            },
            selection_bias: of.selection_bias.as_deref().map(|bias| self.vector(bias)).transpose()?,
            factors: of.factors.as_deref().map(|factors| self.vector(factors)).transpose()?,
            shared_gate: of.shared_gate.as_deref().map(|gate| self.vector(gate)).transpose()?,
        })
    }
}

/// Brings a model's weights to the GPU, whose kernels in use are for `capability`.
pub(super) fn upload(
    (stream, capability): (&Stream, Capability),
    config: &Config,
    weights: &HostWeights<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<CudaWeights, BackendError> {
    check_for_cuda(config)?;
    let layers = &weights.layers;
    let per_layer = weights.per_layer.as_ref();
    let projection = per_layer.map(|of| of.projection);
    let all = layers.iter().flat_map(LayerWeights::matrices).chain([weights.output]).chain(projection);
    let each: usize = all.map(|matrix| matrix.bytes()).sum();
    let experts = layers.iter().filter_map(|l| l.experts.as_ref()).flat_map(HostExperts::matrices);
    let of_experts: usize = experts.map(|matrix| matrix.bytes()).sum();
    let tied = config.tied_embeddings;
    let tables = weights.positions.iter().chain((!tied).then_some(&weights.embedding));
    let tables = tables.chain(per_layer.map(|of| &of.table));
    let total = each + of_experts + tables.map(HostMatrix::bytes).sum::<usize>();
    let mut to =
        Uploader { stream, capability, progress, done: Progress { done: 0, total }, float_blocks: false };
    let tensors = Tensors::upload(&mut to, weights)?;
    let embedding = match tied {
        true => Arc::clone(&tensors.linear(Linear::Output).matrices[0]),
        false => Arc::new(to.matrix(&[&[weights.embedding]])?),
    };
    let positions = weights.positions.map(|table| to.matrix(&[&[table]])).transpose()?;
    let per_layer = per_layer.map(|of| to.matrix(&[&[of.table]])).transpose()?;
    let token_type = weights.token_types.map(|types| types.decoded(&[0])).transpose()?;
    let token_type = token_type.map(|row| to.vector(&row)).transpose()?;
    let slopes: Option<Vec<f32>> = (0..config.heads).map(|head| config.alibi_slope(head)).collect();
    let slopes = slopes.map(|slopes| to.vector(&slopes)).transpose()?;
    let used = config.experts.map_or(0, |experts| of_experts / experts.count * experts.used);
    // Where there are no logits, the last product is not computed.
    let idle = if config.causal { 0 } else { weights.output.bytes() };
    let (config, bytes) = (config.clone(), each + used - idle);
    let float_blocks = to.float_blocks;
    let stored =
        Stored { config, embedding, positions, per_layer, token_type, slopes, tensors, float_blocks, bytes };
    Ok(CudaWeights(Arc::new(stored)))
}

/// The type that 16-bit activations have in a product, if it has use for them.
pub(super) fn half_type(product: &Product) -> ElementType {
    let dense = product.matrices.iter().find_map(|matrix| match matrix.kind {
        Storage::Dense(ty) if ty != ElementType::F32 => Some(ty),
        _ => None,
    });
    // As far as numbers reach, bf16 reaches as well as f32.
    dense.unwrap_or(ElementType::Bf16)
}

/// How a matrix is multiplied with `m` vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Dense weights with f32, up to eight vectors at a time.
    Gemv(ElementType),
    /// Weights in blocks with f32, up to eight at a time.
    Exact(QuantFormat),
    /// Weights in blocks with integers of 8 bits, up to eight at a time.
    Integer(QuantFormat),
    /// Dense weights in f32 with f32, many at a time. Few rows are not worth a second kernel, which adds the sums of parts of the columns.
    GemmF32,
    /// Dense weights on tensor cores.
    Gemm,
    /// Weights in blocks on tensor cores: blocks of threads decode what they multiply.
    Qgemm(QuantFormat),
    /// Weights in blocks on tensor cores, all of which are decoded first. That takes 2 bytes written for each weight, and 2 read again; in the other way each block of threads
    /// decodes the weights of its rows, and has more to do for it than for multiplying 128 rows.
    Decoded(QuantFormat),
}

/// Vectors that products without tensor cores take at a time.
pub(super) const MAX_GEMV_ROWS: usize = 8;
/// Rows of a usual tile of tensor cores, which a block computes.
const TILE_ROWS: usize = 128;
/// Bytes that a matrix may have that is decoded in 16 bits before it is multiplied. That of a vocabulary has more, and seldom many vectors.
const MAX_DECODED: usize = 512 << 20;

impl Way {
    /// Whether blocks may share the columns of a product with rows of `half`.
    pub(super) fn is_divided(self, half: ElementType) -> bool {
        match self {
            Self::GemmF32 | Self::Gemm | Self::Decoded(_) => true,
            Self::Qgemm(_) => half == ElementType::Bf16,
            _ => false,
        }
    }

    /// Whether tiles of few rows are best where a matrix has `m` rows of `half`.
    fn is_few(self, m: usize, half: ElementType) -> bool {
        match self {
            Self::Gemm => m <= MAX_SMALL_TILE_ROWS,
            Self::Qgemm(_) => m <= MAX_SMALL_TILE_ROWS && half == ElementType::Bf16,
            _ => false,
        }
    }
}

impl Matrix {
    /// How it is multiplied with `m` vectors, which tensor cores get as `half`.
    pub(super) fn way(&self, exact: bool, m: usize, half: ElementType) -> Way {
        match self.kind {
            Storage::Dense(ElementType::F32) if !exact && m > MAX_SMALL_TILE_ROWS => Way::GemmF32,
            Storage::Dense(ty) if exact || m <= MAX_GEMV_ROWS || ty != half => Way::Gemv(ty),
            Storage::Dense(_) => Way::Gemm,
            Storage::Blocks(format) if exact || format.is_float() && m <= MAX_GEMV_ROWS => Way::Exact(format),
            Storage::Blocks(format) if m <= MAX_GEMV_ROWS => Way::Integer(format),
            Storage::Blocks(format)
                if m > self.decoding_rows(half)
                    && self.count * self.rows * self.cols <= MAX_DECODED / size_of::<u16>() =>
            {
                Way::Decoded(format)
            }
            Storage::Blocks(format) => Way::Qgemm(format),
        }
    }

    /// Rows up to which products decode weights in blocks themselves.
    fn decoding_rows(&self, half: ElementType) -> usize {
        match half {
            ElementType::Bf16 => self.capability.decoding_rows(),
            _ => MAX_SMALL_TILE_ROWS,
        }
    }

    /// Rows of a block where each of several matrices has about `m` rows of `half`.
    pub(super) fn block_rows(&self, exact: bool, m: usize, half: ElementType) -> usize {
        match self.way(exact, m, half) {
            Way::Gemv(_) | Way::Integer(_) => m.clamp(1, MAX_GEMV_ROWS).next_power_of_two(),
            Way::Exact(_) if m <= 1 => 1,
            Way::Exact(_) => MAX_GEMV_ROWS,
            Way::GemmF32 => Tile::SINGLE.rows,
            way if way.is_few(m, half) => self.capability.small_tile_rows(),
            Way::Gemm | Way::Qgemm(_) | Way::Decoded(_) => TILE_ROWS,
        }
    }
}
