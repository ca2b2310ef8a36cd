//! The layout of packed weights: sixteen rows side by side.
//!
//! Rows are divided into *panels* of 16; missing rows are zeros. The columns of a panel are divided into *units* of 256. A unit
//! is a *head*, which has the scales and is padded to 64 bytes, and 8 *steps* of 32 columns. If the number of columns is no
//! multiple of 256, the last unit has fewer steps, and scales for these alone.
//!
//! Codes are stored as *indices* of `low + high` bits; [`Values`] says which codes they stand for. A step is its low *plane*,
//! `64 * low` bytes, followed by its high plane, `64 * high` bytes.
//!
//! A plane of `w` bits is `w` vectors of 64 bytes. Byte `4 * r + t` of vector `v` belongs to row `r`: its `w` bits from bit
//! `w * f` on are those of column `4 * (v + w * f) + t` of the step. So a shift and a mask turn a vector into four columns of all
//! rows, one byte each, which are the operand of instructions for products of bytes.
//!
//! A high plane whose bits are the same in four columns has 16 bytes, one for each row, which are in the head.

mod unit;

use crate::element::f16;
use crate::error::KernelError;
use crate::quant::blocks::Half;
use crate::quant::Format;

#[cfg(target_arch = "x86_64")]
pub(crate) use unit::PlaneVector;
pub(crate) use unit::{Planes, Unit};

/// Rows of a panel.
pub(crate) const PANEL_ROWS: usize = 16;
/// Columns of a unit.
pub(crate) const UNIT_COLS: usize = 256;
/// Columns of a step.
pub(crate) const STEP_COLS: usize = 32;
/// Steps of a unit.
pub(crate) const STEPS: usize = UNIT_COLS / STEP_COLS;
/// Groups of a unit, at most.
pub(crate) const GROUPS: usize = UNIT_COLS / super::MIN_GROUP;

/// The number of units of a row with `cols` columns, and the number of steps of the last unit.
pub(crate) const fn units(cols: usize) -> (usize, usize) {
    let units = cols.div_ceil(UNIT_COLS);
    (units, cols.div_ceil(STEP_COLS) - units.saturating_sub(1) * STEPS)
}

/// Bytes of a packed matrix, at most.
pub(crate) const MAX_PACKED_BYTES: usize = isize::MAX as usize / 2;

/// The codes that indices stand for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    /// `index - bias`; `bias` is a power of two.
    Linear(u8),
    /// `table[index]`.
    Table([i8; 16]),
}

/// How the head of a unit gives the scales of its groups. Lists are by group, and of each group by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// For each step 16 f16 scales; then, if there are any, 16 f16 offsets.
    Halves,
    /// 16 f32 scales.
    Whole,
    /// 16 f16 scales and, if there are offsets, 16 more; then for each group 16 signed bytes, its scales
    /// are multiplied with, and 16 for the second ones.
    Factors,
    /// For each step 16 bytes, exponents of f32.
    E8m0,
    /// For each group 16 bytes, f16 shifted right by 7.
    Ue4m3,
}

/// How a format is packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    /// Bits in the low and in the high plane.
    pub(crate) bits: [usize; 2],
    /// Whether the high plane has a byte for each row: one bit, for four columns. For [`Scales::Factors`].
    pub(crate) by_row: bool,
    pub(crate) values: Values,
    pub(crate) scales: Scales,
    /// A common factor of all scales: a power of two.
    pub(crate) unit: f32,
    /// A common factor of all offsets: a power of two, or the negative of one.
    pub(crate) offset_unit: f32,
    /// Columns of a group.
    pub(crate) group: usize,
    /// Columns of a block.
    pub(crate) block: usize,
    /// Whether there are offsets.
    pub(crate) offsets: bool,
    /// For each step of a unit of weights in place: by how many bits their codes may stay shifted to the left in their bytes.
    /// The scales of their groups are divided by as many powers of two.
    pub(crate) shifts: [usize; STEPS],
    /// Whether weights in place have another form, without offsets: each group's offset is plus or minus an eighth of its
    /// scale, so codes are 8 times those of the indices, plus or minus 1.
    pub(crate) eighths: bool,
}

impl Packing {
    /// The number that is added to codes to make them unsigned.
    pub(crate) const fn bias(&self) -> u8 {
        match self.values {
            Values::Linear(bias) if !self.eighths => bias,
            _ => 128,
        }
    }

    /// Of how many columns of a group, all or half of them, sums of products with activations of 8 bits fit 16 bits, if a sum has
    /// two columns of each four. Codes are narrow if this is `Some`.
    pub(crate) const fn narrow(&self) -> Option<usize> {
        let largest = match self.values {
            Values::Linear(bias) => {
                let (bias, top) = (bias as usize, (1usize << (self.bits[0] + self.bits[1])) - 1);
                let above = top.saturating_sub(bias);
                let magnitude = if bias > above { bias } else { above };
                if self.eighths {
                    8 * magnitude + 1
                } else {
                    magnitude
                }
            }
            Values::Table(table) => {
                let (mut largest, mut i) = (0, 0);
                while i < table.len() {
                    let magnitude = table[i].unsigned_abs() as usize;
                    largest = if magnitude > largest { magnitude } else { largest };
                    i += 1;
                }
                largest
            }
        };
        // Of half of the columns, and of a quarter.
        let sums = [self.group / 2 * 127 * largest, self.group / 4 * 127 * largest];
        if sums[0] <= i16::MAX as usize {
            Some(self.group)
        } else if sums[1] <= i16::MAX as usize && self.group == STEP_COLS {
            Some(self.group / 2)
        } else {
            None
        }
    }
}

/// The scale and the offset of one group of one row, as the head stores them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts {
    /// The scale, or that of the factors: bits of an f16, or f32 if it is [`Scales::Whole`].
    pub(crate) d: u32,
    /// The offset, or that of the factors: bits of an f16.
    pub(crate) m: u16,
    /// Factors of `d` and `m`, or the scale if it is a byte.
    pub(crate) factors: [u8; 2],
}

impl Parts {
    /// A scale in f16.
    #[inline(always)]
    pub(crate) fn half(d: f16) -> Self {
        Self { d: u32::from(d.to_bits()), ..Self::default() }
    }
    /// A scale and an offset in f16.
    #[inline(always)]
    pub(crate) fn halves(d: Half, m: Half) -> Self {
        Self { m: u16::from_le_bytes(m.0), ..Self::half(d.get()) }
    }
    /// A scale in f32.
    #[inline(always)]
    pub(crate) fn whole(d: f32) -> Self {
        Self { d: d.to_bits(), ..Self::default() }
    }
    /// A scale that is a byte.
    #[inline(always)]
    pub(crate) fn byte(e: u8) -> Self {
        Self { factors: [e, 0], ..Self::default() }
    }
    /// This scale with a factor of the group, and one of its minimum.
    #[inline(always)]
    pub(crate) fn times(self, factor: i8, min: i8) -> Self {
        Self { factors: [factor as u8, min as u8], ..self }
    }
}

/// A format whose weights can be packed.
pub(crate) trait Pack: Format {
    /// The layout.
    const PACKING: Packing;
    /// Group `g` of a block.
    fn parts(b: &Self::Block, g: usize) -> Parts;
}

impl Packing {
    /// Groups of a step: one or two.
    #[inline(always)]
    pub(crate) const fn groups(&self) -> usize {
        if self.group == STEP_COLS {
            1
        } else {
            2
        }
    }
    /// Bytes of a step's part of the head, for [`Scales::Factors`]: `each` bytes for each group, and the high plane, if that is by row.
    #[inline(always)]
    const fn list(&self, each: usize) -> usize {
        self.groups() * each + if self.by_row { PANEL_ROWS } else { 0 }
    }
    /// Bytes of the head of a unit of `steps` steps.
    #[inline(always)]
    pub(crate) const fn head(&self, steps: usize) -> usize {
        let each = PANEL_ROWS * if self.offsets { 2 } else { 1 };
        let bytes = match self.scales {
            Scales::Halves => steps * 2 * each,
            Scales::Whole => 4 * PANEL_ROWS,
            Scales::Factors => 2 * each + steps * self.list(each),
            Scales::E8m0 | Scales::Ue4m3 => steps * self.groups() * PANEL_ROWS,
        };
        bytes.next_multiple_of(64)
    }
    /// Bytes of a step.
    #[inline(always)]
    pub(crate) const fn step(&self) -> usize {
        64 * (self.bits[0] + if self.by_row { 0 } else { self.bits[1] })
    }
    /// Bytes of a unit of `steps` steps.
    #[inline(always)]
    pub(crate) const fn unit_bytes(&self, steps: usize) -> usize {
        self.head(steps) + steps * self.step()
    }
    /// Bytes of a panel, or `None` if that is too large a number.
    pub(crate) const fn panel_bytes(&self, cols: usize) -> Option<usize> {
        let rest = match (cols % UNIT_COLS).div_ceil(STEP_COLS) {
            0 => 0,
            steps => self.unit_bytes(steps),
        };
        match (cols / UNIT_COLS).checked_mul(self.unit_bytes(STEPS)) {
            Some(units) => units.checked_add(rest),
            None => None,
        }
    }
    /// Bytes of the panels of a matrix.
    pub(crate) const fn bytes(&self, rows: usize, cols: usize) -> Result<usize, KernelError> {
        let overflow = Err(KernelError::SizeOverflow { what: "packed size" });
        let Some(panel) = self.panel_bytes(cols) else { return overflow };
        match rows.div_ceil(PANEL_ROWS).checked_mul(panel) {
            Some(n) if n <= MAX_PACKED_BYTES => Ok(n),
            _ => overflow,
        }
    }

    /// Where in the head things of group `g` are: its (or the common) scale, and its factor.
    #[inline(always)]
    pub(crate) const fn places(&self, g: usize) -> (usize, usize) {
        let each = PANEL_ROWS * if self.offsets { 2 } else { 1 };
        match self.scales {
            Scales::Halves => (g / self.groups() * 2 * each, 0),
            Scales::Whole => (0, 0),
            Scales::Factors => {
                let (step, g) = (g / self.groups(), g % self.groups());
                (0, 2 * each + step * self.list(each) + g * each)
            }
            Scales::E8m0 | Scales::Ue4m3 => (0, g * PANEL_ROWS),
        }
    }

    /// Where in a unit of `steps` steps the high plane of step `s` is.
    #[inline(always)]
    pub(crate) const fn high(&self, steps: usize, s: usize) -> usize {
        if self.by_row {
            // Behind the factors of the step's last group.
            self.places(s * self.groups() + self.groups() - 1).1 + PANEL_ROWS
        } else {
            self.head(steps) + s * self.step() + 64 * self.bits[0]
        }
    }

    /// The code that index `i` stands for.
    pub(crate) const fn value(&self, i: u8) -> i8 {
        match self.values {
            Values::Linear(bias) => i.wrapping_sub(bias) as i8,
            Values::Table(table) => table[(i & 15) as usize],
        }
    }
}
