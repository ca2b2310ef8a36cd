//! Facts about the formats, beside their [`Packing`], on which kernels for packed weights in assembly depend. The compiler
//! checks each of them.

use core::mem::{offset_of, size_of};

use crate::quant::packed::{Pack, Packing, Scales, Values, STEPS, UNIT_COLS};
use crate::quant::steps::Step;

// Where the parts of a step of activations are: vectors of aarch64 take three sums and the scale at once, so assembly has these
// places as numbers.
const _: () = {
    assert!(offset_of!(Step, q) == 0 && offset_of!(Step, sums) == 32 && offset_of!(Step, scale) == 44);
    assert!(offset_of!(Step, offsets) == 48 && size_of::<Step>() == 64);
};

/// The bias that makes codes unsigned numbers.
pub(super) const fn bias(p: &Packing) -> u32 {
    match p.values {
        Values::Linear(bias) => bias as u32,
        Values::Table(table) => {
            let (mut least, mut i) = (0, 0);
            while i < 16 {
                least = if table[i] < least { table[i] } else { least };
                i += 1;
            }
            let least = least.unsigned_abs() as u32;
            if p.by_row {
                least
            } else {
                least.next_power_of_two()
            }
        }
    }
}

/// The largest code, as an unsigned number.
pub(super) const fn largest(p: &Packing) -> u32 {
    let (mut largest, mut i) = (0, 0);
    while i < 1 << (p.bits[0] + p.bits[1]) {
        let code = p.value(i as u8) as i32 + bias(p) as i32;
        largest = if code > largest { code } else { largest };
        i += 1;
    }
    largest as u32
}

macro_rules! sound {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $format:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {$(
        $(#[$on])*
        const _: () = {
            const P: Packing = <crate::quant::formats::$format as Pack>::PACKING;
            // The factors of both groups of a step, and then its high plane.
            assert!(
                !P.by_row
                    || P.high(STEPS, 1) == P.places(2).1 + 32 && P.high(STEPS, 1) - P.high(STEPS, 0) == 48
            );
            // Where a unit has one scale, or one plane for all steps, no unit is shorter.
            assert!(P.block == UNIT_COLS || !P.by_row && !matches!(P.scales, Scales::Factors | Scales::Whole));
            // What `.if` distinguishes: the bits of planes, tables of up to 16 values, kinds of scales, and biases.
            assert!(matches!(P.bits, [8, 0] | [4, 0..=2] | [2, 0..=1] | [1, 0]) && matches!(P.group, 16 | 32));
            assert!(!P.offsets || matches!(P.scales, Scales::Halves | Scales::Factors));
            let table = matches!(P.values, Values::Table(_));
            assert!(!table || P.bits[0] + P.bits[1] <= 4 && !P.offsets);
            assert!(table || P.bits[0] > 1 && !P.by_row);
            assert!(bias(&P) == 0 || bias(&P).is_power_of_two() || P.by_row && bias(&P) == 9);
            assert!(!P.by_row || P.bits[0] == 2);
            // Codes are bytes.
            assert!(largest(&P) <= 255);
        };
    )*};
}
expand_all_formats! { sound! {} }
