//! Packed quantised weights: from planes to products.
//!
//! A plane's vector of 64 bytes has four columns of the 16 rows in each so many bits of its bytes; see
//! [`packed`](crate::quant::packed). A quad of rows has four registers, called `r`, `t`, `h` and `g`.

/// Lines for each quad: pieces of text, and `r`, `t`, `h`, `g` for its registers.
macro_rules! each {
    ([$($quad:tt)*] $pieces:tt) => {
        concat!($(each!(@$quad $pieces),)*)
    };
    (@$quad:tt [$($piece:tt)*]) => {
        concat!($(each!(@@$piece $quad),)*)
    };
    (@@r ($r:tt $t:tt $h:tt $g:tt $lanes:tt)) => { $r };
    (@@t ($r:tt $t:tt $h:tt $g:tt $lanes:tt)) => { $t };
    (@@h ($r:tt $t:tt $h:tt $g:tt $lanes:tt)) => { $h };
    (@@g ($r:tt $t:tt $h:tt $g:tt $lanes:tt)) => { $g };
    (@@$text:literal $quad:tt) => { $text };
}

/// Loads a vector of a plane, of each quad to its register. (Not with `ldp`, which some CPUs decode alone.)
macro_rules! load {
    ($to:ident $at:tt [$one:tt $($other:tt)?]) => {
        concat!(
            "ldr q", each!(@@$to $one), ", [x5, #", $at, "]\n",
            $("ldr q", each!(@@$to $other), ", [x5, #", $at, "+16]\n",)?
        )
    };
}

/// Brings the high plane, if it is by row: the bytes of rows become those of four columns.
macro_rules! by_row {
    ([$one:tt $($other:tt)?]) => {
        concat!(
            "ldr d", each!(@@t $one), ", [x4, #32]\n",
            "tbl v", each!(@@h $one), ".16b, {{v", each!(@@t $one), ".16b}}, v21.16b\n",
            $("tbl v", each!(@@h $other), ".16b, {{v", each!(@@t $one), ".16b}}, v22.16b\n",)?
        )
    };
    (end row) => {
        "add x4, x4, #16\n"
    };
    (end $high:tt) => {
        ""
    };
}

/// What indices in one of the quads' registers stand for is multiplied. `$four` is for [`multiply`]: the half of the
/// step, the four of it, which of all it is in this order and whether it is the first of its half.
macro_rules! four {
    ({ $p:tt $quads:tt $min:ident $rows:tt linear $way:ident $group:tt } $from:ident $four:tt) => {
        multiply!($p $way $group $from $four $quads $rows)
    };
    ({ $p:tt $quads:tt $min:ident $rows:tt table $way:ident $group:tt } $from:ident $four:tt) => {
        concat!(
            each!($quads ["tbl v" $from ".16b, {{v20.16b}}, v" $from ".16b\n"]),
            multiply!($p $way $group $from $four $quads $rows),
        )
    };
}

/// The products of a step. `$c` is `{ tier, quads, offsets, rows, values, way, group }`. Vectors are loaded, and what is multiplied
/// unpacked, ahead of their use: CPUs that execute in order wait less.
macro_rules! products {
    (8 0 $quads:tt $c:tt) => {
        concat!(
            load!(r "0" $quads),
            load!(t "64" $quads),
            load!(h "128" $quads),
            load!(g "192" $quads),
            products!(@byte r $quads $c (first 0 1 new)),
            load!(r "256" $quads),
            products!(@byte t $quads $c (first 1 2 more)),
            load!(t "320" $quads),
            products!(@byte h $quads $c (first 2 3 more)),
            load!(h "384" $quads),
            products!(@byte g $quads $c (first 3 4 more)),
            load!(g "448" $quads),
            products!(@byte r $quads $c (second 0 5 new)),
            products!(@byte t $quads $c (second 1 6 more)),
            products!(@byte h $quads $c (second 2 7 more)),
            products!(@byte g $quads $c (second 3 8 more)),
        )
    };
    (4 0 $quads:tt $c:tt) => {
        concat!(
            load!(r "0" $quads),
            load!(g "64" $quads),
            products!(@nibbles r $quads $c (first 0 1 new) (second 0 2 new)),
            load!(r "128" $quads),
            products!(@nibbles g $quads $c (first 1 3 more) (second 1 4 more)),
            load!(g "192" $quads),
            products!(@nibbles r $quads $c (first 2 5 more) (second 2 6 more)),
            products!(@nibbles g $quads $c (first 3 7 more) (second 3 8 more)),
        )
    };
    // The high bits of the low and the high nibbles are 4 bits apart, too: they are shifted together.
    (4 1 $quads:tt $c:tt) => {
        concat!(
            load!(h "256" $quads),
            load!(r "0" $quads),
            load!(g "64" $quads),
            products!(@high r $quads $c (second 0 1 new) (first 0 2 new)),
            load!(r "128" $quads),
            each!($quads ["ushr v" h ".16b, v" h ".16b, #1\n"]),
            products!(@high g $quads $c (second 1 3 more) (first 1 4 more)),
            load!(g "192" $quads),
            each!($quads ["ushr v" h ".16b, v" h ".16b, #1\n"]),
            products!(@high r $quads $c (second 2 5 more) (first 2 6 more)),
            each!($quads ["ushr v" h ".16b, v" h ".16b, #1\n"]),
            products!(@high g $quads $c (second 3 7 more) (first 3 8 more)),
        )
    };
    (4 2 $quads:tt $c:tt) => {
        concat!(
            load!(h "256" $quads),
            load!(r "0" $quads),
            load!(g "128" $quads),
            products!(@high r $quads $c (second 0 1 new) (first 0 2 new)),
            load!(r "64" $quads),
            each!($quads ["ushr v" h ".16b, v" h ".16b, #2\n"]),
            products!(@high g $quads $c (second 2 3 more) (first 2 4 more)),
            load!(h "320" $quads),
            load!(g "192" $quads),
            products!(@high r $quads $c (second 1 5 more) (first 1 6 more)),
            each!($quads ["ushr v" h ".16b, v" h ".16b, #2\n"]),
            products!(@high g $quads $c (second 3 7 more) (first 3 8 more)),
        )
    };
    (2 0 $quads:tt $c:tt) => {
        concat!(
            load!(r "0" $quads),
            load!(g "64" $quads),
            products!(@pairs r $quads $c (first 0 1 new) (first 2 2 more) (second 0 3 new) (second 2 4 more)),
            products!(@pairs g $quads $c (first 1 5 more) (first 3 6 more) (second 1 7 more) (second 3 8 more)),
        )
    };
    // Pairs of bits two apart and high bits four apart become two nibbles.
    (2 1 $quads:tt $c:tt) => {
        concat!(load!(r "0" $quads), load!(h "128" $quads), products!(@twos $quads $c))
    };
    (2 row $quads:tt $c:tt) => {
        concat!(load!(r "0" $quads), by_row!($quads), products!(@twos $quads $c))
    };
    (@twos $quads:tt $c:tt) => {
        concat!(
            each!($quads ["ushr v" g ".16b, v" r ".16b, #2\n"]),
            each!($quads ["shl v" t ".16b, v" h ".16b, #2\n"]),
            each!($quads ["bit v" g ".16b, v" h ".16b, v13.16b\n"]),
            each!($quads ["bit v" r ".16b, v" t ".16b, v13.16b\n"]),
            products!(@threes r $quads $c (first 0 1 new) (second 0 2 new)),
            load!(r "64" $quads),
            products!(@threes g $quads $c (first 2 3 more) (second 2 4 more)),
            each!($quads ["ushr v" g ".16b, v" r ".16b, #2\n"]),
            each!($quads ["shl v" t ".16b, v" h ".16b, #1\n"]),
            each!($quads ["ushr v" h ".16b, v" h ".16b, #1\n"]),
            each!($quads ["bit v" r ".16b, v" t ".16b, v13.16b\n"]),
            each!($quads ["bit v" g ".16b, v" h ".16b, v13.16b\n"]),
            products!(@threes r $quads $c (first 1 5 more) (second 1 6 more)),
            products!(@threes g $quads $c (first 3 7 more) (second 3 8 more)),
        )
    };
    // A bit counts twice, so that its values, 1 and -1, are numbers with a bias.
    (1 0 $quads:tt { $p:tt $same:tt $min:ident $rows:tt table $way:ident $group:tt }) => {
        products!(@bits $quads { $p $same $min $rows linear $way $group })
    };
    (@bits $quads:tt $c:tt) => {
        concat!(
            load!(r "0" $quads),
            products!(@bit t "shl" "1" $quads $c (first 0 1 new)),
            products!(@bit h "ushr" "1" $quads $c (first 2 2 more)),
            products!(@bit g "ushr" "2" $quads $c (first 3 3 more)),
            products!(@bit t "ushr" "3" $quads $c (second 0 4 new)),
            products!(@bit h "ushr" "4" $quads $c (second 1 5 more)),
            products!(@bit g "ushr" "5" $quads $c (second 2 6 more)),
            products!(@bit t "ushr" "6" $quads $c (second 3 7 more)),
            bring!($c (first 1 8 more)),
            each!($quads ["and v" h ".16b, v" r ".16b, v12.16b\n"]),
            four!($c h (first 1 8 more)),
        )
    };
    (@bit $to:ident $way:tt $by:tt $quads:tt $c:tt $four:tt) => {
        concat!(
            bring!($c $four),
            each!($quads [$way " v" $to ".16b, v" r ".16b, #" $by "\n"]),
            each!($quads ["and v" $to ".16b, v" $to ".16b, v12.16b\n"]),
            four!($c $to $four),
        )
    };
    (@byte $from:ident $quads:tt $c:tt $four:tt) => {
        concat!(
            bring!($c $four),
            each!($quads ["eor v" $from ".16b, v" $from ".16b, v12.16b\n"]),
            four!($c $from $four),
        )
    };
    (@nibbles $from:ident $quads:tt $c:tt $low:tt $high:tt) => {
        concat!(
            bring!($c $low),
            bring!($c $high),
            each!($quads ["and v" t ".16b, v" $from ".16b, v12.16b\n"]),
            each!($quads ["ushr v" h ".16b, v" $from ".16b, #4\n"]),
            four!($c t $low),
            four!($c h $high),
        )
    };
    (@high $from:ident $quads:tt $c:tt $high:tt $low:tt) => {
        concat!(
            bring!($c $high),
            bring!($c $low),
            each!($quads ["ushr v" t ".16b, v" $from ".16b, #4\n"]),
            each!($quads ["sli v" $from ".16b, v" h ".16b, #4\n"]),
            each!($quads ["bit v" t ".16b, v" h ".16b, v13.16b\n"]),
            each!($quads ["and v" $from ".16b, v" $from ".16b, v12.16b\n"]),
            four!($c t $high),
            four!($c $from $low),
        )
    };
    (@pairs $from:ident $quads:tt $c:tt $first:tt $second:tt $third:tt $fourth:tt) => {
        concat!(
            bring!($c $first),
            each!($quads ["and v" t ".16b, v" $from ".16b, v12.16b\n"]),
            each!($quads ["ushr v" h ".16b, v" $from ".16b, #2\n"]),
            four!($c t $first),
            bring!($c $second),
            each!($quads ["and v" h ".16b, v" h ".16b, v12.16b\n"]),
            each!($quads ["ushr v" t ".16b, v" $from ".16b, #4\n"]),
            four!($c h $second),
            bring!($c $third),
            each!($quads ["and v" t ".16b, v" t ".16b, v12.16b\n"]),
            each!($quads ["ushr v" h ".16b, v" $from ".16b, #6\n"]),
            four!($c t $third),
            bring!($c $fourth),
            four!($c h $fourth),
        )
    };
    // Of tables there are two copies: the fourth bit may be anything.
    (@threes $from:ident $quads:tt $c:tt $low:tt $high:tt) => {
        concat!(
            bring!($c $low),
            bring!($c $high),
            each!($quads ["and v" t ".16b, v" $from ".16b, v12.16b\n"]),
            each!($quads ["ushr v" $from ".16b, v" $from ".16b, #4\n"]),
            products!(@three $from $quads $c),
            four!($c t $low),
            four!($c $from $high),
        )
    };
    (@three $from:ident $quads:tt { $p:tt $same:tt $min:ident $rows:tt linear $way:ident $group:tt }) => {
        each!($quads ["and v" $from ".16b, v" $from ".16b, v12.16b\n"])
    };
    (@three $from:ident $quads:tt { $p:tt $same:tt $min:ident $rows:tt table $way:ident $group:tt }) => {
        ""
    };
}

/// Masks: of indices, and of their high bits. What is subtracted from codes of 8 bits, as another sign. Two copies of a table of
/// eight. Where bytes of rows go: `v21`, and for a second quad `v22`.
macro_rules! masks {
    (8 0 $values:ident) => {
        "movi v12.16b, #0x80\n"
    };
    (4 0 $values:ident) => {
        "movi v12.16b, #0x0f\n"
    };
    (4 1 linear) => {
        "movi v12.16b, #0x1f\nmovi v13.16b, #0x10\n"
    };
    (4 2 linear) => {
        "movi v12.16b, #0x3f\nmovi v13.16b, #0x30\n"
    };
    (2 0 linear) => {
        "movi v12.16b, #0x03\n"
    };
    (2 1 linear) => {
        "movi v12.16b, #0x07\nmovi v13.16b, #0x44\n"
    };
    (2 1 table) => {
        "movi v12.16b, #0x0f\nmovi v13.16b, #0x44\nmov v20.d[1], v20.d[0]\n"
    };
    (2 row table) => {
        concat!(
            masks!(2 1 table),
            "mov w1, #0\nmov w3, #0x1010101\n",
            masks!(@("21" "0") ("21" "1") ("21" "2") ("21" "3") ("22" "0") ("22" "1") ("22" "2") ("22" "3")),
        )
    };
    (@$(($v:tt $lane:tt))*) => {
        concat!($("mov v", $v, ".s[", $lane, "], w1\nadd w1, w1, w3\n",)*)
    };
    (1 0 table) => {
        "movi v12.16b, #0x02\n"
    };
}
