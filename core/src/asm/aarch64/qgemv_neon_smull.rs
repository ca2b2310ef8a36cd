//! Packed quantised weights times activations of 8 bits, with the instructions that every aarch64 CPU has: one or two rows
//! of activations.
//!
//! `smull` and `smlal` multiply two rows of four columns with four activations that are there twice, in lanes of 16 bits,
//! which hold the products of a step, of half a step or of two fours of columns, as large as codes are; then neighbours are
//! added up, in 32 bits. One row of activations takes passes of two quads, two take passes of one. See
//! [`qgemv`](super::qgemv).
//!
//! `v10`, or `v18` and `v19`, are four activations of a row.

use crate::quant::packed::{Pack, Packing, Values};

/// Products of four columns, added to sums of 16 bits; a new sum with the first of them.
macro_rules! multiply {
    // All in one sum.
    (smull words 32 ($half:ident $four:tt 1 $new:ident) $quads:tt $rows:tt) => {
        multiply!(@"smull" first $half $four $quads $rows)
    };
    (smull words 32 ($half:ident $four:tt $n:tt $new:ident) $quads:tt $rows:tt) => {
        multiply!(@"smlal" first $half $four $quads $rows)
    };
    // Two, then they go to the other registers, in 32 bits.
    (smull signed 32 ($half:ident $four:tt 2 $new:ident) $quads:tt $rows:tt) => {
        concat!(multiply!(@"smlal" first $half $four $quads $rows), multiply!(@"saddlp" $quads))
    };
    (smull signed 32 ($half:ident $four:tt 4 $new:ident) $quads:tt $rows:tt) => {
        concat!(multiply!(@"smlal" first $half $four $quads $rows), multiply!(@"sadalp" $quads))
    };
    (smull signed 32 ($half:ident $four:tt 6 $new:ident) $quads:tt $rows:tt) => {
        multiply!(smull signed 32 ($half $four 4 $new) $quads $rows)
    };
    (smull signed 32 ($half:ident $four:tt 8 $new:ident) $quads:tt $rows:tt) => {
        multiply!(smull signed 32 ($half $four 4 $new) $quads $rows)
    };
    (smull signed 32 ($half:ident $four:tt $odd:tt $new:ident) $quads:tt $rows:tt) => {
        multiply!(@"smull" first $half $four $quads $rows)
    };
    // A sum for each half.
    (smull $way:ident $group:tt ($half:ident $four:tt $n:tt new) $quads:tt $rows:tt) => {
        multiply!(@"smull" $half $half $four $quads $rows)
    };
    (smull $way:ident $group:tt ($half:ident $four:tt $n:tt more) $quads:tt $rows:tt) => {
        multiply!(@"smlal" $half $half $four $quads $rows)
    };
    (@$mac:literal $sum:ident $half:ident $four:tt [$(($r:tt $t:tt $h:tt $g:tt [$($lane:tt)*]))*] $rows:tt) => {
        concat!(multiply!(@$half $four $rows), $($(multiply!(@$sum $mac $t $lane),)*)*)
    };
    (@first $four:tt [$(($x0:tt $x1:tt $d:tt))*]) => {
        concat!($("dup v", $d, ".4s, v", $x0, ".s[", $four, "]\n",)*)
    };
    (@second $four:tt [$(($x0:tt $x1:tt $d:tt))*]) => {
        concat!($("dup v", $d, ".4s, v", $x1, ".s[", $four, "]\n",)*)
    };
    (@first $mac:literal $t:tt ($d:tt ($low:tt $high:tt) $b:tt)) => {
        concat!(
            $mac, " v", $low, ".8h, v", $t, ".8b, v", $d, ".8b\n",
            $mac, "2 v", $high, ".8h, v", $t, ".16b, v", $d, ".16b\n",
        )
    };
    (@second $mac:literal $t:tt ($d:tt $a:tt $b:tt)) => {
        multiply!(@first $mac $t ($d $b $a))
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

/// The bias times the negative sum of the activations at `$at`, to `v5`.
macro_rules! unbias {
    (smull none $at:tt) => {
        ""
    };
    (smull 0 $at:tt) => {
        concat!("dup v5.4s, v6.s[", $at, "]\n")
    };
    (smull $bias:tt $at:tt) => {
        concat!("shl v4.4s, v6.4s, #", $bias, "\ndup v5.4s, v4.s[", $at, "]\n")
    };
}

/// A group's integers, in f32: its sums of 16 or 32 bits, added up.
macro_rules! integers {
    (smull $half:ident $bias:tt signed 32 ($a:tt $a1:tt) ($b0:tt $b1:tt) $to:tt) => {
        concat!(
            "addp v", $a, ".4s, v", $b0, ".4s, v", $b1, ".4s\n",
            integers!(@$bias $a $to),
        )
    };
    (smull $half:ident $bias:tt each 32 ($a:tt $a1:tt) ($b0:tt $b1:tt) $to:tt) => {
        concat!(
            "saddlp v", $a, ".4s, v", $a, ".8h\n",
            "saddlp v", $a1, ".4s, v", $a1, ".8h\n",
            "sadalp v", $a, ".4s, v", $b0, ".8h\n",
            "sadalp v", $a1, ".4s, v", $b1, ".8h\n",
            "addp v", $a, ".4s, v", $a, ".4s, v", $a1, ".4s\n",
            integers!(@$bias $a $to),
        )
    };
    (smull first $bias:tt $way:ident $group:tt ($a:tt $a1:tt) $b:tt $to:tt) => {
        concat!(
            "saddlp v", $a, ".4s, v", $a, ".8h\n",
            "saddlp v", $a1, ".4s, v", $a1, ".8h\n",
            "addp v", $a, ".4s, v", $a, ".4s, v", $a1, ".4s\n",
            integers!(@$bias $a $to),
        )
    };
    (smull second $bias:tt $way:ident $group:tt $a:tt $b:tt $to:tt) => {
        integers!(smull first $bias $way $group $b $a $to)
    };
    (@none $a:tt $to:tt) => {
        concat!("scvtf v", $a, ".4s, v", $a, ".4s\n", add!($a $to))
    };
    (@$bias:tt $a:tt $to:tt) => {
        concat!("add v", $a, ".4s, v", $a, ".4s, v5.4s\n", integers!(@none $a $to))
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
    ({} $($field:ident = $format:ident {
        bits: $bits:tt, values: $values:ident $bias:tt $way:ident, scales: $kind:ident $min:ident $group:tt
    })*) => {$(
        kernels! { @$field $format {
            bits: $bits, values: $values $bias $way, scales: $kind $min $group
        } }
        // Sums of 16 bits hold what is added to them; and there is room for a table where there are no offsets.
        const _: () = {
            const P: Packing = <crate::quant::formats::$format as Pack>::PACKING;
            assert!(127 * largest(&P) * kernels!(@fours $way $group) <= 0x7fff);
            assert!(!(P.offsets && matches!(P.values, Values::Table(_))));
        };
    )*};
    (@fours words 32) => { 8 };
    (@fours signed $group:tt) => { 2 };
    (@fours $way:ident $group:tt) => { 4 };
    (@$field:ident $format:ident $row:tt) => {
        packed_kernel! {
            $field $format "1" smull "neon_smull" [] $row "32" ("q" "d")
            [
                ("0" "2" "4" "6" [("10" ("24" "25") ("28" "29"))])
                ("1" "3" "5" "7" [("10" ("26" "27") ("30" "31"))])
            ]
            [("0" "2" "" "4h" "14") ("1" "3" "2" "8h" "15")]
            [("x6" ("8" "9") "10" [
                ("16" "20" "0" "0" "2" ("24" "25") ("28" "29"))
                ("17" "21" "16" "1" "3" ("26" "27") ("30" "31"))
            ])]
        }
        packed_kernel! {
            $field $format "2" smull "neon_smull" [] $row "16" ("d" "s")
            [("0" "2" "4" "6" [("18" ("24" "25") ("28" "29")) ("19" ("26" "27") ("30" "31"))])]
            [("0" "2" "" "4h" "14")]
            [
                ("x6" ("8" "9") "18" [("16" "20" "0" "0" "2" ("24" "25") ("28" "29"))])
                ("x7" ("10" "11") "19" [("17" "21" "64" "0" "2" ("26" "27") ("30" "31"))])
            ]
        }
    };
}
expand_all_packings! { kernels! {} }
