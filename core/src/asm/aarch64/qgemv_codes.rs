//! Packed quantised weights: unpacking of planes to the codes that are multiplied.
//!
//! A vector of a plane has 64 bytes, and each bit field of these bytes has four columns of the 16 rows; see
//! [`packed`](crate::quant::packed). Vectors are loaded, and codes unpacked, some instructions before they are used, so that CPUs
//! that execute in order wait less.

/// The assembler macros `load_activations` and `step_products`, for tiers that multiply four columns at a time by two macros of their own: `bring half, four`
/// brings four activations of each row to registers, `multiply_four even, odd, half, four, count` multiplies them with the codes in
/// these registers. `count` says which of the step's eight this is in their order.
macro_rules! codes {
    () => {
        r"
            // The activations of a step.
            .macro load_row x, x0, x1, d0, d1, more
                ldur q\x0, [\x, #-32]
                ldur q\x1, [\x, #-16]
            .endm
            .macro load_activations
                each_row load_row
            .endm

            // A vector of a plane, of each quad to its register. (Not with `ldp`, which some CPUs decode alone.)
            .macro load even, odd, at
                ldr q\even, [x5, #\at]
                .if {quads} > 1
                ldr q\odd, [x5, #\at+16]
                .endif
            .endm
            // An instruction on registers of both quads: the last operand is a register or a number.
            .macro both op, even, odd, from_even, from_odd, operand
                \op v\even\().16b, v\from_even\().16b, \operand
                .if {quads} > 1
                \op v\odd\().16b, v\from_odd\().16b, \operand
                .endif
            .endm
            // High bits are inserted where the mask says.
            .macro insert_high even, odd, high_even, high_odd
                bit v\even\().16b, v\high_even\().16b, v13.16b
                .if {quads} > 1
                bit v\odd\().16b, v\high_odd\().16b, v13.16b
                .endif
            .endm

            // The codes that indices stand for are multiplied. Values of one bit, 1 and -1, are twice the bit minus 1.
            .macro four even, odd, half, four, count
                .if {table_of_values} && {low_bits} > 1
                tbl v\even\().16b, {{v20.16b}}, v\even\().16b
                .if {quads} > 1
                tbl v\odd\().16b, {{v20.16b}}, v\odd\().16b
                .endif
                .endif
                multiply_four \even, \odd, \half, \four, \count
            .endm

            // Of bytes: codes, whose sign changes.
            .macro bytes even, odd, half, four, count
                bring \half, \four
                both eor, \even, \odd, \even, \odd, v12.16b
                four \even, \odd, \half, \four, \count
            .endm

            // Of nibbles: the low ones are the first half's columns, the high ones the second half's.
            .macro nibbles even, odd, four, count
                bring 0, \four
                bring 1, \four
                both and, 2, 3, \even, \odd, v12.16b
                both ushr, 4, 5, \even, \odd, #4
                four 2, 3, 0, \four, \count
                four 4, 5, 1, \four, \count+1
            .endm

            // Of nibbles, with high bits in v4, v5: those of low and of high nibbles are 4 bits apart, too, and shifted together.
            .macro nibbles_with_high even, odd, four, count
                bring 1, \four
                bring 0, \four
                both ushr, 2, 3, \even, \odd, #4
                sli v\even\().16b, v4.16b, #4
                .if {quads} > 1
                sli v\odd\().16b, v5.16b, #4
                .endif
                insert_high 2, 3, 4, 5
                both and, \even, \odd, \even, \odd, v12.16b
                four 2, 3, 1, \four, \count
                four \even, \odd, 0, \four, \count+1
            .endm

            // Of pairs of bits: the columns of each two are behind those of the pair before.
            .macro pairs even, odd, four, count
                bring 0, \four
                both and, 2, 3, \even, \odd, v12.16b
                both ushr, 4, 5, \even, \odd, #2
                four 2, 3, 0, \four, \count
                bring 0, \four+2
                both and, 4, 5, 4, 5, v12.16b
                both ushr, 2, 3, \even, \odd, #4
                four 4, 5, 0, \four+2, \count+1
                bring 1, \four
                both and, 2, 3, 2, 3, v12.16b
                both ushr, 4, 5, \even, \odd, #6
                four 2, 3, 1, \four, \count+2
                bring 1, \four+2
                four 4, 5, 1, \four+2, \count+3
            .endm

            // Of three bits in each nibble. Of tables there are two copies: there the fourth bit may be anything.
            .macro threes even, odd, four, count
                bring 0, \four
                bring 1, \four
                both and, 2, 3, \even, \odd, v12.16b
                both ushr, \even, \odd, \even, \odd, #4
                .if !{table_of_values}
                both and, \even, \odd, \even, \odd, v12.16b
                .endif
                four 2, 3, 0, \four, \count
                four \even, \odd, 1, \four, \count+1
            .endm

            // High planes by row: bytes of rows become those of four columns.
            .macro spread_rows
                ldr d2, [x4, #32]
                tbl v4.16b, {{v2.16b}}, v21.16b
                .if {quads} > 1
                tbl v5.16b, {{v2.16b}}, v22.16b
                .endif
            .endm

            // Of single bits.
            .macro one_bit even, odd, op, by, half, four, count
                bring \half, \four
                both \op, \even, \odd, 0, 1, \by
                both and, \even, \odd, \even, \odd, v12.16b
                four \even, \odd, \half, \four, \count
            .endm

            .macro step_products
                .if {low_bits} == 8
                load 0, 1, 0
                load 2, 3, 64
                load 4, 5, 128
                load 6, 7, 192
                bytes 0, 1, 0, 0, 1
                load 0, 1, 256
                bytes 2, 3, 0, 1, 2
                load 2, 3, 320
                bytes 4, 5, 0, 2, 3
                load 4, 5, 384
                bytes 6, 7, 0, 3, 4
                load 6, 7, 448
                bytes 0, 1, 1, 0, 5
                bytes 2, 3, 1, 1, 6
                bytes 4, 5, 1, 2, 7
                bytes 6, 7, 1, 3, 8
                .elseif {low_bits} == 4 && {high_bits} == 0
                load 0, 1, 0
                load 6, 7, 64
                nibbles 0, 1, 0, 1
                load 0, 1, 128
                nibbles 6, 7, 1, 3
                load 6, 7, 192
                nibbles 0, 1, 2, 5
                nibbles 6, 7, 3, 7
                .elseif {low_bits} == 4 && {high_bits} == 1
                load 4, 5, 256
                load 0, 1, 0
                load 6, 7, 64
                nibbles_with_high 0, 1, 0, 1
                load 0, 1, 128
                both ushr, 4, 5, 4, 5, #1
                nibbles_with_high 6, 7, 1, 3
                load 6, 7, 192
                both ushr, 4, 5, 4, 5, #1
                nibbles_with_high 0, 1, 2, 5
                both ushr, 4, 5, 4, 5, #1
                nibbles_with_high 6, 7, 3, 7
                .elseif {low_bits} == 4
                load 4, 5, 256
                load 0, 1, 0
                load 6, 7, 128
                nibbles_with_high 0, 1, 0, 1
                load 0, 1, 64
                both ushr, 4, 5, 4, 5, #2
                nibbles_with_high 6, 7, 2, 3
                load 4, 5, 320
                load 6, 7, 192
                nibbles_with_high 0, 1, 1, 5
                both ushr, 4, 5, 4, 5, #2
                nibbles_with_high 6, 7, 3, 7
                .elseif {low_bits} == 2 && {high_bits} == 0
                load 0, 1, 0
                load 6, 7, 64
                pairs 0, 1, 0, 1
                pairs 6, 7, 1, 5
                .elseif {low_bits} == 2
                // Pairs of bits two apart and high bits four apart become two nibbles.
                load 0, 1, 0
                .if {by_row}
                spread_rows
                .else
                load 4, 5, 128
                .endif
                both ushr, 6, 7, 0, 1, #2
                both shl, 2, 3, 4, 5, #2
                insert_high 6, 7, 4, 5
                insert_high 0, 1, 2, 3
                threes 0, 1, 0, 1
                load 0, 1, 64
                threes 6, 7, 2, 3
                both ushr, 6, 7, 0, 1, #2
                both shl, 2, 3, 4, 5, #1
                both ushr, 4, 5, 4, 5, #1
                insert_high 0, 1, 2, 3
                insert_high 6, 7, 4, 5
                threes 0, 1, 1, 5
                threes 6, 7, 3, 7
                .else
                load 0, 1, 0
                one_bit 2, 3, shl, #1, 0, 0, 1
                one_bit 4, 5, ushr, #1, 0, 2, 2
                one_bit 6, 7, ushr, #2, 0, 3, 3
                one_bit 2, 3, ushr, #3, 1, 0, 4
                one_bit 4, 5, ushr, #4, 1, 1, 5
                one_bit 6, 7, ushr, #5, 1, 2, 6
                one_bit 2, 3, ushr, #6, 1, 3, 7
                bring 0, 1
                both and, 4, 5, 0, 1, v12.16b
                four 4, 5, 0, 1, 8
                .endif
            .endm

            .macro purge_codes
                .irp name, load_row, load, both, insert_high, four, bytes, nibbles, nibbles_with_high, pairs, threes, spread_rows, one_bit
                .purgem \name
                .endr
            .endm
        "
    };
}
