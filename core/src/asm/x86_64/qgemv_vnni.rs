//! Packed quantised weights times activations of 8 bits, with AVX512-VNNI: for every format, and one to four
//! rows of activations.
//!
//! A register has four columns of 16 rows of weights, one unsigned byte each: the code plus a bias. `vpdpbusd` multiplies them
//! with four activations, which all lanes share, and adds the products up. To compensate the bias, sums start with minus the
//! bias times the sum of the activations. [`packed`](crate::quant::packed) describes the layout, and
//! [`panel`](crate::ops::qgemv_packed::panel) the order of the operations in f32.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `PanelArgs` |
//! | `rax`, `rcx` | the unit, units behind it |
//! | `r10`, `r11` | the step's planes, its scales |
//! | `rsi`, `rdx`, `r8` | the step's activations; bytes to the next row of them, and three times as many |
//! | `r9` | steps that are left |
//! | `zmm0`..`zmm3` | results |
//! | `zmm4`..`zmm7`, `zmm8`..`zmm11` | a unit's sums, where its groups have factors: of products, of offsets |
//! | `zmm12`..`zmm15` | a group's integers |
//! | `zmm16`..`zmm23` | the step's columns, by fours |
//! | `zmm24`..`zmm26` | the high plane; if it is by row, ones in `zmm25`, and what it adds in `zmm26`..`zmm29` |
//! | `zmm27` | the table of values |
//! | `zmm28`, `zmm29` | scales, offsets |
//! | `zmm30`, `zmm31` | masks of the low and the high plane |
//!
//! Instructions for a step (32 columns of 16 rows) and one row of activations, Q4_K: 16 to unpack, 4 for scales, 9
//! for the products, 4 in f32, 4 for the loop: 37 for 296 bytes of weights.

use crate::asm::packings::bias;

/// The kernel of a format for a number of rows of activations.
macro_rules! kernel {
    ($field:ident $format:ident $rows:literal) => {
        packed_kernel! {
            concat!("qgemv_packed_f32_q8_", stringify!($field), "_16x", $rows, "__avx512_vnni"), $format, $rows,
            bias,
            r"
            // Does something for each row of activations: its results, its sums of products and of offsets, its
            // integers, the address of its step.
            .macro each_row do
                \do 0, 4, 8, 12, rsi
                .if {rows} > 1
                \do 1, 5, 9, 13, rsi+rdx
                .endif
                .if {rows} > 2
                \do 2, 6, 10, 14, rsi+2*rdx
                .endif
                .if {rows} > 3
                \do 3, 7, 11, 15, rsi+r8
                .endif
            .endm

            // LOW PLANE: each vector of 64 bytes becomes several; v, v2 .. get the bits from 0, 2 ..
            .macro plane_bits v, from, by
                vpsrld zmm\v, zmm\from, \by
                vpandd zmm\v, zmm\v, zmm30
            .endm
            .macro plane_8 v, at
                vmovdqu8 zmm\v, [r10 + \at]
            .endm
            .macro plane_4 at, v, v4
                plane_8 \v, \at
                plane_bits \v4, \v, 4
                vpandd zmm\v, zmm\v, zmm30
            .endm
            .macro plane_2 at, v, v2, v4, v6
                plane_8 \v, \at
                plane_bits \v2, \v, 2
                plane_bits \v4, \v, 4
                plane_bits \v6, \v, 6
                vpandd zmm\v, zmm\v, zmm30
            .endm
            .macro plane_1 at, v, v1, v2, v3, v4, v5, v6, v7
                plane_8 \v, \at
                plane_bits \v1, \v, 1
                plane_bits \v2, \v, 2
                plane_bits \v3, \v, 3
                plane_bits \v4, \v, 4
                plane_bits \v5, \v, 5
                plane_bits \v6, \v, 6
                plane_bits \v7, \v, 7
                vpandd zmm\v, zmm\v, zmm30
            .endm
            .macro low_plane
                .if {low_bits} == 8
                plane_8 16, 0
                plane_8 17, 64
                plane_8 18, 128
                plane_8 19, 192
                plane_8 20, 256
                plane_8 21, 320
                plane_8 22, 384
                plane_8 23, 448
                .elseif {low_bits} == 4
                plane_4 0, 16, 20
                plane_4 64, 17, 21
                plane_4 128, 18, 22
                plane_4 192, 19, 23
                .elseif {low_bits} == 2
                plane_2 0, 16, 18, 20, 22
                plane_2 64, 17, 19, 21, 23
                .else
                plane_1 0, 16, 17, 18, 19, 20, 21, 22, 23
                .endif
            .endm

            // HIGH PLANE: its bits are shifted to where they belong, and join the low ones.
            .macro high_bits v, from, shift, by
                \shift zmm26, zmm\from, \by
                vpternlogd zmm\v, zmm26, zmm31, 0xf8 // v | zmm26 & mask
            .endm
            .macro high_plane
                .if {low_bits} == 4 && {high_bits} == 1
                vmovdqu8 zmm24, [r10 + 256]
                high_bits 16, 24, vpslld, 4
                high_bits 17, 24, vpslld, 3
                high_bits 18, 24, vpslld, 2
                high_bits 19, 24, vpslld, 1
                high_bits 20, 24, vpslld, 0
                high_bits 21, 24, vpsrld, 1
                high_bits 22, 24, vpsrld, 2
                high_bits 23, 24, vpsrld, 3
                .elseif {low_bits} == 4 && {high_bits} == 2
                vmovdqu8 zmm24, [r10 + 256]
                vmovdqu8 zmm25, [r10 + 320]
                high_bits 16, 24, vpslld, 4
                high_bits 17, 25, vpslld, 4
                high_bits 18, 24, vpslld, 2
                high_bits 19, 25, vpslld, 2
                high_bits 20, 24, vpslld, 0
                high_bits 21, 25, vpslld, 0
                high_bits 22, 24, vpsrld, 2
                high_bits 23, 25, vpsrld, 2
                .elseif {high_bits} == 1
                vmovdqu8 zmm24, [r10 + 128]
                high_bits 16, 24, vpslld, 2
                high_bits 17, 24, vpslld, 1
                high_bits 18, 24, vpslld, 0
                high_bits 19, 24, vpsrld, 1
                high_bits 20, 24, vpsrld, 2
                high_bits 21, 24, vpsrld, 3
                high_bits 22, 24, vpsrld, 4
                high_bits 23, 24, vpsrld, 5
                .endif
            .endm

            // BOTH PLANES, the high one by row: eight times the low bits, and twice the high one, which is a byte of
            // each row, becomes those of four columns, and serves eight.
            .macro row_bits v, shift, by
                \shift zmm\v, zmm24, \by
                vpandd zmm\v, zmm\v, zmm31
            .endm
            .macro row_code v, from, shift, by, high
                \shift zmm\v, zmm\from, \by
                vpternlogd zmm\v, zmm30, zmm\high, 0xea // v & zmm30 | high
            .endm
            .macro planes_by_row
                plane_8 16, 0
                plane_8 17, 64
                vpmovzxbd zmm24, [r11 + 32]
                vpmulld zmm24, zmm24, zmm25
                row_bits 26, vpslld, 1
                row_bits 27, vpsrld, 1
                row_bits 28, vpsrld, 3
                row_bits 29, vpsrld, 5
                row_code 18, 16, vpslld, 1, 27
                row_code 20, 16, vpsrld, 1, 28
                row_code 22, 16, vpsrld, 3, 29
                row_code 16, 16, vpslld, 3, 26
                row_code 19, 17, vpslld, 1, 27
                row_code 21, 17, vpsrld, 1, 28
                row_code 23, 17, vpsrld, 3, 29
                row_code 17, 17, vpslld, 3, 26
            .endm

            // CODES of a step: zmm16..zmm23, four columns each.
            .macro step_codes
                .if {by_row}
                planes_by_row
                .else
                low_plane
                high_plane
                .if {table_of_values}
                .irp v, 16, 17, 18, 19, 20, 21, 22, 23
                vpshufb zmm\v, zmm27, zmm\v
                .endr
                .endif
                .endif
            .endm
            ",
            group_scales!(),
            r"
            // A GROUP of one row of activations. Its integers start with the negative sum of the activations, at
            // biases, times the bias of codes; the products with its columns are added.
            .macro multiply_four t, x, v, at
                vpdpbusd zmm\t, zmm\v, dword ptr [\x + \at]{{1to16}}
            .endm
            .macro group_products y, u, o, t, x, first=0, second=0, biases, sum
                .if {bias} == 0
                vpxord zmm\t, zmm\t, zmm\t
                .else
                vpbroadcastd zmm\t, dword ptr [\x + \biases]
                .if {bias} == 9
                vpslld zmm24, zmm\t, 3
                vpaddd zmm\t, zmm\t, zmm24
                .elseif {bias} > 1
                vpslld zmm\t, zmm\t, {bias_bits}
                .endif
                .endif
                .if \first
                multiply_four \t, \x, 16, 0
                multiply_four \t, \x, 17, 4
                multiply_four \t, \x, 18, 8
                multiply_four \t, \x, 19, 12
                .endif
                .if \second
                multiply_four \t, \x, 20, 16
                multiply_four \t, \x, 21, 20
                multiply_four \t, \x, 22, 24
                multiply_four \t, \x, 23, 28
                .endif
                // In f32: times the activations' scale, added to the sums times the group's.
                vcvtdq2ps zmm\t, zmm\t
                vmulps zmm\t, zmm\t, dword ptr [\x + 44]{{1to16}}
                .if {scales} == {whole}
                vaddps zmm\u, zmm\u, zmm\t
                .elseif {scales} == {factors}
                vfmadd231ps zmm\u, zmm\t, zmm28
                .else
                vfmadd231ps zmm\y, zmm\t, zmm28
                .endif
                // Its offset times the activations' sum.
                .if {offsets} && {scales} == {factors}
                vfmadd231ps zmm\o, zmm29, dword ptr [\x + \sum]{{1to16}}
                .elseif {offsets}
                vfmadd231ps zmm\y, zmm29, dword ptr [\x + \sum]{{1to16}}
                .endif
            .endm

            .macro whole_step y, u, o, t, x
                group_products \y, \u, \o, \t, \x, first=1, second=1, biases=40, sum=56
            .endm
            .macro first_half y, u, o, t, x
                group_products \y, \u, \o, \t, \x, first=1, biases=32, sum=48
            .endm
            .macro second_half y, u, o, t, x
                group_products \y, \u, \o, \t, \x, second=1, biases=36, sum=52
            .endm

            // BEFORE AND AFTER the steps of a unit.
            .macro clear_results y, u, o, t, x
                vpxord zmm\y, zmm\y, zmm\y
            .endm
            .macro clear_sums y, u, o, t, x
                .if {scales} == {factors} || {scales} == {whole}
                vpxord zmm\u, zmm\u, zmm\u
                .if {offsets}
                vpxord zmm\o, zmm\o, zmm\o
                .endif
                .endif
            .endm
            .macro add_products y, u, o, t, x
                vfmadd231ps zmm\y, zmm\u, zmm28
            .endm
            .macro add_offsets y, u, o, t, x
                vfmadd231ps zmm\y, zmm\o, zmm29
            .endm
            .macro unit_end
                .if {scales} == {whole}
                vmovups zmm28, [rax]
                each_row add_products
                .elseif {scales} == {factors}
                vcvtph2ps zmm28, [rax]
                each_row add_products
                .if {offsets}
                vcvtph2ps zmm29, [rax + 32]
                each_row add_offsets
                .endif
                .endif
            .endm
            .macro store_results y, u, o, t, x
                vmovups [rax], zmm\y
                add rax, 64
            .endm

            // PROLOGUE
            mov rax, [rdi + {w}]
            mov rcx, [rdi + {units}]
            mov rsi, [rdi + {x}]
            mov rdx, [rdi + {stride}]
            lea r8, [rdx + 2*rdx]
            mov r9d, {low_mask}
            vpbroadcastd zmm30, r9d
            mov r9d, {high_mask}
            vpbroadcastd zmm31, r9d
            mov r9d, {bias} * 0x01010101
            vpbroadcastd zmm27, r9d
            vbroadcasti32x4 zmm26, [rdi + {table}]
            vpaddb zmm27, zmm27, zmm26
            .if {by_row}
            mov r9d, 0x01010101
            vpbroadcastd zmm25, r9d
            .endif
            each_row clear_results

            // A UNIT
            .p2align 5
        2:
            ",
            head_first!(),
            r"
            each_row clear_sums
            .if {scales} != {factors}
            mov r11, rax
            .elseif {offsets}
            lea r11, [rax + 64]
            .else
            lea r11, [rax + 32]
            .endif
            lea r10, [rax + {head}]
            mov r9d, 8
            dec rcx
            jnz 3f
            // The last unit may have fewer steps, and a shorter head.
            mov r9, [rdi + {last_steps}]
            mov r10, [rdi + {last_head}]
            add r10, rax

            // A STEP
            .p2align 5
        3:
            ",
            planes_ahead!("256 * {rows}"),
            r"
            step_codes
            group_scales zmm, ymm, 28, 29
            next_scales
            .if {group} == 32
            each_row whole_step
            .else
            each_row first_half
            group_scales zmm, ymm, 28, 29
            next_scales
            each_row second_half
            .endif
            .if {by_row}
            add r11, 16
            .endif
            add r10, {step}
            add rsi, 64
            dec r9d
            jnz 3b
            unit_end
            mov rax, r10
            test rcx, rcx
            jnz 2b

            // STORE
            mov rax, [rdi + {y}]
            each_row store_results
            vzeroupper
            ret

            .irp name, each_row, plane_bits, plane_8, plane_4, plane_2, plane_1, low_plane, high_bits, high_plane, row_bits
            .purgem \name
            .endr
            .irp name, row_code, planes_by_row, step_codes, group_scales, next_scales, multiply_four, group_products, whole_step, first_half, second_half
            .purgem \name
            .endr
            .irp name, clear_results, clear_sums, add_products, add_offsets, unit_end, store_results
            .purgem \name
            .endr
            ";
            far = const crate::ops::ahead::FAR,
        }
    };
}

/// The kernels of a format.
macro_rules! kernels {
    ($field:ident $format:ident) => {
        kernel! { $field $format 1 }
        kernel! { $field $format 2 }
        kernel! { $field $format 3 }
        kernel! { $field $format 4 }
    };
}
kernels_of_formats! { kernels! }
