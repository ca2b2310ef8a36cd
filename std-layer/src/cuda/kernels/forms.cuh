// Rows of activations in the forms that products take them in: written by whoever computes them.
#pragma once

#include "simt.cuh"

// What 32 activations have beside their integers: a scale, and the sums of the first and last 16 integers.
struct Group {
    f32 scale;
    i32 sums;
};

// Where rows go; what is not wanted is null.
struct Forms {
    // As they are.
    f32* rows;
    // In 16 bits, of the type `half_type`.
    void* half;
    // In integers of 8 bits, as `quantize_q8` makes them.
    i8* codes;
    Group* groups;
    // In f32 as `arrange_f32` makes them, and behind all rows the sums of 16 each.
    f32* exact;
    f32* sums;
    u32 half_type, cols;
};

// In 16 bits; what is too large for f16 becomes its largest number, as a product with an infinity says nothing any more.
DEVICE f32 within_half(f32 x, u32 type) {
    if (type != TYPE_F16 || x != x) return x;
    return most(-65504.0f, least(65504.0f, x));
}

// Calls `each(first)` for columns `first` to `first + 3` of a row, which the threads of all blocks along y share: lanes of a warp are at neighbouring
// columns, and all of them come, also those beyond the row.
template <class F> DEVICE void each_four(u32 cols, F each) {
    for (u32 base = (block_y() * threads() + warp() * WARP) * 4; base < cols; base += grid_y() * threads() * 4) each(base + lane() * 4);
}

// Writes four neighbouring numbers of a row. All lanes of a warp call it, as in `each_four`; rows are whole groups of 32 where there
// are integers or sums.
DEVICE void put4(const Forms& f, u32 row, u32 at, f32 (&v)[4]) {
    const bool in = at < f.cols;
    const u64 to = static_cast<u64>(row) * f.cols + at;
    if (!in) v[0] = v[1] = v[2] = v[3] = 0;
    if (f.rows && in) store_pack(f.rows + to, v);
    if (f.half && in) {
        const f32 narrow[4] = {within_half(v[0], f.half_type), within_half(v[1], f.half_type), within_half(v[2], f.half_type), within_half(v[3], f.half_type)};
        store4_as(f.half, to, narrow, f.half_type);
    }
    if (f.codes) {
        // 32 numbers lie in eight lanes.
        f32 top = 0, bad = 0;
        for (u32 i = 0; i < 4; i++) top = most(top, fabsf(v[i])), bad = most(bad, fabsf(v[i]) <= 3.402823466e38f ? 0.0f : 1.0f);
        for (u32 m = 1; m < 8; m *= 2) top = most(top, shuffle_xor(top, m)), bad = most(bad, shuffle_xor(bad, m));
        u32 word = 0;
        i32 sum = 0;
        for (u32 i = 0; i < 4; i++) {
            const i32 q = top > 0 && bad == 0 ? static_cast<i32>(rintf(v[i] / top * 127)) : 0;
            word |= static_cast<u32>(q & 255) << 8 * i;
            sum += q;
        }
        for (u32 m = 1; m < 4; m *= 2) sum += static_cast<i32>(shuffle_xor(static_cast<u32>(sum), m));
        const i32 other = static_cast<i32>(shuffle_xor(static_cast<u32>(sum), 4));
        if (in) {
            *reinterpret_cast<u32*>(f.codes + to) = word;
            if (lane() % 8 == 0) f.groups[to / 32] = {bad > 0 ? from_bits(0x7fc00000) : top / 127, (sum & 0xffff) | static_cast<i32>(static_cast<u32>(other) << 16)};
        }
    }
    if (f.exact) {
        const u64 job = static_cast<u64>(row) * div_up(f.cols, 1024) + at / 1024;
        const u32 of = at % 1024 / 32, word = at % 32 / 4;
        f32 sum = v[0] + v[1] + v[2] + v[3];
        for (u32 m = 1; m < 4; m *= 2) sum += shuffle_xor(sum, m);
        if (in) {
            store_pack(f.exact + job * 1024 + word * 128 + of * 4, v);
            if (lane() % 4 == 0) f.sums[job * 64 + of * 2 + word / 4] = sum;
        }
    }
}
