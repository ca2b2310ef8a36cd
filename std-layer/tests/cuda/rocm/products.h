// Waves, and products of tiles, on the emulator: where a family's lanes hold numbers of the operands (`Lanes::of`, `Lanes::number`; both
// operands are alike), and of the result (`Lanes::row`; the column is the lane's number modulo 16).
#pragma once

DEVICE u32 from_wave(u32 v, u32 lane) { return emu::exchange_wave(LANES, &v, 1)[lane % LANES]; }

#ifdef PRODUCTS
DEVICE constexpr bool has_products() { return true; }
template <class Tile> DEVICE void product(f32 (&d)[256 / LANES], const Tile& a, const Tile& b) {
    static constexpr u32 NUMBERS = sizeof(Tile) / 2;
    Tile mine[2] = {a, b};
    const Tile(*all)[2] = reinterpret_cast<const Tile(*)[2]>(emu::exchange_wave(LANES, mine[0].w, NUMBERS));
    const u32 me = emu::current % LANES;
    // Of 16 numbers a lane has all or a part; in the first case, other lanes have the same ones.
    for (u32 i = 0; i < NUMBERS / 2 * (NUMBERS == 16); i++)
        if (all[me][0].w[i] != all[me % 16][0].w[i] || all[me][1].w[i] != all[me % 16][1].w[i]) emu::fail("halves of a wave with different tiles");
    f32 right[16];
    for (u32 k = 0; k < 16; k++) right[k] = to_f32(all[Lanes::of(me % 16, k)][1].at[Lanes::number(k)]);
    for (u32 r = 0; r < 256 / LANES; r++)
        for (u32 k = 0; k < 16; k++) d[r] += to_f32(all[Lanes::of(Lanes::row(me, r), k)][0].at[Lanes::number(k)]) * right[k];
}
#else
DEVICE constexpr bool has_products() { return false; }
template <class Tile> DEVICE void product(f32 (&)[256 / LANES], const Tile&, const Tile&) {}
#endif
