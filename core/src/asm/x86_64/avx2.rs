//! The 6x16 tile of AVX2, for f32, bf16, f16 and int8.
//!
//! ```text
//!            columns 0..8   8..16
//! row 1          ymm0       ymm1      ymm12, ymm13   a step of B
//! row 2          ymm2       ymm3      ymm14, ymm15   an element of A in every lane, in turn
//!  ..             ..         ..
//! row 6         ymm10      ymm11
//! ```
//!
//! | register | in the loops | when `C` is written |
//! |---|---|---|
//! | `rdi` | `MicroArgs` | `MicroArgs` |
//! | `rax`, `rcx` | the steps of `A` and of `B` | bits of beta, columns of `C` |
//! | `rdx`, `r10` | | a row of `C`, rows that are left |
//! | `r8` | what is read after this tile | bytes from row to row of `C` |
//! | `r9` | steps that are left | |
//!
//! Rows that do not exist are left out; columns that do not are the driver's matter: masked stores are slow on some
//! processors. There is a loop for every number of rows, with all columns and with half of them, so that tiles at the
//! edges of `C` and products with few rows cost what they have to. For elements see [`avx512`](super::avx512).

/// A kernel with this tile: what its sums are, what they start with, the bytes of half a step of `B`, and the text of two
/// assembler macros, `load_b to, at` and `multiply_add sum, a, b, spare`, whose arguments are numbers of registers.
macro_rules! microkernel_6x16 {
    ($name:literal, sums: $sums:ident, start: $start:ident, bytes: $bytes:literal, $text:literal) => {
        gemm_kernel! {
            $name,
            $text,
            r"
            // Does something for each row: its number, its sums, the register for its element of A and the other one; and
            // what is behind that.
            .macro each_row do, more:vararg
                \do 1, 0, 1, 14, 15, \more
                \do 2, 2, 3, 15, 14, \more
                \do 3, 4, 5, 14, 15, \more
                \do 4, 6, 7, 15, 14, \more
                \do 5, 8, 9, 14, 15, \more
                \do 6, 10, 11, 15, 14, \more
            .endm

            .macro start_row row, low, high, a, spare, more
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
            .macro jump_if_row row, low, high, a, spare, loops
                dec rsi
                jz \loops\row\()f
            .endm

            // A STEP of a round, of the first rows.
            .macro multiply_row row, low, high, a, spare, step, rows, half
                .if \row <= \rows
                vbroadcastss ymm\a, [rax + 24*\step + 4*(\row - 1)]
                multiply_add \low, \a, 12, \spare
                .if !\half
                multiply_add \high, \a, 13, \spare
                .endif
                .endif
            .endm
            .macro step step, rows, half
                load_b 12, 2*{bytes}*\step
                .if !\half
                load_b 13, 2*{bytes}*\step+{bytes}
                .endif
                // A line, 1 KiB ahead: of 16-bit elements two steps have one.
                .if 2*{bytes}*\step % 64 == 0
                prefetcht0 [rcx + 2*{bytes}*\step + 1024]
                .endif
                each_row multiply_row, \step, \rows, \half
            .endm

            // THE LOOP for so many rows, with all columns (20..) or half of them (30..): rounds of four steps, then single ones.
            .macro steps label, rows, half
            \label\rows:
                sub r9, 4
                jb 5f
                .p2align 5
            4:
                prefetcht1 [r8]
                .irp step, 0, 1, 2, 3
                step \step, \rows, \half
                .endr
                add rax, 4*24
                add rcx, 4*2*{bytes}
                add r8, 64
                sub r9, 4
                jae 4b
            5:
                and r9, 3
                jz 400f
            6:
                step 0, \rows, \half
                add rax, 24
                add rcx, 2*{bytes}
                dec r9
                jnz 6b
                jmp 400f
            .endm

            // ROWS OF C. All of them are read before the first is written: where they are a multiple of 4 KiB apart, reading one
            // would wait for the write of the one before.
            .macro c_row row, low, high, a, spare, do, then
                \do \low, \high
                dec r10
                jz \then
                add rdx, r8
            .endm
            .macro first_row
                mov rdx, [rdi + {c}]
                mov r10, [rdi + {rows}]
            .endm
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

            // PROLOGUE
            mov rdx, [rdi + {c}]
            mov r8, [rdi + {ldc}]
            mov rcx, [rdi + {rows}]
        2:
            // To L2: in L1 the rows of a C with a power of two as its stride would drive each other out.
            prefetcht1 [rdx]
            prefetcht1 [rdx + 60]
            add rdx, r8
            dec rcx
            jnz 2b
            mov rax, [rdi + {a}]
            mov rcx, [rdi + {b}]
            mov r9, [rdi + {steps}]
            mov r8, [rdi + {next}]
            mov rsi, [rdi + {rows}]
            .if {start_with} == {given}
            mov rdx, [rdi + {start}]
            .endif
            each_row start_row
            cmp qword ptr [rdi + {cols}], 8
            jbe 3f
            each_row jump_if_row, 20
        3:
            each_row jump_if_row, 30

            // LOOPS
            .irp rows, 1, 2, 3, 4, 5, 6
            steps 20, \rows, 0
            steps 30, \rows, 1
            .endr

            // STORE: C = alpha A B + beta C.
        400:
            mov rdx, [rdi + {c}]
            mov r8, [rdi + {ldc}]
            mov r10, [rdi + {rows}]
            mov rcx, [rdi + {cols}]
            mov eax, [rdi + {beta}]
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
        500:
            vzeroupper
            ret

            .irp name, load_b, multiply_add, each_row, start_row, jump_if_row, multiply_row, step, steps
            .purgem \name
            .endr
            .irp name, c_row, first_row, store, scale, add_c
            .purgem \name
            .endr
            ";
            sums = const crate::asm::x86_64::$sums,
            f32 = const crate::asm::x86_64::F32,
            start_with = const crate::asm::x86_64::$start,
            given = const crate::asm::x86_64::GIVEN,
            bytes = const $bytes,
        }
    };
}
