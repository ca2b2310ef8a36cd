//! Panels of quantised weights times panels of activations of 8 bits: for groups of 32 columns or 16, with offsets or
//! without. The 16 rows of a panel take two passes, of eight rows each.
//!
//! With dotprod, `sdot` by element multiplies four columns of four rows with four activations and adds the products up; up
//! to four rows of activations share a pass. Without, `smull` and `smlal` add two columns of products in 16 bits (at most
//! 2 * 128 * 127), `sadalp` adds pairs of these to sums in 32 bits, of which `addp` makes those of rows; up to two rows
//! share a pass. With I8MM, `smmla` multiplies eight columns of two rows with those of two rows of activations. See
//! [`tile`](crate::ops::qgemm::tile::tile) for the order of the operations in f32.
//!
//! | register | |
//! |---|---|
//! | `x0` | `QTileArgs` |
//! | `x1`, `x2`, `x3` | the step's codes, scales, offsets |
//! | `x4`, `x5` | the step's activations, bytes to the next step |
//! | `x6`, `x7` | steps that are left; which half: bytes from the start of a line |
//! | `x8` | results |
//! | `x9`..`x16` | the caller's `d8`..`d15` |
//! | `v0`..`v3` | weights; then scales, offsets |
//! | `v4`..`v7` | activations; products of 16 bits |
//! | `v8`..`v31` | integers of the second and the first group, results |

/// The assembler macros that are dotprod's own: `each_row` does something for each row of activations, whose arguments are the place of
/// its step, a register for activations, two for results, and up to four for the integers of either group; `start_more` and
/// `end_products` come before and behind the products of a step; `half_step` is the products of 16 columns; `integers` makes f32 of
/// the integers of a group, in its first two registers.
macro_rules! dotprod {
    () => {
        r"
            .macro each_row do, more:vararg
                \do 0, 4, 16, 17, 24, 25, none, none, 8, 9, none, none, \more
                .if {rows} > 1
                \do 64, 5, 18, 19, 26, 27, none, none, 10, 11, none, none, \more
                .endif
                .if {rows} > 2
                \do 128, 6, 20, 21, 28, 29, none, none, 12, 13, none, none, \more
                .endif
                .if {rows} > 3
                \do 192, 7, 22, 23, 30, 31, none, none, 14, 15, none, none, \more
                .endif
            .endm

            .macro load_row place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, at
                ldr q\x, [x4, #\place + \at]
            .endm
            .macro multiply_row place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, group, w0, w1, four
                .if \group == 1
                sdot v\a0\().4s, v\w0\().16b, v\x\().4b[\four]
                sdot v\a1\().4s, v\w1\().16b, v\x\().4b[\four]
                .else
                sdot v\b0\().4s, v\w0\().16b, v\x\().4b[\four]
                sdot v\b1\().4s, v\w1\().16b, v\x\().4b[\four]
                .endif
            .endm
            .macro four_columns codes, w0, w1, group, four
                ldp q\w0, q\w1, [x1, #\codes]
                each_row multiply_row, \group, \w0, \w1, \four
            .endm
            .macro half_step at, codes, group
                each_row load_row, \at
                four_columns \codes, 0, 1, \group, 0
                four_columns \codes+64, 2, 3, \group, 1
                four_columns \codes+128, 0, 1, \group, 2
                four_columns \codes+192, 2, 3, \group, 3
            .endm
            .macro integers a0, a1, a2, a3
                scvtf v\a0\().4s, v\a0\().4s
                scvtf v\a1\().4s, v\a1\().4s
            .endm
            .macro start_more
            .endm
            .macro end_products
            .endm

            .macro purge_own
                .irp name, load_row, multiply_row, four_columns
                .purgem \name
                .endr
            .endm
        "
    };
}

/// The assembler macros that are I8MM's own.
macro_rules! i8mm {
    () => {
        r"
            .macro each_row do, more:vararg
                \do 0, none, 16, 17, 24, 25, none, none, 8, 9, none, none, \more
                .if {rows} > 1
                \do 64, none, 18, 19, 26, 27, none, none, 10, 11, none, none, \more
                .endif
                .if {rows} > 2
                \do 128, none, 20, 21, 28, 29, none, none, 12, 13, none, none, \more
                \do 192, none, 22, 23, 30, 31, none, none, 14, 15, none, none, \more
                .endif
            .endm

            // Does something for each pair of rows: the places of their steps; registers for their first and their second eight
            // columns; for integers of rows 0 and 1 of both quads of weights, of the first and of the second group; and for those
            // of rows 2 and 3. A row without another is its own.
            .macro each_pair do, more:vararg
                .if {rows} == 1
                \do 0, 0, 4, 5, 24, 25, 8, 9, 26, 27, 10, 11, \more
                .else
                \do 0, 64, 4, 5, 24, 25, 8, 9, 26, 27, 10, 11, \more
                .endif
                .if {rows} > 2
                \do 128, 192, 6, 7, 28, 29, 12, 13, 30, 31, 14, 15, \more
                .endif
            .endm
            // Integers of rows 2 and 3, where they are not those of another row of activations.
            .macro start_more
                .if {rows} == 1
                movi v26.4s, #0
                movi v27.4s, #0
                .if {group} == 16
                movi v10.4s, #0
                movi v11.4s, #0
                .endif
                .endif
            .endm

            .macro load_pair place, other, x0, x1, a0, a1, b0, b1, c0, c1, d0, d1, at
                ldr q0, [x4, #\place + \at]
                ldr q1, [x4, #\other + \at]
                zip1 v\x0\().2d, v0.2d, v1.2d
                zip2 v\x1\().2d, v0.2d, v1.2d
            .endm
            .macro multiply a, c, x
                smmla v\a\().4s, v0.16b, v\x\().16b
                smmla v\c\().4s, v1.16b, v\x\().16b
            .endm
            .macro multiply_quad x, quad, a0, a1, c0, c1
                .if \quad == 0
                multiply \a0, \c0, \x
                .else
                multiply \a1, \c1, \x
                .endif
            .endm
            .macro multiply_group x, group, quad, a0, a1, b0, b1, c0, c1, d0, d1
                .if \group == 1
                multiply_quad \x, \quad, \a0, \a1, \c0, \c1
                .else
                multiply_quad \x, \quad, \b0, \b1, \d0, \d1
                .endif
            .endm
            .macro multiply_pair place, other, x0, x1, a0, a1, b0, b1, c0, c1, d0, d1, eight, quad, group
                .if \eight == 0
                multiply_group \x0, \group, \quad, \a0, \a1, \b0, \b1, \c0, \c1, \d0, \d1
                .else
                multiply_group \x1, \group, \quad, \a0, \a1, \b0, \b1, \c0, \c1, \d0, \d1
                .endif
            .endm
            // Eight columns of a quad, from two fours.
            .macro eight_columns codes, eight, quad, group
                ldr q2, [x1, #\codes + 16*\quad]
                ldr q3, [x1, #\codes + 64 + 16*\quad]
                zip1 v0.4s, v2.4s, v3.4s
                zip2 v1.4s, v2.4s, v3.4s
                each_pair multiply_pair, \eight, \quad, \group
            .endm
            .macro half_step at, codes, group
                each_pair load_pair, \at
                eight_columns \codes, 0, 0, \group
                eight_columns \codes, 0, 1, \group
                eight_columns \codes+128, 1, 0, \group
                eight_columns \codes+128, 1, 1, \group
            .endm

            // Integers of pairs become those of rows, in f32.
            .macro rows_of_pair a, c
                .if {rows} == 1
                uzp1 v\a\().4s, v\a\().4s, v\c\().4s
                scvtf v\a\().4s, v\a\().4s
                .else
                uzp1 v0.4s, v\a\().4s, v\c\().4s
                uzp2 v\c\().4s, v\a\().4s, v\c\().4s
                scvtf v\a\().4s, v0.4s
                scvtf v\c\().4s, v\c\().4s
                .endif
            .endm
            .macro end_first place, other, x0, x1, a0, a1, b0, b1, c0, c1, d0, d1, more
                rows_of_pair \a0, \c0
                rows_of_pair \a1, \c1
            .endm
            .macro end_second place, other, x0, x1, a0, a1, b0, b1, c0, c1, d0, d1, more
                rows_of_pair \b0, \d0
                rows_of_pair \b1, \d1
            .endm
            .macro end_products
                each_pair end_first
                .if {group} == 16
                each_pair end_second
                .endif
            .endm
            .macro integers a0, a1, a2, a3
            .endm

            .macro purge_own
                .irp name, each_pair, load_pair, multiply, multiply_quad, multiply_group, multiply_pair, eight_columns
                .purgem \name
                .endr
                .irp name, rows_of_pair, end_first, end_second
                .purgem \name
                .endr
            .endm
        "
    };
}

/// The assembler macros of CPUs without either.
macro_rules! smull {
    () => {
        r"
            .macro each_row do, more:vararg
                \do 0, none, 16, 17, 24, 25, 26, 27, 8, 9, 10, 11, \more
                .if {rows} > 1
                \do 64, none, 18, 19, 28, 29, 30, 31, 12, 13, 14, 15, \more
                .endif
            .endm

            .macro multiply a0, a1, a2, a3
                smull v4.8h, v0.8b, v6.8b
                smull2 v5.8h, v0.16b, v6.16b
                smlal v4.8h, v2.8b, v7.8b
                smlal2 v5.8h, v2.16b, v7.16b
                sadalp v\a0\().4s, v4.8h
                sadalp v\a1\().4s, v5.8h
                smull v4.8h, v1.8b, v6.8b
                smull2 v5.8h, v1.16b, v6.16b
                smlal v4.8h, v3.8b, v7.8b
                smlal2 v5.8h, v3.16b, v7.16b
                sadalp v\a2\().4s, v4.8h
                sadalp v\a3\().4s, v5.8h
            .endm
            .macro multiply_row place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, at, four, next, group
                ldr q6, [x4, #\place + \at]
                dup v7.4s, v6.s[\next]
                dup v6.4s, v6.s[\four]
                .if \group == 1
                multiply \a0, \a1, \a2, \a3
                .else
                multiply \b0, \b1, \b2, \b3
                .endif
            .endm
            .macro eight_columns at, codes, four, next, group
                ldp q0, q1, [x1, #\codes]
                ldp q2, q3, [x1, #\codes + 64]
                each_row multiply_row, \at, \four, \next, \group
            .endm
            .macro half_step at, codes, group
                eight_columns \at, \codes, 0, 1, \group
                eight_columns \at, \codes+128, 2, 3, \group
            .endm
            .macro integers a0, a1, a2, a3
                addp v\a0\().4s, v\a0\().4s, v\a1\().4s
                addp v\a1\().4s, v\a2\().4s, v\a3\().4s
                scvtf v\a0\().4s, v\a0\().4s
                scvtf v\a1\().4s, v\a1\().4s
            .endm
            .macro start_more
            .endm
            .macro end_products
            .endm

            .macro purge_own
                .irp name, multiply, multiply_row, eight_columns
                .purgem \name
                .endr
            .endm
        "
    };
}

/// One kernel: how it multiplies, rows of activations, columns of a group, whether there are offsets.
macro_rules! kernel {
    ($way:ident $tier:literal [$($extension:tt)?] $kind:literal $rows:literal $group:literal $offsets:literal) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $rows, "x16__", $tier),
            $(concat!(".arch_extension ", $extension),)?
            $way!(),
            r"
            .macro clear v
                .ifnc \v, none
                movi v\v\().4s, #0
                .endif
            .endm
            .macro clear_results place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, more
                clear \y0
                clear \y1
            .endm
            .macro clear_integers place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, more
                .irp v, \a0, \a1, \a2, \a3
                clear \v
                .endr
                .if {group} == 16
                .irp v, \b0, \b1, \b2, \b3
                clear \v
                .endr
                .endif
            .endm

            // A row's integers in f32, times the scales of both groups.
            .macro scale_row place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, more
                integers \a0, \a1, \a2, \a3
                .if {group} == 16
                integers \b0, \b1, \b2, \b3
                .endif
                fmul v\a0\().4s, v\a0\().4s, v0.4s
                fmul v\a1\().4s, v\a1\().4s, v1.4s
                .if {group} == 16
                fmla v\a0\().4s, v\b0\().4s, v2.4s
                fmla v\a1\().4s, v\b1\().4s, v3.4s
                .endif
            .endm

            // To results: products, times the activations' scale; offsets of a group, times the sum of activations.
            .macro add_products place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, more
                ldr q4, [x4, #\place + 32]
                fmla v\y0\().4s, v\a0\().4s, v4.s[3]
                fmla v\y1\().4s, v\a1\().4s, v4.s[3]
            .endm
            .macro add_offsets place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, more
                ldr q4, [x4, #\place + 48]
                .if {group} == 32
                fmla v\y0\().4s, v0.4s, v4.s[2]
                fmla v\y1\().4s, v1.4s, v4.s[2]
                .else
                fmla v\y0\().4s, v0.4s, v4.s[0]
                fmla v\y1\().4s, v1.4s, v4.s[0]
                fmla v\y0\().4s, v2.4s, v4.s[1]
                fmla v\y1\().4s, v3.4s, v4.s[1]
                .endif
            .endm
            .macro store_results place, x, y0, y1, a0, a1, a2, a3, b0, b1, b2, b3, more
                str q\y0, [x8]
                str q\y1, [x8, #16]
                add x8, x8, #64
            .endm

            // PROLOGUE
            ",
            keep_callers!(),
            r"
            ldr x5, [x0, #{x_step}]
            mov x7, #0

            // HALF A PANEL
        2:
            ldr x1, [x0, #{codes}]
            ldr x2, [x0, #{scales}]
            ldr x3, [x0, #{offsets}]
            ldr x4, [x0, #{x}]
            ldr x6, [x0, #{steps}]
            add x1, x1, x7
            add x2, x2, x7
            add x3, x3, x7
            each_row clear_results

            // A STEP
            .p2align 5
        3:
            each_row clear_integers
            start_more
            half_step 0, 0, 1
            half_step 16, 256, 16/{group}+1
            end_products
            ldp q0, q1, [x2]
            .if {group} == 16
            ldp q2, q3, [x2, #64]
            .endif
            each_row scale_row
            each_row add_products
            .if {with_offsets} && {group} == 32
            ldp q0, q1, [x3], #64
            each_row add_offsets
            .elseif {with_offsets}
            ldp q0, q1, [x3]
            ldp q2, q3, [x3, #64]
            add x3, x3, #128
            each_row add_offsets
            .endif
            add x1, x1, #512
            add x2, x2, #2048/{group}
            add x4, x4, x5
            subs x6, x6, #1
            b.ne 3b

            // STORE
            ldr x8, [x0, #{y}]
            add x8, x8, x7
            each_row store_results
            add x7, x7, #32
            cmp x7, #64
            b.ne 2b
            ",
            restore_callers!(),
            r"
            ret

            purge_own
            .irp name, purge_own, each_row, start_more, half_step, end_products, integers
            .purgem \name
            .endr
            .irp name, clear, clear_results, clear_integers, scale_row, add_products, add_offsets, store_results
            .purgem \name
            .endr
            ",
            $(concat!(".arch_extension no", $extension),)?;
            rows = const $rows,
            group = const $group,
            with_offsets = const $offsets,
            x_step = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x_step),
        }
    };
}

/// The kernels of each kind of panel, for a number of rows of activations.
macro_rules! heights {
    ($way:ident $tier:literal $extension:tt $($rows:literal)*) => {$(
        kernel! { $way $tier $extension "g32" $rows 32 0 }
        kernel! { $way $tier $extension "g16" $rows 16 0 }
        kernel! { $way $tier $extension "g32m" $rows 32 1 }
        kernel! { $way $tier $extension "g16m" $rows 16 1 }
    )*};
}
heights! { dotprod "neon_dotprod" ["dotprod"] 1 2 3 4 }
heights! { i8mm "neon_i8mm" ["i8mm"] 1 2 4 }
heights! { smull "neon_smull" [] 1 2 }
