//! Packed quantised weights times activations of 8 bits, with the instructions that every aarch64 CPU has: one or two rows
//! of activations.
//!
//! `smull` and `smlal` multiply two rows of four columns with four activations that are there twice, in lanes of 16 bits,
//! which hold the products of a step, of half a step or of two fours of columns, as large as codes are; then neighbours are
//! added up, in 32 bits. One row of activations takes passes of two quads, two take passes of one. See
//! [`qgemv`](super::qgemv).
//!
//! `v10` and `v11`, or `v18` and `v22`, `v19` and `v23`, are four activations of a row, of each half of the step.

use crate::quant::packed::{Pack, Packing, Values};

/// Four activations of each row, to the register for those of this half.
macro_rules! bring {
    ({ smull $quads:tt $min:ident [$(($x0:tt $x1:tt ($d0:tt $d1:tt)))*] $($c:tt)* } (first $four:tt $n:tt $new:ident)) => {
        concat!($("dup v", $d0, ".4s, v", $x0, ".s[", $four, "]\n",)*)
    };
    ({ smull $quads:tt $min:ident [$(($x0:tt $x1:tt ($d0:tt $d1:tt)))*] $($c:tt)* } (second $four:tt $n:tt $new:ident)) => {
        concat!($("dup v", $d1, ".4s, v", $x1, ".s[", $four, "]\n",)*)
    };
}

/// Products of four columns, added to sums of 16 bits; a new sum with the first of them.
macro_rules! multiply {
    // All in one sum.
    (smull words 32 $from:ident ($half:ident $four:tt 1 $new:ident) $quads:tt $rows:tt) => {
        multiply!(@"smull" $from $half first $quads)
    };
    (smull words 32 $from:ident ($half:ident $four:tt $n:tt $new:ident) $quads:tt $rows:tt) => {
        multiply!(@"smlal" $from $half first $quads)
    };
    // Two, then they go to the other registers, in 32 bits.
    (smull signed 32 $from:ident ($half:ident $four:tt 2 $new:ident) $quads:tt $rows:tt) => {
        concat!(multiply!(@"smlal" $from $half first $quads), multiply!(@"saddlp" $quads))
    };
    (smull signed 32 $from:ident ($half:ident $four:tt 4 $new:ident) $quads:tt $rows:tt) => {
        concat!(multiply!(@"smlal" $from $half first $quads), multiply!(@"sadalp" $quads))
    };
    (smull signed 32 $from:ident ($half:ident $four:tt 6 $new:ident) $quads:tt $rows:tt) => {
        multiply!(smull signed 32 $from ($half $four 4 $new) $quads $rows)
    };
    (smull signed 32 $from:ident ($half:ident $four:tt 8 $new:ident) $quads:tt $rows:tt) => {
        multiply!(smull signed 32 $from ($half $four 4 $new) $quads $rows)
    };
    (smull signed 32 $from:ident ($half:ident $four:tt $odd:tt $new:ident) $quads:tt $rows:tt) => {
        multiply!(@"smull" $from $half first $quads)
    };
    // A sum for each half.
    (smull $way:ident $group:tt $from:ident ($half:ident $four:tt $n:tt new) $quads:tt $rows:tt) => {
        multiply!(@"smull" $from $half $half $quads)
    };
    (smull $way:ident $group:tt $from:ident ($half:ident $four:tt $n:tt more) $quads:tt $rows:tt) => {
        multiply!(@"smlal" $from $half $half $quads)
    };
    (@$mac:literal $from:ident $half:ident $sum:ident [$(($r:tt $t:tt $h:tt $g:tt [$($lane:tt)*]))*]) => {
        concat!($($(multiply!(@$half $sum $mac each!(@@$from ($r $t $h $g $r)), $lane),)*)*)
    };
    (@first $sum:ident $mac:literal $from:expr, (($d0:tt $d1:tt) $a:tt $b:tt)) => {
        multiply!(@$sum $mac $from, $d0 $a $b)
    };
    (@second $sum:ident $mac:literal $from:expr, (($d0:tt $d1:tt) $a:tt $b:tt)) => {
        multiply!(@$sum $mac $from, $d1 $a $b)
    };
    (@first $mac:literal $from:expr, $d:tt ($low:tt $high:tt) $b:tt) => {
        concat!(
            $mac, " v", $low, ".8h, v", $from, ".8b, v", $d, ".8b\n",
            $mac, "2 v", $high, ".8h, v", $from, ".16b, v", $d, ".16b\n",
        )
    };
    (@second $mac:literal $from:expr, $d:tt $a:tt $b:tt) => {
        multiply!(@first $mac $from, $d $b $a)
    };
    (@$add:literal [$(($r:tt $t:tt $h:tt $g:tt [$(($d:tt ($a0:tt $a1:tt) ($b0:tt $b1:tt)))*]))*]) => {
        concat!($($(
            $add, " v", $b0, ".4s, v", $a0, ".8h\n",
            $add, " v", $b1, ".4s, v", $a1, ".8h\n",
        )*)*)
    };
}

macro_rules! constants {
    (smull $group:tt $min:ident) => {
        ""
    };
}

/// Nothing: the first products are what integers start with.
macro_rules! start {
    ($bias:tt smull $group:tt $min:ident $rows:tt) => {
        ""
    };
}

/// The bias times the negative sum of the activations, one of those in `$x0`, to `v5`.
macro_rules! unbias {
    (smull none $at:tt $x0:tt) => {
        ""
    };
    (smull 0 $at:tt $x0:tt) => {
        concat!("dup v5.4s, v", $x0, ".s[", $at, "]\n")
    };
    (smull $bias:tt $at:tt $x0:tt) => {
        concat!("shl v4.4s, v", $x0, ".4s, #", $bias, "\ndup v5.4s, v4.s[", $at, "]\n")
    };
}

/// A group's integers, in f32: its sums of 16 or 32 bits, added up.
macro_rules! integers {
    (smull $half:ident $bias:tt signed 32 $min:ident ($a:tt $a1:tt) ($b0:tt $b1:tt)) => {
        concat!("addp v", $a, ".4s, v", $b0, ".4s, v", $b1, ".4s\n", integers!(@$bias $a))
    };
    (smull $half:ident $bias:tt each 32 $min:ident ($a:tt $a1:tt) ($b0:tt $b1:tt)) => {
        concat!(
            "saddlp v", $a, ".4s, v", $a, ".8h\n",
            "saddlp v", $a1, ".4s, v", $a1, ".8h\n",
            "sadalp v", $a, ".4s, v", $b0, ".8h\n",
            "sadalp v", $a1, ".4s, v", $b1, ".8h\n",
            "addp v", $a, ".4s, v", $a, ".4s, v", $a1, ".4s\n",
            integers!(@$bias $a),
        )
    };
    (smull first $bias:tt $way:ident $group:tt $min:ident ($a:tt $a1:tt) $b:tt) => {
        concat!(
            "saddlp v", $a, ".4s, v", $a, ".8h\n",
            "saddlp v", $a1, ".4s, v", $a1, ".8h\n",
            "addp v", $a, ".4s, v", $a, ".4s, v", $a1, ".4s\n",
            integers!(@$bias $a),
        )
    };
    (smull second $bias:tt $way:ident $group:tt $min:ident $a:tt $b:tt) => {
        integers!(smull first $bias $way $group $min $b $a)
    };
    (@none $a:tt) => {
        concat!("scvtf v", $a, ".4s, v", $a, ".4s\n")
    };
    (@$bias:tt $a:tt) => {
        concat!("add v", $a, ".4s, v", $a, ".4s, v5.4s\n", integers!(@none $a))
    };
}

/// What is multiplied is not larger than this.
const fn largest(p: &Packing) -> usize {
    let bits = p.bits[0] + p.bits[1];
    match p.values {
        Values::Linear(128) => 128,
        Values::Linear(_) => (1 << bits) - 1,
        // 0 or 2.
        Values::Table(_) if bits == 1 => 2,
        Values::Table(table) => {
            let (mut largest, mut i) = (0, 0);
            while i < 16 {
                let size = table[i].unsigned_abs() as usize;
                largest = if size > largest { size } else { largest };
                i += 1;
            }
            largest
        }
    }
}

macro_rules! kernels {
    ({} $($(#[$on:meta])* $field:ident = $format:ident {
        bits: $bits:tt, values: $values:ident $bias:tt $way:ident, scales: $kind:ident $min:ident $group:tt
    })*) => {$(
        $(#[$on])*
        mod $field {
            use super::*;
        kernels! { @$field $format {
            bits: $bits, values: $values $bias $way, scales: $kind $min $group
        } }
        // Sums of 16 bits hold what is added to them; and there is room for a table where there are no offsets.
        const _: () = {
            const P: Packing = <crate::quant::formats::$format as Pack>::PACKING;
            assert!(127 * largest(&P) * kernels!(@fours $way $group) <= 0x7fff);
            assert!(!(P.offsets && matches!(P.values, Values::Table(_))));
        };
        }
    )*};
    (@fours words 32) => { 8 };
    (@fours signed $group:tt) => { 2 };
    (@fours $way:ident $group:tt) => { 4 };
    (@$field:ident $format:ident $row:tt) => {
        packed_kernel! {
            $field $format "1" smull "neon_smull" [] $row "32" ("q" "d")
            [
                ("0" "2" "4" "6" [(("10" "11") ("24" "25") ("28" "29"))])
                ("1" "3" "5" "7" [(("10" "11") ("26" "27") ("30" "31"))])
            ]
            [("0" "2" "" "4h" "14") ("1" "3" "2" "8h" "15")]
            [("x6" ("8" "9") ("10" "11") [
                ("16" "20" "0" "0" "2" ("24" "25") ("28" "29"))
                ("17" "21" "16" "1" "3" ("26" "27") ("30" "31"))
            ])]
        }
        packed_kernel! {
            $field $format "2" smull "neon_smull" [] $row "16" ("d" "s")
            [("0" "2" "4" "6" [(("18" "22") ("24" "25") ("28" "29")) (("19" "23") ("26" "27") ("30" "31"))])]
            [("0" "2" "" "4h" "14")]
            [
                ("x6" ("8" "9") ("18" "22") [("16" "20" "0" "0" "2" ("24" "25") ("28" "29"))])
                ("x7" ("10" "11") ("19" "23") [("17" "21" "64" "0" "2" ("26" "27") ("30" "31"))])
            ]
        }
    };
}
expand_all_packings! { kernels! {} }
