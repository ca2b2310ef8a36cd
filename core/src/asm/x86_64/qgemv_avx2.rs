//! Packed quantised weights times activations of 8 bits, with AVX2, and with AVX-VNNI: for every format, and one or two rows of
//! activations.
//!
//! A register has four columns of 8 rows of weights: a panel is done in halves, unit by unit. `vpmaddubsw` multiplies
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
//! | `rdx` | first row of the half, 0 or 8 |
//! | `r10`, `r11` | the step's planes, its scales |
//! | `rsi`, `r8` | the step's activations; bytes to the next row of them |
//! | `r9` | steps that are left; the results |
//! | `ymm0`, `ymm1` | results, or a unit's sums of products |
//! | `ymm2`, `ymm3` | a unit's sums of offsets; or, if it is by row, ones and the high plane |
//! | `ymm4`..`ymm7` | integers of the halves of a step |
//! | `ymm8`, `ymm9`, `ymm10`, `ymm11` | codes, high plane or magnitudes, activations, products; then scales, offsets |
//! | `ymm12`, `ymm13` | masks of the low and the high plane |
//! | `ymm14` | the table of values |
//! | `ymm15` | ones, for AVX2 |
//!
//! Instructions for a step (32 columns of 16 rows) and one row of activations, Q4_K: 2 times 28 to unpack, 24 for products,
//! 22 for the rest: 148 for 296 bytes of weights.

use super::super::packings::{bias, EACH};
use super::mask;
use crate::quant::packed::Pack;

/// Indices of four columns: so many bits from `$by` of the bytes at `$at`.
macro_rules! low {
    (8 $at:tt $by:tt) => {
        concat!("vmovdqu ymm8, [r10 + ", $at, "]\n")
    };
    ($low:tt $at:tt "0") => {
        concat!("vpand ymm8, ymm12, [r10 + ", $at, "]\n")
    };
    ($low:tt $at:tt $by:tt) => {
        concat!(low!(8 $at $by), "vpsrld ymm8, ymm8, ", $by, "\nvpand ymm8, ymm8, ymm12\n")
    };
}

/// Their high bits.
macro_rules! high {
    (none) => {
        ""
    };
    (($at:tt $way:tt $by:tt)) => {
        concat!(
            "vmovdqu ymm9, [r10 + ",
            $at,
            "]\n",
            "vps",
            $way,
            "ld ymm9, ymm9, ",
            $by,
            "\n",
            "vpand ymm9, ymm9, ymm13\n",
            "vpor ymm8, ymm8, ymm9\n",
        )
    };
}

/// From indices to what is multiplied: unsigned codes, or signed ones in `ymm8` and magnitudes in `ymm9`.
macro_rules! values {
    (linear signed) => {
        "vpsubb ymm8, ymm8, ymm12\nvpabsb ymm9, ymm8\n"
    };
    (linear $way:ident) => {
        ""
    };
    (table signed) => {
        "vpshufb ymm8, ymm14, ymm8\nvpabsb ymm9, ymm8\n"
    };
    (table $way:ident) => {
        "vpshufb ymm8, ymm14, ymm8\n"
    };
}

/// Products of four columns with activations, added to a half step's integers. (They start at zero, as it is the
/// shorter text.)
macro_rules! multiply {
    (words $q:tt $sum:tt $x:tt) => {
        concat!(
            "vpbroadcastd ymm10, dword ptr [", $x, " + ", $q, "]\n",
            "vpmaddubsw ymm11, ymm8, ymm10\n",
            "vpaddw ymm", $sum, ", ymm", $sum, ", ymm11\n",
        )
    };
    (each $q:tt $sum:tt $x:tt) => {
        concat!(
            "vpbroadcastd ymm10, dword ptr [", $x, " + ", $q, "]\n",
            "vpmaddubsw ymm11, ymm8, ymm10\n",
            multiply!(@$sum),
        )
    };
    (dot $q:tt $sum:tt $x:tt) => {
        concat!(
            "vpbroadcastd ymm10, dword ptr [", $x, " + ", $q, "]\n",
            "{{vex}} vpdpbusd ymm", $sum, ", ymm8, ymm10\n",
        )
    };
    (signed $q:tt $sum:tt $x:tt) => {
        concat!(
            "vpbroadcastd ymm10, dword ptr [", $x, " + ", $q, "]\n",
            "vpsignb ymm10, ymm10, ymm8\n",
            "vpmaddubsw ymm11, ymm9, ymm10\n",
            multiply!(@$sum),
        )
    };
    (@$sum:tt) => {
        concat!("vpmaddwd ymm11, ymm11, ymm15\nvpaddd ymm", $sum, ", ymm", $sum, ", ymm11\n")
    };
}

/// The products of a step: for each four columns where their bits are, their activations, and which half they are of.
macro_rules! products {
    (8 0 $row:tt $batch:tt) => {
        products!(@8 $row $batch
            ("0" "0" none "0" first) ("64" "0" none "4" first) ("128" "0" none "8" first) ("192" "0" none "12" first)
            ("256" "0" none "16" second) ("320" "0" none "20" second) ("384" "0" none "24" second)
            ("448" "0" none "28" second))
    };
    (4 0 $row:tt $batch:tt) => {
        products!(@4 $row $batch
            ("0" "0" none "0" first) ("64" "0" none "4" first) ("128" "0" none "8" first) ("192" "0" none "12" first)
            ("0" "4" none "16" second) ("64" "4" none "20" second) ("128" "4" none "24" second)
            ("192" "4" none "28" second))
    };
    (4 1 $row:tt $batch:tt) => {
        products!(@4 $row $batch
            ("0" "0" ("256" "l" "4") "0" first) ("64" "0" ("256" "l" "3") "4" first)
            ("128" "0" ("256" "l" "2") "8" first) ("192" "0" ("256" "l" "1") "12" first)
            ("0" "4" ("256" "l" "0") "16" second) ("64" "4" ("256" "r" "1") "20" second)
            ("128" "4" ("256" "r" "2") "24" second) ("192" "4" ("256" "r" "3") "28" second))
    };
    (4 2 $row:tt $batch:tt) => {
        products!(@4 $row $batch
            ("0" "0" ("256" "l" "4") "0" first) ("64" "0" ("320" "l" "4") "4" first)
            ("128" "0" ("256" "l" "2") "8" first) ("192" "0" ("320" "l" "2") "12" first)
            ("0" "4" ("256" "l" "0") "16" second) ("64" "4" ("320" "l" "0") "20" second)
            ("128" "4" ("256" "r" "2") "24" second) ("192" "4" ("320" "r" "2") "28" second))
    };
    (2 0 $row:tt $batch:tt) => {
        products!(@2 $row $batch
            ("0" "0" none "0" first) ("64" "0" none "4" first) ("0" "2" none "8" first) ("64" "2" none "12" first)
            ("0" "4" none "16" second) ("64" "4" none "20" second) ("0" "6" none "24" second)
            ("64" "6" none "28" second))
    };
    (2 1 $row:tt $batch:tt) => {
        products!(@2 $row $batch
            ("0" "0" ("128" "l" "2") "0" first) ("64" "0" ("128" "l" "1") "4" first)
            ("0" "2" ("128" "l" "0") "8" first) ("64" "2" ("128" "r" "1") "12" first)
            ("0" "4" ("128" "r" "2") "16" second) ("64" "4" ("128" "r" "3") "20" second)
            ("0" "6" ("128" "r" "4") "24" second) ("64" "6" ("128" "r" "5") "28" second))
    };
    // Eight times the low bits, and twice the high one: a byte of each row, that becomes those of four columns, and serves
    // eight.
    (2 row $row:tt $batch:tt) => {
        concat!(
            "vpmovzxbd ymm3, [r11 + 32]\n",
            "vpmulld ymm3, ymm3, ymm2\n",
            products!(@eight $row $batch "l" "1" "l" "3" ("0" "0" first) ("64" "4" first)),
            products!(@eight $row $batch "r" "1" "l" "1" ("0" "8" first) ("64" "12" first)),
            products!(@eight $row $batch "r" "3" "r" "1" ("0" "16" second) ("64" "20" second)),
            products!(@eight $row $batch "r" "5" "r" "3" ("0" "24" second) ("64" "28" second)),
        )
    };
    (@eight ($values:ident $way:ident) $batch:tt $high_way:tt $high_by:tt $low_way:tt $low_by:tt
        $(($at:tt $q:tt $half:ident))*) => {
        concat!(
            "vps", $high_way, "ld ymm9, ymm3, ", $high_by, "\n",
            "vpand ymm9, ymm9, ymm13\n",
            $(
                "vmovdqu ymm8, [r10 + ", $at, "]\n",
                "vps", $low_way, "ld ymm8, ymm8, ", $low_by, "\n",
                "vpand ymm8, ymm8, ymm12\n",
                "vpor ymm8, ymm8, ymm9\n",
                products!(@$half $way $q $batch),
            )*
        )
    };
    (1 0 $row:tt $batch:tt) => {
        products!(@1 $row $batch
            ("0" "0" none "0" first) ("0" "1" none "4" first) ("0" "2" none "8" first) ("0" "3" none "12" first)
            ("0" "4" none "16" second) ("0" "5" none "20" second) ("0" "6" none "24" second) ("0" "7" none "28" second))
    };
    (@$low:tt ($values:ident $way:ident) $batch:tt $(($at:tt $by:tt $high:tt $q:tt $half:ident))*) => {
        concat!($(
            low!($low $at $by),
            high!($high),
            values!($values $way),
            products!(@$half $way $q $batch),
        )*)
    };
    (@first $way:ident $q:tt [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!($(multiply!($way $q $a $x),)*)
    };
    (@second $way:ident $q:tt [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!($(multiply!($way $q $b $x),)*)
    };
}

/// What high planes by row need: ones in all bytes, and a step's scales to be 16 bytes more.
macro_rules! by_row {
    (begin row) => {
        kernel!(@constant "2" "0x01010101")
    };
    (end row) => {
        "add r11, 16\n"
    };
    // Masks.
    (low 2 row) => {
        mask(2, 3)
    };
    (high 2 row) => {
        mask(1, 1)
    };
    (low 8 $high:tt) => {
        mask(1, 7)
    };
    (low $low:tt $high:tt) => {
        mask($low, 0)
    };
    (high $low:tt $high:tt) => {
        mask($high, $low)
    };
    ($place:ident $high:tt) => {
        ""
    };
}

/// Sums of pairs become sums of fours.
macro_rules! fours {
    (words $sum:tt) => {
        concat!("vpmaddwd ymm", $sum, ", ymm", $sum, ", ymm15\n")
    };
    ($way:ident $sum:tt) => {
        ""
    };
}

/// Adds what a group's integers have too much of: its negative sum of activations, at `$at`, times a power of two or 9.
macro_rules! unbias {
    (signed $bias:tt $at:tt $sum:tt $x:tt) => {
        ""
    };
    ($way:ident none $at:tt $sum:tt $x:tt) => {
        ""
    };
    ($way:ident 9 $at:tt $sum:tt $x:tt) => {
        concat!(
            unbias!($way 3 $at $sum $x),
            "vpbroadcastd ymm10, dword ptr [", $x, " + ", $at, "]\n",
            "vpaddd ymm", $sum, ", ymm", $sum, ", ymm10\n",
        )
    };
    ($way:ident $bias:tt $at:tt $sum:tt $x:tt) => {
        concat!(
            "vpbroadcastd ymm10, dword ptr [",
            $x,
            " + ",
            $at,
            "]\n",
            "vpslld ymm10, ymm10, ",
            $bias,
            "\n",
            "vpaddd ymm",
            $sum,
            ", ymm",
            $sum,
            ", ymm10\n",
        )
    };
}

/// Brings a group's scales to `ymm8`, its offsets to `ymm9`.
macro_rules! scales {
    (halves none) => {
        "vcvtph2ps ymm8, [r11]\nadd r11, 32\n"
    };
    (halves min) => {
        "vcvtph2ps ymm8, [r11]\nvcvtph2ps ymm9, [r11 + 32]\nadd r11, 64\n"
    };
    (whole none) => {
        ""
    };
    (factors none) => {
        "vpmovsxbd ymm8, [r11]\nvcvtdq2ps ymm8, ymm8\nadd r11, 16\n"
    };
    (factors min) => {
        concat!(
            "vpmovsxbd ymm8, [r11]\nvcvtdq2ps ymm8, ymm8\n",
            "vpmovsxbd ymm9, [r11 + 16]\nvcvtdq2ps ymm9, ymm9\nadd r11, 32\n",
        )
    };
    (e8m0 none) => {
        "vpmovzxbd ymm8, [r11]\nvpslld ymm8, ymm8, 23\nadd r11, 16\n"
    };
    (ue4m3 none) => {
        "vpmovzxbw xmm8, [r11]\nvpsllw xmm8, xmm8, 7\nvcvtph2ps ymm8, xmm8\nadd r11, 16\n"
    };
}

/// A group's integers in f32, times the activations' scale, added to the sums; and its offset times the sum of the
/// activations, at `$at`.
macro_rules! add {
    ($kind:ident $min:ident $at:tt $sum:tt ($y:tt $o:tt $a:tt $b:tt $x:tt)) => {
        concat!(
            "vcvtdq2ps ymm", $sum, ", ymm", $sum, "\n",
            "vbroadcastss ymm10, dword ptr [", $x, " + 44]\n",
            "vmulps ymm", $sum, ", ymm", $sum, ", ymm10\n",
            add!(@$kind $y $sum),
            add!(@$kind $min $at $y $o $x),
        )
    };
    (@whole $y:tt $sum:tt) => {
        concat!("vaddps ymm", $y, ", ymm", $y, ", ymm", $sum, "\n")
    };
    (@$kind:ident $y:tt $sum:tt) => {
        concat!("vfmadd231ps ymm", $y, ", ymm", $sum, ", ymm8\n")
    };
    (@$kind:ident none $at:tt $y:tt $o:tt $x:tt) => {
        ""
    };
    (@halves min $at:tt $y:tt $o:tt $x:tt) => {
        concat!("vbroadcastss ymm10, dword ptr [", $x, " + ", $at, "]\nvfmadd231ps ymm", $y, ", ymm9, ymm10\n")
    };
    (@factors min $at:tt $y:tt $o:tt $x:tt) => {
        add!(@halves min $at $o $o $x)
    };
}

/// What becomes of a step's integers.
macro_rules! finish {
    (32 $bias:tt $way:ident $kind:ident $min:ident [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!(
            scales!($kind $min),
            $(
                fours!($way $a),
                fours!($way $b),
                "vpaddd ymm", $a, ", ymm", $a, ", ymm", $b, "\n",
                unbias!($way $bias "40" $a $x),
                add!($kind $min "56" $a ($y $o $a $b $x)),
            )*
        )
    };
    (16 $bias:tt $way:ident $kind:ident $min:ident [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!(
            scales!($kind $min),
            $(
                fours!($way $a),
                unbias!($way $bias "32" $a $x),
                add!($kind $min "48" $a ($y $o $a $b $x)),
            )*
            scales!($kind $min),
            $(
                fours!($way $b),
                unbias!($way $bias "36" $b $x),
                add!($kind $min "52" $b ($y $o $a $b $x)),
            )*
        )
    };
}

/// Before and after the steps of half a unit. Results are in memory meanwhile, where groups have factors.
macro_rules! unit {
    (begin factors min [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!(
            unit!(begin factors none [$(($y $o $a $b $x))*]),
            $("vpxor ymm", $o, ", ymm", $o, ", ymm", $o, "\n",)*
        )
    };
    (begin factors none [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!($("vpxor ymm", $y, ", ymm", $y, ", ymm", $y, "\n",)*)
    };
    (begin whole none $batch:tt) => {
        unit!(begin factors none $batch)
    };
    (begin $kind:ident $min:ident [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!("mov r9, [rdi + {y}]\n", $("vmovups ymm", $y, ", [r9 + 4*rdx]\nadd r9, 64\n",)*)
    };
    (end factors none $batch:tt) => {
        concat!("vcvtph2ps ymm8, [rax + 2*rdx]\n", unit!(@end $batch))
    };
    (end factors min [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!(
            "vcvtph2ps ymm8, [rax + 2*rdx]\nvcvtph2ps ymm9, [rax + 2*rdx + 32]\n",
            "mov r9, [rdi + {y}]\n",
            $(
                "vfmadd213ps ymm", $y, ", ymm8, [r9 + 4*rdx]\n",
                "vfmadd231ps ymm", $y, ", ymm", $o, ", ymm9\n",
                "vmovups [r9 + 4*rdx], ymm", $y, "\nadd r9, 64\n",
            )*
        )
    };
    (end whole none $batch:tt) => {
        concat!("vmovups ymm8, [rax + 4*rdx]\n", unit!(@end $batch))
    };
    (end $kind:ident $min:ident [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!("mov r9, [rdi + {y}]\n", $("vmovups [r9 + 4*rdx], ymm", $y, "\nadd r9, 64\n",)*)
    };
    (@end [$(($y:tt $o:tt $a:tt $b:tt $x:tt))*]) => {
        concat!(
            "mov r9, [rdi + {y}]\n",
            $(
                "vfmadd213ps ymm", $y, ", ymm8, [r9 + 4*rdx]\n",
                "vmovups [r9 + 4*rdx], ymm", $y, "\nadd r9, 64\n",
            )*
        )
    };
    // Where the first group's scales are.
    (scales factors none) => {
        "lea r11, [rax + rdx + 32]\n"
    };
    (scales factors min) => {
        "lea r11, [rax + rdx + 64]\n"
    };
    (scales halves $min:ident) => {
        "lea r11, [rax + 2*rdx]\n"
    };
    (scales $kind:ident $min:ident) => {
        "lea r11, [rax + rdx]\n"
    };
}

/// One kernel: so many rows of activations, each with its registers and where it is.
macro_rules! kernel {
    (
        $tier:literal $field:ident $format:ident $batch:tt
        { bits: ($low:tt $high:tt), values: $values:ident $bias:tt $way:ident, scales: $kind:ident $min:ident $group:tt }
        $rows:tt [$($sum:tt)*]
    ) => {
        panel_kernel! {
            concat!("qgemv_packed_f32_q8_", stringify!($field), "_16x", $batch, "__", $tier),
            $format,
            // PROLOGUE
            "mov rax, [rdi + {w}]",
            "mov rcx, [rdi + {units}]",
            "mov rsi, [rdi + {x}]",
            "mov r8, [rdi + {stride}]",
            kernel!(@constant "12" "{low_mask}"),
            kernel!(@constant "13" "{high_mask}"),
            kernel!(@constant "15" "0x10001"),
            kernel!(@constant "11" "{bias}"),
            "vbroadcasti128 ymm14, [rdi + {table}]",
            "vpaddb ymm14, ymm14, ymm11",
            by_row!(begin $high),
            // A UNIT
            ".p2align 5",
            "2:",
            head_first!(),
            "xor edx, edx",
            // A HALF OF IT
            "3:",
            unit!(begin $kind $min $rows),
            unit!(scales $kind $min),
            "lea r10, [rax + 4*rdx + {head}]",
            "mov r9d, 8",
            "cmp rcx, 1",
            "jne 4f",
            // The last unit may have fewer steps, and a shorter head.
            "mov r10, [rdi + {last_head}]",
            "lea r9, [rax + 4*rdx]",
            "add r10, r9",
            "mov r9, [rdi + {last_steps}]",
            // A STEP
            ".p2align 5",
            "4:",
            planes_ahead!(),
            concat!($("vpxor ymm", $sum, ", ymm", $sum, ", ymm", $sum, "\n",)*),
            products!($low $high ($values $way) $rows),
            finish!($group $bias $way $kind $min $rows),
            by_row!(end $high),
            "add r10, {step}",
            "add rsi, 64",
            "dec r9d",
            "jnz 4b",
            unit!(end $kind $min $rows),
            "test edx, edx",
            "jnz 5f",
            "mov edx, 8",
            // Back to the unit's first activations.
            "mov r9d, 512",
            "cmp rcx, 1",
            "jne 6f",
            "mov r9, [rdi + {last_steps}]",
            "shl r9, 6",
            "6:",
            "sub rsi, r9",
            "jmp 3b",
            "5:",
            "lea rax, [r10 - 32]",
            "dec rcx",
            "jnz 2b",
            "vzeroupper",
            "ret";
            far = const crate::ops::ahead::FAR,
            // Codes of 8 bits need no mask, but what is to be subtracted from them.
            low_mask = const by_row!(low $low $high),
            high_mask = const by_row!(high $low $high),
            // Signed values are looked up as they are.
            bias = const EACH * kernel!(@table $way, bias(&<crate::quant::formats::$format as Pack>::PACKING)),
        }
    };
    (@constant $v:tt $value:tt) => {
        concat!("mov r9d, ", $value, "\nvmovd xmm", $v, ", r9d\nvpbroadcastd ymm", $v, ", xmm", $v, "\n")
    };
    (@table signed, $bias:expr) => {
        0
    };
    (@table $way:ident, $bias:expr) => {
        $bias
    };
}

/// The kernels of all formats: with AVX2 in the format's own way, with AVX-VNNI all in the same.
macro_rules! kernels {
    ({} $($(#[$on:meta])* $field:ident = $format:ident
        { bits: $bits:tt, values: $values:ident $bias:tt $way:ident, scales: $kind:ident $min:ident $group:tt })*) => {$(
        $(#[$on])*
        mod $field {
            use super::*;
            kernels! { @"avx2_maddubs" $field $format
                { bits: $bits, values: $values $bias $way, scales: $kind $min $group } }
            kernels! { @"avx2_vnni" $field $format
                { bits: $bits, values: $values $bias dot, scales: $kind $min $group } }
        }
    )*};
    (@$tier:literal $field:ident $format:ident $row:tt) => {
        kernel! { $tier $field $format "1" $row [("0" "2" "4" "5" "rsi")] ["4" "5"] }
        kernel! { $tier $field $format "2" $row
            [("0" "2" "4" "5" "rsi") ("1" "3" "6" "7" "rsi + r8")] ["4" "5" "6" "7"] }
    };
}
expand_all_packings! { kernels! {} }
