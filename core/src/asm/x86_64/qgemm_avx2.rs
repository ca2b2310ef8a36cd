//! Panels of quantised weights times panels of activations of 8 bits, with AVX2, and with AVX-VNNI: for groups of 32 columns or
//! 16, with offsets or without, and one to four rows of activations.
//!
//! A register has four columns of 8 rows of weights, so a panel takes two, and four activations are broadcast once for both. There
//! are three ways to add products up:
//!
//! - **Narrow codes** ([`Packing::narrow`](crate::quant::packed::Packing::narrow)), with AVX2: weights are codes plus 64, unsigned
//!   bytes. `vpmaddubsw` multiplies them with activations and adds up pairs, which are at most 2 * 96 * 127, so that nothing
//!   saturates; the pairs of a group, or of half a group, are added in 16 bits. Such a sum starts with -64 times the sum of its
//!   activations. It may wrap around on the way, but the result fits 16 bits, so it is right in the end. `vpmaddwd` with ones makes
//!   32 bits of it.
//! - **Other codes**, with AVX2: weights are signed bytes. `vpmaddubsw` multiplies their magnitudes with activations that have taken
//!   their signs: pairs are at most 2 * 128 * 127, which fits 16 bits, but no sum of two pairs does, so that each is widened.
//! - **AVX-VNNI**: weights are codes plus 128. `vpdpbusd` multiplies them with activations and adds up fours, in 32 bits. Sums
//!   start with -128 times the sum of the activations.
//!
//! See [`tile`](crate::ops::qgemm::tile::tile) for the order of what is done in f32.
//!
//! | register | |
//! |---|---|
//! | `rdi`, `r10` | `QTileArgs`; results |
//! | `rax`, `rcx`, `rdx` | the step's codes, scales, offsets |
//! | `rsi`, `r8` | the step's activations, bytes to the next step |
//! | `r9` | steps that are left |
//! | `ymm0`..`ymm7` | integers, two registers for each row of activations; if 16 columns are summed at a time, of two rows alone: `ymm4`..`ymm7` are those of the second 16 |
//! | `ymm8`, `ymm9` | products |
//! | `ymm10`, `ymm11` | magnitudes of the weights |
//! | `ymm12`, `ymm13` | weights; then a group's scales, or its offsets |
//! | `ymm14`, `ymm15` | activations; ones, for AVX2 |
//!
//! 16 rows of weights, 32 columns and a row of activations take 40 instructions for vectors with narrow codes, without offsets and
//! loads; 22 of them multiply. A Zen 3 starts four a cycle, two of which may multiply, so 11 cycles are the least. It takes 15, because
//! additions are given to the units that multiply, too. Sums of half a group add 5 instructions. Other codes take 70, and 52 of
//! them run on these two units: 26 cycles at least, and about 29 are taken. With AVX-VNNI there are 22 instructions.

/// How products are added up: fours in 32 bits after pairs of magnitudes, pairs in 16 bits if codes are narrow, or fours by AVX-VNNI.
const WIDE: u8 = 0;
const NARROW: u8 = 1;
const DOT: u8 = 2;

/// One kernel: sums and how many columns they have, columns of a group, whether there are offsets, rows of activations.
macro_rules! kernel {
    ($tier:literal $kind:literal $sums:ident $span:literal $group:literal $offsets:literal $rows:literal) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $rows, "x16__", $tier),
            r"
            // Does something for `count` rows of activations: its integers a and b, those of its second 16 columns c and d, and
            // where its step is, and its results: both have 64 bytes.
            .macro each_row do, first, count, at
                \do 0, 1, 4, 5, 64*(\first), \at
                .if \count > 1
                \do 2, 3, 6, 7, 64*(\first+1), \at
                .endif
                .if \count > 2
                \do 4, 5, 4, 5, 64*(\first+2), \at
                .endif
                .if \count > 3
                \do 6, 7, 6, 7, 64*(\first+3), \at
                .endif
            .endm

            // What integers of a group start with, at `at` behind the step's activations.
            .macro start a, b, at
                .if {sums} == {wide}
                vpxor ymm\a, ymm\a, ymm\a
                .else
                vpbroadcastd ymm\a, dword ptr [rsi + \at]
                .endif
                vmovdqa ymm\b, ymm\a
            .endm
            .macro start_first a, b, c, d, row, at
                start \a, \b, \row+\at
            .endm
            .macro start_second a, b, c, d, row, at
                start \c, \d, \row+\at
            .endm

            // Four columns, times activations at `at`.
            .macro multiply a, b, at
                vpbroadcastd ymm14, dword ptr [rsi + \at]
                .if {sums} == {dot}
                {{vex}} vpdpbusd ymm\a, ymm12, ymm14
                {{vex}} vpdpbusd ymm\b, ymm13, ymm14
                .elseif {sums} == {narrow}
                vpmaddubsw ymm8, ymm12, ymm14
                vpmaddubsw ymm9, ymm13, ymm14
                vpaddw ymm\a, ymm\a, ymm8
                vpaddw ymm\b, ymm\b, ymm9
                .else
                vpsignb ymm8, ymm14, ymm12
                vpsignb ymm9, ymm14, ymm13
                vpmaddubsw ymm8, ymm10, ymm8
                vpmaddubsw ymm9, ymm11, ymm9
                vpmaddwd ymm8, ymm8, ymm15
                vpmaddwd ymm9, ymm9, ymm15
                vpaddd ymm\a, ymm\a, ymm8
                vpaddd ymm\b, ymm\b, ymm9
                .endif
            .endm
            .macro multiply_row a, b, c, d, row, at
                .if {span} == 16 && \at >= 16
                multiply \c, \d, \row+\at
                .else
                multiply \a, \b, \row+\at
                .endif
            .endm
            .macro four first, count, at
                vmovdqu ymm12, [rax + 16*(\at)]
                vmovdqu ymm13, [rax + 16*(\at) + 32]
                .if {sums} == {wide}
                vpabsb ymm10, ymm12
                vpabsb ymm11, ymm13
                .endif
                each_row multiply_row, \first, \count, \at
            .endm

            // Sums in 32 bits; in f32, times scales.
            .macro widen a, b
                .if {sums} == {narrow}
                vpmaddwd ymm\a, ymm\a, ymm15
                vpmaddwd ymm\b, ymm\b, ymm15
                .endif
            .endm
            .macro convert a, b
                vcvtdq2ps ymm\a, ymm\a
                vcvtdq2ps ymm\b, ymm\b
            .endm
            .macro scale_first a, b, c, d, row, at
                widen \a, \b
                .if {span} < {group}
                widen \c, \d
                vpaddd ymm\a, ymm\a, ymm\c
                vpaddd ymm\b, ymm\b, ymm\d
                .endif
                convert \a, \b
                vmulps ymm\a, ymm\a, ymm12
                vmulps ymm\b, ymm\b, ymm13
            .endm
            .macro add_second a, b, c, d, row, at
                widen \c, \d
                convert \c, \d
                vfmadd231ps ymm\a, ymm\c, ymm12
                vfmadd231ps ymm\b, ymm\d, ymm13
            .endm

            // To results: products, times the activations' scale; offsets of a group, times the sum of activations.
            .macro add_products a, b, c, d, row, at
                vbroadcastss ymm14, dword ptr [rsi + \row + 44]
                vfmadd213ps ymm\a, ymm14, [r10 + \row]
                vfmadd213ps ymm\b, ymm14, [r10 + \row + 32]
            .endm
            .macro add_offsets a, b, c, d, row, at
                vbroadcastss ymm14, dword ptr [rsi + \row + \at]
                vfmadd231ps ymm\a, ymm12, ymm14
                vfmadd231ps ymm\b, ymm13, ymm14
            .endm
            .macro store_results a, b, c, d, row, at
                vmovups [r10 + \row], ymm\a
                vmovups [r10 + \row + 32], ymm\b
            .endm

            // ROWS OF ACTIVATIONS in a step.
            .macro columns at
                vmovups ymm12, [\at]
                vmovups ymm13, [\at + 32]
            .endm
            .macro some_rows first, count
                .if {span} == 32
                each_row start_first, \first, \count, 40
                .else
                each_row start_first, \first, \count, 32
                each_row start_second, \first, \count, 36
                .endif
                .irp at, 0, 4, 8, 12, 16, 20, 24, 28
                four \first, \count, \at
                .endr
                columns rcx
                each_row scale_first, \first, \count
                .if {group} == 16
                columns rcx+64
                each_row add_second, \first, \count
                .endif
                each_row add_products, \first, \count
                .if {with_offsets} && {group} == 32
                columns rdx
                each_row add_offsets, \first, \count, 56
                .elseif {with_offsets}
                columns rdx
                each_row add_offsets, \first, \count, 48
                columns rdx+64
                each_row add_offsets, \first, \count, 52
                .endif
                each_row store_results, \first, \count
            .endm

            // PROLOGUE
            mov r9d, 0x10001
            vmovd xmm15, r9d
            vpbroadcastd ymm15, xmm15
            mov rax, [rdi + {codes}]
            mov rcx, [rdi + {scales}]
            mov rdx, [rdi + {offsets}]
            mov rsi, [rdi + {x}]
            mov r8, [rdi + {x_step}]
            mov r9, [rdi + {steps}]
            mov r10, [rdi + {y}]

            // A STEP
            .p2align 5
        2:
            .if {span} == 32 || {rows} < 3
            some_rows 0, {rows}
            .else
            some_rows 0, 2
            some_rows 2, {rows}-2
            .endif
            add rax, 512
            add rcx, 2048/{group}
            .if {with_offsets}
            add rdx, 2048/{group}
            .endif
            add rsi, r8
            dec r9
            jnz 2b
            vzeroupper
            ret

            .irp name, each_row, start, start_first, start_second, multiply, multiply_row, four, widen, convert, scale_first
            .purgem \name
            .endr
            .irp name, add_second, add_products, add_offsets, store_results, columns, some_rows
            .purgem \name
            .endr
            ";
            rows = const $rows,
            span = const $span,
            group = const $group,
            with_offsets = const $offsets,
            sums = const $sums,
            wide = const WIDE,
            narrow = const NARROW,
            dot = const DOT,
            x_step = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x_step),
        }
    };
}

/// The kernels of each kind for so many rows.
macro_rules! heights {
    ($($rows:literal)*) => {$(
        kernel! { "avx2_maddubs" "g32" WIDE 32 32 0 $rows }
        kernel! { "avx2_maddubs" "g16" WIDE 16 16 0 $rows }
        kernel! { "avx2_maddubs" "g32m" WIDE 32 32 1 $rows }
        kernel! { "avx2_maddubs" "g16m" WIDE 16 16 1 $rows }
        kernel! { "avx2_maddubs" "n32" NARROW 32 32 0 $rows }
        kernel! { "avx2_maddubs" "n16" NARROW 16 16 0 $rows }
        kernel! { "avx2_maddubs" "n32m" NARROW 32 32 1 $rows }
        kernel! { "avx2_maddubs" "n16m" NARROW 16 16 1 $rows }
        kernel! { "avx2_maddubs" "h32" NARROW 16 32 0 $rows }
        kernel! { "avx2_maddubs" "h32m" NARROW 16 32 1 $rows }
        kernel! { "avx2_vnni" "g32" DOT 32 32 0 $rows }
        kernel! { "avx2_vnni" "g16" DOT 16 16 0 $rows }
        kernel! { "avx2_vnni" "g32m" DOT 32 32 1 $rows }
        kernel! { "avx2_vnni" "g16m" DOT 16 16 1 $rows }
    )*};
}
heights! { 1 2 3 4 }
