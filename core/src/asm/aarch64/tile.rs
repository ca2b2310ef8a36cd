//! The parts of a microkernel that all tiles share: the loops around the products, and the writing of `C`.
//!
//! A kernel has a pipelined loop over rounds of four steps for whole tiles, which loads the operands of a step
//! while it multiplies those of the step before, and reads nothing behind the panels; and a plain loop over single
//! steps for every number of registers that `A` and `B` fill with rows and columns that exist. The steps that are
//! left after the rounds, and tiles at the edges, take the plain ones.
//!
//! | register | |
//! |---|---|
//! | `x0` | `MicroArgs` |
//! | `x1`, `x2` | the panels |
//! | `x3`, `x5` | steps, rounds of four of them |
//! | `x4` | the address to prefetch from |
//! | `x6` | rows |
//! | `x7`, `x8` | C, bytes from row to row of it |
//! | `x9`..`x16` | the caller's `d8`..`d15` |
//! | `x17` | columns; then the operands of the next round |
//! | `v8`..`v31` | sums |
//! | `v0`..`v7` | operands; then alpha, beta, C |

/// The types that the sums of a tile can have, as numbers for `.if`.
pub(super) const F32: u8 = 0;
pub(super) const I32: u8 = 1;

/// A kernel: what its sums are, the vectors of a row of `C`, the bytes of a step of `A` and of `B`. The text defines the named
/// assembler macros, among them
///
/// - `loops`: starts with the panels, steps and rounds in their registers, the rows and columns in `x6` and `x17`, and sums that
///   are zero, and ends at 400;
/// - `each_row`: does something with the sums of each row, one or three registers;
/// - `arrange`: brings the sums of rows to the registers that `each_row` names, if they are not there by then.
macro_rules! tile_kernel {
    (
        $name:literal, extension: [$($extension:literal)?], sums: $sums:ident, vectors: $vectors:literal,
        bytes: ($bytes_a:literal $bytes_b:literal), macros: [$($macro:ident)*], $($text:expr),*
    ) => {
        gemm_kernel! {
            $name,
            $(concat!(".arch_extension ", $extension),)?
            $($text,)*
            r"
            // The loop over rounds, each of which `round` multiplies; then the steps that are left go to the loop `plain`.
            .macro rounds plain
                cbz x5, \plain\()f
                first_operands
                .p2align 5
            3:
                subs x5, x5, #1
                round
                prfm pldl2keep, [x4]
                add x4, x4, #64
                b.ne 3b
                // The last round has not moved on.
                add x1, x1, #4*{bytes_a}
                add x2, x2, #4*{bytes_b}
                ands x3, x3, #3
                b.ne \plain\()f
                b 400f
            .endm

            // Before a round's last step loads from there: the panels move on to the next round, unless this is the last one,
            // behind which there may be nothing.
            .macro advance_a
                add x17, x1, #4*{bytes_a}
                csel x1, x17, x1, ne
            .endm
            .macro advance_b
                add x17, x2, #4*{bytes_b}
                csel x2, x17, x2, ne
            .endm

            // Prefetches lines that later rounds read.
            .macro prefetch_lines lines:vararg
                .irp line, \lines
                .ifnb \line
                prfm pldl1keep, [\line]
                .endif
                .endr
            .endm

            // Executes an instruction if the tile has more than this many rows, or columns.
            .macro where_more there, than, do:vararg
                .if \there > \than
                \do
                .endif
            .endm

            // The loop over single steps.
            .macro plain label, step, which:vararg
            \label:
                \step \which
                add x1, x1, #{bytes_a}
                add x2, x2, #{bytes_b}
                subs x3, x3, #1
                b.ne \label\()b
                b 400f
            .endm

            // A ROW OF C: alpha A B, or, if `add` is 1, alpha A B + beta C. For integers alpha is 1, and beta 0 or 1.
            .macro each_vector do, sum0, sum1, sum2
                \do \sum0, 5, 0
                .if {vectors} == 3
                \do \sum1, 6, 16
                \do \sum2, 7, 32
                .endif
            .endm
            .macro load_c sum, c, at
                ldr q\c, [x7, #\at]
            .endm
            .macro scale sum, c, at
                fmul v\sum\().4s, v\sum\().4s, v0.s[0]
            .endm
            .macro add_c sum, c, at
                .if {sums} == {f32}
                fmla v\sum\().4s, v\c\().4s, v1.s[0]
                .else
                add v\sum\().4s, v\sum\().4s, v\c\().4s
                .endif
            .endm
            .macro store sum, c, at
                str q\sum, [x7, #\at]
            .endm
            .macro store_row add, sum0, sum1, sum2
                .if \add
                each_vector load_c, \sum0, \sum1, \sum2
                .endif
                .if {sums} == {f32}
                each_vector scale, \sum0, \sum1, \sum2
                .endif
                .if \add
                each_vector add_c, \sum0, \sum1, \sum2
                .endif
                each_vector store, \sum0, \sum1, \sum2
                subs x6, x6, #1
                b.eq 500f
                add x7, x7, x8
            .endm

            // PROLOGUE
            ldr x7, [x0, {c}]
            ldr x8, [x0, {ldc}]
            ldr x6, [x0, {rows}]
            mov x17, x6
        2:
            prfm pstl1keep, [x7]
            prfm pstl1keep, [x7, #16*{vectors}-4]
            add x7, x7, x8
            subs x17, x17, #1
            b.ne 2b
            ",
            keep_callers!(),
            r"
            ldr x1, [x0, {a}]
            ldr x2, [x0, {b}]
            ldr x3, [x0, {steps}]
            ldr x4, [x0, {next}]
            ldr x17, [x0, {cols}]
            lsr x5, x3, #2
            .irp v, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
            movi v\v\().2d, #0
            .endr

            loops

            // STORE
        400:
            arrange
            ldr x7, [x0, {c}]
            ldr s0, [x0, {alpha}]
            ldr s1, [x0, {beta}]
            fcmp s1, #0.0
            b.ne 401f
            each_row store_row, 0
        401:
            each_row store_row, 1
        500:
            ",
            restore_callers!(),
            r"
            ret

            .irp name, rounds, advance_a, advance_b, prefetch_lines, where_more, plain, each_vector, load_c, scale, add_c, store, store_row
            .purgem \name
            .endr
            ",
            $(concat!(".purgem ", stringify!($macro)),)*
            $(concat!(".arch_extension no", $extension),)?;
            sums = const crate::asm::aarch64::tile::$sums,
            f32 = const crate::asm::aarch64::tile::F32,
            vectors = const $vectors,
            bytes_a = const $bytes_a,
            bytes_b = const $bytes_b,
        }
    };
}

/// Chooses among the loops of an 8x12 tile: 11 to 13 for four rows of one to three vectors, 21 and 22 for eight
/// of one or two. What comes next is for whole tiles. `loops_8x12` has all of them.
macro_rules! choose_8x12 {
    () => {
        r"
            .macro choose_loop
                cmp x6, #4
                b.hi 4f
                cmp x17, #4
                b.ls 11f
                cmp x17, #8
                b.ls 12f
                b 13f
            4:
                cmp x17, #4
                b.ls 21f
                cmp x17, #8
                b.ls 22f
            .endm

            // The loops of the tile, those of single steps in this order.
            .macro loops_8x12 order:vararg
                choose_loop
                rounds 23
                .irp loop, \order
                plain \loop, plain_step, 4*(\loop/10), 4*(\loop%10)
                .endr
            .endm
        "
    };
}
