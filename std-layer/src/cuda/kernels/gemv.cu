// Products of dense weights with few vectors of f32: Y[n][r] = sum over c of W[r][c] X[n][c]. A block takes N of the vectors, blocks of y the next ones.
#include "segments.cuh"

struct GemvArgs {
    const void* w;
    const f32* x;
    void* y;
    // Which results blocks of y have, and of which matrices; if `single`, all of them are products with the first vector.
    const Segment* segments;
    u32 rows, cols, batch, type, single;
};

// A block has ROWS rows, and its warps share their columns, 16 bytes of each row a lane at a time. Sums are formed in an order that does not depend on N.
template <class T, u32 N> struct Gemv {
    static constexpr u32 P = Pack<T>::N, ROWS = 4, WARPS = 4, STEP = WARPS * WARP * P;

    static DEVICE void fetch(const T* const (&rows)[ROWS], u32 c, u32 cols, Pack<T> (&w)[ROWS]) {
        if (c >= cols) return;
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) w[r].quad = load_once(rows[r] + c);
    }

    static DEVICE void run(const GemvArgs& a) {
        // Which weights these are a kernel may have to say.
        if (a.segments) wait_for_inputs();
        const Segment own = segment_of(a.segments, block_y(), N, a.batch);
        if (own.first == own.end) return wait_for_inputs();
        const u32 row = block_x() * ROWS, count = own.end - own.first, from = a.single ? 0 : own.first;
        // Rows that do not exist are like the last one.
        const T* rows[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) rows[r] = static_cast<const T*>(a.w) + (static_cast<u64>(own.matrix) * a.rows + least(row + r, a.rows - 1)) * a.cols;
        // Of row r and vector n at r N + n.
        static constexpr u32 SUMS = ROWS * N;
        f32 acc[SUMS];
#pragma unroll
        for (u32 i = 0; i < SUMS; i++) acc[i] = 0;
        Pack<T> w[ROWS];
        fetch(rows, thread() * P, a.cols, w);
        wait_for_inputs();
        for (u32 c = thread() * P; c < a.cols; c += STEP) {
#pragma unroll
            for (u32 n = 0; n < N; n++) {
                if (n >= count) break;
                f32 x[P];
#pragma unroll
                for (u32 i = 0; i < P; i += 4) {
                    Pack<f32> four;
                    four.quad = load16(a.x + static_cast<u64>(from + n) * a.cols + c + i);
                    for (u32 k = 0; k < 4; k++) x[i + k] = four.at[k];
                }
#pragma unroll
                for (u32 r = 0; r < ROWS; r++)
#pragma unroll
                    for (u32 i = 0; i < P; i++) acc[r * N + n] = fmaf(to_f32(w[r].at[i]), x[i], acc[r * N + n]);
            }
            fetch(rows, c + STEP, a.cols, w);
        }
        f32* sums = shared<f32>();
        const f32 sum = warp_sums(acc);
        if (lane() % (WARP / SUMS) == 0) sums[warp() * SUMS + lane() / (WARP / SUMS)] = sum;
        sync_block();
        const u32 r = thread() / N, n = thread() % N;
        if (r >= ROWS || row + r >= a.rows || n >= count) return;
        f32 y = 0;
#pragma unroll
        for (u32 k = 0; k < WARPS; k++) y += sums[k * SUMS + thread()];
        store_as(a.y, static_cast<u64>(own.first + n) * a.rows + row + r, y, a.type);
    }
};

#define GEMV(T) \
    KERNEL_EARLY(gemv_##T##_n1, GemvArgs, 128) { Gemv<T, 1>::run(a); } \
    KERNEL_EARLY(gemv_##T##_n2, GemvArgs, 128) { Gemv<T, 2>::run(a); } \
    KERNEL_EARLY(gemv_##T##_n4, GemvArgs, 128) { Gemv<T, 4>::run(a); } \
    KERNEL_EARLY(gemv_##T##_n8, GemvArgs, 128) { Gemv<T, 8>::run(a); }
GEMV(f32)
GEMV(f16)
GEMV(bf16)
