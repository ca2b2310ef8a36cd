//! The 24x4 tile of f32 by 16-bit floats that are widened when loaded.
//!
//! ```text
//!            columns 0..4
//! row 0            v8        v0..v3   the rows' elements of A, four rows each, one after the other
//! row 1            v9        v4, v5   two steps of B
//!  ..               ..       v6, v7   the next two
//! row 23           v31
//! ```
//!
//! Tall because a register of `B`, once widened, then serves 24 multiply-adds. In an 8x12 tile it serves 8, and
//! the two pipes of a Cortex-A76 would spend a fifth of their time widening f16. Two steps of the inner dimension
//! fill a register with 16-bit elements of `B`, so they go together.

/// A kernel with this tile. The text defines the assembler macros `widen_low to, from` and `widen_high to, from`, for the halves of
/// a register of `B`.
macro_rules! microkernel_24x4 {
    ($name:literal, $text:literal) => {
        tile_kernel! {
            $name, extension: [], sums: F32, vectors: 1, bytes: (192 16),
            macros: [
                widen_low widen_high four_rows steps first_operands round half_step plain_step loops each_row arrange
            ],
            $text,
            r#"
            .macro four_rows sum0, sum1, sum2, sum3, b, a
                fmla v\sum0\().4s, v\b\().4s, v\a\().s[0]
                fmla v\sum1\().4s, v\b\().4s, v\a\().s[1]
                fmla v\sum2\().4s, v\b\().4s, v\a\().s[2]
                fmla v\sum3\().4s, v\b\().4s, v\a\().s[3]
            .endm

            // A pair of steps, number `this` of a round, `B` in b0 and b1. Pair `next` is loaded and widened meanwhile, to n0 and n1;
            // a register of `A` is loaded as soon as its rows are done, 12 multiply-adds before it is needed.
            .macro steps b0, b1, n0, n1, this, next, lines:vararg
                .if \next == 0
                advance_b
                .endif
                ldr q\n1, [x2, #16*\next]
                four_rows 8, 9, 10, 11, \b0, 0
                ldr q0, [x1, #192*\this+64]
                four_rows 12, 13, 14, 15, \b0, 1
                ldr q1, [x1, #192*\this+80]
                four_rows 16, 17, 18, 19, \b0, 2
                ldr q2, [x1, #192*\this+96]
                four_rows 20, 21, 22, 23, \b0, 3
                ldr q3, [x1, #192*\this+112]
                four_rows 24, 25, 26, 27, \b0, 0
                ldr q0, [x1, #192*\this+128]
                four_rows 28, 29, 30, 31, \b0, 1
                ldr q1, [x1, #192*\this+144]
                widen_low \n0, \n1
                four_rows 8, 9, 10, 11, \b1, 2
                ldr q2, [x1, #192*\this+160]
                four_rows 12, 13, 14, 15, \b1, 3
                ldr q3, [x1, #192*\this+176]
                .if \next == 0
                advance_a
                .endif
                four_rows 16, 17, 18, 19, \b1, 0
                ldr q0, [x1, #192*\next]
                widen_high \n1, \n1
                four_rows 20, 21, 22, 23, \b1, 1
                ldr q1, [x1, #192*\next+16]
                prefetch_lines \lines
                four_rows 24, 25, 26, 27, \b1, 2
                ldr q2, [x1, #192*\next+32]
                four_rows 28, 29, 30, 31, \b1, 3
                ldr q3, [x1, #192*\next+48]
            .endm
            .macro first_operands
                ldr q5, [x2]
                ldp q0, q1, [x1]
                ldp q2, q3, [x1, #32]
                widen_low 4, 5
                widen_high 5, 5
            .endm
            .macro round
                steps 4, 5, 6, 7, 0, 1, "x1, #1536", "x1, #1600", "x1, #1664", "x2, #512"
                steps 6, 7, 4, 5, 1, 2, "x1, #1728", "x1, #1792", "x1, #1856"
                steps 4, 5, 6, 7, 2, 3, "x1, #1920", "x1, #1984", "x1, #2048"
                steps 6, 7, 4, 5, 3, 0, "x1, #1344", "x1, #1408", "x1, #1472"
            .endm

            // The rows that exist: one of two steps, `A` at `at`.
            .macro half_step rows, b, at
                ldp q0, q1, [x1, #\at]
                ldp q2, q3, [x1, #\at+32]
                ldp q6, q7, [x1, #\at+64]
                four_rows 8, 9, 10, 11, \b, 0
                where_more \rows, 4, four_rows 12, 13, 14, 15, \b, 1
                where_more \rows, 8, four_rows 16, 17, 18, 19, \b, 2
                where_more \rows, 12, four_rows 20, 21, 22, 23, \b, 3
                where_more \rows, 16, four_rows 24, 25, 26, 27, \b, 6
                where_more \rows, 20, four_rows 28, 29, 30, 31, \b, 7
            .endm
            .macro plain_step rows
                ldr q5, [x2]
                widen_low 4, 5
                half_step \rows, 4, 0
                widen_high 5, 5
                half_step \rows, 5, 96
            .endm
            .macro loops
                cmp x6, #4
                b.ls 11f
                cmp x6, #8
                b.ls 12f
                cmp x6, #12
                b.ls 13f
                cmp x6, #16
                b.ls 14f
                cmp x6, #20
                b.ls 15f
                rounds 16
                plain 11, plain_step, 4
                plain 12, plain_step, 8
                plain 13, plain_step, 12
                plain 14, plain_step, 16
                plain 15, plain_step, 20
                plain 16, plain_step, 24
            .endm
            .macro each_row do, add
                .irp sum, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
                \do \add, \sum
                .endr
            .endm
            .macro arrange
            .endm
            "#
        }
    };
}
