//! int8 without dotprod: a 4x4 tile, sixteen steps of the inner dimension at once.
//!
//! ```text
//!            column 0   1    2    3
//! row 0         v16    v20  v24  v28     v0..v3   16 steps of a row of A each
//! row 1         v17    v21  v25  v29     v4..v7   16 steps of a column of B each
//! row 2         v18    v22  v26  v30     v8..v15  products of the last four pairs of a row and a column
//! row 3         v19    v23  v27  v31
//! ```
//!
//! A sum has four lanes, which are added up at the end, so that nothing has to be repeated in lanes. `smull`
//! multiplies 8 bytes to 16 bits, `sadalp` adds neighbouring products to 32: 4 multiply-adds an instruction, as
//! `smlal` on 16-bit numbers, but on both pipes of a Cortex-A72, where `smlal` runs on one. Every product is
//! widened before it is added to another: two times -128 * -128 does not fit into 16 bits.

tile_kernel! {
    "gemm_i32_i8_i8_4x4__neon", extension: [], sums: I32, vectors: 1, bytes: (64 64),
    macros: [multiply load step first_operands prefetch_both round plain_step loops add_up arrange each_row],
    r"
        // The products of a row and a column, to `low` and `high`; then those of two pairs before, in the registers `low2` and
        // `high2`, are added to their sum.
        .macro multiply a, b, low, high, low2, high2, sum
            smull v\low\().8h, v\a\().8b, v\b\().8b
            sadalp v\sum\().4s, v\low2\().8h
            smull2 v\high\().8h, v\a\().16b, v\b\().16b
            sadalp v\sum\().4s, v\high2\().8h
        .endm

        // A register of the next step, if there is one.
        .macro load to, panel, at, next
            .ifnb \next
            ldr q\to, [\panel, #64*\next+\at]
            .endif
        .endm

        // A step. Step `next` is loaded meanwhile: a column when it is done, the rows with the last column.
        .macro step next
            multiply 0, 4, 8, 9, 12, 13, 30
            multiply 1, 4, 10, 11, 14, 15, 31
            multiply 2, 4, 12, 13, 8, 9, 16
            multiply 3, 4, 14, 15, 10, 11, 17
            load 4, x2, 0, \next
            multiply 0, 5, 8, 9, 12, 13, 18
            multiply 1, 5, 10, 11, 14, 15, 19
            multiply 2, 5, 12, 13, 8, 9, 20
            multiply 3, 5, 14, 15, 10, 11, 21
            load 5, x2, 16, \next
            multiply 0, 6, 8, 9, 12, 13, 22
            multiply 1, 6, 10, 11, 14, 15, 23
            multiply 2, 6, 12, 13, 8, 9, 24
            multiply 3, 6, 14, 15, 10, 11, 25
            load 6, x2, 32, \next
            multiply 0, 7, 8, 9, 12, 13, 26
            load 0, x1, 0, \next
            multiply 1, 7, 10, 11, 14, 15, 27
            load 1, x1, 16, \next
            multiply 2, 7, 12, 13, 8, 9, 28
            load 2, x1, 32, \next
            multiply 3, 7, 14, 15, 10, 11, 29
            load 3, x1, 48, \next
            load 7, x2, 48, \next
        .endm
        .macro first_operands
            ldp q0, q1, [x1]
            ldp q2, q3, [x1, #32]
            ldp q4, q5, [x2]
            ldp q6, q7, [x2, #32]
        .endm
        .macro prefetch_both at
            prfm pldl1keep, [x1, #\at]
            prfm pldl1keep, [x2, #\at]
        .endm
        .macro round
            step 1
            prefetch_both 512
            step 2
            prefetch_both 576
            step 3
            prefetch_both 640
            advance_a
            advance_b
            step 0
            prefetch_both 448
        .endm
        .macro plain_step
            first_operands
            step
        .endm
        .macro loops
            rounds 16
            plain 16, plain_step
        .endm

        // The four lanes of four sums to the lanes of the first.
        .macro add_up sum0, sum1, sum2, sum3
            addp v\sum0\().4s, v\sum0\().4s, v\sum1\().4s
            addp v\sum2\().4s, v\sum2\().4s, v\sum3\().4s
            addp v\sum0\().4s, v\sum0\().4s, v\sum2\().4s
        .endm
        .macro arrange
            // The last two products.
            sadalp v30.4s, v12.8h
            sadalp v31.4s, v14.8h
            sadalp v30.4s, v13.8h
            sadalp v31.4s, v15.8h
            add_up 16, 20, 24, 28
            add_up 17, 21, 25, 29
            add_up 18, 22, 26, 30
            add_up 19, 23, 27, 31
        .endm
        .macro each_row do, add
            \do \add, 16
            \do \add, 17
            \do \add, 18
            \do \add, 19
        .endm
    "
}
