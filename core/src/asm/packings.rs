//! What kernels for packed weights in assembly know of the formats: proof that `expand_all_packings!` is right
//! about them.

use crate::quant::packed::{Pack, Packing, Scales, Values, STEPS, UNIT};

/// What makes codes unsigned numbers.
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

macro_rules! agrees {
    ({} $($(#[$on:meta])* $field:ident = $format:ident {
        bits: ($low:tt $high:tt),
        values: $values:ident $bias:tt $way:ident,
        scales: $kind:ident $min:ident $group:tt
    })*) => {$(
        $(#[$on])*
        const _: () = {
            const P: Packing = <crate::quant::formats::$format as Pack>::PACKING;
            assert!(P.bits[0] == $low && P.bits[1] == agrees!(@high $high) && P.group == $group);
            assert!(P.by_row == agrees!(@by_row $high));
            // The factors of both groups of a step, and then its high plane.
            assert!(
                !P.by_row
                    || P.high(STEPS, 1) == P.places(2).1 + 32 && P.high(STEPS, 1) - P.high(STEPS, 0) == 48
            );
            // Where a unit has one scale, or one plane for all steps, no unit is shorter.
            assert!(P.block == UNIT || !P.by_row && !matches!(P.scales, Scales::Factors | Scales::Whole));
            assert!(P.offsets == agrees!(@offsets $min));
            assert!(matches!(P.scales, agrees!(@scales $kind)));
            assert!(bias(&P) == agrees!(@bias $bias));
            assert!(matches!(P.values, Values::Table(_)) == agrees!(@table $values));
            // Pairs of products with activations fit 16 bits: as many as a half step has, or one.
            assert!(2 * 127 * largest(&P) * agrees!(@pairs $way) <= 0x7fff);
        };
    )*};
    (@high row) => { 1 };
    (@high $high:tt) => { $high };
    (@by_row row) => { true };
    (@by_row $high:tt) => { false };
    (@offsets none) => { false };
    (@offsets min) => { true };
    (@table linear) => { false };
    (@table table) => { true };
    (@bias none) => { 0 };
    (@bias 9) => { 9 };
    (@bias $bias:tt) => { 1 << $bias };
    (@scales halves) => { Scales::Halves };
    (@scales whole) => { Scales::Whole };
    (@scales factors) => { Scales::Factors };
    (@scales e8m0) => { Scales::E8m0 };
    (@scales ue4m3) => { Scales::Ue4m3 };
    (@pairs words) => { 4 };
    (@pairs each) => { 1 };
    (@pairs signed) => { 0 };
}
expand_all_packings! { agrees! {} }
