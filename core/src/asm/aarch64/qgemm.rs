//! Panels of quantised weights times panels of activations of 8 bits: for groups of 32 columns or 16, with offsets or
//! without. The 16 rows of a panel take two passes, of eight rows each.
//!
//! With dotprod, `sdot` by element multiplies four columns of four rows with four activations and adds the products up; up
//! to four rows of activations share a pass. Without, `smull` and `smlal` add two columns of products in 16 bits (at most
//! 2 * 128 * 127), `sadalp` adds pairs of these to sums in 32 bits, of which `addp` makes those of rows; up to two rows
//! share a pass. With I8MM, `smmla` multiplies eight columns of two rows with those of two rows of activations. See [`tile`](crate::ops::qgemm::tile::tile) for the order of what is done in f32.
//!
//! | register | |
//! |---|---|
//! | `x0` | `QTileArgs` |
//! | `x1`, `x2`, `x3` | the step's codes, scales, offsets |
//! | `x4`, `x5` | the step's activations, bytes to the next step |
//! | `x6`, `x7` | steps that are left; which half: bytes from the start of a line |
//! | `x8` | results |
//! | `x9`..`x16` | the caller's `d8`..`d15` |
//! | `v0`..`v3` | weights; then scales, offsets |
//! | `v4`..`v7` | activations; products of 16 bits |
//! | `v8`..`v31` | integers of the second and the first group, results |

/// A half step of 16 columns: cells at `$w`, activations at `$x` of each row's step.
macro_rules! columns {
    (dotprod $at:tt [$w0:tt $w1:tt $w2:tt $w3:tt] $which:ident $(($x:tt $place:tt $y:tt $a:tt $b:tt))*) => {
        concat!(
            $("ldr q", $x, ", [x4, #", $place, " + ", $at, "]\n",)*
            columns!(@cell $w0 "0" "1" "0" $which $(($x $a $b))*),
            columns!(@cell $w1 "2" "3" "1" $which $(($x $a $b))*),
            columns!(@cell $w2 "0" "1" "2" $which $(($x $a $b))*),
            columns!(@cell $w3 "2" "3" "3" $which $(($x $a $b))*),
        )
    };
    (@cell $w:tt $v0:tt $v1:tt $four:tt first $(($x:tt [$a0:tt $a1:tt] $b:tt))*) => {
        concat!("ldp q", $v0, ", q", $v1, ", [x1, #", $w, "]\n", $(
            "sdot v", $a0, ".4s, v", $v0, ".16b, v", $x, ".4b[", $four, "]\n",
            "sdot v", $a1, ".4s, v", $v1, ".16b, v", $x, ".4b[", $four, "]\n",
        )*)
    };
    (@cell $w:tt $v0:tt $v1:tt $four:tt second $(($x:tt $a:tt $b:tt))*) => {
        columns!(@cell $w $v0 $v1 $four first $(($x $b $b))*)
    };
    (smull $at:tt [$w0:tt $w1:tt $w2:tt $w3:tt] $which:ident $($row:tt)*) => {
        concat!(
            columns!(@pair $at $w0 $w1 "0" "1" $which $($row)*),
            columns!(@pair $at $w2 $w3 "2" "3" $which $($row)*),
        )
    };
    (@pair $at:tt $w0:tt $w1:tt $four:tt $next:tt $which:ident $(($x:tt $place:tt $y:tt $a:tt $b:tt))*) => {
        concat!(
            "ldp q0, q1, [x1, #", $w0, "]\n",
            "ldp q2, q3, [x1, #", $w1, "]\n",
            $(
                "ldr q6, [x4, #", $place, " + ", $at, "]\n",
                "dup v7.4s, v6.s[", $next, "]\n",
                "dup v6.4s, v6.s[", $four, "]\n",
                columns!(@words $which $a $b),
            )*
        )
    };
    (@words first [$a0:tt $a1:tt $a2:tt $a3:tt] $b:tt) => {
        concat!(
            "smull v4.8h, v0.8b, v6.8b\nsmull2 v5.8h, v0.16b, v6.16b\n",
            "smlal v4.8h, v2.8b, v7.8b\nsmlal2 v5.8h, v2.16b, v7.16b\n",
            "sadalp v", $a0, ".4s, v4.8h\nsadalp v", $a1, ".4s, v5.8h\n",
            "smull v4.8h, v1.8b, v6.8b\nsmull2 v5.8h, v1.16b, v6.16b\n",
            "smlal v4.8h, v3.8b, v7.8b\nsmlal2 v5.8h, v3.16b, v7.16b\n",
            "sadalp v", $a2, ".4s, v4.8h\nsadalp v", $a3, ".4s, v5.8h\n",
        )
    };
    (@words second $a:tt $b:tt) => {
        columns!(@words first $b $b)
    };
    (i8mm $at:tt [$w0:tt $w1:tt $w2:tt $w3:tt] $which:ident $(($x:tt $place:tt $y:tt $a:tt $b:tt))*) => {
        concat!(
            $(pairs!(load $at $x $place),)*
            columns!(@eight $w0 $w1 low left "0" $which $(($x $a $b))*),
            columns!(@eight $w0 $w1 low right "16" $which $(($x $a $b))*),
            columns!(@eight $w2 $w3 high left "0" $which $(($x $a $b))*),
            columns!(@eight $w2 $w3 high right "16" $which $(($x $a $b))*),
        )
    };
    (@eight $w:tt $and:tt $eight:ident $quad:ident $at:tt $which:ident $(($x:tt $a:tt $b:tt))*) => {
        concat!(
            "ldr q2, [x1, #", $w, " + ", $at, "]\nldr q3, [x1, #", $and, " + ", $at, "]\n",
            "zip1 v0.4s, v2.4s, v3.4s\nzip2 v1.4s, v2.4s, v3.4s\n",
            $(pairs!(times $which $eight $quad $x $a $b),)*
        )
    };
}

/// Pairs of rows of activations, for `smmla`; what a pair needs is with its first row: registers for two eights of columns,
/// where the other row is, registers for the integers of rows 2 and 3 of each quad, of both groups. A row without another
/// (`alone`) is its own.
macro_rules! pairs {
    ($what:ident $at:tt [] $place:tt) => {
        ""
    };
    (load $at:tt [$x:tt $and:tt $other:tt $c:tt $d:tt $alone:ident] $place:tt) => {
        concat!(
            "ldr q0, [x4, #", $place, " + ", $at, "]\nldr q1, [x4, #", $other, " + ", $at, "]\n",
            "zip1 v", $x, ".2d, v0.2d, v1.2d\nzip2 v", $and, ".2d, v0.2d, v1.2d\n",
        )
    };
    (times $which:ident $eight:ident $quad:ident [] $a:tt $b:tt) => {
        ""
    };
    (times first $eight:ident $quad:ident [$x:tt $and:tt $other:tt $c:tt $d:tt $alone:ident] $a:tt $b:tt) => {
        pairs!(@$eight $quad $x $and $a $c)
    };
    (times second $eight:ident $quad:ident [$x:tt $and:tt $other:tt $c:tt $d:tt $alone:ident] $a:tt $b:tt) => {
        pairs!(@$eight $quad $x $and $b $d)
    };
    (@low $quad:ident $x:tt $and:tt $a:tt $c:tt) => {
        pairs!(@$quad $x $a $c)
    };
    (@high $quad:ident $x:tt $and:tt $a:tt $c:tt) => {
        pairs!(@$quad $and $a $c)
    };
    (@left $x:tt [$a:tt $a1:tt] [$c:tt $c1:tt]) => {
        concat!("smmla v", $a, ".4s, v0.16b, v", $x, ".16b\nsmmla v", $c, ".4s, v1.16b, v", $x, ".16b\n")
    };
    (@right $x:tt [$a0:tt $a:tt] [$c0:tt $c:tt]) => {
        pairs!(@left $x [$a $a0] [$c $c0])
    };
    // Integers start with zero: those that are not of another row.
    (begin first [$x:tt $and:tt $other:tt $c:tt $d:tt alone] $a:tt) => {
        start!($c)
    };
    (begin second [$x:tt $and:tt $other:tt $c:tt $d:tt alone] $a:tt) => {
        start!($d)
    };
    (begin $which:ident $x:tt $a:tt) => {
        ""
    };
    // They become those of rows of activations, in f32.
    (end first [$x:tt $and:tt $other:tt $c:tt $d:tt $alone:ident] $a:tt) => {
        pairs!(@end $alone $a $c)
    };
    (end second [$x:tt $and:tt $other:tt $c:tt $d:tt $alone:ident] $a:tt) => {
        pairs!(@end $alone $a $d)
    };
    (@end $alone:ident [$a0:tt $a1:tt] [$c0:tt $c1:tt]) => {
        concat!(pairs!(@@$alone $a0 $c0), pairs!(@@$alone $a1 $c1))
    };
    (@@alone $a:tt $c:tt) => {
        concat!("uzp1 v", $a, ".4s, v", $a, ".4s, v", $c, ".4s\nscvtf v", $a, ".4s, v", $a, ".4s\n")
    };
    (@@with $a:tt $c:tt) => {
        concat!(
            "uzp1 v0.4s, v", $a, ".4s, v", $c, ".4s\nuzp2 v", $c, ".4s, v", $a, ".4s, v", $c, ".4s\n",
            "scvtf v", $a, ".4s, v0.4s\nscvtf v", $c, ".4s, v", $c, ".4s\n",
        )
    };
}

/// What a tier does before and after the products of a group, beyond what all do.
macro_rules! around {
    (i8mm $what:ident $which:ident $(($x:tt $a:tt))*) => {
        concat!($(pairs!($what $which $x $a),)*)
    };
    ($way:ident $($any:tt)*) => {
        ""
    };
}

/// Integers start with zero.
macro_rules! start {
    ($([$($sum:tt)*])*) => {
        concat!($($("movi v", $sum, ".4s, #0\n",)*)*)
    };
}

/// Integers become f32, in two registers.
macro_rules! integers {
    // They are.
    (i8mm $a:tt) => {
        ""
    };
    (dotprod [$a0:tt $a1:tt]) => {
        concat!("scvtf v", $a0, ".4s, v", $a0, ".4s\nscvtf v", $a1, ".4s, v", $a1, ".4s\n")
    };
    (smull [$a0:tt $a1:tt $a2:tt $a3:tt]) => {
        concat!(
            "addp v", $a0, ".4s, v", $a0, ".4s, v", $a1, ".4s\n",
            "addp v", $a1, ".4s, v", $a2, ".4s, v", $a3, ".4s\n",
            integers!(dotprod [$a0 $a1]),
        )
    };
}

/// Two registers: `$op` with those of a scale.
macro_rules! scaled {
    ($op:tt [$to0:tt $to1:tt $($to:tt)*] [$a0:tt $a1:tt $($a:tt)*] $s0:tt $s1:tt) => {
        concat!(
            $op, " v", $to0, ".4s, v", $a0, ".4s, v", $s0, "\n", $op, " v", $to1, ".4s, v", $a1, ".4s, v",
            $s1, "\n",
        )
    };
}

/// The products of a step, times their scales.
macro_rules! products {
    ($way:ident 32 $(($x:tt $place:tt $y:tt $a:tt $b:tt))*) => {
        concat!(
            start!($($a)*),
            around!($way begin first $(($x $a))*),
            columns!($way "0" ["0" "64" "128" "192"] first $(($x $place $y $a $b))*),
            columns!($way "16" ["256" "320" "384" "448"] first $(($x $place $y $a $b))*),
            around!($way end first $(($x $a))*),
            "ldp q0, q1, [x2]\n",
            $(integers!($way $a), scaled!("fmul" $a $a "0.4s" "1.4s"),)*
        )
    };
    ($way:ident 16 $(($x:tt $place:tt $y:tt $a:tt $b:tt))*) => {
        concat!(
            start!($($a $b)*),
            around!($way begin first $(($x $a))*),
            around!($way begin second $(($x $b))*),
            columns!($way "0" ["0" "64" "128" "192"] first $(($x $place $y $a $b))*),
            columns!($way "16" ["256" "320" "384" "448"] second $(($x $place $y $a $b))*),
            around!($way end first $(($x $a))*),
            around!($way end second $(($x $b))*),
            "ldp q0, q1, [x2]\nldp q2, q3, [x2, #64]\n",
            $(
                integers!($way $a),
                integers!($way $b),
                scaled!("fmul" $a $a "0.4s" "1.4s"),
                scaled!("fmla" $a $b "2.4s" "3.4s"),
            )*
        )
    };
}

/// Adds offsets times sums of activations, in lanes of the register with the end of a step.
macro_rules! offsets {
    (none $group:tt $($row:tt)*) => {
        ""
    };
    (min 32 $(($x:tt $place:tt $y:tt $a:tt $b:tt))*) => {
        concat!(
            "ldp q0, q1, [x3], #64\n",
            $("ldr q4, [x4, #", $place, " + 48]\n", scaled!("fmla" $y ["0" "1"] "4.s[2]" "4.s[2]"),)*
        )
    };
    (min 16 $(($x:tt $place:tt $y:tt $a:tt $b:tt))*) => {
        concat!(
            "ldp q0, q1, [x3]\nldp q2, q3, [x3, #64]\nadd x3, x3, #128\n",
            $(
                "ldr q4, [x4, #", $place, " + 48]\n",
                scaled!("fmla" $y ["0" "1"] "4.s[0]" "4.s[0]"),
                scaled!("fmla" $y ["2" "3"] "4.s[1]" "4.s[1]"),
            )*
        )
    };
}

/// One kernel: so many rows of activations, each with its register, its place, its results and integers.
macro_rules! kernel {
    ($way:ident $tier:literal [$($extension:tt)?] $kind:literal $height:literal $group:tt $scales:literal $min:ident
        $(($x:tt $place:tt [$y0:tt $y1:tt] $a:tt $b:tt))*) => {
        qgemm_kernel! {
            concat!("qgemm_f32_q8_", $kind, "_", $height, "x16__", $tier),
            // PROLOGUE
            $(concat!(".arch_extension ", $extension),)?
            "fmov x9, d8\nfmov x10, d9\nfmov x11, d10\nfmov x12, d11",
            "fmov x13, d12\nfmov x14, d13\nfmov x15, d14\nfmov x16, d15",
            "ldr x5, [x0, #{x_step}]",
            "mov x7, #0",
            // HALF A PANEL
            "2:",
            "ldr x1, [x0, #{codes}]",
            "ldr x2, [x0, #{scales}]",
            "ldr x3, [x0, #{offsets}]",
            "ldr x4, [x0, #{x}]",
            "ldr x6, [x0, #{steps}]",
            "add x1, x1, x7",
            "add x2, x2, x7",
            "add x3, x3, x7",
            start!($([$y0 $y1])*),
            // A STEP
            ".p2align 5",
            "3:",
            products!($way $group $(($x $place [$y0 $y1] $a $b))*),
            concat!($("ldr q4, [x4, #", $place, " + 32]\n", scaled!("fmla" [$y0 $y1] $a "4.s[3]" "4.s[3]"),)*),
            offsets!($min $group $(($x $place [$y0 $y1] $a $b))*),
            "add x1, x1, #512",
            concat!("add x2, x2, #", $scales),
            "add x4, x4, x5",
            "subs x6, x6, #1",
            "b.ne 3b",
            // STORE
            "ldr x8, [x0, #{y}]",
            "add x8, x8, x7",
            concat!($("str q", $y0, ", [x8]\nstr q", $y1, ", [x8, #16]\nadd x8, x8, #64\n",)*),
            "add x7, x7, #32",
            "cmp x7, #64",
            "b.ne 2b",
            "fmov d8, x9\nfmov d9, x10\nfmov d10, x11\nfmov d11, x12",
            "fmov d12, x13\nfmov d13, x14\nfmov d14, x15\nfmov d15, x16",
            "ret",
            $(concat!(".arch_extension no", $extension),)?;
            x_step = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x_step),
        }
    };
}

/// The kernels of each kind for so many rows.
macro_rules! heights {
    ($way:ident $tier:literal $arch:tt $($height:literal [$($rows:tt)*];)*) => {$(
        kernel! { $way $tier $arch "g32" $height 32 "64" none $($rows)* }
        kernel! { $way $tier $arch "g16" $height 16 "128" none $($rows)* }
        kernel! { $way $tier $arch "g32m" $height 32 "64" min $($rows)* }
        kernel! { $way $tier $arch "g16m" $height 16 "128" min $($rows)* }
    )*};
}
heights! {
    dotprod "neon_dotprod" ["dotprod"]
    "1" [("4" "0" ["16" "17"] ["24" "25"] ["8" "9"])];
    "2" [("4" "0" ["16" "17"] ["24" "25"] ["8" "9"]) ("5" "64" ["18" "19"] ["26" "27"] ["10" "11"])];
    "3" [
        ("4" "0" ["16" "17"] ["24" "25"] ["8" "9"]) ("5" "64" ["18" "19"] ["26" "27"] ["10" "11"])
        ("6" "128" ["20" "21"] ["28" "29"] ["12" "13"])
    ];
    "4" [
        ("4" "0" ["16" "17"] ["24" "25"] ["8" "9"]) ("5" "64" ["18" "19"] ["26" "27"] ["10" "11"])
        ("6" "128" ["20" "21"] ["28" "29"] ["12" "13"]) ("7" "192" ["22" "23"] ["30" "31"] ["14" "15"])
    ];
}
heights! {
    i8mm "neon_i8mm" ["i8mm"]
    "1" [(["4" "5" "0" ["26" "27"] ["10" "11"] alone] "0" ["16" "17"] ["24" "25"] ["8" "9"])];
    "2" [
        (["4" "5" "64" ["26" "27"] ["10" "11"] with] "0" ["16" "17"] ["24" "25"] ["8" "9"])
        ([] "64" ["18" "19"] ["26" "27"] ["10" "11"])
    ];
    "4" [
        (["4" "5" "64" ["26" "27"] ["10" "11"] with] "0" ["16" "17"] ["24" "25"] ["8" "9"])
        ([] "64" ["18" "19"] ["26" "27"] ["10" "11"])
        (["6" "7" "192" ["30" "31"] ["14" "15"] with] "128" ["20" "21"] ["28" "29"] ["12" "13"])
        ([] "192" ["22" "23"] ["30" "31"] ["14" "15"])
    ];
}
heights! {
    smull "neon_smull" []
    "1" [("6" "0" ["16" "17"] ["24" "25" "26" "27"] ["8" "9" "10" "11"])];
    "2" [
        ("6" "0" ["16" "17"] ["24" "25" "26" "27"] ["8" "9" "10" "11"])
        ("6" "64" ["18" "19"] ["28" "29" "30" "31"] ["12" "13" "14" "15"])
    ];
}
