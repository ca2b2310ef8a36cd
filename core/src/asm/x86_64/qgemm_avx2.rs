//! Panels of quantised weights times panels of activations of 8 bits, with AVX2, and with AVX-VNNI: for groups of 32 columns or
//! 16, with offsets or without, and one to four rows of activations.
//!
//! A register has four columns of 8 rows of weights, signed bytes, so a panel takes two passes. `vpmaddubsw` multiplies
//! their magnitudes with activations that have their signs: pairs of products are at most 2 * 128 * 127, which fits 16 bits, and for
//! narrow codes ([`Packing::narrow`](crate::quant::packed::Packing::narrow)) their sums over a group do. See
//! [`tile`](crate::ops::qgemm::tile::tile) for the order of what is done in f32. With AVX-VNNI weights are unsigned bytes, which
//! `vpdpbusd` multiplies with activations and adds up in fours; sums start with what is too much.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `QTileArgs` |
//! | `rax`, `rcx`, `rdx` | the step's codes, scales, offsets |
//! | `rsi`, `r8` | the step's activations, bytes to the next step |
//! | `r9`, `r10` | steps that are left; which half: bytes from the start of a line |
//! | `ymm0`..`ymm3` | results, by row of activations |
//! | `ymm4`..`ymm7`, `ymm8`..`ymm11` | integers of the first and of the second group |
//! | `ymm12`, `ymm13`, `ymm14` | weights, their magnitudes, activations |
//! | `ymm15` | ones, for AVX2 |
//!
//! Four instructions for 32 products, three with narrow codes: 34 or 27 for a group of 32, half a panel and a row, of which Zen 4
//! starts four a cycle: 8.5 or 6.8 cycles for what takes 5 with `vpdpbusd`. With AVX-VNNI there are two instructions for 32
//! products, one of which is a load.

/// How products are added up: pairs in 32 bits, in 16 bits if codes are narrow, or fours in 32 bits by AVX-VNNI.
const WIDE: u8 = 0;
const NARROW: u8 = 1;
const DOT: u8 = 2;

/// One kernel: sums, columns of a group, whether there are offsets, rows of activations.
macro_rules! kernel {
    ($tier:literal $kind:literal $sums:ident $group:literal $offsets:literal $rows:literal) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $rows, "x16__", $tier),
            r"
            // Does something for each row of activations: its results y, its integers a and those of a second group b, the
            // place of its step; and `at`, whatever that is.
            .macro each_row do, at
                \do 0, 4, 8, 0, \at
                .if {rows} > 1
                \do 1, 5, 9, 64, \at
                .endif
                .if {rows} > 2
                \do 2, 6, 10, 128, \at
                .endif
                .if {rows} > 3
                \do 3, 7, 11, 192, \at
                .endif
            .endm

            // What integers of a group start with: `vpdpbusd` adds to it.
            .macro start_first y, a, b, x, at
                .if {sums} == {dot}
                vpbroadcastd ymm\a, dword ptr [rsi + \x + \at]
                .endif
            .endm
            .macro start_second y, a, b, x, at
                start_first \y, \b, \a, \x, \at
            .endm

            // Four columns, times activations at `at`. Without `vpdpbusd` the first of a group's start the sum.
            .macro multiply sum, x, at, first
                vpbroadcastd ymm14, dword ptr [rsi + \x + \at]
                .if {sums} == {dot}
                {{vex}} vpdpbusd ymm\sum, ymm12, ymm14
                .else
                vpsignb ymm14, ymm14, ymm12
                .if {sums} == {narrow} && \first
                vpmaddubsw ymm\sum, ymm13, ymm14
                .elseif {sums} == {narrow}
                vpmaddubsw ymm14, ymm13, ymm14
                vpaddw ymm\sum, ymm\sum, ymm14
                .elseif \first
                vpmaddubsw ymm14, ymm13, ymm14
                vpmaddwd ymm\sum, ymm14, ymm15
                .else
                vpmaddubsw ymm14, ymm13, ymm14
                vpmaddwd ymm14, ymm14, ymm15
                vpaddd ymm\sum, ymm\sum, ymm14
                .endif
                .endif
            .endm
            .macro multiply_row y, a, b, x, at
                .if {group} == 16 && \at >= 16
                multiply \b, \x, \at, first=(\at==16)
                .else
                multiply \a, \x, \at, first=(\at==0)
                .endif
            .endm
            .macro four codes, at
                vmovdqu ymm12, [rax + \codes]
                .if {sums} != {dot}
                vpabsb ymm13, ymm12
                .endif
                each_row multiply_row, \at
            .endm

            // Integers in f32, times scales.
            .macro convert_first y, a, b, x, at
                .if {sums} == {narrow}
                vpmaddwd ymm\a, ymm\a, ymm15
                .endif
                vcvtdq2ps ymm\a, ymm\a
            .endm
            .macro convert_second y, a, b, x, at
                convert_first \y, \b, \a, \x, \at
            .endm
            .macro scale_first y, a, b, x, at
                vmulps ymm\a, ymm\a, [rcx]
            .endm
            .macro add_second y, a, b, x, at
                vfmadd231ps ymm\a, ymm\b, [rcx + 64]
            .endm

            // To results: products, times the activations' scale; offsets of a group, times the sum of activations.
            .macro add_products y, a, b, x, at
                vbroadcastss ymm14, dword ptr [rsi + \x + \at]
                vfmadd231ps ymm\y, ymm\a, ymm14
            .endm
            .macro add_first_offsets y, a, b, x, at
                vbroadcastss ymm14, dword ptr [rsi + \x + \at]
                vfmadd231ps ymm\y, ymm14, [rdx]
            .endm
            .macro add_second_offsets y, a, b, x, at
                vbroadcastss ymm14, dword ptr [rsi + \x + \at]
                vfmadd231ps ymm\y, ymm14, [rdx + 64]
            .endm

            .macro clear_results y, a, b, x, at
                vpxor ymm\y, ymm\y, ymm\y
            .endm
            .macro store_results y, a, b, x, at
                vmovups [rax + r10], ymm\y
                add rax, 64
            .endm

            // PROLOGUE
            mov r9d, 0x10001
            vmovd xmm15, r9d
            vpbroadcastd ymm15, xmm15
            mov r8, [rdi + {x_step}]
            xor r10d, r10d

            // HALF A PANEL
        2:
            mov rax, [rdi + {codes}]
            mov rcx, [rdi + {scales}]
            mov rdx, [rdi + {offsets}]
            mov rsi, [rdi + {x}]
            mov r9, [rdi + {steps}]
            add rax, r10
            add rcx, r10
            add rdx, r10
            each_row clear_results

            // A STEP
            .p2align 5
        3:
            .if {group} == 32
            each_row start_first, 40
            .else
            each_row start_first, 32
            each_row start_second, 36
            .endif
            four 0, 0
            four 64, 4
            four 128, 8
            four 192, 12
            four 256, 16
            four 320, 20
            four 384, 24
            four 448, 28
            each_row convert_first
            .if {group} == 16
            each_row convert_second
            .endif
            each_row scale_first
            .if {group} == 16
            each_row add_second
            .endif
            each_row add_products, 44
            .if {with_offsets} && {group} == 32
            each_row add_first_offsets, 56
            add rdx, 64
            .elseif {with_offsets}
            each_row add_first_offsets, 48
            each_row add_second_offsets, 52
            add rdx, 128
            .endif
            add rax, 512
            add rcx, 2048/{group}
            add rsi, r8
            dec r9
            jnz 3b

            // STORE
            mov rax, [rdi + {y}]
            each_row store_results
            add r10d, 32
            cmp r10d, 64
            jb 2b
            vzeroupper
            ret

            .irp name, each_row, start_first, start_second, multiply, multiply_row, four, convert_first, convert_second
            .purgem \name
            .endr
            .irp name, scale_first, add_second, add_products, add_first_offsets, add_second_offsets, clear_results
            .purgem \name
            .endr
            .purgem store_results
            ";
            rows = const $rows,
            group = const $group,
            with_offsets = const $offsets,
            sums = const $sums,
            narrow = const NARROW,
            dot = const DOT,
            x_step = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x_step),
        }
    };
}

/// The kernels of each kind for so many rows.
macro_rules! heights {
    ($($rows:literal)*) => {$(
        kernel! { "avx2_maddubs" "g32" WIDE 32 0 $rows }
        kernel! { "avx2_maddubs" "g16" WIDE 16 0 $rows }
        kernel! { "avx2_maddubs" "g32m" WIDE 32 1 $rows }
        kernel! { "avx2_maddubs" "g16m" WIDE 16 1 $rows }
        kernel! { "avx2_maddubs" "n32" NARROW 32 0 $rows }
        kernel! { "avx2_maddubs" "n16" NARROW 16 0 $rows }
        kernel! { "avx2_maddubs" "n32m" NARROW 32 1 $rows }
        kernel! { "avx2_maddubs" "n16m" NARROW 16 1 $rows }
        kernel! { "avx2_vnni" "g32" DOT 32 0 $rows }
        kernel! { "avx2_vnni" "g16" DOT 16 0 $rows }
        kernel! { "avx2_vnni" "g32m" DOT 32 1 $rows }
        kernel! { "avx2_vnni" "g16m" DOT 16 1 $rows }
    )*};
}
heights! { 1 2 3 4 }
