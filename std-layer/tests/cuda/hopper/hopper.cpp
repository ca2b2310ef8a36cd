// `wgmma`, as strictly as the instruction set allows hardware to be: operands are read no earlier than a thread waits for the product, and sums are NaN until then. So a
// kernel fails that uses sums or overwrites operands before it has waited. It also fails if threads of a group multiply different operands, or without the fences that make
// what was written visible, and that order other uses of sums.
#include <vector>

#include "simt.cuh"

#include "fibers.h"
#include "hopper.h"

namespace emu {

struct Product { u64 a, b; f32 (*widen)(u16); u32 group; };
struct Thread {
    u64 block;
    // Where its sums go, what they are, and the products that are not yet among them.
    f32* to;
    f32 sums[128];
    std::vector<Product> products;
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
    if (t.block != blocks) t.block = blocks, t.products.clear(), t.group = t.count = 0, t.fenced = false;
    return t;
}

// Shared memory starts at a multiple of 16, and of no more.
static constexpr u32 FIRST = 1024 + 16;

// Chunk of 16 bytes of a row of an operand, in which eight rows of 128 bytes are swizzled.
static const u8* chunk_of(u64 operand, u32 row, u32 chunk) {
    const u32 start = (operand & 0x3fff) << 4, stride = (operand >> 32 & 0x3fff) << 4;
    if (operand >> 62 != 1 || operand >> 49 & 7 || start % 1024 >= 128) fail("an operand that does not start where its swizzling of 128 bytes does");
    const u32 at = start + row / 8 * stride + row % 8 * 128 + chunk * 16, swizzled = at ^ (at >> 7 & 7) << 4;
    if (swizzled < FIRST || swizzled - FIRST + 16 > now.shared_bytes) fail("an operand outside of shared memory");
    return now.shared + (swizzled - FIRST);
}

static void row_of(f32 (&x)[16], const Product& p, u64 operand, u32 row) {
    u16 bits[16];
    for (u32 i = 0; i < 2; i++) memcpy(bits + 8 * i, chunk_of(operand, row, i), 16);
    for (u32 k = 0; k < 16; k++) x[k] = p.widen(bits[k]);
}

// Adds a product to the sums of a thread: two rows, and of 256 columns each fourth pair.
static void add(Thread& t, const Product& p) {
    const u32 g = current % 32 / 4, column = current % 4 * 2;
    f32 left[2][16], right[16];
    for (u32 i = 0; i < 2; i++) row_of(left[i], p, p.a, current / 32 % 4 * 16 + 8 * i + g);
    for (u32 j = 0; j < 64; j++) {
        row_of(right, p, p.b, j / 2 * 8 + column + j % 2);
        for (u32 i = 0; i < 2; i++)
            for (u32 k = 0; k < 16; k++) t.sums[j / 2 * 4 + 2 * i + j % 2] += left[i][k] * right[k];
    }
}

void multiply(f32 (&d)[128], u64 a, u64 b, f32 (*widen)(u16)) {
    if (now.threads % 128) fail("a part of a group of four warps");
    warp_barrier(5);
    Thread& t = me();
    Group& g = groups_of_block[current / 128];
    if (g.block != blocks) g.block = blocks, g.products.clear();
    const Product product = {a, b, widen, t.group};
    // The first one to come has waited for none of the others since their last barrier.
    if (t.count == g.products.size()) {
        for (u32 i = 0; i < 64 * 2; i++)
            if (!is_visible(chunk_of(a, i / 2, i % 2))) fail("a left operand that was not written, or without a fence");
        for (u32 i = 0; i < 256 * 2; i++)
            if (!is_visible(chunk_of(b, i / 2, i % 2))) fail("a right operand that was not written, or without a fence");
        g.products.push_back(product);
    }
    const Product& first = g.products[t.count++];
    if (first.a != a || first.b != b || first.widen != widen || first.group != t.group) fail("different products in a group of four warps");
    if (t.products.empty()) {
        if (!t.fenced) fail("a product without a fence behind other uses of its sums");
        t.to = d;
        memcpy(t.sums, d, sizeof t.sums);
        memset(d, 0xff, sizeof t.sums);
    } else if (t.to != d) fail("products with other sums before those under way are done");
    t.products.push_back(product);
}

void wait_for_products(u32 n) {
    warp_barrier(6);
    Thread& t = me();
    t.fenced = false;
    std::vector<Product> left;
    for (const Product& p : t.products)
        if (p.group + n < t.group) add(t, p);
        else left.push_back(p);
    if (left.empty() && !t.products.empty()) memcpy(t.to, t.sums, sizeof t.sums);
    t.products = left;
}
}  // namespace emu

u32 shared_address(const void* p) { return static_cast<u32>(static_cast<const u8*>(p) - emu::now.shared) + emu::FIRST; }
void async_fence() { emu::make_visible(); }
void wgmma_fence() {
    emu::warp_barrier(7);
    emu::me().fenced = true;
}
void wgmma_commit() {
    emu::warp_barrier(8);
    emu::me().group++;
}
