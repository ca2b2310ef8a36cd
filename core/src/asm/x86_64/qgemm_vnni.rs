//! Two panels of quantised weights times a panel of activations of 8 bits, with AVX512-VNNI. There are kernels for groups of 32
//! columns or 16, with offsets or without, and for several numbers of rows of activations.
//!
//! A register has four columns of 16 rows of weights, one unsigned byte each. `vpdpbusd` multiplies them with four
//! activations, which all lanes share, and adds the products up. Four activations are multiplied with both panels once they are
//! loaded, so that there are fewer loads than products. Products are added to twelve sums alternately, because one
//! addition takes four or five cycles. [`tile`](crate::ops::qgemm::tile::tile) defines the order of the operations in f32.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `QTileArgs` |
//! | `rax`, `rcx`, `rdx` | the step's codes, scales, offsets |
//! | `r10` | bytes to those of the second panel |
//! | `rsi`, `r8` | the step's activations, bytes to the next step |
//! | `r9` | steps that are left |
//! | `zmm0`, `zmm1` | four columns of each panel, then its scales, then its offsets |
//! | `zmm2` | the scale, or another number of a row of activations, in all lanes |
//! | `zmm8`..`zmm19` | integers of up to six rows; of three, if these have two groups |
//! | `zmm20`..`zmm31` | results, by row of activations |
//!
//! A Zen 4 starts one of its multiplications a cycle, a Zen 5 two: 8 `vpdpbusd` and 2 in f32 for a group of 32 and a row, so
//! 80 % of the peak; 3 in f32 for two groups of 16, or for one with an offset: 73 %; 5 with both: 62 %. Measured on Zen 5: 79, 73,
//! 72 and 61 %.

/// One kernel: columns of a group, whether there are offsets, rows of activations.
macro_rules! kernel {
    ($kind:literal $group:literal $offsets:literal $rows:literal) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $rows, "x32__avx512_vnni"),
            r"
            // Does something for each row of activations: its results y and z, one of each panel, its integers a and b, c and
            // d of a second group, the place of its step; and `at`, whatever that is.
            .macro all_rows do, at
                \do 20, 21, 8, 9, none, none, 0, \at
                .if {rows} > 1
                \do 22, 23, 10, 11, none, none, 64, \at
                .endif
                .if {rows} > 2
                \do 24, 25, 12, 13, none, none, 128, \at
                .endif
                .if {rows} > 3
                \do 26, 27, 14, 15, none, none, 192, \at
                .endif
                .if {rows} > 4
                \do 28, 29, 16, 17, none, none, 256, \at
                .endif
                .if {rows} > 5
                \do 30, 31, 18, 19, none, none, 320, \at
                .endif
            .endm
            // Integers of two groups: there are registers for three rows, more are done after them.
            .macro first_rows do, at
                \do 20, 21, 8, 9, 14, 15, 0, \at
                .if {rows} > 1
                \do 22, 23, 10, 11, 16, 17, 64, \at
                .endif
                .if {rows} == 3 || {rows} > 4
                \do 24, 25, 12, 13, 18, 19, 128, \at
                .endif
            .endm
            .macro last_rows do, at
                .if {rows} == 4
                \do 24, 25, 8, 9, 14, 15, 128, \at
                \do 26, 27, 10, 11, 16, 17, 192, \at
                .elseif {rows} > 4
                \do 26, 27, 8, 9, 14, 15, 192, \at
                \do 28, 29, 10, 11, 16, 17, 256, \at
                .if {rows} > 5
                \do 30, 31, 12, 13, 18, 19, 320, \at
                .endif
                .endif
            .endm

            // Loads from both panels.
            .macro load_both load, from, at
                \load zmm0, [\from + \at]
                \load zmm1, [\from + r10 + \at]
            .endm

            // The start values of integers: of the first, of the second group.
            .macro start_first y, z, a, b, c, d, x, at
                vpbroadcastd zmm\a, dword ptr [rsi + \x + \at]
            .endm
            .macro start_first_beside y, z, a, b, c, d, x, at
                vmovdqa64 zmm\b, zmm\a
            .endm
            .macro start_second y, z, a, b, c, d, x, at
                vpbroadcastd zmm\c, dword ptr [rsi + \x + \at]
            .endm
            .macro start_second_beside y, z, a, b, c, d, x, at
                vmovdqa64 zmm\d, zmm\c
            .endm

            // Four columns, times activations at `at`.
            .macro multiply_first y, z, a, b, c, d, x, at
                vpbroadcastd zmm2, dword ptr [rsi + \x + \at]
                vpdpbusd zmm\a, zmm0, zmm2
                vpdpbusd zmm\b, zmm1, zmm2
            .endm
            .macro multiply_second y, z, a, b, c, d, x, at
                vpbroadcastd zmm2, dword ptr [rsi + \x + \at]
                vpdpbusd zmm\c, zmm0, zmm2
                vpdpbusd zmm\d, zmm1, zmm2
            .endm

            // Integers in f32, times scales, interleaved.
            .macro convert_a y, z, a, b, c, d, x, at
                vcvtdq2ps zmm\a, zmm\a
            .endm
            .macro convert_b y, z, a, b, c, d, x, at
                vcvtdq2ps zmm\b, zmm\b
            .endm
            .macro convert_c y, z, a, b, c, d, x, at
                vcvtdq2ps zmm\c, zmm\c
            .endm
            .macro convert_d y, z, a, b, c, d, x, at
                vcvtdq2ps zmm\d, zmm\d
            .endm
            .macro scale_a y, z, a, b, c, d, x, at
                vmulps zmm\a, zmm\a, zmm0
            .endm
            .macro scale_b y, z, a, b, c, d, x, at
                vmulps zmm\b, zmm\b, zmm1
            .endm
            .macro add_c y, z, a, b, c, d, x, at
                vfmadd231ps zmm\a, zmm\c, zmm0
            .endm
            .macro add_d y, z, a, b, c, d, x, at
                vfmadd231ps zmm\b, zmm\d, zmm1
            .endm

            // To results: products, times the activations' scale; offsets, times the sum of activations.
            .macro add_products y, z, a, b, c, d, x, at
                vpbroadcastd zmm2, dword ptr [rsi + \x + \at]
                vfmadd231ps zmm\y, zmm\a, zmm2
                vfmadd231ps zmm\z, zmm\b, zmm2
            .endm
            .macro add_offsets y, z, a, b, c, d, x, at
                vpbroadcastd zmm2, dword ptr [rsi + \x + \at]
                vfmadd231ps zmm\y, zmm0, zmm2
                vfmadd231ps zmm\z, zmm1, zmm2
            .endm

            // A step for some rows.
            .macro four rows, multiply, codes, at
                load_both vmovdqu8, rax, \codes
                \rows \multiply, \at
            .endm
            .macro step rows
                .if {group} == 32
                \rows start_first, 40
                \rows start_first_beside
                four \rows, multiply_first, 0, 0
                four \rows, multiply_first, 64, 4
                four \rows, multiply_first, 128, 8
                four \rows, multiply_first, 192, 12
                four \rows, multiply_first, 256, 16
                four \rows, multiply_first, 320, 20
                four \rows, multiply_first, 384, 24
                four \rows, multiply_first, 448, 28
                .else
                \rows start_first, 32
                \rows start_first_beside
                \rows start_second, 36
                \rows start_second_beside
                four \rows, multiply_first, 0, 0
                four \rows, multiply_second, 256, 16
                four \rows, multiply_first, 64, 4
                four \rows, multiply_second, 320, 20
                four \rows, multiply_first, 128, 8
                four \rows, multiply_second, 384, 24
                four \rows, multiply_first, 192, 12
                four \rows, multiply_second, 448, 28
                .endif
                load_both vmovups, rcx, 0
                \rows convert_a
                \rows convert_b
                \rows scale_a
                \rows scale_b
                .if {group} == 16
                load_both vmovups, rcx, 64
                \rows convert_c
                \rows convert_d
                \rows add_c
                \rows add_d
                .endif
                \rows add_products, 44
                .if {with_offsets}
                load_both vmovups, rdx, 0
                .if {group} == 32
                \rows add_offsets, 56
                .else
                \rows add_offsets, 48
                load_both vmovups, rdx, 64
                \rows add_offsets, 52
                .endif
                .endif
            .endm

            .macro clear_y y, z, a, b, c, d, x, at
                vpxord zmm\y, zmm\y, zmm\y
            .endm
            .macro clear_z y, z, a, b, c, d, x, at
                vpxord zmm\z, zmm\z, zmm\z
            .endm
            .macro store_results y, z, a, b, c, d, x, at
                vmovups [rax], zmm\y
                vmovups [rax + 64], zmm\z
                add rax, 128
            .endm

            // PROLOGUE
            mov rax, [rdi + {codes}]
            mov rcx, [rdi + {scales}]
            mov rdx, [rdi + {offsets}]
            mov r10, [rdi + {beside}]
            mov rsi, [rdi + {x}]
            mov r8, [rdi + {x_step}]
            mov r9, [rdi + {steps}]
            all_rows clear_y
            all_rows clear_z

            // A STEP
            .p2align 6
        2:
            .if {group} == 32
            step all_rows
            .else
            step first_rows
            .if {rows} > 3
            step last_rows
            .endif
            .endif
            add rax, 512
            add rcx, 2048/{group}
            add rdx, 2048/{group}
            add rsi, r8
            dec r9
            jnz 2b

            // STORE
            mov rax, [rdi + {y}]
            all_rows store_results
            vzeroupper
            ret

            .irp name, all_rows, first_rows, last_rows, load_both, start_first, start_first_beside, start_second
            .purgem \name
            .endr
            .irp name, start_second_beside, multiply_first, multiply_second, convert_a, convert_b, convert_c, convert_d
            .purgem \name
            .endr
            .irp name, scale_a, scale_b, add_c, add_d, add_products, add_offsets, four, step, clear_y, clear_z, store_results
            .purgem \name
            .endr
            ";
            rows = const $rows,
            group = const $group,
            with_offsets = const $offsets,
            x_step = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x_step),
            beside = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, beside),
        }
    };
}

/// The kernels of each kind of panel, for a number of rows of activations.
macro_rules! heights {
    ($($rows:literal)*) => {$(
        kernel! { "g32" 32 0 $rows }
        kernel! { "g32m" 32 1 $rows }
        kernel! { "g16" 16 0 $rows }
        kernel! { "g16m" 16 1 $rows }
    )*};
}
heights! { 1 2 3 4 5 6 }
