//! Matrix views: a checked pointer, two dimensions, two strides.

use core::marker::PhantomData;

use crate::check;
use crate::error::KernelError;

/// Index of the last element of a `rows x cols` view plus one; 0 if the view is empty.
fn extent(rows: usize, cols: usize, rs: usize, cs: usize) -> Result<usize, KernelError> {
    if rows == 0 || cols == 0 {
        return Ok(0);
    }
    let last = (rows - 1).checked_mul(rs).and_then(|r| (cols - 1).checked_mul(cs)?.checked_add(r));
    last.and_then(|l| l.checked_add(1)).ok_or(KernelError::SizeOverflow { what: "matrix extent" })
}

fn fits(
    arg: &'static str,
    got: usize,
    rows: usize,
    cols: usize,
    rs: usize,
    cs: usize,
) -> Result<(), KernelError> {
    let need = extent(rows, cols, rs, cs)?;
    if got < need {
        return Err(KernelError::ShortSlice { arg, need, got });
    }
    Ok(())
}

/// A read-only `rows x cols` matrix: element `(i, j)` lies at `i * row_stride + j * col_stride`.
///
/// Strides count elements. A stride of 0 repeats a row or column.
#[derive(Debug)]
pub struct MatRef<'a, E> {
    ptr: *const E,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    life: PhantomData<&'a [E]>,
}

impl<E> Clone for MatRef<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for MatRef<'_, E> {}

// SAFETY: a MatRef is a shared borrow of a slice of E.
unsafe impl<E: Sync> Send for MatRef<'_, E> {}
// SAFETY: a MatRef is a shared borrow of a slice of E; all access is read-only.
unsafe impl<E: Sync> Sync for MatRef<'_, E> {}

impl<'a, E> MatRef<'a, E> {
    /// A contiguous row-major matrix.
    ///
    /// # Errors
    /// `ShortSlice` if `data` has fewer than `rows * cols` elements, `SizeOverflow`.
    pub fn new(data: &'a [E], rows: usize, cols: usize) -> Result<Self, KernelError> {
        Self::with_strides(data, rows, cols, cols, 1)
    }

    /// A matrix with any strides (in elements).
    ///
    /// # Errors
    /// `ShortSlice` if the last element lies outside `data`, `SizeOverflow`.
    pub fn with_strides(
        data: &'a [E],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Result<Self, KernelError> {
        fits("matrix", data.len(), rows, cols, row_stride, col_stride)?;
        Ok(Self { ptr: data.as_ptr(), rows, cols, row_stride, col_stride, life: PhantomData })
    }

    /// Pointer to element (0, 0); dangling if the view is empty.
    pub fn as_ptr(&self) -> *const E {
        self.ptr
    }

    /// Rows `start .. start + len`.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix, `SizeOverflow`.
    pub fn row_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        check::range("rows", start, len, self.rows)?;
        let skip = if len == 0 || self.cols == 0 { 0 } else { start * self.row_stride };
        // SAFETY: unless skip is 0, element (start, 0) exists: the offset lies inside the view's
        // slice, and the product is at most the extent checked at construction.
        Ok(Self { ptr: unsafe { self.ptr.add(skip) }, rows: len, ..self })
    }
}

/// The methods of both kinds of views that tell their shape.
macro_rules! shape {
    ($($view:ident)*) => {$(
        impl<E> $view<'_, E> {
            /// Number of rows.
            pub fn rows(&self) -> usize {
                self.rows
            }
            /// Number of columns.
            pub fn cols(&self) -> usize {
                self.cols
            }
            /// Distance between rows, in elements.
            pub fn row_stride(&self) -> usize {
                self.row_stride
            }
            /// Distance between columns, in elements.
            pub fn col_stride(&self) -> usize {
                self.col_stride
            }

            /// The transposed view; nothing moves.
            pub fn t(self) -> Self {
                Self {
                    rows: self.cols,
                    cols: self.rows,
                    row_stride: self.col_stride,
                    col_stride: self.row_stride,
                    ..self
                }
            }
        }
    )*};
}
shape! { MatRef MatMut }

/// A writable `rows x cols` matrix; no two index pairs share an element.
#[derive(Debug)]
pub struct MatMut<'a, E> {
    ptr: *mut E,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    life: PhantomData<&'a mut [E]>,
}

// SAFETY: a MatMut is an exclusive borrow of its elements.
unsafe impl<E: Send> Send for MatMut<'_, E> {}
// SAFETY: a shared MatMut gives read access to dimensions only.
unsafe impl<E: Sync> Sync for MatMut<'_, E> {}

impl<E> MatRef<'_, E> {
    /// Whether it has no elements. Then the other dimension may be any number, without memory behind it.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }
}

impl<E> MatMut<'_, E> {
    /// Whether it has no elements; see [`MatRef::is_empty`].
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }
}

impl<'a, E> MatMut<'a, E> {
    /// A contiguous row-major matrix.
    ///
    /// # Errors
    /// `ShortSlice` if `data` has fewer than `rows * cols` elements, `SizeOverflow`.
    pub fn new(data: &'a mut [E], rows: usize, cols: usize) -> Result<Self, KernelError> {
        Self::with_strides(data, rows, cols, cols, 1)
    }

    /// A matrix with any strides (in elements) that keep all elements apart.
    ///
    /// # Errors
    /// `ShortSlice`, `SizeOverflow`; `Overlap` if two index pairs could share an element.
    pub fn with_strides(
        data: &'a mut [E],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Result<Self, KernelError> {
        fits("matrix", data.len(), rows, cols, row_stride, col_stride)?;
        // Elements are apart if each step of one index is longer than all steps of the other one together.
        let apart = |outer: usize, inner: usize, n: usize| {
            inner > 0 && (n - 1).checked_mul(inner).is_some_and(|reach| outer > reach)
        };
        let ok = match (rows, cols) {
            (0, _) | (_, 0) | (1, 1) => true,
            (1, _) => col_stride > 0,
            (_, 1) => row_stride > 0,
            _ => apart(row_stride, col_stride, cols) || apart(col_stride, row_stride, rows),
        };
        if !ok {
            return Err(KernelError::Overlap { rows, cols, row_stride, col_stride });
        }
        Ok(Self { ptr: data.as_mut_ptr(), rows, cols, row_stride, col_stride, life: PhantomData })
    }

    /// A matrix at `ptr`: for several threads that write parts of the same matrix, where no slice is exclusive.
    ///
    /// # Safety
    /// Every element lies in one allocation; no two index pairs share one; while the view lives, nobody else uses them.
    pub unsafe fn from_raw_parts(
        ptr: *mut E,
        [rows, cols]: [usize; 2],
        [row_stride, col_stride]: [usize; 2],
    ) -> Self {
        Self { ptr, rows, cols, row_stride, col_stride, life: PhantomData }
    }

    /// Pointer to element (0, 0); dangling if the view is empty.
    pub fn as_mut_ptr(&mut self) -> *mut E {
        self.ptr
    }

    /// A shorter borrow of the same matrix.
    pub fn reborrow(&mut self) -> MatMut<'_, E> {
        MatMut { life: PhantomData, ..*self }
    }

    /// Splits into rows `0..at` and `at..rows`.
    ///
    /// # Errors
    /// `OutOfRange` if `at > rows`.
    pub fn split_rows(self, at: usize) -> Result<(Self, Self), KernelError> {
        check::range("rows", 0, at, self.rows)?;
        let skip = if at == self.rows || self.cols == 0 { 0 } else { at * self.row_stride };
        // SAFETY: unless skip is 0, element (at, 0) exists, so the offset lies inside the slice.
        let ptr = unsafe { self.ptr.add(skip) };
        Ok((Self { rows: at, ..self }, Self { ptr, rows: self.rows - at, ..self }))
    }
}
