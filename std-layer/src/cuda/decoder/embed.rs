//! Rows of tables, and the positions of rows.

use gllm_kernels_core::ElementType;

use super::args::{EmbeddingArgs, PositionsArgs};
use super::StepRows;
use crate::cuda::check::{area, rows, same_len, small};
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

    /// The position of each row in its text.
    pub(crate) fn decoder_positions(
        &self,
        stream: &Stream,
        rows: StepRows<'_>,
        positions: ViewMut<'_, u32>,
    ) -> Result<(), CudaError> {
        let m = rows.lengths.len();
        same_len("positions", positions.len(), m)?;
        self.here(rows.lengths.context())?;
        self.here(positions.context())?;
        let args = PositionsArgs {
            lengths: rows.lengths.address(),
            seen: rows.of_rows(self, "seen", rows.seen)?,
            positions: positions.address(),
            rows: small("rows", m)?,
        };
        // SAFETY: the arguments were checked.
        unsafe { self.loader.launch(self.decoder("positions"), stream, geometry::threads(m), &args) }
    }
}
