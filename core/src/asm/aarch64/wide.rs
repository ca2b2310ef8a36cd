//! The 8x12 tile of products by element.
//!
//! ```text
//!            columns 0..4   4..8   8..12
//! row 0            v8        v12    v16     v0, v1   the rows' elements of A
//!  ..               ..        ..     ..
//! row 3            v11       v15    v19     v2..v4   a step of B
//! row 4            v20       v24    v28     v5..v7   the next one
//!  ..               ..        ..     ..
//! row 7            v23       v27    v31
//! ```

/// Chooses among the loops of an 8x12 tile: 11 to 13 for four rows of one to three vectors, 21 and 22 for eight
/// of one or two. What comes next is for whole tiles.
macro_rules! choose_8x12 {
    () => {
        concat!(
            "cmp x6, #4\n",
            "b.hi 4f\n",
            "cmp x17, #4\n",
            "b.ls 11f\n",
            "cmp x17, #8\n",
            "b.ls 12f\n",
            "b 13f\n",
            "4:\n",
            "cmp x17, #4\n",
            "b.ls 21f\n",
            "cmp x17, #8\n",
            "b.ls 22f\n",
        )
    };
}

/// The loops where a register of `A` holds four rows and one of `B` four columns. `$p` is `{ instruction,
/// arrangement of B, elements of A in the first four rows, in the others }`.
macro_rules! loops_8x12 {
    ($p:tt) => {
        concat!(
            choose_8x12!(),
            rounds!("23" ["ldp q2, q3, [x2]\n", "ldr q4, [x2, #32]\n", "ldp q0, q1, [x1]\n"] [
                pipelined_8x12!($p ["2" "3" "4"] ["5" "6" "7"] "1" ["x2, #1024" "x1, #512"]),
                pipelined_8x12!($p ["5" "6" "7"] ["2" "3" "4"] "2" ["x2, #1088" "x1, #576"]),
                pipelined_8x12!($p ["2" "3" "4"] ["5" "6" "7"] "3" ["x2, #1152"]),
                advance!("x1" "32"),
                advance!("x2" "48"),
                pipelined_8x12!($p ["5" "6" "7"] ["2" "3" "4"] "0" [])
            ] "32" "48"),
            edges_8x12!($p),
        )
    };
}

/// The plain ones.
macro_rules! edges_8x12 {
    ({ $mac:tt $vb:tt $low:tt $high:tt }) => {
        concat!(
            plain_8x12!("23"
                top!($vb $low ($mac "2") ($mac "3") ($mac "4")),
                bottom!($vb $high ($mac "2") ($mac "3") ($mac "4"))
            ),
            plain_8x12!("22" top!($vb $low ($mac "2") ($mac "3")), bottom!($vb $high ($mac "2") ($mac "3"))),
            plain_8x12!("21" top!($vb $low ($mac "2")), bottom!($vb $high ($mac "2"))),
            plain_8x12!("13" top!($vb $low ($mac "2") ($mac "3") ($mac "4"))),
            plain_8x12!("12" top!($vb $low ($mac "2") ($mac "3"))),
            plain_8x12!("11" top!($vb $low ($mac "2"))),
        )
    };
}

/// The first four rows: their elements of `A` times one to three vectors of `B`, given as (instruction,
/// register).
macro_rules! top {
    ($vb:tt $a:tt ($mac0:tt $b0:tt) $(($mac1:tt $b1:tt) $(($mac2:tt $b2:tt))?)?) => {
        concat!(
            block!($mac0 $b0 $vb $a ["8" "9" "10" "11"]),
            $(block!($mac1 $b1 $vb $a ["12" "13" "14" "15"]),
            $(block!($mac2 $b2 $vb $a ["16" "17" "18" "19"]),)?)?
        )
    };
}

/// The other four.
macro_rules! bottom {
    ($vb:tt $a:tt ($mac0:tt $b0:tt) $(($mac1:tt $b1:tt) $(($mac2:tt $b2:tt))?)?) => {
        concat!(
            block!($mac0 $b0 $vb $a ["20" "21" "22" "23"]),
            $(block!($mac1 $b1 $vb $a ["24" "25" "26" "27"]),
            $(block!($mac2 $b2 $vb $a ["28" "29" "30" "31"]),)?)?
        )
    };
}

/// A step of the pipeline. Step `$next` of the round is loaded meanwhile: `B` into the other three registers,
/// a register of `A` when its last row is done, 12 multiply-adds before it is needed.
macro_rules! pipelined_8x12 {
    (
        { $mac:tt $vb:tt $low:tt $high:tt } [$b0:tt $b1:tt $b2:tt] [$n0:tt $n1:tt $n2:tt] $next:tt
        [$($line:tt)*]
    ) => {
        concat!(
            block!($mac $b0 $vb $low ["8" "9" "10" "11"]),
            "ldr q", $n0, ", [x2, #48*", $next, "]\n",
            block!($mac $b1 $vb $low ["12" "13" "14" "15"]),
            "ldr q", $n1, ", [x2, #48*", $next, "+16]\n",
            block!($mac $b2 $vb $low ["16" "17" "18" "19"]),
            "ldr q0, [x1, #32*", $next, "]\n",
            block!($mac $b0 $vb $high ["20" "21" "22" "23"]),
            "ldr q", $n2, ", [x2, #48*", $next, "+32]\n",
            block!($mac $b1 $vb $high ["24" "25" "26" "27"]),
            $("prfm pldl1keep, [", $line, "]\n",)*
            block!($mac $b2 $vb $high ["28" "29" "30" "31"]),
            "ldr q1, [x1, #32*", $next, "+16]\n",
        )
    };
}

/// The loop over single steps of so many blocks.
macro_rules! plain_8x12 {
    ($label:tt $($blocks:expr),*) => {
        plain!($label ["ldp q0, q1, [x1]\n", "ldp q2, q3, [x2]\n", "ldr q4, [x2, #32]\n", $($blocks),*] "32" "48")
    };
}

/// A kernel with this tile: the loops, which leave the sums as in the picture.
macro_rules! microkernel_8x12 {
    ($name:literal, extension: $extension:tt, type: $type:ident, loops: $loops:expr) => {
        tile_kernel! {
            $name, extension: $extension, type: $type, lines: ["0" "44"], loops: $loops, arrange: [],
            rows: [
                ["8" "12" "16"] ["9" "13" "17"] ["10" "14" "18"] ["11" "15" "19"]
                ["20" "24" "28"] ["21" "25" "29"] ["22" "26" "30"] ["23" "27" "31"]
            ]
        }
    };
}
