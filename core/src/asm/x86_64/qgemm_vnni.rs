//! Two panels of quantised weights times panels of activations of 8 bits, with AVX512-VNNI: for groups of 32 columns or
//! 16, with offsets or without, and so many rows of activations.
//!
//! A register has four columns of 16 rows of weights, one unsigned byte each. `vpdpbusd` multiplies them with four
//! activations, which all lanes share, and adds the products up. Four activations meet both panels, so that there are fewer
//! loads than products; twelve sums, in turn, as one waits four or five cycles. See
//! [`tile`](crate::ops::qgemm::tile::tile) for the order of what is done in f32.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `QTileArgs` |
//! | `rax`, `rcx`, `rdx` | the step's codes, scales, offsets |
//! | `r10` | bytes to those of the second panel |
//! | `rsi`, `r8` | the step's activations, bytes to the next step |
//! | `r9` | steps that are left |
//! | `zmm0`, `zmm1` | four columns of each panel, then its scales, then its offsets |
//! | `zmm2` | what of a row of activations all lanes share |
//! | `zmm8`..`zmm19` | integers of up to six rows; of three, if these have two groups |
//! | `zmm20`..`zmm31` | results, by row of activations |
//!
//! A Zen 4 starts one of its multiplications a cycle, a Zen 5 two: 8 `vpdpbusd` and 2 in f32 for a group of 32 and a row, so
//! 80 % of the peak; 3 in f32 for two groups of 16, or for one with an offset: 73 %; 5 with both: 62 %. Measured on Zen 5: 79, 73,
//! 72 and 61 %.

/// For each row of activations, with its registers and where its step is: the products' scaled sums.
macro_rules! products {
    // One group: integers of four columns after the other.
    (32 $(($y:tt $z:tt $a:tt $b:tt $x:tt))*) => {
        concat!(
            $("vpbroadcastd zmm", $a, ", dword ptr [rsi + ", $x, " + 40]\n",)*
            $("vmovdqa64 zmm", $b, ", zmm", $a, "\n",)*
            products!(@four "0" "0" $(($a $b $x))*),
            products!(@four "64" "4" $(($a $b $x))*),
            products!(@four "128" "8" $(($a $b $x))*),
            products!(@four "192" "12" $(($a $b $x))*),
            products!(@four "256" "16" $(($a $b $x))*),
            products!(@four "320" "20" $(($a $b $x))*),
            products!(@four "384" "24" $(($a $b $x))*),
            products!(@four "448" "28" $(($a $b $x))*),
            products!(@scale $(($a $b))*),
        )
    };
    (16 $(($y:tt $z:tt $a:tt $b:tt $c:tt $d:tt $x:tt))*) => {
        concat!(
            $("vpbroadcastd zmm", $a, ", dword ptr [rsi + ", $x, " + 32]\n",)*
            $("vmovdqa64 zmm", $b, ", zmm", $a, "\n",)*
            $("vpbroadcastd zmm", $c, ", dword ptr [rsi + ", $x, " + 36]\n",)*
            $("vmovdqa64 zmm", $d, ", zmm", $c, "\n",)*
            products!(@four "0" "0" $(($a $b $x))*),
            products!(@four "256" "16" $(($c $d $x))*),
            products!(@four "64" "4" $(($a $b $x))*),
            products!(@four "320" "20" $(($c $d $x))*),
            products!(@four "128" "8" $(($a $b $x))*),
            products!(@four "384" "24" $(($c $d $x))*),
            products!(@four "192" "12" $(($a $b $x))*),
            products!(@four "448" "28" $(($c $d $x))*),
            products!(@scale $(($a $b))*),
            both!("vmovups" "rcx" "64"),
            $("vcvtdq2ps zmm", $c, ", zmm", $c, "\n",)*
            $("vcvtdq2ps zmm", $d, ", zmm", $d, "\n",)*
            $("vfmadd231ps zmm", $a, ", zmm", $c, ", zmm0\n",)*
            $("vfmadd231ps zmm", $b, ", zmm", $d, ", zmm1\n",)*
        )
    };
    (@four $w:tt $at:tt $(($a:tt $b:tt $x:tt))*) => {
        concat!(
            both!("vmovdqu8" "rax" $w),
            $(
                "vpbroadcastd zmm2, dword ptr [rsi + ", $x, " + ", $at, "]\n",
                "vpdpbusd zmm", $a, ", zmm0, zmm2\n",
                "vpdpbusd zmm", $b, ", zmm1, zmm2\n",
            )*
        )
    };
    (@scale $(($a:tt $b:tt))*) => {
        concat!(
            both!("vmovups" "rcx" "0"),
            $("vcvtdq2ps zmm", $a, ", zmm", $a, "\n",)*
            $("vcvtdq2ps zmm", $b, ", zmm", $b, "\n",)*
            $("vmulps zmm", $a, ", zmm", $a, ", zmm0\n",)*
            $("vmulps zmm", $b, ", zmm", $b, ", zmm1\n",)*
        )
    };
}

/// Loads from both panels.
macro_rules! both {
    ($load:literal $from:literal $at:literal) => {
        concat!(
            $load,
            " zmm0, [",
            $from,
            " + ",
            $at,
            "]\n",
            $load,
            " zmm1, [",
            $from,
            " + r10 + ",
            $at,
            "]\n",
        )
    };
}

/// Adds to results what is in `$a`, `$b`, times the number at `$at` of the step of activations.
macro_rules! add {
    ($at:literal $(($y:tt $z:tt $a:tt $b:tt $x:tt))*) => {
        concat!($(
            "vpbroadcastd zmm2, dword ptr [rsi + ", $x, " + ", $at, "]\n",
            "vfmadd231ps zmm", $y, ", zmm", $a, ", zmm2\n",
            "vfmadd231ps zmm", $z, ", zmm", $b, ", zmm2\n",
        )*)
    };
}

/// Adds offsets times sums of activations.
macro_rules! offsets {
    (none $group:tt $($row:tt)*) => {
        ""
    };
    (min 32 $(($y:tt $z:tt $x:tt))*) => {
        concat!(both!("vmovups" "rdx" "0"), add!("56" $(($y $z "0" "1" $x))*))
    };
    (min 16 $(($y:tt $z:tt $x:tt))*) => {
        concat!(
            both!("vmovups" "rdx" "0"), add!("48" $(($y $z "0" "1" $x))*),
            both!("vmovups" "rdx" "64"), add!("52" $(($y $z "0" "1" $x))*),
        )
    };
}

/// One kernel: rows of activations that are computed together, each row with its registers and its place.
macro_rules! kernel {
    ($kind:literal $height:literal $group:tt $scales:literal $min:ident
        $({ $(($y:tt $z:tt $a:tt $b:tt $($cd:literal $dd:literal)? / $x:tt))* })*) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $height, "x32__avx512_vnni"),
            // PROLOGUE
            "mov rax, [rdi + {codes}]",
            "mov rcx, [rdi + {scales}]",
            "mov rdx, [rdi + {offsets}]",
            "mov r10, [rdi + {beside}]",
            "mov rsi, [rdi + {x}]",
            "mov r8, [rdi + {x_step}]",
            "mov r9, [rdi + {steps}]",
            concat!($($("vpxord zmm", $y, ", zmm", $y, ", zmm", $y, "\n",)*)*),
            concat!($($("vpxord zmm", $z, ", zmm", $z, ", zmm", $z, "\n",)*)*),
            // A STEP
            ".p2align 6",
            "2:",
            concat!($(
                products!($group $(($y $z $a $b $($cd $dd)? $x))*),
                add!("44" $(($y $z $a $b $x))*),
                offsets!($min $group $(($y $z $x))*),
            )*),
            "add rax, 512",
            concat!("add rcx, ", $scales),
            concat!("add rdx, ", $scales),
            "add rsi, r8",
            "dec r9",
            "jnz 2b",
            // STORE
            "mov rax, [rdi + {y}]",
            concat!($($(
                "vmovups [rax], zmm", $y, "\n",
                "vmovups [rax + 64], zmm", $z, "\n",
                "add rax, 128\n",
            )*)*),
            "vzeroupper",
            "ret";
            x_step = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x_step),
            beside = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, beside),
        }
    };
}

/// The kernels of each kind for so many rows: `one` group in a step, or `two`.
macro_rules! heights {
    ($($height:literal one $one:tt two $two:tt;)*) => {$(
        heights! { @ $height $one $two }
    )*};
    (@ $height:literal [$($one:tt)*] [$($two:tt)*]) => {
        kernel! { "g32" $height 32 "64" none $($one)* }
        kernel! { "g32m" $height 32 "64" min $($one)* }
        kernel! { "g16" $height 16 "128" none $($two)* }
        kernel! { "g16m" $height 16 "128" min $($two)* }
    };
}
heights! {
    "1" one [{ ("20" "21" "8" "9" / "0") }]
        two [{ ("20" "21" "8" "9" "14" "15" / "0") }];
    "2" one [{ ("20" "21" "8" "9" / "0") ("22" "23" "10" "11" / "64") }]
        two [{ ("20" "21" "8" "9" "14" "15" / "0") ("22" "23" "10" "11" "16" "17" / "64") }];
    "3" one [{ ("20" "21" "8" "9" / "0") ("22" "23" "10" "11" / "64") ("24" "25" "12" "13" / "128") }]
        two [{ ("20" "21" "8" "9" "14" "15" / "0") ("22" "23" "10" "11" "16" "17" / "64") ("24" "25" "12" "13" "18" "19" / "128") }];
    "4" one [{ ("20" "21" "8" "9" / "0") ("22" "23" "10" "11" / "64") ("24" "25" "12" "13" / "128") ("26" "27" "14" "15" / "192") }]
        two [
            { ("20" "21" "8" "9" "14" "15" / "0") ("22" "23" "10" "11" "16" "17" / "64") }
            { ("24" "25" "8" "9" "14" "15" / "128") ("26" "27" "10" "11" "16" "17" / "192") }
        ];
    "5" one [{
            ("20" "21" "8" "9" / "0") ("22" "23" "10" "11" / "64") ("24" "25" "12" "13" / "128")
            ("26" "27" "14" "15" / "192") ("28" "29" "16" "17" / "256")
        }]
        two [
            { ("20" "21" "8" "9" "14" "15" / "0") ("22" "23" "10" "11" "16" "17" / "64") ("24" "25" "12" "13" "18" "19" / "128") }
            { ("26" "27" "8" "9" "14" "15" / "192") ("28" "29" "10" "11" "16" "17" / "256") }
        ];
    "6" one [{
            ("20" "21" "8" "9" / "0") ("22" "23" "10" "11" / "64") ("24" "25" "12" "13" / "128")
            ("26" "27" "14" "15" / "192") ("28" "29" "16" "17" / "256") ("30" "31" "18" "19" / "320")
        }]
        two [
            { ("20" "21" "8" "9" "14" "15" / "0") ("22" "23" "10" "11" "16" "17" / "64") ("24" "25" "12" "13" "18" "19" / "128") }
            { ("26" "27" "8" "9" "14" "15" / "192") ("28" "29" "10" "11" "16" "17" / "256") ("30" "31" "12" "13" "18" "19" / "320") }
        ];
}
