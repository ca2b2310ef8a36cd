// Waves, and products of tiles, on the emulator: where a family's lanes hold numbers of the operands (`Lanes::of`, `Lanes::number`; both
// operands are alike), and of the result (`Lanes::row`; the column is the lane's number modulo 16).
#pragma once

DEVICE u32 from_wave(u32 v, u32 lane) { return emu::exchange_wave(LANES, &v, 1)[lane % LANES]; }

#ifdef PRODUCTS
DEVICE constexpr bool has_products() { return true; }
template <class Tile> DEVICE void product(f32 (&d)[256 / LANES], const Tile& a, const Tile& b) {
    // Of 16 numbers a lane has all or a part; in the first case, other lanes have the same ones. Each lane widens its own, once.
    static constexpr u32 NUMBERS = sizeof(Tile) / 2;
    f32 mine[2][NUMBERS];
    for (u32 i = 0; i < NUMBERS; i++) mine[0][i] = to_f32(a.at[i]), mine[1][i] = to_f32(b.at[i]);
    const f32(*all)[2][NUMBERS] = reinterpret_cast<const f32(*)[2][NUMBERS]>(emu::exchange_wave(LANES, reinterpret_cast<const u32*>(mine), 2 * NUMBERS));
    const u32 me = emu::current % LANES;
    if (NUMBERS == 16 && memcmp(all[me], all[me % 16], sizeof mine)) emu::fail("halves of a wave with different tiles");
    f32 right[16];
    for (u32 k = 0; k < 16; k++) right[k] = all[Lanes::of(me % 16, k)][1][Lanes::number(k)];
    for (u32 k = 0; k < 16; k++)
        for (u32 r = 0; r < 256 / LANES; r++) d[r] += all[Lanes::of(Lanes::row(me, r), k)][0][Lanes::number(k)] * right[k];
}
#else
DEVICE constexpr bool has_products() { return false; }
template <class Tile> DEVICE void product(f32 (&)[256 / LANES], const Tile&, const Tile&) {}
#endif
