// The functions of simt.cuh on a CPU: the threads of a block are fibers that take turns at barriers and shuffles.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>

#define DEVICE inline
#define TABLE static const

namespace emu {
struct Block {
    u32 block[3], grid[3], threads, shared_bytes;
    u8* shared;
};
extern Block now;
extern u32 current;

// Returns when all threads of the block, or of the warp, have come here.
void barrier();
void warp_barrier(int kind);
// Exchanges a word within the warp: puts `mine`, gets those of all lanes, which stay until the next but one exchange.
const u32* exchange(u32 mine);
// The same for a wave of that many lanes, and `n` words of each, up to 1024 of all: lane l's begin at n * l.
const u32* exchange_wave(u32 lanes, const u32* mine, u32 n);
// d += a b, in the registers that PTX says for mma.m16n8k16: `mine` are this lane's numbers, eight of a and four of b.
void multiply_tiles(f32 (&d)[4], const f32 (&mine)[12]);
// Whether this launch computes products of tiles of bf16 by shuffles, as GPUs without such products do, and sums over lanes as simt.cuh does: one of eight does.
bool by_shuffles();
// Stops the launch with a message: what hardware leaves undefined.
[[noreturn]] void fail(const char* what);

struct Kernel {
    const char* name;
    size_t args;
    u32 threads;
    void (*run)(const void*);
    Kernel* next;
    Kernel(const char* name, size_t args, u32 threads, void (*run)(const void*));
};
inline void aligned(const void* p, size_t to) { if (reinterpret_cast<uintptr_t>(p) % to) fail("a misaligned address"); }
// Notes that this thread writes 16 bytes, if they are of shared memory.
void wrote(const void* p);
}  // namespace emu

// This thread may read from now on what kernels before this one write; each does that once or more.
void wait_for_inputs();
#define KERNEL_EARLY(NAME, ARGS, THREADS)                                                                        \
    static void NAME(const ARGS& a);                                                                             \
    static emu::Kernel emu_##NAME(#NAME, sizeof(ARGS), THREADS, [](const void* p) { NAME(*static_cast<const ARGS*>(p)); }); \
    static void NAME(const ARGS& a)

DEVICE u32 thread() { return emu::current; }
DEVICE u32 threads() { return emu::now.threads; }
DEVICE u32 block_x() { return emu::now.block[0]; }
DEVICE u32 block_y() { return emu::now.block[1]; }
DEVICE u32 block_z() { return emu::now.block[2]; }
DEVICE u32 grid_x() { return emu::now.grid[0]; }
DEVICE u32 grid_y() { return emu::now.grid[1]; }
DEVICE u32 grid_z() { return emu::now.grid[2]; }
template <class T> DEVICE T* shared() { return reinterpret_cast<T*>(emu::now.shared); }
DEVICE void sync_block() { emu::barrier(); }
DEVICE void sync_warp() { emu::warp_barrier(1); }

DEVICE u32 bits_of(f32 x) { u32 b; memcpy(&b, &x, 4); return b; }
DEVICE f32 from_bits(u32 b) { f32 x; memcpy(&x, &b, 4); return x; }
DEVICE u32 shuffle(u32 v, u32 lane) { return emu::exchange(v)[lane % 32]; }
DEVICE u32 shuffle_xor(u32 v, u32 mask) { return emu::exchange(v)[(emu::current % 32) ^ mask]; }
DEVICE u32 lanes_of(bool yes) {
    const u32* all = emu::exchange(yes);
    u32 r = 0;
    for (u32 i = 0; i < 32; i++) r |= all[i] << i;
    return r;
}
DEVICE f32 shuffle(f32 v, u32 lane) { return from_bits(shuffle(bits_of(v), lane)); }
DEVICE f32 shuffle_xor(f32 v, u32 mask) { return from_bits(shuffle_xor(bits_of(v), mask)); }
// The sums of simt.cuh, in the same order, by one exchange of all numbers. C++ calls this function where the array may be written, as those of all kernels may, and the one of
// simt.cuh, which takes an array of constants, where it may not.
template <u32 N, u32 M> f32 warp_sums(const f32 (&v)[N]);
template <u32 N, u32 M = 16> DEVICE f32 warp_sums(f32 (&v)[N]) {
    if (emu::by_shuffles()) return warp_sums<N, M>(const_cast<const f32(&)[N]>(v));
    const f32* all = reinterpret_cast<const f32*>(emu::exchange_wave(32, reinterpret_cast<const u32*>(v), N));
    const u32 lanes = 2 * M, own = emu::current % 32 % lanes, first = emu::current % 32 - own;
    f32 sums[2 * M];
    for (u32 l = 0; l < lanes; l++) sums[l] = all[(first + l) * N + own / (lanes / N)];
    for (u32 m = M; m > 0; m /= 2)
        for (u32 l = 0; l < m; l++) sums[l] += sums[l + m];
    return sums[0];
}
DEVICE u32 atomic_add(u32* p, u32 v) { u32 old = *p; *p += v; return old; }

DEVICE f32 to_f32(f32 x) { return x; }
DEVICE f32 to_f32(bf16 x) { return from_bits(static_cast<u32>(x.bits) << 16); }
DEVICE f32 to_f32(f16 x) {
    const u32 sign = static_cast<u32>(x.bits & 0x8000) << 16, rest = static_cast<u32>(x.bits & 0x7fff) << 13;
    // Infinity, and what is no number.
    if (rest >= 0x0f800000) return from_bits(sign | (rest > 0x0f800000 ? rest | 0x7fc00000 : 0x7f800000));
    return from_bits(sign | bits_of(from_bits(rest) * 0x1p112f));
}
DEVICE void narrow(f16& y, f32 x) {
    u32 b = bits_of(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
    if (a > 0x7f800000) y.bits = 0x7fff;  // as the hardware's canonical NaN
    else if (a >= 0x477ff000) y.bits = static_cast<u16>(sign | 0x7c00);
    else if (a < 0x38800000) y.bits = static_cast<u16>(sign | static_cast<u32>(nearbyintf(from_bits(a) * 0x1p24f)));
    else y.bits = static_cast<u16>(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}

DEVICE f32 exp2_fast(f32 x) { return exp2f(x); }
DEVICE f32 divide(f32 a, f32 b) { return a / b; }
DEVICE f32 mul_rn(f32 a, f32 b) { return a * b; }
DEVICE f32 add_rn(f32 a, f32 b) { return a + b; }
DEVICE u32 mul_high(u32 a, u32 b) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }
DEVICE u32 funnel(u32 low, u32 high, u32 by) { return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> (by & 31)); }
DEVICE u32 permute(u32 a, u32 b, u32 pick) {
    u64 all = static_cast<u64>(b) << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++) r |= static_cast<u32>(all >> ((pick >> 4 * i & 7) * 8) & 255) << 8 * i;
    return r;
}
DEVICE i32 dot4(u32 a, u32 b, i32 c) {
    for (int i = 0; i < 32; i += 8) c += static_cast<i8>(a >> i) * static_cast<i8>(b >> i);
    return c;
}
DEVICE u32 keep(u32 x) { return x; }
DEVICE const u8* keep(const u8* x) { return x; }
DEVICE u32 bits_set(u32 x) { return static_cast<u32>(__builtin_popcount(x)); }
DEVICE u32 sub4(u32 a, u32 b) {
    u32 r = 0;
    for (int i = 0; i < 32; i += 8) r |= (((a >> i) - (b >> i)) & 255) << i;
    return r;
}
DEVICE f32 rsqrtf(f32 x) { return 1 / sqrtf(x); }

DEVICE Quad load16(const void* p) { emu::aligned(p, 16); Quad q; memcpy(&q, p, 16); return q; }
DEVICE Quad load_once(const void* p) { return load16(p); }
DEVICE void store16(void* p, const Quad& q) { emu::aligned(p, 16); emu::wrote(p); memcpy(p, &q, 16); }
// Later than it seems: what reads without waiting reads old bytes.
void copy_async(void* to, const void* from, u32 bytes = 16);
static const Quad ZEROS = {};
DEVICE void copy_async(void* to, const void* from, bool there) { copy_async(to, there ? from : &ZEROS); }
DEVICE void copy_word(void* to, const void* from, bool there) { copy_async(to, there ? from : &ZEROS, 4u); }
void copy_commit();
void emu_copy_wait(u32 n);
template <int N> DEVICE void copy_wait() { emu_copy_wait(N); }

// Rows of tiles from shared memory, which lanes say where to find.
template <bool TURNED> DEVICE void load_tiles(u32 (&r)[4], const void* row) {
    emu::aligned(row, 16);
    const u32* rows = emu::exchange(static_cast<u32>(static_cast<const u8*>(row) - emu::now.shared));
    const u32 g = emu::current % 32 / 4, t = emu::current % 4 * 2;
    for (u32 i = 0; i < 4; i++) {
        u16 two[2];
        for (u32 k = 0; k < 2; k++) {
            const u32 at = rows[8 * i + (TURNED ? t + k : g)] + 2 * (TURNED ? g : t + k);
            if (at + 2 > emu::now.shared_bytes) emu::fail("a tile outside of shared memory");
            memcpy(&two[k], emu::now.shared + at, 2);
        }
        r[i] = two[0] | static_cast<u32>(two[1]) << 16;
    }
    // Nobody writes what others are about to read.
    emu::warp_barrier(3);
}

template <class T> void mma_by_shuffles(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);
// Each lane widens its own numbers, once.
template <class T> DEVICE void mma(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], T) {
    if constexpr (std::is_same_v<T, bf16>)
        if (emu::by_shuffles()) return mma_by_shuffles<T>(d, a, b);
    f32 mine[12];
    for (u32 i = 0; i < 12; i++) mine[i] = to_f32(T{static_cast<u16>((i < 8 ? a[i / 2] : b[i / 2 - 4]) >> i % 2 * 16)});
    emu::multiply_tiles(d, mine);
}
// The same of signed bytes, for mma.m16n8k32.
DEVICE void mma(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    const u32 g = emu::current % 32 / 4, t = emu::current % 4, mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]}, *all = emu::exchange_wave(32, mine, 6);
    for (u32 i = 0; i < 4; i++)
        for (u32 r = 0; r < 2; r++)
            for (u32 k = 0; k < 4; k++) d[i] = dot4(all[(g * 4 + k) * 6 + 2 * r + i / 2], all[((t * 2 + i % 2) * 4 + k) * 6 + 4 + r], d[i]);
}
