//! The 24x4 tile of f32 by 16-bit floats that are widened when loaded.
//!
//! ```text
//!            columns 0..4
//! row 0            v8        v0..v3   the rows' elements of A, four rows each, in turn
//! row 1            v9        v4, v5   two steps of B
//!  ..               ..       v6, v7   the next two
//! row 23           v31
//! ```
//!
//! Tall because a register of `B`, once widened, then serves 24 multiply-adds. In an 8x12 tile it serves 8, and
//! the two pipes of a Cortex-A76 would spend a fifth of their time widening f16. Two steps of the inner dimension
//! fill a register with 16-bit elements of `B`, so they go together.

/// Widens the lower, the upper half of `$from`.
macro_rules! widen {
    (f16 low $to:tt $from:tt) => {
        concat!("fcvtl v", $to, ".4s, v", $from, ".4h\n")
    };
    (f16 high $to:tt $from:tt) => {
        concat!("fcvtl2 v", $to, ".4s, v", $from, ".8h\n")
    };
    (bf16 low $to:tt $from:tt) => {
        concat!("shll v", $to, ".4s, v", $from, ".4h, #16\n")
    };
    (bf16 high $to:tt $from:tt) => {
        concat!("shll2 v", $to, ".4s, v", $from, ".8h, #16\n")
    };
}

/// Four rows, those from `$row` on: a register of `B` times one of `A`.
macro_rules! four_rows {
    ($b:tt $a:tt 0) => {
        four_rows!(@$b $a "8" "9" "10" "11")
    };
    ($b:tt $a:tt 4) => {
        four_rows!(@$b $a "12" "13" "14" "15")
    };
    ($b:tt $a:tt 8) => {
        four_rows!(@$b $a "16" "17" "18" "19")
    };
    ($b:tt $a:tt 12) => {
        four_rows!(@$b $a "20" "21" "22" "23")
    };
    ($b:tt $a:tt 16) => {
        four_rows!(@$b $a "24" "25" "26" "27")
    };
    ($b:tt $a:tt 20) => {
        four_rows!(@$b $a "28" "29" "30" "31")
    };
    (@$b:tt $a:tt $($sum:tt)*) => {
        block!("fmla" $b "4s" ($a "s" "0" "1" "2" "3") [$($sum)*])
    };
}

/// A pair of steps, `B` in `$b0` and `$b1`. The next pair's is loaded and widened meanwhile, to `$n0` and `$n1`; a
/// register of `A` is loaded as soon as its rows are done, 12 multiply-adds before it is needed.
macro_rules! pipelined_24x4 {
    (
        $kind:ident [$b0:tt $b1:tt] [$n0:tt $n1:tt] this: $this:tt, next: $next:tt,
        advance: [$($advance:ident)?], ask: [$($line:tt)*]
    ) => {
        concat!(
            $($advance!("x2" "16"),)?
            "ldr q", $n1, ", [x2, #16*", $next, "]\n",
            four_rows!($b0 "0" 0), "ldr q0, [x1, #192*", $this, "+64]\n",
            four_rows!($b0 "1" 4), "ldr q1, [x1, #192*", $this, "+80]\n",
            four_rows!($b0 "2" 8), "ldr q2, [x1, #192*", $this, "+96]\n",
            four_rows!($b0 "3" 12), "ldr q3, [x1, #192*", $this, "+112]\n",
            four_rows!($b0 "0" 16), "ldr q0, [x1, #192*", $this, "+128]\n",
            four_rows!($b0 "1" 20), "ldr q1, [x1, #192*", $this, "+144]\n",
            widen!($kind low $n0 $n1),
            four_rows!($b1 "2" 0), "ldr q2, [x1, #192*", $this, "+160]\n",
            four_rows!($b1 "3" 4), "ldr q3, [x1, #192*", $this, "+176]\n",
            $($advance!("x1" "192"),)?
            four_rows!($b1 "0" 8), "ldr q0, [x1, #192*", $next, "]\n",
            widen!($kind high $n1 $n1),
            four_rows!($b1 "1" 12), "ldr q1, [x1, #192*", $next, "+16]\n",
            $("prfm pldl1keep, [", $line, "]\n",)*
            four_rows!($b1 "2" 16), "ldr q2, [x1, #192*", $next, "+32]\n",
            four_rows!($b1 "3" 20), "ldr q3, [x1, #192*", $next, "+48]\n",
        )
    };
}

/// The plain loops for the first 4, 8, .. rows.
macro_rules! edges_24x4 {
    ($kind:ident [] $($rows:tt)*) => {
        ""
    };
    ($kind:ident [($label:tt $next:tt) $($rest:tt)*] $(($a:tt $row:tt))*) => {
        concat!(
            edges_24x4!(@$kind $label $(($a $row))* $next),
            edges_24x4!($kind [$($rest)*] $(($a $row))* $next),
        )
    };
    (@$kind:ident $label:tt $(($a:tt $row:tt))*) => {
        plain!($label [
            "ldr q5, [x2]\n",
            widen!($kind low "4" "5"),
            "ldp q0, q1, [x1]\n",
            "ldp q2, q3, [x1, #32]\n",
            "ldp q6, q7, [x1, #64]\n",
            concat!($(four_rows!("4" $a $row)),*),
            widen!($kind high "5" "5"),
            "ldp q0, q1, [x1, #96]\n",
            "ldp q2, q3, [x1, #128]\n",
            "ldp q6, q7, [x1, #160]\n",
            concat!($(four_rows!("5" $a $row)),*)
        ] "192" "16")
    };
}

/// A kernel with this tile.
macro_rules! microkernel_24x4 {
    ($name:literal, widen: $kind:ident) => {
        tile_kernel! {
            $name, extension: [], type: f32, lines: ["0" "12"],
            loops: concat!(
                "cmp x6, #4\n", "b.ls 11f\n",
                "cmp x6, #8\n", "b.ls 12f\n",
                "cmp x6, #12\n", "b.ls 13f\n",
                "cmp x6, #16\n", "b.ls 14f\n",
                "cmp x6, #20\n", "b.ls 15f\n",
                rounds!("16" [
                    "ldr q5, [x2]\n",
                    "ldp q0, q1, [x1]\n",
                    "ldp q2, q3, [x1, #32]\n",
                    widen!($kind low "4" "5"),
                    widen!($kind high "5" "5")
                ] [
                    pipelined_24x4!($kind ["4" "5"] ["6" "7"] this: "0", next: "1",
                        advance: [], ask: ["x1, #1536" "x1, #1600" "x1, #1664" "x2, #512"]),
                    pipelined_24x4!($kind ["6" "7"] ["4" "5"] this: "1", next: "2",
                        advance: [], ask: ["x1, #1728" "x1, #1792" "x1, #1856"]),
                    pipelined_24x4!($kind ["4" "5"] ["6" "7"] this: "2", next: "3",
                        advance: [], ask: ["x1, #1920" "x1, #1984" "x1, #2048"]),
                    pipelined_24x4!($kind ["6" "7"] ["4" "5"] this: "3", next: "0",
                        advance: [advance], ask: ["x1, #1344" "x1, #1408" "x1, #1472"])
                ] "192" "16"),
                edges_24x4!($kind [
                    ("11" ("0" 0)) ("12" ("1" 4)) ("13" ("2" 8)) ("14" ("3" 12)) ("15" ("6" 16)) ("16" ("7" 20))
                ]),
            ),
            arrange: [],
            rows: [
                ["8"] ["9"] ["10"] ["11"] ["12"] ["13"] ["14"] ["15"] ["16"] ["17"] ["18"] ["19"]
                ["20"] ["21"] ["22"] ["23"] ["24"] ["25"] ["26"] ["27"] ["28"] ["29"] ["30"] ["31"]
            ]
        }
    };
}
