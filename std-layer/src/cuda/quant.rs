//! Weights in blocks: decoding, lookup, products with few vectors.

use gllm_kernels_core::{KernelError, Precision, QuantFormat};

use super::check::{aligned, area, bad, same_len, small};
use super::driver::Context;
use super::error::{Capability, CudaError};
use super::geometry::{self, CHUNK};
use super::kernels::{block_formats, type_number, File, Name};
use super::memory::{Buffer, View, ViewMut};
use super::module::Arguments;
use super::segments::Segments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct DequantArgs {
    w: Address,
    ids: Address,
    y: Address,
    row_bytes: u64,
    rows: u32,
    cols: u32,
    out_rows: u32,
    ty: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct PrepareArgs {
    x: Address,
    codes: Address,
    groups: Address,
    exact: Address,
    cols: u32,
    rows: u32,
    ty: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct QgemvArgs {
    w: Address,
    codes: Address,
    groups: Address,
    exact: Address,
    sums: Address,
    y: Address,
    segments: Address,
    row_bytes: u64,
    matrix_bytes: u64,
    rows: u32,
    cols: u32,
    batch: u32,
    ty: u32,
    single: u32,
    split: u32,
}

// SAFETY: as in quant.cu.
unsafe impl Arguments for DequantArgs {}
// SAFETY: as in quant.cu.
unsafe impl Arguments for PrepareArgs {}
// SAFETY: as in qgemv.cu.
unsafe impl Arguments for QgemvArgs {}

/// How many vectors the kernels of products are compiled for, in ascending order.
pub(super) const INTEGER_WIDTHS: [(usize, &str); 4] = [(1, "n1"), (2, "n2"), (4, "n4"), (8, "n8")];
const EXACT_WIDTHS: [(usize, &str); 2] = [(1, "n1"), (8, "n8")];
/// Where tensor cores multiply integers: those for several vectors are one.
const TILE_WIDTHS: [(usize, &str); 2] = [(1, "n1"), (8, TILES)];
const TILES: &str = "t8";

/// How many vectors the kernels of products of integers are compiled for.
fn integer_widths(capability: Capability) -> &'static [(usize, &'static str)] {
    if capability.multiplies_tiles() {
        &TILE_WIDTHS
    } else {
        &INTEGER_WIDTHS
    }
}

/// A matrix of weights in blocks on the GPU: `rows` rows, each made of whole blocks, one behind the other, as in GGUF.
#[derive(Clone, Copy, Debug)]
pub struct QuantView<'a> {
    bytes: View<'a, u8>,
    format: QuantFormat,
    rows: usize,
    cols: usize,
}

impl<'a> QuantView<'a> {
    /// Views bytes, which start at a multiple of 16 (buffers do, and tensors in GGUF files), as weights.
    ///
    /// # Errors
    /// `Kernel(NotBlockMultiple)`; `WrongSize` unless there are just as many bytes; `Misaligned`; `Kernel(BadParameter)` if
    /// the format has no blocks.
    pub fn new(
        bytes: impl Into<View<'a, u8>>,
        format: QuantFormat,
        rows: usize,
        cols: usize,
    ) -> Result<Self, CudaError> {
        let bytes = bytes.into();
        if format.element().is_some() {
            return Err(bad("format", "one that has blocks"));
        }
        let row_bytes = format.row_bytes(cols)?;
        same_len("bytes", bytes.len(), area("bytes of weights", &[rows, row_bytes])?)?;
        aligned("bytes", bytes.address())?;
        small("rows", rows)?;
        small("cols", cols)?;
        Ok(Self { bytes, format, rows, cols })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// The format.
    pub fn format(&self) -> QuantFormat {
        self.format
    }

    /// Where its bytes are, if that is on the same GPU, and the bytes of a row.
    pub(super) fn place(&self, ops: &Ops) -> Result<(Address, usize), CudaError> {
        ops.here(self.bytes.context())?;
        Ok((self.bytes.address(), self.row_bytes()))
    }

    fn row_bytes(&self) -> usize {
        self.cols / self.format.block_len() * self.format.block_bytes()
    }
}

/// Room for activations as products with weights in blocks take them.
#[derive(Debug)]
pub struct Activations {
    precision: Precision,
    capacity: (usize, usize),
    /// What it holds: vectors, and their columns.
    shape: (usize, usize),
    /// Integers; empty if exact.
    codes: Buffer<i8>,
    /// Scale and sums of 32 integers each, 8 bytes; empty if exact.
    groups: Buffer<u32>,
    /// In f32, in the order of lanes, and then the sums of 16 each; empty if not exact.
    exact: Buffer<f32>,
}

impl Activations {
    /// Room for up to `batch` vectors of up to `cols` columns, in integers of 8 bits with a scale for each 32
    /// ([`Precision::Integer`] and [`Precision::Fast`]), or as they are.
    ///
    /// # Errors
    /// `OutOfMemory`, `Kernel(SizeOverflow)`, `Driver`.
    pub fn new(
        context: &Context,
        precision: Precision,
        batch: usize,
        cols: usize,
    ) -> Result<Self, CudaError> {
        let precision = if precision == Precision::Fast { Precision::Integer } else { precision };
        let integer = precision == Precision::Integer;
        let n = area("activations", &[batch, cols.div_ceil(CHUNK), CHUNK])?;
        let of = |yes: bool, n: usize| if yes { n } else { 0 };
        Ok(Self {
            precision,
            capacity: (batch, cols),
            shape: (0, 0),
            codes: Buffer::new(context, of(integer, n))?,
            groups: Buffer::new(context, of(integer, n / 16))?,
            exact: Buffer::new(context, of(!integer, n + n / 16))?,
        })
    }

    /// Vectors, and their columns.
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }
    /// Vectors that there is room for, and their columns.
    pub fn capacity(&self) -> (usize, usize) {
        self.capacity
    }
    /// Whether they are integers.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Says what a kernel is about to write: as many vectors of so many columns.
    ///
    /// # Errors
    /// `WrongSize` if the room is too small; `Kernel` unless these are whole groups of 32.
    pub(super) fn set_shape(&mut self, batch: usize, cols: usize) -> Result<(), CudaError> {
        if cols == 0 || !cols.is_multiple_of(32) {
            return Err(KernelError::NotBlockMultiple { cols, block: 32 }.into());
        }
        if batch > self.capacity.0 || cols > self.capacity.1 {
            let (got, need) = (self.capacity.0 * self.capacity.1, batch * cols);
            return Err(CudaError::WrongSize { arg: "activations", need, got });
        }
        self.shape = (batch, cols);
        Ok(())
    }

    /// Where the vectors are; what they do not have is at 0.
    pub(super) fn places(&self) -> ActivationPlaces {
        let (batch, cols) = self.shape;
        let [codes, groups, exact] = [self.codes.address(), self.groups.address(), self.exact.address()];
        let behind = batch * cols.div_ceil(CHUNK) * CHUNK * size_of::<f32>();
        let sums = if exact == 0 { 0 } else { exact + behind as Address };
        ActivationPlaces { codes, groups, exact, sums }
    }

    pub(super) fn context(&self) -> &Context {
        self.exact.context()
    }
}

/// Where prepared vectors are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ActivationPlaces {
    pub(super) codes: Address,
    pub(super) groups: Address,
    pub(super) exact: Address,
    pub(super) sums: Address,
}

/// The kernels for so many vectors: the narrowest that are wide enough, or the widest.
pub(super) fn width(widths: &[(usize, &'static str)], batch: usize) -> (usize, &'static str) {
    let fits = widths.iter().find(|&&(n, _)| n >= batch).or(widths.last());
    fits.copied().unwrap_or((1, "n1"))
}

impl Ops {
    fn decode<T: Float>(
        &self,
        stream: &Stream,
        w: QuantView<'_>,
        ids: Option<View<'_, u32>>,
        y: ViewMut<'_, T>,
    ) -> Result<(), CudaError> {
        let out_rows = ids.map_or(w.rows, |ids| ids.len());
        same_len("y", y.len(), area("elements of y", &[out_rows, w.cols])?)?;
        self.here(w.bytes.context())?;
        ids.map_or(Ok(()), |ids| self.here(ids.context()))?;
        self.here(y.context())?;
        aligned("y", y.address())?;
        let args = DequantArgs {
            w: w.bytes.address(),
            ids: ids.map_or(0, |ids| ids.address()),
            y: y.address(),
            row_bytes: w.row_bytes() as u64,
            rows: small("rows", w.rows)?,
            cols: small("cols", w.cols)?,
            out_rows: small("rows of y", out_rows)?,
            ty: type_number(T::TYPE),
        };
        // Kernels take the factor of a block of floating point for each 32 numbers.
        let group = if w.format.is_float() { 32 } else { w.format.group_len() };
        let geometry = geometry::dequant(out_rows, w.cols, group, self.multiprocessors());
        let kernel = (File::quant, Name("dequant", w.format.name(), ""));
        // SAFETY: checked here and by the view; ids are checked by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// Decodes weights: to f32 bit for bit what the core decodes, else narrowed once.
    ///
    /// # Errors
    /// `WrongSize` unless `y` has `rows * cols` elements; `Misaligned` unless it starts at a multiple of 16 bytes; `OtherContext`,
    /// `Launch`.
    pub fn dequant<'a, T: Float>(
        &self,
        stream: &Stream,
        w: QuantView<'_>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        self.decode(stream, w, None, y.into())
    }

    /// Decodes row `ids[t]` of a table, for each `t`. A row that does not exist gives NaN.
    ///
    /// # Errors
    /// `WrongSize` unless `y` has `cols` elements for each of `ids`; `Misaligned` unless it starts at a multiple of 16 bytes;
    /// `OtherContext`, `Launch`.
    pub fn embed_quant<'a, T: Float>(
        &self,
        stream: &Stream,
        table: QuantView<'_>,
        ids: View<'_, u32>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        self.decode(stream, table, Some(ids), y.into())
    }

    /// Prepares `x`, vectors of `cols` elements one behind the other, for products.
    ///
    /// # Errors
    /// `Kernel` unless these are whole vectors of whole groups of 32; `WrongSize` if the room is too small; `OtherContext`,
    /// `Launch`.
    pub fn prepare<'a, T: Float>(
        &self,
        stream: &Stream,
        x: impl Into<View<'a, T>>,
        cols: usize,
        to: &mut Activations,
    ) -> Result<(), CudaError> {
        let x = x.into();
        let batch = super::check::rows(x.len(), cols)?;
        let before = to.shape;
        to.set_shape(batch, cols)?;
        self.here(x.context())?;
        self.here(to.exact.context())?;
        let args = PrepareArgs {
            x: x.address(),
            codes: to.codes.address(),
            groups: to.groups.address(),
            exact: to.exact.address(),
            cols: small("cols", cols)?,
            rows: small("batch", batch)?,
            ty: type_number(T::TYPE),
        };
        let (name, piece) = match to.precision {
            Precision::Integer => (Name("quantize_q8", "", ""), 32),
            _ => (Name("arrange_f32", "", ""), CHUNK),
        };
        let geometry = geometry::warps(batch * cols.div_ceil(piece), 0, self.multiprocessors());
        // SAFETY: the arguments were checked.
        let launched = unsafe { self.loader.launch((File::quant, name), stream, geometry, &args) };
        if launched.is_err() {
            to.shape = before;
        }
        launched
    }

    /// `Y = X W^T`: for each of the vectors of activations, eight at a time, products with all rows of `W`. `y` holds one result after
    /// the other.
    ///
    /// With integers, these are multiplied exactly and 32 (or 16, as the format has groups) summed before the scales come in;
    /// with activations as they are, everything is in f32.
    ///
    /// # Errors
    /// `Kernel` unless the columns of the vectors are those of `w`, or where they are integers and `w` is `E4m3`, floating point; `WrongSize`
    /// unless `y` has `batch * rows` elements; `OtherContext`, `Launch`.
    pub fn qgemv<'a, T: Float>(
        &self,
        stream: &Stream,
        w: QuantView<'_>,
        x: &Activations,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        self.qgemv_of(stream, (w, None), x, y.into())
    }

    /// [`qgemv`](Self::qgemv), or with several matrices, which `w` has one below the other.
    ///
    /// # Errors
    /// Those of [`qgemv`](Self::qgemv).
    pub(crate) fn qgemv_of<T: Float>(
        &self,
        stream: &Stream,
        (w, segments): (QuantView<'_>, Option<Segments<'_>>),
        x: &Activations,
        y: ViewMut<'_, T>,
    ) -> Result<(), CudaError> {
        let (m, cols) = x.shape;
        if cols != w.cols {
            return Err(KernelError::DimMismatch { what: "columns of x", want: w.cols, got: cols }.into());
        }
        let n = w.rows / segments.map_or(1, |segments| segments.matrices);
        let spread = self.spread(segments, (m, n, y.len()))?;
        same_len("w", w.rows, area("rows of w", &[spread.matrices, n])?)?;
        same_len("y", y.len(), area("elements of y", &[spread.rows, n])?)?;
        self.here(w.bytes.context())?;
        self.here(x.exact.context())?;
        self.here(y.context())?;
        let most = segments.map_or(m, |segments| segments.most);
        if x.precision == Precision::Integer && w.format.is_float() {
            return Err(bad("activations", "as they are, where weights are floating point"));
        }
        let (op, (width, suffix)) = match x.precision {
            Precision::Integer => ("qgemv_q8", width(integer_widths(self.capability()), most)),
            _ => ("qgemv_f32", width(&EXACT_WIDTHS, most)),
        };
        let (at, split) = (x.places(), geometry::qgemv_split(n, cols));
        let args = QgemvArgs {
            w: w.bytes.address(),
            codes: at.codes,
            groups: at.groups,
            exact: at.exact,
            sums: at.sums,
            y: y.address(),
            segments: spread.table,
            row_bytes: small("bytes of a row", w.row_bytes())?.into(),
            matrix_bytes: (n * w.row_bytes()) as u64,
            rows: small("rows", n)?,
            cols: small("cols", cols)?,
            batch: small("batch", spread.rows)?,
            ty: type_number(T::TYPE),
            single: spread.single,
            split,
        };
        let blocks = spread.blocks.unwrap_or(m.div_ceil(width));
        let chunk = CHUNK / w.format.block_len() * w.format.block_bytes();
        let geometry = match suffix {
            TILES => geometry::qgemv_tiles(n, chunk, (w.format.group_len(), w.format.has_offsets()), blocks),
            _ => geometry::qgemv(n, split, width, chunk, blocks),
        };
        let kernel = (File::qgemv, Name(op, w.format.name(), suffix));
        // SAFETY: checked here and by the view; activations were prepared with this shape; segments are of rows and matrices that exist.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }
}

pub(super) fn list(capability: Capability, to: &mut dyn FnMut(File, Name, usize)) {
    to(File::quant, Name("quantize_q8", "", ""), size_of::<PrepareArgs>());
    to(File::quant, Name("arrange_f32", "", ""), size_of::<PrepareArgs>());
    for format in block_formats() {
        to(File::quant, Name("dequant", format.name(), ""), size_of::<DequantArgs>());
        let integers = if format.is_float() { &[] } else { integer_widths(capability) };
        for &(_, n) in integers {
            to(File::qgemv, Name("qgemv_q8", format.name(), n), size_of::<QgemvArgs>());
        }
        for (_, n) in EXACT_WIDTHS {
            to(File::qgemv, Name("qgemv_f32", format.name(), n), size_of::<QgemvArgs>());
        }
    }
}
