// The emulator as GPUs of the family gfx9 whose waves have 64 lanes: v_mfma_f32_16x16x16_f16 and _bf16 (AMD, "Instinct MI200 Instruction Set
// Architecture" and "AMD Instinct MI300 Instruction Set Architecture", chapter 7). Every number is where AMD's matrix instruction calculator 1.3.2
// (github.com/ROCm/amd_matrix_instruction_calculator) says for `cdna2` and `cdna3`.
#define TILES_GFX9
#define PRODUCTS
static constexpr u32 LANES = 64;
struct Lanes {
    static u32 of(u32 m, u32 k) { return m + k / 4 * 16; }
    static u32 number(u32 k) { return k % 4; }
    static u32 row(u32 lane, u32 r) { return lane / 16 * 4 + r; }
};
#include "products.h"
