//! Packed quantised weights times activations of 8 bits, with I8MM: one or two rows of activations.
//!
//! `smmla` multiplies two rows of eight columns with two others. Eights are made of fours of columns before they are
//! unpacked (`zip1`, `zip2`): then the places of their bits are those of nibbles. Of a quad of rows `A` has the first two,
//! `B` the others; of sums, too, until a step is done. Two rows of activations are paired in the same way; one is its own
//! partner. Codes that are numbers with a bias stay unsigned (`usmmla`). See [`qgemv`](super::qgemv).
//!
//! Formats whose scales come in f16 without offsets (`wide`) do all 16 rows in one pass, the others eight.
//!
//! | register | |
//! |---|---|
//! | `v0`, `v1` | `A` and `B` of a quad, to be unpacked; after steps scales |
//! | `v2`, `v3` | other codes; vectors as they are in memory |
//! | `v4`, `v5`; `v6`, `v7` | high plane; other codes. Or `A` and `B` of two quads |
//! | `v8`..`v11` | eights of activations; then sums and scale of each row |
//! | `v14`, `v15` | if `wide`: 1.5 * 2^23, the table of values |
//! | `v16`..`v23` | if `wide`: the results |
//! | `v24`..`v31` | integers |

use super::qgemv::usual_bias;
use crate::quant::packed::{Packing, Scales};

/// Quads of a pass.
const fn quads(p: &Packing) -> u32 {
    if matches!(p.scales, Scales::Halves) && !p.offsets {
        4
    } else {
        2
    }
}

/// The register of 1.5 * 2^23.
const fn one_and_a_half(p: &Packing) -> u32 {
    match (quads(p), p.group, p.offsets) {
        (4, _, _) => 14,
        (_, 32, _) => 31,
        (_, _, false) => 23,
        (_, _, true) => 13,
    }
}

/// The register of the table of values.
const fn values(p: &Packing) -> u32 {
    if quads(p) == 4 {
        15
    } else {
        20
    }
}

macro_rules! i8mm {
    () => {
        r"
            .macro each_row do, more:vararg
                \do x6, 8, 9, none, none, \more
                .if {rows} > 1
                \do x7, 10, 11, none, none, \more
                .endif
            .endm
            .macro each_sum do, more:vararg
                .if {quads} == 4
                \do x6, 8, 9, none, none, 16, none, 0, 0, 0, none, 24, none, none, none, \more
                \do x6, 8, 9, none, none, 17, none, 16, 1, 1, none, 25, none, none, none, \more
                \do x6, 8, 9, none, none, 18, none, 32, 2, 2, none, 26, none, none, none, \more
                \do x6, 8, 9, none, none, 19, none, 48, 3, 3, none, 27, none, none, none, \more
                .if {rows} > 1
                \do x7, 10, 11, none, none, 20, none, 64, 0, 0, none, 28, none, none, none, \more
                \do x7, 10, 11, none, none, 21, none, 80, 1, 1, none, 29, none, none, none, \more
                \do x7, 10, 11, none, none, 22, none, 96, 2, 2, none, 30, none, none, none, \more
                \do x7, 10, 11, none, none, 23, none, 112, 3, 3, none, 31, none, none, none, \more
                .endif
                .else
                \do x6, 8, 9, none, none, 16, 20, 0, 0, 0, 2, 24, none, 28, none, \more
                \do x6, 8, 9, none, none, 17, 21, 16, 1, 1, 3, 25, none, 29, none, \more
                .if {rows} > 1
                \do x7, 10, 11, none, none, 18, 22, 64, 0, 0, 2, 26, none, 30, none, \more
                \do x7, 10, 11, none, none, 19, 23, 80, 1, 1, 3, 27, none, 31, none, \more
                .endif
                .endif
            .endm
            // Does something for each quad: where its columns are in a line, where its bytes go if the high plane is by row, integers
            // `A` and `B`, and those of the second half if that is a group.
            .macro each_quad do, more:vararg
                .if {quads} == 4
                \do 0, none, 24, 28, none, none, \more
                \do 16, none, 25, 29, none, none, \more
                \do 32, none, 26, 30, none, none, \more
                \do 48, none, 27, 31, none, none, \more
                .else
                \do 0, 21, 24, 26, 28, 30, \more
                \do 16, 22, 25, 27, 29, 31, \more
                .endif
            .endm
            // The same for quads side by side.
            .macro each_two_quads do, more:vararg
                .if {quads} == 4
                \do 0, 24, 28, none, none, 25, 29, none, none, \more
                \do 32, 26, 30, none, none, 27, 31, none, none, \more
                .else
                \do 0, 24, 26, 28, 30, 25, 27, 29, 31, \more
                .endif
            .endm

            .macro constants
                movi v{one_and_a_half}.4s, #0x4b, lsl #24
                orr v{one_and_a_half}.4s, #0x40, lsl #16
                .if {values} != 20
                mov v{values}.16b, v20.16b
                .endif
            .endm

            // Eights of activations: v8 to v11. A row without another is its own.
            .macro load_two_rows first, second
                ldp q0, q1, [\first, #-32]
                ldp q2, q3, [\second, #-32]
                zip1 v8.2d, v0.2d, v2.2d
                zip2 v9.2d, v0.2d, v2.2d
                zip1 v10.2d, v1.2d, v3.2d
                zip2 v11.2d, v1.2d, v3.2d
            .endm
            .macro load_activations
                .if {rows} == 1
                load_two_rows x6, x6
                .else
                load_two_rows x6, x7
                .endif
            .endm

            // INTEGERS start with 1.5 * 2^23 in f32, plus the bias times the negative sum of the activations: of each half those of
            // both rows, or of both halves.
            .macro load_biases_of first, second
                ldr q0, [\first]
                ldr q1, [\second]
                .if {group} == 32
                zip2 v0.4s, v0.4s, v1.4s
                .else
                zip1 v0.4s, v0.4s, v1.4s
                .endif
                shl v0.4s, v0.4s, #{bias_bits}
                add v0.4s, v0.4s, v{one_and_a_half}.4s
            .endm
            .macro start_integers a, b
                .if {bias}
                dup v\a\().2d, v0.d[0]
                .if {group} == 16
                dup v\b\().2d, v0.d[1]
                .endif
                .else
                mov v\a\().16b, v{one_and_a_half}.16b
                .if {group} == 16
                mov v\b\().16b, v{one_and_a_half}.16b
                .endif
                .endif
            .endm
            .macro start_sum x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, more
                start_integers \a, \b
            .endm
            // Of one row of activations, those of rows 2 and 3 of quads.
            .macro start_other at, spread, a, b, c, d, more
                start_integers \b, \d
            .endm
            .macro start
                .if {bias} && {rows} == 1
                load_biases_of x6, x6
                .elseif {bias}
                load_biases_of x6, x7
                .endif
                each_sum start_sum
                .if {rows} == 1
                each_quad start_other
                .endif
            .endm

            // WEIGHTS: v2 and v3, two fours of columns, become `A` and `B`.
            .macro pair v, w
                zip1 v\v\().4s, v2.4s, v3.4s
                zip2 v\w\().4s, v2.4s, v3.4s
            .endm
            // The fours are two vectors, two bits of one, or those of a plane by row.
            .macro two_vectors v, w, from
                ldr q2, [x5, #\from]
                ldr q3, [x5, #\from+64]
                pair \v, \w
            .endm
            .macro two_bits v, w, from
                ldr q2, [x5, #\from]
                ushr v3.16b, v2.16b, #1
                pair \v, \w
            .endm
            .macro two_bits_by_row v, w, spread
                ldr d2, [x4, #32]
                tbl v2.16b, {{v2.16b}}, v\spread\().16b
                ushr v3.16b, v2.16b, #1
                pair \v, \w
            .endm
            // Of two quads: to v4, v5 and v6, v7.
            .macro planes from
                ldp q0, q1, [x5, #\from]
                ldp q2, q3, [x5, #\from+64]
                zip1 v4.4s, v0.4s, v2.4s
                zip2 v5.4s, v0.4s, v2.4s
                zip1 v6.4s, v1.4s, v3.4s
                zip2 v7.4s, v1.4s, v3.4s
            .endm
            // An instruction for `A` and `B`: the last operand is a register or a number.
            .macro both op, v, w, a, b, operand
                \op v\v\().16b, v\a\().16b, \operand
                \op v\w\().16b, v\b\().16b, \operand
            .endm

            // What indices in v (`A`) and w (`B`) stand for, times an eight of activations.
            .macro multiply op, v, w, x, a, b
                \op v\a\().4s, v\v\().16b, v\x\().16b
                \op v\b\().4s, v\w\().16b, v\x\().16b
            .endm
            .macro eight half, x, v, w, a, b, c, d
                .if {table_of_values} && {low_bits} > 1
                tbl v\v\().16b, {{v{values}.16b}}, v\v\().16b
                tbl v\w\().16b, {{v{values}.16b}}, v\w\().16b
                .if {group} == 16 && \half == 1
                multiply smmla, \v, \w, \x, \c, \d
                .else
                multiply smmla, \v, \w, \x, \a, \b
                .endif
                .elseif {group} == 16 && \half == 1
                multiply usmmla, \v, \w, \x, \c, \d
                .else
                multiply usmmla, \v, \w, \x, \a, \b
                .endif
            .endm

            // PRODUCTS of two quads, of bytes or nibbles.
            .macro bytes at, a, b, c, d, e, f, g, h, from, half, x
                planes \from+\at
                eight \half, \x, 4, 5, \a, \b, \c, \d
                eight \half, \x, 6, 7, \e, \f, \g, \h
            .endm
            .macro nibbles at, a, b, c, d, e, f, g, h, from, x, y
                planes \from+\at
                both and, 0, 1, 4, 5, v12.16b
                both and, 2, 3, 6, 7, v12.16b
                both ushr, 4, 5, 4, 5, #4
                both ushr, 6, 7, 6, 7, #4
                eight 0, \x, 0, 1, \a, \b, \c, \d
                eight 0, \x, 2, 3, \e, \f, \g, \h
                eight 1, \y, 4, 5, \a, \b, \c, \d
                eight 1, \y, 6, 7, \e, \f, \g, \h
            .endm
            .macro two_quads at, a, b, c, d, e, f, g, h, more
                .if {low_bits} == 8
                bytes \at, \a, \b, \c, \d, \e, \f, \g, \h, 0, 0, 8
                bytes \at, \a, \b, \c, \d, \e, \f, \g, \h, 128, 0, 9
                bytes \at, \a, \b, \c, \d, \e, \f, \g, \h, 256, 1, 10
                bytes \at, \a, \b, \c, \d, \e, \f, \g, \h, 384, 1, 11
                .else
                nibbles \at, \a, \b, \c, \d, \e, \f, \g, \h, 0, 8, 10
                nibbles \at, \a, \b, \c, \d, \e, \f, \g, \h, 128, 9, 11
                .endif
            .endm

            // Of one quad: of nibbles in v0, v1 with high bits in v4, v5, which are four bits apart, too; of three bits in each
            // nibble, where of tables there are two copies, so that the fourth bit may be anything; of other bits of v0, v1.
            .macro nibbles_with_high x, y, a, b, c, d
                both ushr, 2, 3, 0, 1, #4
                both sli, 0, 1, 4, 5, #4
                both bit, 2, 3, 4, 5, v13.16b
                both and, 0, 1, 0, 1, v12.16b
                eight 0, \x, 0, 1, \a, \b, \c, \d
                eight 1, \y, 2, 3, \a, \b, \c, \d
            .endm
            .macro threes v, w, x, y, a, b, c, d
                both and, 2, 3, \v, \w, v12.16b
                both ushr, \v, \w, \v, \w, #4
                both and, \v, \w, \v, \w, v12.16b
                eight 0, \x, 2, 3, \a, \b, \c, \d
                eight 1, \y, \v, \w, \a, \b, \c, \d
            .endm
            .macro shifted op, by, half, x, a, b, c, d
                both \op, 2, 3, 0, 1, \by
                both and, 2, 3, 2, 3, v12.16b
                eight \half, \x, 2, 3, \a, \b, \c, \d
            .endm
            .macro one_quad at, spread, a, b, c, d, more
                .if {low_bits} == 4
                .if {high_bits} == 1
                two_bits 4, 5, 256+\at
                .else
                two_vectors 4, 5, 256+\at
                .endif
                two_vectors 0, 1, \at
                nibbles_with_high 8, 10, \a, \b, \c, \d
                both ushr, 4, 5, 4, 5, #2
                two_vectors 0, 1, 128+\at
                nibbles_with_high 9, 11, \a, \b, \c, \d
                .elseif {low_bits} == 2 && {high_bits} == 0
                two_vectors 0, 1, \at
                both and, 2, 3, 0, 1, v12.16b
                eight 0, 8, 2, 3, \a, \b, \c, \d
                shifted ushr, #2, 0, 9, \a, \b, \c, \d
                shifted ushr, #4, 1, 10, \a, \b, \c, \d
                both ushr, 2, 3, 0, 1, #6
                eight 1, 11, 2, 3, \a, \b, \c, \d
                .elseif {low_bits} == 2
                // Pairs of bits and high bits become two nibbles.
                .if {by_row}
                two_bits_by_row 4, 5, \spread
                .else
                two_bits 4, 5, 128+\at
                .endif
                two_vectors 0, 1, \at
                both ushr, 6, 7, 0, 1, #2
                both shl, 2, 3, 4, 5, #2
                both bit, 0, 1, 2, 3, v13.16b
                both bit, 6, 7, 4, 5, v13.16b
                threes 0, 1, 8, 10, \a, \b, \c, \d
                threes 6, 7, 9, 11, \a, \b, \c, \d
                .else
                // A bit counts twice, so that its values, 1 and -1, are numbers with a bias.
                two_bits 0, 1, \at
                shifted shl, #1, 0, 8, \a, \b, \c, \d
                shifted ushr, #1, 0, 9, \a, \b, \c, \d
                shifted ushr, #3, 1, 10, \a, \b, \c, \d
                shifted ushr, #5, 1, 11, \a, \b, \c, \d
                .endif
            .endm

            // Integers of a quad become those of rows of activations, in f32: less 1.5 * 2^23, below which the lowest bits of an f32
            // are those of an integer.
            .macro rows_of_integers a, b
                .if {rows} == 1
                uzp1 v\a\().4s, v\a\().4s, v\b\().4s
                fsub v\a\().4s, v\a\().4s, v{one_and_a_half}.4s
                .else
                uzp1 v0.4s, v\a\().4s, v\b\().4s
                uzp2 v\b\().4s, v\a\().4s, v\b\().4s
                fsub v\a\().4s, v0.4s, v{one_and_a_half}.4s
                fsub v\b\().4s, v\b\().4s, v{one_and_a_half}.4s
                .endif
            .endm
            .macro rows_of_quad at, spread, a, b, c, d, more
                rows_of_integers \a, \b
                .if {group} == 16
                rows_of_integers \c, \d
                .endif
            .endm
            .macro step_products
                .if {low_bits} == 8 || ({low_bits} == 4 && {high_bits} == 0)
                each_two_quads two_quads
                .else
                each_quad one_quad
                .endif
                each_quad rows_of_quad
            .endm
            // That was it.
            .macro integers x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, half, lane
            .endm

            .macro purge_own
                .irp name, each_quad, each_two_quads, load_two_rows, load_biases_of, start_integers, start_sum, start_other, pair
                .purgem \name
                .endr
                .irp name, two_vectors, two_bits, two_bits_by_row, planes, both, multiply, eight, bytes, nibbles, two_quads
                .purgem \name
                .endr
                .irp name, nibbles_with_high, threes, shifted, one_quad, rows_of_integers, rows_of_quad
                .purgem \name
                .endr
            .endm
        "
    };
}

/// One kernel.
macro_rules! kernel {
    ($field:ident $format:ident $rows:literal) => {
        packed_kernel! {
            $field $format $rows quads quads(&packing!($format)), i8mm "neon_i8mm" ["i8mm"],
            bias usual_bias(&packing!($format));
            one_and_a_half = const one_and_a_half(&packing!($format)),
            values = const values(&packing!($format)),
        }
    };
}

/// The kernels of a format.
macro_rules! kernels {
    ($field:ident $format:ident) => {
        kernel! { $field $format 1 }
        kernel! { $field $format 2 }
    };
}
kernels_of_formats! { kernels! }
