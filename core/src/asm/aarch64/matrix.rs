//! The 8x12 tile of matrix instructions: 2x2 sums from two rows of `A` and two columns of `B` in each.
//!
//! ```text
//!            columns 0, 1   2, 3   ..   10, 11
//! rows 0, 1       v8         v9    ..     v13     v0, v1   pairs of rows of A, alternately
//! rows 2, 3       v14        v15   ..     v19     v2..v7   pairs of columns of B
//! rows 4, 5       v20        v21   ..     v25
//! rows 6, 7       v26        v27   ..     v31
//! ```
//!
//! A register is 16 bytes of two rows (columns): the step is as deep as 8 bytes have elements.

/// A kernel with this tile: `multiply_add` is the instruction, `arrangement` that of its operands.
macro_rules! microkernel_2x2 {
    (
        $name:literal, extension: $extension:tt, sums: $sums:ident,
        multiply_add: $multiply_add:literal, arrangement: $arrangement:literal
    ) => {
        tile_kernel! {
            $name, extension: $extension, sums: $sums, vectors: 3, bytes: (64 96),
            macros: [
                multiply two_rows step choose_loop loops_8x12 first_operands round plain_step loops unzip arrange each_row
            ],
            concat!(
                ".macro multiply sum, a, b\n",
                $multiply_add, " v\\sum\\().4s, v\\a\\().", $arrangement, ", v\\b\\().", $arrangement,
                "\n.endm"
            ),
            choose_8x12!(),
            r#"
            // Two rows, in register a, times the columns that exist, in v2 and those behind it.
            .macro two_rows a, columns, sum0, sum1, sum2, sum3, sum4, sum5
                multiply \sum0, \a, 2
                multiply \sum1, \a, 3
                .if \columns > 4
                multiply \sum2, \a, 4
                multiply \sum3, \a, 5
                .endif
                .if \columns > 8
                multiply \sum4, \a, 6
                multiply \sum5, \a, 7
                .endif
            .endm

            // Step `this` of a round. Step `next` is loaded meanwhile: every register when it is done, 6 multiply-adds before it is
            // needed.
            .macro step this, next, lines:vararg
                two_rows 0, 12, 8, 9, 10, 11, 12, 13
                ldr q0, [x1, #64*\this+32]
                two_rows 1, 12, 14, 15, 16, 17, 18, 19
                ldr q1, [x1, #64*\this+48]
                .if \next == 0
                advance_a
                advance_b
                .endif
                two_rows 0, 12, 20, 21, 22, 23, 24, 25
                ldr q0, [x1, #64*\next]
                prefetch_lines \lines
                multiply 26, 1, 2
                multiply 27, 1, 3
                ldr q2, [x2, #96*\next]
                ldr q3, [x2, #96*\next+16]
                multiply 28, 1, 4
                multiply 29, 1, 5
                ldr q4, [x2, #96*\next+32]
                ldr q5, [x2, #96*\next+48]
                multiply 30, 1, 6
                multiply 31, 1, 7
                ldr q6, [x2, #96*\next+64]
                ldr q7, [x2, #96*\next+80]
                ldr q1, [x1, #64*\next+16]
            .endm
            .macro first_operands
                ldp q2, q3, [x2]
                ldp q4, q5, [x2, #32]
                ldp q6, q7, [x2, #64]
                ldp q0, q1, [x1]
            .endm
            .macro round
                step 0, 1, "x1, #512", "x2, #1024", "x2, #1088"
                step 1, 2, "x1, #576", "x2, #1152"
                step 2, 3, "x1, #640", "x2, #1216", "x2, #1280"
                step 3, 0, "x1, #448", "x2, #960"
            .endm

            .macro plain_step rows, columns
                first_operands
                two_rows 0, \columns, 8, 9, 10, 11, 12, 13
                two_rows 1, \columns, 14, 15, 16, 17, 18, 19
                .if \rows > 4
                ldp q0, q1, [x1, #32]
                two_rows 0, \columns, 20, 21, 22, 23, 24, 25
                two_rows 1, \columns, 26, 27, 28, 29, 30, 31
                .endif
            .endm
            .macro loops
                loops_8x12 23, 13, 22, 12, 21, 11
            .endm

            // From pairs of 2x2 sums to vectors of their upper and lower row.
            .macro unzip left, right
                zip2 v2.2d, v\left\().2d, v\right\().2d
                zip1 v\left\().2d, v\left\().2d, v\right\().2d
                mov v\right\().16b, v2.16b
            .endm
            .macro arrange
                unzip 8, 9
                unzip 10, 11
                unzip 12, 13
                unzip 14, 15
                unzip 16, 17
                unzip 18, 19
                unzip 20, 21
                unzip 22, 23
                unzip 24, 25
                unzip 26, 27
                unzip 28, 29
                unzip 30, 31
            .endm
            .macro each_row do, add
                \do \add, 8, 10, 12
                \do \add, 9, 11, 13
                \do \add, 14, 16, 18
                \do \add, 15, 17, 19
                \do \add, 20, 22, 24
                \do \add, 21, 23, 25
                \do \add, 26, 28, 30
                \do \add, 27, 29, 31
            .endm
            "#
        }
    };
}
