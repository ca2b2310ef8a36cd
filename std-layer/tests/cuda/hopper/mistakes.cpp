// A product by `wgmma`, and all that can be wrong with one: the emulator has to notice each mistake.
#include "wgmma.cuh"

#include "fibers.h"

enum Mistake : u32 {
    NONE, NO_ASYNC_FENCE, NO_BARRIER, NO_FENCE, NO_FENCE_AGAIN, NO_COMMIT, NO_WAIT, OVERWRITTEN, NOT_SWIZZLED, NOT_ALIGNED, TOO_FAR, OTHER_SWIZZLING, OTHER_STRIDE, OTHER_OPERANDS,
    MISTAKES,
};
struct MistakeArgs { const bf16* x; const bf16* w; f32* y; Mistake made; };

// Y = X W^T twice, 64 x 256 with a depth of 64; twice that is added up.
KERNEL(wgmma_mistakes, MistakeArgs, 128) {
    const auto is = [&](Mistake m) { return a.made == m; };
    bf16* room = shared<bf16>() + (0 - shared_address(shared<bf16>())) % 1024 / 2 + (is(NOT_ALIGNED) ? 64 : 0);
    bf16 *left = room, *right = room + 64 * SWIZZLED_ROW;
    const auto write = [&](bf16* to, const bf16* from, u32 rows) {
        for (u32 i = thread(); i < rows * 8; i += 128) store16(to + (is(NOT_SWIZZLED) ? i * 8 : swizzled(i / 8, i % 8)), load16(from + i * 8));
    };
    write(left, a.x, 64);
    write(right, a.w, 256);
    if (!is(NO_ASYNC_FENCE)) async_fence();
    if (!is(NO_BARRIER)) sync_block();
    f32 acc[128] = {};
    for (u32 pass = 0; pass < 2; pass++) {
        if (!is(pass ? NO_FENCE_AGAIN : NO_FENCE)) wgmma_fence();
        for (u32 k = 0; k < 64; k += 16) {
            u64 x = operand(left + k), w = operand(right + k);
            if (is(TOO_FAR)) w += 1 << 12;
            if (is(OTHER_SWIZZLING)) w ^= static_cast<u64>(3) << 62;
            if (is(OTHER_STRIDE)) w += static_cast<u64>(8) << 32;
            if (is(OTHER_OPERANDS) && warp() == 2) x = operand(left);
            wgmma(acc, x, w, bf16());
        }
        if (!is(NO_COMMIT)) wgmma_commit();
        if (is(OVERWRITTEN) && pass) store16(left + swizzled(thread() / 2, thread() % 2), load16(a.w));
        if (!is(NO_WAIT)) wgmma_wait<0>();
    }
    for (u32 i = 0; i < 128; i++)
        a.y[(warp() * 16 + i / 2 % 2 * 8 + lane() / 4) * 256 + i / 4 * 8 + lane() % 4 * 2 + i % 2] = acc[i];
}

// Whether all is right without a mistake, and the mistake is noticed: that many are there.
extern "C" __attribute__((visibility("default"))) int emu_mistakes(const char*) {
    alignas(16) static bf16 x[64 * 64], w[256 * 64];
    static f32 y[64 * 256];
    alignas(1024) static u8 memory[16 + 1024 + 1024 + (64 + 256) * 128];
    const auto small = [](u32 i) { return from_f32<bf16>(static_cast<f32>(i * 2654435761u >> 28) - 8); };
    for (u32 i = 0; i < 64 * 64; i++) x[i] = small(i);
    for (u32 i = 0; i < 256 * 64; i++) w[i] = small(i + 77);
    int noticed = 0;
    for (u32 made = NONE; made < MISTAKES; made++) {
        const MistakeArgs args = {x, w, y, static_cast<Mistake>(made)};
        emu::running = &emu_wgmma_mistakes;
        emu::arguments = &args;
        emu::failure = nullptr;
        emu::now = {{0, 0, 0}, {1, 1, 1}, 128, sizeof memory - 16, memory + 16};
        memset(memory, 0xff, sizeof memory);
        emu::run_block(made % 2);
        emu::running = nullptr;
        bool right = !emu::failure;
        for (u32 m = 0; m < 64 && right; m++)
            for (u32 n = 0; n < 256; n++) {
                f32 sum = 0;
                for (u32 k = 0; k < 64; k++) sum += 2 * to_f32(x[m * 64 + k]) * to_f32(w[n * 64 + k]);
                right &= y[m * 256 + n] == sum;
            }
        if (right != (made == NONE)) return -static_cast<int>(made) - 1;
        noticed += made != NONE;
    }
    return noticed;
}
