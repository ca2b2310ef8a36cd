//! The 6x16 tile of AVX2.
//!
//! ```text
//!            columns 0..8   8..16
//! row 0          ymm0       ymm1      ymm12, ymm13   a step of B
//! row 1          ymm2       ymm3      ymm14, ymm15   an element of A in every lane, in turn
//!  ..             ..         ..
//! row 5         ymm10      ymm11
//! ```
//!
//! Rows that do not exist are left out; columns that do not are the driver's matter: masked stores are slow
//! on some processors.

macro_rules! rows_6x16 {
    ($then:ident $($argument:tt)*) => {
        $then! { $($argument)* [
            { "201" "301" ("rax + 4*0" "0" "1" "14") }
            { "202" "302" ("rax + 4*1" "2" "3" "15") }
            { "203" "303" ("rax + 4*2" "4" "5" "14") }
            { "204" "304" ("rax + 4*3" "6" "7" "15") }
            { "205" "305" ("rax + 4*4" "8" "9" "14") }
            { "206" "306" ("rax + 4*5" "10" "11" "15") }
        ] }
    };
}

/// What is done with a row when its sums are there. All rows of C are read before the first is written: where
/// they are a multiple of 4 KiB apart, reading one would wait for the write of the one before.
macro_rules! store_6x16 {
    // alpha A B
    (scale $acc0:tt $acc1:tt) => {
        concat!(
            "vmulps ymm", $acc0, ", ymm", $acc0, ", ymm12\n",
            "vmulps ymm", $acc1, ", ymm", $acc1, ", ymm12\n",
        )
    };
    // alpha A B + beta C
    (add $acc0:tt $acc1:tt) => {
        concat!(
            store_6x16!(scale $acc0 $acc1),
            "vfmadd231ps ymm", $acc0, ", ymm13, [rdx]\n",
            "vfmadd231ps ymm", $acc1, ", ymm13, [rdx + 32]\n",
        )
    };
    // to C
    (plain $acc0:tt $acc1:tt) => {
        concat!("vmovups [rdx], ymm", $acc0, "\n", "vmovups [rdx + 32], ymm", $acc1, "\n")
    };
}

/// A kernel with this tile: `load` says how `B` comes to registers, see `load_b!`.
macro_rules! microkernel_6x16 {
    ($name:literal, load: $kind:ident) => {
        tile_kernel! {
            $name, { "ymm" ["12" "13"] "24" ("64" "32") ("32" "16") }, rows_6x16, $kind, "vfmadd231ps",
            start: [rows_6x16!(zero "vxorps" "ymm")], half: "8", lines: ["0" "60"],
            store: [
                "vbroadcastss ymm12, [rdi + {alpha}]",
                "vbroadcastss ymm13, [rdi + {beta}]",
                "add eax, eax",
                "jnz 401f",
                rows_6x16!(store store_6x16 scale "402f"),
                "401:",
                rows_6x16!(store store_6x16 add "402f"),
                "402:",
                "mov rdx, [rdi + {c}]",
                "mov r10, [rdi + {rows}]",
                rows_6x16!(store store_6x16 plain "500f"),
            ]
        }
    };
}
