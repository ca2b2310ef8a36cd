//! The 14x32 tile of AVX-512, for every type of panel.
//!
//! ```text
//!             columns 0..16   16..32        zmm28, zmm29   a step of B
//! row 0          zmm0          zmm1         zmm30, zmm31   an element of A in every lane, in turn
//! row 1          zmm2          zmm3         rax, rcx       the panels
//!  ..             ..            ..          rdx            C
//! row 13         zmm26         zmm27        rsi, r9        rounds of four steps, steps
//!                                           r8             what is read after this tile
//! ```
//!
//! There is a loop for every number of rows, and of registers of columns, so that tiles at the edges of C
//! and products with few rows cost what they have to. The last step of a loop is independent of the next
//! tile's first, so processors overlap them; `C` is asked for before the loop.

/// A step of `B` for 16 columns (`$half`, 0 or 1, of the tile) in register `$to`: widened to f32, or as it
/// is where the multiply-add takes it so.
macro_rules! load_b {
    (f32 $to:literal $step:literal $half:literal) => {
        concat!("vmovups zmm", $to, ", [rcx + 128*", $step, " + 64*", $half, "]\n")
    };
    (f16 $to:literal $step:literal $half:literal) => {
        concat!("vcvtph2ps zmm", $to, ", [rcx + 64*", $step, " + 32*", $half, "]\n")
    };
    (bf16 $to:literal $step:literal $half:literal) => {
        concat!(
            "vpmovzxwd zmm", $to, ", [rcx + 64*", $step, " + 32*", $half, "]\n",
            "vpslld zmm", $to, ", zmm", $to, ", 16\n",
        )
    };
    (bf16_pairs $to:literal $step:literal $half:literal) => {
        load_b!(f32 $to $step $half)
    };
}

/// Asks for what lies 1 KiB behind a step of `B`.
macro_rules! ask_b {
    (f32 $step:literal) => {
        concat!("prefetcht0 [rcx + 128*", $step, " + 1024]\n", "prefetcht0 [rcx + 128*", $step, " + 1088]\n")
    };
    (bf16_pairs $step:literal) => {
        ask_b!(f32 $step)
    };
    ($half:ident $step:literal) => {
        concat!("prefetcht0 [rcx + 64*", $step, " + 1024]\n")
    };
}

/// Bytes of a step of `B`.
macro_rules! bytes_b {
    (f32) => {
        "128"
    };
    (bf16_pairs) => {
        "128"
    };
    ($half:ident) => {
        "64"
    };
}

/// One step of a row: `A`'s element is broadcast; four bytes, be it an f32 or a pair.
macro_rules! row_14x32 {
    ($mac:literal two $step:literal ($r:literal $acc0:literal $acc1:literal $t:literal)) => {
        concat!(
            row_14x32!($mac one $step ($r $acc0 $acc1 $t)),
            $mac, " zmm", $acc1, ", zmm", $t, ", zmm29\n",
        )
    };
    ($mac:literal one $step:literal ($r:literal $acc0:literal $acc1:literal $t:literal)) => {
        concat!(
            "vbroadcastss zmm", $t, ", [rax + 56*", $step, " + 4*", $r, "]\n",
            $mac, " zmm", $acc0, ", zmm", $t, ", zmm28\n",
        )
    };
}

/// One step of all rows.
macro_rules! step_14x32 {
    ($kind:ident $mac:literal $columns:ident [$($row:tt)*] $step:literal) => {
        concat!(
            load_b!($kind "28" $step "0"),
            step_14x32!(@$columns $kind $step),
            ask_b!($kind $step),
            $(row_14x32!($mac $columns $step $row),)*
        )
    };
    (@two $kind:ident $step:literal) => {
        load_b!($kind "29" $step "1")
    };
    (@one $kind:ident $step:literal) => {
        ""
    };
}

/// The loop over the depth: four steps at a time, then one by one.
macro_rules! loop_14x32 {
    ($kind:ident $mac:literal $columns:ident $label:literal $rows:tt) => {
        concat!(
            $label, ":\n",
            "test rsi, rsi\n",
            "jz 5f\n",
            ".p2align 5\n",
            "4:\n",
            "prefetcht1 [r8]\n",
            step_14x32!($kind $mac $columns $rows "0"),
            step_14x32!($kind $mac $columns $rows "1"),
            step_14x32!($kind $mac $columns $rows "2"),
            step_14x32!($kind $mac $columns $rows "3"),
            "add r8, 64\n",
            "add rax, 4*56\n",
            "add rcx, 4*", bytes_b!($kind), "\n",
            "dec rsi\n",
            "jnz 4b\n",
            "5:\n",
            "and r9, 3\n",
            "jz 400f\n",
            "6:\n",
            step_14x32!($kind $mac $columns $rows "0"),
            "add rax, 56\n",
            "add rcx, ", bytes_b!($kind), "\n",
            "dec r9\n",
            "jnz 6b\n",
            "jmp 400f\n",
        )
    };
}

/// The loops for the first 1, 2, .. rows.
macro_rules! loops_14x32 {
    ($kind:ident $mac:literal [$($row:tt)*] []) => {
        ""
    };
    ($kind:ident $mac:literal [$($row:tt)*] [{ $two:literal $one:literal $next:tt } $($rest:tt)*]) => {
        concat!(
            loop_14x32!($kind $mac two $two [$($row)* $next]),
            loop_14x32!($kind $mac one $one [$($row)* $next]),
            loops_14x32!($kind $mac [$($row)* $next] [$($rest)*]),
        )
    };
}

/// Jumps to the loop for `r10` rows.
macro_rules! choose_14x32 {
    (two [$({ $two:literal $one:literal $row:tt })*]) => {
        concat!($("dec r10\n", "jz ", $two, "f\n"),*)
    };
    (one [$({ $two:literal $one:literal $row:tt })*]) => {
        concat!($("dec r10\n", "jz ", $one, "f\n"),*)
    };
}

/// No sums yet.
macro_rules! zero_14x32 {
    ([$({ $two:literal $one:literal ($r:literal $acc0:literal $acc1:literal $t:literal) })*]) => {
        concat!($(
            "vpxord zmm", $acc0, ", zmm", $acc0, ", zmm", $acc0, "\n",
            "vpxord zmm", $acc1, ", zmm", $acc1, ", zmm", $acc1, "\n",
        )*)
    };
}

/// Brings `r10` rows to `C`.
macro_rules! store_14x32 {
    ($how:ident [$({ $two:literal $one:literal ($r:literal $acc0:literal $acc1:literal $t:literal) })*]) => {
        concat!($(store_14x32!(@$how $acc0 $acc1), "dec r10\n", "jz 500f\n", "add rdx, r8\n",)*)
    };
    // C = A B
    (@plain $acc0:literal $acc1:literal) => {
        concat!("vmovups [rdx], zmm", $acc0, "\n", "vmovups [rdx + 64], zmm", $acc1, "\n")
    };
    // C = A B + C
    (@add $acc0:literal $acc1:literal) => {
        concat!(
            "vaddps zmm", $acc0, ", zmm", $acc0, ", [rdx]\n",
            "vaddps zmm", $acc1, ", zmm", $acc1, ", [rdx + 64]\n",
            store_14x32!(@plain $acc0 $acc1),
        )
    };
    // C = alpha A B + beta C in the columns k1, k2. C is read in k3, k4: there, or nowhere if beta is 0.
    (@any $acc0:literal $acc1:literal) => {
        concat!(
            "vmulps zmm", $acc0, ", zmm", $acc0, ", zmm28\n",
            "vmulps zmm", $acc1, ", zmm", $acc1, ", zmm28\n",
            "vfmadd231ps zmm", $acc0, "{{k3}}, zmm29, [rdx]\n",
            "vfmadd231ps zmm", $acc1, "{{k4}}, zmm29, [rdx + 64]\n",
            "vmovups [rdx]{{k1}}, zmm", $acc0, "\n",
            "vmovups [rdx + 64]{{k2}}, zmm", $acc1, "\n",
        )
    };
}

/// Rows of the tile: the labels of the loops for so many rows, with two registers of columns and with one;
/// the row's number, accumulators and register for `A`.
macro_rules! rows_14x32 {
    ($then:ident $($argument:tt)*) => {
        $then! { $($argument)* [
            { "201" "301" ("0" "0" "1" "30") }
            { "202" "302" ("1" "2" "3" "31") }
            { "203" "303" ("2" "4" "5" "30") }
            { "204" "304" ("3" "6" "7" "31") }
            { "205" "305" ("4" "8" "9" "30") }
            { "206" "306" ("5" "10" "11" "31") }
            { "207" "307" ("6" "12" "13" "30") }
            { "208" "308" ("7" "14" "15" "31") }
            { "209" "309" ("8" "16" "17" "30") }
            { "210" "310" ("9" "18" "19" "31") }
            { "211" "311" ("10" "20" "21" "30") }
            { "212" "312" ("11" "22" "23" "31") }
            { "213" "313" ("12" "24" "25" "30") }
            { "214" "314" ("13" "26" "27" "31") }
        ] }
    };
}

/// A kernel with this tile.
macro_rules! microkernel_14x32 {
    ($name:literal, load: $kind:ident, multiply_add: $mac:literal) => {
        microkernel! {
            $name,
            // PROLOGUE
            "mov r10, [rdi + {rows}]",
            "mov rdx, [rdi + {c}]",
            "mov r8, [rdi + {ldc}]",
            "mov rcx, r10",
            "2:",
            "prefetcht0 [rdx]",
            "prefetcht0 [rdx + 64]",
            "prefetcht0 [rdx + 124]",
            "add rdx, r8",
            "dec rcx",
            "jnz 2b",
            "mov rax, [rdi + {a}]",
            "mov rcx, [rdi + {b}]",
            "mov r9, [rdi + {steps}]",
            "mov r8, [rdi + {next}]",
            "mov rsi, r9",
            "shr rsi, 2",
            rows_14x32!(zero_14x32),
            "cmp qword ptr [rdi + {cols}], 16",
            "jbe 3f",
            rows_14x32!(choose_14x32 two),
            "3:",
            rows_14x32!(choose_14x32 one),
            // LOOPS
            rows_14x32!(loops_14x32 $kind $mac []),
            // STORE
            "400:",
            "mov rdx, [rdi + {c}]",
            "mov r8, [rdi + {ldc}]",
            "mov r10, [rdi + {rows}]",
            "mov rcx, [rdi + {cols}]",
            "mov eax, [rdi + {beta}]",
            "cmp dword ptr [rdi + {alpha}], 0x3f800000",
            "jne 402f",
            "cmp rcx, 32",
            "jne 402f",
            "cmp eax, 0x3f800000",
            "je 401f",
            "add eax, eax",
            "jnz 402f",
            rows_14x32!(store_14x32 plain),
            "401:",
            rows_14x32!(store_14x32 add),
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
            rows_14x32!(store_14x32 any),
            "500:",
            "vzeroupper",
            "ret";
            a = const core::mem::offset_of!(crate::asm::abi::MicroArgs, a),
            b = const core::mem::offset_of!(crate::asm::abi::MicroArgs, b),
            c = const core::mem::offset_of!(crate::asm::abi::MicroArgs, c),
            steps = const core::mem::offset_of!(crate::asm::abi::MicroArgs, steps),
            ldc = const core::mem::offset_of!(crate::asm::abi::MicroArgs, ldc),
            rows = const core::mem::offset_of!(crate::asm::abi::MicroArgs, rows),
            cols = const core::mem::offset_of!(crate::asm::abi::MicroArgs, cols),
            alpha = const core::mem::offset_of!(crate::asm::abi::MicroArgs, alpha),
            beta = const core::mem::offset_of!(crate::asm::abi::MicroArgs, beta),
            next = const core::mem::offset_of!(crate::asm::abi::MicroArgs, next),
        }
    };
}
