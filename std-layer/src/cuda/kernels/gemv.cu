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

// A warp has ROWS rows, a lane 16 bytes of each at a time, and the next ones are on their way while these are multiplied. Sums are formed in an
// order that does not depend on N.
template <class T, u32 N> struct Gemv {
    static constexpr u32 P = Pack<T>::N, ROWS = N <= 2 ? 2 : 4;

    static DEVICE void fetch(const GemvArgs& a, u32 matrix, u32 row, u32 c, Pack<T> (&w)[ROWS]) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            w[r].quad = Quad{{0, 0, 0, 0}};
            if (row + r < a.rows && c < a.cols) w[r].quad = load_once(static_cast<const T*>(a.w) + (static_cast<u64>(matrix) * a.rows + row + r) * a.cols + c);
        }
    }

    static DEVICE void run(const GemvArgs& a) {
        const u32 row = (block_x() * (threads() / WARP) + warp()) * ROWS;
        const Segment own = segment_of(a.segments, block_y(), N, a.batch);
        if (row >= a.rows || own.first == own.end) return;
        const u32 count = own.end - own.first, from = a.single ? 0 : own.first;
        f32 acc[ROWS][N];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
#pragma unroll
            for (u32 n = 0; n < N; n++) acc[r][n] = 0;
        Pack<T> now[ROWS], next[ROWS];
        fetch(a, own.matrix, row, lane() * P, now);
        for (u32 c = lane() * P; c < a.cols; c += WARP * P) {
            fetch(a, own.matrix, row, c + WARP * P, next);
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
                    for (u32 i = 0; i < P; i++) acc[r][n] = fmaf(to_f32(now[r].at[i]), x[i], acc[r][n]);
            }
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) now[r] = next[r];
        }
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
#pragma unroll
            for (u32 n = 0; n < N; n++) {
                const f32 y = warp_reduce<Add>(acc[r][n]);
                if (lane() == 0 && row + r < a.rows && n < count) store_as(a.y, static_cast<u64>(own.first + n) * a.rows + row + r, y, a.type);
            }
    }
};

#define GEMV(T)                                                    \
    KERNEL(gemv_##T##_n1, GemvArgs, 128) { Gemv<T, 1>::run(a); }   \
    KERNEL(gemv_##T##_n2, GemvArgs, 128) { Gemv<T, 2>::run(a); }   \
    KERNEL(gemv_##T##_n4, GemvArgs, 128) { Gemv<T, 4>::run(a); }   \
    KERNEL(gemv_##T##_n8, GemvArgs, 128) { Gemv<T, 8>::run(a); }
GEMV(f32)
GEMV(f16)
GEMV(bf16)
