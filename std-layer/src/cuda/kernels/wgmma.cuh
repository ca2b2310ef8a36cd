// Products of large matrices in shared memory on the tensor cores of compute capability 9.0: `wgmma`. Machine code that has it is for 9.0 alone (sm_90a).
#pragma once

#include "simt.cuh"

// Operands are rows of 64 numbers of 16 bits, 128 bytes, which start at a multiple of 1024 bytes; the eight chunks of 16 bytes of a row change places: that of
// chunk c of row r is c ^ r % 8 (swizzling of 128 bytes). Then eight rows of a chunk lie in different banks.
static constexpr u32 SWIZZLED_ROW = 64;
DEVICE u32 swizzled(u32 row, u32 chunk) { return row * SWIZZLED_ROW + (chunk ^ row % 8) * 8; }

#ifndef __CUDACC__
#include "hopper.h"
#define HAS_WGMMA
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA
DEVICE u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
// Before a barrier behind which `wgmma` reads what this thread has written or waited for.
DEVICE void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Before the first product, and between any other use of sums and the next product.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Products are done in groups, which can be waited for.
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most N groups of this warp are under way.
template <int N> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// A barrier of the block at which its warps may come from several places.
DEVICE void sync_roles() { asm volatile("barrier.sync 0;" ::: "memory"); }

#define SUMS4(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
#define SUMS16(I) SUMS4(I), SUMS4(I + 4), SUMS4(I + 8), SUMS4(I + 12)
#define SUMS32 SUMS16(0), SUMS16(16)
#define SUMS64 SUMS32, SUMS16(32), SUMS16(48)
#define SUMS128 SUMS64, SUMS16(64), SUMS16(80), SUMS16(96), SUMS16(112)
#define LIST32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LIST64 \
    LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63"
#define LIST128 \
    LIST64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, " \
    "%91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, " \
    "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// d += a b, for the four warps of a group together; without `add`, d = a b. Warp w, lane 4 g + t has in d[4 j + 2 i + c] row 16 w + 8 i + g, column
// 8 j + 2 t + c. The sums are not there before they have been waited for, and must not be touched; nor must what is multiplied.
// `wgmma`: a is 64 x 16, b COLUMNS x 16, both by rows. `wgmma_held`: of its 16 rows of a a warp has what `mma` takes, and if TURNED b is 16 x COLUMNS, by rows.
#define WGMMA_OF(T, NAME, COLUMNS, COUNT, A, B, C, D, E, F)                                                                            \
    DEVICE void wgmma(f32 (&d)[COUNT], u64 a, u64 b, T, bool add = true) {                                                            \
        asm volatile("{ .reg .pred add; setp.ne.u32 add, " C ", 0; wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME \
                     " {" LIST##COUNT "}, " A ", " B ", add, 1, 1, 0, 0; }"                                                           \
            : SUMS##COUNT : "l"(a), "l"(b), "r"(static_cast<u32>(add)) : "memory");                                                   \
    }                                                                                                                                 \
    template <bool TURNED> DEVICE void wgmma_held(f32 (&d)[COUNT], const u32 (&a)[4], u64 b, T) {                                     \
        asm volatile("{ .reg .pred add; setp.eq.u32 add, 0, 0; wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME   \
                     " {" LIST##COUNT "}, {" A ", " B ", " C ", " D "}, " E ", add, 1, 1, " F "; }"                                   \
            : SUMS##COUNT : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TURNED ? 1 : 0) : "memory");                      \
    }
// `wgmma_finish` waits until at most N groups are under way; from here on sums of the others can be used. `in_order` says that what has been made of sums is made
// before what comes next: else the compiler moves it behind a wait for other sums.
#define WGMMA(COLUMNS, COUNT, ...)                       \
    WGMMA_OF(f16, "f16", COLUMNS, COUNT, __VA_ARGS__)    \
    WGMMA_OF(bf16, "bf16", COLUMNS, COUNT, __VA_ARGS__)  \
    DEVICE void in_order(f32 (&d)[COUNT]) { asm volatile("" : SUMS##COUNT::"memory"); } \
    template <int N = 0> DEVICE void wgmma_finish(f32 (&d)[COUNT]) { \
        wgmma_wait<N>();                                 \
        in_order(d);                                     \
    }
WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")
#endif

#ifdef HAS_WGMMA
// What `wgmma` is told of an operand, from a multiple of 16 columns on: its address, swizzling of 128 bytes (1 << 62), and how far eight rows are from the next
// eight. The distance between pieces of a row, 1, means nothing here, as there is one.
DEVICE u64 operand(const void* first) {
    return static_cast<u64>(1) << 62 | static_cast<u64>(8 * SWIZZLED_ROW * 2 >> 4) << 32 | 1 << 16 | (shared_address(first) & 0x3ffff) >> 4;
}
// The same for b that is turned, from a multiple of 16 of its rows on: 64 columns lie as a row, and the next 64 of all rows are `further` bytes behind.
DEVICE u64 turned_operand(const void* first, u32 further) {
    return static_cast<u64>(1) << 62 | static_cast<u64>(8 * SWIZZLED_ROW * 2 >> 4) << 32 | static_cast<u64>(further >> 4) << 16 | (shared_address(first) & 0x3ffff) >> 4;
}
#endif
