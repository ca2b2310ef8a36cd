//! Products with weights: how they are divided among threads, and the form in which they take activations.

use std::sync::Arc;

use gllm_kernels_core::{
    KernelError, Kernels, MatMut, MatRef, PackedQ, Precision, QgemmPlan, Right, Scratch,
};

use super::rows::{Rounded, Rows};
use super::team::Memory;
use super::weights::Matrix;
use crate::parallel::qgemm::{CHUNK_MULTIPLE, CHUNK_STEP, MEMORY_BOUND_ROWS};

/// About how many multiply-adds a chunk has at most: less than a millisecond of work.
const CHUNK_WORK: usize = 1 << 27;

/// Bytes of weights below which a chunk is not worth claiming: they take about a microsecond.
const MIN_CHUNK_BYTES: usize = 16 << 10;

/// Chunks for each thread. The more there are, the less a thread that is suspended delays the others.
const CHUNKS_PER_THREAD: usize = 6;

/// An exact plan is made for at least this many rows of activations. So any number of rows is multiplied by the same kernel,
/// and gets the same bits.
const EXACT_ROWS: usize = 64;

/// How a matrix is multiplied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// Quantised weights times activations.
    Quantised(QgemmPlan<f32>),
    /// Weights in f32, multiplied in the way of a product with `rows` rows.
    Dense { rows: usize },
}

impl Way {
    /// The way for `rows` rows of activations.
    pub(super) fn new(
        k: &Kernels<f32>,
        matrix: &Matrix,
        rows: usize,
        precision: Precision,
    ) -> Result<Self, KernelError> {
        let whole = if precision == Precision::Exact { rows.max(EXACT_ROWS) } else { rows };
        match matrix {
            Matrix::Dense { .. } => Ok(Self::Dense { rows: whole }),
            Matrix::Packed { format, rows: n, cols, .. } => {
                let plan = k.qgemm_plan(*format, whole, *n, *cols, precision)?;
                Ok(Self::Quantised(plan.packed(true).resized(rows, *n)))
            }
        }
    }

    /// The plan, if it rounds activations to 8 bits.
    pub(super) fn rounds(self) -> Option<QgemmPlan<f32>> {
        match self {
            Self::Quantised(plan) if plan.precision() == Precision::Integer => Some(plan),
            _ => None,
        }
    }

    /// The plan that prepares activations, unless the product takes them as they are.
    pub(super) fn prepares(self) -> Result<Option<QgemmPlan<f32>>, KernelError> {
        match self {
            Self::Quantised(plan) if plan.prepared_size()?.size() > 0 => Ok(Some(plan)),
            _ => Ok(None),
        }
    }

    /// Multiplies `x` by the matrix's rows from `first` on, as many as `y` has columns, and adds `bias`. `prepared` is where the rows are that the
    /// way's plan has prepared.
    ///
    /// # Safety
    /// Prepared rows are those of `x`.
    pub(super) unsafe fn multiply(
        self,
        k: &Kernels<f32>,
        (matrix, first): (&Matrix, usize),
        (x, prepared): (MatRef<'_, f32>, Option<*mut u8>),
        (y, bias): (MatMut<'_, f32>, Option<&[f32]>),
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let (rows, n, cols) = (y.rows(), y.cols(), matrix.cols());
        match (matrix, self) {
            (Matrix::Packed { format, memory: w, at, .. }, Self::Quantised(plan)) => {
                let w = k.packed_q(*format, matrix.rows(), cols, &w[at.clone()])?.row_range(first, n)?;
                let part = plan.resized(rows, n);
                let (x, need) = match prepared {
                    // SAFETY: the caller's contract.
                    Some(to) => (unsafe { Rounded { plan, to }.get(x)? }, part.scratch_prepared()?),
                    None => (x.into(), part.scratch()?),
                };
                part.run(y, w, x, bias, Scratch::new(memory.bytes(need.size_unaligned())))
            }
            (Matrix::Dense { memory: w, .. }, Self::Dense { rows: whole }) => {
                let w = MatRef::new(&w[first * cols..(first + n) * cols], n, cols)?;
                let plan = k.gemm_plan(whole, matrix.rows().max(2), cols)?.resized(rows, n)?;
                let need = plan.scratch()?.size_unaligned();
                plan.run(y, x, Right::Transposed(w), bias, Scratch::new(memory.bytes(need)))
            }
            (Matrix::Packed { .. }, Self::Dense { .. }) | (Matrix::Dense { .. }, Self::Quantised(..)) => {
                unreachable!("the way is chosen by the matrix")
            }
        }
    }
}

/// The number of rows of a matrix in a chunk of a product of `rows` rows of activations. Chunks are large enough to be worth
/// claiming, and small enough to be divided evenly. The operation has `all` rows of weights.
pub(super) fn chunk_rows(matrix: &Matrix, all: usize, rows: usize, threads: usize) -> usize {
    let row_bytes = (matrix.bytes() / matrix.rows().max(1)).max(1);
    let least = MIN_CHUNK_BYTES.div_ceil(row_bytes);
    let most = CHUNK_WORK / rows.saturating_mul(matrix.cols()).max(1);
    let fair = all.div_ceil(threads * CHUNKS_PER_THREAD);
    let step = if threads == 1 { most } else { fair.max(least).min(most) };
    let whole = if step > CHUNK_MULTIPLE {
        CHUNK_MULTIPLE
    } else if rows > MEMORY_BOUND_ROWS {
        CHUNK_STEP
    } else {
        PackedQ::ROW_STEP
    };
    step.max(1).next_multiple_of(whole)
}

/// One of a product's matrices.
#[derive(Debug)]
struct Part {
    matrix: *const Matrix,
    way: Way,
    /// Where prepared activations are.
    prepared: Option<*mut u8>,
    /// Rows of weights of a chunk.
    step: usize,
    /// Number of chunks.
    chunks: usize,
    /// Its first column in the output.
    column: usize,
}

/// How a product is computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Rows of the input.
    pub(super) rows: usize,
    pub(super) precision: Precision,
    pub(super) threads: usize,
    /// Whether the input has two [halves](super::rows::RowWork::Split) of each row, whose products are added up.
    pub(super) split: bool,
}

/// One input times several matrices, whose results lie side by side.
#[derive(Debug)]
pub(super) struct Product {
    parts: Vec<Part>,
    /// An element for each column of the output.
    bias: Option<*const [f32]>,
    rows: usize,
    split: bool,
    x: Rows,
    y: Rows,
}

impl Product {
    /// A product, plus a bias. For each form in which it takes them, `room` is called to get memory.
    pub(super) fn new(
        k: &Kernels<f32>,
        (matrices, bias): (&[Arc<Matrix>], Option<*const [f32]>),
        How { rows, precision, threads, split }: How,
        (x, y): (Rows, Rows),
        mut room: impl FnMut(QgemmPlan<f32>) -> Result<Rounded, KernelError>,
    ) -> Result<Self, KernelError> {
        let (mut parts, mut column) = (Vec::with_capacity(matrices.len()), 0);
        let weights: usize = matrices.iter().map(|matrix| matrix.rows()).sum();
        for matrix in matrices {
            let way = Way::new(k, matrix, rows, precision)?;
            let prepared = way.prepares()?.map(|plan| Ok::<_, KernelError>(room(plan)?.to)).transpose()?;
            let step = chunk_rows(matrix, weights, rows, threads);
            let chunks = matrix.rows().div_ceil(step);
            parts.push(Part { matrix: Arc::as_ptr(matrix), way, prepared, step, chunks, column });
            column += matrix.rows();
        }
        Ok(Self { parts, bias, rows, split, x, y })
    }

    pub(super) fn chunks(&self) -> usize {
        self.parts.iter().map(|part| part.chunks).sum()
    }

    /// Multiplies rows that are [split](super::rows::RowWork::Split) by some rows of a matrix, and adds up the products of both halves, and a bias.
    ///
    /// # Safety
    /// Prepared rows are those of `x`; the output has so many columns, which nobody else uses.
    unsafe fn add_up(
        k: &Kernels<f32>,
        way: Way,
        (matrix, first, n): (&Matrix, usize, usize),
        (x, prepared): (MatRef<'_, f32>, Option<*mut u8>),
        (y, bias): (Rows, Option<&[f32]>),
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let mut products = memory.take_numbers(x.rows() * n);
        let all = &mut products[..x.rows() * n];
        // SAFETY: the caller's contract.
        let done = unsafe {
            way.multiply(k, (matrix, first), (x, prepared), (MatMut::new(all, x.rows(), n)?, None), memory)
        };
        for (row, both) in all.chunks_exact(2 * n).enumerate() {
            let (whole, rest) = both.split_at(n);
            // SAFETY: the caller's contract.
            let y = unsafe { std::slice::from_raw_parts_mut(y.ptr.add(row * y.width), n) };
            k.vec_add(whole, rest, y)?;
            bias.map_or(Ok(()), |bias| k.vec_add_inplace(bias, y))?;
        }
        memory.keep_numbers(products);
        done
    }

    /// Does a chunk.
    ///
    /// # Safety
    /// The matrices, the bias, the input, its rounded forms and room for the output exist; nobody else uses the chunk's columns.
    pub(super) unsafe fn run(
        &self,
        k: &Kernels<f32>,
        mut chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        for part in &self.parts {
            if chunk < part.chunks {
                // SAFETY: the caller's contract: rows of the matrix are columns of the output, and the chunk's own.
                return unsafe {
                    let (matrix, rows, first) = (&*part.matrix, self.rows, chunk * part.step);
                    let n = part.step.min(matrix.rows() - first);
                    let to = Rows { ptr: self.y.ptr.add(part.column + first), ..self.y };
                    let x = (MatRef::new(self.x.get(0..rows), rows, matrix.cols())?, part.prepared);
                    let bias = self.bias.map(|bias| &(&*bias)[part.column + first..][..n]);
                    if self.split {
                        return Self::add_up(k, part.way, (matrix, first, n), x, (to, bias), memory);
                    }
                    let y = MatMut::from_raw_parts(to.ptr, [rows, n], [to.width, 1]);
                    part.way.multiply(k, (matrix, first), x, (y, bias), memory)
                };
            }
            chunk -= part.chunks;
        }
        Ok(())
    }
}
