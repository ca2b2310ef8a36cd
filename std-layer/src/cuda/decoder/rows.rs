//! Rows, or parts of them, in the forms that products take.

use super::args::RowsArgs;
use super::Forms;
use crate::cuda::check::{aligned, bad, small};
use crate::cuda::memory::View;
use crate::cuda::stream::Stream;
use crate::cuda::{check, geometry, CudaError, Ops};

/// Which elements of rows go on, and in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Take {
    /// All.
    All,
    /// Of each `room` elements `dim`.
    Padded { dim: usize, room: usize },
    /// Rows have `step` elements for each head, of which as many go on as there are columns: a row for each, of each head those of all rows.
    ToHeads { heads: usize, step: usize },
    /// Of each head there are `dim` elements of all rows: those of all heads become a row.
    FromHeads { dim: usize },
}

impl Ops {
    /// Rows as they are, or those that `rows` names, as `take` says; each times its factor, if there are `factors`, or that of the row whose heads are taken.
    pub(crate) fn decoder_rows(
        &self,
        stream: &Stream,
        (x, rows, factors): (View<'_, f32>, Option<View<'_, u32>>, Option<View<'_, f32>>),
        take: Take,
        to: Forms<'_>,
    ) -> Result<(), CudaError> {
        let cols = to.cols;
        // Elements of a row of x, elements of each part of it that go on, how far parts and rows are apart, and how many heads' rows are put apart.
        let (row, [dim, room], step, heads) = match take {
            Take::All => (cols, [0; 2], cols, 0),
            Take::Padded { dim, room } if dim == room => (cols, [0; 2], cols, 0),
            Take::Padded { dim, room } => {
                let row = check::rows(cols, dim)? * room;
                (row, [dim, room], row, 0)
            }
            Take::ToHeads { heads, step } => (heads * step, [cols, cols], step, heads),
            Take::FromHeads { dim } => (cols, [dim, check::rows(x.len(), cols)? * dim], dim, 0),
        };
        if dim > room.max(step) || (heads > 0 && cols > step) {
            return Err(bad("dim", "at most what rows have"));
        }
        let all = check::rows(x.len(), row)?;
        self.here(x.context())?;
        aligned("x", x.address())?;
        rows.map_or(Ok(()), |rows| self.here(rows.context()))?;
        let m = rows.map_or(all, |rows| rows.len()) * heads.max(1);
        if let Some(factors) = factors {
            check::same_len("factors", factors.len(), m / heads.max(1))?;
            self.here(factors.context())?;
        }
        let geometry = geometry::fours(m, cols);
        let args = RowsArgs {
            x: x.address(),
            rows: rows.map_or(0, |rows| rows.address()),
            factors: factors.map_or(0, |factors| factors.address()),
            out: to.args(self, m)?,
            dim: small("dim", dim)?,
            room: small("room", room)?,
            step: small("step", step)?,
            heads: small("heads", heads)?,
        };
        // SAFETY: the arguments were checked; whoever makes the row numbers vouches that these rows exist.
        unsafe { self.loader.launch(self.decoder("rows"), stream, geometry, &args) }
    }
}
