// The functions of wgmma.cuh on a CPU.
#pragma once

namespace emu {
// Of `wgmma`: 256 columns of this thread's sums, which arrive when it waits for them.
void multiply(f32 (&d)[128], u64 a, u64 b, f32 (*widen)(u16));
// Until at most n groups of this thread's products are under way.
void wait_for_products(u32 n);
}  // namespace emu

u32 shared_address(const void* p);
void async_fence();
void wgmma_fence();
void wgmma_commit();
template <int N> DEVICE void wgmma_wait() { emu::wait_for_products(N); }
template <class T> DEVICE void wgmma(f32 (&d)[128], u64 a, u64 b, T) {
    emu::multiply(d, a, b, [](u16 bits) { return to_f32(T{bits}); });
}
DEVICE void wgmma_finish(f32 (&)[128]) { wgmma_wait<0>(); }
