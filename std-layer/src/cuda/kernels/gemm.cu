// Matrix products with weights as they are, and in blocks.
#include "formats.cuh"
#include "gemm.cuh"
#include "gemm_f32.cuh"

// Dense weights: as they are, two pieces ahead.
template <class T, class Tiles> struct Dense {
    const GemmArgs& a;
    const T* w;
    struct Held {};

    DEVICE Dense(const GemmArgs& a, const Segment& own) : a(a), w(static_cast<const T*>(a.w) + static_cast<u64>(own.matrix) * a.n * a.k) {}
    DEVICE void copy(T* to, u32 k) { fetch<Tiles, Tiles::COLUMNS>(to, w, block_y() * Tiles::COLUMNS, a.n, k, a.k); }
    DEVICE void begin(Held&, u32) {}
    DEVICE void end(const Held&, T*) {}
};

// Weights in blocks, one piece ahead: a thread has 32 of a row, in registers while the piece before them is multiplied.
template <class T, class Tiles, class F> struct Blocks {
    static constexpr u32 PER = F::LEN / 32, GROUPS = 32 / F::GROUP;
    const GemmArgs& a;
    const u8* w;
    struct Held {
        u32 codes[8];
        f32 scale[GROUPS], offset[GROUPS];
    };

    DEVICE Blocks(const GemmArgs& a, const Segment& own) : a(a), w(static_cast<const u8*>(a.w) + own.matrix * (a.n * a.row_bytes)) {}
    DEVICE void copy(T*, u32) {}
    DEVICE void begin(Held& held, u32 k) {
        const u32 row = block_y() * Tiles::COLUMNS + thread(), part = k / 32;
        const bool there = row < a.n && part < a.k / 32;
        if (there) {
            const u8* b = w + row * a.row_bytes + static_cast<u64>(part / PER) * F::BYTES;
            F::codes(b, part % PER, held.codes);
#pragma unroll
            for (u32 g = 0; g < GROUPS; g++) {
                held.scale[g] = F::scale(b, part % PER * GROUPS + g);
                held.offset[g] = F::OFFSETS ? F::offset(b, part % PER * GROUPS + g) : 0;
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < 8; i++) held.codes[i] = 0;
            for (u32 g = 0; g < GROUPS; g++) held.scale[g] = held.offset[g] = 0;
        }
    }

    // To the row of the thread.
    DEVICE void end(const Held& held, T* to) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            Pack<T> eight;
#pragma unroll
            for (u32 j = 0; j < 8; j += 4) {
                const u32 g = (8 * i + j) / F::GROUP;
                f32 v[4];
                weights_of<F>(held.codes[2 * i + j / 4], held.scale[g], held.offset[g], v);
                eight.quad.w[j / 2] = narrow2(v[0], v[1], T()), eight.quad.w[j / 2 + 1] = narrow2(v[2], v[3], T());
            }
            store16(to + Tiles::slot(thread(), i), eight.quad);
        }
    }
};

template <class T, class W, class Tiles> DEVICE void product(const GemmArgs& a, Tiles tiles) {
    const Segment own = segment_of(a.segments, block_x(), Tiles::ROWS, a.m);
    if (own.first < own.end) gemm<T>(a, own, W(a, own), tiles);
}
template <class T> struct OfDense {
    const GemmArgs& a;
    template <class Tiles> DEVICE void operator()(Tiles tiles) const { product<T, Dense<T, Tiles>>(a, tiles); }
};

template <class T, class F> struct OfBlocks {
    const GemmArgs& a;
    template <class Tiles> DEVICE void operator()(Tiles tiles) const { product<T, Blocks<T, Tiles, F>>(a, tiles); }
};

KERNEL(gemm_f32, GemmArgs, Single::THREADS) {
    const Segment own = segment_of(a.segments, block_x(), Single::ROWS, a.m);
    if (own.first < own.end) gemm(a, own, Single());
}
KERNEL(gemm_f16, GemmArgs, MOST_THREADS) { with_tiles(OfDense<f16>{a}); }
KERNEL(gemm_bf16, GemmArgs, MOST_THREADS) { with_tiles(OfDense<bf16>{a}); }
// Reads weights before inputs are there, unless it stands in a table which they are: that is an input.
template <class Tiles, class F> DEVICE void few(const GemmArgs& a, F run) {
    if (a.segments) wait_for_inputs();
    with_few_tiles<Tiles>(run);
}
KERNEL_EARLY(gemm_few_f16, GemmArgs, MOST_FEW_THREADS) { few<FewDense>(a, OfDense<f16>{a}); }
KERNEL_EARLY(gemm_few_bf16, GemmArgs, MOST_FEW_THREADS) { few<FewDense>(a, OfDense<bf16>{a}); }

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
#pragma unroll 4
        for (u32 p = 1; p < a.count; p++) sum += a.parts[p * a.n + i];
        store_as(a.y, i, sum, a.type);
    }
}

#define QGEMM(NAME, F)                                                                          \
    KERNEL(qgemm_f16_##NAME, GemmArgs, Many::THREADS) { OfBlocks<f16, F>{a}(Many()); }           \
    KERNEL(qgemm_bf16_##NAME, GemmArgs, WideBlocks::THREADS) { with_block_tiles(OfBlocks<bf16, F>{a}); } \
    KERNEL_EARLY(qgemm_few_bf16_##NAME, GemmArgs, MOST_FEW_THREADS) { few<FewBlocks>(a, OfBlocks<bf16, F>{a}); }
EACH_FORMAT(QGEMM)
