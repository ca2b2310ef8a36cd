//! The operands of a product as the loops walk them.

use crate::view::MatRef;

/// A matrix. Strides in bytes: from one row of `A` (column of `B`) to the next, from one step to the next.
#[derive(Clone, Copy)]
pub(crate) struct Strided {
    pub(crate) ptr: *const u8,
    pub(crate) across: usize,
    pub(crate) along: usize,
}

impl Strided {
    /// A matrix whose columns are steps: as `A` is, or the transpose of `B`.
    pub(crate) fn of<E>(matrix: MatRef<'_, E>) -> Self {
        let [across, along] =
            [matrix.row_stride(), matrix.col_stride()].map(|stride| stride.wrapping_mul(size_of::<E>()));
        Self { ptr: matrix.as_ptr().cast(), across, along }
    }
}

/// A block of `B` to be made: its columns and its steps.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) col: usize,
    pub(crate) cols: usize,
    pub(crate) step: usize,
    pub(crate) steps: usize,
}

/// Where tiles find `A` or `B`. [`BlockSizes::left`](super::blocks::BlockSizes::left) and
/// [`BlockSizes::right`](super::blocks::BlockSizes::right) decide that, once for each product.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A matrix that is packed block by block, and room for a block.
    Pack(Strided, *mut u8),
    /// A matrix that tiles read where it is.
    InPlace(Strided),
    /// All panels of the matrix.
    Panels(*const u8),
    /// For `B`: a function that writes the panels of a block, and room for one.
    Made(&'a dyn Fn(Wanted, *mut u8), *mut u8),
}
