// `wgmma`, as strictly as the instruction set allows hardware to be: operands are read no earlier than a thread waits for the product, and sums are NaN until then. So a
// kernel fails that uses sums or overwrites operands before it has waited. It also fails if threads of a group multiply different operands, or without the fences that make
// what was written visible, and that order other uses of sums.
// Where there are products, most of the time of tests is spent here.
#pragma GCC optimize("O3")

#include <vector>

#include "simt.cuh"

#include "fibers.h"
#include "hopper.h"

namespace emu {

// Sums of a thread with products under way: where they go, and what they are.
struct Sums { f32* to; f32 at[128]; };
struct Pending { Product product; f32* to; };
struct Thread {
    u64 block;
    std::vector<Sums> sums;
    std::vector<Pending> products;
    u32 group, count;
    bool fenced;
};
// Of the four warps of a group: what they have multiplied in this block.
struct Group {
    u64 block;
    std::vector<Product> products;
};
static Thread threads_of_block[1024];
static Group groups_of_block[1024 / 128];

static Thread& me() {
    Thread& t = threads_of_block[current];
    if (t.block != blocks) t.block = blocks, t.sums.clear(), t.products.clear(), t.group = t.count = 0, t.fenced = false;
    return t;
}

// Shared memory starts at a multiple of 16, and of no more.
static constexpr u32 FIRST = 1024 + 16;

// Where 16 bytes of an operand are that are so far behind its first ones, before eight chunks of 16 bytes change places.
static const u8* place_of(u64 operand, u32 behind) {
    const u32 start = (operand & 0x3fff) << 4;
    if (operand >> 62 != 1 || operand >> 49 & 7 || start % 1024 >= 128) fail("an operand that does not start where its swizzling of 128 bytes does");
    const u32 at = start + behind, swizzled = at ^ (at >> 7 & 7) << 4;
    if (swizzled < FIRST || swizzled - FIRST + 16 > now.shared_bytes) fail("an operand outside of shared memory");
    return now.shared + (swizzled - FIRST);
}
static u32 of_eight(u64 operand) { return (operand >> 32 & 0x3fff) << 4; }

// Chunk of a row of an operand.
static const u8* chunk_of(u64 operand, u32 row, u32 chunk) { return place_of(operand, row / 8 * of_eight(operand) + row % 8 * 128 + chunk * 16); }
// Eight columns of a row of one that is turned.
static const u8* turned_chunk_of(u64 operand, u32 row, u32 chunk) {
    const u32 further = (operand >> 16 & 0x3fff) << 4;
    return place_of(operand, chunk / 8 * further + row / 8 * of_eight(operand) + row % 8 * 128 + chunk % 8 * 16);
}

static f32 widen(const Product& p, u16 bits) { return p.half ? to_f32(f16{bits}) : to_f32(bf16{bits}); }
static void row_of(f32 (&x)[16], const Product& p, u64 operand, u32 row) {
    u16 bits[16];
    for (u32 i = 0; i < 2; i++) memcpy(bits + 8 * i, chunk_of(operand, row, i), 16);
    for (u32 k = 0; k < 16; k++) x[k] = widen(p, bits[k]);
}
// A column that is even, and the next one.
static void columns_of(f32 (&x)[2][16], const Product& p, u32 column) {
    if (!p.turned) return row_of(x[0], p, p.b, column), row_of(x[1], p, p.b, column + 1);
    for (u32 k = 0; k < 16; k++) {
        u16 bits[8];
        memcpy(bits, turned_chunk_of(p.b, k, column / 8), 16);
        for (u32 i = 0; i < 2; i++) x[i][k] = widen(p, bits[column % 8 + i]);
    }
}

// Adds a product to sums of this thread: two rows, and of all columns each fourth pair.
static void add(f32* sums, const Product& p) {
    const u32 g = current % 32 / 4, column = current % 4 * 2;
    f32 left[2][16], right[2][16];
    for (u32 i = 0; i < 2; i++)
        if (p.held) memcpy(left[i], p.left[i], sizeof left[i]);
        else row_of(left[i], p, p.a, current / 32 % 4 * 16 + 8 * i + g);
    for (u32 j = 0; j < p.columns / 8; j++) {
        columns_of(right, p, j * 8 + column);
        f32 sum[4] = {};
        if (p.add) memcpy(sum, sums + 4 * j, sizeof sum);
        for (u32 k = 0; k < 16; k++)
#pragma GCC unroll 4
            for (u32 i = 0; i < 4; i++) sum[i] += left[i / 2][k] * right[i % 2][k];
        memcpy(sums + 4 * j, sum, sizeof sum);
    }
}

static bool same(const Product& x, const Product& y) {
    return x.columns == y.columns && x.add == y.add && x.held == y.held && x.turned == y.turned && x.a == y.a && x.b == y.b && x.half == y.half && x.group == y.group;
}

void multiply(f32* d, const Product& made) {
    if (now.threads % 128) fail("a part of a group of four warps");
    warp_barrier(5);
    Thread& t = me();
    Group& g = groups_of_block[current / 128];
    if (g.block != blocks) g.block = blocks, g.products.clear();
    Product product = made;
    product.group = t.group;
    // The first one to come has waited for none of the others since their last barrier.
    if (t.count == g.products.size()) {
        for (u32 i = 0; i < 64 * 2 && !product.held; i++)
            if (!is_visible(chunk_of(product.a, i / 2, i % 2))) fail("a left operand that was not written, or without a fence");
        for (u32 i = 0; i < product.columns * 2; i++) {
            const u8* chunk = product.turned ? turned_chunk_of(product.b, i % 16, i / 16) : chunk_of(product.b, i / 2, i % 2);
            if (!is_visible(chunk)) fail("a right operand that was not written, or without a fence");
        }
        g.products.push_back(product);
    }
    if (!same(g.products[t.count++], product)) fail("different products in a group of four warps");
    bool under_way = false;
    for (const Sums& s : t.sums) under_way |= s.to == d;
    if (!under_way) {
        if (!t.fenced) fail("a product without a fence behind other uses of its sums");
        t.sums.push_back({d, {}});
        memcpy(t.sums.back().at, d, product.columns / 2 * sizeof(f32));
        memset(d, 0xff, product.columns / 2 * sizeof(f32));
    }
    t.products.push_back({product, d});
}

void wait_for_products(u32 n) {
    warp_barrier(6);
    Thread& t = me();
    t.fenced = false;
    std::vector<Pending> left;
    std::vector<Sums> open;
    for (Sums& s : t.sums) {
        u32 columns = 0;
        bool done = true;
        for (const Pending& p : t.products) {
            if (p.to != s.to) continue;
            columns = p.product.columns;
            if (p.product.group + n < t.group) add(s.at, p.product);
            else left.push_back(p), done = false;
        }
        if (done) memcpy(s.to, s.at, columns / 2 * sizeof(f32));
        else open.push_back(s);
    }
    t.products = left, t.sums = open;
}
}  // namespace emu

u32 shared_address(const void* p) { return static_cast<u32>(static_cast<const u8*>(p) - emu::now.shared) + emu::FIRST; }
void async_fence() { emu::make_visible(); }
// All threads wait at this place, wherever they come from.
[[gnu::noinline]] void sync_roles() {
    emu::barrier();
    asm volatile("");
}
void wgmma_fence() {
    emu::warp_barrier(7);
    emu::me().fenced = true;
}
void wgmma_commit() {
    emu::warp_barrier(8);
    emu::me().group++;
}
