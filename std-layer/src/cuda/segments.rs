//! Products with several matrices of one shape.

use super::check::{bad, small};
use super::error::CudaError;
use super::memory::View;
use super::Ops;

/// Numbers of a segment.
pub(crate) const SEGMENT: usize = 3;

/// Which rows of results come from which of several matrices that lie one behind the other: only the GPU knows, as it made the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments<'a> {
    /// Of each segment its matrix, its first row, and the row behind its last: what the GPU writes there exists, or is empty.
    pub(crate) table: View<'a, u32>,
    /// Rows of a segment, at most: as many as blocks of the kernel take.
    pub(crate) most: usize,
    /// How many matrices there are.
    pub(crate) matrices: usize,
    /// Whether all results are products with the one row that X has.
    pub(crate) single: bool,
}

/// What kernels are told of segments.
pub(super) struct Spread {
    pub(super) matrices: usize,
    /// Rows of results.
    pub(super) rows: usize,
    /// Where the table is; 0: there is none.
    pub(super) table: super::sys::Address,
    pub(super) single: u32,
    /// Segments, if there are any.
    pub(super) blocks: Option<usize>,
}

impl Ops {
    /// How the rows of results, `n` numbers each of `y_len`, belong to `m` rows of X.
    pub(super) fn spread(
        &self,
        segments: Option<Segments<'_>>,
        (m, n, y_len): (usize, usize, usize),
    ) -> Result<Spread, CudaError> {
        let Some(segments) = segments else {
            return Ok(Spread { matrices: 1, rows: m, table: 0, single: 0, blocks: None });
        };
        self.here(segments.table.context())?;
        let blocks = super::check::rows(segments.table.len(), SEGMENT)?;
        small("segments", blocks)?;
        if segments.single && m != 1 {
            return Err(bad("x", "one row for all results"));
        }
        let rows = if segments.single { super::check::rows(y_len, n)? } else { m };
        let (matrices, table) = (segments.matrices, segments.table.address());
        Ok(Spread { matrices, rows, table, single: segments.single.into(), blocks: Some(blocks) })
    }
}
