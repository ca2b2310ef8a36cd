// Row by row: norms, softmax, rotation, lookup.
#include "simt.cuh"

struct NormArgs {
    const void* x;
    const void* w;
    const void* b;
    void* y;
    u32 cols;
    f32 eps;
    // Whether rows and weights can be moved 16 bytes at a time, and threads hold a row in registers.
    u32 aligned, held;
};

// Packs of 16 bytes of a row that a thread holds at most.
static constexpr u32 HELD = 4;

// What a thread has of a row of x.
template <class T> struct Row {
    static constexpr u32 N = Pack<T>::N;
    const NormArgs& a;
    const T* x;
    Pack<T> held[HELD];

    DEVICE Row(const NormArgs& args, u64 first) : a(args), x(static_cast<const T*>(args.x) + first) {
#pragma unroll
        for (u32 k = 0; k < HELD; k++)
            if (a.held && k * threads() + thread() < a.cols / N) held[k].quad = load16(x + (k * threads() + thread()) * N);
    }

    // The row as numbers, `N` at a time: `each(first, how many, numbers)`.
    template <class F> DEVICE void walk(F each) const {
        const auto pass = [&](u32 p, const Pack<T>& pack) {
            f32 v[N];
#pragma unroll
            for (u32 i = 0; i < N; i++) v[i] = to_f32(pack.at[i]);
            each(p * N, N, v);
        };
        if (a.held) {
#pragma unroll
            for (u32 k = 0; k < HELD; k++)
                if (k * threads() + thread() < a.cols / N) pass(k * threads() + thread(), held[k]);
            return;
        }
        const u32 packs = a.aligned ? a.cols / N : 0;
        for (u32 p = thread(); p < packs; p += threads()) {
            Pack<T> pack;
            pack.quad = load16(x + p * N);
            pass(p, pack);
        }
        for (u32 i = packs * N + thread(); i < a.cols; i += threads()) {
            f32 v[N];
            v[0] = to_f32(x[i]);
            each(i, 1u, v);
        }
    }
};

template <class T> DEVICE void put_row(T* y, u32 at, u32 n, const f32 (&v)[Pack<T>::N]) {
    if (n == Pack<T>::N) store_pack(y + at, v);
    else y[at] = from_f32<T>(v[0]);
}

// Numbers of the weights' row.
template <class T> DEVICE void get_row(f32 (&v)[Pack<T>::N], const T* w, u32 at, u32 n) {
    if (n == Pack<T>::N) load_pack(v, w + at);
    else v[0] = to_f32(w[at]);
}

// y = (x - mean) / sqrt(variance + eps) * w + b, the mean being 0 in the RMS norm.
template <class T, bool CENTRED> DEVICE void norm(const NormArgs& a) {
    constexpr u32 N = Pack<T>::N;
    const u64 first = static_cast<u64>(block_x()) * a.cols;
    const T *w = static_cast<const T*>(a.w), *b = static_cast<const T*>(a.b);
    T* y = static_cast<T*>(a.y) + first;
    f32* room = shared<f32>();
    const Row<T> row(a, first);
    f32 mean = 0;
    if (CENTRED) {
        // Relative to the first element: a large mean costs no accuracy.
        const f32 c = to_f32(row.x[0]);
        row.walk([&](u32, u32 n, const f32* v) { for (u32 i = 0; i < n; i++) mean += v[i] - c; });
        mean = c + block_reduce<Add>(mean, room) / static_cast<f32>(a.cols);
    }
    f32 square = 0;
    row.walk([&](u32, u32 n, const f32* v) { for (u32 i = 0; i < n; i++) square = fmaf(v[i] - mean, v[i] - mean, square); });
    const f32 r = 1 / sqrtf(block_reduce<Add>(square, room) / static_cast<f32>(a.cols) + a.eps);
    row.walk([&](u32 at, u32 n, const f32* v) {
        f32 out[N], by[N], more[N];
        if (w) get_row(by, w, at, n);
        if (CENTRED && b) get_row(more, b, at, n);
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (i >= n) break;
            out[i] = (v[i] - mean) * r;
            if (w) out[i] *= by[i];
            if (CENTRED && b) out[i] += more[i];
        }
        put_row(y, at, n, out);
    });
}

struct SoftmaxArgs {
    NormArgs row;
    u32 valid;
    f32 scale;
};

// exp(scale (x - max)) over their sum for the first `valid` of a row, zeros behind them. Without a largest number, as all are NaN or one is infinite, the sum is NaN.
template <class T> DEVICE void softmax(const SoftmaxArgs& s) {
    constexpr u32 N = Pack<T>::N;
    const u64 first = static_cast<u64>(block_x()) * s.row.cols;
    T* y = static_cast<T*>(s.row.y) + first;
    f32* room = shared<f32>();
    const Row<T> row(s.row, first);
    // Max knows no infinity as its neutral number: rows that are masked entirely end at the lowest one.
    f32 top = Max::none;
    row.walk([&](u32 at, u32 n, const f32* v) {
        for (u32 i = 0; i < n; i++)
            if (at + i < s.valid) top = most(top, v[i]);
    });
    top = block_reduce<Max>(top, room);
    const f32 by = s.scale * 1.44269504f;
    f32 sum = 0;
    row.walk([&](u32 at, u32 n, const f32* v) {
        for (u32 i = 0; i < n; i++)
            if (at + i < s.valid) sum += exp2_fast((v[i] - top) * by);
    });
    sum = block_reduce<Add>(sum, room);
    const f32 r = sum > 0 ? 1 / sum : sum;
    row.walk([&](u32 at, u32 n, const f32* v) {
        f32 out[N];
#pragma unroll
        for (u32 i = 0; i < N; i++) {
            if (i >= n) break;
            out[i] = at + i < s.valid ? exp2_fast((v[i] - top) * by) * r : 0;
        }
        put_row(y, at, n, out);
    });
}

struct RopeArgs {
    const void* x;
    void* y;
    const f32* cos;
    const f32* sin;
    // Row of the tables for each token; without it, its number.
    const u32* positions;
    u32 heads, dim, half, adjacent, table_rows;
    u64 tokens;
};

// A thread turns a pair, or copies an element behind those that are turned.
template <class T> DEVICE void rope(const RopeArgs& a) {
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.y);
    const u32 per_head = a.dim - a.half, per_token = per_head * a.heads;
    for (u64 t = block_y(); t < a.tokens; t += grid_y()) {
        const u64 angle = a.positions ? a.positions[t] : t;
        for (u32 i = block_x() * threads() + thread(); i < per_token; i += grid_x() * threads()) {
            const u32 head = i / per_head, k = i % per_head;
            const u64 base = (t * a.heads + head) * a.dim;
            if (k >= a.half) {
                y[base + a.half + k] = x[base + a.half + k];
                continue;
            }
            const u64 p = base + (a.adjacent ? 2 * k : k), q = a.adjacent ? p + 1 : p + a.half;
            const bool known = angle < a.table_rows;
            const f32 nan = from_bits(0x7fc00000);
            const f32 c = known ? a.cos[angle * a.half + k] : nan, s = known ? a.sin[angle * a.half + k] : nan;
            const f32 u = to_f32(x[p]), v = to_f32(x[q]);
            y[p] = from_f32<T>(fmaf(-v, s, u * c));
            y[q] = from_f32<T>(fmaf(u, s, v * c));
        }
    }
}

struct EmbedArgs {
    const void* table;
    const u32* ids;
    void* y;
    u32 rows, cols, aligned;
};

// Copies rows; one that does not exist is NaN.
template <class T> DEVICE void embed(const EmbedArgs& a) {
    constexpr u32 N = Pack<T>::N;
    const u32 id = a.ids[block_x()];
    const bool known = id < a.rows;
    const T* x = static_cast<const T*>(a.table) + static_cast<u64>(known ? id : 0) * a.cols;
    T* y = static_cast<T*>(a.y) + static_cast<u64>(block_x()) * a.cols;
    const T nan = from_f32<T>(from_bits(0x7fc00000));
    u32 done = 0;
    if (a.aligned && known) {
        done = a.cols / N * N;
        for (u32 p = thread(); p < a.cols / N; p += threads()) store16(y + p * N, load16(x + p * N));
    }
    for (u32 i = done + thread(); i < a.cols; i += threads()) y[i] = known ? x[i] : nan;
}

#define ROWS(T)                                                          \
    KERNEL(rms_norm_##T, NormArgs, 1024) { norm<T, false>(a); }          \
    KERNEL(layer_norm_##T, NormArgs, 1024) { norm<T, true>(a); }         \
    KERNEL(softmax_##T, SoftmaxArgs, 1024) { softmax<T>(a); }            \
    KERNEL(rope_##T, RopeArgs, 256) { rope<T>(a); }                      \
    KERNEL(embed_##T, EmbedArgs, 256) { embed<T>(a); }
ROWS(f32)
ROWS(f16)
ROWS(bf16)
