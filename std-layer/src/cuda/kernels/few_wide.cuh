// Matrix products of few rows by `wgmma`, whose left operand is W: tensor cores read X once for 64 rows of W.
#pragma once

#include "few.cuh"
#include "wgmma.cuh"

#ifdef HAS_WGMMA
// Dense weights: a block has 128 columns of Y and up to 64 rows, and a multiprocessor has two blocks. Pieces are as those of `Wide`.
struct FewDense {
    static constexpr u32 ROWS = 64, COLUMNS = 128, DEPTH = SWIZZLED_ROW, STAGES = 4, THREADS = 256, SIZE = (ROWS + COLUMNS) * DEPTH;
    static DEVICE u32 slot(u32 row, u32 chunk) { return swizzled(row, chunk); }
};
// Weights in blocks: 256 columns of Y, and pieces of as many columns of X and W, two or more in BYTES.
struct FewBlocks {
    static constexpr u32 ROWS = 64, COLUMNS = 256, DEPTH = 256, THREADS = 512, BYTES = 226 << 10;
};

// Writes sums of `wgmma`: lane 4 g + t of a warp has columns g and g + 8 of its 16, and of every eight rows two from 2 t on.
template <class Tiles> DEVICE void put_turned(const GemmArgs& a, const Segment& own, const f32 (&acc)[32]) {
    f32* y = shared<f32>() + lane() % 4 * 2 * Y_PITCH<Tiles> + warp() * 16 + lane() / 4;
    copy_wait<0>();
    sync_block();
#pragma unroll
    for (u32 i = 0; i < 32; i++) y[(i / 4 * 8 + i % 2) * Y_PITCH<Tiles> + i / 2 % 2 * 8] = acc[i];
    put_rows<Tiles>(a, own);
}

// Blocks of z share the columns of X and W, as in gemm.cuh.
template <class T, class W> DEVICE void gemm(const GemmArgs& a, const Segment& own, W w, FewDense) {
    typedef FewDense Tiles;
    static constexpr u32 DEPTH = Tiles::DEPTH, AHEAD = Tiles::STAGES - 2;
    T* room = shared<T>() + (0 - shared_address(shared<T>())) % 1024 / sizeof(T);
    const u32 share = div_up(div_up(a.k, DEPTH), grid_z()) * DEPTH, start = least(a.k, block_z() * share);
    const u32 steps = most(1u, div_up(least(share, a.k - start), DEPTH));
    f32 acc[32];
#pragma unroll
    for (u32 i = 0; i < 32; i++) acc[i] = 0;
    const auto piece = [&](u32 step) { return room + step % Tiles::STAGES * Tiles::SIZE; };
    const auto copy_weights = [&](u32 step) {
        if (step < steps) w.copy(piece(step) + Tiles::ROWS * DEPTH, start + step * DEPTH);
    };
    const auto copy_rows = [&](u32 step) {
        if (step < steps) fetch<Tiles, Tiles::ROWS>(piece(step), static_cast<const T*>(a.x), own.first, own.end, start + step * DEPTH, a.k);
        copy_commit();
    };
    for (u32 s = 0; s < AHEAD; s++) copy_weights(s);
    wait_for_inputs();
    for (u32 s = 0; s < AHEAD; s++) copy_rows(s);
    u32 step = 0;
    do {
        copy_wait<AHEAD - 1>();
        async_fence();
        // Now this piece is complete, and nobody reads that before the one before it any more.
        sync_block();
        const T *x = piece(step), *left = x + Tiles::ROWS * DEPTH + thread() / (4 * WARP) * (64 * DEPTH);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < DEPTH; k += 16) wgmma(acc, operand(left + k), operand(x + k), T());
        wgmma_commit();
        copy_weights(step + AHEAD);
        copy_rows(step + AHEAD);
        wgmma_wait<1>();
    } while (++step < steps);
    wgmma_finish(acc);
    put_turned<Tiles>(a, own, acc);
}

// Weights in blocks of format F, times X in bf16. A lane decodes what it multiplies: of every 32 columns eight side by side, of two rows.
template <class F> struct Blocks<bf16, FewBlocks, F> {
    typedef FewBlocks Tiles;
    typedef bf16 T;
    static constexpr u32 DEPTH = Tiles::DEPTH, PARTS = DEPTH / 32, PER = F::LEN / 32, GROUPS = 32 / F::GROUP, PIECE = DEPTH / F::LEN * F::BYTES;
    // Whether something may lie before the first byte since a multiple of 16. Lanes find eight rows in different banks, where there is room for that.
    static constexpr bool SHIFTED = PIECE % 16 != 0 || F::LEN < DEPTH;
    static constexpr u32 ROW = SHIFTED ? (PIECE + 30) / 16 * 16 : PIECE, PITCH = ROW < 300 ? (ROW + 31) / 64 * 64 + 32 : ROW;
    static constexpr u32 X_BYTES = 2 * Tiles::ROWS * DEPTH, W_BYTES = Tiles::COLUMNS * PITCH, FIT = (Tiles::BYTES - 1024) / (X_BYTES + W_BYTES), STAGES = FIT < 4 ? FIT : 4;
    static_assert(STAGES >= 2, "two pieces");

    const GemmArgs& a;
    const Segment& own;
    u8* room;
    u32 start, steps;
    // What this thread copies: of W 16 bytes of every 64 of two rows, of X two columns of every 64 of every eighth row. Rows that do not exist are like the last one.
    const u8* next[2];
    u32 left_of_row, x_at;

    static DEVICE u32 head_of(const u8* from) { return SHIFTED ? static_cast<u32>(reinterpret_cast<u64>(from)) % 16 : 0; }
    DEVICE const u8* row_of(u32 row) const {
        return static_cast<const u8*>(a.w) + (own.matrix * a.n + least(block_y() * Tiles::COLUMNS + row, a.n - 1)) * a.row_bytes + start / F::LEN * F::BYTES;
    }
    // Pieces of X in tiles of 64 columns, then pieces of W.
    DEVICE u8* x_of(u32 slot) const { return room + slot * X_BYTES; }
    DEVICE u8* w_of(u32 slot) const { return room + STAGES * X_BYTES + slot * W_BYTES; }

    DEVICE Blocks(const GemmArgs& a, const Segment& own) : a(a), own(own) {
        room = shared<u8>() + (0 - shared_address(shared<u8>())) % 1024;
        const u32 share = div_up(div_up(a.k, DEPTH), grid_z()) * DEPTH;
        start = least(a.k, block_z() * share), steps = div_up(least(share, a.k - start), DEPTH);
        for (u32 r = 0; r < 2; r++) next[r] = row_of(thread() / 4 + Tiles::THREADS / 4 * r);
        left_of_row = static_cast<u32>(a.row_bytes) - start / F::LEN * F::BYTES;
        // In the order in which a lane has columns of W: of 16 two from 2 t on, and two from 2 t + 8 on.
        x_at = warp() % 8 * 128 + ((lane() / 16 * 4 + lane() % 4) ^ warp() % 8) * 16 + lane() / 4 % 4 * 4;
    }

    DEVICE void copy_weights(u32 step, u32 slot) {
        if (step >= steps) return;
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            const u32 head = head_of(next[r]), bytes = head + least(PIECE, left_of_row), first = thread() % 4 * 16;
            u8* to = w_of(slot) + (thread() / 4 + Tiles::THREADS / 4 * r) * PITCH + first;
#pragma unroll
            for (u32 i = 0; i < PIECE + (SHIFTED ? 15 : 0); i += 64)
                if (first + i < bytes) copy_async(to + i, next[r] - head + first + i);
            next[r] += PIECE;
        }
        left_of_row -= least(PIECE, left_of_row);
    }
    // Two groups of warps have half of the columns each.
    DEVICE void copy_rows(u32 step, u32 slot) {
        const u32 first = warp() / 8 * (DEPTH / 2), k = start + step * DEPTH + first + lane() * 2;
        u8* to = x_of(slot) + first * (Tiles::ROWS * 2) + x_at;
        for (u32 r = 0; step < steps && own.first + r < own.end; r += 8) {
            const T* row = static_cast<const T*>(a.x) + static_cast<u64>(least(own.first + warp() % 8 + r, own.end - 1)) * a.k + k;
#pragma unroll
            for (u32 i = 0; i < DEPTH / 2; i += 64) copy_word(to + r * 128 + i * (Tiles::ROWS * 2), k + i < a.k ? row + i : static_cast<const T*>(a.x), k + i < a.k);
        }
        copy_commit();
    }

    DEVICE void run() {
        for (u32 s = 0; s + 1 < STAGES; s++) copy_weights(s, s);
        // Tensor cores read rows of X that do not exist, too.
        for (u32 i = thread() * 16; i < STAGES * X_BYTES; i += Tiles::THREADS * 16) store16(room + i, Quad{{0, 0, 0, 0}});
        sync_block();
        wait_for_inputs();
        for (u32 s = 0; s + 1 < STAGES; s++) copy_rows(s, s);
        // Where blocks begin of the rows whose weights this lane has.
        u32 low[2];
        for (u32 r = 0; r < 2; r++) low[r] = head_of(row_of(warp() * 16 + lane() / 4 + 8 * r));
        f32 acc[32];
#pragma unroll
        for (u32 i = 0; i < 32; i++) acc[i] = 0;
        u32 slot = 0, empty = STAGES - 1;
        for (u32 step = 0; step < steps; step++) {
            copy_wait<STAGES - 2>();
            async_fence();
            // Now this piece is complete, and nobody reads the one before it any more.
            sync_block();
            copy_weights(step + STAGES - 1, empty);
            copy_rows(step + STAGES - 1, empty);
            const u32 shift = SHIFTED ? step * PIECE : 0;
            const u8* rows = w_of(slot) + (warp() * 16 + lane() / 4) * PITCH;
            Piece piece = {{rows + (low[0] + shift) % 16, rows + 8 * PITCH + (low[1] + shift) % 16}, {}, {}};
            piece.begin((a.k - start - step * DEPTH) / 32);
            piece.multiply(operand(x_of(slot)), acc);
            empty = slot, slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        wgmma_finish(acc);
        put_turned<Tiles>(a, own, acc);
    }

    // Rows of a piece of W, as a lane has them: two for itself. Of the parts, 32 columns each, it has eight columns side by side.
    struct Piece {
        const u8* rows[2];
        // What the lane has for others of the scales of its rows, and of what is added to their products with codes: those of two parts, or of one of two groups of four.
        static constexpr u32 OWN = 2 * GROUPS;
        f32 scales[2][OWN], rests[2][OWN];

        DEVICE const u8* block_of(u32 r, u32 part) const { return rows[r] + part / PER * F::BYTES; }

        // So many parts exist: beyond them X has zeros, and weights may be any that are numbers.
        DEVICE void begin(u32 parts) {
            const u32 t = lane() % 4, first = GROUPS == 1 ? t * OWN : t % 2 * OWN;
#pragma unroll
            for (u32 r = 0; r < 2; r++)
#pragma unroll
                for (u32 i = 0; i < OWN; i++) {
                    const bool there = first + i < parts;
                    const u32 part = there ? first + i : 0, group = part % PER * GROUPS + (GROUPS == 1 ? 0 : t / 2);
                    const f32 scale = F::scale(block_of(r, part), group), offset = F::offset(block_of(r, part), group);
                    scales[r][i] = there ? scale : 0;
                    if (F::OFFSETS) rests[r][i] = there ? offset - Code<F>::MORE * scale : 0;
                }
        }

        // Adds the products of all parts.
        DEVICE void multiply(u64 x, f32 (&acc)[32]) const {
            u32 left[2][2][4], codes[2][2][2];
            f32 scale[2][2], rest[2][2];
            // Of the next part: codes, and what they are multiplied with.
            const auto look_up = [&](u32 base, u32 part) {
#pragma unroll
                for (u32 r = 0; r < 2; r++) {
                    const u32 from = lane() / 4 * 4 + (base + part) / OWN + (GROUPS == 1 ? 0 : lane() % 4 / 2 * 2);
                    F::codes(block_of(r, base + part), (base + part) % PER, codes[part % 2][r], lane() % 4 * 2);
                    scale[part % 2][r] = shuffle(scales[r][part % OWN], from);
                    rest[part % 2][r] = F::OFFSETS ? shuffle(rests[r][part % OWN], from) : -Code<F>::MORE * scale[part % 2][r];
                }
            };
            look_up(0, 0);
#pragma unroll 1
            for (u32 base = 0; base < PARTS; base += PARTS / 2) {
#pragma unroll
                for (u32 part = 0; part < PARTS / 2; part++) {
                    u32(&own)[2][4] = left[part % 2];
                    if (part + 1 < PARTS / 2 || base == 0) look_up(base, part + 1);
#pragma unroll
                    for (u32 r = 0; r < 2; r++)
#pragma unroll
                        for (u32 i = 0; i < 2; i++) {
                            const Pair four = narrow_weights<F>(codes[part % 2][r][i], scale[part % 2][r], rest[part % 2][r]);
                            own[i][r] = four.w[0], own[i][r + 2] = four.w[1];
                        }
                    const u64 right = x + (base + part) / 2 * (Tiles::ROWS * 128 / 16) + part % 2 * 4;
                    wgmma_fence();
#pragma unroll
                    for (u32 i = 0; i < 2; i++) wgmma_held<false>(acc, own[i], right + 2 * i, T());
                    wgmma_commit();
                    // What is decoded next takes the place of what is multiplied no more.
                    wgmma_wait<1>();
                }
            }
            wgmma_wait<0>();
        }
    };
};
template <class T, class F> DEVICE void gemm(const GemmArgs&, const Segment&, Blocks<T, FewBlocks, F> w, FewBlocks) { w.run(); }
#endif
