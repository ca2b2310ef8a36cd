// The functions of simt.cuh on GPUs of AMD's, in clang's HIP without any of its headers. Waves have 32 lanes, or 64 in the family gfx9: then a
// wave is two of the warps that kernels are written with, of which one may have ended or stand still while the other works.
#pragma once

#define DEVICE __attribute__((device, always_inline)) inline
#define TABLE static __attribute__((device)) const

// Kernels start when those before them are done.
DEVICE void wait_for_inputs() {}
#define KERNEL_EARLY(NAME, ARGS, THREADS) \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(32, THREADS))) void NAME(const ARGS a)
#define KERNEL KERNEL_EARLY

// What the packet that started a kernel says, as HSA lays it out: threads of a block, and threads of the grid.
struct Dispatch {
    u16 header, setup, threads[3], reserved;
    u32 grid[3];
};
DEVICE const __attribute__((address_space(4))) Dispatch* dispatch() {
    return (const __attribute__((address_space(4))) Dispatch*)__builtin_amdgcn_dispatch_ptr();
}
DEVICE u32 thread() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 threads() { return dispatch()->threads[0]; }
DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }
DEVICE u32 grid_x() { return dispatch()->grid[0] / threads(); }
// Blocks have one thread in these directions.
DEVICE u32 grid_y() { return dispatch()->grid[1]; }
DEVICE u32 grid_z() { return dispatch()->grid[2]; }

extern __attribute__((shared)) Quad shared_memory[];
template <class T> DEVICE T* shared() { return reinterpret_cast<T*>(shared_memory); }
DEVICE void sync_block() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Lanes go together: what one of them wrote is there for all once the compiler keeps the order.
DEVICE void sync_warp() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

DEVICE u32 bits_of(f32 x) { return __builtin_bit_cast(u32, x); }
DEVICE f32 from_bits(u32 x) { return __builtin_bit_cast(f32, x); }
// What a lane of the wave has; `lane` counts modulo 64 or 32, as many as there are.
DEVICE u32 from_wave(u32 v, u32 lane) { return static_cast<u32>(__builtin_amdgcn_ds_bpermute(static_cast<i32>(lane * 4), static_cast<i32>(v))); }
#ifdef __GFX9__
static constexpr u32 LANES = 64;
// Which lanes of the warp say so.
DEVICE u32 lanes_of(bool yes) { return static_cast<u32>(__builtin_amdgcn_ballot_w64(yes) >> (thread() & 32)); }
#else
static constexpr u32 LANES = 32;
DEVICE u32 lanes_of(bool yes) { return __builtin_amdgcn_ballot_w32(yes); }
#endif
// `lane` counts modulo 32, within the warp.
DEVICE u32 shuffle(u32 v, u32 lane) { return from_wave(v, (thread() & (LANES - 32)) | lane % 32); }
DEVICE f32 shuffle(f32 v, u32 lane) { return from_bits(shuffle(bits_of(v), lane)); }
DEVICE u32 shuffle_xor(u32 v, u32 mask) { return from_wave(v, thread() ^ mask); }
DEVICE f32 shuffle_xor(f32 v, u32 mask) { return from_bits(shuffle_xor(bits_of(v), mask)); }
DEVICE u32 atomic_add(u32* p, u32 v) { return __scoped_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); }

DEVICE f32 to_f32(f32 x) { return x; }
DEVICE f32 to_f32(f16 x) { return static_cast<f32>(__builtin_bit_cast(_Float16, x.bits)); }
DEVICE f32 to_f32(bf16 x) { return from_bits(static_cast<u32>(x.bits) << 16); }
DEVICE void narrow(f16& y, f32 x) { y.bits = __builtin_bit_cast(u16, static_cast<_Float16>(x)); }

DEVICE f32 exp2_fast(f32 x) { return __builtin_amdgcn_exp2f(x); }
DEVICE f32 divide(f32 a, f32 b) { return a / b; }
DEVICE f32 mul_rn(f32 a, f32 b) {
#pragma clang fp contract(off)
    return a * b;
}
DEVICE f32 add_rn(f32 a, f32 b) {
#pragma clang fp contract(off)
    return a + b;
}
DEVICE u32 mul_high(u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }
DEVICE u32 funnel(u32 low, u32 high, u32 by) { return __builtin_amdgcn_alignbit(high, low, by); }
// Digits of `pick` are 0 to 7 here; v_perm takes them as bytes.
DEVICE u32 permute(u32 a, u32 b, u32 pick) {
    const u32 wide = ((pick & 0xf000) << 12 | (pick & 0xf00) << 8 | (pick & 0xf0) << 4 | (pick & 0xf)) & 0x07070707;
    return __builtin_amdgcn_perm(b, a, wide);
}
#if defined(__GFX11__) || defined(__GFX12__)
DEVICE i32 dot4(u32 a, u32 b, i32 c) { return __builtin_amdgcn_sudot4(true, static_cast<i32>(a), true, static_cast<i32>(b), c, false); }
#else
DEVICE i32 dot4(u32 a, u32 b, i32 c) { return __builtin_amdgcn_sdot4(static_cast<i32>(a), static_cast<i32>(b), c, false); }
#endif
DEVICE u32 bits_set(u32 x) { return static_cast<u32>(__builtin_popcount(x)); }
DEVICE u32 keep(u32 x) { return x; }
DEVICE const u8* keep(const u8* x) { return x; }
// Bytes with their signs, a - b of each.
DEVICE u32 sub4(u32 a, u32 b) { return ((a | 0x80808080) - (b & 0x7f7f7f7f)) ^ ((a ^ ~b) & 0x80808080); }

DEVICE f32 fmaf(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
DEVICE f32 fabsf(f32 x) { return __builtin_fabsf(x); }
DEVICE f32 rintf(f32 x) { return __builtin_rintf(x); }
DEVICE f32 sqrtf(f32 x) { return __builtin_sqrtf(x); }

// 16 bytes that will not be read again soon, or will.
typedef u32 Words __attribute__((ext_vector_type(4)));
DEVICE Quad load_once(const void* p) {
    const Words w = __builtin_nontemporal_load(static_cast<const Words*>(p));
    return Quad{{w.x, w.y, w.z, w.w}};
}
DEVICE Quad load16(const void* p) { return *static_cast<const Quad*>(p); }
DEVICE void store16(void* p, const Quad& q) { *static_cast<Quad*>(p) = q; }
// These GPUs copy to shared memory through registers.
DEVICE void copy_async(void* to, const void* from) { store16(to, load16(from)); }
DEVICE void copy_commit() {}
template <int N> DEVICE void copy_wait() {}

// e^x within 2 ulp: v_exp takes powers of 2.
DEVICE f32 exp_near(f32 x) {
    const f32 n = rintf(x * 1.44269504f), r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
    return __builtin_ldexpf(exp2_fast(r * 1.44269504f), static_cast<i32>(n));
}
// Near 0 by its series, else by an exponential: within 5 ulp.
DEVICE f32 tanhf(f32 x) {
    const f32 a = fabsf(x), s = x * x;
    const f32 terms[] = {-8.86323553e-3f, 2.18694885e-2f, -5.39682540e-2f, 0.133333333f, -0.333333333f};
    f32 p = 3.59212803e-3f;
    for (f32 c : terms) p = fmaf(p, s, c);
    return a < 0.4f ? fmaf(x * s, p, x) : __builtin_copysignf(1 - 2 / (exp_near(2 * (a < 10 ? a : a == a ? 10 : a)) + 1), x);
}
