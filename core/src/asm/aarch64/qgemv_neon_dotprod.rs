//! Packed quantised weights times activations of 8 bits, with dotprod: one to four rows of activations.
//!
//! `sdot` by element multiplies four columns of four rows with four activations and adds the products up. Codes of 8 bits
//! become signed; others are, or are below 64. Two rows of activations at most share a pass of two quads, more one of one
//! quad. See [`qgemv`](super::qgemv).
//!
//! `v1`, `v3`, `v5` and `v7` are activations where a pass does one quad.

use super::qgemv::signed_bias;
use crate::quant::packed::Packing;

/// The register of 1.5 * 2^23: one that formats of this kind do not need.
const fn one_and_a_half(p: &Packing) -> u32 {
    match (p.group, p.offsets) {
        (32, _) => 31,
        (_, false) => 23,
        (_, true) => 13,
    }
}

macro_rules! dotprod {
    () => {
        concat!(
            codes!(),
            r"
            .macro each_row do, more:vararg
                \do x6, 8, 9, none, none, \more
                .if {rows} > 1
                \do x7, 10, 11, none, none, \more
                .endif
                .if {rows} > 2
                \do x8, 1, 3, none, none, \more
                .endif
                .if {rows} > 3
                \do x17, 5, 7, none, none, \more
                .endif
            .endm
            .macro each_sum do, more:vararg
                .if {quads} == 2
                \do x6, 8, 9, none, none, 16, 20, 0, 0, 0, 2, 24, none, 28, none, \more
                \do x6, 8, 9, none, none, 17, 21, 16, 1, 1, 3, 25, none, 29, none, \more
                .if {rows} > 1
                \do x7, 10, 11, none, none, 18, 22, 64, 0, 0, 2, 26, none, 30, none, \more
                \do x7, 10, 11, none, none, 19, 23, 80, 1, 1, 3, 27, none, 31, none, \more
                .endif
                .else
                \do x6, 8, 9, none, none, 16, 20, 0, 0, 0, 2, 24, none, 28, none, \more
                \do x7, 10, 11, none, none, 17, 21, 64, 0, 0, 2, 25, none, 29, none, \more
                \do x8, 1, 3, none, none, 18, 22, 128, 0, 0, 2, 26, none, 30, none, \more
                .if {rows} > 3
                \do x17, 5, 7, none, none, 19, 23, 192, 0, 0, 2, 27, none, 31, none, \more
                .endif
                .endif
            .endm

            .macro constants
                movi v{one_and_a_half}.4s, #0x4b, lsl #24
                orr v{one_and_a_half}.4s, #0x40, lsl #16
            .endm

            // INTEGERS start with 1.5 * 2^23 in f32, plus the bias times the negative sum of the activations.
            .macro start_sum x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, more
                .if {bias} == 0
                mov v\a\().16b, v{one_and_a_half}.16b
                .if {group} == 16
                mov v\b\().16b, v{one_and_a_half}.16b
                .endif
                .else
                .if \quad == 0
                ldr q0, [\x]
                .if {bias_bits}
                shl v0.4s, v0.4s, #{bias_bits}
                .endif
                add v0.4s, v0.4s, v{one_and_a_half}.4s
                .endif
                .if {group} == 32
                dup v\a\().4s, v0.s[2]
                .else
                dup v\a\().4s, v0.s[0]
                dup v\b\().4s, v0.s[1]
                .endif
                .endif
            .endm
            .macro start
                each_sum start_sum
            .endm

            // PRODUCTS of four columns are added. Activations are multiplied where they are.
            .macro bring half, four
            .endm
            .macro multiply_sum x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, which, codes, half, four
                .if \quad == \which
                .if \half == 0
                sdot v\a\().4s, v\codes\().16b, v\x0\().4b[\four]
                .elseif {group} == 32
                sdot v\a\().4s, v\codes\().16b, v\x1\().4b[\four]
                .else
                sdot v\b\().4s, v\codes\().16b, v\x1\().4b[\four]
                .endif
                .endif
            .endm
            .macro multiply_four even, odd, half, four, count
                each_sum multiply_sum, 0, \even, \half, \four
                .if {quads} > 1
                each_sum multiply_sum, 1, \odd, \half, \four
                .endif
            .endm

            // In f32: less 1.5 * 2^23, below which the lowest bits of an f32 are those of an integer. (Converting integers takes
            // half of the pipes of a Neoverse-N1, and those twice.)
            .macro integers x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, half, lane
                .if \half == 0
                fsub v\a\().4s, v\a\().4s, v{one_and_a_half}.4s
                .else
                fsub v\b\().4s, v\b\().4s, v{one_and_a_half}.4s
                .endif
            .endm

            .macro purge_own
                purge_codes
                .irp name, purge_codes, start_sum, bring, multiply_sum, multiply_four
                .purgem \name
                .endr
            .endm
            "
        )
    };
}

/// One kernel.
macro_rules! kernel {
    ($field:ident $format:ident quads $quads:literal, $rows:literal) => {
        packed_kernel! {
            $field $format $rows quads $quads, dotprod "neon_dotprod" ["dotprod"], bias signed_bias(&packing!($format));
            one_and_a_half = const one_and_a_half(&packing!($format)),
        }
    };
}

/// The kernels of a format.
macro_rules! kernels {
    ($field:ident $format:ident) => {
        kernel! { $field $format quads 2, 1 }
        kernel! { $field $format quads 2, 2 }
        kernel! { $field $format quads 1, 3 }
        kernel! { $field $format quads 1, 4 }
    };
}
kernels_of_formats! { kernels! }
