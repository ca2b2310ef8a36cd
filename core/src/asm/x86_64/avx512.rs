//! The 14x32 tile of AVX-512, for f32, bf16, f16 and int8.
//!
//! ```text
//!            columns 0..16   16..32
//! row 1          zmm0          zmm1      zmm28, zmm29   a step of B
//! row 2          zmm2          zmm3      zmm30, zmm31   an element of A in every lane, alternately
//!  ..             ..            ..
//! row 14        zmm26         zmm27      k1..k5         columns that exist, when C is written
//! ```
//!
//! | register | in the loops | when `C` is written |
//! |---|---|---|
//! | `rdi` | bytes from one row of `A` to the row before | `MicroArgs` |
//! | `rax`, `rdx` | rows 5 and 10 of `A`: so each of the 14 rows is one address | bits of beta, a row of `C` |
//! | `r10` | bytes from one row of `A` to the next | rows of `C` that are left |
//! | `rsi`, `r11` | bytes from one step to the next, of `A` and of `B` | |
//! | `rcx` | the step of `B` | columns of `C` |
//! | `r8` | the address to prefetch from | bytes from row to row of `C` |
//! | `r9` | steps that are left | |
//! | `k7` | `MicroArgs` | |
//!
//! The bytes from row to row and from step to step come with the argument: so `A` and `B` may be read where they are,
//! unpacked. [`tile`](super::tile) describes the loops.
//!
//! An element is four bytes: an f32, two bf16, or, of int8, two i16 or four bytes. int8 has sums in i32. VNNI multiplies unsigned
//! by signed bytes, so packing `A` adds 128 to each of its elements. Each sum would then exceed the result by 128 times the sum
//! of its column of `B`. To compensate, packing `B` sums up its columns, and the sums of products start with -128 times that.

/// A kernel with this tile: what its sums are, what they start with, the bytes of half a step of `B`, and the text of two
/// assembler macros, `load_b to, at` and `multiply_add sum, a, b, spare`, whose arguments are numbers of registers.
macro_rules! microkernel_14x32 {
    ($name:literal, sums: $sums:ident, start: $start:ident, bytes: $bytes:literal, $text:literal) => {
        tile_kernel! {
            $name, sums: $sums, start: $start, bytes: $bytes, rows: 14, half: 64,
            macros: [
                load_b multiply_add each_row rows_of_a start_row multiply_row step before_loop round single behind_loop
                store add_c masked_store masked_add_c store_tile
            ],
            $text,
            r"
            .macro each_row do, more:vararg
                \do 1, rax+4*rdi, 0, 1, 30, 31, \more
                \do 2, rdx+8*rdi, 2, 3, 31, 30, \more
                \do 3, rax+2*rdi, 4, 5, 30, 31, \more
                \do 4, rax+rdi, 6, 7, 31, 30, \more
                \do 5, rax, 8, 9, 30, 31, \more
                \do 6, rax+r10, 10, 11, 31, 30, \more
                \do 7, rax+2*r10, 12, 13, 30, 31, \more
                \do 8, rdx+2*rdi, 14, 15, 31, 30, \more
                \do 9, rdx+rdi, 16, 17, 30, 31, \more
                \do 10, rdx, 18, 19, 31, 30, \more
                \do 11, rdx+r10, 20, 21, 30, 31, \more
                \do 12, rdx+2*r10, 22, 23, 31, 30, \more
                \do 13, rax+8*r10, 24, 25, 30, 31, \more
                \do 14, rdx+4*r10, 26, 27, 31, 30, \more
            .endm
            .macro rows_of_a
                mov r10, [rdi + {a_row}]
                mov r11, [rdi + {b_step}]
                lea rax, [rax + 4*r10]
                lea rdx, [rax + 4*r10]
                add rdx, r10
            .endm

            .macro start_row row, at, low, high, a, spare, more
                .if {start_with} == {given}
                vmovups zmm\low, [rdx]
                vmovups zmm\high, [rdx + 64]
                .else
                vpxord zmm\low, zmm\low, zmm\low
                vpxord zmm\high, zmm\high, zmm\high
                .endif
            .endm

            // A STEP of the first rows.
            .macro multiply_row row, at, low, high, a, spare, rows, half
                .if \row <= \rows
                vbroadcastss zmm\a, [\at]
                multiply_add \low, \a, 28, \spare
                .if !\half
                multiply_add \high, \a, 29, \spare
                .endif
                .endif
            .endm
            .macro step rows, half
                load_b 28, 0
                .if !\half
                load_b 29, {bytes}
                .endif
                prefetcht0 [rcx + 8*r11]
                .if {bytes} == 64
                prefetcht0 [rcx + 8*r11 + 64]
                .endif
                each_row multiply_row, \rows, \half
                add rax, rsi
                add rdx, rsi
                add rcx, r11
            .endm

            .macro before_loop
                mov rsi, [rdi + {a_step}]
                kmovq k7, rdi
                xor edi, edi
                sub rdi, r10
            .endm
            .macro round rows, half
                .rept 4
                step \rows, \half
                .endr
            .endm
            .macro single rows, half
                step \rows, \half
            .endm

            .macro behind_loop
                kmovq rdi, k7
            .endm

            .macro store low, high
                vmovups [rdx], zmm\low
                vmovups [rdx + 64], zmm\high
            .endm
            .macro add_c low, high
                .if {sums} == {f32}
                vaddps zmm\low, zmm\low, [rdx]
                vaddps zmm\high, zmm\high, [rdx + 64]
                .else
                vpaddd zmm\low, zmm\low, [rdx]
                vpaddd zmm\high, zmm\high, [rdx + 64]
                .endif
            .endm
            .macro masked_store low, high
                vmovups [rdx]{{k1}}, zmm\low
                vmovups [rdx + 64]{{k2}}, zmm\high
            .endm
            // C is read in k3, k4: in the columns that exist, or nowhere if beta is 0.
            .macro masked_add_c low, high
                .if {sums} == {f32}
                vmulps zmm\low, zmm\low, zmm28
                vmulps zmm\high, zmm\high, zmm28
                vfmadd231ps zmm\low{{k3}}, zmm29, [rdx]
                vfmadd231ps zmm\high{{k4}}, zmm29, [rdx + 64]
                .else
                vpaddd zmm\low{{k3}}, zmm\low, [rdx]
                vpaddd zmm\high{{k4}}, zmm\high, [rdx + 64]
                .endif
            .endm
            .macro store_tile
                // Whole rows: C = A B, or C = A B + C.
                .if {sums} == {f32}
                cmp dword ptr [rdi + {alpha}], 0x3f800000 // 1.0
                jne 402f
                .endif
                cmp rcx, 32
                jne 402f
                .if {sums} == {f32}
                add eax, eax
                jz 401f
                cmp eax, 2*0x3f800000
                jne 402f
                .else
                test eax, eax
                jz 401f
                .endif
                each_row c_row, add_c, 403f
        403:
                first_row
        401:
                each_row c_row, store, 500f
                // All others: C = alpha A B + beta C.
        402:
                mov esi, 1
                shl rsi, cl
                dec rsi
                kmovw k1, esi
                shr rsi, 16
                kmovw k2, esi
                .if {sums} == {f32}
                vbroadcastss zmm28, [rdi + {alpha}]
                vbroadcastss zmm29, [rdi + {beta}]
                // Zero of either sign.
                vpaddd zmm30, zmm29, zmm29
                .else
                vpbroadcastd zmm30, eax
                .endif
                vptestmd k5, zmm30, zmm30
                kandw k3, k1, k5
                kandw k4, k2, k5
                each_row c_row, masked_add_c, 404f
        404:
                first_row
                each_row c_row, masked_store, 500f
            .endm
            "
        }
    };
}
