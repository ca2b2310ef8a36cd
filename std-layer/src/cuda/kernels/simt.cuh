// What kernels are written with. Compiled by nvcc each function is an instruction or two; the tests compile
// the same kernels with a C++ compiler, and emulator.h defines the same functions for the CPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;

// Storage types; arithmetic is in f32.
typedef float f32;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
// 16 bytes, moved as one.
struct alignas(16) Quad { u32 w[4]; };
struct alignas(8) Pair { u32 w[2]; };

#ifdef __CUDACC__

#define DEVICE __device__ __forceinline__
#define TABLE static __device__ const

// What the kernels before this one write is there from here on, and once all blocks have come here, the kernel behind this one starts. Without the launch's
// consent, which `Stream::overlap` gives, and before compute capability 9.0, kernels start when those before them are done.
#if __CUDA_ARCH__ >= 900
DEVICE void wait_for_inputs() { asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEVICE void wait_for_inputs() {}
#endif

// KERNEL(name, Args, most threads of a block) { body, in which `a` are the arguments }
// KERNEL_EARLY(name, Args, most threads of a block) { the same }
//
// The body of the second calls `wait_for_inputs`, every thread of it before it ends: what comes before that may run while the kernels before this one do. It may read
// what no kernel writes, as weights, and writes nothing but shared memory.
#define KERNEL_EARLY(NAME, ARGS, THREADS) extern "C" __global__ void __launch_bounds__(THREADS) NAME(const __grid_constant__ ARGS a)

DEVICE u32 thread() { return threadIdx.x; }
DEVICE u32 threads() { return blockDim.x; }
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE u32 grid_x() { return gridDim.x; }
DEVICE u32 grid_y() { return gridDim.y; }
DEVICE u32 grid_z() { return gridDim.z; }

// Memory that the threads of a block share, as much as the launch asked for.
template <class T> DEVICE T* shared() {
    extern __shared__ Quad shared_memory[];
    return reinterpret_cast<T*>(shared_memory);
}
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }

DEVICE f32 shuffle(f32 v, u32 lane) { return __shfl_sync(~0u, v, lane); }
DEVICE u32 shuffle(u32 v, u32 lane) { return __shfl_sync(~0u, v, lane); }
DEVICE f32 shuffle_xor(f32 v, u32 mask) { return __shfl_xor_sync(~0u, v, mask); }
DEVICE u32 shuffle_xor(u32 v, u32 mask) { return __shfl_xor_sync(~0u, v, mask); }
DEVICE u32 atomic_add(u32* p, u32 v) { return atomicAdd(p, v); }

DEVICE f32 to_f32(f32 x) { return x; }
DEVICE f32 to_f32(f16 x) { f32 y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
DEVICE f32 to_f32(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
DEVICE u32 bits_of(f32 x) { return __float_as_uint(x); }
DEVICE f32 from_bits(u32 x) { return __uint_as_float(x); }
DEVICE void narrow(f16& y, f32 x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#if __CUDA_ARCH__ >= 800
DEVICE void narrow(bf16& y, f32 x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
#define NARROWS_BF16
#endif

DEVICE f32 exp2_fast(f32 x) { f32 y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
// Within 2 ulp, for all there is.
DEVICE f32 divide(f32 a, f32 b) { f32 y; asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
DEVICE f32 mul_rn(f32 a, f32 b) { return __fmul_rn(a, b); }
DEVICE f32 add_rn(f32 a, f32 b) { return __fadd_rn(a, b); }
DEVICE u32 mul_high(u32 a, u32 b) { return __umulhi(a, b); }
// The lowest 32 bits of (high:low) >> by, by < 32.
DEVICE u32 funnel(u32 low, u32 high, u32 by) { return __funnelshift_r(low, high, by); }
// Four bytes of the eight (b:a), chosen by the digits of `pick`.
DEVICE u32 permute(u32 a, u32 b, u32 pick) { return __byte_perm(a, b, pick); }
// c plus four products of signed bytes.
DEVICE i32 dot4(u32 a, u32 b, i32 c) { return __dp4a(static_cast<i32>(a), static_cast<i32>(b), c); }
DEVICE u32 bits_set(u32 x) { return __popc(x); }
// x, which the compiler then keeps in a register instead of computing it again.
DEVICE u32 keep(u32 x) { asm volatile("" : "+r"(x)); return x; }
DEVICE const u8* keep(const u8* x) { asm volatile("" : "+l"(x)); return x; }
// Bytes with their signs, a - b of each.
DEVICE u32 sub4(u32 a, u32 b) { return __vsub4(a, b); }

// 16 bytes that will not be read again soon, or will.
DEVICE Quad load_once(const void* p) {
    Quad q;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(q.w[0]), "=r"(q.w[1]), "=r"(q.w[2]), "=r"(q.w[3]) : "l"(p));
    return q;
}
DEVICE Quad load16(const void* p) { return *static_cast<const Quad*>(p); }
DEVICE void store16(void* p, const Quad& q) { *static_cast<Quad*>(p) = q; }

// 16 bytes from global to shared memory while the thread goes on, in groups that can be waited for.
#if __CUDA_ARCH__ >= 800
DEVICE void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}
// The same; zeros, if it is not there.
DEVICE void copy_async(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(to))), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// Four bytes, likewise.
DEVICE void copy_word(void* to, const void* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(to))), "l"(from), "r"(there ? 4 : 0) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most N groups of this thread are under way.
template <int N> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#else
DEVICE void copy_async(void* to, const void* from) { store16(to, load16(from)); }
DEVICE void copy_async(void* to, const void* from, bool there) { store16(to, there ? load16(from) : Quad{{0, 0, 0, 0}}); }
DEVICE void copy_commit() {}
template <int N> DEVICE void copy_wait() {}
#endif

#else
#include "emulator.h"
#endif

// KERNEL: one that waits at once.
#ifndef KERNEL
#define KERNEL(NAME, ARGS, THREADS)          \
    DEVICE void NAME##_waits(const ARGS& a); \
    KERNEL_EARLY(NAME, ARGS, THREADS) {      \
        wait_for_inputs();                   \
        NAME##_waits(a);                     \
    }                                        \
    DEVICE void NAME##_waits(const ARGS& a)
#endif

#ifndef NARROWS_BF16
// To nearest even; NaNs stay quiet NaNs.
DEVICE void narrow(bf16& y, f32 x) {
    u32 b = bits_of(x);
    y.bits = static_cast<u16>((b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 64 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}
#endif
DEVICE void narrow(f32& y, f32 x) { y = x; }
template <class T> DEVICE T from_f32(f32 x) { T y; narrow(y, x); return y; }

DEVICE Pair load_pair(const void* p) { return *static_cast<const Pair*>(p); }
DEVICE void store_pair(void* p, const Pair& q) { *static_cast<Pair*>(p) = q; }

static constexpr u32 WARP = 32;
DEVICE u32 lane() { return thread() % WARP; }
DEVICE u32 warp() { return thread() / WARP; }

DEVICE u32 div_up(u32 a, u32 b) { return (a + b - 1) / b; }
template <class T> DEVICE T least(T a, T b) { return a < b ? a : b; }
template <class T> DEVICE T most(T a, T b) { return a > b ? a : b; }
DEVICE f32 exp_fast(f32 x) { return exp2_fast(x * 1.44269504f); }

struct Add { DEVICE f32 operator()(f32 a, f32 b) const { return a + b; } static constexpr f32 none = 0; };
struct Max { DEVICE f32 operator()(f32 a, f32 b) const { return a < b ? b : a; } static constexpr f32 none = -3.402823466e38f; };

// Over the lanes of a warp; every lane gets the result.
template <class Op> DEVICE f32 warp_reduce(f32 v) {
    for (u32 m = WARP / 2; m > 0; m /= 2) v = Op()(v, shuffle_xor(v, m));
    return v;
}
// The sums over the lanes of a warp of N numbers each, N a power of two up to 32: lane l gets that of number l / (32 / N), with the bits of `warp_reduce`. Of the numbers
// that it still has, a lane gives half away, and takes what another one has of the rest: N - 1 exchanges and a few instead of 5 N.
template <u32 N, u32 M = WARP / 2> DEVICE f32 warp_sums(const f32 (&v)[N]) {
    if constexpr (N == 1) {
        f32 sum = v[0];
        for (u32 m = M; m > 0; m /= 2) sum += shuffle_xor(sum, m);
        return sum;
    } else {
        f32 sums[N / 2];
        const bool upper = lane() & M;
#pragma unroll
        for (u32 i = 0; i < N / 2; i++) {
            const f32 low = v[i], high = v[i + N / 2];
            sums[i] = (upper ? high : low) + shuffle_xor(upper ? low : high, M);
        }
        return warp_sums<N / 2, M / 2>(sums);
    }
}
// Over the threads of a block; `room` has 32 numbers of shared memory, which may be used again at once.
template <class Op> DEVICE f32 block_reduce(f32 v, f32* room) {
    v = warp_reduce<Op>(v);
    if (lane() == 0) room[warp()] = v;
    sync_block();
    v = warp_reduce<Op>(lane() < threads() / WARP ? room[lane()] : Op::none);
    sync_block();
    return v;
}

// 16 bytes as numbers.
template <class T> struct Pack {
    static constexpr u32 N = 16 / sizeof(T);
    union { Quad quad; T at[N]; };
};
template <class T> DEVICE void load_pack(f32 (&x)[16 / sizeof(T)], const T* p) {
    Pack<T> pack;
    pack.quad = load16(p);
    for (u32 i = 0; i < pack.N; i++) x[i] = to_f32(pack.at[i]);
}
template <class T> DEVICE void store_pack(T* p, const f32 (&x)[16 / sizeof(T)]) {
    Pack<T> pack;
    for (u32 i = 0; i < pack.N; i++) pack.at[i] = from_f32<T>(x[i]);
    store16(p, pack.quad);
}

// Storage types as numbers, for kernels to which they make little difference.
enum Type : u32 { TYPE_F32, TYPE_F16, TYPE_BF16 };
DEVICE f32 load_as(const void* p, u64 i, u32 type) {
    if (type == TYPE_F32) return static_cast<const f32*>(p)[i];
    u16 bits = static_cast<const u16*>(p)[i];
    return type == TYPE_F16 ? to_f32(f16{bits}) : to_f32(bf16{bits});
}
// Eight at once, all on the way together.
DEVICE void load8_as(f32 (&x)[8], const void* p, u64 i, u32 type) {
    if (type == TYPE_F32) {
        for (u32 k = 0; k < 8; k++) x[k] = static_cast<const f32*>(p)[i + k];
        return;
    }
    u16 bits[8];
    for (u32 k = 0; k < 8; k++) bits[k] = static_cast<const u16*>(p)[i + k];
    for (u32 k = 0; k < 8; k++) x[k] = type == TYPE_F16 ? to_f32(f16{bits[k]}) : to_f32(bf16{bits[k]});
}
DEVICE void store_as(void* p, u64 i, f32 x, u32 type) {
    if (type == TYPE_F32) static_cast<f32*>(p)[i] = x;
    else if (type == TYPE_F16) static_cast<f16*>(p)[i] = from_f32<f16>(x);
    else static_cast<bf16*>(p)[i] = from_f32<bf16>(x);
}
// Four at once; `i` is a multiple of 4.
DEVICE void store4_as(void* p, u64 i, const f32 (&x)[4], u32 type) {
    if (type == TYPE_F32) return store_pack(static_cast<f32*>(p) + i, x);
    struct alignas(8) Four { u16 at[4]; } four;
    for (u32 k = 0; k < 4; k++) four.at[k] = type == TYPE_F16 ? from_f32<f16>(x[k]).bits : from_f32<bf16>(x[k]).bits;
    *reinterpret_cast<Four*>(static_cast<u16*>(p) + i) = four;
}
