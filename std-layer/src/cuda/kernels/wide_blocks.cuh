// Matrix products with weights in blocks by `wgmma`: a block decodes what it multiplies once for up to 128 rows of X.
#pragma once

#include "few.cuh"
#include "wgmma.cuh"

#ifdef HAS_WGMMA
// A block has 128 x 128 of Y, and goes through 128 columns of X and W at a time, a step. Eight warps multiply: each group of four has 64 rows of X. The other eight copy
// X and W to shared memory, and decode W there for the next step. So tensor cores always have work, and what decodes needs no registers for sums.
// In BYTES of shared memory are decoded weights of two steps, X of three, and pieces of W as it is stored.
struct WideBlocks {
    static constexpr u32 ROWS = 128, COLUMNS = 128, DEPTH = 128, MULTIPLYING = 256, DECODING = 256, THREADS = MULTIPLYING + DECODING, BYTES = 227 << 10;
};

template <class F> struct Blocks<bf16, WideBlocks, F> {
    typedef WideBlocks Tiles;
    typedef bf16 T;
    static constexpr u32 DEPTH = Tiles::DEPTH, PER = F::LEN / 32, GROUPS = 32 / F::GROUP;
    // Of a row, a piece has a whole number of blocks.
    static constexpr u32 PIECE_COLUMNS = F::LEN < DEPTH ? DEPTH : F::LEN, STEPS = PIECE_COLUMNS / DEPTH, PIECE = PIECE_COLUMNS / F::LEN * F::BYTES;
    // Copies start at multiples of 16 bytes, up to HEAD bytes before the piece.
    static constexpr u32 HEAD = 16 - ((F::BYTES | 16) & ~((F::BYTES | 16) - 1)), WIDTH = (PIECE + HEAD + 15) / 16;
    // Eight rows side by side start in different banks: rows lie an odd number of 16 bytes apart, or twice that and after every four rows 16 bytes more.
    static constexpr bool TWICE = WIDTH % 4 == 2;
    static constexpr u32 PITCH = (TWICE ? WIDTH : WIDTH | 1) * 16;
    // X and decoded weights lie in tiles of 64 columns.
    static constexpr u32 X_TILE = Tiles::ROWS * SWIZZLED_ROW * sizeof(T), W_TILE = Tiles::COLUMNS * SWIZZLED_ROW * sizeof(T), X_BYTES = 2 * X_TILE, W_BYTES = 2 * W_TILE, X_STEPS = 3;
    static constexpr u32 PIECE_BYTES = Tiles::COLUMNS * PITCH + (TWICE ? Tiles::COLUMNS * 4 : 0);
    static constexpr u32 FIT = (Tiles::BYTES - 1024 - 2 * W_BYTES - X_STEPS * X_BYTES) / PIECE_BYTES, STAGES = FIT < 4 ? FIT : 4;
    static_assert(STAGES >= 1, "a piece");
    // Where in shared memory X is, and pieces of W; in front of them are decoded weights.
    static constexpr u32 X_AT = 2 * W_BYTES, PIECES_AT = X_AT + X_STEPS * X_BYTES;

    const GemmArgs& a;
    const Segment& own;
    u32 start, steps, unused;

    static DEVICE u32 head_of(const u8* from) { return HEAD ? static_cast<u32>(reinterpret_cast<u64>(from)) % 16 : 0; }
    static DEVICE u32 place(u32 row) { return PIECES_AT + row * PITCH + (TWICE ? row / 4 * 16 : 0); }
    // Rows that do not exist are like the last one.
    DEVICE const u8* row_of(u32 row) const {
        return static_cast<const u8*>(a.w) + (own.matrix * a.n + least(block_y() * Tiles::COLUMNS + row, a.n - 1)) * a.row_bytes + start / F::LEN * F::BYTES;
    }
    DEVICE u8* room() const { return shared<u8>() + unused; }

    DEVICE Blocks(const GemmArgs& a, const Segment& own) : a(a), own(own) {
        unused = keep((0 - shared_address(shared<T>())) % 1024);
        const u32 share = div_up(div_up(a.k, PIECE_COLUMNS), grid_z()) * PIECE_COLUMNS;
        start = least(a.k, block_z() * share);
        // At least one, of zeros where there are no columns: the compiler must not move sums between the last product and its end.
        steps = most(1u, div_up(least(share, a.k - start), DEPTH));
    }

    // A part of a row, 32 columns, from where its block lies, to four chunks of 16 bytes from `to` on.
    static DEVICE void decode(const u8* block, u32 part, u8* room, u32 to) {
        u32 codes[8];
        F::codes(block, part, codes);
        f32 scale[GROUPS], rest[GROUPS];
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            scale[g] = F::scale(block, part * GROUPS + g);
            rest[g] = -Code<F>::MORE * scale[g];
            if (F::OFFSETS) rest[g] += F::offset(block, part * GROUPS + g);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            Quad eight;
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const u32 g = (8 * i + 4 * j) / F::GROUP;
                const Pair four = narrow_weights<F>(codes[2 * i + j], scale[g], rest[g]);
                eight.w[2 * j] = four.w[0], eight.w[2 * j + 1] = four.w[1];
            }
            store16(room + (to ^ i * 16), eight);
        }
    }

    DEVICE void run() const {
        const u32 group = shuffle(warp() / 4, 0);
        if (group < Tiles::MULTIPLYING / (4 * WARP)) multiply(group * 64);
        else bring(thread() - Tiles::MULTIPLYING);
        put_rows<Tiles>(a, own);
    }

    DEVICE void multiply(u32 top) const {
        f32 acc[64];
#pragma unroll
        for (u32 i = 0; i < 64; i++) acc[i] = 0;
        const bool multiplies = top < own.end - own.first;
        const u64 x_operand = operand(room() + X_AT + top * SWIZZLED_ROW * sizeof(T)), w_operand = operand(room());
        u32 step = 0, slot = 0;
        sync_roles();
#pragma unroll 1
        do {
            // Now this step's operands are complete.
            sync_roles();
            if (multiplies) {
                const u64 x = x_operand + slot * (X_BYTES / 16), w = w_operand + step % 2 * (W_BYTES / 16);
                wgmma_fence();
#pragma unroll
                for (u32 k = 0; k < DEPTH / 16; k++) wgmma(acc, x + k / 4 * (X_TILE / 16) + k % 4 * 2, w + k / 4 * (W_TILE / 16) + k % 4 * 2, T());
                wgmma_commit();
            }
            slot = slot + 1 == X_STEPS ? 0 : slot + 1;
            // Where there is one piece, those who decode wait for the next.
            if (STAGES == 1 && step % STEPS == STEPS - 1) sync_roles();
            wgmma_wait<0>();
        } while (++step < steps);
        wgmma_finish(acc);
        // Results meet in shared memory, so that neighbouring threads write neighbouring columns.
        f32* y = shared<f32>() + (top + warp() % 4 * 16 + lane() / 4) * Y_PITCH<Tiles> + lane() % 4 * 2;
        sync_roles();
#pragma unroll
        for (u32 i = 0; i < 64; i++) y[i / 2 % 2 * 8 * Y_PITCH<Tiles> + i / 4 * 8 + i % 2] = acc[i];
    }

    DEVICE void bring(u32 id) const {
        // Four threads copy a row of W, and the one 64 rows below it.
        const u32 first = id % 4 * 16;
        const u8* from[2] = {row_of(id / 4), row_of(id / 4 + 64)};
        const u32 copy_to[2] = {place(id / 4) + first, place(id / 4 + 64) + first};
        u32 left = (a.k - start) / F::LEN * F::BYTES, copy_slot = 0;
        const auto copy_piece = [&] {
            if (left == 0) return;
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                const u32 head = head_of(from[r]), bytes = head + least(PIECE, left);
                u8* to = room() + copy_to[r] + copy_slot * PIECE_BYTES;
#pragma unroll
                for (u32 i = 0; i < WIDTH * 16; i += 64)
                    if (first + i < bytes) copy_async(to + i, from[r] - head + first + i);
                from[r] += PIECE;
            }
            left -= least(PIECE, left), copy_slot = copy_slot + 1 == STAGES ? 0 : copy_slot + 1;
        };
        // Sixteen threads copy a row of X; zeros instead of what is not there.
        const u32 row = id / 16, chunk = id % 16, rows = own.end - own.first > 64 ? 128 : 64;
        const u32 x_to = X_AT + chunk / 8 * X_TILE + swizzled(row, chunk % 8) * sizeof(T);
        const T* x = static_cast<const T*>(a.x) + static_cast<u64>(own.first + row) * a.k + start + chunk * 8;
        u32 column = start + chunk * 8, x_slot = 0;
        const auto copy_rows = [&](bool more) {
            if (more) {
                const T* next = x;
                const u64 further = static_cast<u64>(Tiles::DECODING / 16) * a.k;
#pragma unroll
                for (u32 r = 0; r < Tiles::ROWS; r += Tiles::DECODING / 16) {
                    if (r >= rows) break;
                    copy_async(room() + x_to + x_slot * X_BYTES + r * (SWIZZLED_ROW * sizeof(T)), next, own.first + row + r < own.end && column < a.k);
                    next += further;
                }
                x += DEPTH, column += DEPTH, x_slot = x_slot + 1 == X_STEPS ? 0 : x_slot + 1;
            }
            copy_commit();
        };
        // Four threads decode a row's columns of a step, and those 64 rows below. Of a quarter of a warp, four rows and two parts, each writes to other banks.
        const u32 mine = id / WARP * 8 + lane() / 16 * 4 + lane() / 2 % 4, quarter = lane() / 8 % 2 * 2 + lane() % 2;
        const u32 low[2] = {head_of(row_of(mine)), head_of(row_of(mine + 64))}, to = quarter / 2 * W_TILE + swizzled(mine, quarter % 2 * 4) * sizeof(T);
        const u32 pieces[2] = {place(mine), place(mine + 64)};
        u32 part = quarter, offset = start + quarter * 32, slot = 0, before = 0;
        const auto decode_step = [&](u32 at) {
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                u8* here = room() + at * W_BYTES + r * (64 * SWIZZLED_ROW * sizeof(T));
                if (offset < a.k) decode(room() + pieces[r] + slot * PIECE_BYTES + (HEAD ? (low[r] + before) % 16 : 0) + part / PER * F::BYTES, part % PER, here, to);
                else
#pragma unroll
                    for (u32 i = 0; i < 4; i++) store16(here + (to ^ i * 16), Quad{{0, 0, 0, 0}});
            }
            part += 4, offset += DEPTH;
            if (part >= 4 * STEPS) part = quarter, before += PIECE, slot = slot + 1 == STAGES ? 0 : slot + 1;
        };
        for (u32 i = 0; i < STAGES; i++) copy_piece();
        copy_rows(true);
        copy_rows(steps > 1);
        for (u32 step = 0;; step++) {
            copy_wait<1>();
            async_fence();
            // Now the step before this one is complete, and nobody reads the one before that any more.
            sync_roles();
            if (step > 0) {
                if (step % STEPS == 0) copy_piece();
                copy_rows(step + 1 < steps);
                if (STAGES == 1 && step % STEPS == 0) {
                    copy_wait<0>();
                    sync_roles();
                }
            }
            if (step == steps) break;
            decode_step(step % 2);
        }
        copy_wait<0>();
        sync_roles();
    }
};
template <class T, class F> DEVICE void gemm(const GemmArgs&, const Segment&, Blocks<T, WideBlocks, F> w, WideBlocks) { w.run(); }
#endif
