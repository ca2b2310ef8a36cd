// Matrix products with weights as they are, and in blocks.
#include "formats.cuh"
#include "gemm.cuh"

// Dense weights: as they are, two pieces ahead.
template <class T> struct Dense {
    const GemmArgs& a;
    const T* w;

    DEVICE Dense(const GemmArgs& a, u32 matrix) : a(a), w(static_cast<const T*>(a.w) + static_cast<u64>(matrix) * a.n * a.k) {}
    DEVICE void copy(T* to, u32 k) { fetch(to, w, BN, block_y() * BN, a.n, k, a.k); }
    DEVICE void begin(u32) {}
    DEVICE void end(T*) {}
};

// Weights in blocks, one piece ahead: a thread has those of a row, in registers while the piece before them is multiplied.
template <class T, class F> struct Blocks {
    static constexpr u32 PER = F::LEN / 32, GROUPS = 32 / F::GROUP;
    const GemmArgs& a;
    const u8* w;
    u32 codes[8];
    f32 scale[GROUPS], offset[GROUPS];

    DEVICE Blocks(const GemmArgs& a, u32 matrix) : a(a), w(static_cast<const u8*>(a.w) + matrix * (a.n * a.row_bytes)) {}
    DEVICE void copy(T*, u32) {}
    DEVICE void begin(u32 k) {
        const u32 row = block_y() * BN + thread(), part = k / 32;
        const bool there = row < a.n && part < a.k / 32;
        if (there) {
            const u8* b = w + row * a.row_bytes + static_cast<u64>(part / PER) * F::BYTES;
            F::codes(b, part % PER, codes);
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                scale[g] = F::scale(b, part % PER * GROUPS + g);
                offset[g] = F::OFFSETS ? F::offset(b, part % PER * GROUPS + g) : 0;
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < 8; i++) codes[i] = (F::ZERO & 255) * 0x01010101u;
            for (u32 g = 0; g < GROUPS; g++) scale[g] = offset[g] = 0;
        }
    }

    DEVICE void end(T* to) {
        T* at = to + thread() * PITCH;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            Pack<T> eight;
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                const u32 c = codes[2 * i + j / 4] ^ 0x80808080, g = (8 * i + j) / F::GROUP;
                // In a mantissa, less 2^23 and what makes codes unsigned.
                const f32 code = from_bits(permute(c, 0x4b000000, 0x7650 | j % 4)) - static_cast<f32>(8388608 + 128 + F::ZERO);
                const f32 w = mul_rn(code, scale[g]);
                eight.at[j] = from_f32<T>(F::OFFSETS ? add_rn(w, offset[g]) : w);
            }
            store16(at + 8 * i, eight.quad);
        }
    }
};

template <class T, u32 ROWS, class W> DEVICE void product(const GemmArgs& a) {
    const Segment own = segment_of(a.segments, block_x(), ROWS, a.m);
    if (own.first < own.end) gemm<T, ROWS>(a, own, W(a, own.matrix));
}

KERNEL(gemm_f16, GemmArgs, 128) { product<f16, MANY, Dense<f16>>(a); }
KERNEL(gemm_bf16, GemmArgs, 128) { product<bf16, MANY, Dense<bf16>>(a); }
KERNEL(gemm_few_f16, GemmArgs, 128) { product<f16, FEW, Dense<f16>>(a); }
KERNEL(gemm_few_bf16, GemmArgs, 128) { product<bf16, FEW, Dense<bf16>>(a); }

struct GemmJoinArgs {
    const f32* parts;
    void* y;
    u64 n;
    u32 count, type;
};

// What parts of the columns give, added in order: `count` times `n` numbers.
KERNEL(gemm_join, GemmJoinArgs, 256) {
    for (u64 i = static_cast<u64>(block_x()) * threads() + thread(); i < a.n; i += static_cast<u64>(grid_x()) * threads()) {
        f32 sum = a.parts[i];
        for (u32 p = 1; p < a.count; p++) sum += a.parts[p * a.n + i];
        store_as(a.y, i, sum, a.type);
    }
}

#define QGEMM(NAME, F)                                                                        \
    KERNEL(qgemm_f16_##NAME, GemmArgs, 128) { product<f16, MANY, Blocks<f16, F>>(a); }        \
    KERNEL(qgemm_bf16_##NAME, GemmArgs, 128) { product<bf16, MANY, Blocks<bf16, F>>(a); }     \
    KERNEL(qgemm_few_bf16_##NAME, GemmArgs, 128) { product<bf16, FEW, Blocks<bf16, F>>(a); }
EACH_FORMAT(QGEMM)
