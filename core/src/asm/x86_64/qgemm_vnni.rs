//! Panels of quantised weights times panels of activations of 8 bits, with AVX512-VNNI: for groups of 32 columns or 16,
//! with offsets or without, and so many rows of activations.
//!
//! A register has four columns of 16 rows of weights, one unsigned byte each. `vpdpbusd` multiplies them with four
//! activations, which all lanes share, and adds the products up. The weights of 32 columns stay in eight registers, while
//! rows of activations meet them, four at a time: as many sums wait for each other, that none waits. See
//! [`tile`](crate::ops::qgemm::tile::tile) for the order of what is done in f32.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `QTileArgs` |
//! | `rax`, `rcx`, `rdx` | the step's codes, scales, offsets |
//! | `rsi`, `r8` | the step's activations, bytes to the next step |
//! | `r9` | steps that are left |
//! | `zmm0`..`zmm7` | the step's columns, by fours |
//! | `zmm8`..`zmm19` | results, by row of activations |
//! | `zmm20`..`zmm23` | integers of four rows, of the first group |
//! | `zmm24`..`zmm27` | of the second |
//! | `zmm28`, `zmm29` | offsets |
//!
//! A Zen 4 starts one of its multiplications a cycle: 8 `vpdpbusd` and 2 in f32 for a group of 32 and a row, so 80 % of the
//! peak; 3 in f32 for two groups of 16, or for one with an offset: 73 %; 5 with both: 62 %. Measured: 78, 72 and 61 %.

/// For each row of activations: `$each`, with the row's registers and where its step is.
macro_rules! products {
    // One group: integers of four columns after the other.
    (32 $(($y:tt $a:tt $b:tt $x:tt))*) => {
        concat!(
            $("vpbroadcastd zmm", $a, ", dword ptr [rsi + ", $x, " + 40]\n",)*
            products!(@four "0" "0" $(($a $x))*),
            products!(@four "1" "4" $(($a $x))*),
            products!(@four "2" "8" $(($a $x))*),
            products!(@four "3" "12" $(($a $x))*),
            products!(@four "4" "16" $(($a $x))*),
            products!(@four "5" "20" $(($a $x))*),
            products!(@four "6" "24" $(($a $x))*),
            products!(@four "7" "28" $(($a $x))*),
            $("vcvtdq2ps zmm", $a, ", zmm", $a, "\n",)*
            $("vmulps zmm", $a, ", zmm", $a, ", [rcx]\n",)*
        )
    };
    (16 $(($y:tt $a:tt $b:tt $x:tt))*) => {
        concat!(
            $("vpbroadcastd zmm", $a, ", dword ptr [rsi + ", $x, " + 32]\n",)*
            $("vpbroadcastd zmm", $b, ", dword ptr [rsi + ", $x, " + 36]\n",)*
            products!(@four "0" "0" $(($a $x))*),
            products!(@four "4" "16" $(($b $x))*),
            products!(@four "1" "4" $(($a $x))*),
            products!(@four "5" "20" $(($b $x))*),
            products!(@four "2" "8" $(($a $x))*),
            products!(@four "6" "24" $(($b $x))*),
            products!(@four "3" "12" $(($a $x))*),
            products!(@four "7" "28" $(($b $x))*),
            $("vcvtdq2ps zmm", $a, ", zmm", $a, "\n",)*
            $("vcvtdq2ps zmm", $b, ", zmm", $b, "\n",)*
            $("vmulps zmm", $a, ", zmm", $a, ", [rcx]\n",)*
            $("vfmadd231ps zmm", $a, ", zmm", $b, ", [rcx + 64]\n",)*
        )
    };
    (@four $w:tt $at:tt $(($sum:tt $x:tt))*) => {
        concat!($("vpdpbusd zmm", $sum, ", zmm", $w, ", dword ptr [rsi + ", $x, " + ", $at, "]{{1to16}}\n",)*)
    };
}

/// Adds offsets times sums of activations.
macro_rules! offsets {
    (none $group:tt $($row:tt)*) => {
        ""
    };
    (min 32 $(($y:tt $a:tt $b:tt $x:tt))*) => {
        concat!($("vfmadd231ps zmm", $y, ", zmm28, dword ptr [rsi + ", $x, " + 56]{{1to16}}\n",)*)
    };
    (min 16 $(($y:tt $a:tt $b:tt $x:tt))*) => {
        concat!(
            $("vfmadd231ps zmm", $y, ", zmm28, dword ptr [rsi + ", $x, " + 48]{{1to16}}\n",)*
            $("vfmadd231ps zmm", $y, ", zmm29, dword ptr [rsi + ", $x, " + 52]{{1to16}}\n",)*
        )
    };
    (load none $group:tt) => {
        ""
    };
    (load min 32) => {
        "vmovups zmm28, [rdx]\nadd rdx, 64\n"
    };
    (load min 16) => {
        "vmovups zmm28, [rdx]\nvmovups zmm29, [rdx + 64]\nadd rdx, 128\n"
    };
}

/// One kernel: rows of activations in fours (the last perhaps fewer), each row with its registers and its place.
macro_rules! kernel {
    ($kind:literal $height:literal $group:tt $scales:literal $min:ident $({ $(($y:tt $a:tt $b:tt $x:tt))* })*) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $height, "x16__avx512_vnni"),
            // PROLOGUE
            "mov rax, [rdi + {codes}]",
            "mov rcx, [rdi + {scales}]",
            "mov rdx, [rdi + {offsets}]",
            "mov rsi, [rdi + {x}]",
            "mov r8, [rdi + {x_step}]",
            "mov r9, [rdi + {steps}]",
            concat!($($("vpxord zmm", $y, ", zmm", $y, ", zmm", $y, "\n",)*)*),
            // A STEP
            ".p2align 6",
            "2:",
            "vmovdqu8 zmm0, [rax]",
            "vmovdqu8 zmm1, [rax + 64]",
            "vmovdqu8 zmm2, [rax + 128]",
            "vmovdqu8 zmm3, [rax + 192]",
            "vmovdqu8 zmm4, [rax + 256]",
            "vmovdqu8 zmm5, [rax + 320]",
            "vmovdqu8 zmm6, [rax + 384]",
            "vmovdqu8 zmm7, [rax + 448]",
            offsets!(load $min $group),
            concat!($(
                products!($group $(($y $a $b $x))*),
                $("vfmadd231ps zmm", $y, ", zmm", $a, ", dword ptr [rsi + ", $x, " + 44]{{1to16}}\n",)*
                offsets!($min $group $(($y $a $b $x))*),
            )*),
            "add rax, 512",
            concat!("add rcx, ", $scales),
            "add rsi, r8",
            "dec r9",
            "jnz 2b",
            // STORE
            "mov rax, [rdi + {y}]",
            concat!($($("vmovups [rax], zmm", $y, "\nadd rax, 64\n",)*)*),
            "vzeroupper",
            "ret";
        }
    };
}

/// The kernels of each kind for so many rows.
macro_rules! heights {
    ($($height:literal $rows:tt;)*) => {$(
        heights! { @ $height $rows }
    )*};
    (@ $height:literal [$($fours:tt)*]) => {
        kernel! { "g32" $height 32 "64" none $($fours)* }
        kernel! { "g16" $height 16 "128" none $($fours)* }
        kernel! { "g32m" $height 32 "64" min $($fours)* }
        kernel! { "g16m" $height 16 "128" min $($fours)* }
    };
}
heights! {
    "1" [{ ("8" "20" "24" "0") }];
    "2" [{ ("8" "20" "24" "0") ("9" "21" "25" "64") }];
    "3" [{ ("8" "20" "24" "0") ("9" "21" "25" "64") ("10" "22" "26" "128") }];
    "4" [{ ("8" "20" "24" "0") ("9" "21" "25" "64") ("10" "22" "26" "128") ("11" "23" "27" "192") }];
    "8" [
        { ("8" "20" "24" "0") ("9" "21" "25" "64") ("10" "22" "26" "128") ("11" "23" "27" "192") }
        { ("12" "20" "24" "256") ("13" "21" "25" "320") ("14" "22" "26" "384") ("15" "23" "27" "448") }
    ];
    "12" [
        { ("8" "20" "24" "0") ("9" "21" "25" "64") ("10" "22" "26" "128") ("11" "23" "27" "192") }
        { ("12" "20" "24" "256") ("13" "21" "25" "320") ("14" "22" "26" "384") ("15" "23" "27" "448") }
        { ("16" "20" "24" "512") ("17" "21" "25" "576") ("18" "22" "26" "640") ("19" "23" "27" "704") }
    ];
}
