//! Looking for weights that are not finite.

use std::ops::Range;

use gllm_kernels_core::QuantRef;
use rayon::prelude::*;

use super::source::{bad_tensor, numbers};
use super::weights::Matrix;
use super::{Model, ModelError};
use crate::detect::kernels;

impl Model<'_> {
    /// Looks at the scales of all weights (where they are out of bounds, at the weights themselves), on all threads: this reads the
    /// whole file, as [`open`](Model::open) does not.
    ///
    /// # Errors
    /// `BadTensor` for a matrix with a number that is not finite, as blocks with a NaN for their scale have.
    pub fn verify(&self) -> Result<(), ModelError> {
        const ROWS: usize = 64;
        let (naming, config) = (self.files.naming(), self.config());
        for (name, at) in self.names().filter(|(n, at)| n.dims(naming, config, at[0]).len() >= 2) {
            let bad = match self.files.matrix(config, name, at)? {
                Matrix::Quantised(w) => {
                    let starts: Vec<usize> = (0..w.rows()).step_by(ROWS).collect();
                    let bad = |from| {
                        let rows = from..w.rows().min(from + ROWS);
                        let sure =
                            w.row_range(from, rows.len()).is_ok_and(|w| kernels::<f32>().surely_finite(w));
                        if sure {
                            None
                        } else {
                            not_finite(w, rows)
                        }
                    };
                    starts.into_par_iter().find_map_first(bad)
                }
                // This says where by itself.
                Matrix::F32(_) => numbers(self.files.find(config, name, at)?).map(|_| None)?,
            };
            if let Some([row, column]) = bad {
                let problem = format!("is not finite at row {row}, column {column}");
                return Err(bad_tensor(&name.of(naming, config, at), problem));
            }
        }
        Ok(())
    }
}

/// Row and column of the first weight, in these rows, that is not finite.
fn not_finite(w: QuantRef<'_>, rows: Range<usize>) -> Option<[usize; 2]> {
    let mut decoded = vec![0.0; w.cols()];
    rows.into_iter().find_map(|row| {
        let one = w.row_range(row, 1).and_then(|w| kernels::<f32>().dequant(w, &mut decoded));
        // A row that cannot be had is bad from its first number on.
        one.map_or(Some(0), |()| decoded.iter().position(|x| !x.is_finite())).map(|column| [row, column])
    })
}
