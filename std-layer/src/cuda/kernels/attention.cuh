// Attention of single queries over keys and values in pages: what goes into it, and what its parts leave to be joined.
#pragma once

#include "simt.cuh"

struct DecodeArgs {
    const void* q;
    const void* keys;
    const void* values;
    const u32* tables;
    // Of each query: which row of the tables is its sequence's (its own number, without), and how many tokens it sees or has behind its
    // window, its own among them.
    const u32* sequences;
    const u32* lengths;
    // Of each part of each query: `dim` sums, then the largest score and the sum of exponentials.
    f32* partial;
    void* y;
    // A score for each head that no token has: it joins the sum of exponentials. None, without. Whoever joins parts looks at them.
    const f32* sinks;
    // Of each head how much a score falls for each token that lies between its query and its key: ALiBi. None, without.
    const f32* slopes;
    // The position of each query's token, where queries see tokens behind their own: all, or with a window as many as before it. Without, it is the last one that the query sees.
    const u32* positions;
    // Of each query which tokens it sees, if drafts form trees: bit 0 is its own token, bit `i` the one `i` before it. Those that are 64 and more before
    // it are seen. None, without.
    const u64* seen;
    // A tile has at most `together` queries.
    // A part is a piece, counted from the first token of the sequence (`piece_begin`); if `piece` is 0, an equal share of those that are seen, or 64.
    u32 queries, rows, heads, kv_heads, dim, page_tokens, table_len, pages, parts, piece, window, type, together;
    // Scores are capped at `cap * tanh(score / cap)` unless it is 0.
    f32 scale, key_scale, value_scale, cap;
};

// Codes of 8 bits, with a scale of 16 for each 32 of a head. Of a page all codes come first, as numbers do, and behind them scales in the same order.
struct q8_0 { i8 bits; };
DEVICE f32 to_f32(q8_0 x) { return static_cast<f32>(x.bits); }
static constexpr u32 Q8_GROUP = 32;
DEVICE u64 q8_page(u64 rows, u32 dim) { return (rows * (dim + 2 * div_up(dim, Q8_GROUP)) + 15) / 16 * 16; }
// Where the codes of a row of a page are, and the scale of its group `group`.
DEVICE u64 q8_codes(u64 rows, u32 dim, u64 page, u64 row) { return page * q8_page(rows, dim) + row * dim; }
DEVICE u64 q8_scale(u64 rows, u32 dim, u64 page, u64 row, u32 group) {
    return page * q8_page(rows, dim) + rows * dim + (row * div_up(dim, Q8_GROUP) + group) * 2;
}

DEVICE f32 minus_infinity() { return from_bits(0xff800000); }

// The sink of a head in the unit that parts have scores in; -infinity, which takes no part, without.
DEVICE f32 sink_of(const DecodeArgs& a, u32 head) { return a.sinks ? a.sinks[head] * 1.44269504f : minus_infinity(); }
// What it adds to the sum of exponentials relative to `over`, which is no less.
DEVICE f32 part_of_sink(f32 sink, f32 over) { return sink == minus_infinity() ? 0 : exp2_fast(sink - over); }

// The tokens of a sequence of `length` that a query behind them sees begin here.
DEVICE u32 seen_from(u32 length, u32 window) { return window && length > window ? length - window : 0; }

// Pieces have `piece` tokens. Of the first ones eight have a fourth of that, and eight a half, so that short sequences have several: where a piece begins,
// and which one has a token.
DEVICE u64 piece_begin(const DecodeArgs& a, u32 p) {
    const u64 part = a.piece / 4;
    return p < 8 ? p * part : p < 16 ? (2 * p - 8) * part : (4 * static_cast<u64>(p) - 40) * part;
}
DEVICE u32 piece_at(const DecodeArgs& a, u32 token) {
    const u32 part = token / (a.piece / 4);
    return part < 8 ? part : part < 24 ? part / 2 + 4 : part / 4 + 10;
}

// Where part `p` begins, if tokens from `start` up to `length` are seen.
DEVICE u64 part_begin(const DecodeArgs& a, u32 p, u32 start, u32 length) {
    return a.piece ? piece_begin(a, p) : start + static_cast<u64>(p) * most(64u, div_up(length - start, a.parts));
}

DEVICE u32 bits_set(u64 x) { return bits_set(static_cast<u32>(x)) + bits_set(static_cast<u32>(x >> 32)); }
// How many tokens up to the last of `length` the query that belongs to it would see without a window: its position is one less.
DEVICE u32 path_length(const u64* seen, u32 query, u32 length) { return seen ? length - bits_set(~seen[query]) : length; }
// The tokens that a query sees of those in `lengths` begin and end here.
DEVICE u32 first_seen(const DecodeArgs& a, u32 query, u32 length) {
    return seen_from(a.positions ? a.positions[query] + 1 : path_length(a.seen, query, length), a.window);
}
DEVICE u32 seen_to(const DecodeArgs& a, u32 query) {
    const u32 length = least(a.lengths[query], 0x7fffffffu);
    return a.positions && a.window ? least(length, a.positions[query] + least(a.window, length)) : length;
}
// How many of them stand between a token and the query, its own among them.
DEVICE u32 distance(const u64* seen, u32 query, u32 length, u32 token) {
    const u32 before = length - 1 - token;
    if (!seen) return before;
    return before < 64 ? bits_set(seen[query] & ((static_cast<u64>(1) << before) - 1)) : before - bits_set(~seen[query]);
}
// Whether the query sees a token that is not before `seen_from` of its path.
DEVICE bool is_seen(const DecodeArgs& a, u32 query, u32 length, u32 token) {
    const u32 before = length - 1 - token;
    if (!a.seen || before >= 64) return true;
    return a.seen[query] >> before & 1 && (!a.window || distance(a.seen, query, length, token) < a.window);
}
