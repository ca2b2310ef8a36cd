//! A validated view of quantised weights.

use crate::check;
use crate::error::KernelError;
use crate::quant::QuantFormat;

/// A read-only quantised `rows x cols` matrix: rows one behind the other, each of whole blocks.
///
/// Lengths are checked here, once; kernels rely on them. The bytes may start at any address and
/// hold anything: every byte string decodes to something, without touching other memory.
#[derive(Clone, Copy, Debug)]
pub struct QuantRef<'a> {
    bytes: &'a [u8],
    format: QuantFormat,
    rows: usize,
    cols: usize,
    row_bytes: usize,
}

impl<'a> QuantRef<'a> {
    /// Views the first `rows` rows in `bytes`.
    ///
    /// # Errors
    /// `NotBlockMultiple` if `cols` is not a multiple of the format's block length, `ShortSlice` (in
    /// bytes) if `bytes` ends before the last row does, `SizeOverflow`.
    pub fn new(bytes: &'a [u8], format: QuantFormat, rows: usize, cols: usize) -> Result<Self, KernelError> {
        let row_bytes = format.row_bytes(cols)?;
        // Formats of less than 8 bits have more elements than bytes.
        rows.checked_mul(cols).ok_or(KernelError::SizeOverflow { what: "elements of a quantised matrix" })?;
        let need = rows
            .checked_mul(row_bytes)
            .ok_or(KernelError::SizeOverflow { what: "bytes of a quantised matrix" })?;
        let got = bytes.len();
        let bytes = bytes.get(..need).ok_or(KernelError::ShortSlice { arg: "bytes", need, got })?;
        Ok(Self { bytes, format, rows, cols, row_bytes })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Number of columns, a multiple of the format's block length.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// The format.
    pub fn format(&self) -> QuantFormat {
        self.format
    }
    /// `rows * cols`.
    pub(crate) fn elements(&self) -> usize {
        // Checked at construction.
        self.rows * self.cols
    }
    /// Blocks of the whole matrix.
    pub(crate) fn blocks(&self) -> usize {
        self.rows * (self.cols / self.format.block_len())
    }
    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }
    /// The blocks: `rows * row_bytes` bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Rows `start .. start + len`.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix, `SizeOverflow`.
    pub fn row_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        let end = check::range("rows", start, len, self.rows)?;
        // Neither product exceeds the size checked at construction: there are these bytes.
        let bytes = self.bytes.get(start * self.row_bytes..end * self.row_bytes).unwrap_or(&[]);
        Ok(Self { bytes, rows: len, ..self })
    }
}
