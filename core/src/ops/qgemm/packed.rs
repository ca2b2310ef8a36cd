//! Unpacking of packed weights for the microkernels of `qgemm`.

use super::tile::{Cell, PanelRoom, BIAS};
use crate::arrays::{from_fn, Each};
use crate::element::f16;
use crate::quant::bytes::Lookup;
use crate::quant::codebooks::e8m0_half;
use crate::quant::packed::{Packing, Planes, Scales, Unit, Values, PANEL_ROWS, STEPS, STEP_COLS};
use crate::quant::EVERY_BYTE;
use crate::vector::{Prim, Vector};

/// What [`panel_q`] works on: a panel of packed weights.
pub struct PanelQArgs {
    pub(crate) packing: &'static Packing,
    pub(crate) w: *const u8,
    /// Steps of a row.
    pub(crate) steps: usize,
    pub(crate) to: PanelRoom,
}

/// Unpacks a panel of packed weights to codes, scales and offsets; or, if the room has none for codes (a null pointer), to scales
/// and offsets alone.
///
/// # Safety
/// There is the panel at `w`, and room for the unpacked panel; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn panel_q<P: Prim<f16> + Prim<f32> + Lookup>(a: &PanelQArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        match a.packing.bits {
            [_, 0] => panel::<P, NONE>(a),
            _ if a.packing.by_row => panel::<P, BY_ROW>(a),
            _ => panel::<P, PLANE>(a),
        }
    }
}

/// Where the upper bits of codes are: nowhere, as codes have none; in a plane of bits; in a byte for each row.
const NONE: u8 = 0;
const PLANE: u8 = 1;
const BY_ROW: u8 = 2;

/// [`panel_q`], with the upper bits of codes where `HIGH` says.
///
/// # Safety
/// The contract of [`panel_q`]; `HIGH` is what its packing asks for.
#[inline(always)]
unsafe fn panel<P: Prim<f16> + Prim<f32> + Lookup, const HIGH: u8>(a: &PanelQArgs) {
    let PanelQArgs { packing, w, steps, to } = *a;
    // A copy, because the compiler cannot know that the codes that are written do not overwrite the original.
    // Without codes all offsets are written.
    let packing = &Packing { eighths: packing.eighths && !to.codes.is_null(), ..*packing };
    let fields = Fields::of(packing, to.bias);
    for first in (0..steps).step_by(STEPS) {
        // SAFETY: units are within the panel, and there is room for them.
        unsafe {
            let head = w.add(first / STEPS * packing.unit_bytes(STEPS));
            let unit = Unit { packing, head, steps: (steps - first).min(STEPS) };
            let signs = scales::<P>(unit, first, to);
            if to.codes.is_null() {
                continue;
            }
            let codes = to.codes.add(first * STEP_COLS * PANEL_ROWS);
            for s in 0..unit.steps {
                let to = codes.add(s * STEP_COLS * PANEL_ROWS).cast();
                fields.take::<HIGH>(unit.planes(s), signs[s % STEPS], to);
            }
            if let Values::Table(table) = packing.values {
                P::look_up(
                    &table.each(|code| code.wrapping_add_unsigned(to.bias)),
                    codes,
                    unit.steps * STEP_COLS * PANEL_ROWS,
                );
            }
        }
    }
}

/// How codes are extracted from planes of bits. All steps of a panel have the same layout.
struct Fields {
    /// For each four columns of a step, the vector of a plane that has their bits, and the position of the first bit.
    low: [(usize, u32); STEP_COLS / 4],
    high: [(usize, u32); STEP_COLS / 4],
    /// Masks of a code's bits in each byte of a word: for the lower bits and for the upper ones.
    masks: [u32; 2],
    /// By how many bits upper bits are shifted to the left, so that they are above the lower ones.
    above: u32,
    /// How an index becomes a code: it is shifted to the left by `shift`, `base` is added, and the bits of `flip` are inverted.
    shift: u32,
    base: u32,
    flip: u32,
    /// Whether offsets are plus or minus an eighth of the scale, and are added to the codes as plus or minus 1.
    signs: bool,
}

impl Fields {
    /// How codes of a format are extracted, with `bias` added to them.
    #[inline(always)]
    fn of(packing: &Packing, bias: u8) -> Self {
        let [low, high] = packing.bits;
        // The number of bits is a power of two, so that masks give quotient and remainder without a slow division.
        let places =
            |bits: usize| from_fn(|v| (v & bits.wrapping_sub(1), (v & !bits.wrapping_sub(1)) as u32));
        // The sum of an index and `bias` fits an unsigned byte, so that it never carries into the next byte of the word. Signed codes
        // are computed with a bias of 128, and then have their highest bit inverted, which subtracts the bias again.
        let (bias, flip) = if bias == 0 { (BIAS, EVERY_BYTE * u32::from(BIAS)) } else { (bias, 0) };
        let (shift, base, flip) = match packing.values {
            // The code is eight times the value, plus or minus 1. The base has the 1; `take` subtracts 2 where the sign is negative.
            Values::Linear(zero) if packing.eighths => {
                (3, (u32::from(bias) + 1).wrapping_sub(8 * u32::from(zero)).wrapping_mul(EVERY_BYTE), flip)
            }
            Values::Linear(zero) => (0, EVERY_BYTE * u32::from(bias.wrapping_sub(zero)), flip),
            Values::Table(_) => (0, 0, 0),
        };
        Self {
            low: places(low),
            high: places(high),
            masks: packing.bits.each(|bits| EVERY_BYTE * ((1u32 << (bits & 15)) - 1)),
            above: low as u32,
            shift,
            base,
            flip,
            signs: packing.eighths,
        }
    }

    /// Writes the codes of a step in cells of four columns. `signs` has the signs of the offsets.
    ///
    /// # Safety
    /// The step, room for it at `to`, the instruction set.
    #[inline(always)]
    unsafe fn take<const HIGH: u8>(&self, planes: Planes, signs: Cell, to: *mut Cell) {
        let base = if self.signs {
            signs.each(|sign| self.base - (sign >> 31) * 2 * EVERY_BYTE)
        } else {
            [self.base; PANEL_ROWS]
        };
        // SAFETY: vectors are those of the step's planes.
        unsafe {
            let each_row = if HIGH == BY_ROW { planes.each_row() } else { [[0; 4]; PANEL_ROWS] };
            let word = |vector: [[u8; 4]; PANEL_ROWS], (at, mask): (u32, u32)| {
                vector.each(|w| u32::from_ne_bytes(w).wrapping_shr(at) & mask)
            };
            for v in 0..STEP_COLS / 4 {
                let (vector, at) = self.low[v];
                let mut words = word(planes.low(vector), (at, self.masks[0]));
                if HIGH != NONE {
                    let (vector, at) = self.high[v];
                    let high = if HIGH == BY_ROW { each_row } else { planes.high(vector) };
                    let above = word(high, (at, self.masks[1]));
                    words = from_fn(|i| words[i] | above[i].wrapping_shl(self.above));
                }
                let codes = |i: usize| words[i].wrapping_shl(self.shift).wrapping_add(base[i]) ^ self.flip;
                *to.add(v) = from_fn(codes);
            }
        }
    }
}

/// Writes the scales and offsets of a unit's groups to the unpacked panel, from step `first` on. Where offsets are plus or
/// minus an eighth of the scale, none are written: their signs are returned for each step, to be added to the codes.
///
/// # Safety
/// The unit, room for the panel, the instruction set.
#[inline(always)]
unsafe fn scales<P: Prim<f16> + Prim<f32>>(unit: Unit<'_>, first: usize, to: PanelRoom) -> [Cell; STEPS] {
    let packing = unit.packing;
    let (groups, n) = (packing.groups(), unit.steps * packing.groups());
    let scales = to.scales.wrapping_add(first * groups * PANEL_ROWS).cast::<[f32; PANEL_ROWS]>();
    let to_offsets = to.offsets.wrapping_add(first * groups * PANEL_ROWS).cast::<[f32; PANEL_ROWS]>();
    let mut signs = [[0; PANEL_ROWS]; STEPS];
    // The branch on the kind of scales is taken once for all groups, not once for each group.
    // SAFETY: places are within the head, and groups within the panel.
    unsafe {
        let bytes = |at: usize| *unit.head.add(at).cast::<[u8; PANEL_ROWS]>();
        let halves = |at: usize| {
            let halves = (*unit.head.add(at).cast::<[[u8; 2]; PANEL_ROWS]>()).each(f16::from_le_bytes);
            widened::<P>(&halves)
        };
        let times = |common: [f32; PANEL_ROWS], at: usize| {
            let factors = bytes(at).each(|b| f32::from(b as i8));
            from_fn(|i| common[i] * factors[i])
        };
        match packing.scales {
            Scales::Whole => {
                let whole = (*unit.head.cast::<[[u8; 4]; PANEL_ROWS]>()).each(f32::from_le_bytes);
                for g in 0..n {
                    *scales.add(g) = whole;
                }
            }
            Scales::Halves => {
                for g in 0..n {
                    *scales.add(g) = halves(packing.places(g).0);
                }
            }
            Scales::E8m0 => {
                // For all groups at once: LLVM would vectorise a loop over groups four at a time, with single bytes.
                for i in 0..n * PANEL_ROWS {
                    *scales.cast::<f32>().add(i) = e8m0_half(*unit.head.add(packing.places(0).1 + i));
                }
            }
            Scales::Ue4m3 => {
                for g in 0..n {
                    let halves = bytes(packing.places(g).1).each(|b| f16::from_bits(u16::from(b) << 7));
                    *scales.add(g) = widened::<P>(&halves).each(|d| d * packing.unit);
                }
            }
            Scales::Factors => {
                let common = halves(0).each(|d| d * packing.unit);
                for g in 0..n {
                    *scales.add(g) = times(common, packing.places(g).1);
                }
            }
        }
        if !packing.offsets {
            return signs;
        }
        let mut write = |g: usize, offsets: [f32; PANEL_ROWS]| {
            if packing.eighths {
                let of_group = *scales.add(g);
                // A step has one group or two.
                signs[(g >> (groups - 1)) % STEPS] =
                    from_fn(|i| offsets[i].to_bits() ^ of_group[i].to_bits());
                *scales.add(g) = of_group.each(|d| d * 0.125);
            } else {
                *to_offsets.add(g) = offsets;
            }
        };
        let offsets = |at: usize| halves(at + 2 * PANEL_ROWS).each(|m| m * packing.offset_unit);
        if packing.scales == Scales::Factors {
            let common = offsets(0);
            for g in 0..n {
                write(g, times(common, packing.places(g).1 + PANEL_ROWS));
            }
        } else {
            for g in 0..n {
                write(g, offsets(packing.places(g).0));
            }
        }
    }
    signs
}

/// As f32.
///
/// # Safety
/// The instruction set.
#[inline(always)]
unsafe fn widened<P: Prim<f16> + Prim<f32>>(halves: &[f16; PANEL_ROWS]) -> [f32; PANEL_ROWS] {
    let mut all = [0.0; PANEL_ROWS];
    for i in (0..PANEL_ROWS).step_by(<P as Vector>::LANES) {
        // SAFETY: whole vectors of 16 elements.
        unsafe {
            <P as Prim<f32>>::store(all.as_mut_ptr().add(i), <P as Prim<f16>>::load(halves.as_ptr().add(i)));
        }
    }
    all
}
