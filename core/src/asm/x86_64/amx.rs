//! The 32x32 tile of AMX.
//!
//! ```text
//!              columns 0..16   16..32
//! rows  0..16      tmm0         tmm1      tmm4, tmm5   16 rows of A each
//! rows 16..32      tmm2         tmm3      tmm6, tmm7   16 columns of B each
//! ```
//!
//! A step is 64 bytes of each row of `A` and each column of `B`: 32 elements of 16 bits, or 64 of 8. In the panel
//! of `A` they lie row by row, so 16 rows are a tile register. In the panel of `B` there are 16 rows of 32
//! columns, of four bytes each: a tile register takes one half of every row.
//!
//! Each product takes the unit 16 cycles, each load of a register 8 of the load ports: a step is 64 cycles for the
//! products and 32 for the loads, besides them. A sum is needed again four products later, 64 cycles; the
//! latency is 52. Every register is loaded again as soon as its last product has it, one product or more before
//! its next use. Where the CPU renames tile registers, loads run ahead and the unit never waits. Where it did
//! not, a step would wait for most of one load (latency 45, of which 16 are covered): 93 cycles, 69 % of the peak.
//!
//! Besides the 1024 cycles of a block that is 16 steps deep, a tile costs the latencies of its first load and its
//! last product (100), four stores (64) and, where `C` is added to, 32 rows in vector registers (4.3 each): 300
//! if nothing of it overlaps with the next tile, so 77 % of the peak or more are to be expected, and 57 % if
//! registers were not renamed either. (Cycles of tiles: Intel's Optimization Reference Manual; of rows: llvm-mca,
//! whose models do not know tiles. Never measured.)
//!
//! Tiles at the edges of `C` take as long as whole ones: with two sums instead of four, each would wait for itself.

use core::arch::asm;

/// What tile registers are like (Intel SDM volume 1, section 18.3: palette 1).
#[repr(C, align(64))]
struct Config([u8; 64]);

impl Config {
    /// With so many rows of so many bytes in each register.
    const fn new(tiles: [(u8, u8); 8]) -> Self {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let mut tile = 0;
        while tile < 8 {
            (bytes[48 + tile], bytes[16 + 2 * tile]) = tiles[tile];
            tile += 1;
        }
        Self(bytes)
    }
}

static WHOLE: Config = Config::new([(16, 64); 8]);
/// Sums in 0 and 1; 32 columns of 16 rows of activations in 2 and 3, of weights in 4 and 5; 16 columns in 6 and 7.
static GROUPS: Config =
    Config::new([(16, 64), (16, 64), (16, 32), (16, 32), (8, 64), (8, 64), (16, 16), (4, 64)]);

/// What is done before the first tile of a product, and after its last.
pub(crate) const TILES: [unsafe fn(); 2] = [enter::<false>, leave];
/// The same for products of groups of columns.
pub(crate) const TILES_OF_GROUPS: [unsafe fn(); 2] = [enter::<true>, leave];

/// # Safety
/// AMX is there, with the operating system's permission.
unsafe fn enter<const OF_GROUPS: bool>() {
    let config = if OF_GROUPS { &GROUPS } else { &WHOLE };
    // SAFETY: the caller's contract; reads 64 bytes.
    unsafe { asm!("ldtilecfg [{}]", in(reg) config, options(nostack, readonly, preserves_flags)) };
}

/// # Safety
/// As [`enter`].
unsafe fn leave() {
    // SAFETY: the caller's contract. Nobody else uses tiles.
    unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
}

/// A row of the tile at `rsi` comes to `C`, for sums in f32: `C = alpha A B + beta C` in the columns `k1`, `k2`. `C` is
/// read in `k3`, `k4`: there, or nowhere if beta is 0.
macro_rules! store_32x32_f32 {
    () => {
        concat!(
            "vmulps zmm0, zmm28, [rsi]\n",
            "vmulps zmm1, zmm28, [rsi + 64]\n",
            "vfmadd231ps zmm0{{k3}}, zmm29, [rdx]\n",
            "vfmadd231ps zmm1{{k4}}, zmm29, [rdx + 64]\n",
            "vmovups [rdx]{{k1}}, zmm0\n",
            "vmovups [rdx + 64]{{k2}}, zmm1\n",
        )
    };
}

/// The same for sums in i32, where alpha is 1 and beta is 0 or 1.
macro_rules! store_32x32_i32 {
    () => {
        concat!(
            "vmovdqu32 zmm0, [rsi]\n",
            "vmovdqu32 zmm1, [rsi + 64]\n",
            "vpaddd zmm0{{k3}}, zmm0, [rdx]\n",
            "vpaddd zmm1{{k4}}, zmm1, [rdx + 64]\n",
            "vmovdqu32 [rdx]{{k1}}, zmm0\n",
            "vmovdqu32 [rdx + 64]{{k2}}, zmm1\n",
        )
    };
}

/// A kernel with this tile: `multiply_add` is the instruction, `store` the macro that brings a row to `C`.
///
/// | register | |
/// |---|---|
/// | `rdi` | `MicroArgs` |
/// | `rax`, `rcx` | the panels |
/// | `rdx`, `rsi` | bytes from row to row of a tile of `A`, of `B`; then C and the tile in memory |
/// | `r9` | steps |
/// | `r8` | what is read after this tile; then bytes from row to row of C |
/// | `r10` | rows |
macro_rules! microkernel_32x32 {
    ($name:literal, multiply_add: $mac:tt, store: $store:ident) => {
        microkernel! {
            $name,
            // PROLOGUE
            "mov rdx, [rdi + {c}]",
            "mov r8, [rdi + {ldc}]",
            "mov rcx, [rdi + {rows}]",
            "2:",
            "prefetcht1 [rdx]",
            "prefetcht1 [rdx + 64]",
            "prefetcht1 [rdx + 124]",
            "add rdx, r8",
            "dec rcx",
            "jnz 2b",
            "mov rax, [rdi + {a}]",
            "mov rcx, [rdi + {b}]",
            "mov r9, [rdi + {steps}]",
            "mov r8, [rdi + {next}]",
            "mov edx, 64",
            "mov esi, 128",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "tileloadd tmm4, [rax + rdx]",
            "tileloadd tmm6, [rcx + rsi]",
            "tileloadd tmm7, [rcx + rsi + 64]",
            "tileloadd tmm5, [rax + rdx + 1024]",
            "dec r9",
            "jz 5f",
            // LOOP: a step, and the loads of the next one.
            ".p2align 5",
            "4:",
            "prefetcht1 [r8]",
            "add r8, 64",
            "add rax, 2048",
            "add rcx, 2048",
            concat!($mac, " tmm0, tmm4, tmm6"),
            concat!($mac, " tmm1, tmm4, tmm7"),
            "tileloadd tmm4, [rax + rdx]",
            concat!($mac, " tmm2, tmm5, tmm6"),
            "tileloadd tmm6, [rcx + rsi]",
            concat!($mac, " tmm3, tmm5, tmm7"),
            "tileloadd tmm7, [rcx + rsi + 64]",
            "tileloadd tmm5, [rax + rdx + 1024]",
            "dec r9",
            "jnz 4b",
            // TAIL: the last step.
            "5:",
            concat!($mac, " tmm0, tmm4, tmm6"),
            concat!($mac, " tmm1, tmm4, tmm7"),
            concat!($mac, " tmm2, tmm5, tmm6"),
            concat!($mac, " tmm3, tmm5, tmm7"),
            // STORE
            "mov rdx, [rdi + {c}]",
            "mov r8, [rdi + {ldc}]",
            "mov r10, [rdi + {rows}]",
            "mov rcx, [rdi + {cols}]",
            "mov eax, [rdi + {beta}]",
            "cmp dword ptr [rdi + {alpha}], 0x3f800000",
            "jne 6f",
            // Zero of either sign.
            "lea r9d, [rax + rax]",
            "test r9d, r9d",
            "jnz 6f",
            "cmp rcx, 32",
            "jne 6f",
            "cmp r10, 32",
            "jne 6f",
            "mov r9, r8",
            "shl r9, 4",
            "tilestored [rdx + r8], tmm0",
            "tilestored [rdx + r8 + 64], tmm1",
            "add rdx, r9",
            "tilestored [rdx + r8], tmm2",
            "tilestored [rdx + r8 + 64], tmm3",
            "jmp 500f",
            "6:",
            "mov rsi, [rdi + {tile}]",
            "mov r9d, 128",
            "tilestored [rsi + r9], tmm0",
            "tilestored [rsi + r9 + 64], tmm1",
            "tilestored [rsi + r9 + 2048], tmm2",
            "tilestored [rsi + r9 + 2112], tmm3",
            "mov r9d, 1",
            "shl r9, cl",
            "dec r9",
            "kmovw k1, r9d",
            "shr r9, 16",
            "kmovw k2, r9d",
            "vbroadcastss zmm28, [rdi + {alpha}]",
            "vbroadcastss zmm29, [rdi + {beta}]",
            "vpaddd zmm30, zmm29, zmm29",
            "vptestmd k5, zmm30, zmm30",
            "kandw k3, k1, k5",
            "kandw k4, k2, k5",
            "7:",
            $store!(),
            "add rsi, 128",
            "add rdx, r8",
            "dec r10",
            "jnz 7b",
            "500:",
            "vzeroupper",
            "ret";
            a = const core::mem::offset_of!(crate::asm::abi::MicroArgs, a),
            b = const core::mem::offset_of!(crate::asm::abi::MicroArgs, b),
            c = const core::mem::offset_of!(crate::asm::abi::MicroArgs, c),
            steps = const core::mem::offset_of!(crate::asm::abi::MicroArgs, steps),
            ldc = const core::mem::offset_of!(crate::asm::abi::MicroArgs, ldc),
            rows = const core::mem::offset_of!(crate::asm::abi::MicroArgs, rows),
            cols = const core::mem::offset_of!(crate::asm::abi::MicroArgs, cols),
            alpha = const core::mem::offset_of!(crate::asm::abi::MicroArgs, alpha),
            beta = const core::mem::offset_of!(crate::asm::abi::MicroArgs, beta),
            next = const core::mem::offset_of!(crate::asm::abi::MicroArgs, next),
            tile = const core::mem::offset_of!(crate::asm::abi::MicroArgs, tile),
        }
    };
}
