//! The 32x32 tile of AMX.
//!
//! ```text
//!              columns 0..16   16..32
//! rows  0..16      tmm0         tmm2      tmm6, tmm7   16 rows of A each
//! rows 16..32      tmm1         tmm3      tmm4, tmm5   16 columns of B each
//! ```
//!
//! A step is 64 bytes of each row of `A` and each column of `B`: 32 elements of 16 bits, or 64 of 8. In the panel
//! of `A` they lie row by row, so 16 rows are a tile register. In the panel of `B` there are 16 rows of 32
//! columns, of four bytes each: a tile register takes one half of every row.
//!
//! The driver multiplies one panel of `A`, which stays in L1, with the panels of `B` one after the other, which come from
//! L2: see [`tiles`](crate::ops::loops::tiles). Panels of `B` are loaded with `tileloaddt1`, which takes lines from L2 faster than
//! `tileloadd` (10 to 13 cycles of the tile unit's 16 instead of 18) and does not displace `A` from L1. The order of a step
//! is load `B`, load `A`, product, load `A`, product, load `B`, two products: two loads of `B` side by side cost 8 %.
//!
//! The sums of a tile stay in registers when the kernel returns. The next call stores them between the loads and products of its
//! first step, where storing costs little: to where they are kept until the next block of the depth, or to a buffer of 4 KiB
//! that stays in L1. From there each of its later steps brings two rows to `C`. Beside tile products one vector operation issues a
//! cycle, and two rows are 12 operations of the 64 cycles that a step takes. A last call without steps stores the last tile.
//!
//! A product of tiles takes the unit 16 cycles, its latency is 52, and products that are chained by one sum issue every 16 cycles
//! all the same. Measured on Granite Rapids, one thread, random numbers: 2590 GFLOP/s for this loop with
//! `A` in L1 and `B` in L2, 99 % of what products of registers reach.
//!
//! Tiles at the edges of `C` take as long as whole ones: with two sums instead of four they would need as many loads.

use core::arch::asm;

/// The configuration of tile registers (Intel SDM volume 1, section 18.3: palette 1).
#[repr(C, align(64))]
struct Config([u8; 64]);

/// Eight registers of 16 rows of 64 bytes.
static WHOLE: Config = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        (bytes[48 + tile], bytes[16 + 2 * tile]) = (16, 64);
        tile += 1;
    }
    Config(bytes)
};

/// The functions that are called before the first tile of a product, and after its last.
pub(crate) const AMX_ENTER_AND_LEAVE: [unsafe fn(); 2] = [enter, leave];

/// # Safety
/// AMX is there, with the operating system's permission.
unsafe fn enter() {
    // SAFETY: the caller's contract; reads 64 bytes.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &WHOLE, options(nostack, readonly, preserves_flags)) };
}

/// # Safety
/// AMX is there, and [`enter`] has been called.
unsafe fn leave() {
    // SAFETY: the caller's contract. Nobody else uses tiles.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
}

/// A kernel with this tile: what its sums are, and the instruction that multiplies two tiles and adds the product to a third.
///
/// | register | |
/// |---|---|
/// | `rdi` | `MicroArgs`; from the second step on, rows of the tile before that are still to be brought to `C` |
/// | `rax`, `rcx` | the panels |
/// | `rdx` | 64: bytes from row to row of a tile of `A`, and half of those from row to row of `B` and of the buffer |
/// | `r8` | the address to prefetch from |
/// | `r9` | steps that are left |
/// | `rsi` | where the sums of the tile before go |
/// | `r10` | in the first step, the sums that this tile begins with |
/// | `r10`, `r11` | the row of `C`, bytes to the next one |
/// | `zmm0`, `zmm1` | a row on its way to `C` |
/// | `zmm28`, `zmm29` | alpha, beta |
/// | `k1`, `k2` | columns that exist |
/// | `k3`, `k4` | those in which `C` is read: the same, or none if beta is 0 |
macro_rules! microkernel_32x32 {
    ($name:literal, sums: $sums:ident, multiply_add: $multiply_add:literal) => {
        gemm_kernel! {
            $name,
            concat!(".macro multiply_add sum, a, b\n", $multiply_add, " \\sum, \\a, \\b\n.endm"),
            r"
            // A step. In the first one, the sums of the tile before leave their registers, which become zeros or the
            // sums of this tile so far.
            .macro leave first, sum, at
                .if \first > 0
                tilestored [rsi + 2*rdx + \at], \sum
                .endif
                .if \first == 1
                tilezero \sum
                .elseif \first == 2
                tileloadd \sum, [r10 + 2*rdx + \at]
                .endif
            .endm
            .macro step first
                tileloaddt1 tmm4, [rcx + 2*rdx]
                tileloadd tmm6, [rax + rdx]
                leave \first, tmm0, 0
                multiply_add tmm0, tmm6, tmm4
                tileloadd tmm7, [rax + rdx + 1024]
                leave \first, tmm1, 2048
                multiply_add tmm1, tmm7, tmm4
                tileloaddt1 tmm5, [rcx + 2*rdx + 64]
                leave \first, tmm2, 64
                multiply_add tmm2, tmm6, tmm5
                leave \first, tmm3, 2112
                multiply_add tmm3, tmm7, tmm5
                add rax, 2048
                add rcx, 2048
            .endm

            // A row of the buffer comes to C: alpha A B + beta C. For integers alpha is 1, and beta 0 or 1.
            .macro store_row
                .if {sums} == {f32}
                vmulps zmm0, zmm28, [rsi]
                vmulps zmm1, zmm28, [rsi + 64]
                vfmadd231ps zmm0{{k3}}, zmm29, [r10]
                vfmadd231ps zmm1{{k4}}, zmm29, [r10 + 64]
                vmovups [r10]{{k1}}, zmm0
                vmovups [r10 + 64]{{k2}}, zmm1
                .else
                vmovdqu32 zmm0, [rsi]
                vmovdqu32 zmm1, [rsi + 64]
                vpaddd zmm0{{k3}}, zmm0, [r10]
                vpaddd zmm1{{k4}}, zmm1, [r10 + 64]
                vmovdqu32 [r10]{{k1}}, zmm0
                vmovdqu32 [r10 + 64]{{k2}}, zmm1
                .endif
                add rsi, 128
                add r10, r11
            .endm

            // Four lines that are read after this tile.
            .macro prefetch_lines
                prefetcht0 [r8]
                prefetcht0 [r8 + 64]
                prefetcht0 [r8 + 128]
                prefetcht0 [r8 + 192]
                add r8, 256
            .endm

            // PROLOGUE
            mov rax, [rdi + {a}]
            mov rcx, [rdi + {cols}]
            mov r8, [rdi + {next}]
            mov r9, [rdi + {steps}]
            mov rsi, [rdi + {tile}]
            mov r10, [rdi + {start}]
            mov edx, 1
            shl rdx, cl
            dec rdx
            kmovw k1, edx
            shr rdx, 16
            kmovw k2, edx
            vbroadcastss zmm28, [rdi + {alpha}]
            vbroadcastss zmm29, [rdi + {beta}]
            // A beta of zero of either sign.
            vpaddd zmm30, zmm29, zmm29
            vptestmd k5, zmm30, zmm30
            kandw k3, k1, k5
            kandw k4, k2, k5
            mov rcx, [rdi + {b}]
            mov edx, 64
            test r9, r9
            jz 6f
            // THE FIRST STEP.
            test r10, r10
            jz 1f
            step 2
            jmp 3f
        1:
            step 1
        3:
            prefetch_lines
            mov r10, [rdi + {c}]
            mov r11, [rdi + {ldc}]
            mov rdi, [rdi + {rows}]
            dec r9
            jz 7f
            // LOOP: steps with two rows of the tile before, as long as there are two.
            .p2align 5
        2:
            cmp rdi, 2
            jb 5f
            step 0
            store_row
            store_row
            prefetch_lines
            sub rdi, 2
            dec r9
            jnz 2b
            jmp 7f
        5:
            test rdi, rdi
            jz 4f
            store_row
            dec rdi
            // LOOP: steps alone, when no row is left. Behind rows there is an address that may be prefetched, too.
            .p2align 5
        4:
            step 0
            prefetch_lines
            prefetcht1 [r10]
            prefetcht1 [r10 + 64]
            add r10, 128
            dec r9
            jnz 4b
            jmp 7f
            // NO STEPS: the tile before is the last one.
        6:
            mov r10, [rdi + {c}]
            mov r11, [rdi + {ldc}]
            mov rdi, [rdi + {rows}]
            tilestored [rsi + 2*rdx], tmm0
            tilestored [rsi + 2*rdx + 2048], tmm1
            tilestored [rsi + 2*rdx + 64], tmm2
            tilestored [rsi + 2*rdx + 2112], tmm3
            // STORE: the rows that are left.
        7:
            test rdi, rdi
            jz 500f
        8:
            store_row
            dec rdi
            jnz 8b
        500:
            vzeroupper
            ret

            .irp name, multiply_add, leave, step, store_row, prefetch_lines
            .purgem \name
            .endr
            ";
            sums = const crate::asm::x86_64::$sums,
            f32 = const crate::asm::x86_64::F32,
        }
    };
}
