// Copies and fills that take their turn among the kernels of a queue.
#include "simt.cuh"

struct MemoryArgs {
    void* to;
    const void* from;
    u64 bytes;
    u32 byte;
};

// 16 bytes at a time where both addresses allow it, in a loop over the grid.
template <class F, class G> DEVICE void each(const MemoryArgs& a, u64 addresses, F sixteen, G one) {
    const u64 quads = addresses % 16 == 0 ? a.bytes / 16 : 0, at = static_cast<u64>(block_x()) * threads() + thread(), step = static_cast<u64>(grid_x()) * threads();
    for (u64 i = at; i < quads; i += step) sixteen(i * 16);
    for (u64 i = quads * 16 + at; i < a.bytes; i += step) one(i);
}

KERNEL(memory_copy, MemoryArgs, 256) {
    const u8* from = static_cast<const u8*>(a.from);
    u8* to = static_cast<u8*>(a.to);
    each(a, reinterpret_cast<u64>(from) | reinterpret_cast<u64>(to), [&](u64 i) { store16(to + i, load16(from + i)); }, [&](u64 i) { to[i] = from[i]; });
}

KERNEL(memory_fill, MemoryArgs, 256) {
    u8* to = static_cast<u8*>(a.to);
    const u32 word = a.byte * 0x01010101u;
    each(a, reinterpret_cast<u64>(to), [&](u64 i) { store16(to + i, Quad{{word, word, word, word}}); }, [&](u64 i) { to[i] = static_cast<u8>(a.byte); });
}
