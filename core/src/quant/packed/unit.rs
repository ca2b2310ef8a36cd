//! Reading a unit of packed weights.

use super::{Packing, Scales, PANEL_ROWS, STEP_COLS};
use crate::arrays::Each;
use crate::element::f16;
use crate::quant::codebooks::e8m0_half;

/// A unit of packed weights.
#[derive(Clone, Copy)]
pub(crate) struct Unit<'a> {
    pub(crate) packing: &'a Packing,
    pub(crate) head: *const u8,
    /// Steps that it has.
    pub(crate) steps: usize,
}

/// A vector of a plane: four bytes for each row.
pub(crate) type PlaneVector = [[u8; 4]; PANEL_ROWS];

/// The codes of a step: for each four columns those of all rows.
pub(crate) type StepCodes = [[i8; 4 * PANEL_ROWS]; STEP_COLS / 4];

/// The planes of a step.
#[derive(Clone, Copy)]
pub(crate) struct Planes {
    low: *const u8,
    high: *const u8,
    by_row: bool,
}

impl Planes {
    /// Vector `v` of the low plane.
    ///
    /// # Safety
    /// The step exists; `v` is less than the plane's bits.
    #[inline(always)]
    pub(crate) unsafe fn low(self, v: usize) -> PlaneVector {
        // SAFETY: the caller's contract.
        unsafe { *self.low.add(64 * v).cast() }
    }

    /// Vector `v` of the high plane.
    ///
    /// # Safety
    /// The contract of [`low`](Self::low).
    #[inline(always)]
    pub(crate) unsafe fn high(self, v: usize) -> PlaneVector {
        // SAFETY: the caller's contract.
        unsafe {
            if self.by_row {
                self.each_row()
            } else {
                *self.high.add(64 * v).cast()
            }
        }
    }

    /// The high plane, if it has a byte for each row.
    ///
    /// # Safety
    /// The step exists, and has such a plane.
    #[inline(always)]
    pub(crate) unsafe fn each_row(self) -> PlaneVector {
        // SAFETY: the caller's contract.
        unsafe { (*self.high.cast::<[u8; PANEL_ROWS]>()).each(|byte| [byte; 4]) }
    }
}

// SAFETY of every body below: the caller vouches for the unit, and places are within it.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Unit<'_> {
    /// Code of row `r`, column `c`.
    ///
    /// # Safety
    /// The unit exists; `r < PANEL_ROWS`, `c` is one of its columns.
    pub(crate) unsafe fn code(self, r: usize, c: usize) -> i8 {
        let ([low, high], s, v) = (self.packing.bits, c / STEP_COLS, c / 4 % 8);
        let bits = |vector: PlaneVector, w: usize| {
            vector[r % PANEL_ROWS][c % 4] >> (v / w.max(1) * w) & ((1 << w) - 1) as u8
        };
        let planes = self.planes(s);
        let below = bits(unsafe { planes.low(v % low.max(1)) }, low);
        let above = if high > 0 { bits(unsafe { planes.high(v % high) }, high) << low } else { 0 };
        self.packing.value(below | above)
    }

    /// The planes of step `s`, which is one of its steps.
    #[inline(always)]
    pub(crate) fn planes(self, s: usize) -> Planes {
        let packing = self.packing;
        let low = self.head.wrapping_add(packing.head(self.steps) + s * packing.step());
        let high = self.head.wrapping_add(packing.high(self.steps, s));
        Planes { low, high, by_row: packing.by_row }
    }

    /// The codes of step `s`.
    ///
    /// # Safety
    /// The unit exists; `s` is one of its steps.
    #[inline(always)]
    pub(crate) unsafe fn codes(self, s: usize) -> StepCodes {
        let ([low, high], planes) = (self.packing.bits, self.planes(s));
        let mut indices = [[0u8; 4 * PANEL_ROWS]; STEP_COLS / 4];
        let add = |four: &mut [u8; 4 * PANEL_ROWS], vector: PlaneVector, v: usize, w: usize, shift: usize| {
            let down = v / w.max(1) * w;
            for (index, byte) in four.iter_mut().zip(vector.as_flattened()) {
                *index |= (byte >> (down & 7) & ((1 << w) - 1) as u8) << (shift & 7);
            }
        };
        for (v, four) in indices.iter_mut().enumerate() {
            add(four, unsafe { planes.low(v % low.max(1)) }, v, low, 0);
            if high > 0 {
                add(four, unsafe { planes.high(v % high) }, v, high, low);
            }
        }
        indices.each(|four| four.each(|i| self.packing.value(i)))
    }

    /// Scale and offset of row `r` in group `g`, bit for bit the format's.
    ///
    /// # Safety
    /// The unit exists; `r < PANEL_ROWS`, `g` is one of its groups.
    pub(crate) unsafe fn scale(self, r: usize, g: usize) -> (f32, f32) {
        let packing = self.packing;
        let (scale, factor) = packing.places(g);
        let half = |at: usize| unsafe { self.halves(at) }[r % PANEL_ROWS];
        let byte = |at: usize| unsafe { self.bytes(at) }[r % PANEL_ROWS];
        let offset =
            |at: usize| if packing.offsets { half(at + 2 * PANEL_ROWS) * packing.offset_unit } else { 0.0 };
        match packing.scales {
            Scales::Whole => (unsafe { self.wholes() }[r % PANEL_ROWS], 0.0),
            Scales::Halves => (half(scale), offset(scale)),
            Scales::E8m0 => (e8m0_half(byte(factor)), 0.0),
            Scales::Ue4m3 => (shifted(byte(factor)) * packing.unit, 0.0),
            Scales::Factors => {
                let by = |at: usize| f32::from(byte(at) as i8);
                let offset = if packing.offsets { offset(scale) * by(factor + PANEL_ROWS) } else { 0.0 };
                (half(scale) * packing.unit * by(factor), offset)
            }
        }
    }

    /// The factors of group `g`, by row: of its sums of products, and of its sums of activations.
    ///
    /// # Safety
    /// The unit exists; `g` is one of its groups.
    #[inline(always)]
    pub(crate) unsafe fn of_group(self, g: usize) -> [[f32; PANEL_ROWS]; 2] {
        let packing = self.packing;
        let (scale, factor) = packing.places(g);
        let byte = |at: usize| unsafe { self.bytes(at) };
        let signed = |at: usize| byte(at).each(|b| f32::from(b as i8));
        match (packing.scales, packing.offsets) {
            (Scales::Whole, _) => [[1.0; PANEL_ROWS], [0.0; PANEL_ROWS]],
            (Scales::Halves, true) => unsafe { [self.halves(scale), self.halves(scale + 2 * PANEL_ROWS)] },
            (Scales::Halves, false) => [unsafe { self.halves(scale) }, [0.0; PANEL_ROWS]],
            (Scales::E8m0, _) => {
                [byte(factor).each(|b| f32::from_bits(u32::from(b) << 23)), [0.0; PANEL_ROWS]]
            }
            (Scales::Ue4m3, _) => [byte(factor).each(shifted), [0.0; PANEL_ROWS]],
            (Scales::Factors, true) => [signed(factor), signed(factor + PANEL_ROWS)],
            (Scales::Factors, false) => [signed(factor), [0.0; PANEL_ROWS]],
        }
    }

    /// The factors that all groups have in common, by row: of sums of products, and of sums of activations.
    ///
    /// # Safety
    /// The unit exists.
    #[inline(always)]
    pub(crate) unsafe fn of_unit(self) -> [[f32; PANEL_ROWS]; 2] {
        match (self.packing.scales, self.packing.offsets) {
            (Scales::Whole, _) => [unsafe { self.wholes() }, [0.0; PANEL_ROWS]],
            (Scales::Factors, true) => unsafe { [self.halves(0), self.halves(2 * PANEL_ROWS)] },
            (Scales::Factors, false) => [unsafe { self.halves(0) }, [0.0; PANEL_ROWS]],
            _ => [[0.0; PANEL_ROWS]; 2],
        }
    }

    #[inline(always)]
    unsafe fn bytes(self, at: usize) -> [u8; PANEL_ROWS] {
        unsafe { *self.head.add(at).cast() }
    }

    #[inline(always)]
    unsafe fn halves(self, at: usize) -> [f32; PANEL_ROWS] {
        unsafe { *self.head.add(at).cast::<[[u8; 2]; PANEL_ROWS]>() }.each(|h| f16::from_le_bytes(h).to_f32())
    }

    #[inline(always)]
    unsafe fn wholes(self) -> [f32; PANEL_ROWS] {
        unsafe { *self.head.cast::<[[u8; 4]; PANEL_ROWS]>() }.each(f32::from_le_bytes)
    }
}

/// The number that a byte of [`Scales::Ue4m3`] stands for.
#[inline(always)]
fn shifted(b: u8) -> f32 {
    f16::from_bits(u16::from(b) << 7).to_f32()
}
