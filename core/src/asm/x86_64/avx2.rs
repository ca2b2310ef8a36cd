//! The 6x16 tile of AVX2, for f32, bf16, f16 and int8.
//!
//! ```text
//!            columns 0..8   8..16
//! row 1          ymm0       ymm1      ymm12, ymm13   a step of B
//! row 2          ymm2       ymm3      ymm14, ymm15   an element of A in every lane, alternately
//!  ..             ..         ..
//! row 6         ymm10      ymm11
//! ```
//!
//! | register | in the loops | when `C` is written |
//! |---|---|---|
//! | `rdi` | `MicroArgs` | `MicroArgs` |
//! | `rax`, `rdx` | rows 1 and 4 of `A` | bits of beta, a row of `C` |
//! | `r10` | bytes from one row of `A` to the next | rows of `C` that are left |
//! | `rsi`, `r11` | bytes from one step to the next, of `A` and of `B` | |
//! | `rcx` | the step of `B` | columns of `C` |
//! | `r8` | the address to prefetch from | bytes from row to row of `C` |
//! | `r9` | steps that are left | |
//!
//! The bytes from row to row and from step to step come with the argument: so `A` and `B` may be read where they are, unpacked.
//!
//! The kernel leaves out rows that do not exist. It computes all columns, and the loops around it ([`Edges::Rows`]) give it a
//! buffer where some do not exist, because masked stores are slow on some processors. [`avx512`](super::avx512) describes the
//! elements, [`tile`](super::tile) the loops.
//!
//! [`Edges::Rows`]: crate::args::micro::Edges::Rows

/// A kernel with this tile: what its sums are, what they start with, the bytes of half a step of `B`, and the text of two
/// assembler macros, `load_b to, at` and `multiply_add sum, a, b, spare`, whose arguments are numbers of registers.
macro_rules! microkernel_6x16 {
    ($name:literal, sums: $sums:ident, start: $start:ident, bytes: $bytes:literal, $text:literal) => {
        tile_kernel! {
            $name, sums: $sums, start: $start, bytes: $bytes, rows: 6, half: 32,
            macros: [
                load_b multiply_add each_row rows_of_a start_row multiply_row step before_loop round single behind_loop
                store scale add_c store_tile
            ],
            $text,
            r"
            .macro each_row do, more:vararg
                \do 1, rax, 0, 1, 14, 15, \more
                \do 2, rax+r10, 2, 3, 15, 14, \more
                \do 3, rax+2*r10, 4, 5, 14, 15, \more
                \do 4, rdx, 6, 7, 15, 14, \more
                \do 5, rdx+r10, 8, 9, 14, 15, \more
                \do 6, rdx+2*r10, 10, 11, 15, 14, \more
            .endm
            .macro rows_of_a
                mov r10, [rdi + {a_row}]
                mov r11, [rdi + {b_step}]
                lea rdx, [rax + 2*r10]
                add rdx, r10
            .endm

            .macro start_row row, at, low, high, a, spare, more
                .if {start_with} == {given}
                vmovups ymm\low, [rdx]
                vmovups ymm\high, [rdx + 32]
                .elseif {sums} == {f32}
                vxorps ymm\low, ymm\low, ymm\low
                vxorps ymm\high, ymm\high, ymm\high
                .else
                vpxor ymm\low, ymm\low, ymm\low
                vpxor ymm\high, ymm\high, ymm\high
                .endif
            .endm

            // A STEP of the first rows.
            .macro multiply_row row, at, low, high, a, spare, rows, half
                .if \row <= \rows
                vbroadcastss ymm\a, [\at]
                multiply_add \low, \a, 12, \spare
                .if !\half
                multiply_add \high, \a, 13, \spare
                .endif
                .endif
            .endm
            .macro step rows, half
                load_b 12, 0
                .if !\half
                load_b 13, {bytes}
                .endif
                prefetcht0 [rcx + 8*r11]
                each_row multiply_row, \rows, \half
                add rax, rsi
                add rdx, rsi
                add rcx, r11
            .endm

            .macro before_loop
                mov rsi, [rdi + {a_step}]
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
            .endm

            // C = alpha A B + beta C.
            .macro store low, high
                vmovups [rdx], ymm\low
                vmovups [rdx + 32], ymm\high
            .endm
            .macro scale low, high
                vmulps ymm\low, ymm\low, ymm12
                vmulps ymm\high, ymm\high, ymm12
            .endm
            .macro add_c low, high
                .if {sums} == {f32}
                scale \low, \high
                vfmadd231ps ymm\low, ymm13, [rdx]
                vfmadd231ps ymm\high, ymm13, [rdx + 32]
                .else
                vpaddd ymm\low, ymm\low, [rdx]
                vpaddd ymm\high, ymm\high, [rdx + 32]
                .endif
            .endm
            .macro store_tile
                .if {sums} == {f32}
                vbroadcastss ymm12, [rdi + {alpha}]
                vbroadcastss ymm13, [rdi + {beta}]
                // Zero of either sign.
                add eax, eax
                jnz 401f
                each_row c_row, scale, 402f
        401:
                each_row c_row, add_c, 402f
        402:
                first_row
                .else
                test eax, eax
                jz 401f
                each_row c_row, add_c, 402f
        402:
                first_row
        401:
                .endif
                each_row c_row, store, 500f
            .endm
            "
        }
    };
}
