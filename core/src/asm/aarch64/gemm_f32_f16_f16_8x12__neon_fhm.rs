//! f16 by f16, FHM: the tile of [`wide`](super::wide) on f16, two steps of the inner dimension at once.
//!
//! `fmlal` and `fmlal2` multiply the lower and the upper half of a register of `B` by an element of `A`: exact
//! products, added to f32 with one rounding. Nothing is widened, and there are half as many bytes to load as
//! for f32. `v0` and `v1` are the two steps of `A`, three registers the 12 columns of both of `B`:
//!
//! ```text
//!             columns 0..4   4..8    8..12
//! first step    v2 lower   v2 upper  v3 lower
//! second        v3 upper   v4 lower  v4 upper
//! ```

/// Four rows, one of the two steps of `A`, and columns.
macro_rules! rows {
    (top "0" $($column:tt)*) => {
        top!("4h" ("0" "h" "0" "1" "2" "3") $($column)*)
    };
    (bottom "0" $($column:tt)*) => {
        bottom!("4h" ("0" "h" "4" "5" "6" "7") $($column)*)
    };
    (top "1" $($column:tt)*) => {
        top!("4h" ("1" "h" "0" "1" "2" "3") $($column)*)
    };
    (bottom "1" $($column:tt)*) => {
        bottom!("4h" ("1" "h" "4" "5" "6" "7") $($column)*)
    };
}

/// Both steps; the next two are loaded meanwhile.
macro_rules! pipelined {
    ([$b0:tt $b1:tt $b2:tt] [$n0:tt $n1:tt $n2:tt] $next:tt [$($line:tt)*]) => {
        concat!(
            rows!(top "0" ("fmlal" $b0) ("fmlal2" $b0) ("fmlal" $b1)),
            "ldr q", $n0, ", [x2, #48*", $next, "]\n",
            "ldr q", $n1, ", [x2, #48*", $next, "+16]\n",
            rows!(bottom "0" ("fmlal" $b0) ("fmlal2" $b0) ("fmlal" $b1)),
            "ldr q0, [x1, #32*", $next, "]\n",
            "ldr q", $n2, ", [x2, #48*", $next, "+32]\n",
            rows!(top "1" ("fmlal2" $b1) ("fmlal" $b2) ("fmlal2" $b2)),
            $("prfm pldl1keep, [", $line, "]\n",)*
            rows!(bottom "1" ("fmlal2" $b1) ("fmlal" $b2) ("fmlal2" $b2)),
            "ldr q1, [x1, #32*", $next, "+16]\n",
        )
    };
}

/// The plain loops for eight and for four rows of so many columns: those of the first and of the second step.
macro_rules! edges {
    ($eight:tt $four:tt [$($first:tt)*] [$($second:tt)*]) => {
        concat!(
            plain_8x12!($eight
                rows!(top "0" $($first)*), rows!(bottom "0" $($first)*),
                rows!(top "1" $($second)*), rows!(bottom "1" $($second)*)
            ),
            plain_8x12!($four rows!(top "0" $($first)*), rows!(top "1" $($second)*)),
        )
    };
}

microkernel_8x12! {
    "gemm_f32_f16_f16_8x12__neon_fhm", extension: ["fp16fml"], type: f32,
    loops: concat!(
        choose_8x12!(),
        rounds!("23" ["ldp q2, q3, [x2]\n", "ldr q4, [x2, #32]\n", "ldp q0, q1, [x1]\n"] [
            pipelined!(["2" "3" "4"] ["5" "6" "7"] "1" ["x2, #1024" "x1, #512"]),
            pipelined!(["5" "6" "7"] ["2" "3" "4"] "2" ["x2, #1088" "x1, #576"]),
            pipelined!(["2" "3" "4"] ["5" "6" "7"] "3" ["x2, #1152"]),
            advance!("x1" "32"),
            advance!("x2" "48"),
            pipelined!(["5" "6" "7"] ["2" "3" "4"] "0" [])
        ] "32" "48"),
        edges!("23" "13" [("fmlal" "2") ("fmlal2" "2") ("fmlal" "3")] [("fmlal2" "3") ("fmlal" "4") ("fmlal2" "4")]),
        edges!("22" "12" [("fmlal" "2") ("fmlal2" "2")] [("fmlal2" "3") ("fmlal" "4")]),
        edges!("21" "11" [("fmlal" "2")] [("fmlal2" "3")]),
    )
}
