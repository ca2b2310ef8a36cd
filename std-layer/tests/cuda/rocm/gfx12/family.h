// The emulator as GPUs of the family gfx12: v_wmma_f32_16x16x16_f16, for waves of 32 lanes (AMD, "RDNA4 Instruction Set Architecture", section 7.12).
#define TILES_GFX12
#define PRODUCTS
static constexpr u32 LANES = 32;
struct Lanes {
    static u32 of(u32 m, u32 k) { return m + k / 8 * 16; }
    static u32 number(u32 k) { return k % 8; }
    static u32 row(u32 lane, u32 r) { return lane / 16 * 8 + r; }
};
#include "products.h"
