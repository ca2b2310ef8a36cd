// Attention of queries that share keys and values, on tensor cores: heads that share a KV head, and queries of one sequence that stand side by side, such as
// drafts.
#pragma once

#include "mma.cuh"
#include "tokens.cuh"

// Where `mma` is an instruction for both types.
#if !defined(__HIP__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
#define MULTIPLIES_TILES

// How many of the lowest bits are 1, up to the first 0.
DEVICE u32 ones(u32 bits) { return bits_set(bits & ~(bits + 1)); }

// A block has a tile of up to 16 rows, each a head of a query, and a part of the tokens; a warp takes 16 tokens at a time. Keys and values go from memory to
// the registers that `mma` reads, 16 bytes a lane: which dimension has which place in a tile does not matter as long as both operands agree. So lane 4 g + t
// has eight dimensions in a row of each 32 of keys g and g + 8, four of which are one product's and four the next one's; and of each 64 dimensions of values
// the eighth g, of tokens 2 t, 2 t + 1 and those 8 behind, of which `permute` makes pairs. Sums of lane 4 g + t are those of rows g and g + 8.
template <class T, u32 DIM> struct Together : Turns<T, true> {
    typedef Turns<T, true> Base;
    using Base::a, Base::place_of;
    static constexpr u32 ROWS = 16, BATCH = 16, CHUNKS = DIM / 32, PARTS = DIM / 64;
    // How far a query is from the next one in shared memory: two of them lie in different banks.
    static constexpr u32 PITCH = DIM + 32;

    // The first query and the first head, and how many heads and rows there are: of each query all heads, one behind the other.
    u32 query, head, heads, count;
    Eight<T> k[2][CHUNKS], v[PARTS][4];
    // Of dimension 64 c + 8 (2 t + r % 2) + j the sums `acc[c][j][r]`; the largest scores, and this lane's part of the sums of exponentials.
    f32 acc[PARTS][8][4], top[2], sum[2];

    // A row of this lane, 0 or 1; those that nobody asks for are like the last one.
    DEVICE u32 row(u32 h) const { return least(lane() / 4 + 8 * h, count - 1); }
    DEVICE u32 query_of(u32 row) const { return query + row / heads; }
    DEVICE u32 head_of(u32 row) const { return head + row % heads; }
    static DEVICE u32 length_of(const DecodeArgs& a, u32 query) { return least(a.lengths[query], 0x7fffffffu); }
    // Which token of a batch score i of a tile of eight keys is.
    static DEVICE u32 token_of(u32 tile, u32 i) { return 8 * tile + lane() % 4 * 2 + i % 2; }

    DEVICE void fetch_keys(u32 index) {
#pragma unroll
        for (u32 u = 0; u < 2; u++) {
            // One that is not there is hidden, whatever its scores are.
            const Place<T> at = place_of(index, 8 * u + lane() / 4);
            if (!at.there()) continue;
            const u32 first = lane() % 4 * 8;
            const u8* from = at.at(a, a.keys, first);
#pragma unroll
            for (u32 j = 0; j < CHUNKS; j++)
                if (first + 32 * j < a.dim) k[u][j] = load8<T>(from + 64 * j);
        }
    }

    DEVICE void fetch_values(u32 index, u32 c) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const Place<T> at = place_of(index, token_of(i / 2, i));
            const u32 first = 64 * c + lane() / 4 * 8;
            v[c][i] = {};
            if (at.there() && first < a.dim) v[c][i] = load8<T>(at.at(a, a.values, first));
        }
    }

    // Products of queries and the keys of a batch.
    DEVICE void multiply(const T* q, f32 (&s)[2][4]) const {
#pragma unroll
        for (u32 j = 0; j < CHUNKS; j++) {
            const T* from = q + lane() / 4 * PITCH + 32 * j + lane() % 4 * 8;
            const Quad low = load16(from), high = load16(from + 8 * PITCH);
#pragma unroll
            for (u32 i = 0; i < 4; i += 2)
#pragma unroll
                for (u32 u = 0; u < 2; u++) mma(s[u], {low.w[i], high.w[i], low.w[i + 1], high.w[i + 1]}, {k[u][j].w[i], k[u][j].w[i + 1]}, T());
        }
    }

    // What falls with the distance of tokens, those of a batch that begins with `first`.
    DEVICE void slope(u32 first, f32 (&s)[2][4]) const {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 of = query_of(row(h)), end = a.positions ? a.positions[of] + 1 : length_of(a, of);
            const f32 by = a.slopes[head_of(row(h))] * 1.44269504f;
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                f32& score = s[i / 2][2 * h + i % 2];
                score = fmaf(-by, fabsf(static_cast<f32>(static_cast<i32>(distance(a.seen, of, end, first + token_of(i / 2, i))))), score);
            }
        }
    }

    // Scores of tokens that rows do not see, or that are not there.
    DEVICE void hide(u32 first, u32 there, f32 (&s)[2][4]) const {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 of = query_of(row(h)), length = length_of(a, of), start = seen_from(path_length(a.seen, of, length), a.window);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                const u32 token = first + token_of(i / 2, i);
                if (!(there >> token_of(i / 2, i) & 1) || token < start || token >= length || !is_seen(a, of, length, token)) s[i / 2][2 * h + i % 2] = minus_infinity();
            }
        }
    }

    // Scores as exponentials relative to the largest ones, which seldom change.
    DEVICE void weigh(const f32 (&s)[2][4], u32 (&p)[4]) {
        f32 best[2];
        bool more = false;
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            best[h] = most(most(s[0][2 * h], s[0][2 * h + 1]), most(s[1][2 * h], s[1][2 * h + 1]));
            more |= best[h] > top[h];
        }
        if (lanes_of(more)) {
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                best[h] = most(best[h], shuffle_xor(best[h], 1));
                best[h] = most(most(best[h], shuffle_xor(best[h], 2)), top[h]);
                // Both may be -infinity, whose difference is NaN.
                const f32 by = top[h] == best[h] ? 1 : exp2_fast(top[h] - best[h]);
                top[h] = best[h], sum[h] *= by;
#pragma unroll
                for (u32 c = 0; c < PARTS; c++)
#pragma unroll
                    for (u32 j = 0; j < 8; j++) acc[c][j][2 * h] *= by, acc[c][j][2 * h + 1] *= by;
            }
        }
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const f32 base = top[h] == minus_infinity() ? 0 : top[h];
#pragma unroll
            for (u32 u = 0; u < 2; u++) {
                const f32 x = exp2_fast(s[u][2 * h] - base), y = exp2_fast(s[u][2 * h + 1] - base);
                sum[h] += x + y;
                p[2 * u + h] = narrow2(x, y, T());
            }
        }
    }

    DEVICE void gather(u32 c, const u32 (&p)[4]) {
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            const u32 pick = j % 2 ? 0x7632 : 0x5410;
            const u32 low = permute(v[c][0].w[j / 2], v[c][1].w[j / 2], pick), high = permute(v[c][2].w[j / 2], v[c][3].w[j / 2], pick);
            mma(acc[c][j], p, {low, high}, T());
        }
    }

    // What the lanes of a warp have together.
    DEVICE void leave(f32* own) const {
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            f32 total = sum[h] + shuffle_xor(sum[h], 1);
            total += shuffle_xor(total, 2);
            const u32 row = lane() / 4 + 8 * h;
            if (row >= count) continue;
#pragma unroll
            for (u32 c = 0; c < PARTS; c++)
#pragma unroll
                for (u32 r = 0; r < 2; r++) {
                    const u32 first = 64 * c + (lane() % 4 * 2 + r) * 8;
                    f32 eight[8];
#pragma unroll
                    for (u32 j = 0; j < 8; j++) eight[j] = acc[c][j][2 * h + r];
                    if (first < a.dim) keep(own + row * a.dim + first, eight);
                }
            if (lane() % 4 == 0) own[count * a.dim + 2 * row] = top[h], own[count * a.dim + 2 * row + 1] = total;
        }
    }

    // The queries of the block: none if another block has them. A run of queries of a sequence is divided from its first one on.
    static DEVICE u32 queries_of(const DecodeArgs& a, u32 query) {
        if (a.together < 2 || !a.sequences) return 1;
        u32 before = 0, same;
        do {
            const u32 at = before + lane();
            same = ones(lanes_of(at < query && a.sequences[query - 1 - at] == a.sequences[query]));
            before += same;
        } while (same == WARP);
        if (before % a.together) return 0;
        const u32 at = query + lane();
        return least(a.together, ones(lanes_of(at < a.queries && a.sequences[at] == a.sequences[query])));
    }

    static DEVICE void run(const DecodeArgs& a) {
        const u32 group = a.heads / a.kv_heads, per = div_up(group, ROWS);
        const u32 query = block_z(), kv = block_y() / per, head = kv * group + block_y() % per * ROWS, part = block_x();
        const u32 heads = least(ROWS, (kv + 1) * group - head), queries = queries_of(a, query);
        const u32 sequence = a.sequences ? a.sequences[query] : query;
        if (queries == 0 || sequence >= a.rows) return;
        // Tokens that some of the rows see, and those that all of them do.
        u32 start = ~0u, length = 0, from_all = 0, to_all = ~0u;
#pragma unroll 1
        for (u32 i = query; i < query + queries; i++) {
            const u32 n = length_of(a, i), first = seen_from(path_length(a.seen, i, n), a.window);
            start = least(start, first), length = most(length, n);
            from_all = most(from_all, first), to_all = least(to_all, a.seen ? most(n, 64u) - 64 : n);
        }
        const u32 share = a.piece ? a.piece : div_up(length - start, a.parts);
        const u64 place = (a.piece ? 0 : start) + static_cast<u64>(part) * share;
        const u32 begin = static_cast<u32>(least(place, static_cast<u64>(length))), end = static_cast<u32>(least(place + share, static_cast<u64>(length)));
        const u32 seen = most(start, begin), to = most(seen, end);
        if (a.piece && seen == to) return;
        // Which warp has a token, and after which others, depends on nothing but its place in the part.
        const u32 step = BATCH * (threads() / WARP), from = begin + (seen - begin) / step * step;
        Together self{{a, kv, sequence, from, seen, to, 1, {}, 0, 0}, query, head, heads, queries * heads, {}, {}, {}, {}, {}};
        self.top[0] = self.top[1] = minus_infinity();
        self.look(0);
        self.turn(0);
        self.fetch_keys(0);
#pragma unroll
        for (u32 c = 0; c < PARTS; c++) self.fetch_values(0, c);
        // Queries, with zeros behind them; then each warp's own.
        T* q = shared<T>();
        const u32 next = self.count * (a.dim + 4);
        f32 *room = reinterpret_cast<f32*>(q + ROWS * PITCH), *own = room + warp() * next;
#pragma unroll 1
        for (u32 r = 0; r < ROWS; r++) {
            const u64 first = (static_cast<u64>(self.query_of(r)) * a.heads + self.head_of(r)) * a.dim;
#pragma unroll 1
            for (u32 i = thread(); i < DIM; i += threads()) q[r * PITCH + i] = from_f32<T>(r < self.count && i < a.dim ? load_as(a.q, first + i, a.type) : 0);
        }
        sync_block();
        const f32 scale = a.scale * a.key_scale * 1.44269504f;
#pragma unroll 1
        for (u32 index = 0; self.first_of(index) < to; index++) {
            const u32 first = self.first_of(index), there = lanes_of(self.place.there()) >> index % 2 * BATCH & 0xffff;
            f32 s[2][4] = {};
            u32 p[4];
            self.multiply(q, s);
            self.turn(index + 1);
            self.fetch_keys(index + 1);
#pragma unroll
            for (u32 i = 0; i < 8; i++) s[i / 4][i % 4] *= scale;
            if (a.cap != 0) {
                // cap tanh(score / cap), in units of log2(e), as scores are.
                const f32 cap = a.cap * 1.44269504f, by = 2 / a.cap;
#pragma unroll
                for (u32 i = 0; i < 8; i++) s[i / 4][i % 4] = cap - divide(2 * cap, 1 + exp2_fast(s[i / 4][i % 4] * by));
            }
            if (a.slopes) self.slope(first, s);
            if (there != 0xffff || first < from_all || first + BATCH > to_all) self.hide(first, there, s);
            self.weigh(s, p);
#pragma unroll
            for (u32 c = 0; c < PARTS; c++) {
                self.gather(c, p);
                self.fetch_values(index + 1, c);
            }
        }
        self.leave(own);
        sync_block();
        unite(a, room, next, self.count, self.count, [&](u32 r) { return a.partial + ((static_cast<u64>(self.query_of(r)) * a.heads + self.head_of(r)) * a.parts + part) * (a.dim + 2); });
    }
};
#endif
