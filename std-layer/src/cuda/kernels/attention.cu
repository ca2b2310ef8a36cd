// Keys and values in pages, and attention of single queries over them.
//
// A page has PAGE tokens; of one it holds for each KV head the keys of all its tokens, then (in an array of their own) the values: element
// ((page * kv_heads + head) * page_tokens + token) * dim + i. `tables` has for each sequence the numbers of its pages.
#include "attention_wide.cuh"

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

struct MoveArgs {
    void* keys;
    void* values;
    // Of each move: page and slot from where, page and slot to where.
    const u32* moves;
    // `groups` scales of 16 bits stand behind the codes of a row, or there are none; `bytes` are those of a row without them.
    u32 count, kv_heads, dim, page_tokens, pages, bytes, groups;
};

// Keys and values of tokens go to other places, one move after the other. A block has a head's keys, or values, and a thread 16 bits of each row.
KERNEL(kv_move, MoveArgs, 128) {
    const u64 rows = static_cast<u64>(a.kv_heads) * a.page_tokens;
    u16* all = static_cast<u16*>(block_y() ? a.values : a.keys);
    const auto place = [&](const u32* of, u32 i) {
        const u64 row = static_cast<u64>(block_x()) * a.page_tokens + of[1];
        if (!a.groups) return (of[0] * rows + row) * a.bytes / 2 + i;
        return i < a.bytes / 2 ? q8_codes(rows, a.dim, of[0], row) / 2 + i : q8_scale(rows, a.dim, of[0], row, i - a.bytes / 2) / 2;
    };
    for (u32 i = thread(); i < a.bytes / 2 + a.groups; i += threads())
        for (u32 k = 0; k < a.count; k++) {
            const u32* move = a.moves + 4 * k;
            if (move[0] < a.pages && move[2] < a.pages) all[place(move + 2, i)] = all[place(move, i)];
        }
}

DEVICE f32 number(const Eight<f32>& x, u32 i) { return from_bits(x.w[i]); }
DEVICE f32 number(const Eight<f16>& x, u32 i) { return to_f32(f16{static_cast<u16>(x.w[i / 2] >> i % 2 * 16)}); }
DEVICE f32 number(const Eight<bf16>& x, u32 i) { return from_bits(i % 2 ? x.w[i / 2] & 0xffff0000 : x.w[i / 2] << 16); }
DEVICE f32 number(const Eight<e4m3>& x, u32 i) { return to_f32(e4m3{static_cast<u8>(x.w[i / 4] >> i % 4 * 8)}); }
DEVICE f32 number(const Eight<q8_0>& x, u32 i) { return to_f32(q8_0{static_cast<i8>(x.w[i / 4] >> i % 4 * 8)}); }

// Has been computed here: else AMD's compiler loads what all sums are made of before it forms one, for which there are too few registers.
#ifdef __HIP__
DEVICE void done(f32& x) { asm volatile("" : "+v"(x)); }
#else
DEVICE void done(f32&) {}
#endif

// A block takes a part of the tokens for the HEADS queries that share a KV head, a warp a batch of them at a time. Of a key a lane has STEP times
// eight dimensions, which need few shuffles to be summed; of values it has eight dimensions, of STEP tokens, so that a warp's sums are
// spread over all lanes. Keys of the next batch are on the way as soon as those of this one have been multiplied, values too; their places are
// known 32 tokens ahead. Warps meet at the end.
template <class C, u32 HEADS> struct Attend : Turns<C, false> {
    typedef Turns<C, false> Base;
    using Base::a, Base::log, Base::few, Base::batch, Base::place_of;
    static constexpr u32 STEP = 4;
    // How far the numbers of a query are from the next one's, in shared memory.
    static constexpr u32 PITCH = 256;
    static constexpr u32 THREADS = 128;

    Eight<C> k[STEP], v[STEP];
    f32 of_key[STEP], of_value[STEP];
    bool has_key;
    // Of each query: sums of values, the largest score of the warp, and the lane's sum of exponentials.
    f32 acc[HEADS][8], top[HEADS], sum[HEADS];

    // Lanes that a value takes; a key takes `few`.
    DEVICE u32 lanes() const { return STEP << log; }
    // Tokens of a batch whose values a warp takes at a time.
    DEVICE u32 side() const { return WARP / STEP >> log; }
    // Which tokens of these this lane has a part of first, and from which dimension on.
    DEVICE u32 key_token() const { return lane() >> log; }
    DEVICE u32 key_first() const { return (lane() & (few() - 1)) * 8; }
    DEVICE u32 value_token() const { return lane() / STEP >> log; }
    DEVICE u32 value_first() const { return (lane() & (lanes() - 1)) * 8; }

    DEVICE void fetch_keys(u32 index) {
        const Place<C> at = place_of(index, key_token());
        has_key = at.there();
        if (!has_key) return;
        const u8* from = at.at(a, a.keys, key_first());
#pragma unroll
        for (u32 j = 0; j < STEP; j++) {
            const u32 further = j * few() * 8;
            if (key_first() + further >= a.dim) continue;
            k[j] = load8<C>(from + further * sizeof(C));
            of_key[j] = at.scale(a, a.keys, key_first() + further);
        }
    }

    DEVICE void fetch_value(u32 index, u32 t) {
        const Place<C> at = place_of(index, t * side() + value_token());
        v[t] = {}, of_value[t] = 1;
        if (!at.there() || value_first() >= a.dim) return;
        v[t] = load8<C>(at.at(a, a.values, value_first()));
        of_value[t] = at.scale(a, a.values, value_first());
    }

    // Products of queries with the keys of a batch; each lane gets those of the token it has a part of.
    DEVICE void multiply(const f32* q, f32 (&s)[HEADS]) const {
#pragma unroll
        for (u32 j = 0; j < STEP; j++) {
            f32 x[8];
#pragma unroll
            for (u32 i = 0; i < 8; i++) x[i] = number(k[j], i);
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
                f32 of[8], dot = 0;
                recall(of, q + h * PITCH + key_first() + j * few() * 8);
#pragma unroll
                for (u32 i = 0; i < 8; i++) dot = fmaf(of[i], x[i], dot);
                s[h] = fmaf(dot, of_key[j], s[h]);
                done(s[h]);
            }
        }
    }

    // Numbers of each token of a batch, for all lanes of the warp.
    DEVICE void share(const f32 (&s)[HEADS], f32* own) const {
        if (key_first() == 0) keep(own + key_token() * HEADS, s);
    }

    // Scores as exponentials relative to the largest ones, which seldom change.
    DEVICE void weigh(f32 (&s)[HEADS]) {
        bool more = false;
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) more |= s[h] > top[h];
        if (lanes_of(more)) {
            f32 best[HEADS];
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) best[h] = s[h];
#pragma unroll 1
            for (u32 x = few(); x < WARP; x *= 2)
#pragma unroll
                for (u32 h = 0; h < HEADS; h++) best[h] = most(best[h], shuffle_xor(best[h], x));
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
                const f32 next = most(best[h], top[h]);
                // Both may be -infinity, whose difference is NaN.
                const f32 by = top[h] == next ? 1 : exp2_fast(top[h] - next);
                top[h] = next, sum[h] *= by;
#pragma unroll
                for (u32 i = 0; i < 8; i++) acc[h][i] *= by;
            }
        }
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) sum[h] += s[h] = s[h] == minus_infinity() ? 0 : exp2_fast(s[h] - top[h]);
    }

    DEVICE void gather(u32 t, const f32* weights) {
        f32 x[8], p[HEADS];
#pragma unroll
        for (u32 i = 0; i < 8; i++) x[i] = number(v[t], i) * of_value[t];
        recall(p, weights + (t * side() + value_token()) * HEADS);
#pragma unroll
        for (u32 h = 0; h < HEADS; h++)
#pragma unroll
            for (u32 i = 0; i < 8; i++) acc[h][i] = fmaf(p[h], x[i], acc[h][i]);
    }

    // What the lanes of a warp have together: sums of values, then the largest score and the sum of exponentials of each query. Without tokens
    // sums are 0, and largest scores mean nothing.
    DEVICE void leave(f32* own) {
#pragma unroll 1
        for (u32 x = few(); x < WARP; x *= 2)
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) sum[h] += shuffle_xor(sum[h], x);
        // One after the other those that have other tokens.
#pragma unroll 1
        for (u32 turn = 0; turn < side(); turn++) {
            if (value_token() == turn && value_first() < a.dim) {
#pragma unroll
                for (u32 h = 0; h < HEADS; h++) {
                    f32 before[8] = {}, *place = own + h * (a.dim + 4) + value_first();
                    if (turn > 0) recall(before, place);
#pragma unroll
                    for (u32 i = 0; i < 8; i++) before[i] += acc[h][i];
                    keep(place, before);
                }
            }
            sync_warp();
        }
        if (lane() == 0)
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) own[h * (a.dim + 4) + a.dim] = top[h], own[h * (a.dim + 4) + a.dim + 1] = sum[h];
    }

    static DEVICE void run(const DecodeArgs& a) {
        const u32 group = a.heads / a.kv_heads, per = div_up(group, HEADS);
        const u32 query = block_z(), kv = block_y() / per, first = kv * group + block_y() % per * HEADS, part = block_x();
        const u32 sequence = a.sequences ? a.sequences[query] : query;
        const u32 count = least(HEADS, (kv + 1) * group - first), length = sequence < a.rows ? seen_to(a, query) : 0;
        const u32 start = first_seen(a, query, length);
        const auto begin = [&](u32 part) { return part_begin(a, part, start, length); };
        const u32 end = least(static_cast<u64>(length), begin(part + 1)), from = most(start, static_cast<u32>(least(static_cast<u64>(end), begin(part)))), to = most(from, end);
        // Whoever joins pieces knows which have tokens.
        if (a.piece && from == to) return wait_for_inputs();
        u32 log = 0;
#pragma unroll 1
        while (STEP * 8 << log < a.dim) log++;
        Attend self{{a, kv, sequence, from, from, to, log, {}, 0, 0}, {}, {}, {}, {}, false, {}, {}, {}};
        const u32 next = HEADS * most(self.batch(), a.dim + 4);
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) self.top[h] = minus_infinity();
#pragma unroll
        for (u32 j = 0; j < STEP; j++) self.of_key[j] = 1;
        // Where tokens are is known before the kernel in front has written the last ones.
        self.look(0);
        wait_for_inputs();
        self.turn(0);
        self.fetch_keys(0);
#pragma unroll
        for (u32 t = 0; t < STEP; t++) self.fetch_value(0, t);
        // Queries, with zeros behind them; then each warp's own.
        f32 *q = shared<f32>(), *room = q + HEADS * PITCH, *own = room + warp() * next;
        for (u32 job = thread() * 8; job < HEADS * PITCH; job += THREADS * 8) {
            const u32 h = job / PITCH, at = job % PITCH;
            f32 x[8] = {};
            if (h < count && at < a.dim) load8_as(x, a.q, (static_cast<u64>(query) * a.heads + first + h) * a.dim + at, a.type);
#pragma unroll
            for (u32 i = 0; i < 8; i++) x[i] *= a.scale * a.key_scale * 1.44269504f;
            keep(q + job, x);
        }
        sync_block();
#pragma unroll 1
        for (u32 index = 0; self.first_of(index) < to; index++) {
            f32 s[HEADS] = {};
            const bool there = self.has_key;
            self.multiply(q, s);
            self.turn(index + 1);
            self.fetch_keys(index + 1);
#pragma unroll 1
            for (u32 x = 1; x < self.few(); x *= 2)
#pragma unroll
                for (u32 h = 0; h < HEADS; h++) s[h] += shuffle_xor(s[h], x);
            if (a.cap != 0) {
                // In units of log2(e), as scores are; each by one lane.
                const f32 cap = a.cap * 1.44269504f;
                self.share(s, own);
                sync_warp();
#pragma unroll 1
                for (u32 i = lane(); i < self.batch() * HEADS; i += WARP) own[i] = cap * tanhf(own[i] / cap);
                sync_warp();
                recall(s, own + self.key_token() * HEADS);
                sync_warp();
            }
            if (a.slopes) {
                const u32 end = a.positions ? a.positions[query] + 1 : length;
                const u32 between = distance(a.seen, query, end, self.first_of(index) + self.key_token());
                const f32 far = fabsf(static_cast<f32>(static_cast<i32>(between))) * 1.44269504f;
#pragma unroll
                for (u32 h = 0; h < HEADS; h++) s[h] = fmaf(-a.slopes[first + least(h, count - 1)], far, s[h]);
            }
#pragma unroll
            for (u32 h = 0; h < HEADS; h++)
                if (!there) s[h] = minus_infinity();
            self.weigh(s);
            self.share(s, own);
            sync_warp();
#pragma unroll
            for (u32 t = 0; t < STEP; t++) {
                self.gather(t, own);
                self.fetch_value(index + 1, t);
            }
            sync_warp();
        }
        self.leave(own);
        sync_block();
        unite<THREADS / WARP>(a, room, next, count, [&](u32 h) { return a.partial + ((static_cast<u64>(query) * a.heads + first + h) * a.parts + part) * (a.dim + 2); });
    }
};

// Heads of more than 256 elements, and latent attention. A block has a part of the tokens and 16 heads of a query that share a KV head, a warp two of them: a
// lane has each 32nd number of their queries and of their sums. All warps read rows from shared memory, keys and then values, 16 at a time.
template <class C> struct Wide {
    static constexpr u32 THREADS = 256, HEADS = 2, TOKENS = 16, EACH = 18, PITCH = EACH * WARP;

    static DEVICE void run(const WideArgs& l) {
        const DecodeArgs& a = l.decode;
        const u32 group = a.heads / a.kv_heads, blocks = div_up(group, THREADS / WARP * HEADS), kv = block_y() / blocks;
        const u32 query = block_z(), first = (block_y() % blocks * (THREADS / WARP) + warp()) * HEADS, part = block_x();
        const u32 sequence = a.sequences[query], length = sequence < a.rows ? seen_to(a, query) : 0;
        const u32 start = first_seen(a, query, length);
        const u32 end = least(static_cast<u64>(length), part_begin(a, part + 1, start, length));
        const u32 from = most(start, static_cast<u32>(least(static_cast<u64>(end), part_begin(a, part, start, length))));
        wait_for_inputs();
        if (from >= end) return;
        f32* rows = shared<f32>();
        Place<C>* places = reinterpret_cast<Place<C>*>(rows + TOKENS * PITCH);
        f32 q[HEADS][EACH], acc[HEADS][EACH] = {}, top[HEADS], sum[HEADS] = {};
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            const u64 row = static_cast<u64>(kv * group + least(first + h, group - 1)) * l.next_head + static_cast<u64>(query) * l.next_query;
            top[h] = minus_infinity();
#pragma unroll
            for (u32 k = 0; k < EACH; k++) {
                const u32 i = lane() + WARP * k;
                q[h][k] = i < l.rank ? static_cast<const f32*>(a.q)[row * l.rank + i] : i - l.rank < l.turns ? l.turned[row * l.turns + i - l.rank] : 0;
                q[h][k] *= a.scale * 1.44269504f;
            }
        }
        const u32 eights = div_up(a.dim, WARP) * (WARP / 8);
#pragma unroll 1
        for (u32 token = from; token < end; token += TOKENS) {
            sync_block();
            if (thread() < TOKENS) {
                const u32 at = token + thread(), slot = at / a.page_tokens;
                u32 page = a.pages;
                if (at < end && slot < a.table_len && is_seen(a, query, length, at)) page = a.tables[static_cast<u64>(sequence) * a.table_len + slot];
                places[thread()] = page < a.pages ? Place<C>::of(a, page, kv, at % a.page_tokens) : Place<C>::none();
            }
            sync_block();
            const auto stage = [&](const void* cache) {
                for (u32 job = thread(); job < TOKENS * eights; job += THREADS) {
                    const u32 t = job / eights, i = job % eights * 8;
                    f32 x[8] = {};
                    if (places[t].there() && i < a.dim) {
                        const Eight<C> eight = load8<C>(places[t].at(a, cache, i));
                        const f32 by = places[t].scale(a, cache, i);
#pragma unroll
                        for (u32 n = 0; n < 8; n++) x[n] = number(eight, n) * by;
                    }
                    keep(rows + t * PITCH + i, x);
                }
                sync_block();
            };
            stage(a.keys);
            f32 s[HEADS][TOKENS] = {};
#pragma unroll
            for (u32 k = 0; k < EACH; k++) {
                if (WARP * k >= a.dim) continue;
#pragma unroll
                for (u32 t = 0; t < TOKENS; t++)
#pragma unroll
                    for (u32 h = 0; h < HEADS; h++) s[h][t] = fmaf(q[h][k], rows[t * PITCH + WARP * k + lane()], s[h][t]);
            }
            // Two lanes have the score of a token each.
            f32 p[HEADS];
#pragma unroll
            for (u32 h = 0; h < HEADS; h++) {
                const f32 score = warp_sums<TOKENS>(s[h]);
                p[h] = places[lane() / 2].there() ? score : minus_infinity();
                f32 next = p[h];
#pragma unroll
                for (u32 x = 2; x < WARP; x *= 2) next = most(next, shuffle_xor(next, x));
                next = most(next, top[h]);
                // Both may be -infinity, whose difference is NaN.
                const f32 by = top[h] == next ? 1 : exp2_fast(top[h] - next);
                p[h] = p[h] == minus_infinity() ? 0 : exp2_fast(p[h] - next);
                top[h] = next, sum[h] = fmaf(sum[h], by, p[h]);
#pragma unroll
                for (u32 k = 0; k < EACH; k++) acc[h][k] *= by;
            }
            if (a.values) {
                sync_block();
                stage(a.values);
            }
#pragma unroll
            for (u32 t = 0; t < TOKENS; t++) {
                f32 w[HEADS];
#pragma unroll
                for (u32 h = 0; h < HEADS; h++) w[h] = shuffle(p[h], 2 * t);
#pragma unroll
                for (u32 k = 0; k < EACH; k++) {
                    if (WARP * k >= l.rank) continue;
#pragma unroll
                    for (u32 h = 0; h < HEADS; h++) acc[h][k] = fmaf(w[h], rows[t * PITCH + WARP * k + lane()], acc[h][k]);
                }
            }
        }
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            const f32 total = warp_reduce<Add>(sum[h]) / 2;
            if (first + h >= group) continue;
            f32* to = a.partial + ((static_cast<u64>(query) * a.heads + kv * group + first + h) * a.parts + part) * (l.rank + 2);
#pragma unroll
            for (u32 k = 0; k < EACH; k++)
                if (lane() + WARP * k < l.rank) to[lane() + WARP * k] = acc[h][k];
            if (lane() == 0) to[l.rank] = top[h], to[l.rank + 1] = total;
        }
    }
};

// Parts together; a query without tokens gives zeros. A block has 32 dimensions of a query, each of its warps every eighth part of them.
KERNEL(attention_join, DecodeArgs, 256) {
    static constexpr u32 WARPS = 8;
    const u32 next = a.dim + 2, i = block_y() * WARP + lane();
    const f32 *in = a.partial + static_cast<u64>(block_x()) * a.parts * next, *ends = in + a.dim, sink = sink_of(a, block_x() % a.heads);
    f32 over = sink, total = 0, o = 0, *sums = shared<f32>();
#pragma unroll 4
    for (u32 p = lane(); p < a.parts; p += WARP) over = most(over, ends[p * next]);
    over = warp_reduce<Max>(over);
    const auto keep_of = [&](u32 p) { return ends[p * next + 1] == 0 ? 0 : exp2_fast(ends[p * next] - over); };
#pragma unroll 4
    for (u32 p = lane(); p < a.parts; p += WARP) total = fmaf(keep_of(p), ends[p * next + 1], total);
    total = warp_reduce<Add>(total) + part_of_sink(sink, over);
#pragma unroll 8
    for (u32 p = warp(); p < a.parts; p += WARPS) o = fmaf(keep_of(p), i < a.dim ? in[p * next + i] : 0, o);
    sums[thread()] = o;
    sync_block();
    if (warp() > 0 || i >= a.dim) return;
#pragma unroll
    for (u32 w = 1; w < WARPS; w++) o += sums[w * WARP + lane()];
    store_as(a.y, static_cast<u64>(block_x()) * a.dim + i, total == 0 ? 0 : o / total * a.value_scale, a.type);
}

#define DECODE(T)                                                           \
    KERNEL_EARLY(attention_decode_##T##_h1, DecodeArgs, 128) { Attend<T, 1>::run(a); } \
    KERNEL_EARLY(attention_decode_##T##_h4, DecodeArgs, 128) { Attend<T, 4>::run(a); }
#define CACHE(T)                                             \
    KERNEL(kv_append_##T, AppendArgs, 256) { append<T>(a); } \
    DECODE(T)
CACHE(f16)
CACHE(bf16)
CACHE(e4m3)
CACHE(f32)
// Whole models alone write it: `decoder_heads`.
DECODE(q8_0)

#define WIDE(T) \
    KERNEL_EARLY(attention_wide_##T, WideArgs, 256) { Wide<T>::run(a); }
WIDE(f16)
WIDE(bf16)
WIDE(f32)
WIDE(q8_0)

#ifdef MULTIPLIES_TILES
#define TOGETHER(T, DIM) \
    KERNEL_EARLY(attention_decode_##T##_d##DIM, DecodeArgs, 64) { Together<T, DIM>::run(a); }
#ifdef __CUDACC__
// Two blocks of a multiprocessor at least.
#define WIDE_THREADS 256, 2
#else
#define WIDE_THREADS 256
#endif
#define WIDE_TILES(T) \
    KERNEL_EARLY(attention_wide_##T##_d256, WideArgs, WIDE_THREADS) { WideTiles<T, 32>::run(a); } \
    KERNEL_EARLY(attention_wide_##T##_d512, WideArgs, WIDE_THREADS) { WideTiles<T, 64>::run(a); }
WIDE_TILES(f16)
WIDE_TILES(bf16)
TOGETHER(f16, 64)
TOGETHER(f16, 128)
TOGETHER(bf16, 64)
TOGETHER(bf16, 128)
TOGETHER(e4m3, 64)
TOGETHER(e4m3, 128)
#endif
