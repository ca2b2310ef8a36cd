// The emulator as GPUs of the family gfx11: v_wmma_f32_16x16x16_f16 and _bf16, for waves of 32 lanes (AMD, "RDNA3 Instruction Set Architecture",
// section 7.9). Every number is where AMD's matrix instruction calculator 1.3.2 (github.com/ROCm/amd_matrix_instruction_calculator) says for `rdna3`.
#define TILES_GFX11
#define PRODUCTS
static constexpr u32 LANES = 32;
struct Lanes {
    // Lanes 16 further have the same numbers.
    static u32 of(u32 m, u32) { return m; }
    static u32 number(u32 k) { return k; }
    static u32 row(u32 lane, u32 r) { return 2 * r + lane / 16; }
};
#include "products.h"
