//! What all tiles share: the frame of a kernel, and the way to `C`.
//!
//! A kernel has a pipelined loop over rounds of four steps for whole tiles, which loads the operands of a step
//! while it multiplies those of the step before, and reads nothing behind the panels; and a plain loop over single
//! steps for every number of registers that `A` and `B` fill with rows and columns that exist. The steps that are
//! left after the rounds, and tiles at the edges, take the plain ones.
//!
//! | register | |
//! |---|---|
//! | `x0` | `MicroArgs` |
//! | `x1`, `x2` | the panels |
//! | `x3`, `x5` | steps, rounds of four of them |
//! | `x4` | what is read after this tile |
//! | `x6` | rows |
//! | `x7`, `x8` | C, bytes from row to row of it |
//! | `x9`..`x16` | the caller's `d8`..`d15` |
//! | `x17` | columns; then the operands of the next round |
//! | `v8`..`v31` | sums |
//! | `v0`..`v7` | operands; then alpha, beta, C |

/// Four rows of four columns: a register of `B` times elements of `A`, given as (register, size, lanes).
macro_rules! block {
    ($mac:tt $b:tt $vb:tt ($a:tt $size:tt $($lane:tt)*) [$($sum:tt)*]) => {
        concat!($($mac, " v", $sum, ".4s, v", $b, ".", $vb, ", v", $a, ".", $size, "[", $lane, "]\n",)*)
    };
}

/// The loop over single steps.
macro_rules! plain {
    ($label:tt [$($line:expr),*] $bytes_a:tt $bytes_b:tt) => {
        concat!(
            $label, ":\n",
            $($line,)*
            "add x1, x1, #", $bytes_a, "\n",
            "add x2, x2, #", $bytes_b, "\n",
            "subs x3, x3, #1\n",
            "b.ne ", $label, "b\n",
            "b 400f\n",
        )
    };
}

/// The pipelined loop over rounds; then the steps that are left go to the plain loop `$plain`.
macro_rules! rounds {
    ($plain:tt [$($first:expr),*] [$($line:expr),*] $bytes_a:tt $bytes_b:tt) => {
        concat!(
            "cbz x5, ", $plain, "f\n",
            $($first,)*
            ".p2align 5\n",
            "3:\n",
            "subs x5, x5, #1\n",
            $($line,)*
            "prfm pldl2keep, [x4]\n",
            "add x4, x4, #64\n",
            "b.ne 3b\n",
            // The last round has not moved on.
            "add x1, x1, #", $bytes_a, "*4\n",
            "add x2, x2, #", $bytes_b, "*4\n",
            "ands x3, x3, #3\n",
            "b.ne ", $plain, "f\n",
            "b 400f\n",
        )
    };
}

/// Before a round's last step loads from there: a panel moves on to the next round, unless this is the last one,
/// behind which there may be nothing.
macro_rules! advance {
    ($panel:tt $bytes:tt) => {
        concat!("add x17, ", $panel, ", #", $bytes, "*4\n", "csel ", $panel, ", x17, ", $panel, ", ne\n")
    };
}

/// Brings a row to `C`, vector by vector.
macro_rules! store_row {
    // C = alpha A B
    (f32 new [$($sum:tt $c:tt $at:tt),*]) => {
        concat!(
            $("fmul v", $sum, ".4s, v", $sum, ".4s, v0.s[0]\n",)*
            store_row!(i32 new [$($sum $c $at),*]),
        )
    };
    // C = alpha A B + beta C
    (f32 add [$($sum:tt $c:tt $at:tt),*]) => {
        concat!(
            $("ldr q", $c, ", [x7, #", $at, "]\n",)*
            $("fmul v", $sum, ".4s, v", $sum, ".4s, v0.s[0]\n",)*
            $("fmla v", $sum, ".4s, v", $c, ".4s, v1.s[0]\n",)*
            store_row!(i32 new [$($sum $c $at),*]),
        )
    };
    // C = A B
    (i32 new [$($sum:tt $c:tt $at:tt),*]) => {
        concat!($("str q", $sum, ", [x7, #", $at, "]\n",)*)
    };
    // C = A B + C
    (i32 add [$($sum:tt $c:tt $at:tt),*]) => {
        concat!(
            $("ldr q", $c, ", [x7, #", $at, "]\n",)*
            $("add v", $sum, ".4s, v", $sum, ".4s, v", $c, ".4s\n",)*
            store_row!(i32 new [$($sum $c $at),*]),
        )
    };
}

/// The rows of a tile, one or three vectors wide.
macro_rules! store_rows {
    ($type:ident $how:ident [$($row:tt)*]) => {
        concat!($(
            store_rows!(@$type $how $row),
            "subs x6, x6, #1\n",
            "b.eq 500f\n",
            "add x7, x7, x8\n",
        )*)
    };
    (@$type:ident $how:ident [$sum0:tt]) => {
        store_row!($type $how [$sum0 "5" "0"])
    };
    (@$type:ident $how:ident [$sum0:tt $sum1:tt $sum2:tt]) => {
        store_row!($type $how [$sum0 "5" "0", $sum1 "6" "16", $sum2 "7" "32"])
    };
}

/// A kernel whose sums are of `type`: `lines` are the lines that a row of `C` may touch, as offsets; `loops` start
/// with the panels, steps and rounds in their registers, the rows and columns in `x6` and `x17`, and no sums
/// yet, and end at 400; `arrange` brings the sums of row after row to `rows`, if they are not there by then.
macro_rules! tile_kernel {
    (
        $name:literal, extension: [$($extension:literal)?], type: $type:ident, lines: [$($line:literal)*],
        loops: $loops:expr, arrange: [$($arrange:expr)?], rows: $rows:tt
    ) => {
        microkernel! {
            $name,
            $(concat!(".arch_extension ", $extension),)?
            // PROLOGUE
            "ldr x7, [x0, {c}]",
            "ldr x8, [x0, {ldc}]",
            "ldr x6, [x0, {rows}]",
            "mov x17, x6",
            "2:",
            $(concat!("prfm pstl1keep, [x7, #", $line, "]"),)*
            "add x7, x7, x8",
            "subs x17, x17, #1",
            "b.ne 2b",
            callers!(keep),
            "ldr x1, [x0, {a}]",
            "ldr x2, [x0, {b}]",
            "ldr x3, [x0, {steps}]",
            "ldr x4, [x0, {next}]",
            "ldr x17, [x0, {cols}]",
            "lsr x5, x3, #2",
            zero!("8" "9" "10" "11" "12" "13" "14" "15" "16" "17" "18" "19"),
            zero!("20" "21" "22" "23" "24" "25" "26" "27" "28" "29" "30" "31"),
            // LOOPS
            $loops,
            // STORE
            "400:",
            $($arrange,)?
            "ldr x7, [x0, {c}]",
            "ldr s0, [x0, {alpha}]",
            "ldr s1, [x0, {beta}]",
            "fcmp s1, #0.0",
            "b.ne 401f",
            store_rows!($type new $rows),
            "401:",
            store_rows!($type add $rows),
            "500:",
            callers!(restore),
            "ret",
            $(concat!(".arch_extension no", $extension),)?;
            a = const core::mem::offset_of!(crate::args::micro::MicroArgs, a),
            b = const core::mem::offset_of!(crate::args::micro::MicroArgs, b),
            c = const core::mem::offset_of!(crate::args::micro::MicroArgs, c),
            steps = const core::mem::offset_of!(crate::args::micro::MicroArgs, steps),
            ldc = const core::mem::offset_of!(crate::args::micro::MicroArgs, ldc),
            rows = const core::mem::offset_of!(crate::args::micro::MicroArgs, rows),
            cols = const core::mem::offset_of!(crate::args::micro::MicroArgs, cols),
            alpha = const core::mem::offset_of!(crate::args::micro::MicroArgs, alpha),
            beta = const core::mem::offset_of!(crate::args::micro::MicroArgs, beta),
            next = const core::mem::offset_of!(crate::args::micro::MicroArgs, next),
        }
    };
}

/// No sums yet.
macro_rules! zero {
    ($($v:tt)*) => {
        concat!($("movi v", $v, ".2d, #0\n",)*)
    };
}
