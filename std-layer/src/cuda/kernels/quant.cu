// Weights in blocks: decoding, and activations prepared for products with them.
#include "formats.cuh"

struct DequantArgs {
    const u8* w;
    // Which rows; all of them, in order, without.
    const u32* ids;
    void* y;
    u64 row_bytes;
    u32 rows, cols, out_rows, type;
};

// A warp decodes 32 parts of 32 weights and writes them side by side.
template <class F> DEVICE void dequant(const DequantArgs& a) {
    constexpr u32 GROUPS = 32 / F::GROUP, ROOM = 1024 + 2 * 4 * 32 * GROUPS;
    u8* room = shared<u8>() + warp() * ROOM;
    f32 *scales = reinterpret_cast<f32*>(room + 1024), *offsets = scales + 32 * GROUPS;
    const u32 parts = a.cols / 32, chunks = div_up(parts, 32);
    const u64 jobs = static_cast<u64>(a.out_rows) * chunks;
    for (u64 job = static_cast<u64>(block_x()) * (threads() / 32) + warp(); job < jobs; job += static_cast<u64>(grid_x()) * (threads() / 32)) {
        const u32 row = static_cast<u32>(job / chunks), chunk = static_cast<u32>(job % chunks);
        const u32 from = a.ids ? a.ids[row] : row, part = chunk * 32 + lane();
        const bool known = from < a.rows;
        if (part < parts && known) {
            constexpr u32 PER = F::LEN / 32;
            const u8* b = a.w + from * a.row_bytes + static_cast<u64>(part / PER) * F::BYTES;
            u32 c[8];
            F::codes(b, part % PER, c);
#pragma unroll
            // Codes of a part rotated among its eight words, so that lanes meet different banks.
            for (u32 i = 0; i < 8; i++) reinterpret_cast<u32*>(room)[lane() * 8 + (i + lane() / 4) % 8] = c[i];
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                scales[lane() * GROUPS + g] = F::scale(b, part % PER * GROUPS + g);
                if (F::OFFSETS) offsets[lane() * GROUPS + g] = F::offset(b, part % PER * GROUPS + g);
            }
        }
        sync_warp();
        const u64 out = static_cast<u64>(row) * a.cols + chunk * 1024;
        const u32 n = least(1024u, a.cols - chunk * 1024);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            const u32 at = i * 128 + lane() * 4, of = at / 32;
            if (at >= n) break;
            const u32 c = reinterpret_cast<const u32*>(room)[of * 8 + (at / 4 % 8 + of / 4) % 8], g = at / F::GROUP;
            f32 v[4];
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                v[k] = mul_rn(Code<F>::number(c, k) - Code<F>::MORE, scales[g]);
                if (F::OFFSETS) v[k] = add_rn(v[k], offsets[g]);
                if (!known) v[k] = from_bits(0x7fc00000);
            }
            store4_as(a.y, out + at, v, a.type);
        }
        sync_warp();
    }
}

#define DEQUANT(NAME, F) KERNEL(dequant_##NAME, DequantArgs, 256) { dequant<F>(a); }
EACH_FORMAT(DEQUANT)

// What 32 activations have beside their integers: a scale, and the sums of the first and last 16 integers.
struct Group {
    f32 scale;
    i32 sums;
};
struct PrepareArgs {
    const void* x;
    i8* codes;
    Group* groups;
    f32* exact;
    u32 cols, rows, type;
};

// Integers of 8 bits with a scale for each 32, |x| largest / 127. A warp takes 32 activations.
KERNEL(quantize_q8, PrepareArgs, 256) {
    const u32 groups = a.cols / 32;
    const u64 jobs = static_cast<u64>(groups) * a.rows;
    for (u64 job = static_cast<u64>(block_x()) * (threads() / 32) + warp(); job < jobs; job += static_cast<u64>(grid_x()) * (threads() / 32)) {
        const f32 x = load_as(a.x, job * 32 + lane(), a.type);
        const f32 top = warp_reduce<Max>(fabsf(x));
        // A NaN or an infinity spoils its group, as it spoils every sum it is part of.
        const bool finite = fabsf(x) <= 3.402823466e38f;
        const f32 bad = warp_reduce<Max>(finite ? 0 : 1);
        const i32 q = top > 0 && bad == 0 ? static_cast<i32>(rintf(x / top * 127)) : 0;
        a.codes[job * 32 + lane()] = static_cast<i8>(q);
        f32 sum = static_cast<f32>(q);
        for (u32 m = 8; m > 0; m /= 2) sum += shuffle_xor(sum, m);
        const f32 other = shuffle_xor(sum, 16);
        if (lane() == 0) {
            const i32 s0 = static_cast<i32>(sum), s1 = static_cast<i32>(other);
            a.groups[job] = {bad > 0 ? from_bits(0x7fc00000) : top / 127, (s0 & 0xffff) | static_cast<i32>(static_cast<u32>(s1) << 16)};
        }
    }
}

// As they are, in f32: of 1024, those with equal number / 4 % 8 side by side, as lanes that hold 32 each read them; filled up with
// zeros. Behind all rows the sums of 16 of each.
KERNEL(arrange_f32, PrepareArgs, 256) {
    const u32 chunks = div_up(a.cols, 1024);
    const u64 jobs = static_cast<u64>(chunks) * a.rows;
    for (u64 job = static_cast<u64>(block_x()) * (threads() / 32) + warp(); job < jobs; job += static_cast<u64>(grid_x()) * (threads() / 32)) {
        const u32 row = static_cast<u32>(job / chunks), first = static_cast<u32>(job % chunks) * 1024 + lane() * 32;
        f32 sums[2] = {0, 0};
        for (u32 i = 0; i < 8; i++) {
            Pack<f32> four;
            for (u32 k = 0; k < 4; k++) {
                const u32 at = first + 4 * i + k;
                four.at[k] = at < a.cols ? load_as(a.x, static_cast<u64>(row) * a.cols + at, a.type) : 0;
                sums[i / 4] += four.at[k];
            }
            store16(a.exact + job * 1024 + i * 128 + lane() * 4, four.quad);
        }
        f32* behind = a.exact + static_cast<u64>(a.rows) * chunks * 1024 + job * 64 + lane() * 2;
        behind[0] = sums[0], behind[1] = sums[1];
    }
}
