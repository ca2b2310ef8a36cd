//! int8: the tiles of [`avx512`](super::avx512) and [`avx2`](super::avx2) with sums in i32.
//!
//! Four bytes of `A` are in every lane of its register: four u8, multiplied with four i8 of `B` and added up by
//! one instruction (VNNI), or two i16, by two instructions.
//!
//! VNNI multiplies unsigned by signed. So `A` is packed plus 128, which makes every sum too large by 128 times
//! the sum of a column of `B`. Packing `B` adds these up, and the sums start with -128 times theirs.

/// The sums' first values are `B`'s.
macro_rules! offset {
    ($v:tt $second:tt [$({ $all:tt $half:tt ($at:tt $acc0:tt $acc1:tt $t:tt) })*]) => {
        concat!(
            "mov rdx, [rdi + {start}]\n",
            $(
                "vmovups ", $v, $acc0, ", [rdx]\n",
                "vmovups ", $v, $acc1, ", [rdx + ", $second, "]\n",
            )*
        )
    };
}

/// What is done with a row when its sums are there; see `store_14x32!`.
macro_rules! store_int8_14x32 {
    // A B + C
    (add $acc0:tt $acc1:tt) => {
        concat!(
            "vpaddd zmm",
            $acc0,
            ", zmm",
            $acc0,
            ", [rdx]\n",
            "vpaddd zmm",
            $acc1,
            ", zmm",
            $acc1,
            ", [rdx + 64]\n",
        )
    };
    // The same; C is read in k3, k4: in the columns that exist, or nowhere if beta is 0.
    (some $acc0:tt $acc1:tt) => {
        concat!(
            "vpaddd zmm",
            $acc0,
            "{{k3}}, zmm",
            $acc0,
            ", [rdx]\n",
            "vpaddd zmm",
            $acc1,
            "{{k4}}, zmm",
            $acc1,
            ", [rdx + 64]\n",
        )
    };
}

/// A kernel with this tile: `start` says what the sums start with, `load` how `B` comes to registers.
macro_rules! microkernel_int8_14x32 {
    ($name:literal, start: ($($start:tt)*), load: $kind:ident, multiply_add: $mac:tt) => {
        tile_kernel! {
            $name, { "zmm" ["28" "29"] "0" ("0" "64") ("0" "32") }, rows_14x32, $kind, $mac,
            start: [rows_14x32!($($start)*)], half: "16", lines: ["0" "64" "124"],
            store: [
                "cmp rcx, 32",
                "jne 402f",
                "test eax, eax",
                "jz 401f",
                rows_14x32!(store store_int8_14x32 add "403f"),
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
                "vpbroadcastd zmm30, eax",
                "vptestmd k5, zmm30, zmm30",
                "kandw k3, k1, k5",
                "kandw k4, k2, k5",
                rows_14x32!(store store_int8_14x32 some "404f"),
                "404:",
                "mov rdx, [rdi + {c}]",
                "mov r10, [rdi + {rows}]",
                rows_14x32!(store store_14x32 masked "500f"),
            ]
        }
    };
}

/// What is done with a row when its sums are there; see `store_6x16!`.
macro_rules! store_int8_6x16 {
    // A B + C
    (add $acc0:tt $acc1:tt) => {
        concat!(
            "vpaddd ymm",
            $acc0,
            ", ymm",
            $acc0,
            ", [rdx]\n",
            "vpaddd ymm",
            $acc1,
            ", ymm",
            $acc1,
            ", [rdx + 32]\n",
        )
    };
}

/// A kernel with this tile.
macro_rules! microkernel_int8_6x16 {
    ($name:literal, start: ($($start:tt)*), load: $kind:ident, multiply_add: $mac:tt) => {
        tile_kernel! {
            $name, { "ymm" ["12" "13"] "24" ("64" "32") ("32" "16") }, rows_6x16, $kind, $mac,
            start: [rows_6x16!($($start)*)], half: "8", lines: ["0" "60"],
            store: [
                "test eax, eax",
                "jz 401f",
                rows_6x16!(store store_int8_6x16 add "402f"),
                "402:",
                "mov rdx, [rdi + {c}]",
                "mov r10, [rdi + {rows}]",
                "401:",
                rows_6x16!(store store_6x16 plain "500f"),
            ]
        }
    };
}
