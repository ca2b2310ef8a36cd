// The next token from scores, without leaving the GPU: many blocks prepare a row, and one chooses.
#include "simt.cuh"

// Tokens of a block that prepares a row, of each of its 32 warps, and of each of its threads.
static constexpr u32 PART = 4096, TILE = 128, EACH = 4;

// How the token of a row is chosen, and which biases are its own.
struct Way {
    u64 seed;
    u32 top_k, last_n, bias_from, biases;
    f32 repetition, frequency, presence, temperature, top_p, min_p;
};

// What its tokens weigh together, and how many of them are candidates.
struct Part {
    u64 sum;
    u32 candidates, unused;
};

struct SampleArgs {
    const void* scores;
    u32* token;
    // Null: the largest is taken, and of what follows `tops`, the vocabulary and the type count.
    const Way* ways;
    // What is added to scores of tokens; of a row these ascend.
    const u32* bias_tokens;
    const f32* bias_values;
    // Tokens of each row so far, how many they are, and room for how many there is; those beyond the vocabulary are ignored.
    const u32* history;
    const u32* history_lengths;
    // Scores as they are compared; then, from where each part begins, those or the weights of its candidates, and which tokens they are.
    f32* work;
    u32* tokens;
    Part* parts;
    // Where in the stream of random numbers each row is.
    const u64* counters;
    // Of each row the ranks of the largest scores of tiles, and then which tokens these are.
    u32* tops;
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

// Numbers in the order of floats, NaN lowest; and back.
DEVICE u32 rank(f32 x) {
    const u32 b = bits_of(x);
    if (x != x) return 0;
    return b >> 31 ? ~b : b | 0x80000000;
}
DEVICE f32 of_rank(u32 r) { return from_bits(r >> 31 ? r & 0x7fffffff : ~r); }

// The largest, and of equal ones the first.
DEVICE void warp_argmax(u32& value, u32& index) {
    for (u32 m = WARP / 2; m > 0; m /= 2) {
        const u32 v = shuffle_xor(value, m), i = shuffle_xor(index, m);
        if (v > value || (v == value && i < index)) value = v, index = i;
    }
}

// Weights and their sums are integers, in units of 2^-39 of the largest weight: they do not depend on who comes first.
DEVICE u64 shuffle(u64 v, u32 lane) {
    return shuffle(static_cast<u32>(v), lane) | static_cast<u64>(shuffle(static_cast<u32>(v >> 32), lane)) << 32;
}
// Sums of this lane's and those before.
DEVICE u64 warp_scan(u64 v) {
#pragma unroll
    for (u32 by = 1; by < WARP; by *= 2) {
        const u64 other = shuffle(v, (lane() - by) % WARP);
        if (lane() >= by) v += other;
    }
    return v;
}
// The same for the threads of a block, and the sum of all.
DEVICE u64 block_scan(u64 v, u64* room, u64& all) {
    const u64 scan = warp_scan(v);
    if (lane() == WARP - 1) room[warp()] = scan;
    sync_block();
    const u64 warps = warp_scan(lane() < threads() / WARP ? room[lane()] : 0), before = shuffle(warps, (warp() - 1) % WARP);
    all = shuffle(warps, WARP - 1);
    sync_block();
    return scan + (warp() == 0 ? 0 : before);
}
// A share of a sum, in units of 2^-24.
DEVICE u64 share_of(u64 all, u32 share) { return (all >> 24) * share + ((all & 0xffffff) * share >> 24); }
DEVICE void add(u32* words, u64 v) {
    const u32 low = static_cast<u32>(v), carry = atomic_add(words, low) + low < low, high = static_cast<u32>(v >> 32) + carry;
    if (high) atomic_add(words + 1, high);
}

static constexpr u32 BINS = 2048;
// Numbers that a block keeps near at most, instead of reading them anew in each pass.
static constexpr u32 HELD = 2048;
// What a block shares.
struct Room {
    u32 reduce[64];
    u64 sums[32];
    u64 above;
    u32 found, unused;
    u32 bins[2 * BINS];
    f32 held[HELD];
    u32 tokens[HELD];
    Part parts[HELD / TILE];
};

// The largest of a row's scores: its rank and its token.
DEVICE void best_of(const u32* tops, u32 tiles, u32* room, u32& value, u32& index) {
    value = 0, index = ~0u;
#pragma unroll 1
    for (u32 i = thread(); i < tiles; i += threads())
        if (index == ~0u || tops[i] > value) value = tops[i], index = tops[tiles + i];
    warp_argmax(value, index);
    if (lane() == 0) room[warp()] = value, room[32 + warp()] = index;
    sync_block();
    value = room[lane()], index = room[32 + lane()];
    warp_argmax(value, index);
    sync_block();
}

DEVICE u64 units(f32 weight) { return static_cast<u64>(weight * 0x1p39f); }

// The largest scores of a row's tiles, each worth 1.
struct Tops {
    const u32* ranks;
    u32 count;
    template <class F> DEVICE void each(F use) const {
#pragma unroll 1
        for (u32 i = thread(); i < count; i += threads()) use(ranks[i], static_cast<u64>(1));
    }
};

// What is left of a row in its parts, which begin `stride` apart: scores, each worth 1, or weights. A warp has a part.
struct Candidates {
    f32* x;
    Part* parts;
    u32 count, stride;
    bool weights;
    template <class F> DEVICE void of_part(u32 part, F use) const {
        if (part >= count) return;
#pragma unroll 1
        for (u32 i = lane(); i < parts[part].candidates; i += WARP) use(x[part * stride + i]);
    }
    template <class F> DEVICE void of_all(F use) const {
#pragma unroll 1
        for (u32 part = warp(); part < count; part += threads() / WARP) of_part(part, use);
    }
    template <class F> DEVICE void each(F use) const {
        of_all([&](f32 x) { use(rank(x), weights ? units(x) : 1); });
    }
};

// The highest rank from which on items are worth `goal` (not 0) together; 0 if all are not. Digit by digit, of 11, 11 and 10 bits: by the
// worth of all items with each.
template <class T> DEVICE u32 threshold(u64 goal, Room& room, const T& items) {
    u32 found = 0, known = 0;
    u64 above = 0;
#pragma unroll 1
    for (u32 shift = 21, bits = 11;; shift = shift == 21 ? 10 : 0, bits = shift ? 11 : 10) {
        for (u32 i = thread(); i < 2 * BINS; i += threads()) room.bins[i] = 0;
        if (thread() == 0) room.found = ~0u;
        sync_block();
        items.each([&](u32 r, u64 worth) {
            if ((r & known) == found && worth) add(room.bins + (r >> shift & ((1u << bits) - 1)) * 2, worth);
        });
        sync_block();
        // From the highest digit on: each thread has some.
        const u32 some = BINS / threads(), first = BINS - 1 - thread() * some;
        const auto bin = [&](u32 i) { return room.bins[(first - i) * 2] | static_cast<u64>(room.bins[(first - i) * 2 + 1]) << 32; };
        u64 mine = 0, all;
        for (u32 i = 0; i < some; i++) mine += bin(i);
        u64 before = above + block_scan(mine, room.sums, all) - mine;
        for (u32 i = 0; i < some; before += bin(i), i++)
            if (before < goal && before + bin(i) >= goal) room.found = first - i, room.above = before;
        sync_block();
        if (room.found == ~0u) return 0;
        found |= room.found << shift, known |= ((1u << bits) - 1) << shift, above = room.above;
        sync_block();
        if (shift == 0) return found;
    }
}

// The item on which `goal` falls, which becomes what is left of it. All items must be worth more.
template <class F> DEVICE u32 pick(u32 items, u64& goal, Room& room, F worth) {
    const u32 some = div_up(items, threads()), from = least(items, thread() * some), to = least(items, from + some);
    u64 mine = 0, all;
#pragma unroll 1
    for (u32 i = from; i < to; i++) mine += worth(i);
    u64 before = block_scan(mine, room.sums, all) - mine;
#pragma unroll 1
    for (u32 i = from; i < to; before += worth(i), i++)
        if (before <= goal && goal - before < worth(i)) room.found = i, room.above = goal - before;
    sync_block();
    const u32 found = room.found;
    goal = room.above;
    sync_block();
    return found;
}

// 2^x for x in -40 to 0, of multiplications and additions that are rounded one by one: the same bits on every machine.
DEVICE f32 exp2_exact(f32 x) {
    const f32 magic = 12582912, sum = add_rn(x, magic), f = add_rn(x, -add_rn(sum, -magic));
    const f32 terms[] = {1.3398874e-3f, 9.618437e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.931472e-1f, 1};
    f32 p = 1.5335362e-4f;
    for (u32 i = 0; i < 6; i++) p = add_rn(mul_rn(p, f), terms[i]);
    return from_bits(bits_of(p) + ((bits_of(sum) - bits_of(magic)) << 23));
}

// What a score weighs if differences count `by` times, in powers of two: the largest 1, even if it is infinite, NaN 0.
DEVICE f32 weight(f32 x, f32 top, f32 by) {
    const f32 d = mul_rn(add_rn(x, -top), by);
    return x == top ? 1 : d >= -40 ? exp2_exact(d) : 0;
}

// A score with its biases and with the penalties of a token that occurs `count` times: as it is compared.
DEVICE f32 adjusted(const SampleArgs& a, const Way& way, f32 score, u32 token, u32 count) {
    const u32 end = way.bias_from + way.biases;
    u32 low = way.bias_from, high = end;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (a.bias_tokens[middle] < token) low = middle + 1;
        else high = middle;
    }
#pragma unroll 1
    for (; low < end && a.bias_tokens[low] == token; low++) score = add_rn(score, a.bias_values[low]);
    if (count == 0) return score;
    const f32 by = add_rn(mul_rn(static_cast<f32>(count), way.frequency), way.presence);
    return add_rn(score > 0 ? score / way.repetition : mul_rn(score, way.repetition), -by);
}

// Of a part of a row: scores as they are compared, and the largest of each tile.
KERNEL(sample_tops, SampleArgs, 1024) {
    const u32 row = block_x(), n = a.vocabulary, tiles = div_up(n, TILE), from = block_y() * PART;
    const u64 at = static_cast<u64>(row) * n;
    // How often the part's tokens occur.
    u32* counts = shared<u32>();
    if (a.ways) {
        const u32 length = a.history ? least(a.history_lengths[row], a.history_room) : 0, recent = least(length, a.ways[row].last_n);
        const u32* history = a.history + static_cast<u64>(row) * a.history_room + (length - recent);
        for (u32 i = thread(); i < PART; i += threads()) counts[i] = 0;
        sync_block();
#pragma unroll 1
        for (u32 i = thread(); i < recent; i += threads())
            if (history[i] - from < PART) atomic_add(counts + (history[i] - from), 1);
        sync_block();
    }
    const u32 tile = from / TILE + warp(), first = tile * TILE + lane();
#pragma unroll 1
    for (u32 i = first; a.ways && i < least(n, from + (warp() + 1) * TILE); i += WARP)
        a.work[at + i] = adjusted(a, a.ways[row], load_as(a.scores, at + i, a.type), i, counts[i - from]);
    u32 value = 0, index = ~0u;
    for (u32 e = 0, i = first; e < EACH; e++, i += WARP) {
        if (i >= n) continue;
        const u32 r = rank(a.ways ? a.work[at + i] : load_as(a.scores, at + i, a.type));
        if (index == ~0u || r > value) value = r, index = i;
    }
    warp_argmax(value, index);
    u32* tops = a.tops + static_cast<u64>(row) * tiles * 2;
    if (lane() == 0 && tile < tiles) tops[tile] = value, tops[tiles + tile] = index;
}

// Whether top-k leaves tokens out.
DEVICE bool by_rank(const Way& way, u32 n) { return way.top_k > 0 && way.top_k < n; }

// Of a part of a row: the tokens that top-k, top-p and min-p may leave, in their order; scores with top-k, otherwise weights. Which ones may
// be left follows from the largest scores of all tiles.
KERNEL(sample_candidates, SampleArgs, 1024) {
    Room& room = *shared<Room>();
    const u32 row = block_x(), n = a.vocabulary, tiles = div_up(n, TILE);
    const Way& way = a.ways[row];
    if (way.temperature == 0) return;
    const u32* tops = a.tops + static_cast<u64>(row) * tiles * 2;
    u32 value, index, lowest = 0;
    best_of(tops, tiles, room.reduce, value, index);
    const f32 top = of_rank(value), by = 1.44269504f / way.temperature;
    const bool ranks = by_rank(way, n), nucleus = way.top_p < 1;
    u64 lightest = 1;
    if (ranks) {
        // As many tiles have one as large as this, so the k-th of all is no smaller.
        u32* held = reinterpret_cast<u32*>(room.held);
#pragma unroll 1
        for (u32 i = thread(); i < tiles && tiles <= HELD; i += threads()) held[i] = tops[i];
        lowest = threshold(way.top_k, room, Tops{tiles <= HELD ? held : tops, tiles});
    } else if (nucleus) {
        // All together weigh at least as much as the largest of each tile: even if each token weighed almost `lightest`, it would be less than
        // what top-p may leave out.
        u64 mine = 0, all;
#pragma unroll 1
        for (u32 i = thread(); i < tiles; i += threads()) mine += units(weight(of_rank(tops[i]), top, by));
        block_scan(mine, room.sums, all);
        lightest = most(lightest, (all - share_of(all, static_cast<u32>(way.top_p * 0x1p24f))) / n);
    }
    const u32 from = block_y() * PART, first = from + thread() * EACH;
    const u64 at = static_cast<u64>(row) * n;
    f32 kept[EACH];
    bool keeps[EACH];
    u64 candidates = 0, sum = 0, all;
    for (u32 e = 0; e < EACH; e++) {
        const f32 x = first + e < n ? a.work[at + first + e] : 0, w = weight(x, top, by);
        const bool passes = ranks ? rank(x) >= lowest : units(w) >= lightest && w >= way.min_p;
        kept[e] = ranks ? x : w;
        keeps[e] = first + e < n && passes;
        candidates += keeps[e];
        if (first + e < n && (passes || nucleus)) sum += units(w);
    }
    // All have read their scores when candidates are written over them.
    u64 place = at + from + block_scan(candidates, room.sums, all) - candidates;
    for (u32 e = 0; e < EACH; e++)
        if (keeps[e]) a.work[place] = kept[e], a.tokens[place++] = first + e;
    candidates = all;
    block_scan(sum, room.sums, all);
    if (thread() == 0) a.parts[static_cast<u64>(row) * grid_y() + block_y()] = {all, static_cast<u32>(candidates), 0};
}

// Brings candidates and their tokens to where a block keeps them, in parts of a tile, if there is room: otherwise they stay where they are.
DEVICE void gather(Candidates& from, const u32*& tokens, Room& room) {
    if (from.count > threads()) return;
    u64 all;
    const u64 mine = thread() < from.count ? from.parts[thread()].candidates : 0, end = block_scan(mine, room.sums, all);
    if (all > HELD) return;
    // Where candidates of each part begin; a block has more bins than threads.
    room.bins[thread()] = static_cast<u32>(end - mine);
    sync_block();
    Candidates to{room.held, room.parts, div_up(static_cast<u32>(all), TILE), TILE, from.weights};
#pragma unroll 1
    for (u32 part = warp(); part < from.count; part += threads() / WARP)
#pragma unroll 1
        for (u32 i = lane(); i < from.parts[part].candidates; i += WARP) {
            room.held[room.bins[part] + i] = from.x[part * PART + i];
            room.tokens[room.bins[part] + i] = tokens[part * PART + i];
        }
    if (thread() < to.count) room.parts[thread()].candidates = least(TILE, static_cast<u32>(all) - thread() * TILE);
    sync_block();
    from = to, tokens = room.tokens;
}

// The definition is that of the module `model::sampling`: the same token from the same scores, bit for bit.
KERNEL(sample, SampleArgs, 1024) {
    Room& room = *shared<Room>();
    const u32 row = block_x(), n = a.vocabulary, tiles = div_up(n, TILE), count = div_up(n, PART);
    u32 value, best;
    best_of(a.tops + static_cast<u64>(row) * tiles * 2, tiles, room.reduce, value, best);
    if (thread() == 0) a.token[row] = best;
    if (!a.ways || a.ways[row].temperature == 0) return;
    const Way& way = a.ways[row];
    const u64 at = static_cast<u64>(row) * n;
    f32* x = a.work + at;
    Candidates candidates{x, a.parts + static_cast<u64>(row) * count, count, PART, !by_rank(way, n)};
    const u32* tokens = a.tokens + at;
    const f32 top = of_rank(value), by = 1.44269504f / way.temperature;
    const bool nucleus = way.top_p < 1;
    f32 floor = nucleus ? 0 : way.min_p;
    u64 all;
    // What the candidates weigh, and all of them.
    const auto weigh = [&]() {
#pragma unroll 1
        for (u32 base = 0; base < candidates.count; base += threads() / WARP) {
            u64 sum = 0;
            candidates.of_part(base + warp(), [&](f32 w) { sum += w >= floor ? units(w) : 0; });
            sum = warp_scan(sum);
            if (lane() == WARP - 1 && base + warp() < candidates.count) candidates.parts[base + warp()].sum = sum;
        }
        sync_block();
    };
    const auto sum_parts = [&]() {
        u64 mine = 0;
#pragma unroll 1
        for (u32 i = thread(); i < candidates.count; i += threads()) mine += candidates.parts[i].sum;
        block_scan(mine, room.sums, all);
    };
    sum_parts();
    gather(candidates, tokens, room);
    if (candidates.weights && !nucleus && candidates.stride == TILE) weigh();
    // Top-k, and then top-p.
#pragma unroll 1
    for (u32 step = candidates.weights; step < 1u + nucleus; step++) {
        const u64 least_p = most(static_cast<u64>(1), share_of(all, static_cast<u32>(way.top_p * 0x1p24f)));
        const u32 last = threshold(candidates.weights ? least_p : way.top_k, room, candidates);
        if (candidates.weights) floor = most(way.min_p, last ? of_rank(last) : 0);
        else candidates.of_all([&](f32& score) { score = rank(score) >= last ? weight(score, top, by) : 0; });
        candidates.weights = true;
        weigh();
        sum_parts();
    }
    // Nothing weighs anything, not even the best: all are NaN.
    if (all == 0) return;
    u64 goal = share_of(all, philox(a.counters[row], a.alike ? 0 : row, way.seed) >> 8);
    // A part, and a candidate of it.
    const Part* parts = candidates.parts;
    const u32 part = pick(candidates.count, goal, room, [&](u32 i) { return parts[i].sum; }), first = part * candidates.stride;
    const f32* weights = candidates.x + first;
    const u32 chosen = pick(parts[part].candidates, goal, room, [&](u32 i) { return weights[i] >= floor ? units(weights[i]) : 0; });
    if (thread() == 0) a.token[row] = tokens[first + chosen];
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
