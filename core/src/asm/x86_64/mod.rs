//! Microkernels for x86-64.
//!
//! System V registers: `rdi` is the argument; `rax`, `rcx`, `rdx`, `rsi`, `rdi`, `r8`..`r11`, every vector and mask
//! register may be changed; nothing else is touched, the stack included.

#![allow(non_snake_case)] // Files are named like kernels.

use crate::quant::packed::Packing;

/// Prefetches the lines of the head of a unit, at `rax`, into the first-level cache. Read as its steps go, alternately
/// with those of codes, they would take the lines of the unit out of order, and the prefetcher of the second-level
/// cache gives up then: Q4_1 from memory takes 2.2 times as long (Zen 4). Prefetches the head of a later unit, too, which is
/// `{far}` bytes behind, as [`planes_ahead!`] does with planes.
macro_rules! head_first {
    () => {
        concat!(far_lines!("rax" "head" ""), "\n", lines!("rax" "head" "t0" ""))
    };
}

/// Prefetches the bytes that are `{far}` bytes behind the planes of a step, which are at `r10`, as
/// [`Prefetches`](crate::caps::Prefetches) says. Where every fourth line is enough, steps of `$least` bytes and more, at
/// least 256, prefetch the lines at multiples of 256 bytes. In shorter steps, between which there are more heads, that was slower than
/// all lines; with AVX-512 also in steps with less than 256 bytes for each row of activations, as these take longer for their bytes.
macro_rules! planes_ahead {
    ($least:literal) => {
        concat!(
            r"
            .macro fourth_lines from
                prefetcht1 [r10 + \from + {far}]
                .if \from + 256 < {step}
                prefetcht1 [r10 + \from + 256 + {far}]
                .endif
                jmp 8f
            .endm
            .macro some_lines
            .if {step} >= ",
            $least,
            r"
            jne 7f
            test r10b, 128
            jne 22f
            test r10b, 64
            jne 20f
            fourth_lines 0
        20:
            fourth_lines 192
        22:
            test r10b, 64
            jne 23f
            fourth_lines 128
        23:
            fourth_lines 64
            .endif
            .endm
            ",
            far_lines!("r10" "step" "some_lines"),
            "\n.purgem fourth_lines\n.purgem some_lines"
        )
    };
}

/// Prefetches the lines that are `{far}` bytes behind a part, all of them into the cache that
/// [`Prefetches`](crate::caps::Prefetches) names, unless `$some` prefetches others. That comes with the flags of a
/// comparison with [`Prefetches::Fourth`](crate::caps::Prefetches::Fourth).
macro_rules! far_lines {
    ($at:tt $bytes:tt $some:tt) => {
        concat!(
            "cmp qword ptr [rdi + {prefetches}], {fourth}\nja 9f\n",
            $some,
            "\n7:\n",
            lines!($at $bytes "t1" " + {far}"),
            "\njmp 8f\n9:\n",
            lines!($at $bytes "t0" " + {far}"),
            "\n8:"
        )
    };
}

/// Prefetches all lines of a part.
macro_rules! lines {
    ($at:tt $bytes:tt $where:tt $far:tt) => {
        concat!(
            ".irp at, 0, 64, 128, 192, 256, 320, 384, 448, 512\n.if \\at < {",
            $bytes,
            "}\nprefetch",
            $where,
            " [",
            $at,
            " + \\at",
            $far,
            "]\n.endif\n.endr"
        )
    };
}

/// Assembler macros that bring a group's scales, and its offsets, which are `at` bytes behind `r11`, to registers of these numbers:
/// `group_scales ymm, xmm, 8, 9`, the second argument being the registers of half the width; and that go on to those of the next group.
macro_rules! group_scales {
    () => {
        r"
            .macro group_scales wide, half, scale, offset, at=0
                .if {scales} == {halves}
                vcvtph2ps \wide\scale, [r11 + \at]
                .if {offsets}
                vcvtph2ps \wide\offset, [r11 + 32 + \at]
                .endif
                .elseif {scales} == {factors}
                vpmovsxbd \wide\scale, [r11 + \at]
                vcvtdq2ps \wide\scale, \wide\scale
                .if {offsets}
                vpmovsxbd \wide\offset, [r11 + 16 + \at]
                vcvtdq2ps \wide\offset, \wide\offset
                .endif
                .elseif {scales} == {e8m0}
                vpmovzxbd \wide\scale, [r11 + \at]
                vpslld \wide\scale, \wide\scale, 23
                .elseif {scales} == {ue4m3}
                vpmovzxbw \half\scale, [r11 + \at]
                vpsllw \half\scale, \half\scale, 7
                vcvtph2ps \wide\scale, \half\scale
                .endif
            .endm
            .macro next_scales
                .if {scales} == {halves}
                add r11, 32 * (1 + {offsets})
                .elseif {scales} == {factors}
                add r11, 16 * (1 + {offsets})
                .elseif {scales} != {whole}
                add r11, 16
                .endif
            .endm
        "
    };
}

/// `bits` bits from `from` of every byte of a word.
const fn mask(bits: u32, from: u32) -> u32 {
    (((1 << bits) - 1) << from & 0xff) * crate::quant::EVERY_BYTE
}

/// A [`panel_kernel!`]; `$bias` says what is added to codes.
macro_rules! packed_kernel {
    ($name:expr, $format:ident, $rows:literal, $bias:path, $($line:expr),* $(,)?; $($operand:tt)*) => {
        panel_kernel! {
            $name, $format, $rows, $($line,)*;
            bias = const $bias(&packing!($format)),
            bias_bits = const ($bias(&packing!($format)) | 1).ilog2(),
            low_mask = const crate::asm::x86_64::low_mask(&packing!($format)),
            high_mask = const crate::asm::x86_64::high_mask(&packing!($format)),
            $($operand)*
        }
    };
}

/// Masks of the low and of the high plane. One by row is multiplied by two; and the low one by eight, then.
const fn low_mask(p: &Packing) -> u32 {
    if p.by_row {
        mask(2, 3)
    } else {
        mask(p.bits[0] as u32, 0)
    }
}

/// See [`low_mask`].
const fn high_mask(p: &Packing) -> u32 {
    if p.by_row {
        mask(1, 1)
    } else {
        mask(p.bits[1] as u32, p.bits[0] as u32)
    }
}

/// The types that the sums of a tile can have, as numbers for `.if`.
const F32: u8 = 0;
const I32: u8 = 1;

/// The start values of sums: zeros, or numbers that the argument names.
const ZERO: u8 = 0;
const GIVEN: u8 = 1;

#[macro_use]
mod amx;
#[macro_use]
mod tile;
#[macro_use]
mod avx2;
#[macro_use]
mod avx512;

mod gemm_f32_bf16_bf16_14x32__avx512;
mod gemm_f32_bf16_bf16_14x32__avx512_bf16;
mod gemm_f32_bf16_bf16_32x32__avx512_amx_bf16;
mod gemm_f32_bf16_bf16_6x16__avx2;
mod gemm_f32_f16_f16_14x32__avx512;
mod gemm_f32_f16_f16_32x32__avx512_amx_fp16;
mod gemm_f32_f16_f16_6x16__avx2;
mod gemm_f32_f32_f32_14x32__avx512;
mod gemm_f32_f32_f32_6x16__avx2;
mod gemm_i32_i8_i8_14x32__avx512;
mod gemm_i32_i8_i8_14x32__avx512_vnni;
mod gemm_i32_i8_i8_32x32__avx512_amx_int8;
mod gemm_i32_i8_i8_6x16__avx2;
mod gemm_i32_i8_i8_6x16__avx2_vnni;

mod qgemm_avx2;
mod qgemm_vnni;
mod qgemv_avx2;
mod qgemv_vnni;

pub(crate) use amx::AMX_ENTER_AND_LEAVE;
