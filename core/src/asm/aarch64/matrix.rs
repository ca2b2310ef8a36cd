//! The 8x12 tile of matrix instructions: 2x2 sums from two rows of `A` and two columns of `B` in each.
//!
//! ```text
//!            columns 0, 1   2, 3   ..   10, 11
//! rows 0, 1       v8         v9    ..     v13     v0, v1   pairs of rows of A, in turn
//! rows 2, 3       v14        v15   ..     v19     v2..v7   pairs of columns of B
//! rows 4, 5       v20        v21   ..     v25
//! rows 6, 7       v26        v27   ..     v31
//! ```
//!
//! A register is 16 bytes of two rows (columns): the step is as deep as 8 bytes have elements.

/// Two rows, in register `$a`, times pairs of columns: `$p` is `{ instruction, arrangement }`.
macro_rules! two_rows {
    ($p:tt $a:tt [] $sums:tt) => {
        ""
    };
    ({ $mac:tt $type:tt } $a:tt [$b:tt $($rest:tt)*] [$sum:tt $($sums:tt)*]) => {
        concat!(
            $mac, " v", $sum, ".4s, v", $a, ".", $type, ", v", $b, ".", $type, "\n",
            two_rows!({ $mac $type } $a [$($rest)*] [$($sums)*]),
        )
    };
}

/// A step of the pipeline, number `$this` of a round. Step `$next` is loaded meanwhile, behind `$advance`: every
/// register when it is done, 6 multiply-adds before it is needed.
macro_rules! pipelined_2x2 {
    ($p:tt $this:tt $next:tt $advance:expr, [$($line:tt)*]) => {
        concat!(
            two_rows!($p "0" ["2" "3" "4" "5" "6" "7"] ["8" "9" "10" "11" "12" "13"]),
            "ldr q0, [x1, #64*", $this, "+32]\n",
            two_rows!($p "1" ["2" "3" "4" "5" "6" "7"] ["14" "15" "16" "17" "18" "19"]),
            "ldr q1, [x1, #64*", $this, "+48]\n",
            $advance,
            two_rows!($p "0" ["2" "3" "4" "5" "6" "7"] ["20" "21" "22" "23" "24" "25"]),
            "ldr q0, [x1, #64*", $next, "]\n",
            $("prfm pldl1keep, [", $line, "]\n",)*
            two_rows!($p "1" ["2" "3"] ["26" "27"]),
            "ldr q2, [x2, #96*", $next, "]\n",
            "ldr q3, [x2, #96*", $next, "+16]\n",
            two_rows!($p "1" ["4" "5"] ["28" "29"]),
            "ldr q4, [x2, #96*", $next, "+32]\n",
            "ldr q5, [x2, #96*", $next, "+48]\n",
            two_rows!($p "1" ["6" "7"] ["30" "31"]),
            "ldr q6, [x2, #96*", $next, "+64]\n",
            "ldr q7, [x2, #96*", $next, "+80]\n",
            "ldr q1, [x1, #64*", $next, "+16]\n",
        )
    };
}

/// The plain loops for eight and for four rows of the columns in these registers.
macro_rules! edges_2x2 {
    ($p:tt $eight:tt $four:tt $columns:tt) => {
        concat!(
            edges_2x2!(@$eight [
                edges_2x2!(@$p $columns),
                "ldp q0, q1, [x1, #32]\n",
                two_rows!($p "0" $columns ["20" "21" "22" "23" "24" "25"]),
                two_rows!($p "1" $columns ["26" "27" "28" "29" "30" "31"])
            ]),
            edges_2x2!(@$four [edges_2x2!(@$p $columns)]),
        )
    };
    (@{ $($p:tt)* } $columns:tt) => {
        concat!(
            two_rows!({ $($p)* } "0" $columns ["8" "9" "10" "11" "12" "13"]),
            two_rows!({ $($p)* } "1" $columns ["14" "15" "16" "17" "18" "19"]),
        )
    };
    (@$label:tt [$($line:expr),*]) => {
        plain!($label [
            "ldp q2, q3, [x2]\n",
            "ldp q4, q5, [x2, #32]\n",
            "ldp q6, q7, [x2, #64]\n",
            "ldp q0, q1, [x1]\n",
            $($line),*
        ] "64" "96")
    };
}

/// From pairs of 2x2 sums to vectors of their upper and lower row.
macro_rules! unzip_2x2 {
    ($($left:tt $right:tt),*) => {
        concat!($(
            "zip2 v2.2d, v", $left, ".2d, v", $right, ".2d\n",
            "zip1 v", $left, ".2d, v", $left, ".2d, v", $right, ".2d\n",
            "mov v", $right, ".16b, v2.16b\n",
        )*)
    };
}

/// A kernel with this tile.
macro_rules! microkernel_2x2 {
    ($name:literal, extension: $extension:tt, type: $type:ident, multiply_add: $p:tt) => {
        tile_kernel! {
            $name, extension: $extension, type: $type, lines: ["0" "44"],
            loops: concat!(
                choose_8x12!(),
                rounds!("23" [
                    "ldp q2, q3, [x2]\n",
                    "ldp q4, q5, [x2, #32]\n",
                    "ldp q6, q7, [x2, #64]\n",
                    "ldp q0, q1, [x1]\n"
                ] [
                    pipelined_2x2!($p "0" "1" "", ["x1, #512" "x2, #1024" "x2, #1088"]),
                    pipelined_2x2!($p "1" "2" "", ["x1, #576" "x2, #1152"]),
                    pipelined_2x2!($p "2" "3" "", ["x1, #640" "x2, #1216" "x2, #1280"]),
                    pipelined_2x2!($p "3" "0" concat!(advance!("x1" "64"), advance!("x2" "96")), ["x1, #448" "x2, #960"])
                ] "64" "96"),
                edges_2x2!($p "23" "13" ["2" "3" "4" "5" "6" "7"]),
                edges_2x2!($p "22" "12" ["2" "3" "4" "5"]),
                edges_2x2!($p "21" "11" ["2" "3"]),
            ),
            arrange: [unzip_2x2!(
                "8" "9", "10" "11", "12" "13", "14" "15", "16" "17", "18" "19",
                "20" "21", "22" "23", "24" "25", "26" "27", "28" "29", "30" "31"
            )],
            rows: [
                ["8" "10" "12"] ["9" "11" "13"] ["14" "16" "18"] ["15" "17" "19"]
                ["20" "22" "24"] ["21" "23" "25"] ["26" "28" "30"] ["27" "29" "31"]
            ]
        }
    };
}
