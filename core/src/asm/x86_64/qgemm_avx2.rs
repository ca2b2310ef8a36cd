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

/// Four columns times the activations at `$at` of each row. The first of a group's starts the sum.
macro_rules! four {
    (dot $first:ident $w:tt $at:tt $(($sum:tt $x:tt))*) => {
        concat!(
            "vmovdqu ymm12, [rax + ", $w, "]\n",
            $(
                "vpbroadcastd ymm14, dword ptr [rsi + ", $x, " + ", $at, "]\n",
                "{{vex}} vpdpbusd ymm", $sum, ", ymm12, ymm14\n",
            )*
        )
    };
    ($sums:ident $first:ident $w:tt $at:tt $(($sum:tt $x:tt))*) => {
        concat!(
            "vmovdqu ymm12, [rax + ", $w, "]\n",
            "vpabsb ymm13, ymm12\n",
            $(
                "vpbroadcastd ymm14, dword ptr [rsi + ", $x, " + ", $at, "]\n",
                "vpsignb ymm14, ymm14, ymm12\n",
                four!(@$sums $first $sum),
            )*
        )
    };
    (@wide first $sum:tt) => {
        concat!("vpmaddubsw ymm14, ymm13, ymm14\nvpmaddwd ymm", $sum, ", ymm14, ymm15\n")
    };
    (@wide next $sum:tt) => {
        concat!(
            "vpmaddubsw ymm14, ymm13, ymm14\n",
            "vpmaddwd ymm14, ymm14, ymm15\n",
            "vpaddd ymm", $sum, ", ymm", $sum, ", ymm14\n",
        )
    };
    (@narrow first $sum:tt) => {
        concat!("vpmaddubsw ymm", $sum, ", ymm13, ymm14\n")
    };
    (@narrow next $sum:tt) => {
        concat!("vpmaddubsw ymm14, ymm13, ymm14\nvpaddw ymm", $sum, ", ymm", $sum, ", ymm14\n")
    };
}

/// What the integers of a group start with, at `$at` of each row's step: `vpdpbusd` adds to it.
macro_rules! start {
    (dot $at:tt $(($sum:tt $x:tt))*) => {
        concat!($("vpbroadcastd ymm", $sum, ", dword ptr [rsi + ", $x, " + ", $at, "]\n",)*)
    };
    ($sums:ident $at:tt $(($sum:tt $x:tt))*) => {
        ""
    };
}

/// Sums in f32.
macro_rules! converted {
    (dot $sum:tt) => {
        converted!(wide $sum)
    };
    (wide $sum:tt) => {
        concat!("vcvtdq2ps ymm", $sum, ", ymm", $sum, "\n")
    };
    (narrow $sum:tt) => {
        concat!("vpmaddwd ymm", $sum, ", ymm", $sum, ", ymm15\n", converted!(wide $sum))
    };
}

/// Integers, in f32 and times their scales.
macro_rules! products {
    ($sums:ident 32 $(($y:tt $a:tt $b:tt $x:tt))*) => {
        concat!(
            start!($sums "40" $(($a $x))*),
            four!($sums first "0" "0" $(($a $x))*),
            four!($sums next "64" "4" $(($a $x))*),
            four!($sums next "128" "8" $(($a $x))*),
            four!($sums next "192" "12" $(($a $x))*),
            four!($sums next "256" "16" $(($a $x))*),
            four!($sums next "320" "20" $(($a $x))*),
            four!($sums next "384" "24" $(($a $x))*),
            four!($sums next "448" "28" $(($a $x))*),
            $(converted!($sums $a),)*
            $("vmulps ymm", $a, ", ymm", $a, ", [rcx]\n",)*
        )
    };
    ($sums:ident 16 $(($y:tt $a:tt $b:tt $x:tt))*) => {
        concat!(
            start!($sums "32" $(($a $x))*),
            start!($sums "36" $(($b $x))*),
            four!($sums first "0" "0" $(($a $x))*),
            four!($sums next "64" "4" $(($a $x))*),
            four!($sums next "128" "8" $(($a $x))*),
            four!($sums next "192" "12" $(($a $x))*),
            four!($sums first "256" "16" $(($b $x))*),
            four!($sums next "320" "20" $(($b $x))*),
            four!($sums next "384" "24" $(($b $x))*),
            four!($sums next "448" "28" $(($b $x))*),
            $(converted!($sums $a),)*
            $(converted!($sums $b),)*
            $("vmulps ymm", $a, ", ymm", $a, ", [rcx]\n",)*
            $("vfmadd231ps ymm", $a, ", ymm", $b, ", [rcx + 64]\n",)*
        )
    };
}

/// Adds offsets, at `$at` of the step's, times sums of activations.
macro_rules! offsets {
    (none $group:tt $($row:tt)*) => {
        ""
    };
    (min 32 $($row:tt)*) => {
        concat!(offsets!(@"0" "56" $($row)*), "add rdx, 64\n")
    };
    (min 16 $($row:tt)*) => {
        concat!(offsets!(@"0" "48" $($row)*), offsets!(@"64" "52" $($row)*), "add rdx, 128\n")
    };
    (@$at:tt $sum:tt $(($y:tt $a:tt $b:tt $x:tt))*) => {
        concat!($(
            "vbroadcastss ymm14, dword ptr [rsi + ", $x, " + ", $sum, "]\n",
            "vfmadd231ps ymm", $y, ", ymm14, [rdx + ", $at, "]\n",
        )*)
    };
}

/// One kernel: so many rows of activations, each with its registers and its place.
macro_rules! kernel {
    ($tier:literal $kind:literal $height:literal $sums:ident $group:tt $scales:literal $min:ident
        $(($y:tt $a:tt $b:tt $x:tt))*) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $height, "x16__", $tier),
            // PROLOGUE
            "mov r9d, 0x10001",
            "vmovd xmm15, r9d",
            "vpbroadcastd ymm15, xmm15",
            "mov r8, [rdi + {x_step}]",
            "xor r10d, r10d",
            // HALF A PANEL
            "2:",
            "mov rax, [rdi + {codes}]",
            "mov rcx, [rdi + {scales}]",
            "mov rdx, [rdi + {offsets}]",
            "mov rsi, [rdi + {x}]",
            "mov r9, [rdi + {steps}]",
            "add rax, r10",
            "add rcx, r10",
            "add rdx, r10",
            concat!($("vpxor ymm", $y, ", ymm", $y, ", ymm", $y, "\n",)*),
            // A STEP
            ".p2align 5",
            "3:",
            products!($sums $group $(($y $a $b $x))*),
            concat!($(
                "vbroadcastss ymm14, dword ptr [rsi + ", $x, " + 44]\n",
                "vfmadd231ps ymm", $y, ", ymm", $a, ", ymm14\n",
            )*),
            offsets!($min $group $(($y $a $b $x))*),
            "add rax, 512",
            concat!("add rcx, ", $scales),
            "add rsi, r8",
            "dec r9",
            "jnz 3b",
            // STORE
            "mov rax, [rdi + {y}]",
            concat!($("vmovups [rax + r10], ymm", $y, "\nadd rax, 64\n",)*),
            "add r10d, 32",
            "cmp r10d, 64",
            "jb 2b",
            "vzeroupper",
            "ret";
            x_step = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x_step),
        }
    };
}

/// The kernels of each kind for so many rows, with sums in 32 bits and in 16, and those with AVX-VNNI.
macro_rules! heights {
    ($($height:literal [$($rows:tt)*];)*) => {$(
        kernel! { "avx2_maddubs" "g32" $height wide 32 "64" none $($rows)* }
        kernel! { "avx2_maddubs" "g16" $height wide 16 "128" none $($rows)* }
        kernel! { "avx2_maddubs" "g32m" $height wide 32 "64" min $($rows)* }
        kernel! { "avx2_maddubs" "g16m" $height wide 16 "128" min $($rows)* }
        kernel! { "avx2_maddubs" "n32" $height narrow 32 "64" none $($rows)* }
        kernel! { "avx2_maddubs" "n16" $height narrow 16 "128" none $($rows)* }
        kernel! { "avx2_maddubs" "n32m" $height narrow 32 "64" min $($rows)* }
        kernel! { "avx2_maddubs" "n16m" $height narrow 16 "128" min $($rows)* }
        kernel! { "avx2_vnni" "g32" $height dot 32 "64" none $($rows)* }
        kernel! { "avx2_vnni" "g16" $height dot 16 "128" none $($rows)* }
        kernel! { "avx2_vnni" "g32m" $height dot 32 "64" min $($rows)* }
        kernel! { "avx2_vnni" "g16m" $height dot 16 "128" min $($rows)* }
    )*};
}
heights! {
    "1" [("0" "4" "8" "0")];
    "2" [("0" "4" "8" "0") ("1" "5" "9" "64")];
    "3" [("0" "4" "8" "0") ("1" "5" "9" "64") ("2" "6" "10" "128")];
    "4" [("0" "4" "8" "0") ("1" "5" "9" "64") ("2" "6" "10" "128") ("3" "7" "11" "192")];
}
