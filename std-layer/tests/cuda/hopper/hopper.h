// The functions of wgmma.cuh on a CPU.
#pragma once

namespace emu {
// A product by `wgmma`: of all threads of a group the same, apart from what lanes have of the left operand themselves.
struct Product {
    u32 columns;
    bool add, held, turned;
    // Where the operands are; what lanes have of the left one as rows `lane / 4` and that + 8, if that is not in shared memory.
    u64 a, b;
    f32 left[2][16];
    // Whether operands are f16; else they are bf16.
    bool half;
    u32 group;
};
// Sums of this thread, which arrive when it waits for them.
void multiply(f32* d, const Product& product);
// Until at most n groups of this thread's products are under way.
void wait_for_products(u32 n);
}  // namespace emu

u32 shared_address(const void* p);
void async_fence();
void sync_roles();
void wgmma_fence();
void wgmma_commit();
template <int N> DEVICE void wgmma_wait() { emu::wait_for_products(N); }
template <class T, u32 N> DEVICE void wgmma(f32 (&d)[N], u64 a, u64 b, T, bool add = true) {
    emu::multiply(d, {2 * N, add, false, false, a, b, {}, std::is_same_v<T, f16>, 0});
}
template <bool TURNED, class T, u32 N> DEVICE void wgmma_held(f32 (&d)[N], const u32 (&a)[4], u64 b, T) {
    emu::Product product = {2 * N, true, true, TURNED, 0, b, {}, std::is_same_v<T, f16>, 0};
    const u32* all = emu::exchange_wave(32, a, 4);
    for (u32 i = 0; i < 16; i++)
        for (u32 h = 0; h < 2; h++) {
            const u32 two = all[(lane() / 4 * 4 + i % 8 / 2) * 4 + i / 8 * 2 + h];
            product.left[h][i] = to_f32(T{static_cast<u16>(two >> i % 2 * 16)});
        }
    emu::multiply(d, product);
}
template <u32 N> DEVICE void in_order(f32 (&)[N]) {}
template <int N = 0, u32 M> DEVICE void wgmma_finish(f32 (&)[M]) { wgmma_wait<N>(); }
