//! The loops of tiles that are two vector registers wide, for every instruction set and type of panel.
//!
//! A tile is described by `$tile`:
//! `{ register, B's two registers, bytes of a step of A,
//!    (bytes of a step of B, of half of it) for elements (or groups of them) of 4 bytes, and of 2 }`,
//! and by its rows:
//! `{ label of the loop for so many rows with all columns, and with half of them,
//!    (address of its element of A, its two accumulators, the register for that element) }`.
//!
//! Where the bytes of a step are given as "0", they come with the argument, as those from row to row of `A` do: then
//! `A` and `B` may be read where they are, unpacked.
//!
//! There is a loop for every number of rows, with all columns and with half of them, so that tiles at the
//! edges of `C` and products with few rows cost what they have to.
//!
//! | register | |
//! |---|---|
//! | `rdi` | `MicroArgs` |
//! | `rax`, `rcx` | `A` and `B` |
//! | `rdx` | C |
//! | `rsi` | rows |
//! | `r8` | what is read after this tile; then bytes from row to row of C |
//! | `r9` | steps |
//! | `r10` | rows of C |
//!
//! and in loops with strides:
//!
//! | register | |
//! |---|---|
//! | `rax`, `rdx` | rows 4 and 9 of `A`: with one register and its negative, each of 14 rows is one address |
//! | `r10`, `rdi` | from one row of `A` to the next, and back |
//! | `rsi`, `r11` | from one step to the next, of `A` and of `B` |
//! | `k7` | `MicroArgs` |

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

/// Asks for the lines that lie 1 KiB behind a step of `B`, or eight steps.
macro_rules! ask_b {
    (f32 $step:tt { $v:tt $b:tt $a:tt ($whole:tt $part:tt) $narrow:tt }) => {
        ask_b!(@$whole $part $step)
    };
    (pairs $step:tt $tile:tt) => {
        ask_b!(f32 $step $tile)
    };
    ($half:ident $step:tt { $v:tt $b:tt $a:tt $wide:tt ($whole:tt $part:tt) }) => {
        ask_b!(@$whole $part $step)
    };
    (@"0" "64" $step:tt) => {
        concat!(ask_b!(@"0" "32" $step), "prefetcht0 [rcx + 8*r11 + 64]\n")
    };
    (@"0" "32" $step:tt) => {
        "prefetcht0 [rcx + 8*r11]\n"
    };
    (@"64" $part:tt $step:tt) => {
        concat!("prefetcht0 [rcx + 64*", $step, " + 1024]\n")
    };
    (@"32" $part:tt "1") => {
        ""
    };
    (@"32" $part:tt "3") => {
        ""
    };
    (@"32" $part:tt $step:tt) => {
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
    (half $mac:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt $wide:tt $narrow:tt } ($at:tt $acc0:tt $acc1:tt $t:tt)) => {
        concat!(
            "vbroadcastss ", $v, $t, ", [", $at, " + ", $a, "*", $step, "]\n",
            multiply_add!($mac $v $acc0 $t $b0),
        )
    };
    (all $mac:tt $step:tt { $v:tt [$b0:tt $b1:tt] $a:tt $wide:tt $narrow:tt } ($at:tt $acc0:tt $acc1:tt $t:tt)) => {
        concat!(
            row!(half $mac $step { $v [$b0 $b1] $a $wide $narrow } ($at $acc0 $acc1 $t)),
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
            onward!(step $tile)
        )
    };
    ($kind:ident $mac:tt $tile:tt half [$($row:tt)*] $step:tt) => {
        concat!(
            load_b!($kind "0" $step $tile),
            ask_b!($kind $step $tile),
            $(row!(half $mac $step $tile $row),)*
            onward!(step $tile)
        )
    };
}

/// What moves on, and when: with strides after each step, else after several.
macro_rules! onward {
    // before the first step
    (start { $v:tt $b:tt "0" $wide:tt $narrow:tt }) => {
        "mov rsi, [rdi + {a_step}]\nkmovq k7, rdi\nxor edi, edi\nsub rdi, r10\n"
    };
    (step { $v:tt $b:tt "0" $wide:tt $narrow:tt }) => {
        "add rax, rsi\nadd rdx, rsi\nadd rcx, r11\n"
    };
    ($count:literal $kind:ident { $v:tt $b:tt "0" $wide:tt $narrow:tt }) => {
        ""
    };
    // behind the last step
    (end { $v:tt $b:tt "0" $wide:tt $narrow:tt }) => {
        "kmovq rdi, k7"
    };
    ($count:literal $kind:ident { $v:tt $b:tt $a:tt $wide:tt $narrow:tt }) => {
        concat!(
            "add rax, ", $count, "*", $a, "\n",
            "add rcx, ", $count, "*", bytes_b!($kind { $v $b $a $wide $narrow }), "\n",
        )
    };
    ($when:ident $tile:tt) => {
        ""
    };
}

/// What loops with strides need besides, once the panels' addresses are there.
macro_rules! strides {
    ({ $v:tt $b:tt "0" $wide:tt $narrow:tt }) => {
        concat!(
            "mov r10, [rdi + {a_row}]\n",
            "mov r11, [rdi + {b_step}]\n",
            "lea rax, [rax + 4*r10]\n",
            "lea rdx, [rax + 4*r10]\n",
            "add rdx, r10\n",
        )
    };
    ($tile:tt) => {
        ""
    };
}

/// The loop over the steps: four at a time, then one by one.
macro_rules! steps {
    ($kind:ident $mac:tt $tile:tt $columns:ident $label:tt $rows:tt) => {
        concat!(
            $label, ":\n",
            onward!(start $tile),
            "sub r9, 4\n",
            "jb 5f\n",
            ".p2align 5\n",
            "4:\n",
            "prefetcht1 [r8]\n",
            step!($kind $mac $tile $columns $rows "0"),
            step!($kind $mac $tile $columns $rows "1"),
            step!($kind $mac $tile $columns $rows "2"),
            step!($kind $mac $tile $columns $rows "3"),
            onward!("4" $kind $tile),
            "add r8, 64\n",
            "sub r9, 4\n",
            "jae 4b\n",
            "5:\n",
            "and r9, 3\n",
            "jz 400f\n",
            "6:\n",
            step!($kind $mac $tile $columns $rows "0"),
            onward!("1" $kind $tile),
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

/// Jumps to the loop for `rsi` rows.
macro_rules! choose {
    (all [$({ $all:tt $half:tt $row:tt })*]) => {
        concat!($("dec rsi\n", "jz ", $all, "f\n"),*)
    };
    (half [$({ $all:tt $half:tt $row:tt })*]) => {
        concat!($("dec rsi\n", "jz ", $half, "f\n"),*)
    };
}

/// No sums yet.
macro_rules! zero {
    ($xor:tt $v:tt [$({ $all:tt $half:tt ($at:tt $acc0:tt $acc1:tt $t:tt) })*]) => {
        concat!($(
            $xor, " ", $v, $acc0, ", ", $v, $acc0, ", ", $v, $acc0, "\n",
            $xor, " ", $v, $acc1, ", ", $v, $acc1, ", ", $v, $acc1, "\n",
        )*)
    };
}

/// Does `$how` with `r10` rows, then goes to `$then`.
macro_rules! store {
    ($store:ident $how:ident $then:tt [$({ $all:tt $half:tt ($at:tt $acc0:tt $acc1:tt $t:tt) })*]) => {
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
            "# {alpha} {start} {a_row} {a_step} {b_step}",
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
            "mov rsi, [rdi + {rows}]",
            $($start,)*
            strides!($tile),
            concat!("cmp qword ptr [rdi + {cols}], ", $half),
            "jbe 3f",
            $rows!(choose all),
            "3:",
            $rows!(choose half),
            // LOOPS
            $rows!(loops $kind $mac $tile []),
            // STORE
            "400:",
            onward!(end $tile),
            "mov rdx, [rdi + {c}]",
            "mov r8, [rdi + {ldc}]",
            "mov r10, [rdi + {rows}]",
            "mov rcx, [rdi + {cols}]",
            "mov eax, [rdi + {beta}]",
            $($store,)*
            "500:",
            "vzeroupper",
            "ret";
            a = const core::mem::offset_of!(crate::args::micro::MicroArgs, a),
            b = const core::mem::offset_of!(crate::args::micro::MicroArgs, b),
            c = const core::mem::offset_of!(crate::args::micro::MicroArgs, c),
            steps = const core::mem::offset_of!(crate::args::micro::MicroArgs, steps),
            ldc = const core::mem::offset_of!(crate::args::micro::MicroArgs, ldc),
            rows = const core::mem::offset_of!(crate::args::micro::MicroArgs, rows),
            cols = const core::mem::offset_of!(crate::args::micro::MicroArgs, cols),
            alpha = const core::mem::offset_of!(crate::args::micro::MicroArgs, alpha),
            beta = const core::mem::offset_of!(crate::args::micro::MicroArgs, beta),
            a_row = const core::mem::offset_of!(crate::args::micro::MicroArgs, a_row),
            a_step = const core::mem::offset_of!(crate::args::micro::MicroArgs, a_step),
            b_step = const core::mem::offset_of!(crate::args::micro::MicroArgs, b_step),
            next = const core::mem::offset_of!(crate::args::micro::MicroArgs, next),
            start = const core::mem::offset_of!(crate::args::micro::MicroArgs, start),
        }
    };
}
