//! Packed quantised weights times activations of 8 bits: what all kernels share. What they differ in, how numbers of 8
//! bits are multiplied, is in the files of the tiers.
//!
//! A register has four columns of four rows of weights. A panel is done in *passes*, unit by unit: of two such quads of
//! rows, or of one where the sums of more rows of activations need the registers. Indices come out of the planes by
//! shifts, masks and insertions, as few as possible (see [`qgemv_codes`](super::qgemv_codes)). Codes are signed; indices
//! that are numbers with a bias count as they are, and the bias times the negative sum of the activations is added to
//! integers. See [`packed`](crate::quant::packed) for the layout, [`panel`](crate::ops::qgemv_packed::panel) for the order
//! of what is done in f32.
//!
//! | register | |
//! |---|---|
//! | `x0` | `PanelArgs` |
//! | `x1` | the pass's first row, times 16; addresses |
//! | `x2` | quads of rows that are left in all units, times 16 |
//! | `x3`, `x4`, `x5` | steps that are left; scales; planes, between passes the unit |
//! | `x6`, `x7`, `x8`, `x17` | for each row of activations the step, behind its integers |
//! | `x9`..`x16` | the caller's `d8`..`d15` |
//! | `v0`..`v7` | for each quad (even, odd) vector, codes, high plane, another; then scales and what sums are multiplied with |
//! | `v8`..`v11` | activations; then their sums and scale |
//! | `v12`, `v13` | masks |
//! | `v14`, `v15` | where the quads' bytes go, in the highest byte of each lane |
//! | `v16`..`v19` | a unit's sums of products, or the results |
//! | `v20`..`v23` | a unit's sums of offsets; or the table of values in `v20`, and where bytes of rows go in `v21` and `v22` |
//! | `v24`..`v31` | integers of the halves of a step |
//!
//! Where a step's register is not named here it is free, and tiers use it.

/// The binary logarithm of the bias in what is multiplied, to a macro: `none`, or the number.
macro_rules! bias {
    // Unsigned by signed products need no other sign.
    (linear 7 $then:ident! i8mm $($args:tt)*) => { $then! { 7 i8mm $($args)* } };
    (linear 7 $then:ident! wide $($args:tt)*) => { $then! { 7 wide $($args)* } };
    (linear 7 $then:ident! $($args:tt)*) => { $then! { none $($args)* } };
    (linear $bias:tt $then:ident! $($args:tt)*) => { $then! { $bias $($args)* } };
    (table 0 $then:ident! $($args:tt)*) => { $then! { 0 $($args)* } };
    (table $bias:tt $then:ident! $($args:tt)*) => { $then! { none $($args)* } };
}

/// Brings a group's scales to `v0` and `v1`, its offsets to `v2` and `v3`. `$load` are the sizes of a quad, or two, of
/// f16 and of bytes.
macro_rules! scales {
    // All 16 rows.
    (halves none wide $quads:tt) => {
        concat!(
            "ldp q4, q5, [x4], #32\n",
            "fcvtl v0.4s, v4.4h\nfcvtl2 v1.4s, v4.8h\nfcvtl v2.4s, v5.4h\nfcvtl2 v3.4s, v5.8h\n",
        )
    };
    (halves none ($halves:tt $bytes:tt) $quads:tt) => {
        concat!("ldr ", $halves, "4, [x4], #32\n", scales!(@halves "4" $quads))
    };
    (halves min ($halves:tt $bytes:tt) $quads:tt) => {
        concat!(
            "ldr ", $halves, "6, [x4, #32]\n",
            "ldr ", $halves, "4, [x4], #64\n",
            scales!(@halves "4" $quads),
            scales!(@offsets "6" $quads),
        )
    };
    (whole none $load:tt $quads:tt) => {
        ""
    };
    (factors none ($halves:tt $bytes:tt) $quads:tt) => {
        concat!("ldr ", $bytes, "4, [x4], #16\n", scales!(@factors $quads))
    };
    (factors min ($halves:tt $bytes:tt) [$(($s:tt $m:tt $two:tt $four:tt $spread:tt))*]) => {
        concat!(
            "ldr ", $bytes, "6, [x4, #16]\n",
            "ldr ", $bytes, "4, [x4], #32\n",
            scales!(@factors [$(($s $m $two $four $spread))*]),
            $("tbl v", $m, ".16b, {{v6.16b}}, v", $spread, ".16b\n",)*
            $("scvtf v", $m, ".4s, v", $m, ".4s, #24\n",)*
        )
    };
    (e8m0 none ($halves:tt $bytes:tt) [$(($s:tt $m:tt $two:tt $four:tt $spread:tt))*]) => {
        concat!(
            "ldr ", $bytes, "4, [x4], #16\n",
            "ushll v4.8h, v4.8b, #7\n",
            $("shll", $two, " v", $s, ".4s, v4.", $four, ", #16\n",)*
        )
    };
    (ue4m3 none ($halves:tt $bytes:tt) $quads:tt) => {
        concat!(
            "ldr ", $bytes, "4, [x4], #16\n",
            "ushll v4.8h, v4.8b, #7\n",
            scales!(@halves "4" $quads),
        )
    };
    // The highest byte of a lane is 2^24 times what it is alone.
    (@factors [$(($s:tt $m:tt $two:tt $four:tt $spread:tt))*]) => {
        concat!(
            $("tbl v", $s, ".16b, {{v4.16b}}, v", $spread, ".16b\n",)*
            $("scvtf v", $s, ".4s, v", $s, ".4s, #24\n",)*
        )
    };
    (@halves $from:tt [$(($s:tt $m:tt $two:tt $four:tt $spread:tt))*]) => {
        concat!($("fcvtl", $two, " v", $s, ".4s, v", $from, ".", $four, "\n",)*)
    };
    (@offsets $from:tt [$(($s:tt $m:tt $two:tt $four:tt $spread:tt))*]) => {
        concat!($("fcvtl", $two, " v", $m, ".4s, v", $from, ".", $four, "\n",)*)
    };
}

/// The register of a sum for `$half`, to a macro.
macro_rules! sum_of {
    (first ($a:tt $more:tt) $b:tt $then:ident! $($args:tt)*) => { $then! { $a $($args)* } };
    (second $a:tt ($b:tt $more:tt) $then:ident! $($args:tt)*) => { $then! { $b $($args)* } };
    (first $a:tt $b:tt $then:ident! $($args:tt)*) => { $then! { $a $($args)* } };
    (second $a:tt $b:tt $then:ident! $($args:tt)*) => { $then! { $b $($args)* } };
}

/// A group's integers, in f32 by now: times the activations' scale; added to the sums; and its offset times the sum of the
/// activations in lane `$at`.
macro_rules! add {
    ($i:tt scale $x0:tt) => {
        concat!("fmul v", $i, ".4s, v", $i, ".4s, v", $x0, ".s[3]\n")
    };
    ($i:tt whole $u:tt $s:tt) => {
        concat!("fadd v", $u, ".4s, v", $u, ".4s, v", $i, ".4s\n")
    };
    ($i:tt $kind:ident $u:tt $s:tt) => {
        concat!("fmla v", $u, ".4s, v", $i, ".4s, v", $s, ".4s\n")
    };
    (@$kind:ident none $at:tt $u:tt $o:tt $m:tt $x1:tt) => {
        ""
    };
    (@halves min $at:tt $u:tt $o:tt $m:tt $x1:tt) => {
        concat!("fmla v", $u, ".4s, v", $m, ".4s, v", $x1, ".s[", $at, "]\n")
    };
    (@factors min $at:tt $u:tt $o:tt $m:tt $x1:tt) => {
        add!(@halves min $at $o $o $m $x1)
    };
}

/// What becomes of a group's integers.
macro_rules! group {
    (
        $p:tt $half:ident $bias:tt $way:ident $group:tt $kind:ident $min:ident $at:tt
        [$(($x:tt ($x0:tt $x1:tt) $d:tt [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]
    ) => {
        concat!(
            $(unbias!($p $bias $at $x0), $(integers!($p $half $bias $way $group $min $a $b),)*)*
            $($(sum_of!($half $a $b add! scale $x0),)*)*
            $($(sum_of!($half $a $b add! $kind $u $s),)*)*
            $($(add!(@$kind $min $at $u $o $m $x1),)*)*
        )
    };
}

/// What becomes of a step's integers. The registers of activations now have the sums of these.
macro_rules! finish {
    ($bias:tt $p:tt $way:ident 32 $kind:ident $min:ident $load:tt $scales:tt $rows:tt) => {
        concat!(
            scales!($kind $min $load $scales),
            finish!(@$min $rows),
            group!($p first $bias $way 32 $kind $min "2" $rows),
        )
    };
    ($bias:tt $p:tt $way:ident 16 $kind:ident $min:ident $load:tt $scales:tt $rows:tt) => {
        concat!(
            scales!($kind $min $load $scales),
            finish!(@$min $rows),
            group!($p first $bias $way 16 $kind $min "0" $rows),
            scales!($kind $min $load $scales),
            group!($p second $bias $way 16 $kind $min "1" $rows),
        )
    };
    (@none [$(($x:tt ($x0:tt $x1:tt) $d:tt $lanes:tt))*]) => {
        concat!($("ldr q", $x0, ", [", $x, "], #64\n",)*)
    };
    (@min [$(($x:tt ($x0:tt $x1:tt) $d:tt $lanes:tt))*]) => {
        concat!(
            $("ldr q", $x1, ", [", $x, ", #16]\n",)*
            finish!(@none [$(($x ($x0 $x1) $d $lanes))*]),
        )
    };
}

/// Before and after the steps of a pass. Results are in memory meanwhile, where groups have factors.
macro_rules! pass {
    (begin factors min [$(($x:tt $xs:tt $d:tt [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!($($("movi v", $u, ".2d, #0\nmovi v", $o, ".2d, #0\n",)*)*)
    };
    (begin factors none [$(($x:tt $xs:tt $d:tt [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!($($("movi v", $u, ".2d, #0\n",)*)*)
    };
    (begin whole none $rows:tt) => {
        pass!(begin factors none $rows)
    };
    (begin $kind:ident $min:ident [$(($x:tt $xs:tt $d:tt [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!(
            "ldr x4, [x0, {y}]\nadd x4, x4, x1\n",
            $($("ldr q", $u, ", [x4, #", $y, "]\n",)*)*
        )
    };
    // The unit is at `x5`, the row in `x1`.
    (end factors $min:ident ($halves:tt $bytes:tt) $scales:tt $rows:tt) => {
        concat!(
            "ldr x4, [x0, {y}]\nadd x4, x4, x1\nadd x1, x5, x1, lsr #1\n",
            "ldr ", $halves, "4, [x1]\n",
            scales!(@halves "4" $scales),
            pass!(@offsets $min $halves $scales),
            pass!(@add $min $rows),
        )
    };
    (end whole none $load:tt [$(($s:tt $m:tt $two:tt $four:tt $spread:tt))*] $rows:tt) => {
        concat!(
            "ldr x4, [x0, {y}]\nadd x4, x4, x1\nadd x1, x5, x1\n",
            $("ldr q", $s, ", [x1], #16\n",)*
            pass!(@add none $rows),
        )
    };
    (end $kind:ident $min:ident $load:tt $scales:tt
        [$(($x:tt $xs:tt $d:tt [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!(
            "ldr x4, [x0, {y}]\nadd x4, x4, x1\n",
            $($("str q", $u, ", [x4, #", $y, "]\n",)*)*
        )
    };
    (@offsets none $halves:tt $scales:tt) => {
        ""
    };
    (@offsets min $halves:tt $scales:tt) => {
        concat!("ldr ", $halves, "4, [x1, #32]\n", scales!(@offsets "4" $scales))
    };
    (@add $min:ident [$(($x:tt $xs:tt $d:tt [$(($u:tt $o:tt $y:tt $s:tt $m:tt $a:tt $b:tt))*]))*]) => {
        concat!($($(
            "ldr q6, [x4, #", $y, "]\n",
            "fmla v6.4s, v", $u, ".4s, v", $s, ".4s\n",
            pass!(@add $min $o $m),
            "str q6, [x4, #", $y, "]\n",
        )*)*)
    };
    (@add none $o:tt $m:tt) => {
        ""
    };
    (@add min $o:tt $m:tt) => {
        concat!("fmla v6.4s, v", $o, ".4s, v", $m, ".4s\n")
    };
    // Where the first group's scales are.
    (scales factors none) => {
        "add x4, x5, x1, lsr #2\nadd x4, x4, #32\n"
    };
    (scales factors min) => {
        "add x4, x5, x1, lsr #2\nadd x4, x4, #64\n"
    };
    (scales halves $min:ident) => {
        "add x4, x5, x1, lsr #1\n"
    };
    (scales $kind:ident $min:ident) => {
        "add x4, x5, x1, lsr #2\n"
    };
}

/// `v14`: bytes 0 to 3 of a register go to the highest byte of each lane; `v15`: bytes 4 to 7.
macro_rules! spread {
    (factors) => {
        spread!(@("14" "0") ("14" "1") ("14" "2") ("14" "3") ("15" "0") ("15" "1") ("15" "2") ("15" "3"))
    };
    ($kind:ident) => {
        ""
    };
    (@$(($v:tt $lane:tt))*) => {
        concat!(
            "mov w1, #0xffffff\nmov w3, #0x1000000\n",
            masks!(@$(($v $lane))*),
        )
    };
}

/// The activations of a step.
macro_rules! activations {
    (i8mm $rows:tt) => {
        eights_of!($rows)
    };
    (wide $rows:tt) => {
        eights_of!($rows)
    };
    ($p:ident [$(($x:tt ($x0:tt $x1:tt)))*]) => {
        concat!($("ldur q", $x0, ", [", $x, ", #-32]\nldur q", $x1, ", [", $x, ", #-16]\n",)*)
    };
}

/// One kernel: its tier, how many rows of activations it takes, how many bytes of a vector a pass does, and the
/// registers of the quads (see [`each`]; then [`multiply`]'s), of their scales, and of the rows of activations: where they
/// are, two registers for them, the tier's, and for each quad those for sums of products and offsets, where its results
/// are, its scales and offsets, its integers.
macro_rules! packed_kernel {
    (
        $field:ident $format:ident $batch:tt $p:tt $name:literal [$($extension:literal)?]
        { bits: ($low:tt $high:tt), values: $values:ident $bias:tt $way:ident, scales: $kind:ident $min:ident $group:tt }
        $bytes:tt $load:tt $quads:tt $scales:tt
        [$(($x:tt ($x0:tt $x1:tt) $d:tt $lanes:tt))*]
    ) => {
        panel_kernel! {
            concat!("qgemv_packed_f32_q8_", stringify!($field), "_16x", $batch, "__", $name),
            $format,
            $(concat!(".arch_extension ", $extension),)?
            // PROLOGUE
            keep_callers!(),
            "ldur q20, [x0, {table}]",
            masks!($low $high $values),
            spread!($kind),
            constants!($p $group $min),
            "ldr x5, [x0, {w}]",
            "ldr x2, [x0, {units}]",
            "ldr x1, [x0, {x}]",
            "ldr x3, [x0, {stride}]",
            concat!($("add ", $x, ", x1, #32\nadd x1, x1, x3\n",)*),
            "lsl x2, x2, #6",
            // A UNIT: first the lines of its head, which steps read in turn with those of codes. Prefetchers want
            // memory in order.
            ".p2align 4",
            "1:",
            ".irp at, 0, 64, 128, 192, 256, 320, 384, 448, 512",
            ".if \\at < {head}",
            "prfm pldl1keep, [x5, #\\at]",
            ".endif",
            ".endr",
            // A PASS
            "2:",
            "neg x1, x2",
            "and x1, x1, #48",
            pass!(begin $kind $min [$(($x ($x0 $x1) $d $lanes))*]),
            pass!(scales $kind $min),
            "add x5, x5, x1",
            "cmp x2, #64",
            "b.ls 6f",
            "add x5, x5, #{head}",
            "mov w3, #8",
            // A STEP
            ".p2align 5",
            "3:",
            activations!($p [$(($x ($x0 $x1)))*]),
            bias!($values $bias start! $p $group $min [$(($x ($x0 $x1) $d $lanes))*]),
            products!($low $high $quads { $p $quads $min [$(($x0 $x1 $d))*] $values $way $group }),
            bias!($values $bias finish! $p $way $group $kind $min $load $scales [$(($x ($x0 $x1) $d $lanes))*]),
            "add x5, x5, #{step}",
            by_row!(end $high),
            "subs w3, w3, #1",
            "b.ne 3b",
            // Back to the unit.
            "cmp x2, #64",
            "b.ls 7f",
            "sub x5, x5, #{steps}",
            "sub x5, x5, #{head}",
            "8:",
            "sub x5, x5, x1",
            pass!(end $kind $min $load $scales [$(($x ($x0 $x1) $d $lanes))*]),
            concat!("sub x2, x2, #", $bytes),
            "ands x1, x2, #63",
            "b.eq 4f",
            // Back to the unit's first activations.
            "ldr x3, [x0, {last_steps}]",
            "lsl x3, x3, #6",
            "mov w4, #512",
            "cmp x2, #64",
            "csel x3, x3, x4, lo",
            concat!($("sub ", $x, ", ", $x, ", x3\n",)*),
            "b 2b",
            "4:",
            "cbz x2, 5f",
            "add x5, x5, #{steps}",
            "add x5, x5, #{head}",
            "b 1b",
            // The last unit may have fewer steps, and a shorter head.
            "6:",
            "ldr x3, [x0, {last_head}]",
            "add x5, x5, x3",
            "ldr x3, [x0, {last_steps}]",
            "b 3b",
            "7:",
            "ldr x3, [x0, {last_head}]",
            "ldr x4, [x0, {last_steps}]",
            "sub x5, x5, x3",
            "mov w3, #{step}",
            "msub x5, x3, x4, x5",
            "b 8b",
            "5:",
            restore_callers!(),
            "ret",
            $(concat!(".arch_extension no", $extension),)?;
            steps = const 8 * <crate::quant::formats::$format as crate::quant::packed::Pack>::PACKING.step(),
        }
    };
}
