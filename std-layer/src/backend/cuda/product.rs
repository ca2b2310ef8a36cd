//! Products on a GPU: in which forms they take their input, and how each matrix is multiplied.

use std::ops::Range;

use gllm_kernels_core::{bf16, f16, ElementType};

use super::arena::{Memory, Place, Wanted};
use super::layout::{Access, Layout};
use super::step::Lowering;
use super::weights::{half_type, Matrix, Product, Storage, Way};
use super::Gpu;
use crate::backend::BackendError;
use crate::cuda::segments::Segments;
use crate::cuda::{CudaError, Float, Split, ViewMut};

/// Products of rows with those of several matrices that the GPU chose.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// Rows that a matrix has, about.
    pub(super) each: usize,
    /// How many matrices there are.
    pub(super) matrices: usize,
    /// Whether there is one row, for all of them.
    pub(super) single: bool,
    /// Rows of a segment, and where in [`Place::Routes`] the table of such segments is.
    pub(super) cuts: Vec<(usize, Range<usize>)>,
}

impl Spread {
    /// The segments of a product whose blocks have so many rows.
    fn segments<'a>(
        &self,
        memory: &Memory<'a>,
        layout: &Layout<Place>,
        most: usize,
    ) -> Result<Segments<'a>, CudaError> {
        let cut = self.cuts.iter().find(|cut| cut.0 == most);
        let table = cut.map_or(0..0, |cut| cut.1.clone());
        let table = memory.part(layout, Place::Routes, table.start, table.len())?.into_view();
        Ok(Segments { table, most, matrices: self.matrices, single: self.single })
    }
}

impl<'a> Lowering<'a> {
    /// Which forms of its input a product takes whose matrices have `each` rows, about.
    pub(super) fn wanted(&self, product: &Product, each: usize) -> Wanted {
        let (half, cols) = (half_type(product), product.matrices[0].cols);
        let mut wanted = Wanted { cols, half: None, rows: None, integer: false, exact: false };
        for matrix in &product.matrices {
            match matrix.way(self.rows.exact, each, half) {
                Way::Gemv(_) | Way::GemmF32 => wanted.rows = Some(Place::Inputs),
                Way::Exact(_) => wanted.exact = true,
                Way::Integer(_) => wanted.integer = true,
                Way::Gemm | Way::Qgemm(_) | Way::Decoded(_) => wanted.half = Some(half),
            }
        }
        wanted
    }

    /// The products of a linear operation, one matrix behind the other in `to`; or with those of several such matrices that the GPU chose.
    pub(super) fn multiply(
        &mut self,
        product: &'a Product,
        to: Option<Place>,
        spread: Option<&Spread>,
    ) -> Result<(), BackendError> {
        let (m, exact, half, inputs) = (self.m, self.rows.exact, half_type(product), self.inputs);
        let each = spread.map_or(m, |spread| spread.each);
        // Rows of X.
        let rows = if spread.is_some_and(|spread| spread.single) { 1 } else { m };
        let mut uses = vec![(inputs, Access::Read), (Place::Half, Access::Read)];
        uses.extend(to.map(|to| (to, Access::Write)));
        uses.extend(spread.map(|_| (Place::Routes, Access::Read)));
        let gpu = self.gpu;
        // Whether blocks may share the columns.
        let divided = |matrix: &Matrix| spread.is_none() && matrix.way(exact, m, half).is_divided(half);
        // Parts of the columns, and elements of all their results.
        let split = |matrix: &Matrix| {
            let dense = match matrix.way(exact, m, half) {
                Way::Qgemm(_) => None,
                Way::GemmF32 => Some(ElementType::F32),
                _ => Some(half),
            };
            let parts = gpu.ops.gemm_parts((m, matrix.rows, matrix.cols), dense);
            (parts, if parts > 1 { parts * m * matrix.rows } else { 0 })
        };
        for matrix in product.matrices.iter().filter(|matrix| divided(matrix)) {
            self.size(Place::Split, split(matrix).1, 4);
            uses.push((Place::Split, Access::Write));
            if let Way::Decoded(_) = matrix.way(exact, m, half) {
                self.size(Place::Decoded, matrix.rows * matrix.cols, 2);
                uses.push((Place::Decoded, Access::Write));
            }
        }
        self.launch(&uses, |memory, layout, gpu| {
            let (ops, stream) = (&gpu.ops, &gpu.stream);
            for (i, matrix) in product.matrices.iter().enumerate() {
                let (n, k, way) = (matrix.rows, matrix.cols, matrix.way(exact, each, half));
                let (from, _) = product.results(i, m);
                let y = match to {
                    Some(place) => memory.floats(layout, place, from, m * n),
                    None => memory.logits_of(0, m * n),
                }?;
                let block = matrix.block_rows(exact, each, half);
                let segments = spread.map(|s| s.segments(memory, layout, block)).transpose()?;
                let room = || {
                    let (parts, elements) = split(matrix);
                    Ok::<_, CudaError>(Split {
                        parts,
                        room: memory.floats(layout, Place::Split, 0, elements)?,
                    })
                };
                match (way, half, segments) {
                    (Way::Gemv(ty), ..) => {
                        let x = memory.floats(layout, inputs, 0, rows * k)?.into_view();
                        let (shape, w) = ((n, k), matrix.bytes());
                        match ty {
                            ElementType::F16 => {
                                ops.gemv_of(stream, shape, (w.cast::<f16>()?, segments), x, y)?
                            }
                            ElementType::Bf16 => {
                                ops.gemv_of(stream, shape, (w.cast::<bf16>()?, segments), x, y)?
                            }
                            _ => ops.gemv_of(stream, shape, (w.cast::<f32>()?, segments), x, y)?,
                        }
                    }
                    (Way::GemmF32, _, segments) => {
                        let (w, x) =
                            (matrix.bytes().cast::<f32>()?, memory.floats(layout, inputs, 0, rows * k)?);
                        match segments {
                            Some(segments) => {
                                ops.gemm_segments(stream, (n, k), (w, segments), x.into_view(), y)?
                            }
                            None => ops.gemm_split(stream, (n, k), w, x.into_view(), (room()?, y))?,
                        }
                    }
                    (Way::Exact(format) | Way::Integer(format), ..) => {
                        let as_they_are = matches!(way, Way::Exact(_));
                        let x = memory.activations[usize::from(as_they_are)].as_ref();
                        let x = x.ok_or(CudaError::WrongSize { arg: "activations", need: m * k, got: 0 })?;
                        ops.qgemv_of(stream, (matrix.blocks(format)?, segments), x, y)?
                    }
                    (Way::Qgemm(format) | Way::Decoded(format), ElementType::F16, Some(segments)) => {
                        let x = memory.half::<f16>(layout, m * k)?;
                        ops.qgemm_segments(stream, (matrix.blocks(format)?, segments), x, y)?
                    }
                    (Way::Qgemm(format) | Way::Decoded(format), _, Some(segments)) => {
                        let x = memory.half::<bf16>(layout, m * k)?;
                        ops.qgemm_segments(stream, (matrix.blocks(format)?, segments), x, y)?
                    }
                    (Way::Gemm, ElementType::F16, Some(segments)) => {
                        let (w, x) = (matrix.bytes().cast::<f16>()?, memory.half(layout, m * k)?);
                        ops.gemm_segments(stream, (n, k), (w, segments), x, y)?
                    }
                    (Way::Gemm, _, Some(segments)) => {
                        let (w, x) = (matrix.bytes().cast::<bf16>()?, memory.half(layout, m * k)?);
                        ops.gemm_segments(stream, (n, k), (w, segments), x, y)?
                    }
                    (Way::Gemm | Way::Decoded(_), ElementType::F16, None) => {
                        dense::<f16>(gpu, (memory, layout), matrix, (m, (room()?, y)))?
                    }
                    (Way::Gemm | Way::Decoded(_), _, None) => {
                        dense::<bf16>(gpu, (memory, layout), matrix, (m, (room()?, y)))?
                    }
                    (Way::Qgemm(format), ElementType::F16, None) => {
                        let x = memory.half::<f16>(layout, m * k)?;
                        ops.qgemm(stream, matrix.blocks(format)?, x, y)?
                    }
                    (Way::Qgemm(format), _, None) => {
                        let x = memory.half::<bf16>(layout, m * k)?;
                        ops.qgemm_split(stream, matrix.blocks(format)?, x, (room()?, y))?
                    }
                }
            }
            Ok(())
        })
    }
}

/// A product with a matrix that is dense, or is decoded for it, and `m` rows.
fn dense<T: Float>(
    gpu: &Gpu,
    (memory, layout): (&Memory<'_>, &Layout<Place>),
    matrix: &Matrix,
    (m, to): (usize, (Split<'_>, ViewMut<'_, f32>)),
) -> Result<(), CudaError> {
    let (n, k) = (matrix.rows, matrix.cols);
    let w = match matrix.kind {
        Storage::Dense(_) => matrix.bytes().cast::<T>()?,
        Storage::Blocks(format) => {
            let decoded = || memory.part::<T>(layout, Place::Decoded, 0, n * k);
            gpu.ops.dequant(&gpu.stream, matrix.blocks(format)?, decoded()?)?;
            decoded()?.into_view()
        }
    };
    gpu.ops.gemm_split(&gpu.stream, (n, k), w, memory.half::<T>(layout, m * k)?, to)
}
