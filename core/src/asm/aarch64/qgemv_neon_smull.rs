//! Packed quantised weights times activations of 8 bits, with the instructions that every aarch64 CPU has: one or two rows
//! of activations.
//!
//! `smull` and `smlal` multiply two rows of four columns with four activations that are there twice, in lanes of 16 bits,
//! which hold the products of a step, of half a step or of two fours of columns, as large as codes are; then neighbours are
//! added up, in 32 bits. One row of activations takes passes of two quads, two take passes of one. See
//! [`qgemv`](super::qgemv).
//!
//! `v10` and `v11`, or `v18` and `v22`, `v19` and `v23`, are four activations of a row, of each half of the step.

use super::qgemv::signed_bias;
use crate::quant::packed::{Packing, Values};

/// No code that is multiplied has a larger magnitude.
const fn largest(p: &Packing) -> usize {
    let bits = p.bits[0] + p.bits[1];
    match p.values {
        Values::Linear(128) => 128,
        Values::Linear(_) => (1 << bits) - 1,
        // 0 or 2.
        Values::Table(_) if bits == 1 => 2,
        Values::Table(table) => {
            let (mut largest, mut i) = (0, 0);
            while i < 16 {
                let size = table[i].unsigned_abs() as usize;
                largest = if size > largest { size } else { largest };
                i += 1;
            }
            largest
        }
    }
}

/// How many fours of columns have products whose sum fits 16 bits: those of a step, of half a step, or two.
const STEP: u32 = 8;
const HALF: u32 = 4;
const TWO: u32 = 2;

/// See [`STEP`].
const fn fours(p: &Packing) -> u32 {
    // There is room for a table where there are no offsets.
    assert!(!(p.offsets && matches!(p.values, Values::Table(_))));
    let fours = (0x7fff / (127 * largest(p))) as u32;
    assert!(fours >= TWO && (fours >= HALF || p.group == 32));
    match fours {
        STEP.. if p.group == 32 => STEP,
        HALF.. => HALF,
        _ => TWO,
    }
}

macro_rules! smull {
    () => {
        concat!(
            codes!(),
            r"
            // The tier's registers have four activations, of the first and of the second half of the step.
            .macro each_row do, more:vararg
                .if {rows} == 1
                \do x6, 8, 9, 10, 11, \more
                .else
                \do x6, 8, 9, 18, 22, \more
                \do x7, 10, 11, 19, 23, \more
                .endif
            .endm
            .macro each_sum do, more:vararg
                .if {rows} == 1
                \do x6, 8, 9, 10, 11, 16, 20, 0, 0, 0, 2, 24, 25, 28, 29, \more
                \do x6, 8, 9, 10, 11, 17, 21, 16, 1, 1, 3, 26, 27, 30, 31, \more
                .else
                \do x6, 8, 9, 18, 22, 16, 20, 0, 0, 0, 2, 24, 25, 28, 29, \more
                \do x7, 10, 11, 19, 23, 17, 21, 64, 0, 0, 2, 26, 27, 30, 31, \more
                .endif
            .endm

            .macro constants
            .endm
            // Integers start with the first products.
            .macro start
            .endm

            // PRODUCTS of four columns are added to sums of 16 bits, or start them.
            .macro bring_row x, x0, x1, d0, d1, half, four
                .if \half == 0
                dup v\d0\().4s, v\x0\().s[\four]
                .else
                dup v\d1\().4s, v\x1\().s[\four]
                .endif
            .endm
            .macro bring half, four
                each_row bring_row, \half, \four
            .endm
            .macro multiply op, sum, sum1, codes, d
                \op v\sum\().8h, v\codes\().8b, v\d\().8b
                \op\()2 v\sum1\().8h, v\codes\().16b, v\d\().16b
            .endm
            .macro multiply_sum x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, which, codes, op, half
                .if \quad == \which
                .if \half == 0
                multiply \op, \a, \a1, \codes, \d0
                .elseif {fours} == {half}
                multiply \op, \b, \b1, \codes, \d1
                .else
                multiply \op, \a, \a1, \codes, \d1
                .endif
                .endif
            .endm
            // Sums of two fours of columns are added to those in 32 bits.
            .macro widen_sum x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, op
                \op v\b\().4s, v\a\().8h
                \op v\b1\().4s, v\a1\().8h
            .endm
            .macro multiply_quads even, odd, half, op
                each_sum multiply_sum, 0, \even, \op, \half
                .if {quads} > 1
                each_sum multiply_sum, 1, \odd, \op, \half
                .endif
            .endm
            .macro start_or_add even, odd, half, before
                .if \before == 0
                multiply_quads \even, \odd, \half, smull
                .else
                multiply_quads \even, \odd, \half, smlal
                .endif
            .endm
            .macro multiply_four even, odd, half, four, count
                // How many fours of columns the sum has by now.
                .if {fours} == {step_sums}
                start_or_add \even, \odd, \half, (\count)-1
                .elseif {fours} == {half}
                start_or_add \even, \odd, \half, \four
                .else
                start_or_add \even, \odd, \half, ((\count)-1)%2
                .endif
                .if {fours} == {two} && (\count) == 2
                each_sum widen_sum, saddlp
                .elseif {fours} == {two} && (\count) % 2 == 0
                each_sum widen_sum, sadalp
                .endif
            .endm

            // A group's integers: its sums of 16 or 32 bits are added up, and the bias times the negative sum of the activations.
            .macro add_pairs sum, sum1
                saddlp v\sum\().4s, v\sum\().8h
                saddlp v\sum1\().4s, v\sum1\().8h
                addp v\sum\().4s, v\sum\().4s, v\sum1\().4s
            .endm
            .macro to_f32 sum
                .if {bias}
                add v\sum\().4s, v\sum\().4s, v5.4s
                .endif
                scvtf v\sum\().4s, v\sum\().4s
            .endm
            .macro integers x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, half, lane
                .if {bias} && \quad == 0
                .if {bias_bits}
                shl v4.4s, v\x0\().4s, #{bias_bits}
                dup v5.4s, v4.s[\lane]
                .else
                dup v5.4s, v\x0\().s[\lane]
                .endif
                .endif
                .if {fours} == {two}
                addp v\a\().4s, v\b\().4s, v\b1\().4s
                to_f32 \a
                .elseif {fours} == {half} && {group} == 32
                saddlp v\a\().4s, v\a\().8h
                saddlp v\a1\().4s, v\a1\().8h
                sadalp v\a\().4s, v\b\().8h
                sadalp v\a1\().4s, v\b1\().8h
                addp v\a\().4s, v\a\().4s, v\a1\().4s
                to_f32 \a
                .elseif \half == 0
                add_pairs \a, \a1
                to_f32 \a
                .else
                add_pairs \b, \b1
                to_f32 \b
                .endif
            .endm

            .macro purge_own
                purge_codes
                .irp name, purge_codes, bring_row, bring, multiply, multiply_sum, widen_sum, multiply_quads, start_or_add, multiply_four
                .purgem \name
                .endr
                .irp name, add_pairs, to_f32
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
            $field $format $rows quads $quads, smull "neon_smull" [], bias signed_bias(&packing!($format));
            fours = const fours(&packing!($format)),
            step_sums = const STEP,
            half = const HALF,
            two = const TWO,
        }
    };
}

/// The kernels of a format.
macro_rules! kernels {
    ($field:ident $format:ident) => {
        kernel! { $field $format quads 2, 1 }
        kernel! { $field $format quads 1, 2 }
    };
}
kernels_of_formats! { kernels! }
