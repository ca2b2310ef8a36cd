//! Matrices at every kind of stride, between guard pages, with poison in the gaps.

use gllm_kernels_core::{KernelError, MatMut, MatRef};

use crate::guard::{Edge, Guarded};
use crate::numeric::Number;

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Contiguous rows, one behind the other.
    Rows,
    /// Contiguous rows, apart.
    PaddedRows,
    /// Contiguous columns, one behind the other.
    Cols,
    /// Contiguous columns, apart.
    PaddedCols,
    /// Neither rows nor columns contiguous.
    Spread,
    /// Every row is the same memory.
    OneRow,
    /// Every column is the same memory.
    OneCol,
    /// All elements are one.
    OneElement,
}

impl Layout {
    /// Those that an output can have.
    pub const DISTINCT: [Self; 5] =
        [Self::Rows, Self::PaddedRows, Self::Cols, Self::PaddedCols, Self::Spread];
    /// Every layout.
    pub const ALL: [Self; 8] = [
        Self::Rows,
        Self::PaddedRows,
        Self::Cols,
        Self::PaddedCols,
        Self::Spread,
        Self::OneRow,
        Self::OneCol,
        Self::OneElement,
    ];

    /// Row and column stride.
    pub fn strides(self, rows: usize, cols: usize) -> (usize, usize) {
        match self {
            Self::Rows => (cols, 1),
            Self::PaddedRows => (cols + 5, 1),
            Self::Cols => (1, rows),
            Self::PaddedCols => (1, rows + 3),
            Self::Spread => (2 * cols + 1, 2),
            Self::OneRow => (0, 1),
            Self::OneCol => (1, 0),
            Self::OneElement => (0, 0),
        }
    }
}

/// A guarded matrix; what lies between its elements is poison: NaN, if they are floats.
pub struct Matrix<E> {
    /// The memory.
    pub data: Guarded<E>,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// How it lies there.
    pub layout: Layout,
}

impl<E: Copy> Matrix<E> {
    /// All elements poison.
    pub fn poisoned(rows: usize, cols: usize, layout: Layout, edge: Edge) -> Self {
        let (rs, cs) = layout.strides(rows, cols);
        let len = if rows * cols == 0 { 0 } else { (rows - 1) * rs + (cols - 1) * cs + 1 };
        Self { data: Guarded::poisoned(len, edge), rows, cols, layout }
    }

    /// Elements `value(i, j)`. Where elements share memory, the last one counts.
    pub fn new(
        rows: usize,
        cols: usize,
        layout: Layout,
        edge: Edge,
        mut value: impl FnMut(usize, usize) -> E,
    ) -> Self {
        let mut m = Self::poisoned(rows, cols, layout, edge);
        for i in 0..rows {
            for j in 0..cols {
                let at = m.at(i, j);
                m.data[at] = value(i, j);
            }
        }
        m
    }

    /// Where element `(i, j)` is in `data`.
    pub fn at(&self, i: usize, j: usize) -> usize {
        let (rs, cs) = self.layout.strides(self.rows, self.cols);
        i * rs + j * cs
    }

    /// Element `(i, j)`.
    pub fn get(&self, i: usize, j: usize) -> f64
    where
        E: Number,
    {
        self.data[self.at(i, j)].wide()
    }

    /// A view.
    ///
    /// # Errors
    /// None that the view's constructor does not have.
    pub fn view(&self) -> Result<MatRef<'_, E>, KernelError> {
        let (rs, cs) = self.layout.strides(self.rows, self.cols);
        MatRef::with_strides(&self.data, self.rows, self.cols, rs, cs)
    }

    /// A writable view.
    ///
    /// # Errors
    /// `Overlap` where elements share memory.
    pub fn view_mut(&mut self) -> Result<MatMut<'_, E>, KernelError> {
        let (rs, cs) = self.layout.strides(self.rows, self.cols);
        MatMut::with_strides(&mut self.data, self.rows, self.cols, rs, cs)
    }

    /// Whether the gaps still hold what they did at first.
    pub fn gaps_intact(&self) -> bool {
        let mut gap = vec![true; self.data.len()];
        for i in 0..self.rows {
            for j in 0..self.cols {
                gap[self.at(i, j)] = false;
            }
        }
        let kept = |(x, gap): (&E, bool)| !gap || crate::guard::is_poison(std::slice::from_ref(x));
        self.data.intact() && self.data.iter().zip(gap).all(kept)
    }
}
