//! Packed quantised weights times activations of 8 bits, with I8MM: one or two rows of activations.
//!
//! `smmla` multiplies two rows of eight columns with two others. Eights are made of fours of columns before they are
//! unpacked (`zip1`, `zip2`): then the places of their bits are those of nibbles. Of a quad of rows `A` has the first two,
//! `B` the others; of sums, too, until a step is done. Two rows of activations are paired in the same way; one is its own
//! partner. Codes that are numbers with a bias stay unsigned (`usmmla`). See [`qgemv`](super::qgemv).
//!
//! Formats whose scales come in f16 without offsets (`wide`) do all 16 rows in one pass, the others eight.
//!
//! | register | |
//! |---|---|
//! | `v0`, `v1` | `A` and `B` of a quad, to be unpacked; after steps scales |
//! | `v2`, `v3` | other codes; vectors as they are in memory |
//! | `v4`, `v5`; `v6`, `v7` | high plane; other codes. Or `A` and `B` of two quads |
//! | `v8`..`v11` | eights of activations; then sums and scale of each row |
//! | `v14`, `v15` | if `wide`: 1.5 * 2^23, the table of values |
//! | `v16`..`v23` | if `wide`: the results |
//! | `v24`..`v31` | integers |

/// Eights of activations: `v8` to `v11`.
macro_rules! eights_of {
    ([($x:tt $($one:tt)*)]) => {
        eights_of!(@$x $x)
    };
    ([($x:tt $($one:tt)*) ($y:tt $($two:tt)*)]) => {
        eights_of!(@$x $y)
    };
    (@$x:tt $y:tt) => {
        concat!(
            "ldp q0, q1, [", $x, ", #-32]\nldp q2, q3, [", $y, ", #-32]\n",
            "zip1 v8.2d, v0.2d, v2.2d\nzip2 v9.2d, v0.2d, v2.2d\n",
            "zip1 v10.2d, v1.2d, v3.2d\nzip2 v11.2d, v1.2d, v3.2d\n",
        )
    };
}

/// The register of 1.5 * 2^23; that of the table of values.
macro_rules! place_of {
    (one wide $group:tt $min:ident) => {
        "14"
    };
    (one i8mm 32 $min:ident) => {
        "31"
    };
    (one i8mm 16 none) => {
        "23"
    };
    (one i8mm 16 min) => {
        "13"
    };
    (table wide) => {
        "15"
    };
    (table i8mm) => {
        "20"
    };
}

macro_rules! constants {
    ($p:ident $group:tt $min:ident) => {
        concat!(
            "movi v", place_of!(one $p $group $min), ".4s, #0x4b, lsl #24\n",
            "orr v", place_of!(one $p $group $min), ".4s, #0x40, lsl #16\n",
            constants!(@$p),
        )
    };
    (@i8mm) => {
        ""
    };
    (@wide) => {
        "mov v15.16b, v20.16b\n"
    };
}

/// What integers start with: 1.5 * 2^23 in f32, plus the bias times the negative sum of the activations. Of one row of
/// activations, the other registers of its integers are named apart.
macro_rules! start {
    (none $p:ident $group:tt $min:ident [$(($x:tt $xs:tt [$(($more:tt $most:tt))*] [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!(
            $($(start!(@same $group place_of!(one $p $group $min), $a $b),)*)*
            $($(start!(@same $group place_of!(one $p $group $min), $more $most),)*)*
        )
    };
    ($bias:tt $p:ident $group:tt $min:ident [$(($x:tt $xs:tt [$(($more:tt $most:tt))*] [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!(
            start!(@sums $group [$($x)*]),
            "shl v0.4s, v0.4s, #", $bias, "\n",
            "add v0.4s, v0.4s, v", place_of!(one $p $group $min), ".4s\n",
            $($(start!(@sum $group $a $b),)*)*
            $($(start!(@sum $group $more $most),)*)*
        )
    };
    (@same 32 $one:expr, $a:tt $b:tt) => {
        concat!("mov v", $a, ".16b, v", $one, ".16b\n")
    };
    (@same 16 $one:expr, $a:tt $b:tt) => {
        concat!("mov v", $a, ".16b, v", $one, ".16b\nmov v", $b, ".16b, v", $one, ".16b\n")
    };
    // Of each half those of both rows, or of both halves in the first lanes.
    (@sums $group:tt [$x:tt]) => {
        start!(@sums $group [$x $x])
    };
    (@sums 32 [$x:tt $y:tt]) => {
        concat!("ldr q0, [", $x, "]\nldr q1, [", $y, "]\nzip2 v0.4s, v0.4s, v1.4s\n")
    };
    (@sums 16 [$x:tt $y:tt]) => {
        concat!("ldr q0, [", $x, "]\nldr q1, [", $y, "]\nzip1 v0.4s, v0.4s, v1.4s\n")
    };
    (@sum 32 $a:tt $b:tt) => {
        concat!("dup v", $a, ".2d, v0.d[0]\n")
    };
    (@sum 16 $a:tt $b:tt) => {
        concat!("dup v", $a, ".2d, v0.d[0]\ndup v", $b, ".2d, v0.d[1]\n")
    };
}

/// Nothing: integers have started with it.
macro_rules! unbias {
    ($p:ident $bias:tt $at:tt $x0:tt) => {
        ""
    };
}

/// Nothing: that was the end of products.
macro_rules! integers {
    ($p:ident $half:ident $bias:tt $way:ident $group:tt $min:ident $a:tt $b:tt) => {
        ""
    };
}

/// Integers of a quad become those of rows of activations, in f32: less 1.5 * 2^23, below which the lowest bits of an f32 are
/// those of an integer.
macro_rules! rows_of {
    (32 $one:expr, $rows:tt ($at:tt $spread:tt $first:tt $second:tt)) => {
        rows_of!(@$rows $one, $first)
    };
    (16 $one:expr, $rows:tt ($at:tt $spread:tt $first:tt $second:tt)) => {
        concat!(rows_of!(@$rows $one, $first), rows_of!(@$rows $one, $second))
    };
    (@[$x:tt] $one:expr, [$a:tt $b:tt]) => {
        concat!(
            "uzp1 v", $a, ".4s, v", $a, ".4s, v", $b, ".4s\n",
            "fsub v", $a, ".4s, v", $a, ".4s, v", $one, ".4s\n",
        )
    };
    (@[$x:tt $y:tt] $one:expr, [$a:tt $b:tt]) => {
        concat!(
            "uzp1 v0.4s, v", $a, ".4s, v", $b, ".4s\n",
            "uzp2 v", $b, ".4s, v", $a, ".4s, v", $b, ".4s\n",
            "fsub v", $a, ".4s, v0.4s, v", $one, ".4s\n",
            "fsub v", $b, ".4s, v", $b, ".4s, v", $one, ".4s\n",
        )
    };
}

/// What indices in `$v` (`A`) and `$w` (`B`) stand for, times an eight of activations.
macro_rules! eight {
    ({ $p:ident linear $group:tt } $half:ident $x:tt $v:tt $w:tt $quad:tt) => {
        eight!(@"usmmla" $group $half $x $v $w $quad)
    };
    ({ $p:ident table $group:tt } $half:ident $x:tt $v:tt $w:tt $quad:tt) => {
        concat!(
            "tbl v", $v, ".16b, {{v", place_of!(table $p), ".16b}}, v", $v, ".16b\n",
            "tbl v", $w, ".16b, {{v", place_of!(table $p), ".16b}}, v", $w, ".16b\n",
            eight!(@"smmla" $group $half $x $v $w $quad),
        )
    };
    (@$mac:tt 16 second $x:tt $v:tt $w:tt ($at:tt $spread:tt $first:tt $second:tt)) => {
        eight!(@@$mac $x $v $w $second)
    };
    (@$mac:tt $group:tt $half:ident $x:tt $v:tt $w:tt ($at:tt $spread:tt $first:tt $second:tt)) => {
        eight!(@@$mac $x $v $w $first)
    };
    (@@$mac:tt $x:tt $v:tt $w:tt [$a:tt $b:tt]) => {
        concat!(
            $mac, " v", $a, ".4s, v", $v, ".16b, v", $x, ".16b\n",
            $mac, " v", $b, ".4s, v", $w, ".16b, v", $x, ".16b\n",
        )
    };
}

/// An instruction for `A` and `B`.
macro_rules! both {
    ($op:tt [$v:tt $w:tt] [$a:tt $b:tt] $end:expr) => {
        concat!(
            $op, " v", $v, ".16b, v", $a, ".16b, ", $end, "\n", $op, " v", $w, ".16b, v", $b, ".16b, ", $end,
            "\n",
        )
    };
}

/// Vectors `v2` and `v3` become `A` and `B`.
macro_rules! pair {
    ($v:tt $w:tt) => {
        concat!("zip1 v", $v, ".4s, v2.4s, v3.4s\nzip2 v", $w, ".4s, v2.4s, v3.4s\n")
    };
}

/// Two fours of columns of a plane for a quad: two vectors, or two bits of one.
macro_rules! plane {
    ($v:tt $w:tt [$from:tt $and:tt] ($at:tt $spread:tt $first:tt $second:tt)) => {
        concat!("ldr q2, [x5, #", $from, "+", $at, "]\nldr q3, [x5, #", $and, "+", $at, "]\n", pair!($v $w))
    };
    ($v:tt $w:tt [$from:tt] ($at:tt $spread:tt $first:tt $second:tt)) => {
        concat!("ldr q2, [x5, #", $from, "+", $at, "]\nushr v3.16b, v2.16b, #1\n", pair!($v $w))
    };
    // By row: `$spread` says where its bytes go.
    ($v:tt $w:tt row ($at:tt $spread:tt $first:tt $second:tt)) => {
        concat!(
            "ldr d2, [x4, #32]\ntbl v2.16b, {{v2.16b}}, v", $spread, ".16b\nushr v3.16b, v2.16b, #1\n",
            pair!($v $w),
        )
    };
}

/// Two fours of columns for two quads: to `v4`, `v5` and `v6`, `v7`.
macro_rules! planes {
    ($from:tt $and:tt ($at:tt $spread:tt $first:tt $second:tt)) => {
        concat!(
            "ldp q0, q1, [x5, #",
            $from,
            "+",
            $at,
            "]\nldp q2, q3, [x5, #",
            $and,
            "+",
            $at,
            "]\n",
            "zip1 v4.4s, v0.4s, v2.4s\nzip2 v5.4s, v0.4s, v2.4s\n",
            "zip1 v6.4s, v1.4s, v3.4s\nzip2 v7.4s, v1.4s, v3.4s\n",
        )
    };
}

/// The products of a step: this tier's, of whole eights.
macro_rules! products {
    ($low:tt $high:tt [$([$one:tt $other:tt])*] { $p:ident $quads:tt $min:ident $rows:tt $values:ident $way:ident $group:tt }) => {
        concat!(
            $(products!(@$low $high { $p $values $group } $one $other),)*
            $(
                rows_of!($group place_of!(one $p $group $min), $rows $one),
                rows_of!($group place_of!(one $p $group $min), $rows $other),
            )*
        )
    };
    (@8 0 $c:tt $one:tt $other:tt) => {
        concat!(
            products!(@bytes "0" "64" first "8" $c $one $other),
            products!(@bytes "128" "192" first "9" $c $one $other),
            products!(@bytes "256" "320" second "10" $c $one $other),
            products!(@bytes "384" "448" second "11" $c $one $other),
        )
    };
    (@4 0 $c:tt $one:tt $other:tt) => {
        concat!(
            products!(@nibbles "0" "64" "8" "10" $c $one $other),
            products!(@nibbles "128" "192" "9" "11" $c $one $other),
        )
    };
    (@bytes $from:tt $and:tt $half:ident $x:tt $c:tt $one:tt $other:tt) => {
        concat!(
            planes!($from $and $one),
            eight!($c $half $x "4" "5" $one),
            eight!($c $half $x "6" "7" $other),
        )
    };
    (@nibbles $from:tt $and:tt $x:tt $y:tt $c:tt $one:tt $other:tt) => {
        concat!(
            planes!($from $and $one),
            both!("and" ["0" "1"] ["4" "5"] "v12.16b"),
            both!("and" ["2" "3"] ["6" "7"] "v12.16b"),
            both!("ushr" ["4" "5"] ["4" "5"] "#4"),
            both!("ushr" ["6" "7"] ["6" "7"] "#4"),
            eight!($c first $x "0" "1" $one),
            eight!($c first $x "2" "3" $other),
            eight!($c second $y "4" "5" $one),
            eight!($c second $y "6" "7" $other),
        )
    };
    (@quad 4 1 $c:tt $quad:tt) => {
        concat!(plane!("4" "5" ["256"] $quad), products!(@high $c $quad))
    };
    (@quad 4 2 $c:tt $quad:tt) => {
        concat!(plane!("4" "5" ["256" "320"] $quad), products!(@high $c $quad))
    };
    // High bits of the nibbles of a byte are four bits apart, too.
    (@high $c:tt $quad:tt) => {
        concat!(
            plane!("0" "1" ["0" "64"] $quad),
            products!(@nibble "8" "10" $c $quad),
            both!("ushr" ["4" "5"] ["4" "5"] "#2"),
            plane!("0" "1" ["128" "192"] $quad),
            products!(@nibble "9" "11" $c $quad),
        )
    };
    (@nibble $x:tt $y:tt $c:tt $quad:tt) => {
        concat!(
            both!("ushr" ["2" "3"] ["0" "1"] "#4"),
            "sli v0.16b, v4.16b, #4\nsli v1.16b, v5.16b, #4\n",
            both!("bit" ["2" "3"] ["4" "5"] "v13.16b"),
            both!("and" ["0" "1"] ["0" "1"] "v12.16b"),
            eight!($c first $x "0" "1" $quad),
            eight!($c second $y "2" "3" $quad),
        )
    };
    (@quad 2 0 $c:tt $quad:tt) => {
        concat!(
            plane!("0" "1" ["0" "64"] $quad),
            both!("and" ["2" "3"] ["0" "1"] "v12.16b"),
            eight!($c first "8" "2" "3" $quad),
            products!(@shifted "2" first "9" $c $quad),
            products!(@shifted "4" second "10" $c $quad),
            both!("ushr" ["2" "3"] ["0" "1"] "#6"),
            eight!($c second "11" "2" "3" $quad),
        )
    };
    // Pairs of bits and high bits become two nibbles.
    (@quad 2 1 $c:tt $quad:tt) => {
        concat!(plane!("4" "5" ["128"] $quad), products!(@twos $c $quad))
    };
    (@quad 2 row $c:tt $quad:tt) => {
        concat!(plane!("4" "5" row $quad), products!(@twos $c $quad))
    };
    (@twos $c:tt $quad:tt) => {
        concat!(
            plane!("0" "1" ["0" "64"] $quad),
            both!("ushr" ["6" "7"] ["0" "1"] "#2"),
            both!("shl" ["2" "3"] ["4" "5"] "#2"),
            both!("bit" ["0" "1"] ["2" "3"] "v13.16b"),
            both!("bit" ["6" "7"] ["4" "5"] "v13.16b"),
            products!(@threes "0" "1" "8" "10" $c $quad),
            products!(@threes "6" "7" "9" "11" $c $quad),
        )
    };
    // Of tables there are two copies: the fourth bit may be anything.
    (@threes $v:tt $w:tt $x:tt $y:tt $c:tt $quad:tt) => {
        concat!(
            both!("and" ["2" "3"] [$v $w] "v12.16b"),
            both!("ushr" [$v $w] [$v $w] "#4"),
            both!("and" [$v $w] [$v $w] "v12.16b"),
            eight!($c first $x "2" "3" $quad),
            eight!($c second $y $v $w $quad),
        )
    };
    // A bit counts twice, so that its values, 1 and -1, are numbers with a bias.
    (@quad 1 0 { $p:ident table $group:tt } $quad:tt) => {
        products!(@bits { $p linear $group } $quad)
    };
    (@bits $c:tt $quad:tt) => {
        concat!(
            plane!("0" "1" ["0"] $quad),
            both!("shl" ["2" "3"] ["0" "1"] "#1"),
            both!("and" ["2" "3"] ["2" "3"] "v12.16b"),
            eight!($c first "8" "2" "3" $quad),
            products!(@shifted "1" first "9" $c $quad),
            products!(@shifted "3" second "10" $c $quad),
            products!(@shifted "5" second "11" $c $quad),
        )
    };
    (@shifted $by:tt $half:ident $x:tt $c:tt $quad:tt) => {
        concat!(
            both!("ushr" ["2" "3"] ["0" "1"] concat!("#", $by)),
            both!("and" ["2" "3"] ["2" "3"] "v12.16b"),
            eight!($c $half $x "2" "3" $quad),
        )
    };
    // A quad at a time.
    (@$low:tt $high:tt $c:tt $one:tt $other:tt) => {
        concat!(products!(@quad $low $high $c $one), products!(@quad $low $high $c $other))
    };
}

/// A quad: where its columns are in a line; where its bytes go, if the high plane is by row; integers `A` and `B`, of the
/// second half also if that is a group.
macro_rules! kernels {
    ({} $($(#[$on:meta])* $field:ident = $format:ident $row:tt)*) => {$(
        $(#[$on])*
        mod $field {
            kernels! { @$field $format $row $row }
        }
    )*};
    (@$field:ident $format:ident { bits: $bits:tt, values: $v:ident $b:tt $way:ident, scales: halves none 32 } $row:tt) => {
        packed_kernel! {
            $field $format "1" wide "neon_i8mm" ["i8mm"] $row "64" wide
            [[("0" "" ["24" "28"] []) ("16" "" ["25" "29"] [])] [("32" "" ["26" "30"] []) ("48" "" ["27" "31"] [])]]
            []
            [("x6" ("8" "9") [("28" "") ("29" "") ("30" "") ("31" "")] [
                ("16" "" "0" "0" "" "24" "") ("17" "" "16" "1" "" "25" "")
                ("18" "" "32" "2" "" "26" "") ("19" "" "48" "3" "" "27" "")
            ])]
        }
        packed_kernel! {
            $field $format "2" wide "neon_i8mm" ["i8mm"] $row "64" wide
            [[("0" "" ["24" "28"] []) ("16" "" ["25" "29"] [])] [("32" "" ["26" "30"] []) ("48" "" ["27" "31"] [])]]
            []
            [
                ("x6" ("8" "9") [] [
                    ("16" "" "0" "0" "" "24" "") ("17" "" "16" "1" "" "25" "")
                    ("18" "" "32" "2" "" "26" "") ("19" "" "48" "3" "" "27" "")
                ])
                ("x7" ("10" "11") [] [
                    ("20" "" "64" "0" "" "28" "") ("21" "" "80" "1" "" "29" "")
                    ("22" "" "96" "2" "" "30" "") ("23" "" "112" "3" "" "31" "")
                ])
            ]
        }
    };
    (@$field:ident $format:ident $any:tt $row:tt) => {
        packed_kernel! {
            $field $format "1" i8mm "neon_i8mm" ["i8mm"] $row "32" ("q" "d")
            [[("0" "21" ["24" "26"] ["28" "30"]) ("16" "22" ["25" "27"] ["29" "31"])]]
            [("0" "2" "" "4h" "14") ("1" "3" "2" "8h" "15")]
            [("x6" ("8" "9") [("26" "30") ("27" "31")] [
                ("16" "20" "0" "0" "2" "24" "28") ("17" "21" "16" "1" "3" "25" "29")
            ])]
        }
        packed_kernel! {
            $field $format "2" i8mm "neon_i8mm" ["i8mm"] $row "32" ("q" "d")
            [[("0" "21" ["24" "26"] ["28" "30"]) ("16" "22" ["25" "27"] ["29" "31"])]]
            [("0" "2" "" "4h" "14") ("1" "3" "2" "8h" "15")]
            [
                ("x6" ("8" "9") [] [("16" "20" "0" "0" "2" "24" "28") ("17" "21" "16" "1" "3" "25" "29")])
                ("x7" ("10" "11") [] [("18" "22" "64" "0" "2" "26" "30") ("19" "23" "80" "1" "3" "27" "31")])
            ]
        }
    };
}
expand_all_packings! { kernels! {} }
