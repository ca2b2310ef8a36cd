//! Packed quantised weights times activations of 8 bits, with AVX2, and with AVX-VNNI: for every format, and one or two rows of
//! activations.
//!
//! A register has four columns of 8 rows of weights, so a panel has two halves. For one row of activations both are multiplied with
//! them at a time; for two rows a unit's first half is done before its second. `vpmaddubsw` multiplies
//! unsigned codes with activations and adds up pairs, in 16 bits; it saturates, but never has to: where the sum of
//! a half step fits 16 bits, `vpmaddwd` with ones adds up pairs of pairs once, where it does not for every four columns; and
//! where unsigned codes would be too large, their magnitudes are multiplied, and the activations take their signs. With AVX-VNNI
//! `vpdpbusd` multiplies unsigned codes of every format and adds up fours, in 32 bits.
//! See [`packed`](crate::quant::packed) for the layout, [`panel`](crate::ops::qgemv_packed::panel) for the order of what
//! is done in f32.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `PanelArgs` |
//! | `rax`, `rcx` | the unit, units that are left |
//! | `rdx` | first row of the half, 0 or 8; 0 for both halves |
//! | `r10`, `r11` | the step's planes, its scales |
//! | `rsi`, `r8` | the step's activations; bytes to the next row of them |
//! | `r9` | steps that are left; the results |
//! | `ymm0`, `ymm1` | results, or a unit's sums of products, of both rows of activations, or of both halves of the panel |
//! | `ymm2`, `ymm3` | a unit's sums of offsets; or, if it is by row, ones and the high plane |
//! | `ymm4`..`ymm7` | integers of the first and the last 16 columns of a step |
//! | `ymm8`, `ymm9`, `ymm10`, `ymm11` | codes, high plane or magnitudes, activations, products; then scales, offsets |
//! | `ymm12`, `ymm13` | masks of the low and the high plane |
//! | `ymm14` | the table of values |
//! | `ymm15` | ones, for AVX2 |
//!
//! Instructions for a step (32 columns of 16 rows) and one row of activations, Q4_K: 32 to unpack, 36 for products, 39 for the
//! rest: 107 for 296 bytes of weights.

use crate::asm::packings::{bias, largest};
use crate::quant::packed::{Pack, Packing};

/// How products of bytes are summed before they are converted to f32.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Summing {
    /// In 16 bits, all of a half step.
    Words,
    /// In 16 bits, pairs.
    Pairs,
    /// In 16 bits, pairs: of magnitudes, with activations that have taken the signs of codes.
    Signed,
    /// In 32 bits, by AVX-VNNI.
    Dot,
}

/// With AVX2: the longest sums that fit 16 bits.
const fn maddubs(p: &Packing) -> Summing {
    match 0x7fff / (2 * 127 * largest(p)) {
        0 => Summing::Signed,
        1..=3 => Summing::Pairs,
        _ => Summing::Words,
    }
}

/// With AVX-VNNI, every sum.
const fn dot(_: &Packing) -> Summing {
    Summing::Dot
}

/// The bias that makes codes unsigned numbers, if they become unsigned.
const fn maddubs_bias(p: &Packing) -> u32 {
    if matches!(maddubs(p), Summing::Signed) {
        0
    } else {
        bias(p)
    }
}

/// How far ahead of themselves weights are prefetched, in bytes: what is outstanding at 20 GB/s if memory takes 100 ns.
/// On Zen 3, models with weights of 3 to 4 bits generate 1.2 times as fast as with four times that distance,
/// [`ops::ahead::FAR`](crate::ops::ahead::FAR), which is best on CPUs with AVX-512.
const FAR: usize = 2048;

/// The kernel of a format for a number of rows of activations.
macro_rules! kernel {
    ($tier:literal $field:ident $format:ident $rows:literal, $products:expr, $bias:path) => {
        packed_kernel! {
            concat!("qgemv_packed_f32_q8_", stringify!($field), "_16x", $rows, "__", $tier), $format, $rows, $bias,
            r"
            // Does something for the first sums and for the second ones: for both halves of the panel, or for each row of
            // activations. Its arguments are results, sums of offsets, integers of the first and of the last columns, the address
            // of the activations' step, bytes to the results; and q, which four columns.
            .macro first_sums do, q
                \do 0, 2, 4, 5, rsi, 0, \q
            .endm
            .macro second_sums do, q
                .if {rows} == 1
                \do 1, 3, 6, 7, rsi, 32, \q
                .else
                \do 1, 3, 6, 7, rsi+r8, 64, \q
                .endif
            .endm
            .macro all_sums do, q
                first_sums \do, \q
                second_sums \do, \q
            .endm
            // The same where weights, or their scales, come to registers first, those of the second half by themselves.
            .macro with load, do, q
                \load 0
                first_sums \do, \q
                .if {rows} == 1
                \load 1
                .endif
                second_sums \do, \q
            .endm

            .macro broadcast v, word
                mov r9d, \word
                vmovd xmm\v, r9d
                vpbroadcastd ymm\v, xmm\v
            .endm

            // PRODUCTS of four columns with activations, added to a half step's integers, which the first of them are.
            .macro multiply sum, x, q
                .if {rows} > 1 || {by_row}
                vpbroadcastd ymm10, dword ptr [\x + \q]
                .endif
                .if {products} == {dot}
                {{vex}} vpdpbusd ymm\sum, ymm8, ymm10
                .else
                .if {products} == {signed}
                vpsignb ymm11, ymm10, ymm8
                vpmaddubsw ymm11, ymm9, ymm11
                .elseif {products} == {words} && \q % 16 == 0
                vpmaddubsw ymm\sum, ymm8, ymm10
                .else
                vpmaddubsw ymm11, ymm8, ymm10
                .endif
                .if {products} != {words} && \q % 16 == 0
                vpmaddwd ymm\sum, ymm11, ymm15
                .elseif {products} != {words}
                vpmaddwd ymm11, ymm11, ymm15
                vpaddd ymm\sum, ymm\sum, ymm11
                .elseif \q % 16 != 0
                vpaddw ymm\sum, ymm\sum, ymm11
                .endif
                .endif
            .endm
            .macro multiply_row y, o, a, b, x, to, q
                .if \q < 16
                multiply \a, \x, \q
                .else
                multiply \b, \x, \q
                .endif
            .endm

            // Four columns of a half of the panel: their low bits are from bit `by` of the bytes at `low`, their high ones in those at
            // `high`, shifted by `shift` and `high_by`.
            .macro unpack half, low, by, high, shift, high_by
                .if {low_bits} == 8
                vmovdqu ymm8, [r10 + \low + 32*\half]
                .elseif \by == 0
                vpand ymm8, ymm12, [r10 + \low + 32*\half]
                .else
                vmovdqu ymm8, [r10 + \low + 32*\half]
                vpsrld ymm8, ymm8, \by
                vpand ymm8, ymm8, ymm12
                .endif
                .ifnc \high, none
                vmovdqu ymm9, [r10 + \high + 32*\half]
                \shift ymm9, ymm9, \high_by
                vpand ymm9, ymm9, ymm13
                vpor ymm8, ymm8, ymm9
                .endif
                // From indices to the factors of products: unsigned codes, or signed ones and in ymm9 their magnitudes.
                .if {table_of_values}
                vpshufb ymm8, ymm14, ymm8
                .elseif {products} == {signed}
                vpsubb ymm8, ymm8, ymm12
                .endif
                .if {products} == {signed}
                vpabsb ymm9, ymm8
                .endif
            .endm
            // The same, times activations q bytes behind those of the step.
            .macro four q, low, by=0, high=none, shift=none, high_by=0
                .if {rows} == 1
                vpbroadcastd ymm10, dword ptr [rsi + \q]
                .endif
                unpack 0, \low, \by, \high, \shift, \high_by
                first_sums multiply_row, \q
                .if {rows} == 1
                unpack 1, \low, \by, \high, \shift, \high_by
                .endif
                second_sums multiply_row, \q
            .endm

            // High planes by row: eight times the low bits, and twice the high one, which is a byte of each row, becomes
            // those of four columns, and serves eight.
            .macro eight half, do, q, high_shift, high_by, low_shift, low_by
                \high_shift ymm9, ymm3, \high_by
                vpand ymm9, ymm9, ymm13
                four_by_row \do, \q, 32*\half, \low_shift, \low_by
                four_by_row \do, \q+4, 64+32*\half, \low_shift, \low_by
            .endm
            .macro four_by_row do, q, low, shift, by
                vmovdqu ymm8, [r10 + \low]
                \shift ymm8, ymm8, \by
                vpand ymm8, ymm8, ymm12
                vpor ymm8, ymm8, ymm9
                \do multiply_row, \q
            .endm
            .macro products_by_row half, do
                vpmovzxbd ymm3, [r11 + 32 + 8*\half]
                vpmulld ymm3, ymm3, ymm2
                eight \half, \do, 0, vpslld, 1, vpslld, 3
                eight \half, \do, 8, vpsrld, 1, vpslld, 1
                eight \half, \do, 16, vpsrld, 3, vpsrld, 1
                eight \half, \do, 24, vpsrld, 5, vpsrld, 3
            .endm

            .macro step_products
                .if {low_bits} == 8
                four 0, low=0
                four 4, low=64
                four 8, low=128
                four 12, low=192
                four 16, low=256
                four 20, low=320
                four 24, low=384
                four 28, low=448
                .elseif {low_bits} == 4 && {high_bits} == 0
                four 0, low=0
                four 4, low=64
                four 8, low=128
                four 12, low=192
                four 16, low=0, by=4
                four 20, low=64, by=4
                four 24, low=128, by=4
                four 28, low=192, by=4
                .elseif {low_bits} == 4 && {high_bits} == 1
                four 0, low=0, high=256, shift=vpslld, high_by=4
                four 4, low=64, high=256, shift=vpslld, high_by=3
                four 8, low=128, high=256, shift=vpslld, high_by=2
                four 12, low=192, high=256, shift=vpslld, high_by=1
                four 16, low=0, by=4, high=256, shift=vpslld, high_by=0
                four 20, low=64, by=4, high=256, shift=vpsrld, high_by=1
                four 24, low=128, by=4, high=256, shift=vpsrld, high_by=2
                four 28, low=192, by=4, high=256, shift=vpsrld, high_by=3
                .elseif {low_bits} == 4
                four 0, low=0, high=256, shift=vpslld, high_by=4
                four 4, low=64, high=320, shift=vpslld, high_by=4
                four 8, low=128, high=256, shift=vpslld, high_by=2
                four 12, low=192, high=320, shift=vpslld, high_by=2
                four 16, low=0, by=4, high=256, shift=vpslld, high_by=0
                four 20, low=64, by=4, high=320, shift=vpslld, high_by=0
                four 24, low=128, by=4, high=256, shift=vpsrld, high_by=2
                four 28, low=192, by=4, high=320, shift=vpsrld, high_by=2
                .elseif {low_bits} == 2 && {high_bits} == 0
                four 0, low=0
                four 4, low=64
                four 8, low=0, by=2
                four 12, low=64, by=2
                four 16, low=0, by=4
                four 20, low=64, by=4
                four 24, low=0, by=6
                four 28, low=64, by=6
                .elseif {by_row} && {rows} == 1
                products_by_row 0, first_sums
                products_by_row 1, second_sums
                .elseif {by_row}
                products_by_row 0, all_sums
                .elseif {low_bits} == 2
                four 0, low=0, high=128, shift=vpslld, high_by=2
                four 4, low=64, high=128, shift=vpslld, high_by=1
                four 8, low=0, by=2, high=128, shift=vpslld, high_by=0
                four 12, low=64, by=2, high=128, shift=vpsrld, high_by=1
                four 16, low=0, by=4, high=128, shift=vpsrld, high_by=2
                four 20, low=64, by=4, high=128, shift=vpsrld, high_by=3
                four 24, low=0, by=6, high=128, shift=vpsrld, high_by=4
                four 28, low=64, by=6, high=128, shift=vpsrld, high_by=5
                .else
                four 0, low=0
                four 4, low=0, by=1
                four 8, low=0, by=2
                four 12, low=0, by=3
                four 16, low=0, by=4
                four 20, low=0, by=5
                four 24, low=0, by=6
                four 28, low=0, by=7
                .endif
            .endm
            ",
            group_scales!(),
            r"
            // A GROUP'S INTEGERS: pairs become fours; the bias of codes times the negative sum of the activations, at
            // `biases`, is added. In f32 they are added to sums, times scales; and the offset times the sum of the
            // activations, at `sums`.
            .macro add_pairs sum
                .if {products} == {words}
                vpmaddwd ymm\sum, ymm\sum, ymm15
                .endif
            .endm
            .macro add_group y, o, sum, x, biases, sums
                .if {bias}
                vpbroadcastd ymm10, dword ptr [\x + \biases]
                vpslld ymm10, ymm10, {bias_bits}
                vpaddd ymm\sum, ymm\sum, ymm10
                .if {bias} == 9
                vpbroadcastd ymm10, dword ptr [\x + \biases]
                vpaddd ymm\sum, ymm\sum, ymm10
                .endif
                .endif
                vcvtdq2ps ymm\sum, ymm\sum
                vbroadcastss ymm10, dword ptr [\x + 44]
                vmulps ymm\sum, ymm\sum, ymm10
                .if {scales} == {whole}
                vaddps ymm\y, ymm\y, ymm\sum
                .else
                vfmadd231ps ymm\y, ymm\sum, ymm8
                .endif
                .if {offsets}
                vbroadcastss ymm10, dword ptr [\x + \sums]
                .if {scales} == {factors}
                vfmadd231ps ymm\o, ymm9, ymm10
                .else
                vfmadd231ps ymm\y, ymm9, ymm10
                .endif
                .endif
            .endm
            .macro add_step y, o, a, b, x, to, q
                add_pairs \a
                add_pairs \b
                vpaddd ymm\a, ymm\a, ymm\b
                add_group \y, \o, \a, \x, biases=40, sums=56
            .endm
            .macro add_first_half y, o, a, b, x, to, q
                add_pairs \a
                add_group \y, \o, \a, \x, biases=32, sums=48
            .endm
            .macro add_second_half y, o, a, b, x, to, q
                add_pairs \b
                add_group \y, \o, \b, \x, biases=36, sums=52
            .endm
            .macro clear_integers y, o, a, b, x, to, q
                vpxor ymm\a, ymm\a, ymm\a
                vpxor ymm\b, ymm\b, ymm\b
            .endm
            // Scales of a group: those of the second half, which are the last to be read, are followed by the next group's.
            .macro scales half
                .if {scales} == {halves}
                group_scales ymm, xmm, 8, 9, 16*\half
                .else
                group_scales ymm, xmm, 8, 9, 8*\half
                .endif
                .if \half == 1 || {rows} > 1
                next_scales
                .endif
            .endm

            // BEFORE AND AFTER the steps of a unit, or of half of it. Results are in memory meanwhile, where a unit has a scale.
            .macro clear_sums y, o, a, b, x, to, q
                vpxor ymm\y, ymm\y, ymm\y
            .endm
            .macro clear_offsets y, o, a, b, x, to, q
                vpxor ymm\o, ymm\o, ymm\o
            .endm
            .macro load_results y, o, a, b, x, to, q
                vmovups ymm\y, [r9 + 4*rdx + \to]
            .endm
            .macro store_results y, o, a, b, x, to, q
                .if {scales} == {factors} || {scales} == {whole}
                vfmadd213ps ymm\y, ymm8, [r9 + 4*rdx + \to]
                .endif
                .if {scales} == {factors} && {offsets}
                vfmadd231ps ymm\y, ymm\o, ymm9
                .endif
                vmovups [r9 + 4*rdx + \to], ymm\y
            .endm
            .macro unit_scales half
                .if {scales} == {whole}
                vmovups ymm8, [rax + 4*rdx + 32*\half]
                .elseif {scales} == {factors}
                vcvtph2ps ymm8, [rax + 2*rdx + 16*\half]
                .if {offsets}
                vcvtph2ps ymm9, [rax + 2*rdx + 32 + 16*\half]
                .endif
                .endif
            .endm
            .macro sums_begin
                .if {scales} == {factors} || {scales} == {whole}
                all_sums clear_sums
                .if {offsets}
                all_sums clear_offsets
                .endif
                .else
                mov r9, [rdi + {y}]
                all_sums load_results
                .endif
            .endm
            .macro sums_end
                mov r9, [rdi + {y}]
                with unit_scales, store_results
            .endm

            // PROLOGUE
            mov rax, [rdi + {w}]
            mov rcx, [rdi + {units}]
            mov rsi, [rdi + {x}]
            mov r8, [rdi + {stride}]
            .if {low_bits} == 8
            broadcast 12, 0x80808080 // Codes of 8 bits need no mask. This number is subtracted from them.
            .else
            broadcast 12, {low_mask}
            .endif
            broadcast 13, {high_mask}
            broadcast 15, 0x10001
            broadcast 11, {bias}*0x01010101
            vbroadcasti128 ymm14, [rdi + {table}]
            vpaddb ymm14, ymm14, ymm11
            .if {by_row}
            broadcast 2, 0x01010101
            .endif

            // A UNIT
            .p2align 5
        2:
            ",
            head_first!(),
            r"
            xor edx, edx

            // A HALF OF IT, OR ALL
        3:
            sums_begin
            // The first group's scales.
            .if {scales} == {halves}
            lea r11, [rax + 2*rdx]
            .elseif {scales} != {factors}
            lea r11, [rax + rdx]
            .elseif {offsets}
            lea r11, [rax + rdx + 64]
            .else
            lea r11, [rax + rdx + 32]
            .endif
            lea r10, [rax + 4*rdx + {head}]
            mov r9d, 8
            cmp rcx, 1
            jne 4f
            // The last unit may have fewer steps, and a shorter head.
            mov r10, [rdi + {last_head}]
            lea r9, [rax + 4*rdx]
            add r10, r9
            mov r9, [rdi + {last_steps}]

            // A STEP
            .p2align 5
        4:
            ",
            planes_ahead!("256"),
            r"
            .if {products} == {dot}
            all_sums clear_integers
            .endif
            step_products
            .if {group} == 32
            with scales, add_step
            .else
            with scales, add_first_half
            with scales, add_second_half
            .endif
            .if {by_row}
            add r11, 16
            .endif
            add r10, {step}
            add rsi, 64
            dec r9d
            jnz 4b
            sums_end
            .if {rows} > 1
            test edx, edx
            jnz 5f
            mov edx, 8
            // Back to the unit's first activations.
            mov r9d, 512
            cmp rcx, 1
            jne 6f
            mov r9, [rdi + {last_steps}]
            shl r9, 6
        6:
            sub rsi, r9
            jmp 3b
            .endif
        5:
            .if {rows} == 1
            mov rax, r10
            .else
            lea rax, [r10 - 32]
            .endif
            dec rcx
            jnz 2b
            vzeroupper
            ret

            .irp name, first_sums, second_sums, all_sums, with, broadcast, multiply, multiply_row, unpack, four, eight, four_by_row
            .purgem \name
            .endr
            .irp name, products_by_row, step_products, group_scales, next_scales, add_pairs, add_group, add_step, add_first_half
            .purgem \name
            .endr
            .irp name, add_second_half, clear_integers, scales, clear_sums, clear_offsets, load_results, store_results, unit_scales
            .purgem \name
            .endr
            .irp name, sums_begin, sums_end
            .purgem \name
            .endr
            ";
            products = const $products(&<crate::quant::formats::$format as Pack>::PACKING) as u8,
            words = const Summing::Words as u8,
            signed = const Summing::Signed as u8,
            dot = const Summing::Dot as u8,
            far = const $crate::asm::x86_64::qgemv_avx2::FAR,
        }
    };
}

/// The kernels of a format.
macro_rules! kernels {
    ($field:ident $format:ident) => {
        kernel! { "avx2_maddubs" $field $format 1, maddubs, maddubs_bias }
        kernel! { "avx2_maddubs" $field $format 2, maddubs, maddubs_bias }
        kernel! { "avx2_vnni" $field $format 1, dot, bias }
        kernel! { "avx2_vnni" $field $format 2, dot, bias }
    };
}
kernels_of_formats! { kernels! }
