//! Weights in the memory of a GPU.

use std::sync::Arc;

use gllm_kernels_core::{ElementType, QuantFormat};

use crate::backend::{BackendError, Linear, NormWeight, Progress};
use crate::cuda::{Buffer, CudaError, QuantView, Stream, View};
use crate::gpu::geometry::FEW;
use crate::model::{Config, HostWeights, Matrix as HostMatrix};

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

/// A layer's matrices and vectors.
#[derive(Debug)]
struct LayerWeights {
    qkv: Product,
    attention_output: Product,
    /// Of the network that every token goes through; without matrices if there is none.
    gate_up: Product,
    down: Product,
    attention_norm: Buffer<f32>,
    post_attention_norm: Option<Buffer<f32>>,
    ffn_norm: Buffer<f32>,
    post_ffn_norm: Option<Buffer<f32>>,
    head_norms: Option<[Buffer<f32>; 2]>,
    bias: Option<[Buffer<f32>; 3]>,
    experts: Option<ExpertWeights>,
}

/// The experts of a layer.
#[derive(Debug)]
pub(super) struct ExpertWeights {
    pub(super) router: Product,
    /// Those of all experts.
    pub(super) gate_up: Product,
    pub(super) down: Product,
    pub(super) shared_gate: Option<Buffer<f32>>,
}

/// What [`CudaWeights`] refers to: recordings of steps keep it, too.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) config: Config,
    pub(super) embedding: Arc<Matrix>,
    layers: Vec<LayerWeights>,
    output: Product,
    output_norm: Buffer<f32>,
    bytes: usize,
}

impl Stored {
    pub(super) fn linear(&self, linear: Linear) -> &Product {
        match linear {
            Linear::Qkv(l) => &self.layers[l].qkv,
            Linear::AttentionOutput(l) => &self.layers[l].attention_output,
            Linear::GateUp(l) => &self.layers[l].gate_up,
            Linear::Down(l) => &self.layers[l].down,
            Linear::Output => &self.output,
        }
    }

    /// A norm's weight; of norms that the model lacks there is none.
    pub(super) fn norm(&self, norm: NormWeight) -> Result<View<'_, f32>, BackendError> {
        let weight = match norm {
            NormWeight::Attention(l) => Some(&self.layers[l].attention_norm),
            NormWeight::PostAttention(l) => self.layers[l].post_attention_norm.as_ref(),
            NormWeight::Ffn(l) => Some(&self.layers[l].ffn_norm),
            NormWeight::PostFfn(l) => self.layers[l].post_ffn_norm.as_ref(),
            NormWeight::Output => Some(&self.output_norm),
        };
        let missing = || BackendError::Unsupported(format!("the model has no weight for {norm:?}"));
        weight.map(Buffer::view).ok_or_else(missing)
    }

    /// The experts of a layer, if it has any.
    pub(super) fn experts(&self, layer: usize) -> Option<&ExpertWeights> {
        self.layers[layer].experts.as_ref()
    }

    /// Norms of each head of queries and of keys.
    pub(super) fn head_norms(&self, layer: usize) -> Option<[View<'_, f32>; 2]> {
        self.layers[layer].head_norms.as_ref().map(|[q, k]| [q.view(), k.view()])
    }

    /// Biases of queries, keys and values.
    pub(super) fn bias(&self, layer: usize) -> Option<[View<'_, f32>; 3]> {
        self.layers[layer].bias.as_ref().map(|[q, k, v]| [q.view(), k.view(), v.view()])
    }
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
    progress: &'a mut dyn FnMut(Progress),
    done: Progress,
}

/// Bytes that go to the GPU at a time, so that progress is told now and then.
const UPLOAD_BYTES: usize = 64 << 20;

impl Uploader<'_> {
    /// Matrices one behind the other, which are stored alike; of `count` experts those of the first one, then those of the next.
    fn matrix(&mut self, count: usize, parts: &[HostMatrix<'_>]) -> Result<Matrix, BackendError> {
        let (kind, cols) = (Storage::of(&parts[0]), parts[0].cols());
        let rows = parts.iter().map(|part| part.rows() / count).sum();
        let bytes = parts.iter().map(HostMatrix::bytes).sum();
        let mut buffer = Buffer::new(self.stream.context(), bytes)?;
        let mut at = 0;
        for (expert, part) in (0..count).flat_map(|expert| parts.iter().map(move |part| (expert, part))) {
            let rows = part.rows() / count;
            match part.row_range(expert * rows, rows)? {
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
        Ok(Matrix { kind, count, rows, cols, bytes: buffer })
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

    /// Matrices of one product, or of those of `count` experts.
    fn product(&mut self, count: usize, all: &[HostMatrix<'_>]) -> Result<Product, BackendError> {
        let (mut matrices, mut members, mut first) = (Vec::new(), Vec::new(), 0);
        while first < all.len() {
            let kind = Storage::of(&all[first]);
            let alike = all[first..].iter().take_while(|matrix| Storage::of(matrix) == kind).count();
            let mut row = 0;
            for matrix in &all[first..first + alike] {
                let rows = matrix.rows() / count;
                members.push((matrices.len(), row, rows));
                row += rows;
            }
            matrices.push(Arc::new(self.matrix(count, &all[first..first + alike])?));
            first += alike;
        }
        Ok(Product { matrices, members })
    }

    fn vector(&mut self, x: &[f32]) -> Result<Buffer<f32>, BackendError> {
        Ok(Buffer::from_slice(self.stream, x)?)
    }

    fn optional(&mut self, x: &Option<Vec<f32>>) -> Result<Option<Buffer<f32>>, BackendError> {
        x.as_ref().map(|x| self.vector(x)).transpose()
    }
}

/// Refuses models whose sizes the kernels do not have.
fn check(config: &Config) -> Result<(), BackendError> {
    let refuse = |what: String| Err(BackendError::Unsupported(what));
    let (dim, hidden, intermediate) = (config.head_dim, config.hidden, config.intermediate);
    if dim > 256 || !dim.is_multiple_of(2) {
        return refuse(format!("heads of {dim} elements on a GPU: they must be even, at most 256"));
    }
    let (queries, keys) = (config.heads * dim, config.kv_heads * dim);
    if !keys.is_multiple_of(4) {
        return refuse(format!("keys of {keys} elements on a GPU: they must be a multiple of 4"));
    }
    for (what, n) in [
        ("the residual stream", hidden),
        ("the feed-forward network", intermediate),
        ("an expert's feed-forward network", config.experts.map_or(0, |experts| experts.intermediate)),
        ("the queries of a token", queries),
    ] {
        if !n.is_multiple_of(8) {
            return refuse(format!("{what} of {n} elements on a GPU: they must be a multiple of 8"));
        }
    }
    Ok(())
}

/// Brings a model's weights to the GPU.
pub(super) fn upload(
    stream: &Stream,
    config: &Config,
    weights: &HostWeights<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<CudaWeights, BackendError> {
    check(config)?;
    let layers = weights.layers.iter();
    let matrices = layers.clone().flat_map(|l| {
        let networks = l.feed_forward.iter().flat_map(|network| network.matrices());
        [l.q, l.k, l.v, l.output].into_iter().chain(networks).chain(l.experts.iter().map(|e| e.router))
    });
    let experts = || layers.clone().flat_map(|l| &l.experts).flat_map(|experts| experts.all.matrices());
    let tied = config.tied_embeddings;
    let ends = [Some(weights.output), (!tied).then_some(weights.embedding)];
    let each: usize = matrices.chain(ends.into_iter().flatten()).map(|matrix| matrix.bytes()).sum();
    let of_experts: usize = experts().map(|matrix| matrix.bytes()).sum();
    let total = each + of_experts;
    let mut to = Uploader { stream, progress, done: Progress { done: 0, total } };
    let mut layers = Vec::with_capacity(config.layers);
    for l in &weights.layers {
        let gate_up: Vec<_> = l.feed_forward.iter().flat_map(|network| [network.gate, network.up]).collect();
        let down: Vec<_> = l.feed_forward.iter().map(|network| network.down).collect();
        let bias = match (&l.q_bias, &l.k_bias, &l.v_bias) {
            (Some(q), Some(k), Some(v)) => Some([to.vector(q)?, to.vector(k)?, to.vector(v)?]),
            _ => None,
        };
        let head_norms = match (&l.q_norm, &l.k_norm) {
            (Some(q), Some(k)) => Some([to.vector(q)?, to.vector(k)?]),
            _ => None,
        };
        layers.push(LayerWeights {
            qkv: to.product(1, &[l.q, l.k, l.v])?,
            attention_output: to.product(1, &[l.output])?,
            gate_up: to.product(1, &gate_up)?,
            down: to.product(1, &down)?,
            attention_norm: to.vector(&l.attention_norm)?,
            post_attention_norm: to.optional(&l.post_attention_norm)?,
            ffn_norm: to.vector(&l.ffn_norm)?,
            post_ffn_norm: to.optional(&l.post_ffn_norm)?,
            head_norms,
            bias,
            experts: match (&l.experts, config.experts) {
                (Some(of), Some(experts)) => Some(ExpertWeights {
                    router: to.product(1, &[of.router])?,
                    gate_up: to.product(experts.count, &[of.all.gate, of.all.up])?,
                    down: to.product(experts.count, &[of.all.down])?,
                    shared_gate: to.optional(&of.shared_gate)?,
                }),
                _ => None,
            },
        });
    }
    let output = to.product(1, &[weights.output])?;
    let embedding = match tied {
        true => Arc::clone(&output.matrices[0]),
        false => Arc::new(to.matrix(1, &[weights.embedding])?),
    };
    let output_norm = to.vector(&weights.output_norm)?;
    let used = config.experts.map_or(0, |experts| of_experts / experts.count * experts.used);
    Ok(CudaWeights(Arc::new(Stored {
        config: config.clone(),
        embedding,
        layers,
        output,
        output_norm,
        bytes: each - if tied { 0 } else { weights.embedding.bytes() } + used,
    })))
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
    /// Dense weights with f32, up to eight at a time.
    Gemv(ElementType),
    /// Weights in blocks with f32, up to eight at a time.
    Exact(QuantFormat),
    /// Weights in blocks with integers of 8 bits, up to eight at a time.
    Integer(QuantFormat),
    /// Dense weights on tensor cores.
    Gemm,
    /// Weights in blocks on tensor cores.
    Qgemm(QuantFormat),
}

/// Vectors that products without tensor cores take at a time.
pub(super) const MAX_GEMV_ROWS: usize = 8;
/// Rows of a block of tensor cores, usually and of few rows.
const MANY: usize = 128;
/// Vectors up to which tensor cores take tiles of 32 rows: those of 128 would multiply zeros for longer than it takes to read the weights.
pub(super) const FEW_ROWS: usize = 64;

impl Way {
    /// Whether tiles of few rows are best where a matrix has `m` rows of `half`.
    pub(super) fn is_few(self, m: usize, half: ElementType) -> bool {
        match self {
            Self::Gemm => m <= FEW_ROWS,
            Self::Qgemm(_) => m <= FEW_ROWS && half == ElementType::Bf16,
            _ => false,
        }
    }

    /// Rows of a block where each of several matrices has about `m` rows of `half`.
    pub(super) fn block_rows(self, m: usize, half: ElementType) -> usize {
        match self {
            Self::Gemv(_) | Self::Integer(_) => m.clamp(1, MAX_GEMV_ROWS).next_power_of_two(),
            Self::Exact(_) if m <= 1 => 1,
            Self::Exact(_) => MAX_GEMV_ROWS,
            _ if self.is_few(m, half) => FEW,
            Self::Gemm | Self::Qgemm(_) => MANY,
        }
    }
}

impl Matrix {
    /// How it is multiplied with `m` vectors, which tensor cores get as `half`.
    pub(super) fn way(&self, exact: bool, m: usize, half: ElementType) -> Way {
        match self.kind {
            Storage::Dense(ty) if exact || m <= MAX_GEMV_ROWS || ty != half => Way::Gemv(ty),
            Storage::Dense(_) => Way::Gemm,
            Storage::Blocks(format) if exact => Way::Exact(format),
            Storage::Blocks(format) if m <= MAX_GEMV_ROWS => Way::Integer(format),
            Storage::Blocks(format) => Way::Qgemm(format),
        }
    }
}
