// Matrix products with weights in blocks by `wgmma`: a block decodes what it multiplies once for up to 128 rows of X.
#pragma once

#include "few.cuh"
#include "wgmma.cuh"

#ifdef HAS_WGMMA
// A block has 128 x 256 of Y, each of its four groups of four warps 64 x 128. It multiplies 64 columns of X and W at a time, a step.
// In BYTES of shared memory are decoded weights of two steps, X of three, and pieces of W as it is stored.
struct WideBlocks {
    static constexpr u32 ROWS = 128, COLUMNS = 256, DEPTH = SWIZZLED_ROW, THREADS = 512, BYTES = 227 << 10;
};

// Weights in blocks of format F, times X in bf16. While tensor cores multiply a step, threads decode the next one, 32 columns of a row each.
template <class F> struct Blocks<bf16, WideBlocks, F> {
    typedef WideBlocks Tiles;
    typedef bf16 T;
    static constexpr u32 DEPTH = Tiles::DEPTH, PER = F::LEN / 32, GROUPS = 32 / F::GROUP;
    // Of a row, a piece has a whole number of blocks.
    static constexpr u32 PIECE_COLUMNS = F::LEN < 128 ? 128 : F::LEN, STEPS = PIECE_COLUMNS / DEPTH, PIECE = PIECE_COLUMNS / F::LEN * F::BYTES;
    // Copies start at multiples of 16 bytes, up to HEAD bytes before the piece.
    static constexpr u32 HEAD = 16 - ((F::BYTES | 16) & ~((F::BYTES | 16) - 1)), WIDTH = (PIECE + HEAD + 15) / 16;
    // Eight rows side by side start in different banks: rows lie an odd number of 16 bytes apart, or twice that and after every four rows 16 bytes more.
    static constexpr bool TWICE = WIDTH % 4 == 2;
    static constexpr u32 PITCH = (TWICE ? WIDTH : WIDTH | 1) * 16;
    static constexpr u32 X_BYTES = Tiles::ROWS * DEPTH * sizeof(T), W_BYTES = Tiles::COLUMNS * DEPTH * sizeof(T), X_STEPS = 3;
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
                f32 v[4];
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    const f32 code = Code<F>::number(codes[2 * i + j], k);
                    v[k] = Code<F>::POSITIVE ? fmaf(code, scale[g], rest[g]) : (code - Code<F>::MORE) * scale[g];
                }
                eight.w[2 * j] = narrow2(v[0], v[1], T()), eight.w[2 * j + 1] = narrow2(v[2], v[3], T());
            }
            store16(room + (to ^ i * 16), eight);
        }
    }

    DEVICE void run() const {
        // Groups of warps have 64 rows of X each, and half of the columns; those without rows only decode.
        const u32 group = shuffle(warp() / 4, 0), top = group % 2 * 64, left = group / 2 * 128;
        const bool multiplies = top < own.end - own.first, tall = own.end - own.first > 64;

        // Four threads copy a row of W.
        const u32 all = (a.k - start) / F::LEN * F::BYTES;
        const u8* rows[2] = {row_of(thread() / 4), row_of(thread() / 4 + Tiles::THREADS / 4)};
        const u32 row_at[2] = {place(thread() / 4), place(thread() / 4 + Tiles::THREADS / 4)};
        u32 copied = 0, copy_slot = 0;
        const auto copy_piece = [&] {
            if (copied >= all) return;
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                const u8* from = rows[r] + copied;
                const u32 head = head_of(from), bytes = head + least(PIECE, all - copied), first = thread() % 4 * 16;
                u8* to = room() + row_at[r] + copy_slot * PIECE_BYTES + first;
#pragma unroll
                for (u32 i = 0; i < WIDTH * 16; i += 64)
                    if (first + i < bytes) copy_async(to + i, from - head + first + i);
            }
            copied += PIECE, copy_slot = copy_slot + 1 == STAGES ? 0 : copy_slot + 1;
        };
        // Eight threads copy a row of X; zeros instead of what is not there.
        const u32 row = thread() / 8, chunk = thread() % 8;
        const T* x = static_cast<const T*>(a.x) + static_cast<u64>(own.first + row) * a.k + start + chunk * 8;
        const bool there[2] = {own.first + row < own.end, own.first + row + 64 < own.end};
        u32 column = start + chunk * 8, x_slot = 0;
        const auto copy_rows = [&](bool more) {
            if (more) {
                u8* to = room() + X_AT + x_slot * X_BYTES + swizzled(row, chunk) * sizeof(T);
                copy_async(to, x, there[0] && column < a.k);
                if (tall) copy_async(to + X_BYTES / 2, x + static_cast<u64>(64) * a.k, there[1] && column < a.k);
                x += DEPTH, column += DEPTH, x_slot = x_slot + 1 == X_STEPS ? 0 : x_slot + 1;
            }
            copy_commit();
        };
        // Two threads decode a row's columns of a step.
        const u32 half = thread() % 2, own_row = thread() / 2, low = head_of(row_of(own_row)), to = swizzled(own_row, half * 4) * sizeof(T);
        const u8* piece = room() + place(own_row);
        u32 part = half, offset = start + half * 32, slot = 0, before = 0;
        const auto decode_step = [&](u32 at) {
            if (offset < a.k) decode(piece + slot * PIECE_BYTES + (HEAD ? (low + before) % 16 : 0) + part / PER * F::BYTES, part % PER, room() + at * W_BYTES, to);
            else
#pragma unroll
                for (u32 i = 0; i < 4; i++) store16(room() + at * W_BYTES + (to ^ i * 16), Quad{{0, 0, 0, 0}});
            part += 2, offset += DEPTH;
            if (part >= 2 * STEPS) part = half, before += PIECE, slot = slot + 1 == STAGES ? 0 : slot + 1;
        };

        for (u32 i = 0; i < STAGES; i++) copy_piece();
        copy_rows(true);
        copy_rows(steps > 1);
        f32 acc[64];
#pragma unroll
        for (u32 i = 0; i < 64; i++) acc[i] = 0;
        copy_wait<1>();
        sync_block();
        decode_step(0);
        const u64 x_operand = operand(room() + X_AT + top * DEPTH * sizeof(T)), w_operand = operand(room() + left * DEPTH * sizeof(T));
        u32 step = 0, x_now = 0;
        do {
            copy_wait<1>();
            async_fence();
            // Now this step's operands are complete, and nobody reads those of the one before it any more.
            sync_block();
            if (multiplies) {
                const u64 of_x = x_operand + x_now * (X_BYTES / 16), of_w = w_operand + step % 2 * (W_BYTES / 16);
                wgmma_fence();
#pragma unroll
                for (u32 k = 0; k < DEPTH / 16; k++) wgmma(acc, of_x + 2 * k, of_w + 2 * k, T());
                wgmma_commit();
            }
            x_now = x_now + 1 == X_STEPS ? 0 : x_now + 1;
            // A piece is decoded a step before it is multiplied.
            if (step % STEPS == STEPS - 1) copy_piece();
            copy_rows(step + 2 < steps);
            if (STAGES == 1 && step % STEPS == STEPS - 1) {
                copy_wait<0>();
                sync_block();
            }
            if (step + 1 < steps) decode_step((step + 1) % 2);
            wgmma_wait<0>();
        } while (++step < steps);
        wgmma_finish(acc);
        // Results meet in shared memory, so that neighbouring threads write neighbouring columns.
        f32* y = shared<f32>() + (top + warp() % 4 * 16 + lane() / 4) * Y_PITCH<Tiles> + left + lane() % 4 * 2;
        copy_wait<0>();
        sync_block();
#pragma unroll
        for (u32 i = 0; i < 64; i++) y[i / 2 % 2 * 8 * Y_PITCH<Tiles> + i / 4 * 8 + i % 2] = acc[i];
        put_rows<Tiles>(a, own);
    }
};
template <class T, class F> DEVICE void gemm(const GemmArgs&, const Segment&, Blocks<T, WideBlocks, F> w, WideBlocks) { w.run(); }
#endif
