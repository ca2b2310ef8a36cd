// What kernels for attention of single queries share: how keys and values come from their pages, and how a block's warps join what they have.
#pragma once

#include "attention.cuh"

// Eight numbers of a row, in words as they lie in memory: taken apart they would have to be there.
template <class C> struct Eight { u32 w[2 * sizeof(C)]; };
template <class C> DEVICE Eight<C> load8(const void* p) {
    Eight<C> eight;
    if constexpr (sizeof(C) == 1) {
        struct alignas(8) Two { u32 w[2]; };
        const Two two = *static_cast<const Two*>(p);
        eight = {{two.w[0], two.w[1]}};
    } else {
#pragma unroll
        for (u32 i = 0; i < 2 * sizeof(C); i += 4) {
            const Quad quad = load_once(static_cast<const u8*>(p) + 4 * i);
            for (u32 k = 0; k < 4; k++) eight.w[i + k] = quad.w[k];
        }
    }
    return eight;
}

// Where the keys and values of a token are; a lane may ask for those of another one's token.
template <class C> struct Place {
    // Number of the row among all of the cache, or none.
    u32 row;
    static DEVICE Place none() { return {~0u}; }
    static DEVICE Place of(const DecodeArgs& a, u32 page, u32 kv, u32 slot) { return {(page * a.kv_heads + kv) * a.page_tokens + slot}; }
    DEVICE Place of_lane(u32 lane) const { return {shuffle(row, lane)}; }
    DEVICE bool there() const { return row != ~0u; }
    // Where its numbers from `first` on are.
    DEVICE const u8* at(const DecodeArgs& a, const void* cache, u32 first) const {
        return static_cast<const u8*>(cache) + first * sizeof(C) + static_cast<u64>(row) * (a.dim * static_cast<u32>(sizeof(C)));
    }
    // What the numbers from `first` on are multiplied with.
    DEVICE f32 scale(const DecodeArgs&, const void*, u32) const { return 1; }
};
template <> struct Place<q8_0> {
    // Number of the row within its page, or none.
    u32 page, row;
    static DEVICE Place none() { return {0, ~0u}; }
    static DEVICE Place of(const DecodeArgs& a, u32 page, u32 kv, u32 slot) { return {page, kv * a.page_tokens + slot}; }
    DEVICE Place of_lane(u32 lane) const { return {shuffle(page, lane), shuffle(row, lane)}; }
    DEVICE bool there() const { return row != ~0u; }
    static DEVICE u64 rows(const DecodeArgs& a) { return static_cast<u64>(a.kv_heads) * a.page_tokens; }
    DEVICE const u8* at(const DecodeArgs& a, const void* cache, u32 first) const { return static_cast<const u8*>(cache) + q8_codes(rows(a), a.dim, page, row) + first; }
    DEVICE f32 scale(const DecodeArgs& a, const void* cache, u32 first) const {
        return to_f32(*reinterpret_cast<const f16*>(static_cast<const u8*>(cache) + q8_scale(rows(a), a.dim, page, row, first / Q8_GROUP)));
    }
};

// The tokens that a block goes through, a batch for each warp at a time, and where their keys and values are: of 32 tokens of a warp each lane knows
// one, and asks for that of one of the next 32. If a block has several queries (`SEVERAL`), whoever has their scores knows which of them see a token.
template <class C, bool SEVERAL> struct Turns {
    const DecodeArgs& a;
    // Where tokens are looked up; where batches begin, and which tokens the block sees: with one query from the first batch on.
    u32 kv, sequence, from, seen, to;
    // The logarithm of the number of batches that 32 tokens are.
    u32 log;
    // Of a token of the present 32, and of one of the next.
    Place<C> place;
    u32 next_page, next_slot;

    DEVICE u32 few() const { return 1 << log; }
    // Tokens of a batch.
    DEVICE u32 batch() const { return WARP >> log; }
    // The first token of a batch of this warp.
    DEVICE u32 first_of(u32 index) const { return from + (index * (threads() / WARP) + warp()) * batch(); }

    // Asks for the page of one of 32 tokens, which are `few` batches.
    DEVICE void look(u32 index) {
        const u32 token = first_of(index + (lane() >> (5 - log))) + (lane() & (batch() - 1)), at = token / a.page_tokens;
        next_slot = token % a.page_tokens, next_page = a.pages;
        if (token < to && at < a.table_len && (SEVERAL ? token >= seen : is_seen(a, block_z(), least(a.lengths[block_z()], 0x7fffffffu), token)))
            next_page = a.tables[static_cast<u64>(sequence) * a.table_len + at];
    }

    // What is asked for at the beginning of a batch: where the next tokens are, if their turn has come.
    DEVICE void turn(u32 index) {
        if (index & (few() - 1)) return;
        place = next_page < a.pages ? Place<C>::of(a, next_page, kv, next_slot) : Place<C>::none();
        look(index + few());
    }

    // Where a token of a batch is.
    DEVICE Place<C> place_of(u32 index, u32 token) const { return place.of_lane((index & (few() - 1)) * batch() + token); }
};

// Numbers of a lane in shared memory, which begin at a multiple of 16 bytes if they are fours.
template <u32 N> DEVICE void keep(f32* to, const f32 (&x)[N]) {
#pragma unroll
    for (u32 i = 0; i < N; i += N % 4 ? 1 : 4) {
        if constexpr (N % 4) to[i] = x[i];
        else store_pack(to + i, {x[i], x[i + 1], x[i + 2], x[i + 3]});
    }
}
template <u32 N> DEVICE void recall(f32 (&x)[N], const f32* from) {
#pragma unroll
    for (u32 i = 0; i < N; i += N % 4 ? 1 : 4) {
        if constexpr (N % 4) x[i] = from[i];
        else {
            Pack<f32> four;
            four.quad = load16(from + i);
            x[i] = four.at[0], x[i + 1] = four.at[1], x[i + 2] = four.at[2], x[i + 3] = four.at[3];
        }
    }
}

// Two, of which the first begins at a multiple of 8 bytes.
DEVICE void keep2(f32* to, f32 x, f32 y) {
    struct alignas(8) Two { f32 at[2]; };
    *reinterpret_cast<Two*>(to) = Two{{x, y}};
}

// Sums of `dim` values that the WARPS warps of a block have of each of `count` rows, as one; behind those of a row are its largest score and its sum of
// exponentials, and room for two more. What a warp has is `next` numbers behind that of the one before it. `out` says where the result of a row goes.
template <u32 WARPS, class F> DEVICE void unite(const DecodeArgs& a, const f32* room, u32 next, u32 count, F out) {
    // Fours of a row, of which the last has the two.
    const u32 fours = a.dim / 4 + 1;
    for (u32 job = thread(); job < count * fours; job += threads()) {
        const u32 h = job / fours, i = job % fours * 4;
        const f32 *row = room + h * (a.dim + 4), *ends = row + a.dim;
        f32 over = minus_infinity(), o[4] = {0, 0, 0, 0};
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) over = most(over, ends[w * next]);
#pragma unroll
        for (u32 w = 0; w < WARPS; w++) {
            if (ends[w * next + 1] == 0) continue;
            const f32 keep = exp2_fast(ends[w * next] - over);
            f32 x[4];
            recall(x, row + w * next + i);
#pragma unroll
            for (u32 k = 0; k < 4; k++) o[k] = fmaf(keep, x[k], o[k]);
        }
        f32* to = out(h) + i;
        if (i == a.dim) o[0] = over;
        keep2(to, o[0], o[1]);
        if (i < a.dim) keep2(to + 2, o[2], o[3]);
    }
}
