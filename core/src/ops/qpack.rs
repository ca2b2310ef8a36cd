//! Packing of quantised weights. [`packed`](crate::quant::packed) describes the layout.

use core::mem::MaybeUninit;

use crate::args::unpacker::Unpacker;
use crate::check;
use crate::error::KernelError;
use crate::header::Header;
use crate::ops::dequant::Chunk;
use crate::quant::packed::{
    Pack, Packing, Parts, Scales, Values, MAX_PACKED_BYTES, PANEL_ROWS, STEPS, STEP_COLS, UNIT_COLS,
};
use crate::quant::{QuantFormat, QuantRef};
use crate::vector::Vector;

/// First word of the header.
const MAGIC: u64 = u64::from_le_bytes(*b"gllmpkQ\0");
/// Version of the layout.
const VERSION: u64 = 3;

/// A quantised matrix in packed form, behind a checked header.
///
/// Sixteen rows lie side by side; codes are indices of as many bits as the format's weights need (codebooks of
/// eights and fours become 3 or 4 bits a weight), scales keep the format's own numbers. Rows are filled up to
/// multiples of 16, columns to multiples of 32. Every weight decodes to the same bits as before; all
/// instruction sets share one layout. Plain floating point keeps its rows as they are.
#[derive(Clone, Copy, Debug)]
pub struct PackedQ<'a> {
    pub(crate) panels: &'a [u8],
    pub(crate) format: QuantFormat,
    /// How blocks are packed; plain floating point stays as it is.
    pub(crate) packing: Option<&'static Packing>,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// Bytes of the panels of a matrix.
pub(crate) const fn panels(
    packing: Option<&Packing>,
    format: QuantFormat,
    rows: usize,
    cols: usize,
) -> Result<usize, KernelError> {
    match packing {
        Some(packing) => packing.bytes(rows, cols),
        None => {
            let overflow = Err(KernelError::SizeOverflow { what: "packed size" });
            let (Some(rows), Ok(row)) = (rows.checked_next_multiple_of(PANEL_ROWS), format.row_bytes(cols))
            else {
                return overflow;
            };
            match rows.checked_mul(row) {
                Some(n) if n <= MAX_PACKED_BYTES => Ok(n),
                _ => overflow,
            }
        }
    }
}

/// The header of packed weights.
pub(crate) const fn header(
    packing: Option<&Packing>,
    format: QuantFormat,
    rows: usize,
    cols: usize,
) -> Result<Header, KernelError> {
    // Refuses parts of blocks.
    if let Err(e) = format.row_bytes(cols) {
        return Err(e);
    }
    let layout = VERSION << 48 | format.gguf_type() as u64;
    match panels(packing, format, rows, cols) {
        Ok(bytes) => Ok(Header {
            magic: MAGIC,
            layout,
            names: ["packed rows", "packed columns"],
            dims: [rows, cols],
            bytes,
        }),
        Err(e) => Err(e),
    }
}

macro_rules! packings {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        impl QuantFormat {
            /// Bytes of the buffer that [`pack_q`](crate::Kernels::pack_q) needs for weights of this format, wherever it
            /// starts. Firmware sizes static memory by it.
            ///
            /// # Errors
            /// `NotBlockMultiple` if `cols` is not a multiple of the format's block length, `SizeOverflow`.
            pub const fn packed_size(self, rows: usize, cols: usize) -> Result<usize, KernelError> {
                let packing = match self {
                    $($(#[$on])* Self::$name => Some(&<crate::quant::formats::$name as Pack>::PACKING),)*
                    _ => None,
                };
                match header(packing, self, rows, cols) {
                    Ok(header) => header.size(),
                    Err(e) => Err(e),
                }
            }
        }
    };
}
expand_all_formats! { packings! {} }

/// [`Kernels::packed_q`](crate::Kernels::packed_q), for weights that are packed so.
pub(crate) fn open<'a>(
    packing: Option<&'static Packing>,
    format: QuantFormat,
    rows: usize,
    cols: usize,
    buf: &'a [u8],
) -> Result<PackedQ<'a>, KernelError> {
    let panels = header(packing, format, rows, cols)?.open(buf).map_err(|e| match e {
        // The low half of the layout is the format.
        KernelError::WrongPacking { want, got, .. } if want >> 32 == got >> 32 => {
            match QuantFormat::from_gguf(got as u32) {
                Ok(got) => KernelError::WrongFormat { arg: "packed", want: format, got },
                Err(_) => e,
            }
        }
        e => e,
    })?;
    Ok(PackedQ { panels, format, packing, rows, cols })
}

/// The arguments of [`pack_q`]: rows of whole panels, but for the last panel.
pub struct PackQArgs {
    pub(crate) format: Unpacker,
    pub(crate) rows: usize,
    /// Blocks of a row.
    pub(crate) blocks: usize,
    pub(crate) w: *const u8,
    pub(crate) dst: *mut u8,
}

/// Indices of a unit, four columns in a word.
type Indices = [[[u8; 4]; UNIT_COLS / 4]; PANEL_ROWS];

/// The indices of codes, one after another.
///
/// # Safety
/// As many codes at `codes`.
#[inline(always)]
unsafe fn indices_of<'a>(
    packing: &Packing,
    codes: *const i8,
    indices: impl Iterator<Item = (usize, &'a mut u8)>,
) {
    // SAFETY: the caller's contract.
    let code = |i: usize| unsafe { *codes.add(i) };
    // A loop for each kind of values: the compiler makes vectors of them.
    match packing.values {
        // The nearest multiple of eight.
        Values::Linear(zero) if packing.eighths => {
            indices.for_each(|(i, at)| *at = (code(i).wrapping_add(4) >> 3).wrapping_add(zero as i8) as u8);
        }
        Values::Linear(zero) => indices.for_each(|(i, at)| *at = code(i).wrapping_add(zero as i8) as u8),
        // Backwards, so that of equal values the first one counts.
        Values::Table(table) => indices.for_each(|(i, at)| {
            let find = |found, j: u8| if table[usize::from(j & 15)] == code(i) { j } else { found };
            *at = (0..16).rev().fold(0, find);
        }),
    }
}

/// Writes a high plane of a bit for four columns, the one from `from` of the indices, of all steps: formats with such
/// planes have whole units.
///
/// # Safety
/// Room for a head at `head`.
#[inline(always)]
unsafe fn plane_by_row(packing: &Packing, indices: &Indices, from: usize, head: *mut u8) {
    for s in 0..STEPS {
        for (r, row) in indices.iter().enumerate() {
            let bit = |f: usize| (u32::from(row[(s * 8 + f) % (UNIT_COLS / 4)][0]) >> from & 1) << f;
            let byte = (0..STEP_COLS / 4).map(bit).sum::<u32>();
            // SAFETY: the plane is in the head.
            unsafe { *head.add(packing.high(STEPS, s) + r) = byte as u8 };
        }
    }
}

/// Writes one plane of `bits` bits, those from `from` of the indices, of `steps` steps of `step` bytes.
///
/// # Safety
/// Room for the steps at `dst`.
#[inline(always)]
unsafe fn plane(indices: &Indices, from: usize, bits: usize, dst: *mut u8, [steps, step]: [usize; 2]) {
    let mask = (1 << bits) - 1;
    let mask = u32::from_ne_bytes([mask as u8; 4]);
    for s in 0..steps {
        for v in 0..bits {
            for (r, row) in indices.iter().enumerate() {
                let mut word = 0;
                for f in 0..8usize.checked_div(bits).unwrap_or(0) {
                    let four = u32::from_le_bytes(row[(s * 8 + v + bits * f) % (UNIT_COLS / 4)]);
                    word |= (four >> from & mask) << (bits * f);
                }
                // SAFETY: the caller vouches for the steps, of which each has `bits` vectors of 64 bytes.
                unsafe { *dst.add(s * step + 64 * v + 4 * r).cast::<[u8; 4]>() = word.to_le_bytes() };
            }
        }
    }
}

/// Writes the scale and the offset of row `r` in group `g` to a head.
///
/// # Safety
/// Room for a head at `head`.
pub(crate) unsafe fn write(packing: &Packing, head: *mut u8, g: usize, r: usize, parts: Parts) {
    let (scale, factor) = packing.places(g);
    let Parts { d, m, factors } = parts;
    // SAFETY: places are those of lists in the head.
    unsafe {
        let half = |at: usize, h: u16| *head.add(at + 2 * r).cast::<[u8; 2]>() = h.to_le_bytes();
        match packing.scales {
            Scales::Whole => *head.add(scale + 4 * r).cast::<[u8; 4]>() = d.to_le_bytes(),
            Scales::E8m0 | Scales::Ue4m3 => *head.add(factor + r) = factors[0],
            Scales::Halves | Scales::Factors => {
                half(scale, d as u16);
                if packing.offsets {
                    half(scale + 2 * PANEL_ROWS, m);
                }
                if packing.scales == Scales::Factors {
                    *head.add(factor + r) = factors[0];
                    if packing.offsets {
                        *head.add(factor + PANEL_ROWS + r) = factors[1];
                    }
                }
            }
        }
    }
}

/// Packs rows.
///
/// # Safety
/// `rows * blocks` blocks at `w`, room for their panels at `dst`, the instruction set.
#[inline(always)]
pub(crate) unsafe fn pack_q<P: Vector>(q: &PackQArgs) {
    let PackQArgs { format, rows, blocks, w, dst } = *q;
    let (packing, len) = (format.packing, format.len.max(1));
    let (step, per_unit) = (packing.step(), UNIT_COLS / len);
    let units = blocks.div_ceil(per_unit.max(1));
    let panel_bytes = packing.panel_bytes(blocks * len).unwrap_or(0);
    let mut chunk = MaybeUninit::uninit();
    let parts = Chunk::parts(&mut chunk);
    for panel in 0..rows.div_ceil(PANEL_ROWS) {
        for unit in 0..units {
            let (first, mut indices) = (unit * per_unit, [[[0; 4]; UNIT_COLS / 4]; PANEL_ROWS]);
            let n = (blocks - first).min(per_unit);
            let in_unit = n * len / STEP_COLS;
            // SAFETY: rows and blocks are within the matrix, units within the panels; a chunk has room for a
            // unit, of which what was written is read.
            unsafe {
                let head = dst.add(panel * panel_bytes + unit * packing.unit_bytes(STEPS));
                head.write_bytes(0, packing.head(in_unit));
                for r in 0..(rows - panel * PANEL_ROWS).min(PANEL_ROWS) {
                    let w = w.add(((panel * PANEL_ROWS + r) * blocks + first) * format.bytes);
                    (format.unpack)(n, w, &parts);
                    let row = indices[r % PANEL_ROWS].as_flattened_mut();
                    indices_of(packing, parts.codes.cast(), row.iter_mut().take(n * len).enumerate());
                    let groups = (len / STEP_COLS * packing.groups()).max(1);
                    for g in 0..n * groups {
                        let of = (format.parts)(w.add(g / groups * format.bytes), g % groups);
                        write(packing, head, g, r, of);
                    }
                }
                let [low, high] = packing.bits;
                let steps = head.add(packing.head(in_unit));
                plane(&indices, 0, low, steps, [in_unit, step]);
                if packing.by_row {
                    plane_by_row(packing, &indices, low, head);
                } else if high > 0 {
                    plane(&indices, low, high, steps.add(64 * low), [in_unit, step]);
                }
            }
        }
    }
}

impl<'a> PackedQ<'a> {
    /// Rows that lie side by side: [`row_range`](Self::row_range) starts at multiples of this.
    pub const ROW_STEP: usize = PANEL_ROWS;

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }
    /// The format the weights had.
    pub fn format(&self) -> QuantFormat {
        self.format
    }
    /// How it is packed, unless it is plain floating point.
    pub(crate) fn packing(&self) -> Option<&'static Packing> {
        self.packing
    }
    /// The matrix, if it is plain floating point.
    pub(crate) fn unquantised(&self) -> Result<QuantRef<'a>, KernelError> {
        QuantRef::new(self.panels, self.format, self.rows, self.cols)
    }
    /// The panels.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.panels.as_ptr()
    }
    /// Bytes of the panels, which products read.
    pub fn bytes(&self) -> usize {
        self.panels.len()
    }

    /// Rows `start .. start + len`.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix; `BadValue` if `start` is neither a multiple of
    /// [`ROW_STEP`](Self::ROW_STEP) nor the end.
    pub fn row_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        check::range("rows", start, len, self.rows)?;
        if !start.is_multiple_of(PANEL_ROWS) && start != self.rows {
            let expected = "a multiple of ROW_STEP, or the number of rows";
            return Err(KernelError::BadValue { arg: "start", got: start, expected });
        }
        let bytes = |rows| panels(self.packing, self.format, rows, self.cols);
        let (skip, bytes) = (bytes(start)?, bytes(len)?);
        let panels = self.panels.get(skip..).and_then(|p| p.get(..bytes)).unwrap_or(&[]);
        Ok(Self { panels, rows: len, ..self })
    }
}
