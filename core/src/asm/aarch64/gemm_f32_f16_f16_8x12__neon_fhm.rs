//! f16 by f16, FHM: the tile of [`wide`](super::wide) on f16, two steps of the inner dimension at once.
//!
//! `fmlal` and `fmlal2` multiply the lower and the upper half of a register of `B` by an element of `A`: exact
//! products, added to f32 with one rounding. Nothing is widened, and there are half as many bytes to load as
//! for f32. `v0` and `v1` are the two steps of `A`, three registers the 12 columns of both of `B`:
//!
//! ```text
//!             columns 0..4   4..8    8..12
//! first step    v2 lower   v2 upper  v3 lower
//! second        v3 upper   v4 lower  v4 upper
//! ```

microkernel_8x12! {
    "gemm_f32_f16_f16_8x12__neon_fhm", extension: ["fp16fml"], sums: F32,
    macros: [block rows_0 rows_4 first_step second_step step products],
    r"
        // Four rows of four columns; of the element in `lane` of `a`, and those behind it.
        .macro block sum0, sum1, sum2, sum3, multiply, b, a, lane
            \multiply v\sum0\().4s, v\b\().4h, v\a\().h[\lane]
            \multiply v\sum1\().4s, v\b\().4h, v\a\().h[\lane+1]
            \multiply v\sum2\().4s, v\b\().4h, v\a\().h[\lane+2]
            \multiply v\sum3\().4s, v\b\().4h, v\a\().h[\lane+3]
        .endm

        // The first and the last four rows of the columns that exist, of which each four have an instruction and a register.
        .macro rows_0 a, columns, mul0, b0, mul1, b1, mul2, b2
            block 8, 9, 10, 11, \mul0, \b0, \a, 0
            where_more \columns, 4, block 12, 13, 14, 15, \mul1, \b1, \a, 0
            where_more \columns, 8, block 16, 17, 18, 19, \mul2, \b2, \a, 0
        .endm
        .macro rows_4 a, columns, mul0, b0, mul1, b1, mul2, b2
            block 20, 21, 22, 23, \mul0, \b0, \a, 4
            where_more \columns, 4, block 24, 25, 26, 27, \mul1, \b1, \a, 4
            where_more \columns, 8, block 28, 29, 30, 31, \mul2, \b2, \a, 4
        .endm

        // The first and the second of two steps, whose columns are in three registers.
        .macro first_step rows, columns, b0, b1
            \rows 0, \columns, fmlal, \b0, fmlal2, \b0, fmlal, \b1
        .endm
        .macro second_step rows, columns, b1, b2
            \rows 1, \columns, fmlal2, \b1, fmlal, \b2, fmlal2, \b2
        .endm

        .macro step b0, b1, b2, n0, n1, n2, next, lines:vararg
            first_step rows_0, 12, \b0, \b1
            ldr q\n0, [x2, #48*\next]
            ldr q\n1, [x2, #48*\next+16]
            first_step rows_4, 12, \b0, \b1
            ldr q0, [x1, #32*\next]
            ldr q\n2, [x2, #48*\next+32]
            second_step rows_0, 12, \b1, \b2
            prefetch_lines \lines
            second_step rows_4, 12, \b1, \b2
            ldr q1, [x1, #32*\next+16]
        .endm
        .macro products rows, columns
            first_step rows_0, \columns, 2, 3
            where_more \rows, 4, first_step rows_4, \columns, 2, 3
            second_step rows_0, \columns, 3, 4
            where_more \rows, 4, second_step rows_4, \columns, 3, 4
        .endm
    "
}
