//! Packed quantised weights times activations of 8 bits, with AVX512-VNNI: for every format, and one to four
//! rows of activations.
//!
//! A register has four columns of 16 rows of weights, one unsigned byte each: index, or value plus a bias. `vpdpbusd`
//! multiplies them with four activations, which all lanes share, and adds the products up. Sums start with the negative
//! sum of the activations times what the bytes are too large by. See [`packed`](crate::quant::packed) for the layout,
//! [`panel`](crate::ops::qgemv_packed::panel) for the order of what is done in f32.
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

use super::super::packings::bias;
use super::mask;
use crate::quant::packed::Pack;

/// Low planes: each vector of 64 bytes becomes several.
macro_rules! low {
    // Bytes are columns already.
    (8) => {
        concat!(
            "vmovdqu8 zmm16, [r10]\n",
            "vmovdqu8 zmm17, [r10 + 64]\n",
            "vmovdqu8 zmm18, [r10 + 128]\n",
            "vmovdqu8 zmm19, [r10 + 192]\n",
            "vmovdqu8 zmm20, [r10 + 256]\n",
            "vmovdqu8 zmm21, [r10 + 320]\n",
            "vmovdqu8 zmm22, [r10 + 384]\n",
            "vmovdqu8 zmm23, [r10 + 448]\n",
        )
    };
    (4) => {
        concat!(
            low!(@"0" "16" ("20" "4")),
            low!(@"64" "17" ("21" "4")),
            low!(@"128" "18" ("22" "4")),
            low!(@"192" "19" ("23" "4")),
        )
    };
    (2) => {
        concat!(
            low!(@"0" "16" ("18" "2") ("20" "4") ("22" "6")),
            low!(@"64" "17" ("19" "2") ("21" "4") ("23" "6")),
        )
    };
    (1) => {
        low!(@"0" "16" ("17" "1") ("18" "2") ("19" "3") ("20" "4") ("21" "5") ("22" "6") ("23" "7"))
    };
    (@$at:tt $first:tt $(($v:tt $by:tt))*) => {
        concat!(
            "vmovdqu8 zmm", $first, ", [r10 + ", $at, "]\n",
            $(
                "vpsrld zmm", $v, ", zmm", $first, ", ", $by, "\n",
                "vpandd zmm", $v, ", zmm", $v, ", zmm30\n",
            )*
            "vpandd zmm", $first, ", zmm", $first, ", zmm30\n",
        )
    };
}

/// High planes: their bits are shifted to where they belong, and join the low ones.
macro_rules! high {
    ($low:tt 0) => {
        ""
    };
    (4 1) => {
        high!(@("24" "256") {
            ("16" "24" "l" "4") ("17" "24" "l" "3") ("18" "24" "l" "2") ("19" "24" "l" "1")
            ("20" "24" "l" "0") ("21" "24" "r" "1") ("22" "24" "r" "2") ("23" "24" "r" "3")
        })
    };
    (2 1) => {
        high!(@("24" "128") {
            ("16" "24" "l" "2") ("17" "24" "l" "1") ("18" "24" "l" "0") ("19" "24" "r" "1")
            ("20" "24" "r" "2") ("21" "24" "r" "3") ("22" "24" "r" "4") ("23" "24" "r" "5")
        })
    };
    (4 2) => {
        high!(@("24" "256") ("25" "320") {
            ("16" "24" "l" "4") ("17" "25" "l" "4") ("18" "24" "l" "2") ("19" "25" "l" "2")
            ("20" "24" "l" "0") ("21" "25" "l" "0") ("22" "24" "r" "2") ("23" "25" "r" "2")
        })
    };
    (@$(($plane:tt $at:tt))* { $(($v:tt $from:tt $way:tt $by:tt))* }) => {
        concat!(
            $("vmovdqu8 zmm", $plane, ", [r10 + ", $at, "]\n",)*
            $(
                "vps", $way, "ld zmm26, zmm", $from, ", ", $by, "\n",
                // v | zmm26 & mask
                "vpternlogd zmm", $v, ", zmm26, zmm31, 0xf8\n",
            )*
        )
    };
}

/// What high planes by row need: ones in all bytes, and a step's scales to be 16 bytes more.
macro_rules! by_row {
    (begin row) => {
        "mov r9d, 0x01010101\nvpbroadcastd zmm25, r9d\n"
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

/// What is multiplied, from the planes.
macro_rules! codes {
    // Eight times the low bits, and twice the high one: a byte of each row, that becomes those of four columns, and serves
    // eight.
    (2 row table) => {
        concat!(
            "vmovdqu8 zmm16, [r10]\n",
            "vmovdqu8 zmm17, [r10 + 64]\n",
            "vpmovzxbd zmm24, [r11 + 32]\n",
            "vpmulld zmm24, zmm24, zmm25\n",
            codes!(@high ("26" "l" "1") ("27" "r" "1") ("28" "r" "3") ("29" "r" "5")),
            codes!(@low
                ("18" "16" "l" "1" "27") ("20" "16" "r" "1" "28") ("22" "16" "r" "3" "29") ("16" "16" "l" "3" "26")
                ("19" "17" "l" "1" "27") ("21" "17" "r" "1" "28") ("23" "17" "r" "3" "29") ("17" "17" "l" "3" "26")),
        )
    };
    (@high $(($v:tt $way:tt $by:tt))*) => {
        concat!($(
            "vps", $way, "ld zmm", $v, ", zmm24, ", $by, "\n",
            "vpandd zmm", $v, ", zmm", $v, ", zmm31\n",
        )*)
    };
    (@low $(($v:tt $from:tt $way:tt $by:tt $high:tt))*) => {
        concat!($(
            "vps", $way, "ld zmm", $v, ", zmm", $from, ", ", $by, "\n",
            // v & zmm30 | high
            "vpternlogd zmm", $v, ", zmm30, zmm", $high, ", 0xea\n",
        )*)
    };
    ($low:tt $high:tt $values:ident) => {
        concat!(low!($low), high!($low $high), values!($values))
    };
}

/// From indices to what is multiplied, where a table says it.
macro_rules! values {
    (linear) => {
        ""
    };
    (table) => {
        concat!(
            "vpshufb zmm16, zmm27, zmm16\n",
            "vpshufb zmm17, zmm27, zmm17\n",
            "vpshufb zmm18, zmm27, zmm18\n",
            "vpshufb zmm19, zmm27, zmm19\n",
            "vpshufb zmm20, zmm27, zmm20\n",
            "vpshufb zmm21, zmm27, zmm21\n",
            "vpshufb zmm22, zmm27, zmm22\n",
            "vpshufb zmm23, zmm27, zmm23\n",
        )
    };
}

/// What a group's integers start with: its negative sum of activations, at `$sum`, times a power of two or 9.
macro_rules! start {
    (none $sum:tt $t:tt $x:tt) => {
        concat!("vpxord zmm", $t, ", zmm", $t, ", zmm", $t, "\n")
    };
    (0 $sum:tt $t:tt $x:tt) => {
        concat!("vpbroadcastd zmm", $t, ", dword ptr [", $x, " + ", $sum, "]\n")
    };
    (9 $sum:tt $t:tt $x:tt) => {
        concat!(start!(0 $sum $t $x), "vpslld zmm24, zmm", $t, ", 3\nvpaddd zmm", $t, ", zmm", $t, ", zmm24\n")
    };
    ($bias:tt $sum:tt $t:tt $x:tt) => {
        concat!(start!(0 $sum $t $x), "vpslld zmm", $t, ", zmm", $t, ", ", $bias, "\n")
    };
}

/// Products of some fours of columns, with one row of activations, in f32.
macro_rules! dot {
    ($bias:tt $sum:tt $t:tt $x:tt $(($v:tt $q:tt))*) => {
        concat!(
            start!($bias $sum $t $x),
            $("vpdpbusd zmm", $t, ", zmm", $v, ", dword ptr [", $x, " + ", $q, "]{{1to16}}\n",)*
            "vcvtdq2ps zmm", $t, ", zmm", $t, "\n",
            "vmulps zmm", $t, ", zmm", $t, ", dword ptr [", $x, " + 44]{{1to16}}\n",
        )
    };
}

/// Brings a group's scales to `zmm28`, its offsets to `zmm29`.
macro_rules! scales {
    (halves none) => {
        "vcvtph2ps zmm28, [r11]\nadd r11, 32\n"
    };
    (halves min) => {
        "vcvtph2ps zmm28, [r11]\nvcvtph2ps zmm29, [r11 + 32]\nadd r11, 64\n"
    };
    (whole none) => {
        ""
    };
    (factors none) => {
        "vpmovsxbd zmm28, [r11]\nvcvtdq2ps zmm28, zmm28\nadd r11, 16\n"
    };
    (factors min) => {
        concat!(
            "vpmovsxbd zmm28, [r11]\nvcvtdq2ps zmm28, zmm28\n",
            "vpmovsxbd zmm29, [r11 + 16]\nvcvtdq2ps zmm29, zmm29\nadd r11, 32\n",
        )
    };
    (e8m0 none) => {
        "vpmovzxbd zmm28, [r11]\nvpslld zmm28, zmm28, 23\nadd r11, 16\n"
    };
    (ue4m3 none) => {
        "vpmovzxbw ymm28, [r11]\nvpsllw ymm28, ymm28, 7\nvcvtph2ps zmm28, ymm28\nadd r11, 16\n"
    };
}

/// Adds a group's products to the sums, and its offset times the activations' sum at `$sum`.
macro_rules! add {
    (whole none $sum:tt ($y:tt $u:tt $o:tt $t:tt $x:tt)) => {
        concat!("vaddps zmm", $u, ", zmm", $u, ", zmm", $t, "\n")
    };
    (factors $min:ident $sum:tt ($y:tt $u:tt $o:tt $t:tt $x:tt)) => {
        concat!("vfmadd231ps zmm", $u, ", zmm", $t, ", zmm28\n", add!(@$min $sum $o $x))
    };
    ($kind:ident $min:ident $sum:tt ($y:tt $u:tt $o:tt $t:tt $x:tt)) => {
        concat!("vfmadd231ps zmm", $y, ", zmm", $t, ", zmm28\n", add!(@$min $sum $y $x))
    };
    (@none $sum:tt $to:tt $x:tt) => {
        ""
    };
    (@min $sum:tt $to:tt $x:tt) => {
        concat!("vfmadd231ps zmm", $to, ", zmm29, dword ptr [", $x, " + ", $sum, "]{{1to16}}\n")
    };
}

/// The products of a step.
macro_rules! products {
    (32 $bias:tt $kind:ident $min:ident $(($y:tt $u:tt $o:tt $t:tt $x:tt))*) => {
        concat!(
            scales!($kind $min),
            $(
                dot!($bias "40" $t $x ("16" "0") ("17" "4") ("18" "8") ("19" "12")
                    ("20" "16") ("21" "20") ("22" "24") ("23" "28")),
                add!($kind $min "56" ($y $u $o $t $x)),
            )*
        )
    };
    (16 $bias:tt $kind:ident $min:ident $(($y:tt $u:tt $o:tt $t:tt $x:tt))*) => {
        concat!(
            scales!($kind $min),
            $(
                dot!($bias "32" $t $x ("16" "0") ("17" "4") ("18" "8") ("19" "12")),
                add!($kind $min "48" ($y $u $o $t $x)),
            )*
            scales!($kind $min),
            $(
                dot!($bias "36" $t $x ("20" "16") ("21" "20") ("22" "24") ("23" "28")),
                add!($kind $min "52" ($y $u $o $t $x)),
            )*
        )
    };
}

/// Before and after the steps of a unit.
macro_rules! unit {
    (begin $kind:ident $min:ident $(($y:tt $u:tt $o:tt $t:tt $x:tt))*) => {
        concat!($(unit!(@begin $kind $min $u $o),)*)
    };
    (@begin factors min $u:tt $o:tt) => {
        concat!(unit!(@begin factors none $u $o), "vpxord zmm", $o, ", zmm", $o, ", zmm", $o, "\n")
    };
    (@begin factors none $u:tt $o:tt) => {
        concat!("vpxord zmm", $u, ", zmm", $u, ", zmm", $u, "\n")
    };
    (@begin whole none $u:tt $o:tt) => {
        unit!(@begin factors none $u $o)
    };
    (@begin $kind:ident $min:ident $u:tt $o:tt) => {
        ""
    };
    (end factors none $(($y:tt $u:tt $o:tt $t:tt $x:tt))*) => {
        concat!("vcvtph2ps zmm28, [rax]\n", $("vfmadd231ps zmm", $y, ", zmm", $u, ", zmm28\n",)*)
    };
    (end factors min $(($y:tt $u:tt $o:tt $t:tt $x:tt))*) => {
        concat!(
            unit!(end factors none $(($y $u $o $t $x))*),
            "vcvtph2ps zmm29, [rax + 32]\n",
            $("vfmadd231ps zmm", $y, ", zmm", $o, ", zmm29\n",)*
        )
    };
    (end whole none $(($y:tt $u:tt $o:tt $t:tt $x:tt))*) => {
        concat!("vmovups zmm28, [rax]\n", $("vfmadd231ps zmm", $y, ", zmm", $u, ", zmm28\n",)*)
    };
    (end $kind:ident $min:ident $($row:tt)*) => {
        ""
    };
    // Where the first group's scales are.
    (scales factors none) => {
        "lea r11, [rax + 32]\n"
    };
    (scales factors min) => {
        "lea r11, [rax + 64]\n"
    };
    (scales $kind:ident $min:ident) => {
        "mov r11, rax\n"
    };
}

/// One kernel: so many rows of activations.
macro_rules! kernel {
    (
        $field:ident $format:ident $batch:tt
        { bits: ($low:tt $high:tt), values: $values:ident $bias:tt, scales: $kind:ident $min:ident $group:tt }
        $(($y:tt $u:tt $o:tt $t:tt $x:tt))*
    ) => {
        panel_kernel! {
            concat!("qgemv_packed_f32_q8_", stringify!($field), "_16x", $batch, "__avx512_vnni"),
            $format,
            // PROLOGUE
            "mov rax, [rdi + {w}]",
            "mov rcx, [rdi + {units}]",
            "mov rsi, [rdi + {x}]",
            "mov rdx, [rdi + {stride}]",
            "lea r8, [rdx + 2*rdx]",
            "mov r9d, {low_mask}",
            "vpbroadcastd zmm30, r9d",
            "mov r9d, {high_mask}",
            "vpbroadcastd zmm31, r9d",
            "mov r9d, {bias}",
            "vpbroadcastd zmm27, r9d",
            "vbroadcasti32x4 zmm26, [rdi + {table}]",
            "vpaddb zmm27, zmm27, zmm26",
            by_row!(begin $high),
            concat!($("vpxord zmm", $y, ", zmm", $y, ", zmm", $y, "\n",)*),
            // A UNIT
            ".p2align 5",
            "2:",
            head_first!(),
            unit!(begin $kind $min $(($y $u $o $t $x))*),
            unit!(scales $kind $min),
            "lea r10, [rax + {head}]",
            "mov r9d, 8",
            "dec rcx",
            "jnz 3f",
            // The last unit may have fewer steps, and a shorter head.
            "mov r9, [rdi + {last_steps}]",
            "mov r10, [rdi + {last_head}]",
            "add r10, rax",
            // A STEP
            ".p2align 5",
            "3:",
            planes_ahead!(),
            codes!($low $high $values),
            products!($group $bias $kind $min $(($y $u $o $t $x))*),
            by_row!(end $high),
            "add r10, {step}",
            "add rsi, 64",
            "dec r9d",
            "jnz 3b",
            unit!(end $kind $min $(($y $u $o $t $x))*),
            "mov rax, r10",
            "test rcx, rcx",
            "jnz 2b",
            // STORE
            "mov rax, [rdi + {y}]",
            concat!($("vmovups [rax], zmm", $y, "\nadd rax, 64\n",)*),
            "vzeroupper",
            "ret";
            far = const crate::ops::ahead::FAR,
            low_mask = const by_row!(low $low $high),
            high_mask = const by_row!(high $low $high),
            bias = const bias(&<crate::quant::formats::$format as Pack>::PACKING),
        }
    };
}

/// The kernels of all formats.
macro_rules! kernels {
    ({} $($(#[$on:meta])* $field:ident = $format:ident
        { bits: $bits:tt, values: $values:ident $bias:tt $way:ident, scales: $kind:ident $min:ident $group:tt })*) => {$(
        $(#[$on])*
        mod $field {
            use super::*;
            kernels! { @$field $format { bits: $bits, values: $values $bias, scales: $kind $min $group } }
        }
    )*};
    (@$field:ident $format:ident $row:tt) => {
        kernel! { $field $format "1" $row ("0" "4" "8" "12" "rsi") }
        kernel! { $field $format "2" $row ("0" "4" "8" "12" "rsi") ("1" "5" "9" "13" "rsi + rdx") }
        kernel! { $field $format "3" $row
            ("0" "4" "8" "12" "rsi") ("1" "5" "9" "13" "rsi + rdx") ("2" "6" "10" "14" "rsi + 2*rdx") }
        kernel! { $field $format "4" $row
            ("0" "4" "8" "12" "rsi") ("1" "5" "9" "13" "rsi + rdx") ("2" "6" "10" "14" "rsi + 2*rdx")
            ("3" "7" "11" "15" "rsi + r8") }
    };
}
expand_all_packings! { kernels! {} }
