//! Packed quantised weights times activations of 8 bits: the text that all tiers of aarch64 share. Tiers differ in the
//! instructions that multiply numbers of 8 bits; these are in the files of the tiers.
//!
//! A register has four columns of four rows of weights. A panel is done in *passes*, unit by unit: of two such quads of
//! rows, or of one where the sums of more rows of activations need the registers. Indices come out of the planes by
//! shifts, masks and insertions, as few as possible (see [`qgemv_codes`](super::qgemv_codes)). Codes are signed; indices
//! that are numbers with a bias count as they are, and the bias times the negative sum of the activations is added to
//! integers. See [`packed`](crate::quant::packed) for the layout, [`panel`](crate::ops::qgemv_packed::panel) for the order
//! of what is done in f32.
//!
//! | register | |
//! |---|---|
//! | `x0` | `PanelArgs` |
//! | `x1` | the pass's first row, times 16; addresses |
//! | `x2` | quads of rows that are left in all units, times 16 |
//! | `x3`, `x4`, `x5` | steps that are left; scales; planes, between passes the unit |
//! | `x6`, `x7`, `x8`, `x17` | for each row of activations the step, behind its integers |
//! | `x9`..`x16` | the caller's `d8`..`d15` |
//! | `v0`..`v7` | for each quad (even, odd) vector, codes, high plane, another; then scales and the factors of sums |
//! | `v8`..`v11` | activations; then their sums and scale |
//! | `v12`, `v13` | masks |
//! | `v14`, `v15` | where the quads' bytes go, in the highest byte of each lane |
//! | `v16`..`v19` | a unit's sums of products, or the results |
//! | `v20`..`v23` | a unit's sums of offsets; or the table of values in `v20`, and where bytes of rows go in `v21` and `v22` |
//! | `v24`..`v31` | integers of the halves of a step |
//!
//! Where a step's register is not named here it is free, and tiers use it.
//!
//! A quad has four registers for its vectors: the even quad `v0`, `v2`, `v4`, `v6`, the odd one the numbers behind these. Assembler
//! macros that name both leave out the second one where a pass has one quad.
//!
//! A tier defines these assembler macros:
//!
//! - `each_row`: does something for each row of activations, whose arguments are the address of its step, two registers for activations,
//!   and two that are the tier's;
//! - `each_sum`: for each row of activations and each quad, whose arguments are the row's; registers for
//!   sums of products and of offsets; where its results are; its quad; registers for its scales and offsets; and two registers
//!   each for integers of the first and of the second half;
//! - `constants`, before all steps; `load_activations`; `start`, what integers start with; `step_products`; `integers`, which makes
//!   f32 of a group's; and `purge_own`.

use crate::asm::packings::bias;
use crate::quant::packed::{Packing, Values};

/// The bias of the codes that are multiplied. Values of tables have none, but a single bit is a number with a bias.
pub(super) const fn usual_bias(p: &Packing) -> u32 {
    match p.values {
        Values::Table(_) if p.bits[0] > 1 => 0,
        _ => bias(p),
    }
}

/// The same where what is multiplied is signed: codes of 8 bits become so.
pub(super) const fn signed_bias(p: &Packing) -> u32 {
    match p.values {
        Values::Linear(128) => 0,
        _ => usual_bias(p),
    }
}

/// The binary logarithm of a bias.
pub(super) const fn log2(bias: u32) -> u32 {
    (bias | 1).ilog2()
}

/// One kernel: the macro with the text of its tier; how many rows of activations it takes, how many quads a pass does; and what
/// is added to codes.
macro_rules! packed_kernel {
    (
        $field:ident $format:ident $rows:literal quads $quads:expr, $own_macros:ident $name:literal [$($extension:literal)?],
        bias $bias:expr; $($operand:tt)*
    ) => {
        panel_kernel! {
            concat!("qgemv_packed_f32_q8_", stringify!($field), "_16x", $rows, "__", $name),
            $format,
            $rows,
            $(concat!(".arch_extension ", $extension),)?
            $own_macros!(),
            r"
            // SCALES: numbers of the rows of a pass, which four lines read and convert.
            .macro load_halves to, address:vararg
                .if {quads} == 1
                ldr d\to, \address
                .else
                ldr q\to, \address
                .endif
            .endm
            .macro load_bytes to, address:vararg
                .if {quads} == 1
                ldr s\to, \address
                .else
                ldr d\to, \address
                .endif
            .endm
            .macro halves_to_f32 even, odd, from
                fcvtl v\even\().4s, v\from\().4h
                .if {quads} > 1
                fcvtl2 v\odd\().4s, v\from\().8h
                .endif
            .endm
            // The highest byte of a lane is 2^24 times what it is alone.
            .macro factors_to_f32 even, odd, from
                tbl v\even\().16b, {{v\from\().16b}}, v14.16b
                .if {quads} > 1
                tbl v\odd\().16b, {{v\from\().16b}}, v15.16b
                .endif
                scvtf v\even\().4s, v\even\().4s, #24
                .if {quads} > 1
                scvtf v\odd\().4s, v\odd\().4s, #24
                .endif
            .endm

            // A group's scales come to v0 and v1 (of four quads to v0 to v3), its offsets to v2 and v3.
            .macro group_scales
                .if {quads} == 4
                ldp q4, q5, [x4], #32
                fcvtl v0.4s, v4.4h
                fcvtl2 v1.4s, v4.8h
                fcvtl v2.4s, v5.4h
                fcvtl2 v3.4s, v5.8h
                .elseif {scales} == {halves} && {offsets}
                load_halves 6, [x4, #32]
                load_halves 4, [x4], #64
                halves_to_f32 0, 1, 4
                halves_to_f32 2, 3, 6
                .elseif {scales} == {halves}
                load_halves 4, [x4], #32
                halves_to_f32 0, 1, 4
                .elseif {scales} == {factors} && {offsets}
                load_bytes 6, [x4, #16]
                load_bytes 4, [x4], #32
                factors_to_f32 0, 1, 4
                factors_to_f32 2, 3, 6
                .elseif {scales} == {factors}
                load_bytes 4, [x4], #16
                factors_to_f32 0, 1, 4
                .elseif {scales} == {e8m0}
                load_bytes 4, [x4], #16
                ushll v4.8h, v4.8b, #7
                shll v0.4s, v4.4h, #16
                .if {quads} > 1
                shll2 v1.4s, v4.8h, #16
                .endif
                .elseif {scales} == {ue4m3}
                load_bytes 4, [x4], #16
                ushll v4.8h, v4.8b, #7
                halves_to_f32 0, 1, 4
                .endif
            .endm

            // A GROUP: its integers in f32 are multiplied by the activations' scale and added to the sums, times the group's; and
            // its offset, times the sum of the activations.
            .macro scale_integers x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, half
                .if \half == 0
                fmul v\a\().4s, v\a\().4s, v\x0\().s[3]
                .else
                fmul v\b\().4s, v\b\().4s, v\x0\().s[3]
                .endif
            .endm
            .macro add_products x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, half
                .if {scales} == {whole}
                fadd v\u\().4s, v\u\().4s, v\a\().4s
                .elseif \half == 0
                fmla v\u\().4s, v\a\().4s, v\s\().4s
                .else
                fmla v\u\().4s, v\b\().4s, v\s\().4s
                .endif
            .endm
            .macro add_offsets x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, lane
                .if {scales} == {factors}
                fmla v\o\().4s, v\m\().4s, v\x1\().s[\lane]
                .else
                fmla v\u\().4s, v\m\().4s, v\x1\().s[\lane]
                .endif
            .endm
            .macro finish_group half, lane
                group_scales
                .if \half == 0
                .if {offsets}
                each_row load_sums
                .endif
                each_row load_biases
                .endif
                each_sum integers, \half, \lane
                each_sum scale_integers, \half
                each_sum add_products, \half
                .if {offsets}
                each_sum add_offsets, \lane
                .endif
            .endm

            // The sums of a row's activations, of the step and of its halves; these negative, and the scale.
            .macro load_sums x, x0, x1, d0, d1, more
                ldr q\x1, [\x, #16]
            .endm
            .macro load_biases x, x0, x1, d0, d1, more
                ldr q\x0, [\x], #64
            .endm

            // A PASS. Results are in memory meanwhile, where groups have factors.
            .macro clear_sums x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, more
                movi v\u\().2d, #0
                .if {offsets}
                movi v\o\().2d, #0
                .endif
            .endm
            .macro load_results x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, more
                ldr q\u, [x4, #\y]
            .endm
            .macro store_results x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, more
                str q\u, [x4, #\y]
            .endm
            .macro add_to_results x, x0, x1, d0, d1, u, o, y, quad, s, m, a, a1, b, b1, more
                ldr q6, [x4, #\y]
                fmla v6.4s, v\u\().4s, v\s\().4s
                .if {offsets}
                fmla v6.4s, v\o\().4s, v\m\().4s
                .endif
                str q6, [x4, #\y]
            .endm
            .macro results_at_x4
                ldr x4, [x0, {y}]
                add x4, x4, x1
            .endm
            .macro begin_pass
                .if {scales} == {factors} || {scales} == {whole}
                each_sum clear_sums
                .else
                results_at_x4
                each_sum load_results
                .endif
                // The first group's scales.
                .if {scales} == {halves}
                add x4, x5, x1, lsr #1
                .else
                add x4, x5, x1, lsr #2
                .endif
                .if {scales} == {factors} && {offsets}
                add x4, x4, #64
                .elseif {scales} == {factors}
                add x4, x4, #32
                .endif
            .endm
            // The unit is at x5, the row in x1.
            .macro end_pass
                results_at_x4
                .if {scales} == {factors}
                add x1, x5, x1, lsr #1
                load_halves 4, [x1]
                halves_to_f32 0, 1, 4
                .if {offsets}
                load_halves 4, [x1, #32]
                halves_to_f32 2, 3, 4
                .endif
                each_sum add_to_results
                .elseif {scales} == {whole}
                add x1, x5, x1
                ldr q0, [x1], #16
                .if {quads} > 1
                ldr q1, [x1], #16
                .endif
                each_sum add_to_results
                .else
                each_sum store_results
                .endif
            .endm

            // MASKS of indices, and of their high bits, or what makes codes of 8 bits signed. Two copies of a table of eight. Where
            // bytes go: of rows, to v21 and v22; of factors, to the highest byte of each lane.
            .macro count_to v
                mov v\v\().s[0], w1
                add w1, w1, w3
                mov v\v\().s[1], w1
                add w1, w1, w3
                mov v\v\().s[2], w1
                add w1, w1, w3
                mov v\v\().s[3], w1
                add w1, w1, w3
            .endm
            .macro masks
                .if {low_bits} == 8
                movi v12.16b, #0x80
                .elseif {low_bits} == 4 && {high_bits} == 0
                movi v12.16b, #0x0f
                .elseif {low_bits} == 4 && {high_bits} == 1
                movi v12.16b, #0x1f
                movi v13.16b, #0x10
                .elseif {low_bits} == 4
                movi v12.16b, #0x3f
                movi v13.16b, #0x30
                .elseif {low_bits} == 1
                movi v12.16b, #0x02
                .elseif {high_bits} == 0
                movi v12.16b, #0x03
                .elseif {table_of_values}
                movi v12.16b, #0x0f
                movi v13.16b, #0x44
                mov v20.d[1], v20.d[0]
                .else
                movi v12.16b, #0x07
                movi v13.16b, #0x44
                .endif
                .if {by_row}
                mov w1, #0
                mov w3, #0x1010101
                count_to 21
                count_to 22
                .endif
                .if {scales} == {factors}
                mov w1, #0xffffff
                mov w3, #0x1000000
                count_to 14
                count_to 15
                .endif
            .endm

            // PROLOGUE
            .macro begin_row x, x0, x1, d0, d1, more
                add \x, x1, #32
                add x1, x1, x3
            .endm
            .macro back x, x0, x1, d0, d1, more
                sub \x, \x, x3
            .endm
            ",
            keep_callers!(),
            r"
            ldur q20, [x0, {table}]
            masks
            constants
            ldr x5, [x0, {w}]
            ldr x2, [x0, {units}]
            ldr x1, [x0, {x}]
            ldr x3, [x0, {stride}]
            each_row begin_row
            lsl x2, x2, #6

            // A UNIT: first prefetches the lines of its head. Steps read these alternately with lines of codes, and hardware
            // prefetchers follow consecutive lines only.
            .p2align 4
        1:
            .irp at, 0, 64, 128, 192, 256, 320, 384, 448, 512
            .if \at < {head}
            prfm pldl1keep, [x5, #\at]
            .endif
            .endr

            // A PASS
        2:
            neg x1, x2
            and x1, x1, #48
            begin_pass
            add x5, x5, x1
            cmp x2, #64
            b.ls 6f
            add x5, x5, #{head}
            mov w3, #8

            // A STEP
            .p2align 5
        3:
            load_activations
            start
            step_products
            .if {group} == 32
            finish_group 0, 2
            .else
            finish_group 0, 0
            finish_group 1, 1
            .endif
            add x5, x5, #{step}
            .if {by_row}
            add x4, x4, #16
            .endif
            subs w3, w3, #1
            b.ne 3b
            // Back to the unit.
            cmp x2, #64
            b.ls 7f
            sub x5, x5, #8*{step}
            sub x5, x5, #{head}
        8:
            sub x5, x5, x1
            end_pass
            sub x2, x2, #16*{quads}
            ands x1, x2, #63
            b.eq 4f
            // Back to the unit's first activations.
            ldr x3, [x0, {last_steps}]
            lsl x3, x3, #6
            mov w4, #512
            cmp x2, #64
            csel x3, x3, x4, lo
            each_row back
            b 2b
        4:
            cbz x2, 5f
            add x5, x5, #8*{step}
            add x5, x5, #{head}
            b 1b
            // The last unit may have fewer steps, and a shorter head.
        6:
            ldr x3, [x0, {last_head}]
            add x5, x5, x3
            ldr x3, [x0, {last_steps}]
            b 3b
        7:
            ldr x3, [x0, {last_head}]
            ldr x4, [x0, {last_steps}]
            sub x5, x5, x3
            mov w3, #{step}
            msub x5, x3, x4, x5
            b 8b
        5:
            ",
            restore_callers!(),
            r"
            ret

            purge_own
            .irp name, purge_own, each_row, each_sum, constants, load_activations, start, step_products, integers, load_halves
            .purgem \name
            .endr
            .irp name, load_bytes, halves_to_f32, factors_to_f32, group_scales, scale_integers, add_products, add_offsets
            .purgem \name
            .endr
            .irp name, finish_group, load_sums, load_biases, clear_sums, load_results, store_results, add_to_results
            .purgem \name
            .endr
            .irp name, results_at_x4, begin_pass, end_pass, count_to, masks, begin_row, back
            .purgem \name
            .endr
            ",
            $(concat!(".arch_extension no", $extension),)?;
            quads = const $quads,
            bias = const $bias,
            bias_bits = const crate::asm::aarch64::qgemv::log2($bias),
            $($operand)*
        }
    };
}
