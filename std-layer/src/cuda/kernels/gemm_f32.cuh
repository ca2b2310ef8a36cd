// Matrix products in f32, without tensor cores. Before it there is gemm.cuh.
#pragma once

// A block has 32 x 32 of Y, and each of its threads 4 x 4 of these, every eighth row and column. Pieces of 32 columns of X and W lie in shared memory, one that is multiplied and two
// that arrive, in rows that are 16 bytes longer: what lanes read at a time, 16 bytes of up to eight rows, then lies in different banks.
struct Single {
    static constexpr u32 ROWS = 32, COLUMNS = 32, DEPTH = 32, STAGES = 3, THREADS = 64, PITCH = DEPTH + 4, SIZE = (ROWS + COLUMNS) * PITCH, EACH = 4, APART = 8;
    static DEVICE u32 slot(u32 row, u32 chunk) { return row * PITCH + chunk * 4; }
};

// Blocks of z share the columns of X and W, as in gemm.cuh.
DEVICE void gemm(const GemmArgs& a, const Segment& own, Single) {
    typedef Single Tiles;
    static constexpr u32 DEPTH = Tiles::DEPTH, PITCH = Tiles::PITCH, EACH = Tiles::EACH, APART = Tiles::APART;
    const f32 *x = static_cast<const f32*>(a.x), *w = static_cast<const f32*>(a.w) + static_cast<u64>(own.matrix) * a.n * a.k;
    const u32 share = div_up(div_up(a.k, DEPTH), grid_z()) * DEPTH, start = least(a.k, block_z() * share), steps = div_up(least(share, a.k - start), DEPTH);
    const u32 row = thread() / APART, column = thread() % APART;
    f32 acc[EACH][EACH], *room = shared<f32>();
#pragma unroll
    for (u32 i = 0; i < EACH; i++)
#pragma unroll
        for (u32 j = 0; j < EACH; j++) acc[i][j] = 0;
    const auto copy = [&](u32 step) {
        if (step < steps) {
            f32* to = room + step % Tiles::STAGES * Tiles::SIZE;
            fetch<Tiles, Tiles::ROWS>(to, x, own.first, own.end, start + step * DEPTH, a.k);
            fetch<Tiles, Tiles::COLUMNS>(to + Tiles::ROWS * PITCH, w, block_y() * Tiles::COLUMNS, a.n, start + step * DEPTH, a.k);
        }
        copy_commit();
    };
    copy(0);
    copy(1);
    for (u32 step = 0; step < steps; step++) {
        copy_wait<1>();
        // Now this piece is complete, and nobody reads the one before it any more.
        sync_block();
        copy(step + 2);
        const f32 *left = room + step % Tiles::STAGES * Tiles::SIZE + row * PITCH, *right = left + (Tiles::ROWS + column - row) * PITCH;
#pragma unroll
        for (u32 k = 0; k < DEPTH; k += 4) {
            Pack<f32> of_x[EACH], of_w[EACH];
#pragma unroll
            for (u32 i = 0; i < EACH; i++) of_x[i].quad = load16(left + i * APART * PITCH + k), of_w[i].quad = load16(right + i * APART * PITCH + k);
#pragma unroll
            for (u32 i = 0; i < EACH; i++)
#pragma unroll
                for (u32 j = 0; j < EACH; j++)
#pragma unroll
                    for (u32 c = 0; c < 4; c++) acc[i][j] = fmaf(of_x[i].at[c], of_w[j].at[c], acc[i][j]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < EACH; i++)
#pragma unroll
        for (u32 j = 0; j < EACH; j++) {
            const u32 m = own.first + row + i * APART, n = block_y() * Tiles::COLUMNS + column + j * APART;
            if (m < own.end && n < a.n) store_as(a.y, (static_cast<u64>(block_z()) * a.m + m) * a.n + n, acc[i][j], a.type);
        }
}
