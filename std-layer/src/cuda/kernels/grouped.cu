// Integers with a scale and a zero point for each group of inputs, inputs as rows: AWQ and GPTQ.
// w[n][k] = (q[k][n] - z[g(k)][n]) * s[g(k)][n].
#include "gemm.cuh"

struct GroupedArgs {
    const u32* words;
    const u32* zeros;
    const f16* scales;
    // Group of each input, at most the last one; k / group without.
    const u32* order;
    const void* x;
    void* y;
    u32 outputs, inputs, group, batch, type;
    // What is added to stored zero points, modulo 2^BITS.
    u32 plus;
    u32 groups;
};

// 256 + integer `at` of those in whole words: it goes to the upper bits of a mantissa.
template <u32 BITS> DEVICE f32 behind_256(const u32 (&words)[BITS], u32 at) {
    const u32 bit = at * BITS % 32, low = words[at * BITS / 32], high = words[least(at * BITS / 32 + 1, BITS - 1)];
    const u32 moved = bit < 15 ? funnel(low, low, bit + 17) : funnel(low, high, bit - 15);
    return from_bits(0x43800000 | (moved & ((1u << BITS) - 1) << 15));
}

// Where integers lie. For `gemv` a lane has 32 of them, in whole words: of WIDE neighbouring outputs those of 32 / WIDE inputs; `place` says which of the 32
// is that of input k and output n of these.
// GPTQ: each column of words is a string of bits; so are the zero points of a row.
template <u32 WIDTH> struct Gptq {
    static constexpr u32 BITS = WIDTH, WIDE = 1;
    static constexpr u32 MASK = (1u << BITS) - 1;
    static DEVICE u32 string(const u32* w, u64 stride, u32 at) {
        const u32 bit = at * BITS % 32;
        const u32 low = w[static_cast<u64>(at) * BITS / 32 * stride];
        // With 3 bits some reach into the next word.
        const u32 high = 32 % BITS != 0 && bit + BITS > 32 ? w[(static_cast<u64>(at) * BITS / 32 + 1) * stride] : 0;
        return funnel(low, high, bit) & MASK;
    }
    static DEVICE u32 integer(const GroupedArgs& a, u32 k, u32 n) { return string(a.words + n, a.outputs, k); }
    // Those of 32 inputs as a string of bits.
    static DEVICE void integers(const GroupedArgs& a, u32 k, u32 n, u32 (&words)[BITS]) {
#pragma unroll
        for (u32 i = 0; i < BITS; i++) words[i] = a.words[static_cast<u64>(k / 32 * BITS + i) * a.outputs + n];
    }
    static DEVICE void whole(const GroupedArgs& a, u32 k, u32 n, u32 (&words)[BITS]) { integers(a, k, n, words); }
    static DEVICE u32 place(u32 k, u32) { return k; }
    static DEVICE u32 zero(const GroupedArgs& a, u32 g, u32 n) {
        return (string(a.zeros + static_cast<u64>(g) * (static_cast<u64>(a.outputs) * BITS / 32), 1, n) + a.plus) & MASK;
    }
};
// AWQ: eight outputs in a word, in the order 0, 2, 4, 6, 1, 3, 5, 7.
struct Awq {
    static constexpr u32 BITS = 4, WIDE = 8;
    static DEVICE u32 digit(u32 n) { return n % 2 * 4 + n % 8 / 2; }
    static DEVICE u32 pick(const u32* row, u32 n) { return row[n / 8] >> digit(n) * 4 & 15; }
    static DEVICE u32 integer(const GroupedArgs& a, u32 k, u32 n) { return pick(a.words + static_cast<u64>(k) * (a.outputs / 8), n); }
    static DEVICE void integers(const GroupedArgs& a, u32 k, u32 n, u32 (&words)[BITS]) {
#pragma unroll
        for (u32 i = 0; i < 32; i++)
            if (k + i < a.inputs) words[i / 8] |= integer(a, k + i, n) << i % 8 * 4;
    }
    static DEVICE void whole(const GroupedArgs& a, u32 k, u32 n, u32 (&words)[BITS]) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) words[i] = k + i < a.inputs ? a.words[static_cast<u64>(k + i) * (a.outputs / 8) + n / 8] : 0;
    }
    static DEVICE u32 place(u32 k, u32 n) { return 8 * k + digit(n); }
    static DEVICE u32 zero(const GroupedArgs& a, u32 g, u32 n) { return pick(a.zeros + static_cast<u64>(g) * (a.outputs / 8), n); }
};

DEVICE u32 group_of(const GroupedArgs& a, u32 k) { return a.order ? least(a.order[k], a.groups - 1) : k / a.group; }
DEVICE f32 scale_of(const GroupedArgs& a, u32 g, u32 n) { return to_f32(a.scales[static_cast<u64>(g) * a.outputs + n]); }

// inputs x outputs, as in the file.
template <class L> DEVICE void dequant(const GroupedArgs& a) {
    for (u32 k = block_y(); k < a.inputs; k += grid_y()) {
        const u32 g = group_of(a, k);
        for (u32 n = block_x() * threads() + thread(); n < a.outputs; n += grid_x() * threads()) {
            const f32 w = static_cast<f32>(static_cast<i32>(L::integer(a, k, n)) - static_cast<i32>(L::zero(a, g, n))) * scale_of(a, g, n);
            store_as(a.y, static_cast<u64>(k) * a.outputs + n, w, a.type);
        }
    }
}

// Products with N vectors. A block has 32 outputs; its warps share out the inputs, 32 at a time, and meet in shared memory, where each has room for 32 numbers of
// every vector. A lane has whole words of integers; the next ones are on their way while these are multiplied.
template <class L, u32 N> struct Gemv {
    static constexpr u32 WIDE = L::WIDE, DEEP = WARP / WIDE;
    const GroupedArgs& a;
    // The first output of this lane, and the first of its inputs among 32.
    const u32 n, own;
    f32* room;
    f32 scale[WIDE], offset[WIDE], acc[WIDE][N];

    // Outputs that do not exist are like the last ones.
    DEVICE explicit Gemv(const GroupedArgs& a)
        : a(a), n(least(block_x() * DEEP + lane() % DEEP, a.outputs / WIDE - 1) * WIDE), own(lane() / DEEP * DEEP), room(shared<f32>() + warp() * (N * WARP)) {
#pragma unroll
        for (u32 o = 0; o < WIDE; o++)
#pragma unroll
            for (u32 i = 0; i < N; i++) acc[o][i] = 0;
    }

    // (code - zero) * scale is (256 + code) * scale + offset, of which nothing is rounded.
    DEVICE void enter(u32 group) {
#pragma unroll
        for (u32 o = 0; o < WIDE; o++) {
            scale[o] = scale_of(a, group, n + o);
            offset[o] = -static_cast<f32>(256 + L::zero(a, group, n + o)) * scale[o];
        }
    }

    // Multiplies 32 inputs; `group` is that of input lane(). ONE: it is that of all of them, and has been entered.
    template <bool ONE> DEVICE void multiply(const u32 (&words)[L::BITS], u32 group) {
#pragma unroll
        for (u32 k = 0; k < DEEP; k += 4) {
            Pack<f32> x[N];
#pragma unroll
            for (u32 i = 0; i < N; i++) x[i].quad = load16(room + i * WARP + own + k);
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                if (!ONE) enter(shuffle(group, own + k + j));
#pragma unroll
                for (u32 o = 0; o < WIDE; o++) {
                    const f32 w = fmaf(behind_256(words, L::place(k + j, o)), scale[o], offset[o]);
#pragma unroll
                    for (u32 i = 0; i < N; i++) acc[o][i] = fmaf(w, x[i].at[j], acc[o][i]);
                }
            }
        }
    }

    DEVICE void run() {
        const u32 warps = threads() / WARP, share = div_up(div_up(a.inputs, WARP), warps) * WARP, end = least(a.inputs, (warp() + 1) * share);
        u32 words[L::BITS], next[L::BITS], until = 0;
        if (warp() * share < end) L::whole(a, warp() * share + own, n, next);
        for (u32 first = warp() * share; first < end; first += WARP) {
#pragma unroll
            for (u32 i = 0; i < L::BITS; i++) words[i] = next[i];
            if (first + WARP < end) L::whole(a, first + WARP + own, n, next);
            const u32 k = first + lane();
#pragma unroll
            for (u32 i = 0; i < N; i++) room[i * WARP + lane()] = i < a.batch && k < a.inputs ? load_as(a.x, static_cast<u64>(i) * a.inputs + k, a.type) : 0;
            // Up to `until` inputs are known to be of the group that was entered.
            u32 group = 0;
            bool one = first + WARP <= until;
            if (!one) {
                group = group_of(a, least(k, a.inputs - 1));
                one = !lanes_of(group != shuffle(group, 0));
                if (one) enter(group);
                until = one && !a.order ? (group + 1) * a.group : 0;
            }
            sync_warp();
            if (one) multiply<true>(words, group);
            else multiply<false>(words, group);
            sync_warp();
        }
#pragma unroll
        for (u32 i = 0; i < N; i++)
#pragma unroll
            for (u32 o = 0; o < WIDE; o++) {
                f32 sum = acc[o][i];
                for (u32 m = DEEP; m < WARP; m *= 2) sum += shuffle_xor(sum, m);
                if (own == 0) room[i * WARP + lane() * WIDE + o] = sum;
            }
        sync_block();
        const u32 output = block_x() * WARP + lane();
        for (u32 i = warp(); i < a.batch; i += warps) {
            f32 sum = 0;
            for (u32 w = 0; w < warps; w++) sum += shared<f32>()[(w * N + i) * WARP + lane()];
            if (output < a.outputs) static_cast<f32*>(a.y)[static_cast<u64>(i) * a.outputs + output] = sum;
        }
    }
};

struct GroupedGemmArgs {
    GemmArgs product;
    GroupedArgs weights;
};

// For matrix products: a thread has 32 integers of an output, with one scale and zero point where they are of one group.
template <class T, class L> struct Integers {
    const GroupedArgs& a;
    struct Held {
        u32 words[L::BITS], from, known;
        f32 scale;
        i32 zero;
        bool one;
    };

    DEVICE explicit Integers(const GroupedArgs& a) : a(a) {}
    DEVICE void group(Held& held, u32 g) {
        if (g == held.known) return;
        const u32 n = block_y() * Many::COLUMNS + thread();
        held.known = g, held.zero = static_cast<i32>(L::zero(a, g, n)), held.scale = scale_of(a, g, n);
    }
    DEVICE void copy(T*, u32) {}
    DEVICE void begin(Held& held, u32 k) {
        const u32 n = block_y() * Many::COLUMNS + thread();
        held.from = k, held.known = ~0u, held.scale = 0, held.zero = 0;
#pragma unroll
        for (u32 i = 0; i < L::BITS; i++) held.words[i] = 0;
        // What is not there weighs nothing.
        held.one = n >= a.outputs || k >= a.inputs;
        if (held.one) return;
        L::integers(a, k, n, held.words);
        held.one = !a.order && k % a.group + 32 <= a.group;
        if (held.one) group(held, k / a.group);
    }
    // To the row of the thread.
    DEVICE void end(Held& held, T* to) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            Pack<T> eight;
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                const u32 of = 8 * i + j, bit = of * L::BITS, k = least(held.from + of, a.inputs - 1);
                if (!held.one) group(held, group_of(a, k));
                const u32 code = funnel(held.words[bit / 32], held.words[least(bit / 32 + 1, L::BITS - 1)], bit % 32) & ((1u << L::BITS) - 1);
                eight.at[j] = from_f32<T>(static_cast<f32>(static_cast<i32>(code) - held.zero) * held.scale);
            }
            store16(to + Many::slot(thread(), i), eight.quad);
        }
    }
};

template <class T, class L> DEVICE void product(const GroupedGemmArgs& a) {
    gemm<T>(a.product, segment_of(nullptr, block_x(), Many::ROWS, a.product.m), Integers<T, L>(a.weights), Many());
}

#define GROUPED(NAME, ...)                                                                              \
    KERNEL(dequant_##NAME, GroupedArgs, 256) { dequant<__VA_ARGS__>(a); }                               \
    KERNEL(gemv_##NAME##_n1, GroupedArgs, 512) { Gemv<__VA_ARGS__, 1>(a).run(); }                       \
    KERNEL(gemv_##NAME##_n8, GroupedArgs, 512) { Gemv<__VA_ARGS__, 8>(a).run(); }                       \
    KERNEL(gemm_##NAME##_f16, GroupedGemmArgs, Many::THREADS) { product<f16, __VA_ARGS__>(a); }         \
    KERNEL(gemm_##NAME##_bf16, GroupedGemmArgs, Many::THREADS) { product<bf16, __VA_ARGS__>(a); }
GROUPED(awq, Awq)
GROUPED(gptq1, Gptq<1>)
GROUPED(gptq2, Gptq<2>)
GROUPED(gptq3, Gptq<3>)
GROUPED(gptq4, Gptq<4>)
GROUPED(gptq8, Gptq<8>)
