//! What the row of a text is multiplied with behind pooling. There are few such rows: the host computes the products, for every backend.

use gllm_kernels_core::{KernelError, MatRef};

use super::Matrix;
use crate::detect::kernels;

/// Matrices in f32, the first one first: `y = last(.. first(x))`, divided by its length `sqrt(sum of y^2)` unless that is 0.
#[derive(Debug)]
pub(super) struct Dense {
    /// The numbers of each, row by row, and its columns.
    matrices: Vec<(Vec<f32>, usize)>,
}

impl Dense {
    /// Decodes matrices, each of which has as many columns as the one before has rows.
    pub(super) fn new(matrices: &[Matrix<'_>]) -> Result<Self, KernelError> {
        let decode = |matrix: &Matrix<'_>| {
            let rows: Vec<u32> = (0..matrix.rows() as u32).collect();
            Ok((matrix.decoded(&rows)?, matrix.cols()))
        };
        Ok(Self { matrices: matrices.iter().map(decode).collect::<Result<_, _>>()? })
    }

    /// The products with a row, which has as many elements as the first matrix has columns; without matrices the row as it is.
    pub(super) fn apply(&self, mut row: Vec<f32>) -> Result<Vec<f32>, KernelError> {
        let k = kernels::<f32>();
        for (numbers, cols) in &self.matrices {
            let matrix = MatRef::new(numbers, numbers.len() / cols, *cols)?;
            let mut y = vec![0.0; matrix.rows()];
            k.gemv(1.0, matrix, &row, 0.0, &mut y)?;
            row = y;
        }
        let length = k.vec_dot(&row, &row)?.sqrt();
        if !self.matrices.is_empty() && length != 0.0 {
            k.vec_scale_inplace(1.0 / length, &mut row)?;
        }
        Ok(row)
    }
}
