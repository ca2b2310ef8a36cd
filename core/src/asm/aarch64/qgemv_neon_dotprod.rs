//! Packed quantised weights times activations of 8 bits, with dotprod: one to four rows of activations.
//!
//! `sdot` by element multiplies four columns of four rows with four activations and adds the products up. Codes of 8 bits
//! become signed; others are, or are below 64. Two rows of activations at most share a pass of two quads, more one of one
//! quad. See [`qgemv`](super::qgemv).
//!
//! `v1`, `v3`, `v5` and `v7` are activations where a pass does one quad.

/// Products of four columns, added to integers.
macro_rules! multiply {
    (dotprod $way:ident $group:tt $from:ident (first $four:tt $n:tt $new:ident)
        [$(($r:tt $t:tt $h:tt $g:tt [$(($x0:tt $x1:tt $a:tt $b:tt))*]))*] $rows:tt) => {
        concat!($($("sdot v", $a, ".4s, v", each!(@@$from ($r $t $h $g $r)), ".16b, v", $x0, ".4b[", $four, "]\n",)*)*)
    };
    (dotprod $way:ident 32 $from:ident (second $four:tt $n:tt $new:ident)
        [$(($r:tt $t:tt $h:tt $g:tt [$(($x0:tt $x1:tt $a:tt $b:tt))*]))*] $rows:tt) => {
        concat!($($("sdot v", $a, ".4s, v", each!(@@$from ($r $t $h $g $r)), ".16b, v", $x1, ".4b[", $four, "]\n",)*)*)
    };
    (dotprod $way:ident 16 $from:ident (second $four:tt $n:tt $new:ident)
        [$(($r:tt $t:tt $h:tt $g:tt [$(($x0:tt $x1:tt $a:tt $b:tt))*]))*] $rows:tt) => {
        concat!($($("sdot v", $b, ".4s, v", each!(@@$from ($r $t $h $g $r)), ".16b, v", $x1, ".4b[", $four, "]\n",)*)*)
    };
}

/// Nothing: activations are multiplied where they are.
macro_rules! bring {
    ({ dotprod $($c:tt)* } $four:tt) => {
        ""
    };
}

/// The register of 1.5 * 2^23: one that formats of this kind do not need.
macro_rules! one_and_a_half {
    (32 $min:ident) => {
        "31"
    };
    (16 none) => {
        "23"
    };
    (16 min) => {
        "13"
    };
}

macro_rules! constants {
    (dotprod $group:tt $min:ident) => {
        concat!(
            "movi v", one_and_a_half!($group $min), ".4s, #0x4b, lsl #24\n",
            "orr v", one_and_a_half!($group $min), ".4s, #0x40, lsl #16\n",
        )
    };
}

/// What integers start with: 1.5 * 2^23 in f32, plus the bias times the negative sum of the activations.
macro_rules! start {
    (none dotprod $group:tt $min:ident [$(($x:tt $xs:tt $d:tt [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!($($(start!(@none $group one_and_a_half!($group $min), $a $b),)*)*)
    };
    ($bias:tt dotprod $group:tt $min:ident [$(($x:tt $xs:tt $d:tt $lanes:tt))*]) => {
        concat!($(
            "ldr q0, [", $x, "]\n",
            start!(@times $bias),
            "add v0.4s, v0.4s, v", one_and_a_half!($group $min), ".4s\n",
            start!(@$group $lanes),
        )*)
    };
    (@none 32 $one:expr, $a:tt $b:tt) => {
        concat!("mov v", $a, ".16b, v", $one, ".16b\n")
    };
    (@none 16 $one:expr, $a:tt $b:tt) => {
        concat!("mov v", $a, ".16b, v", $one, ".16b\nmov v", $b, ".16b, v", $one, ".16b\n")
    };
    (@times 0) => {
        ""
    };
    (@times $bias:tt) => {
        concat!("shl v0.4s, v0.4s, #", $bias, "\n")
    };
    (@32 [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]) => {
        concat!($("dup v", $a, ".4s, v0.s[2]\n",)*)
    };
    (@16 [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]) => {
        concat!($("dup v", $a, ".4s, v0.s[0]\ndup v", $b, ".4s, v0.s[1]\n",)*)
    };
}

/// Nothing: integers have started with it.
macro_rules! unbias {
    (dotprod $bias:tt $at:tt $x0:tt) => {
        ""
    };
}

/// A group's integers in f32: less 1.5 * 2^23, below which the lowest bits of an f32 are those of an integer. (Converting
/// integers takes half of the pipes of a Neoverse-N1, and those twice.)
macro_rules! integers {
    (dotprod first $bias:tt $way:ident $group:tt $min:ident $a:tt $b:tt) => {
        concat!("fsub v", $a, ".4s, v", $a, ".4s, v", one_and_a_half!($group $min), ".4s\n")
    };
    (dotprod second $bias:tt $way:ident $group:tt $min:ident $a:tt $b:tt) => {
        integers!(dotprod first $bias $way $group $min $b $a)
    };
}

macro_rules! kernels {
    ({} $($(#[$on:meta])* $field:ident = $format:ident $row:tt)*) => {$(
        $(#[$on])*
        mod $field {
            kernels! { @$field $format $row }
        }
    )*};
    (@$field:ident $format:ident $row:tt) => {
        packed_kernel! {
            $field $format "1" dotprod "neon_dotprod" ["dotprod"] $row "32" ("q" "d")
            [("0" "2" "4" "6" [("8" "9" "24" "28")]) ("1" "3" "5" "7" [("8" "9" "25" "29")])]
            [("0" "2" "" "4h" "14") ("1" "3" "2" "8h" "15")]
            [("x6" ("8" "9") none [("16" "20" "0" "0" "2" "24" "28") ("17" "21" "16" "1" "3" "25" "29")])]
        }
        packed_kernel! {
            $field $format "2" dotprod "neon_dotprod" ["dotprod"] $row "32" ("q" "d")
            [
                ("0" "2" "4" "6" [("8" "9" "24" "28") ("10" "11" "26" "30")])
                ("1" "3" "5" "7" [("8" "9" "25" "29") ("10" "11" "27" "31")])
            ]
            [("0" "2" "" "4h" "14") ("1" "3" "2" "8h" "15")]
            [
                ("x6" ("8" "9") none [("16" "20" "0" "0" "2" "24" "28") ("17" "21" "16" "1" "3" "25" "29")])
                ("x7" ("10" "11") none [("18" "22" "64" "0" "2" "26" "30") ("19" "23" "80" "1" "3" "27" "31")])
            ]
        }
        packed_kernel! {
            $field $format "3" dotprod "neon_dotprod" ["dotprod"] $row "16" ("d" "s")
            [("0" "2" "4" "6" [("8" "9" "24" "28") ("10" "11" "25" "29") ("1" "3" "26" "30")])]
            [("0" "2" "" "4h" "14")]
            [
                ("x6" ("8" "9") none [("16" "20" "0" "0" "2" "24" "28")])
                ("x7" ("10" "11") none [("17" "21" "64" "0" "2" "25" "29")])
                ("x8" ("1" "3") none [("18" "22" "128" "0" "2" "26" "30")])
            ]
        }
        packed_kernel! {
            $field $format "4" dotprod "neon_dotprod" ["dotprod"] $row "16" ("d" "s")
            [("0" "2" "4" "6" [("8" "9" "24" "28") ("10" "11" "25" "29") ("1" "3" "26" "30") ("5" "7" "27" "31")])]
            [("0" "2" "" "4h" "14")]
            [
                ("x6" ("8" "9") none [("16" "20" "0" "0" "2" "24" "28")])
                ("x7" ("10" "11") none [("17" "21" "64" "0" "2" "25" "29")])
                ("x8" ("1" "3") none [("18" "22" "128" "0" "2" "26" "30")])
                ("x17" ("5" "7") none [("19" "23" "192" "0" "2" "27" "31")])
            ]
        }
    };
}
expand_all_packings! { kernels! {} }
