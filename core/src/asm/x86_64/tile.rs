//! The loops of tiles that are two vector registers wide, for every instruction set and type of panel.
//!
//! A tile is described by `$tile`:
//! `{ register, B's two registers, bytes of a step of A,
//!    (bytes of a step of B, of half of it) for elements (or groups of them) of 4 bytes, and of 2 }`,
//! and by its rows:
//! `{ label of the loop for so many rows with all columns, and with half of them,
//!    (row, its two accumulators, the register for A's element) }`.
//!
//! There is a loop for every number of rows, with all columns and with half of them, so that tiles at the
//! edges of `C` and products with few rows cost what they have to.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `MicroArgs` |
//! | `rax`, `rcx` | the panels |
//! | `rdx` | C |
//! | `rsi`, `r9` | rounds of four steps, steps |
//! | `r8` | what is read after this tile; then bytes from row to row of C |
//! | `r10` | rows |

/// Half (`$half`, 0 or 1) of step `$step` of `B` in a register: widened to f32, or as it is where the
/// multiply-add takes it so.
macro_rules! load_b {
    (f32 $half:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt ($whole:tt $part:tt) $narrow:tt }) => {
        concat!(
            "vmovups ", $v, load_b!(@$half $b0 $b1), ", [rcx + ", $whole, "*", $step, " + ", $part, "*", $half, "]\n",
        )
    };
    (f16 $half:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt $wide:tt ($whole:tt $part:tt) }) => {
        concat!(
            "vcvtph2ps ", $v, load_b!(@$half $b0 $b1), ", [rcx + ", $whole, "*", $step, " + ", $part, "*", $half, "]\n",
        )
    };
    (bf16 $half:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt $wide:tt ($whole:tt $part:tt) }) => {
        concat!(
            "vpmovzxwd ", $v, load_b!(@$half $b0 $b1), ", [rcx + ", $whole, "*", $step, " + ", $part, "*", $half, "]\n",
            "vpslld ", $v, load_b!(@$half $b0 $b1), ", ", $v, load_b!(@$half $b0 $b1), ", 16\n",
        )
    };
    (i8 $half:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt $wide:tt ($whole:tt $part:tt) }) => {
        concat!(
            "vpmovsxbw ", $v, load_b!(@$half $b0 $b1), ", [rcx + ", $whole, "*", $step, " + ", $part, "*", $half, "]\n",
        )
    };
    (pairs $half:tt $step:tt $tile:tt) => {
        load_b!(f32 $half $step $tile)
    };
    (@"0" $b0:tt $b1:tt) => {
        $b0
    };
    (@"1" $b0:tt $b1:tt) => {
        $b1
    };
}

/// Bytes of a step of `B`.
macro_rules! bytes_b {
    (f32 { $v:tt $b:tt $a:tt ($whole:tt $part:tt) $narrow:tt }) => {
        $whole
    };
    (pairs $tile:tt) => {
        bytes_b!(f32 $tile)
    };
    ($half:ident { $v:tt $b:tt $a:tt $wide:tt ($whole:tt $part:tt) }) => {
        $whole
    };
}

/// Asks for the lines that lie 1 KiB behind a step of `B`.
macro_rules! ask_b {
    (f32 $step:tt { $v:tt $b:tt $a:tt ($whole:tt $part:tt) $narrow:tt }) => {
        ask_b!(@$whole $step)
    };
    (pairs $step:tt $tile:tt) => {
        ask_b!(f32 $step $tile)
    };
    ($half:ident $step:tt { $v:tt $b:tt $a:tt $wide:tt ($whole:tt $part:tt) }) => {
        ask_b!(@$whole $step)
    };
    (@"128" $step:tt) => {
        concat!("prefetcht0 [rcx + 128*", $step, " + 1024]\n", "prefetcht0 [rcx + 128*", $step, " + 1088]\n")
    };
    (@"64" $step:tt) => {
        concat!("prefetcht0 [rcx + 64*", $step, " + 1024]\n")
    };
    (@"32" "1") => {
        ""
    };
    (@"32" "3") => {
        ""
    };
    (@"32" $step:tt) => {
        concat!("prefetcht0 [rcx + 32*", $step, " + 1024]\n")
    };
}

/// `acc += a * b`: `$mac` is the instruction, or `widened` for pairs of 16-bit integers, which take two and the
/// other one of `A`'s registers.
macro_rules! multiply_add {
    (widened $v:tt $acc:tt $a:tt $b:tt) => {
        concat!(
            "vpmaddwd ", $v, multiply_add!(@$a), ", ", $v, $a, ", ", $v, $b, "\n",
            "vpaddd ", $v, $acc, ", ", $v, $acc, ", ", $v, multiply_add!(@$a), "\n",
        )
    };
    (@"14") => {
        "15"
    };
    (@"15") => {
        "14"
    };
    (@"30") => {
        "31"
    };
    (@"31") => {
        "30"
    };
    ($mac:tt $v:tt $acc:tt $a:tt $b:tt) => {
        concat!($mac, " ", $v, $acc, ", ", $v, $a, ", ", $v, $b, "\n")
    };
}

/// One step of a row: `A`'s element is broadcast; four bytes, be it an f32, a pair or four of int8.
macro_rules! row {
    (half $mac:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt $wide:tt $narrow:tt } ($r:tt $acc0:tt $acc1:tt $t:tt)) => {
        concat!(
            "vbroadcastss ", $v, $t, ", [rax + ", $a, "*", $step, " + 4*", $r, "]\n",
            multiply_add!($mac $v $acc0 $t $b0),
        )
    };
    (all $mac:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt $wide:tt $narrow:tt } ($r:tt $acc0:tt $acc1:tt $t:tt)) => {
        concat!(
            row!(half $mac $step { $v [$b0 $b1] $a $wide $narrow } ($r $acc0 $acc1 $t)),
            multiply_add!($mac $v $acc1 $t $b1),
        )
    };
}

/// One step of all rows.
macro_rules! step {
    ($kind:ident $mac:tt $tile:tt all [$($row:tt)*] $step:tt) => {
        concat!(
            load_b!($kind "0" $step $tile),
            load_b!($kind "1" $step $tile),
            ask_b!($kind $step $tile),
            $(row!(all $mac $step $tile $row),)*
        )
    };
    ($kind:ident $mac:tt $tile:tt half [$($row:tt)*] $step:tt) => {
        concat!(
            load_b!($kind "0" $step $tile),
            ask_b!($kind $step $tile),
            $(row!(half $mac $step $tile $row),)*
        )
    };
}

/// Bytes of a step of `A`.
macro_rules! bytes_a {
    ({ $v:tt $b:tt $a:tt $wide:tt $narrow:tt }) => {
        $a
    };
}

/// The loop over the steps: four at a time, then one by one.
macro_rules! steps {
    ($kind:ident $mac:tt $tile:tt $columns:ident $label:tt $rows:tt) => {
        concat!(
            $label, ":\n",
            "test rsi, rsi\n",
            "jz 5f\n",
            ".p2align 5\n",
            "4:\n",
            "prefetcht1 [r8]\n",
            step!($kind $mac $tile $columns $rows "0"),
            step!($kind $mac $tile $columns $rows "1"),
            step!($kind $mac $tile $columns $rows "2"),
            step!($kind $mac $tile $columns $rows "3"),
            "add r8, 64\n",
            "add rax, 4*", bytes_a!($tile), "\n",
            "add rcx, 4*", bytes_b!($kind $tile), "\n",
            "dec rsi\n",
            "jnz 4b\n",
            "5:\n",
            "and r9, 3\n",
            "jz 400f\n",
            "6:\n",
            step!($kind $mac $tile $columns $rows "0"),
            "add rax, ", bytes_a!($tile), "\n",
            "add rcx, ", bytes_b!($kind $tile), "\n",
            "dec r9\n",
            "jnz 6b\n",
            "jmp 400f\n",
        )
    };
}

/// The loops for the first 1, 2, .. rows.
macro_rules! loops {
    ($kind:ident $mac:tt $tile:tt [$($row:tt)*] []) => {
        ""
    };
    ($kind:ident $mac:tt $tile:tt [$($row:tt)*] [{ $all:tt $half:tt $next:tt } $($rest:tt)*]) => {
        concat!(
            steps!($kind $mac $tile all $all [$($row)* $next]),
            steps!($kind $mac $tile half $half [$($row)* $next]),
            loops!($kind $mac $tile [$($row)* $next] [$($rest)*]),
        )
    };
}

/// Jumps to the loop for `r10` rows.
macro_rules! choose {
    (all [$({ $all:tt $half:tt $row:tt })*]) => {
        concat!($("dec r10\n", "jz ", $all, "f\n"),*)
    };
    (half [$({ $all:tt $half:tt $row:tt })*]) => {
        concat!($("dec r10\n", "jz ", $half, "f\n"),*)
    };
}

/// No sums yet.
macro_rules! zero {
    ($xor:tt $v:tt [$({ $all:tt $half:tt ($r:tt $acc0:tt $acc1:tt $t:tt) })*]) => {
        concat!($(
            $xor, " ", $v, $acc0, ", ", $v, $acc0, ", ", $v, $acc0, "\n",
            $xor, " ", $v, $acc1, ", ", $v, $acc1, ", ", $v, $acc1, "\n",
        )*)
    };
}

/// Does `$how` with `r10` rows, then goes to `$then`.
macro_rules! store {
    ($store:ident $how:ident $then:tt [$({ $all:tt $half:tt ($r:tt $acc0:tt $acc1:tt $t:tt) })*]) => {
        concat!($($store!($how $acc0 $acc1), "dec r10\n", "jz ", $then, "\n", "add rdx, r8\n",)*)
    };
}

/// A kernel: all of it but the way to `C`, which starts with `r8`, `rdx` and `r10` as above, the columns that
/// exist in `rcx`, the bits of beta in `eax`; `rsi` and `r9` are free. `$rows!` is the macro that passes on
/// the rows, `$start` gives the sums their first values (`rdx` is free), `$half` is half of the tile's columns,
/// `$lines` are the lines that a row of `C` may touch, as offsets.
macro_rules! tile_kernel {
    (
        $name:literal, $tile:tt, $rows:ident, $kind:ident, $mac:tt,
        start: [$($start:expr),*], half: $half:tt, lines: [$($line:tt)*],
        store: [$($store:expr,)*]
    ) => {
        microkernel! {
            $name,
            // Not every kernel reads all of its arguments.
            "# {alpha} {start}",
            // PROLOGUE
            "mov rdx, [rdi + {c}]",
            "mov r8, [rdi + {ldc}]",
            "mov rcx, [rdi + {rows}]",
            "2:",
            // To L2: in L1 the rows of a C with a power of two as its stride would drive each other out.
            $(concat!("prefetcht1 [rdx + ", $line, "]"),)*
            "add rdx, r8",
            "dec rcx",
            "jnz 2b",
            "mov rax, [rdi + {a}]",
            "mov rcx, [rdi + {b}]",
            "mov r9, [rdi + {steps}]",
            "mov r8, [rdi + {next}]",
            "mov r10, [rdi + {rows}]",
            "mov rsi, r9",
            "shr rsi, 2",
            $($start,)*
            concat!("cmp qword ptr [rdi + {cols}], ", $half),
            "jbe 3f",
            $rows!(choose all),
            "3:",
            $rows!(choose half),
            // LOOPS
            $rows!(loops $kind $mac $tile []),
            // STORE
            "400:",
            "mov rdx, [rdi + {c}]",
            "mov r8, [rdi + {ldc}]",
            "mov r10, [rdi + {rows}]",
            "mov rcx, [rdi + {cols}]",
            "mov eax, [rdi + {beta}]",
            $($store,)*
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
            start = const core::mem::offset_of!(crate::asm::abi::MicroArgs, start),
        }
    };
}
