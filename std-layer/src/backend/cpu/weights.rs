//! Weights as the CPU multiplies them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gllm_kernels_core::{KernelError, Kernels, MatMut, MatRef, PackedQ, QuantFormat, QuantRef};

use crate::aligned::AlignedVec;
use crate::backend::{BackendError, Linear, NormWeight, Progress};
use crate::model::{Config, FeedForward, HostWeights, Matrix as HostMatrix};

/// Rows that a thread packs at a time.
const PACKED_ROWS: usize = 256;

/// A matrix of weights, `rows x cols`.
#[derive(Debug)]
pub(super) enum Matrix {
    /// Packed by core, at `at` in the memory that all packed matrices of a model share.
    Packed { format: QuantFormat, rows: usize, cols: usize, memory: Arc<AlignedVec<u8>>, at: Range<usize> },
    /// Floating point of 32 bits, row by row.
    Dense { rows: usize, cols: usize, memory: AlignedVec<f32> },
}

impl Matrix {
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Packed { rows, .. } | Self::Dense { rows, .. } => *rows,
        }
    }

    pub(super) fn cols(&self) -> usize {
        match self {
            Self::Packed { cols, .. } | Self::Dense { cols, .. } => *cols,
        }
    }

    /// Bytes that a product reads.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Packed { at, .. } => at.len(),
            Self::Dense { memory, .. } => memory.len() * size_of::<f32>(),
        }
    }
}

/// The table that tokens are looked up in.
#[derive(Debug)]
pub(super) enum Embedding {
    /// A matrix as products take it: the output matrix, where that is the table as well, or a table in f32.
    Tied(Arc<Matrix>),
    /// A table of its own, with rows as they lie in the file.
    Rows { format: QuantFormat, rows: usize, cols: usize, bytes: AlignedVec<u8> },
}

impl Embedding {
    /// The rows of some tokens, decoded.
    pub(super) fn look_up(
        &self,
        kernels: &Kernels<f32>,
        tokens: &[u32],
        y: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        match self {
            Self::Tied(matrix) => match &**matrix {
                Matrix::Packed { format, rows, cols, memory, at } => {
                    kernels.gather_q(kernels.packed_q(*format, *rows, *cols, &memory[at.clone()])?, tokens, y)
                }
                Matrix::Dense { rows, cols, memory } => {
                    kernels.gather(MatRef::new(memory, *rows, *cols)?, tokens, y)
                }
            },
            Self::Rows { format, rows, cols, bytes } => {
                kernels.gather_q(QuantRef::new(bytes, *format, *rows, *cols)?, tokens, y)
            }
        }
    }
}

/// A layer's matrices and vectors.
#[derive(Debug)]
pub(super) struct LayerWeights {
    qkv: [Arc<Matrix>; 3],
    attention_output: [Arc<Matrix>; 1],
    /// Of the network that every token goes through; nothing if there is none.
    gate_up: Vec<Arc<Matrix>>,
    down: Vec<Arc<Matrix>>,
    pub(super) experts: Option<ExpertWeights>,
    attention_norm: Vec<f32>,
    post_attention_norm: Option<Vec<f32>>,
    ffn_norm: Vec<f32>,
    post_ffn_norm: Option<Vec<f32>>,
    /// Weights of the norms of each head of queries, and of keys.
    pub(super) head_norms: Option<[Vec<f32>; 2]>,
    /// Biases of queries, keys and values, one behind the other.
    pub(super) bias: Option<Vec<f32>>,
}

/// The experts of a layer.
#[derive(Debug)]
pub(super) struct ExpertWeights {
    pub(super) router: [Arc<Matrix>; 1],
    /// Gate, up and down of each expert.
    pub(super) each: Vec<[Arc<Matrix>; 3]>,
    pub(super) shared_gate: Option<Vec<f32>>,
}

/// A model's weights in memory, packed for this CPU.
#[derive(Debug)]
pub struct CpuWeights {
    pub(super) config: Config,
    pub(super) embedding: Embedding,
    layers: Vec<LayerWeights>,
    output: [Arc<Matrix>; 1],
    output_norm: Vec<f32>,
}

impl CpuWeights {
    /// The model's sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of weights that a step of one token reads.
    pub fn bytes(&self) -> usize {
        let all = (0..self.layers.len())
            .flat_map(|l| [Linear::Qkv(l), Linear::AttentionOutput(l), Linear::GateUp(l), Linear::Down(l)]);
        let matrices = all.chain([Linear::Output]).flat_map(|linear| self.linear(linear));
        let experts = self.layers.iter().filter_map(|layer| layer.experts.as_ref());
        let of = |experts: &ExpertWeights| {
            let each = experts.each.iter().flatten().map(|matrix| matrix.bytes()).sum::<usize>();
            let used = self.config.experts.map_or(0, |experts| experts.used);
            experts.router[0].bytes() + each / experts.each.len().max(1) * used
        };
        matrices.map(|matrix| matrix.bytes()).sum::<usize>() + experts.map(of).sum::<usize>()
    }

    pub(super) fn linear(&self, linear: Linear) -> &[Arc<Matrix>] {
        match linear {
            Linear::Qkv(l) => &self.layers[l].qkv,
            Linear::AttentionOutput(l) => &self.layers[l].attention_output,
            Linear::GateUp(l) => &self.layers[l].gate_up,
            Linear::Down(l) => &self.layers[l].down,
            Linear::Output => &self.output,
        }
    }

    pub(super) fn layer(&self, layer: usize) -> &LayerWeights {
        &self.layers[layer]
    }

    /// A norm's weight, or none if the model lacks this norm.
    pub(super) fn norm(&self, norm: NormWeight) -> Option<&[f32]> {
        match norm {
            NormWeight::Attention(l) => Some(&self.layers[l].attention_norm),
            NormWeight::PostAttention(l) => self.layers[l].post_attention_norm.as_deref(),
            NormWeight::Ffn(l) => Some(&self.layers[l].ffn_norm),
            NormWeight::PostFfn(l) => self.layers[l].post_ffn_norm.as_deref(),
            NormWeight::Output => Some(&self.output_norm),
        }
    }
}

/// Some rows of a matrix to be packed.
struct Piece<'a> {
    rows: QuantRef<'a>,
    /// Where the packed rows go, and how many bytes there are for them.
    room: *mut u8,
    room_len: usize,
}

// SAFETY: the room is exclusive to the piece, and outlives the threads that pack.
unsafe impl Send for Piece<'_> {}

/// Collects matrices, then packs all of them on all threads.
struct Packer<'a> {
    pieces: Vec<Piece<'a>>,
    /// The memory that all packed matrices share: it consists of huge pages, for which single matrices of small models
    /// would be too short.
    memory: Arc<AlignedVec<u8>>,
    /// Where this memory starts, for writing, and how many bytes of it are taken.
    start: *mut u8,
    used: usize,
}

impl<'a> Packer<'a> {
    /// A packer with room for these matrices.
    fn new(matrices: impl Iterator<Item = HostMatrix<'a>>) -> Result<Self, BackendError> {
        let mut len = 0usize;
        for matrix in matrices {
            if let HostMatrix::Quantised(w) = matrix {
                let more = w.format().packed_size(w.rows(), w.cols())?;
                len = len.saturating_add(more.next_multiple_of(AlignedVec::<u8>::ALIGN));
            }
        }
        let mut memory = AlignedVec::zeroed(len);
        let start = memory.as_mut_ptr();
        Ok(Self { pieces: Vec::new(), memory: Arc::new(memory), start, used: 0 })
    }

    /// Room for a matrix, which is packed later.
    fn matrix(&mut self, matrix: HostMatrix<'a>) -> Result<Arc<Matrix>, BackendError> {
        let kernels = crate::kernels::<f32>();
        let w = match matrix {
            HostMatrix::Quantised(w) => w,
            HostMatrix::F32(w) => {
                let (rows, cols) = (w.rows(), w.cols());
                let mut memory = AlignedVec::zeroed(rows * cols);
                for (r, to) in memory.chunks_exact_mut(cols).enumerate() {
                    for (c, to) in to.iter_mut().enumerate() {
                        let at = r * w.row_stride() + c * w.col_stride();
                        // SAFETY: an element of the view.
                        *to = unsafe { *w.as_ptr().add(at) };
                    }
                }
                return Ok(Arc::new(Matrix::Dense { rows, cols, memory }));
            }
        };
        let (format, rows, cols) = (w.format(), w.rows(), w.cols());
        let at = self.used..self.used + format.packed_size(rows, cols)?;
        self.used = at.end.next_multiple_of(AlignedVec::<u8>::ALIGN);
        assert!(at.end <= self.memory.len(), "room was made for every matrix");
        // SAFETY: within the memory, and no other matrix's; nobody reads it before everything is packed.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.start.add(at.start), at.len()) };
        let room = kernels.packed_q_room(format, rows, cols, memory)?;
        // Parts of 16 rows are equally long.
        let part = room.len() / rows.div_ceil(PackedQ::ROW_STEP).max(1) * (PACKED_ROWS / PackedQ::ROW_STEP);
        for (i, room) in room.chunks_mut(part.max(1)).enumerate() {
            let rows = w.row_range(i * PACKED_ROWS, PACKED_ROWS.min(rows - i * PACKED_ROWS))?;
            self.pieces.push(Piece { rows, room: room.as_mut_ptr(), room_len: room.len() });
        }
        Ok(Arc::new(Matrix::Packed { format, rows, cols, memory: Arc::clone(&self.memory), at }))
    }

    /// Room for matrices.
    fn all(
        &mut self,
        matrices: impl Iterator<Item = HostMatrix<'a>>,
    ) -> Result<Vec<Arc<Matrix>>, BackendError> {
        matrices.map(|matrix| self.matrix(matrix)).collect()
    }

    /// Room for the matrices of a network.
    fn network(&mut self, [gate, up, down]: [HostMatrix<'a>; 3]) -> Result<[Arc<Matrix>; 3], BackendError> {
        Ok([self.matrix(gate)?, self.matrix(up)?, self.matrix(down)?])
    }

    fn pack(self, threads: usize, progress: &mut dyn FnMut(Progress)) -> Result<(), BackendError> {
        let kernels = crate::kernels::<f32>();
        let total: usize = self.pieces.iter().map(|piece| piece.rows.as_bytes().len()).sum();
        let pieces: Vec<_> = self.pieces.into_iter().map(|piece| Mutex::new(Some(piece))).collect();
        let (next, done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), OnceLock::new());
        let work = |progress: &mut dyn FnMut(Progress)| loop {
            let piece = pieces.get(next.fetch_add(1, Ordering::Relaxed));
            let Some(piece) = piece.and_then(|p| p.lock().unwrap_or_else(PoisonError::into_inner).take())
            else {
                return;
            };
            // SAFETY: a part of a matrix's memory that no other piece has; nobody looks into that memory before everything is
            // packed.
            let room = unsafe { std::slice::from_raw_parts_mut(piece.room, piece.room_len) };
            if let Err(e) = kernels.pack_q_rows(piece.rows, room) {
                failed.get_or_init(|| e);
            }
            let bytes = piece.rows.as_bytes().len();
            progress(Progress { done: done.fetch_add(bytes, Ordering::Relaxed) + bytes, total });
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| work(&mut |_| ()));
            }
            work(progress);
        });
        progress(Progress { done: total, total });
        failed.into_inner().map_or(Ok(()), |e| Err(e.into()))
    }
}

/// Packs a model's weights.
pub(super) fn upload(
    config: &Config,
    weights: &HostWeights<'_>,
    threads: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<CpuWeights, BackendError> {
    let matrices = weights.layers.iter().flat_map(|l| {
        let networks = l.feed_forward.iter().flat_map(FeedForward::matrices);
        [l.q, l.k, l.v, l.output].into_iter().chain(networks).chain(l.experts.iter().map(|e| e.router))
    });
    let mut each = Vec::with_capacity(config.layers);
    for layer in &weights.layers {
        each.push(layer.experts.as_ref().map(|of| of.each()).transpose()?.unwrap_or_default());
    }
    let experts = each.iter().flatten().flatten().copied();
    let mut packer = Packer::new(matrices.chain([weights.output]).chain(experts))?;
    let mut layers = Vec::with_capacity(config.layers);
    for (l, each) in weights.layers.iter().zip(each) {
        let bias = [&l.q_bias, &l.k_bias, &l.v_bias].map(|b| b.as_deref());
        let bias = match bias {
            [Some(q), Some(k), Some(v)] => Some([q, k, v].concat()),
            _ => None,
        };
        layers.push(LayerWeights {
            qkv: [packer.matrix(l.q)?, packer.matrix(l.k)?, packer.matrix(l.v)?],
            attention_output: [packer.matrix(l.output)?],
            gate_up: packer.all(l.feed_forward.iter().flat_map(|network| [network.gate, network.up]))?,
            down: packer.all(l.feed_forward.iter().map(|network| network.down))?,
            experts: match &l.experts {
                None => None,
                Some(experts) => Some(ExpertWeights {
                    router: [packer.matrix(experts.router)?],
                    each: each.into_iter().map(|m| packer.network(m)).collect::<Result<_, _>>()?,
                    shared_gate: experts.shared_gate.clone(),
                }),
            },
            attention_norm: l.attention_norm.clone(),
            post_attention_norm: l.post_attention_norm.clone(),
            ffn_norm: l.ffn_norm.clone(),
            post_ffn_norm: l.post_ffn_norm.clone(),
            head_norms: l.q_norm.clone().zip(l.k_norm.clone()).map(|(q, k)| [q, k]),
            bias,
        });
    }
    let output = packer.matrix(weights.output)?;
    let embedding = match weights.embedding {
        _ if config.tied_embeddings => Embedding::Tied(Arc::clone(&output)),
        HostMatrix::F32(_) => Embedding::Tied(packer.matrix(weights.embedding)?),
        HostMatrix::Quantised(w) => Embedding::Rows {
            format: w.format(),
            rows: w.rows(),
            cols: w.cols(),
            bytes: AlignedVec::from_slice(w.as_bytes()),
        },
    };
    packer.pack(threads, progress)?;
    let output_norm = weights.output_norm.clone();
    Ok(CpuWeights { config: config.clone(), embedding, layers, output: [output], output_norm })
}
