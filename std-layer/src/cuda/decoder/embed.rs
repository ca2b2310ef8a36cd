//! Rows of tables, and the positions of rows.

use gllm_kernels_core::ElementType;

use super::args::{EmbeddingArgs, PositionsArgs};
use super::StepRows;
use crate::cuda::check::{area, bad, rows, same_len, small};
use crate::cuda::error::CudaError;
use crate::cuda::geometry;
use crate::cuda::kernels::type_number;
use crate::cuda::memory::{View, ViewMut};
use crate::cuda::stream::Stream;
use crate::cuda::Ops;

impl Ops {
    /// `y_t = table[ids_t]`, widened; a row that does not exist gives NaN.
    pub(crate) fn decoder_embed(
        &self,
        stream: &Stream,
        (table, ty, cols): (View<'_, u8>, ElementType, usize),
        ids: View<'_, u32>,
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let size = if ty == ElementType::F32 { size_of::<f32>() } else { size_of::<u16>() };
        let all = rows(table.len(), area("bytes of a row", &[cols, size])?)?;
        same_len("y", y.len(), area("elements of y", &[ids.len(), cols])?)?;
        for context in [table.context(), ids.context(), y.context()] {
            self.here(context)?;
        }
        let args = EmbeddingArgs {
            table: table.address(),
            ids: ids.address(),
            y: y.address(),
            rows: small("rows", all)?,
            cols: small("cols", cols)?,
            ty: type_number(ty),
        };
        let geometry = geometry::embed(ids.len(), cols);
        // SAFETY: the arguments were checked; ids are checked by the kernel.
        unsafe { self.loader.launch(self.decoder("embed"), stream, geometry, &args) }
    }

    /// The position of each row in its text, if that is wanted; and the temperature of its scores, if there is a table of factors, each for so many positions.
    pub(crate) fn decoder_positions(
        &self,
        stream: &Stream,
        rows: StepRows<'_>,
        positions: Option<ViewMut<'_, u32>>,
        temperatures: Option<(View<'_, f32>, usize, ViewMut<'_, f32>)>,
    ) -> Result<(), CudaError> {
        let m = rows.lengths.len();
        self.here(rows.lengths.context())?;
        if let Some(positions) = &positions {
            same_len("positions", positions.len(), m)?;
            self.here(positions.context())?;
        }
        let (mut table, mut to, mut each, mut entries) = (0, 0, 1, 0);
        if let Some((factors, of, temperatures)) = temperatures {
            same_len("temperatures", temperatures.len(), m)?;
            self.here(factors.context())?;
            self.here(temperatures.context())?;
            if of == 0 {
                return Err(bad("temperatures", "factors of one position at least"));
            }
            (table, to) = (factors.address(), temperatures.address());
            (each, entries) = (small("positions", of)?, small("factors", factors.len())?);
        }
        let args = PositionsArgs {
            lengths: rows.lengths.address(),
            seen: rows.of_rows(self, "seen", rows.seen)?,
            positions: positions.map_or(0, |positions| positions.address()),
            temperatures: to,
            table,
            rows: small("rows", m)?,
            each,
            entries,
        };
        // SAFETY: the arguments were checked.
        unsafe { self.loader.launch(self.decoder("positions"), stream, geometry::threads(m), &args) }
    }
}
