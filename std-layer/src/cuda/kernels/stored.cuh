// What stored keys and values are multiplied as on tensor cores.
#pragma once

#include "simt.cuh"

// FP8 E4M3 with a scale for each array; the largest number is 448, above it there is NaN alone.
struct e4m3 { u8 bits; };

// Two E4M3, bytes 0 and 1 or 2 and 3 of a word, as f16, and how many times smaller they are then.
#if __CUDA_ARCH__ >= 890
static constexpr f32 E4M3_SMALLER = 1;
template <bool HIGH> DEVICE u32 widen(u32 w) {
    u32 wide;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide) : "h"(static_cast<u16>(HIGH ? w >> 16 : w)));
    return wide;
}
#else
// The same bits where an exponent means 2^-8 of what it meant.
static constexpr f32 E4M3_SMALLER = 256;
template <bool HIGH> DEVICE u32 widen(u32 w) {
    const u32 two = permute(w, 0, HIGH ? 0x3424 : 0x1404);
    u32 wide = (two & 0x80008000) | (two >> 1 & 0x3f803f80);
    if ((two & 0x7f00) == 0x7f00) wide |= 0x7fff;
    if ((two & 0x7f000000) == 0x7f000000) wide |= 0x7fff0000;
    return wide;
}
#endif

template <class C> struct Stored;
template <> struct Stored<f16> { typedef f16 Number; static constexpr u32 TYPE = TYPE_F16; static constexpr f32 SMALLER = 1; };
template <> struct Stored<bf16> { typedef bf16 Number; static constexpr u32 TYPE = TYPE_BF16; static constexpr f32 SMALLER = 1; };
template <> struct Stored<e4m3> { typedef f16 Number; static constexpr u32 TYPE = TYPE_F16; static constexpr f32 SMALLER = E4M3_SMALLER; };
