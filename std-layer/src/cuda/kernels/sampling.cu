// The next token from scores, without leaving the GPU. A block has a row of scores.
#include "simt.cuh"

// How the token of a row is chosen, and which biases are its own.
struct Way {
    u64 seed;
    u32 top_k, last_n, bias_from, biases;
    f32 repetition, frequency, presence, temperature, top_p, min_p;
};

struct SampleArgs {
    const void* scores;
    u32* token;
    const Way* ways;
    // What is added to scores of tokens; of a row these ascend.
    const u32* bias_tokens;
    const f32* bias_values;
    // Tokens of each row so far, how many they are, and room for how many there is; those beyond the vocabulary are ignored.
    const u32* history;
    const u32* history_lengths;
    // A copy of the scores, as f32, that is worked on, and how often tokens occur in the history.
    f32* work;
    u32* counts;
    // Where in the stream of random numbers each row is.
    const u64* counters;
    u32 vocabulary, history_room, type;
    // Whether all rows have the random numbers of the first.
    u32 alike;
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

// Weights and their sums are integers, in units of 2^-39 of the largest weight: they do not depend on who comes first.
DEVICE u64 shuffle(u64 v, u32 lane) {
    return shuffle(static_cast<u32>(v), lane) | static_cast<u64>(shuffle(static_cast<u32>(v >> 32), lane)) << 32;
}
// Sums of this lane's and those before.
DEVICE u64 warp_scan(u64 v) {
    for (u32 by = 1; by < WARP; by *= 2) {
        const u64 other = shuffle(v, (lane() - by) % WARP);
        if (lane() >= by) v += other;
    }
    return v;
}
// A share of a sum, in units of 2^-24.
DEVICE u64 share_of(u64 all, u32 share) { return (all >> 24) * share + ((all & 0xffffff) * share >> 24); }
DEVICE void add(u32* words, u64 v) {
    const u32 low = static_cast<u32>(v), carry = atomic_add(words, low) + low < low, high = static_cast<u32>(v >> 32) + carry;
    if (high) atomic_add(words + 1, high);
}

static constexpr u32 BINS = 2048;
// What a block shares.
struct Room {
    u32 reduce[64];
    u64 sums[32];
    u64 above;
    u32 digit, unused;
    u32 bins[2 * BINS];
};

// The highest rank from which on tokens are worth `goal` (not 0) together; 0 if all are not. Digit by digit, of 11, 11 and 10 bits: by
// the worth of all tokens with each.
template <class F> DEVICE u32 threshold(const f32* x, u32 n, u64 goal, Room& room, F worth) {
    u32 found = 0, known = 0;
    u64 above = 0;
    for (u32 shift = 21, bits = 11;; shift = shift == 21 ? 10 : 0, bits = shift ? 11 : 10) {
        for (u32 i = thread(); i < 2 * BINS; i += threads()) room.bins[i] = 0;
        if (thread() == 0) room.digit = ~0u;
        sync_block();
        for (u32 i = thread(); i < n; i += threads()) {
            const u32 r = rank(x[i]);
            const u64 w = (r & known) == found ? worth(i, r) : 0;
            if (w) add(room.bins + (r >> shift & ((1u << bits) - 1)) * 2, w);
        }
        sync_block();
        // From the highest digit on: each thread has some.
        const u32 each = BINS / threads(), first = BINS - 1 - thread() * each;
        u64 mine = 0;
        for (u32 i = 0; i < each; i++) mine += room.bins[(first - i) * 2] | static_cast<u64>(room.bins[(first - i) * 2 + 1]) << 32;
        const u64 scan = warp_scan(mine);
        if (lane() == WARP - 1) room.sums[warp()] = scan;
        sync_block();
        u64 before = above + scan - mine;
        for (u32 w = 0; w < warp(); w++) before += room.sums[w];
        for (u32 i = 0; i < each; i++) {
            const u64 w = room.bins[(first - i) * 2] | static_cast<u64>(room.bins[(first - i) * 2 + 1]) << 32;
            if (before < goal && before + w >= goal) room.digit = first - i, room.above = before;
            before += w;
        }
        sync_block();
        if (room.digit == ~0u) return 0;
        found |= room.digit << shift, known |= ((1u << bits) - 1) << shift, above = room.above;
        sync_block();
        if (shift == 0) return found;
    }
}

// 2^x for x in -40 to 0, of multiplications and additions that are rounded one by one: the same bits on every machine.
DEVICE f32 exp2_exact(f32 x) {
    const f32 magic = 12582912, sum = add_rn(x, magic), f = add_rn(x, -add_rn(sum, -magic));
    const f32 terms[] = {1.3398874e-3f, 9.618437e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.931472e-1f, 1};
    f32 p = 1.5335362e-4f;
    for (u32 i = 0; i < 6; i++) p = add_rn(mul_rn(p, f), terms[i]);
    return from_bits(bits_of(p) + ((bits_of(sum) - bits_of(magic)) << 23));
}

// A score with its biases.
DEVICE f32 biased(const SampleArgs& a, const Way& way, u32 token) {
    f32 score = load_as(a.scores, static_cast<u64>(block_x()) * a.vocabulary + token, a.type);
    const u32 end = way.bias_from + way.biases;
    u32 low = way.bias_from, high = end;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (a.bias_tokens[middle] < token) low = middle + 1;
        else high = middle;
    }
    for (; low < end && a.bias_tokens[low] == token; low++) score = add_rn(score, a.bias_values[low]);
    return score;
}

// Biases and penalties: scores as they are compared.
DEVICE void adjust(const SampleArgs& a, const Way& way, f32* x, u32* counts) {
    const u32 n = a.vocabulary, length = a.history ? least(a.history_lengths[block_x()], a.history_room) : 0;
    const u32 recent = least(length, way.last_n);
    const u32* history = a.history + static_cast<u64>(block_x()) * a.history_room + (length - recent);
    for (u32 i = thread(); i < n; i += threads()) x[i] = load_as(a.scores, static_cast<u64>(block_x()) * n + i, a.type);
    for (u32 i = thread(); i < recent; i += threads())
        if (history[i] < n) counts[history[i]] = 0;
    sync_block();
    for (u32 i = thread(); i < way.biases; i += threads()) {
        const u32* token = a.bias_tokens + way.bias_from + i;
        if (i == 0 || token[-1] != *token) x[*token] = biased(a, way, *token);
    }
    for (u32 i = thread(); i < recent; i += threads())
        if (history[i] < n) atomic_add(counts + history[i], 1);
    sync_block();
    for (u32 i = thread(); i < recent; i += threads()) {
        const u32 token = history[i];
        if (token >= n) continue;
        // From the score itself: all threads that meet a token write the same.
        const f32 s = biased(a, way, token), by = add_rn(mul_rn(static_cast<f32>(counts[token]), way.frequency), way.presence);
        x[token] = add_rn(s > 0 ? s / way.repetition : mul_rn(s, way.repetition), -by);
    }
    sync_block();
}

// The definition is that of the module `model::sampling`: the same token from the same scores, bit for bit.
KERNEL(sample, SampleArgs, 1024) {
    Room& room = *shared<Room>();
    const Way& way = a.ways[block_x()];
    const u32 n = a.vocabulary;
    f32* x = a.work + static_cast<u64>(block_x()) * n;
    adjust(a, way, x, a.counts + static_cast<u64>(block_x()) * n);
    u32 value, best;
    argmax_of(x, 0, TYPE_F32, n, room.reduce, value, best);
    const f32 top = x[best];
    if (thread() == 0) a.token[block_x()] = best;
    if (way.temperature == 0) return;
    const u32 kth = way.top_k > 0 && way.top_k < n ? threshold(x, n, way.top_k, room, [](u32, u32) { return static_cast<u64>(1); }) : 0;
    sync_block();
    // Scores become weights: the largest 1, even if it is infinite, NaN 0.
    const f32 by = 1.44269504f / way.temperature;
    for (u32 i = thread(); i < n; i += threads()) {
        const f32 d = mul_rn(add_rn(x[i], -top), by);
        const f32 weight = x[i] == top ? 1 : d >= -40 ? exp2_exact(d) : 0;
        x[i] = rank(x[i]) >= kth ? weight : 0;
    }
    sync_block();
    const auto units = [&](u32 i) { return static_cast<u64>(x[i] * 0x1p39f); };
    // Each warp has consecutive tokens, and of these each lane every 32nd.
    const u32 warps = threads() / WARP, share = div_up(div_up(n, warps), WARP) * WARP;
    const u32 from = least(n, warp() * share), to = least(n, from + share);
    u64 before = 0, all = 0, mine = 0;
    const auto add_up = [&](f32 floor) {
        mine = before = all = 0;
        for (u32 i = from + lane(); i < to; i += WARP)
            if (x[i] >= floor) mine += units(i);
        mine = shuffle(warp_scan(mine), WARP - 1);
        if (lane() == 0) room.sums[warp()] = mine;
        sync_block();
        for (u32 w = 0; w < warps; w++) {
            if (w < warp()) before += room.sums[w];
            all += room.sums[w];
        }
        sync_block();
    };
    f32 floor = way.min_p;
    if (way.top_p < 1) {
        add_up(0);
        const u64 goal = most(static_cast<u64>(1), share_of(all, static_cast<u32>(way.top_p * 0x1p24f)));
        const u32 last = threshold(x, n, goal, room, [&](u32 i, u32) { return units(i); });
        floor = most(floor, last ? from_bits(last & 0x7fffffff) : 0);
    }
    add_up(floor);
    const u64 goal = share_of(all, philox(a.counters[block_x()], a.alike ? 0 : block_x(), way.seed) >> 8);
    if (goal < before || goal >= before + mine) return;
    for (u32 base = from; base < to; base += WARP) {
        const u32 i = base + lane();
        const u64 w = i < to && x[i] >= floor ? units(i) : 0, scan = before + warp_scan(w);
        if (scan > goal && scan - w <= goal) a.token[block_x()] = i;
        before = shuffle(scan, WARP - 1);
        if (before > goal) return;
    }
}

struct LogProbabilitiesArgs {
    const f32* x;
    // A row of `x` and a token for each result.
    const u32* rows;
    const u32* tokens;
    f32* y;
    u32 count, vocabulary;
};

// The natural logarithm of a normal number: of its exponent, and 2 artanh((m - 1) / (m + 1)) of its mantissa, m from 2^-0.5 to 2^0.5.
DEVICE f32 ln(f32 x) {
    const u32 root = 0x3f3504f3, above = bits_of(x) - root;
    const f32 exponent = static_cast<f32>(static_cast<i32>(above) >> 23), m = from_bits((above & 0x7fffff) + root);
    const f32 t = (m - 1) / (m + 1), square = t * t;
    const f32 terms[] = {1.0f / 7, 1.0f / 5, 1.0f / 3, 1};
    f32 p = 1.0f / 9;
    for (u32 i = 0; i < 4; i++) p = fmaf(p, square, terms[i]);
    return fmaf(exponent, 0.693147181f, 2 * t * p);
}

// x[row][token] - max - ln(sum of exp(x[row] - max)), a block a result; NaN for a row or a token that does not exist.
KERNEL(log_probabilities, LogProbabilitiesArgs, 1024) {
    const u32 row = a.rows[block_x()], token = a.tokens[block_x()], n = a.vocabulary;
    f32* y = a.y + block_x();
    const f32 nan = from_bits(0x7fc00000);
    if (row >= a.count || token >= n) {
        if (thread() == 0) *y = nan;
        return;
    }
    const f32* x = a.x + static_cast<u64>(row) * n;
    f32* room = shared<f32>();
    // Whatever the maximum is of a row with a NaN or an infinite number: the sum is NaN then. It is 0 for a row of -inf alone.
    f32 top = Max::none, sum = 0;
    for (u32 i = thread(); i < n; i += threads()) top = most(top, x[i]);
    top = block_reduce<Max>(top, room);
    for (u32 i = thread(); i < n; i += threads()) sum += exp_fast(x[i] - top);
    sum = block_reduce<Add>(sum, room);
    if (thread() == 0) *y = sum > 0 ? x[token] - top - ln(sum) : nan;
}
