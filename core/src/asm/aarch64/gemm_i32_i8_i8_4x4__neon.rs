//! int8 without dotprod: a 4x4 tile, sixteen steps of the inner dimension at once.
//!
//! ```text
//!            column 0   1    2    3
//! row 0         v16    v20  v24  v28     v0..v3   16 steps of a row of A each
//! row 1         v17    v21  v25  v29     v4..v7   16 steps of a column of B each
//! row 2         v18    v22  v26  v30     v8..v15  products of the last four pairs of a row and a column
//! row 3         v19    v23  v27  v31
//! ```
//!
//! A sum has four lanes, which are added up at the end, so that nothing has to be repeated in lanes. `smull`
//! multiplies 8 bytes to 16 bits, `sadalp` adds neighbouring products to 32: 4 multiply-adds an instruction, as
//! `smlal` on 16-bit numbers, but on both pipes of a Cortex-A72, where `smlal` runs on one. Every product is
//! widened before it is added to another: two times -128 * -128 does not fit into 16 bits.

/// The products of a row (`$a`) and a column (`$b`), to `$low` and `$high`; then the products `$l` and `$h`, of two
/// pairs before, to their sum.
macro_rules! multiply {
    ($a:tt $b:tt $low:tt $high:tt, $l:tt $h:tt $sum:tt) => {
        concat!(
            "smull v", $low, ".8h, v", $a, ".8b, v", $b, ".8b\n", "sadalp v", $sum, ".4s, v", $l, ".8h\n",
            "smull2 v", $high, ".8h, v", $a, ".16b, v", $b, ".16b\n", "sadalp v", $sum, ".4s, v", $h,
            ".8h\n",
        )
    };
}

/// A step. The next one is loaded meanwhile, if it says from where: a column when it is done, the rows with the
/// last column.
macro_rules! step {
    ($($next:tt)?) => {
        concat!(
            multiply!("0" "4" "8" "9", "12" "13" "30"),
            multiply!("1" "4" "10" "11", "14" "15" "31"),
            multiply!("2" "4" "12" "13", "8" "9" "16"),
            multiply!("3" "4" "14" "15", "10" "11" "17"),
            $("ldr q4, [x2, #64*", $next, "]\n",)?
            multiply!("0" "5" "8" "9", "12" "13" "18"),
            multiply!("1" "5" "10" "11", "14" "15" "19"),
            multiply!("2" "5" "12" "13", "8" "9" "20"),
            multiply!("3" "5" "14" "15", "10" "11" "21"),
            $("ldr q5, [x2, #64*", $next, "+16]\n",)?
            multiply!("0" "6" "8" "9", "12" "13" "22"),
            multiply!("1" "6" "10" "11", "14" "15" "23"),
            multiply!("2" "6" "12" "13", "8" "9" "24"),
            multiply!("3" "6" "14" "15", "10" "11" "25"),
            $("ldr q6, [x2, #64*", $next, "+32]\n",)?
            multiply!("0" "7" "8" "9", "12" "13" "26"),
            $("ldr q0, [x1, #64*", $next, "]\n",)?
            multiply!("1" "7" "10" "11", "14" "15" "27"),
            $("ldr q1, [x1, #64*", $next, "+16]\n",)?
            multiply!("2" "7" "12" "13", "8" "9" "28"),
            $("ldr q2, [x1, #64*", $next, "+32]\n",)?
            multiply!("3" "7" "14" "15", "10" "11" "29"),
            $("ldr q3, [x1, #64*", $next, "+48]\n",)?
            $("ldr q7, [x2, #64*", $next, "+48]\n",)?
        )
    };
}

/// The four lanes of four sums to the lanes of the first.
macro_rules! add_up {
    ($($s0:tt $s1:tt $s2:tt $s3:tt),*) => {
        concat!($(
            "addp v", $s0, ".4s, v", $s0, ".4s, v", $s1, ".4s\n",
            "addp v", $s2, ".4s, v", $s2, ".4s, v", $s3, ".4s\n",
            "addp v", $s0, ".4s, v", $s0, ".4s, v", $s2, ".4s\n",
        )*)
    };
}

tile_kernel! {
    "gemm_i32_i8_i8_4x4__neon", extension: [], type: i32, lines: ["0" "12"],
    loops: concat!(
        rounds!("16" [
            "ldp q0, q1, [x1]\n",
            "ldp q2, q3, [x1, #32]\n",
            "ldp q4, q5, [x2]\n",
            "ldp q6, q7, [x2, #32]\n"
        ] [
            step!("1"),
            "prfm pldl1keep, [x1, #512]\nprfm pldl1keep, [x2, #512]\n",
            step!("2"),
            "prfm pldl1keep, [x1, #576]\nprfm pldl1keep, [x2, #576]\n",
            step!("3"),
            "prfm pldl1keep, [x1, #640]\nprfm pldl1keep, [x2, #640]\n",
            advance!("x1" "64"),
            advance!("x2" "64"),
            step!("0"),
            "prfm pldl1keep, [x1, #448]\nprfm pldl1keep, [x2, #448]\n"
        ] "64" "64"),
        plain!("16" [
            "ldp q0, q1, [x1]\n",
            "ldp q2, q3, [x1, #32]\n",
            "ldp q4, q5, [x2]\n",
            "ldp q6, q7, [x2, #32]\n",
            step!()
        ] "64" "64"),
    ),
    arrange: [concat!(
        // The last two products.
        "sadalp v30.4s, v12.8h\n",
        "sadalp v31.4s, v14.8h\n",
        "sadalp v30.4s, v13.8h\n",
        "sadalp v31.4s, v15.8h\n",
        add_up!("16" "20" "24" "28", "17" "21" "25" "29", "18" "22" "26" "30", "19" "23" "27" "31"),
    )],
    rows: [["16"] ["17"] ["18"] ["19"]]
}
