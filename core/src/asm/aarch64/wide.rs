//! The 8x12 tile of products by element.
//!
//! ```text
//!            columns 0..4   4..8   8..12
//! row 0            v8        v12    v16     v0, v1   the rows' elements of A
//!  ..               ..        ..     ..
//! row 3            v11       v15    v19     v2..v4   a step of B
//! row 4            v20       v24    v28     v5..v7   the next one
//!  ..               ..        ..     ..
//! row 7            v23       v27    v31
//! ```

/// A kernel with this tile. The text defines the named assembler macros, among them
///
/// - `step b0, b1, b2, n0, n1, n2, next, lines`: multiplies the step in `v0`, `v1` and these three registers of `B`. Step `next` of
///   the round is loaded meanwhile, to the other three, and a register of `A` when it is done. Prefetches lines, too;
/// - `products rows, columns`: multiplies the step in `v0`..`v4` for this many rows and columns.
macro_rules! microkernel_8x12 {
    ($name:literal, extension: $extension:tt, sums: $sums:ident, macros: [$($macro:ident)*], $($text:expr),*) => {
        tile_kernel! {
            $name, extension: $extension, sums: $sums, vectors: 3, bytes: (32 48),
            macros: [$($macro)* choose_loop loops_8x12 first_operands round plain_step loops each_row arrange],
            $($text,)*
            choose_8x12!(),
            r#"
            .macro first_operands
                ldp q2, q3, [x2]
                ldr q4, [x2, #32]
                ldp q0, q1, [x1]
            .endm
            .macro round
                step 2, 3, 4, 5, 6, 7, 1, "x2, #1024", "x1, #512"
                step 5, 6, 7, 2, 3, 4, 2, "x2, #1088", "x1, #576"
                step 2, 3, 4, 5, 6, 7, 3, "x2, #1152"
                advance_a
                advance_b
                step 5, 6, 7, 2, 3, 4, 0
            .endm
            .macro plain_step rows, columns
                ldp q0, q1, [x1]
                ldp q2, q3, [x2]
                ldr q4, [x2, #32]
                products \rows, \columns
            .endm
            .macro loops
                loops_8x12 23, 22, 21, 13, 12, 11
            .endm
            .macro each_row do, add
                \do \add, 8, 12, 16
                \do \add, 9, 13, 17
                \do \add, 10, 14, 18
                \do \add, 11, 15, 19
                \do \add, 20, 24, 28
                \do \add, 21, 25, 29
                \do \add, 22, 26, 30
                \do \add, 23, 27, 31
            .endm
            .macro arrange
            .endm
            "#
        }
    };
}

/// The assembler macros `step` and `products` where a register of `A` holds four rows and one of `B` four columns.
/// `multiply sum, b, a, lane` is the instruction. A register of `A` is loaded 12 multiply-adds before it is needed.
macro_rules! four_by_four {
    () => {
        r"
            // Four rows of four columns.
            .macro block sum0, sum1, sum2, sum3, b, a
                multiply \sum0, \b, \a, 0
                multiply \sum1, \b, \a, 1
                multiply \sum2, \b, \a, 2
                multiply \sum3, \b, \a, 3
            .endm
            .macro step b0, b1, b2, n0, n1, n2, next, lines:vararg
                block 8, 9, 10, 11, \b0, 0
                ldr q\n0, [x2, #48*\next]
                block 12, 13, 14, 15, \b1, 0
                ldr q\n1, [x2, #48*\next+16]
                block 16, 17, 18, 19, \b2, 0
                ldr q0, [x1, #32*\next]
                block 20, 21, 22, 23, \b0, 1
                ldr q\n2, [x2, #48*\next+32]
                block 24, 25, 26, 27, \b1, 1
                prefetch_lines \lines
                block 28, 29, 30, 31, \b2, 1
                ldr q1, [x1, #32*\next+16]
            .endm
            .macro products rows, columns
                block 8, 9, 10, 11, 2, 0
                where_more \columns, 4, block 12, 13, 14, 15, 3, 0
                where_more \columns, 8, block 16, 17, 18, 19, 4, 0
                .if \rows > 4
                block 20, 21, 22, 23, 2, 1
                where_more \columns, 4, block 24, 25, 26, 27, 3, 1
                where_more \columns, 8, block 28, 29, 30, 31, 4, 1
                .endif
            .endm
        "
    };
}
