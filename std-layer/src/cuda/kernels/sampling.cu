// The next token from scores, without leaving the GPU. A block has a row of scores.
#include "simt.cuh"

struct SampleArgs {
    const void* scores;
    // Tokens that count as repeated: `history_len` of each row, beyond-the-vocabulary ones ignored.
    const u32* history;
    u32* token;
    // A copy of the scores, as f32, that is worked on.
    f32* work;
    // Where in the stream of random numbers each row is.
    const u64* counters;
    u64 seed;
    u32 vocabulary, history_len, top_k, type;
    f32 temperature, top_p, min_p, repetition;
};

// Philox 4x32-10 (Salmon et al., 2011): the first word for a counter and a key.
DEVICE u32 philox(u64 counter, u64 stream, u64 key) {
    u32 c[4] = {static_cast<u32>(counter), static_cast<u32>(counter >> 32), static_cast<u32>(stream), static_cast<u32>(stream >> 32)};
    u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
    for (u32 round = 0; round < 10; round++) {
        const u32 h0 = mul_high(0xd2511f53, c[0]), l0 = 0xd2511f53 * c[0], h1 = mul_high(0xcd9e8d57, c[2]), l1 = 0xcd9e8d57 * c[2];
        const u32 next[4] = {h1 ^ c[1] ^ k0, l1, h0 ^ c[3] ^ k1, l0};
        for (u32 i = 0; i < 4; i++) c[i] = next[i];
        k0 += 0x9e3779b9, k1 += 0xbb67ae85;
    }
    return c[0];
}

// Numbers in the order of floats, NaN lowest.
DEVICE u32 rank(f32 x) {
    const u32 b = bits_of(x);
    if (x != x) return 0;
    return b >> 31 ? ~b : b | 0x80000000;
}

// The largest, and of equal ones the first. `room` has 64 words.
DEVICE void block_argmax(u32& value, u32& index, u32* room) {
    for (u32 m = WARP / 2; m > 0; m /= 2) {
        const u32 v = shuffle_xor(value, m), i = shuffle_xor(index, m);
        if (v > value || (v == value && i < index)) value = v, index = i;
    }
    if (lane() == 0) room[warp()] = value, room[32 + warp()] = index;
    sync_block();
    const bool has = lane() < threads() / WARP;
    value = has ? room[lane()] : 0, index = has ? room[32 + lane()] : ~0u;
    for (u32 m = WARP / 2; m > 0; m /= 2) {
        const u32 v = shuffle_xor(value, m), i = shuffle_xor(index, m);
        if (v > value || (v == value && i < index)) value = v, index = i;
    }
    sync_block();
}

DEVICE void argmax_of(const void* scores, u64 from, u32 type, u32 n, u32* room, u32& value, u32& index) {
    value = 0, index = ~0u;
    for (u32 i = thread(); i < n; i += threads()) {
        const u32 r = rank(load_as(scores, from + i, type));
        if (index == ~0u || r > value) value = r, index = i;
    }
    block_argmax(value, index, room);
}

KERNEL(argmax, SampleArgs, 1024) {
    u32 value, index;
    argmax_of(a.scores, static_cast<u64>(block_x()) * a.vocabulary, a.type, a.vocabulary, shared<u32>(), value, index);
    if (thread() == 0) a.token[block_x()] = index;
}

// The highest threshold of ranks above or at which `measure` adds up to `goal` or more; 0 if all together do not.
template <class F> DEVICE u32 threshold(f32 goal, f32* room, F measure) {
    u32 found = 0;
    for (u32 bit = 1u << 31; bit; bit >>= 1)
        if (block_reduce<Add>(measure(found | bit), room) >= goal) found |= bit;
    return found;
}

// Repetition penalty, temperature, top-k, top-p among these, min-p; then one of what is left by chance. What equals the last one that
// top-k or top-p lets pass, passes too. Each thread has consecutive tokens, so sums do not depend on who comes first.
KERNEL(sample, SampleArgs, 1024) {
    f32* room = shared<f32>();
    f32* x = a.work + static_cast<u64>(block_x()) * a.vocabulary;
    const u64 row = static_cast<u64>(block_x()) * a.vocabulary;
    const u32 share = div_up(a.vocabulary, threads()), from = least(a.vocabulary, thread() * share), to = least(a.vocabulary, from + share);
    for (u32 i = thread(); i < a.vocabulary; i += threads()) x[i] = load_as(a.scores, row + i, a.type);
    sync_block();
    for (u32 i = thread(); i < a.history_len; i += threads()) {
        const u32 token = a.history[static_cast<u64>(block_x()) * a.history_len + i];
        if (token >= a.vocabulary) continue;
        // From the score itself: tokens that come twice are not punished twice.
        const f32 s = load_as(a.scores, row + token, a.type);
        x[token] = s > 0 ? s / a.repetition : s * a.repetition;
    }
    sync_block();
    u32 value, best;
    argmax_of(x, 0, TYPE_F32, a.vocabulary, reinterpret_cast<u32*>(room), value, best);
    const f32 top = x[best];
    if (a.temperature == 0) {
        if (thread() == 0) a.token[block_x()] = best;
        return;
    }
    const f32 by = 1.44269504f / a.temperature;
    // What a token weighs; NaNs nothing. The largest score weighs 1, even if it is infinite.
    auto weight = [&](u32 i) { return x[i] == top ? 1 : x[i] < top ? exp2_fast((x[i] - top) * by) : 0; };
    u32 least_rank = 1;
    if (a.top_k > 0 && a.top_k < a.vocabulary)
        least_rank = most(least_rank, threshold(static_cast<f32>(a.top_k), room, [&](u32 t) {
            u32 n = 0;
            for (u32 i = from; i < to; i++) n += rank(x[i]) >= t;
            return static_cast<f32>(n);
        }));
    auto mass = [&](u32 t) {
        f32 sum = 0;
        for (u32 i = from; i < to; i++)
            if (rank(x[i]) >= t) sum += weight(i);
        return sum;
    };
    if (a.top_p < 1) {
        const f32 all = block_reduce<Add>(mass(least_rank), room);
        const u32 kept = least_rank;
        least_rank = most(kept, threshold(a.top_p * all, room, [&](u32 t) { return mass(most(t, kept)); }));
    }
    auto passes = [&](u32 i) { return rank(x[i]) >= least_rank && weight(i) >= a.min_p && weight(i) > 0; };
    f32 mine = 0;
    for (u32 i = from; i < to; i++)
        if (passes(i)) mine += weight(i);
    // Sums of the threads before this one; all in the same order.
    f32* sums = room + 64;
    sums[thread()] = mine;
    sync_block();
    f32 before = 0, all = 0;
    for (u32 t = 0; t < threads(); t++) {
        if (t == thread()) before = all;
        all += sums[t];
    }
    const f32 goal = static_cast<f32>(philox(a.counters[block_x()], block_x(), a.seed) >> 8) * 0x1p-24f * all;
    if (thread() == 0) a.token[block_x()] = best;
    sync_block();
    if (mine > 0 && goal >= before && goal < before + mine) {
        u32 last = best;
        f32 sum = before;
        for (u32 i = from; i < to && sum <= goal; i++)
            if (passes(i)) sum += weight(i), last = i;
        a.token[block_x()] = last;
    }
}
