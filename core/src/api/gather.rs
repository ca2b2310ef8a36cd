//! Rows of a table, looked up by number.

use crate::api::qgemm::QuantWeights;
use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::table::Kernels;
use crate::view::{MatMut, MatRef};

/// Checks that `ids` are rows of a `rows x cols` table, and that `y` has a contiguous row of `cols` elements for each
/// of them.
fn check_gather<T>(rows: usize, cols: usize, ids: &[u32], y: &MatMut<'_, T>) -> Result<(), KernelError> {
    check::dim("y.rows() != ids.len()", y.rows(), ids.len())?;
    check::dim("y.cols() != table.cols()", y.cols(), cols)?;
    check::contiguous("y.col_stride()", y.col_stride(), cols)?;
    match ids.iter().position(|&id| id as usize >= rows) {
        Some(at) => {
            let value = ids.get(at).map_or(0, |&id| id as usize);
            Err(KernelError::BadIndex { arg: "ids", at, value, from: 0, below: rows })
        }
        None => Ok(()),
    }
}

/// Row `r` of `y`.
///
/// # Safety
/// The row exists, and its elements are contiguous.
unsafe fn row<'a, T>(y: &'a mut MatMut<'_, T>, r: usize) -> &'a mut [T] {
    // SAFETY: the caller's contract; the view is exclusive.
    unsafe { core::slice::from_raw_parts_mut(y.as_mut_ptr().add(r * y.row_stride()), y.cols()) }
}

/// # Tables
///
/// The first operation of most language models: they look up a row of the embedding matrix for each token. Tokens, and so rows, may occur any
/// number of times.
impl<E: Element> Kernels<E> {
    /// `y[i, j] = table[ids[i], j]`.
    ///
    /// # Errors
    /// `BadIndex` if an id is no row of the table; `DimMismatch` unless `y` has a row for each id, as wide as the table;
    /// `BadValue` if rows of `y` or of the table are not contiguous. Nothing is written then.
    pub fn gather(&self, table: MatRef<'_, E>, ids: &[u32], mut y: MatMut<'_, E>) -> Result<(), KernelError> {
        check::contiguous("table.col_stride()", table.col_stride(), table.cols())?;
        check_gather(table.rows(), table.cols(), ids, &y)?;
        if y.is_empty() {
            return Ok(());
        }
        for (r, &id) in ids.iter().enumerate() {
            // SAFETY: the id is a row of the table, and `y` has a row for it; both are contiguous, and `y` is exclusive.
            unsafe {
                let from = table.as_ptr().add(id as usize * table.row_stride());
                let y = row(&mut y, r);
                core::ptr::copy_nonoverlapping(from, y.as_mut_ptr(), y.len());
            }
        }
        Ok(())
    }

    /// `y[i, j] = table[ids[i], j]`, decoded, bit for bit as the format says. The table may lie as in a file or be
    /// packed. The type `E` makes no difference.
    ///
    /// # Errors
    /// Those of [`gather`](Self::gather).
    pub fn gather_q<'w>(
        &self,
        table: impl Into<QuantWeights<'w>>,
        ids: &[u32],
        mut y: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        let table = table.into();
        check_gather(table.rows(), table.cols(), ids, &y)?;
        if y.is_empty() {
            return Ok(());
        }
        let plain = self.of::<f32>();
        for (r, &id) in ids.iter().enumerate() {
            // SAFETY: `y` has a row for each id, and rows are contiguous.
            let y = unsafe { row(&mut y, r) };
            match table {
                QuantWeights::InPlace(w) => plain.dequant(w.row_range(id as usize, 1)?, y)?,
                QuantWeights::Packed(w) => w.decode_row(id as usize, y)?,
            }
        }
        Ok(())
    }
}
