// The emulator as GPUs of the family gfx9 whose waves have 64 lanes: v_mfma_f32_16x16x16_f16 (AMD, "Instinct MI200 Instruction Set
// Architecture", chapter 7, and the lanes as AMD's matrix instruction calculator prints them).
#define TILES_GFX9
#define PRODUCTS
static constexpr u32 LANES = 64;
struct Lanes {
    static u32 of(u32 m, u32 k) { return m + k / 4 * 16; }
    static u32 number(u32 k) { return k % 4; }
    static u32 row(u32 lane, u32 r) { return lane / 16 * 4 + r; }
};
#include "products.h"
