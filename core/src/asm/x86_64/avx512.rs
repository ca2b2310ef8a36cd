//! The 14x32 tile of AVX-512.
//!
//! ```text
//!            columns 0..16   16..32
//! row 0          zmm0          zmm1      zmm28, zmm29   a step of B
//! row 1          zmm2          zmm3      zmm30, zmm31   an element of A in every lane, in turn
//!  ..             ..            ..
//! row 13        zmm26         zmm27      k1..k5         columns that exist, when C is written
//! ```

macro_rules! rows_14x32 {
    ($then:ident $($argument:tt)*) => {
        $then! { $($argument)* [
            { "201" "301" ("rax + 4*rdi" "0" "1" "30") }
            { "202" "302" ("rdx + 8*rdi" "2" "3" "31") }
            { "203" "303" ("rax + 2*rdi" "4" "5" "30") }
            { "204" "304" ("rax + rdi" "6" "7" "31") }
            { "205" "305" ("rax" "8" "9" "30") }
            { "206" "306" ("rax + r10" "10" "11" "31") }
            { "207" "307" ("rax + 2*r10" "12" "13" "30") }
            { "208" "308" ("rdx + 2*rdi" "14" "15" "31") }
            { "209" "309" ("rdx + rdi" "16" "17" "30") }
            { "210" "310" ("rdx" "18" "19" "31") }
            { "211" "311" ("rdx + r10" "20" "21" "30") }
            { "212" "312" ("rdx + 2*r10" "22" "23" "31") }
            { "213" "313" ("rax + 8*r10" "24" "25" "30") }
            { "214" "314" ("rdx + 4*r10" "26" "27" "31") }
        ] }
    };
}

/// What is done with a row when its sums are there. All rows of C are read before the first is written: where
/// they are a multiple of 4 KiB apart, reading one would wait for the write of the one before.
macro_rules! store_14x32 {
    // to C
    (plain $acc0:tt $acc1:tt) => {
        concat!("vmovups [rdx], zmm", $acc0, "\n", "vmovups [rdx + 64], zmm", $acc1, "\n")
    };
    // A B + C, still in registers
    (add $acc0:tt $acc1:tt) => {
        concat!(
            "vaddps zmm",
            $acc0,
            ", zmm",
            $acc0,
            ", [rdx]\n",
            "vaddps zmm",
            $acc1,
            ", zmm",
            $acc1,
            ", [rdx + 64]\n",
        )
    };
    // alpha A B + beta C; C is read in k3, k4: in the columns that exist, or nowhere if beta is 0
    (scale $acc0:tt $acc1:tt) => {
        concat!(
            "vmulps zmm",
            $acc0,
            ", zmm",
            $acc0,
            ", zmm28\n",
            "vmulps zmm",
            $acc1,
            ", zmm",
            $acc1,
            ", zmm28\n",
            "vfmadd231ps zmm",
            $acc0,
            "{{k3}}, zmm29, [rdx]\n",
            "vfmadd231ps zmm",
            $acc1,
            "{{k4}}, zmm29, [rdx + 64]\n",
        )
    };
    // to the columns k1, k2
    (masked $acc0:tt $acc1:tt) => {
        concat!("vmovups [rdx]{{k1}}, zmm", $acc0, "\n", "vmovups [rdx + 64]{{k2}}, zmm", $acc1, "\n",)
    };
}

/// A kernel with this tile: `load` says how `B` comes to registers, see `load_b!`.
macro_rules! microkernel_14x32 {
    ($name:literal, load: $kind:ident, multiply_add: $mac:tt) => {
        tile_kernel! {
            $name, { "zmm" ["28" "29"] "0" ("0" "64") ("0" "32") }, rows_14x32, $kind, $mac,
            start: [rows_14x32!(zero "vpxord" "zmm")], half: "16", lines: ["0" "64" "124"],
            store: [
                "cmp dword ptr [rdi + {alpha}], 0x3f800000",
                "jne 402f",
                "cmp rcx, 32",
                "jne 402f",
                "add eax, eax",
                "jz 401f",
                "cmp eax, 2*0x3f800000",
                "jne 402f",
                rows_14x32!(store store_14x32 add "403f"),
                "403:",
                "mov rdx, [rdi + {c}]",
                "mov r10, [rdi + {rows}]",
                "401:",
                rows_14x32!(store store_14x32 plain "500f"),
                "402:",
                "mov esi, 1",
                "shl rsi, cl",
                "dec rsi",
                "kmovw k1, esi",
                "shr rsi, 16",
                "kmovw k2, esi",
                "vbroadcastss zmm28, [rdi + {alpha}]",
                "vbroadcastss zmm29, [rdi + {beta}]",
                // Zero of either sign.
                "vpaddd zmm30, zmm29, zmm29",
                "vptestmd k5, zmm30, zmm30",
                "kandw k3, k1, k5",
                "kandw k4, k2, k5",
                rows_14x32!(store store_14x32 scale "404f"),
                "404:",
                "mov rdx, [rdi + {c}]",
                "mov r10, [rdi + {rows}]",
                rows_14x32!(store store_14x32 masked "500f"),
            ]
        }
    };
}
