//! The parts of a microkernel that the tiles of [`avx2`](super::avx2) and [`avx512`](super::avx512) share.
//!
//! There is a loop for every number of rows, with all columns and with half of them. So tiles at the edges of `C`, and products
//! with few rows, execute no superfluous products. The files of the tiles have pictures of them, and maps of the registers.

/// A kernel: what its sums are, what they start with, the bytes of half a step of `B`, the rows of a tile, the bytes of half a
/// row of it. The text defines the named assembler macros:
///
/// - `each_row do, more` does something for each row: its number, the address of its element of `A`, its sums, the register for
///   its element and the other one; and what is behind that;
/// - `start_row`, for `each_row`, starts the sums of a row, with what is at `rdx` if they do not start with zeros;
/// - `rows_of_a` makes the addresses that `each_row` names of `rax`, the panel of `A`;
/// - `round rows, half` multiplies four steps, `single rows, half` one, and moves on;
/// - `before_loop` and `behind_loop` are around the loops;
/// - `store_tile` brings the sums to `C`, and ends at 500. `each_row c_row, do, then` does something for all rows that exist, with
///   their sums and the row of `C` at `rdx`, and goes on at `then`; `first_row` goes back to the first. In `rcx` and `eax` are
///   the columns of `C` and the bits of beta.
macro_rules! tile_kernel {
    (
        $name:literal, sums: $sums:ident, start: $start:ident, bytes: $bytes:literal, rows: $rows:literal, half: $half:literal,
        macros: [$($macro:ident)*], $($text:expr),*
    ) => {
        gemm_kernel! {
            $name,
            $($text,)*
            r"
            .macro jump_if_row row, at, low, high, a, spare, loops
                dec rsi
                jz \loops\row\()f
            .endm

            // THE LOOP for one number of rows, with all columns (20..) or half of them (30..): rounds of four steps, then single ones.
            .macro steps label, rows, half
            \label\rows:
                before_loop
                sub r9, 4
                jb 5f
                .p2align 5
            4:
                prefetcht1 [r8]
                round \rows, \half
                add r8, 64
                sub r9, 4
                jae 4b
            5:
                and r9, 3
                jz 400f
            6:
                single \rows, \half
                dec r9
                jnz 6b
                jmp 400f
            .endm

            // ROWS OF C. All of them are read before the first is written: where they are a multiple of 4 KiB apart, reading one
            // would wait for the write of the one before.
            .macro c_row row, at, low, high, a, spare, do, then
                \do \low, \high
                dec r10
                jz \then
                add rdx, r8
            .endm
            .macro first_row
                mov rdx, [rdi + {c}]
                mov r10, [rdi + {rows}]
            .endm

            // PROLOGUE
            mov rdx, [rdi + {c}]
            mov r8, [rdi + {ldc}]
            mov rcx, [rdi + {rows}]
        2:
            // To L2: in L1 the rows of a C with a power of two as its stride would drive each other out.
            prefetcht1 [rdx]
            .if {half} == 64
            prefetcht1 [rdx + 64]
            .endif
            prefetcht1 [rdx + 2*{half} - 4]
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
            rows_of_a
            cmp qword ptr [rdi + {cols}], {half}/4
            jbe 3f
            each_row jump_if_row, 20
        3:
            each_row jump_if_row, 30

            // LOOPS
            .irp rows, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
            .if \rows <= {all_rows}
            steps 20, \rows, 0
            steps 30, \rows, 1
            .endif
            .endr

            // STORE
        400:
            behind_loop
            mov rdx, [rdi + {c}]
            mov r8, [rdi + {ldc}]
            mov r10, [rdi + {rows}]
            mov rcx, [rdi + {cols}]
            mov eax, [rdi + {beta}]
            store_tile
        500:
            vzeroupper
            ret

            .irp name, jump_if_row, steps, c_row, first_row
            .purgem \name
            .endr
            ",
            $(concat!(".purgem ", stringify!($macro)),)*;
            sums = const crate::asm::x86_64::$sums,
            f32 = const crate::asm::x86_64::F32,
            start_with = const crate::asm::x86_64::$start,
            given = const crate::asm::x86_64::GIVEN,
            bytes = const $bytes,
            all_rows = const $rows,
            half = const $half,
        }
    };
}
