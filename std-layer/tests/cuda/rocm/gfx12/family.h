// The emulator as GPUs of the family gfx12: v_wmma_f32_16x16x16_f16 and _bf16, for waves of 32 lanes (AMD, "RDNA4 Instruction Set Architecture",
// section 7.12). Every number is where AMD's matrix instruction calculator 1.3.2 (github.com/ROCm/amd_matrix_instruction_calculator) says for `rdna4`:
// lanes 16 further have columns 4 to 7 and 12 to 15 of their rows. Kernels give a lane eight neighbouring columns, of both operands. That is the
// same product, with columns in another order.
#define TILES_GFX12
#define PRODUCTS
static constexpr u32 LANES = 32;
struct Lanes {
    static u32 of(u32 m, u32 k) { return m + k / 4 % 2 * 16; }
    static u32 number(u32 k) { return k / 8 * 4 + k % 4; }
    static u32 row(u32 lane, u32 r) { return lane / 16 * 8 + r; }
};
#include "products.h"
