//! Weights as the CPU multiplies them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gllm_kernels_core::{KernelError, Kernels, MatMut, MatRef, PackedQ, QuantFormat, QuantRef};
use rayon::prelude::*;

use crate::aligned::AlignedVec;
use crate::backend::tensors::{Tensors, Upload};
use crate::backend::{BackendError, Linear, Progress};
use crate::model::{
    Config, ExpertWeights as HostExperts, HostWeights, LayerWeights, Matrix as HostMatrix, Network,
};

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
    /// A copy of these numbers.
    fn dense(w: MatRef<'_, f32>) -> Self {
        let (rows, cols) = (w.rows(), w.cols());
        let mut memory = AlignedVec::zeroed(rows * cols);
        for (r, to) in memory.chunks_exact_mut(cols.max(1)).enumerate() {
            for (c, to) in to.iter_mut().enumerate() {
                let at = r * w.row_stride() + c * w.col_stride();
                // SAFETY: an element of the view.
                *to = unsafe { *w.as_ptr().add(at) };
            }
        }
        Self::Dense { rows, cols, memory }
    }

    /// The transpose of a matrix: in its own format if that is floating point of 16 bits, in f16 if it has 8, otherwise with codes of 8 bits.
    fn transposed(matrix: HostMatrix<'_>) -> Result<Self, KernelError> {
        let w = match matrix {
            HostMatrix::F32(w) => return Ok(Self::dense(w.t())),
            HostMatrix::Quantised(w) => w,
        };
        let (k, rows, cols) = (crate::kernels::<f32>(), w.cols(), w.rows());
        let mut decoded = vec![0.0; rows * cols];
        k.dequant(w, &mut decoded)?;
        let turned = Self::dense(MatRef::new(&decoded, cols, rows)?.t());
        let format = match w.format() {
            QuantFormat::F16 | QuantFormat::Bf16 => w.format(),
            QuantFormat::E4m3 => QuantFormat::F16,
            _ => QuantFormat::Q8_0,
        };
        let (Self::Dense { memory, .. }, Ok(row)) = (&turned, format.row_bytes(cols)) else {
            // Rows that are not made of whole blocks stay as they are.
            return Ok(turned);
        };
        let mut bytes = vec![0; rows * row];
        k.quantize(format, memory, None, &mut bytes)?;
        let mut packed = AlignedVec::zeroed(format.packed_size(rows, cols)?);
        let room = k.packed_q_room(format, rows, cols, &mut packed)?;
        k.pack_q_rows(QuantRef::new(&bytes, format, rows, cols)?, room)?;
        let at = 0..packed.len();
        Ok(Self::Packed { format, rows, cols, memory: Arc::new(packed), at })
    }

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

/// The matrices of a product.
type Matrices = Vec<Arc<Matrix>>;

/// The matrices of an expert.
#[derive(Debug)]
pub(super) struct Expert {
    /// Gate, if there is one, and up.
    pub(super) gate_up: Matrices,
    pub(super) down: Arc<Matrix>,
}

impl Expert {
    fn bytes(&self) -> usize {
        self.gate_up.iter().chain([&self.down]).map(|matrix| matrix.bytes()).sum()
    }
}

/// The experts of a layer.
#[derive(Debug)]
pub(super) struct ExpertWeights {
    pub(super) router: [Arc<Matrix>; 1],
    pub(super) each: Vec<Expert>,
    pub(super) router_bias: Option<Vec<f32>>,
    pub(super) selection_bias: Option<Vec<f32>>,
    pub(super) factors: Option<Vec<f32>>,
    /// Biases of gate, up and down, those of all experts one behind the other.
    pub(super) biases: Option<[Vec<f32>; 3]>,
    pub(super) shared_gate: Option<Vec<f32>>,
}

/// A model's weights in memory, packed for this CPU.
#[derive(Debug)]
pub struct CpuWeights {
    pub(super) config: Config,
    pub(super) embedding: Embedding,
    /// A row for each position.
    pub(super) positions: Option<Embedding>,
    /// A row for each token, with its embeddings for each layer.
    pub(super) per_layer: Option<Embedding>,
    /// The row of the first token type.
    pub(super) token_type: Option<Vec<f32>>,
    pub(super) tensors: Tensors<Matrices, Vec<f32>, ExpertWeights, Matrices>,
    /// Of each layer those that decode the keys of each head from the rows of latent attention: the transposed matrices of keys. None if attention is not latent.
    pub(super) key_matrices: Vec<Matrices>,
}

impl CpuWeights {
    /// The model's sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of weights that a step of one token reads.
    pub fn bytes(&self) -> usize {
        let used = self.config.experts.map_or(0, |experts| experts.used);
        let of_experts = |experts: &ExpertWeights| {
            let each = experts.each.iter().map(Expert::bytes).sum::<usize>();
            experts.router[0].bytes() + each / experts.each.len().max(1) * used
        };
        let all = self.tensors.all_linear().chain(self.tensors.all_heads());
        let matrices = all.flatten().map(|matrix| matrix.bytes());
        let all: usize = matrices.chain(self.tensors.all_experts().map(of_experts)).sum();
        // Where there are no logits, the last product is not computed.
        let idle = if self.config.causal { &[][..] } else { self.tensors.linear(Linear::Output) };
        all - idle.iter().map(|matrix| matrix.bytes()).sum::<usize>()
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
    /// A packer with room for a model's matrices.
    fn new(weights: &HostWeights<'a>) -> Result<Self, BackendError> {
        let mut len = 0usize;
        let mut add = |matrix| -> Result<(), KernelError> {
            if let HostMatrix::Quantised(w) = matrix {
                let more = w.format().packed_size(w.rows(), w.cols())?;
                len = len.saturating_add(more.next_multiple_of(AlignedVec::<u8>::ALIGN));
            }
            Ok(())
        };
        weights.layers.iter().flat_map(LayerWeights::matrices).try_for_each(&mut add)?;
        for experts in weights.layers.iter().filter_map(|layer| layer.experts.as_ref()) {
            experts.matrices().try_for_each(&mut add)?;
        }
        add(weights.output)?;
        weights.per_layer.iter().map(|of| of.projection).try_for_each(&mut add)?;
        let of_streams = weights.streams.iter().flat_map(|of| of.split.iter().chain(&of.merge));
        of_streams.copied().try_for_each(&mut add)?;
        let mut memory = AlignedVec::zeroed(len);
        let start = memory.as_mut_ptr();
        Ok(Self { pieces: Vec::new(), memory: Arc::new(memory), start, used: 0 })
    }

    /// Room for a matrix, which is packed later.
    fn matrix(&mut self, matrix: HostMatrix<'a>) -> Result<Arc<Matrix>, BackendError> {
        let kernels = crate::kernels::<f32>();
        let w = match matrix {
            HostMatrix::Quantised(w) => w,
            HostMatrix::F32(w) => return Ok(Arc::new(Matrix::dense(w))),
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

    /// A table of its own.
    fn table(&mut self, table: HostMatrix<'a>) -> Result<Embedding, BackendError> {
        Ok(match table {
            HostMatrix::F32(_) => Embedding::Tied(self.matrix(table)?),
            HostMatrix::Quantised(w) => Embedding::Rows {
                format: w.format(),
                rows: w.rows(),
                cols: w.cols(),
                bytes: AlignedVec::from_slice(w.as_bytes()),
            },
        })
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

impl<'a> Upload<'a> for Packer<'a> {
    type Product = Matrices;
    type Vector = Vec<f32>;
    type Experts = ExpertWeights;
    type Heads = Matrices;

    fn product(&mut self, matrices: &[HostMatrix<'a>]) -> Result<Matrices, BackendError> {
        matrices.iter().map(|&matrix| self.matrix(matrix)).collect()
    }

    fn heads(&mut self, matrices: &[HostMatrix<'a>]) -> Result<Matrices, BackendError> {
        self.product(matrices)
    }

    fn vector(&mut self, numbers: &[f32]) -> Result<Vec<f32>, BackendError> {
        Ok(numbers.to_vec())
    }

    fn experts(&mut self, of: &HostExperts<'a>) -> Result<ExpertWeights, BackendError> {
        let router = [self.matrix(of.router)?];
        let network = |of: &Network<'a>| {
            let gate_up = of.gate.into_iter().chain([of.up]).map(|matrix| self.matrix(matrix));
            Ok::<_, BackendError>(Expert {
                gate_up: gate_up.collect::<Result<_, _>>()?,
                down: self.matrix(of.down)?,
            })
        };
        let each = of.each.iter().map(network).collect::<Result<_, _>>()?;
        Ok(ExpertWeights {
            router,
            each,
            router_bias: of.router_bias.clone(),
            selection_bias: of.selection_bias.clone(),
            factors: of.factors.clone(),
            biases: of.biases.clone(),
            shared_gate: of.shared_gate.clone(),
        })
    }
}

/// Packs a model's weights.
pub(super) fn upload(
    config: &Config,
    weights: &HostWeights<'_>,
    threads: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<CpuWeights, BackendError> {
    let mut packer = Packer::new(weights)?;
    let tensors = Tensors::upload(&mut packer, weights)?;
    let embedding = match config.tied_embeddings {
        true => Embedding::Tied(Arc::clone(&tensors.linear(Linear::Output)[0])),
        false => packer.table(weights.embedding)?,
    };
    let positions = weights.positions.map(|table| packer.table(table)).transpose()?;
    let per_layer = weights.per_layer.as_ref().map(|of| packer.table(of.table)).transpose()?;
    packer.pack(threads, progress)?;
    let token_type = weights.token_types.map(|types| types.decoded(&[0])).transpose()?;
    let key_matrices = weights.layers.par_iter().map(|layer| {
        let keys = layer.latent.iter().flat_map(|of| &of.keys);
        keys.map(|&matrix| Matrix::transposed(matrix).map(Arc::new)).collect::<Result<_, _>>()
    });
    let key_matrices = key_matrices.collect::<Result<_, _>>()?;
    Ok(CpuWeights {
        config: config.clone(),
        embedding,
        positions,
        per_layer,
        token_type,
        tensors,
        key_matrices,
    })
}
