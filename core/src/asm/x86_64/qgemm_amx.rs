//! Two panels of quantised weights times 16 rows of activations of 8 bits, with AMX-INT8: for groups of 32 columns or 16,
//! with offsets or without.
//!
//! A panel of weights holds four columns of 16 rows in 64 bytes, a panel of activations 32 columns of a row in the
//! first half of 64: both are what tile registers hold, row by row. The sums of a group leave them for memory, where vector
//! registers take them from, 16 rows of weights in each, a register for each row of activations. See
//! [`tile`](crate::ops::qgemm::tile::tile) for the order of what is done in f32.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `QTileArgs` |
//! | `rax`, `rcx`, `rdx` | the step's codes, scales, offsets |
//! | `rsi` | the step's activations |
//! | `r8` | results, then the integers of two steps |
//! | `r9`, `r10` | steps that are left, and of those that both panels are multiplied with in turn |
//! | `r11` | 64: from row to row of tiles |
//! | `tmm0`, `tmm1` | integers of a step and of the next one, or of both groups of a step |
//! | `tmm2`..`tmm7` | activations and weights, see `GROUPS` in [`amx`](super::amx) |
//! | `zmm0`, `zmm1` | scales of both groups |
//! | `zmm2`, `zmm3` | offsets of both groups |
//! | `zmm4`, `zmm5` | a row of integers of each group |
//! | `zmm16`..`zmm31` | results, by row of activations |
//!
//! The tile unit takes 16 cycles for a group, whether it is of 32 columns or of 16. With one group of 32, 16 rows of
//! activations and as many of weights cost the two vector ports 16 conversions, multiplications and additions, 24 cycles,
//! which bound it: 683 operations a cycle, a third of what the tile unit has for 64 columns at a time. With an offset it is 32
//! cycles, with two groups 40, with both 56. The ports for loads have 44 (12 for tiles, 16 rows of integers, as many of what
//! activations share): 22 cycles. Integers of a step are multiplied while those of the one before leave for
//! memory. L2 gives a line each cycle or two, and a step has 16 lines of activations and 9 of
//! weights: so 16 steps of the activations, which stay in L1, meet both panels. (Cycles of tiles: see [`amx`](super::amx).
//! Never measured.)

/// Calls `$then!` for all rows of activations, with the register of each for results.
macro_rules! rows {
    ($then:ident $($args:tt)*) => {
        $then!($($args)*
            ("16" "0") ("17" "1") ("18" "2") ("19" "3") ("20" "4") ("21" "5") ("22" "6") ("23" "7")
            ("24" "8") ("25" "9") ("26" "10") ("27" "11") ("28" "12") ("29" "13") ("30" "14") ("31" "15"))
    };
}

/// The integers of the step whose codes and activations are so many bytes behind the pointers: to slot `$slot`, 0 or 1, in
/// memory.
macro_rules! integers {
    (32 $slot:literal $a:literal $b:literal $codes:literal $x:literal) => {
        concat!(
            "tilezero tmm", $slot, "\n",
            "tileloadd tmm", $b, ", [rax + r11 + ", $codes, "]\n",
            "tileloadd tmm", $a, ", [rsi + r11 + ", $x, "]\n",
            "tdpbssd tmm", $slot, ", tmm", $a, ", tmm", $b, "\n",
            "tilestored [r8 + r11 + 1024*", $slot, "], tmm", $slot, "\n",
        )
    };
    (16 $slot:literal $a:literal $b:literal $codes:literal $x:literal) => {
        concat!(
            integers!(@16 "0" $slot $codes $x "0" "0"),
            integers!(@16 "1" $slot $codes $x "256" "16"),
        )
    };
    (@16 $group:literal $slot:literal $codes:literal $x:literal $codes_too:literal $x_too:literal) => {
        concat!(
            "tilezero tmm", $group, "\n",
            "tileloadd tmm7, [rax + r11 + ", $codes, " + ", $codes_too, "]\n",
            "tileloadd tmm6, [rsi + r11 + ", $x, " + ", $x_too, "]\n",
            "tdpbssd tmm", $group, ", tmm6, tmm7\n",
            "tilestored [r8 + r11 + 2048*", $slot, " + 1024*", $group, "], tmm", $group, "\n",
        )
    };
}

/// Adds the integers of a slot, times scales, to the results; then the offsets. Goes on to the next step.
macro_rules! floats {
    (@scales 32) => { "" };
    (@scales 16) => { "vmovups zmm1, [rcx + 64]\n" };
    (@offsets $group:tt none) => { "" };
    (@offsets 32 min) => { "vmovups zmm2, [rdx]\n" };
    (@offsets 16 min) => { "vmovups zmm2, [rdx]\nvmovups zmm3, [rdx + 64]\n" };
    (@next 32) => { "add rcx, 64\nadd rdx, 64\n" };
    (@next 16) => { "add rcx, 128\nadd rdx, 128\n" };
    (@rows $group:tt $min:ident $slot:literal $(($y:literal $row:literal))*) => {
        concat!($(
            floats!(@sums $group $slot $row),
            "vfmadd231ps zmm", $y, ", zmm4, dword ptr [rsi + 64*", $row, " + 44]{{1to16}}\n",
            floats!(@add $group $min $y $row),
        )*)
    };
    (@sums 32 $slot:literal $row:literal) => {
        concat!(
            "vcvtdq2ps zmm4, [r8 + 1024*", $slot, " + 64*", $row, "]\n",
            "vmulps zmm4, zmm4, zmm0\n",
        )
    };
    (@sums 16 $slot:literal $row:literal) => {
        concat!(
            "vcvtdq2ps zmm4, [r8 + 2048*", $slot, " + 64*", $row, "]\n",
            "vcvtdq2ps zmm5, [r8 + 2048*", $slot, " + 64*", $row, " + 1024]\n",
            "vmulps zmm4, zmm4, zmm0\n",
            "vfmadd231ps zmm4, zmm5, zmm1\n",
        )
    };
    (@add $group:tt none $y:literal $row:literal) => { "" };
    (@add 32 min $y:literal $row:literal) => {
        concat!("vfmadd231ps zmm", $y, ", zmm2, dword ptr [rsi + 64*", $row, " + 56]{{1to16}}\n")
    };
    (@add 16 min $y:literal $row:literal) => {
        concat!(
            "vfmadd231ps zmm", $y, ", zmm2, dword ptr [rsi + 64*", $row, " + 48]{{1to16}}\n",
            "vfmadd231ps zmm", $y, ", zmm3, dword ptr [rsi + 64*", $row, " + 52]{{1to16}}\n",
        )
    };
    ($group:tt $min:ident $slot:literal) => {
        concat!(
            "vmovups zmm0, [rcx]\n",
            floats!(@scales $group),
            floats!(@offsets $group $min),
            rows!(floats @rows $group $min $slot),
            "add rax, 512\n",
            floats!(@next $group),
            "add rsi, 1024\n",
        )
    };
}

/// Moves results from memory or to it: those of a panel, `$at` bytes behind those of the first.
macro_rules! results {
    ($way:ident $at:literal) => {
        concat!(
            "mov r8, [rdi + {y}]\n",
            rows!(results @$way $at),
        )
    };
    (@load $at:literal $(($y:literal $row:literal))*) => {
        concat!($("vmovups zmm", $y, ", [r8 + 128*", $row, " + ", $at, "]\n",)*)
    };
    (@store $at:literal $(($y:literal $row:literal))*) => {
        concat!($("vmovups [r8 + 128*", $row, " + ", $at, "], zmm", $y, "\n",)*)
    };
}

/// At most 16 steps with one panel.
macro_rules! steps {
    ($group:tt $min:ident $at:literal) => {
        concat!(
            results!(load $at),
            "mov r8, [rdi + {room}]\n",
            "mov r10, r9\n",
            "cmp r10, 16\n",
            "jbe 3f\n",
            "mov r10d, 16\n",
            "3:\n",
            integers!($group "0" "2" "4" "0" "0"),
            "4:\n",
            "dec r10\n",
            "jz 5f\n",
            integers!($group "1" "3" "5" "512" "1024"),
            floats!($group $min "0"),
            "dec r10\n",
            "jz 6f\n",
            integers!($group "0" "2" "4" "512" "1024"),
            floats!($group $min "1"),
            "jmp 4b\n",
            "5:\n",
            floats!($group $min "0"),
            "jmp 7f\n",
            "6:\n",
            floats!($group $min "1"),
            "7:\n",
            results!(store $at),
        )
    };
}

macro_rules! kernel {
    ($kind:literal $group:tt $min:ident) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_16x32__avx512_amx_int8"),
            // PROLOGUE
            "mov rax, [rdi + {codes}]",
            "mov rcx, [rdi + {scales}]",
            "mov rdx, [rdi + {offsets}]",
            "mov rsi, [rdi + {x}]",
            "mov r9, [rdi + {steps}]",
            "mov r11d, 64",
            // BOTH PANELS
            "2:",
            "mov r8, [rdi + {room}]",
            "mov [r8 + {saved}], rax",
            "mov [r8 + {saved} + 8], rcx",
            "mov [r8 + {saved} + 16], rdx",
            "mov [r8 + {saved} + 24], rsi",
            steps!($group $min "0"),
            "mov r8, [rdi + {room}]",
            "mov r10, [rdi + {beside}]",
            "mov rax, [r8 + {saved}]",
            "mov rcx, [r8 + {saved} + 8]",
            "mov rdx, [r8 + {saved} + 16]",
            "mov rsi, [r8 + {saved} + 24]",
            "add rax, r10",
            "add rcx, r10",
            "add rdx, r10",
            steps!($group $min "64"),
            "mov r10, [rdi + {beside}]",
            "sub rax, r10",
            "sub rcx, r10",
            "sub rdx, r10",
            "sub r9, 16",
            "ja 2b",
            "vzeroupper",
            "ret";
            beside = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, beside),
            room = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, room),
            saved = const core::mem::offset_of!(crate::ops::qgemm::tile::TileRoom, saved),
        }
    };
}
kernel! { "g32" 32 none }
kernel! { "g16" 16 none }
kernel! { "g32m" 32 min }
kernel! { "g16m" 16 min }
