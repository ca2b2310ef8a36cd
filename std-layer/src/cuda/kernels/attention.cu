// Keys and values in pages, and attention of single queries over them.
//
// A page has PAGE tokens; of one it holds for each KV head the keys of all its tokens, then (in an array of their own) the values: element
// ((page * kv_heads + head) * page_tokens + token) * dim + i. `tables` has for each sequence the numbers of its pages.
#include "attention.cuh"

// FP8 E4M3 with a scale for each array; the largest number is 448, above it there is NaN alone.
struct e4m3 { u8 bits; };
DEVICE f32 to_f32(e4m3 x) {
    // The same bits where an exponent means 2^-120 of what it meant.
    const f32 y = from_bits(static_cast<u32>(x.bits & 128) << 24 | static_cast<u32>(x.bits & 127) << 20) * 0x1p120f;
    return (x.bits & 127) == 127 ? from_bits(0x7fc00000) : y;
}
// To nearest even; what is larger than 448 becomes 448.
DEVICE void narrow(e4m3& y, f32 x) {
    const u32 b = bits_of(x), sign = b >> 24 & 128, a = b & 0x7fffffff;
    if (a > 0x7f800000) y.bits = static_cast<u8>(sign | 127);
    else if (a >= 0x43e00000) y.bits = static_cast<u8>(sign | 126);
    else if (a < 0x3c800000) y.bits = static_cast<u8>(sign | static_cast<u32>(rintf(from_bits(a) * 512)));
    else y.bits = static_cast<u8>(sign | ((a - 0x3c000000 + 0x7ffff + (a >> 20 & 1)) >> 20));
}

struct AppendArgs {
    const void* k;
    const void* v;
    void* keys;
    void* values;
    const u32* tables;
    // Of each token: its sequence, and its position there.
    const u32* sequences;
    const u32* positions;
    u32 rows, kv_heads, dim, page_tokens, table_len, pages, type;
    f32 key_scale, value_scale;
};

// A block writes a token. One whose page does not exist is left out.
template <class C> DEVICE void append(const AppendArgs& a) {
    const u32 t = block_x(), position = a.positions[t], slot = position / a.page_tokens, sequence = a.sequences[t];
    if (slot >= a.table_len || sequence >= a.rows) return;
    const u32 page = a.tables[static_cast<u64>(sequence) * a.table_len + slot];
    if (page >= a.pages) return;
    for (u32 i = thread(); i < a.kv_heads * a.dim; i += threads()) {
        const u64 from = static_cast<u64>(t) * a.kv_heads * a.dim + i;
        const u64 to = ((static_cast<u64>(page) * a.kv_heads + i / a.dim) * a.page_tokens + position % a.page_tokens) * a.dim + i % a.dim;
        static_cast<C*>(a.keys)[to] = from_f32<C>(load_as(a.k, from, a.type) / a.key_scale);
        static_cast<C*>(a.values)[to] = from_f32<C>(load_as(a.v, from, a.type) / a.value_scale);
    }
}

// Eight numbers of a row.
template <class C> struct alignas(8 * sizeof(C)) Eight { C at[8]; };
template <class C> DEVICE Eight<C> load8(const C* p) {
    if (sizeof(C) == 1) return *reinterpret_cast<const Eight<C>*>(p);
    constexpr u32 QUADS = sizeof(C) <= 2 ? 1 : 2;
    union { Quad quad[QUADS]; Eight<C> eight; } both;
    for (u32 i = 0; i < QUADS; i++) both.quad[i] = load_once(p + i * 8 / QUADS);
    return both.eight;
}

// Where eight numbers of a token's key or value are, and what they are multiplied with.
template <class C> struct Rows {
    const DecodeArgs& a;
    u32 page, kv, token, first;
    DEVICE u64 at() const { return ((static_cast<u64>(page) * a.kv_heads + kv) * a.page_tokens + token) * a.dim + first; }
    DEVICE f32 scale(const void*) const { return 1; }
};
template <> struct Rows<q8_0> {
    const DecodeArgs& a;
    u32 page, kv, token, first;
    DEVICE u64 all() const { return static_cast<u64>(a.kv_heads) * a.page_tokens; }
    DEVICE u64 row() const { return static_cast<u64>(kv) * a.page_tokens + token; }
    DEVICE u64 at() const { return q8_codes(all(), a.dim, page, row()) + first; }
    DEVICE f32 scale(const void* cache) const {
        return to_f32(*reinterpret_cast<const f16*>(static_cast<const u8*>(cache) + q8_scale(all(), a.dim, page, row(), first / Q8_GROUP)));
    }
};

// A block takes a part of the tokens for the HEADS queries that share a KV head: a warp some tokens at a time, a lane eight of the
// dimensions of one. Warps meet at the end.
template <class C, u32 HEADS> DEVICE void attend(const DecodeArgs& a) {
    const u32 group = a.heads / a.kv_heads, per = div_up(group, HEADS);
    const u32 query = block_z(), kv = block_y() / per, first = kv * group + block_y() % per * HEADS, part = block_x();
    const u32 sequence = a.sequences ? a.sequences[query] : query;
    const u32 count = least(HEADS, (kv + 1) * group - first), length = sequence < a.rows ? least(a.lengths[query], 0x7fffffffu) : 0;
    const u32 start = seen_from(length, a.window), share = a.piece ? a.piece : div_up(length - start, a.parts);
    const u32 begin = a.piece ? 0 : start, end = least(static_cast<u64>(length), begin + (part + static_cast<u64>(1)) * share);
    const u32 from = most(start, static_cast<u32>(least(static_cast<u64>(end), begin + static_cast<u64>(part) * share))), to = most(from, end);
    // Whoever joins pieces knows which have tokens.
    if (a.piece && from == to) return;
    // Lanes of a warp that a token takes, and tokens side by side.
    u32 lanes = 1;
    while (lanes < a.dim / 8) lanes *= 2;
    const u32 side = WARP / lanes, mine = lane() % lanes * 8, which = lane() / lanes;
    f32 q[HEADS][8], acc[HEADS][8], top[HEADS], sum[HEADS];
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        top[h] = minus_infinity(), sum[h] = 0;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            acc[h][i] = 0;
            q[h][i] = h < count && mine < a.dim ? load_as(a.q, (static_cast<u64>(query) * a.heads + first + h) * a.dim + mine + i, a.type) * (a.scale * a.key_scale * 1.44269504f) : 0;
        }
    }
    // In units of log2(e), as scores are.
    const f32 cap = a.cap * 1.44269504f;
    const u32 warps = threads() / WARP;
    for (u32 base = from + warp() * side; base < to; base += warps * side) {
        const u32 token = base + which;
        u32 page = a.pages;
        if (token < to && token / a.page_tokens < a.table_len) page = a.tables[static_cast<u64>(sequence) * a.table_len + token / a.page_tokens];
        const bool there = page < a.pages;
        const Rows<C> rows{a, there ? page : 0, kv, token % a.page_tokens, mine};
        Eight<C> k = {}, v = {};
        f32 of_key = 1, of_value = 1;
        if (there && mine < a.dim) {
            k = load8(static_cast<const C*>(a.keys) + rows.at()), v = load8(static_cast<const C*>(a.values) + rows.at());
            of_key = rows.scale(a.keys), of_value = rows.scale(a.values);
        }
        f32 wide[8];
#pragma unroll
        for (u32 i = 0; i < 8; i++) wide[i] = to_f32(v.at[i]) * of_value;
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            f32 s = 0;
#pragma unroll
            for (u32 i = 0; i < 8; i++) s = fmaf(q[h][i], to_f32(k.at[i]), s);
            s *= of_key;
            for (u32 x = 1; x < lanes; x *= 2) s += shuffle_xor(s, x);
            if (cap != 0) s = cap * tanhf(s / cap);
            if (!there) s = minus_infinity();
            const f32 next = most(top[h], s);
            // Both may be -infinity, whose difference is NaN.
            const f32 keep = top[h] == next ? 1 : exp2_fast(top[h] - next), p = s == minus_infinity() ? 0 : exp2_fast(s - next);
            top[h] = next;
            sum[h] = fmaf(sum[h], keep, p);
#pragma unroll
            for (u32 i = 0; i < 8; i++) acc[h][i] = fmaf(acc[h][i], keep, p * wide[i]);
        }
    }
    // What tokens side by side have, then what warps have. Without tokens sums are 0, and largest scores mean nothing.
    f32* room = shared<f32>();
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        f32 best = top[h];
        for (u32 x = lanes; x < WARP; x *= 2) best = most(best, shuffle_xor(best, x));
        const f32 keep = sum[h] == 0 ? 0 : exp2_fast(top[h] - best);
        f32 total = sum[h] * keep;
        for (u32 x = lanes; x < WARP; x *= 2) total += shuffle_xor(total, x);
        f32* slot = room + warp() * (a.dim + 2);
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            f32 o = acc[h][i] * keep;
            for (u32 x = lanes; x < WARP; x *= 2) o += shuffle_xor(o, x);
            if (which == 0 && mine < a.dim) slot[mine + i] = o;
        }
        if (lane() == 0) slot[a.dim] = best, slot[a.dim + 1] = total;
        sync_block();
        if (h < count) {
            f32 over = minus_infinity();
            for (u32 w = 0; w < warps; w++) over = most(over, room[w * (a.dim + 2) + a.dim]);
            f32* out = a.partial + ((static_cast<u64>(query) * a.heads + first + h) * a.parts + part) * (a.dim + 2);
            for (u32 i = thread(); i < a.dim + 2; i += threads()) {
                f32 o = 0;
                for (u32 w = 0; w < warps; w++) {
                    const f32* from_warp = room + w * (a.dim + 2);
                    if (from_warp[a.dim + 1] != 0) o = fmaf(exp2_fast(from_warp[a.dim] - over), from_warp[i], o);
                }
                out[i] = i == a.dim ? over : o;
            }
        }
        sync_block();
    }
}

// Parts together; a query without tokens gives zeros. A block has a query.
KERNEL(attention_join, DecodeArgs, 256) {
    const f32* in = a.partial + static_cast<u64>(block_x()) * a.parts * (a.dim + 2);
    const f32 sink = sink_of(a, block_x() % a.heads);
    f32 over = sink;
    for (u32 p = 0; p < a.parts; p++) over = most(over, in[p * (a.dim + 2) + a.dim]);
    for (u32 i = thread(); i < a.dim; i += threads()) {
        f32 o = 0, total = part_of_sink(sink, over);
        for (u32 p = 0; p < a.parts; p++) {
            const f32* part = in + p * (a.dim + 2);
            if (part[a.dim + 1] == 0) continue;
            const f32 keep = exp2_fast(part[a.dim] - over);
            o = fmaf(keep, part[i], o);
            total = fmaf(keep, part[a.dim + 1], total);
        }
        store_as(a.y, static_cast<u64>(block_x()) * a.dim + i, total == 0 ? 0 : o / total * a.value_scale, a.type);
    }
}

#define DECODE(T)                                                           \
    KERNEL(attention_decode_##T##_h1, DecodeArgs, 128) { attend<T, 1>(a); } \
    KERNEL(attention_decode_##T##_h4, DecodeArgs, 128) { attend<T, 4>(a); }
#define CACHE(T)                                             \
    KERNEL(kv_append_##T, AppendArgs, 256) { append<T>(a); } \
    DECODE(T)
CACHE(f16)
CACHE(bf16)
CACHE(e4m3)
CACHE(f32)
// Whole models alone write it: `decoder_heads`.
DECODE(q8_0)
