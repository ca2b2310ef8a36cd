// Latent attention, and attention of heads of more than 128 elements, on tensor cores.
#pragma once

#include "together.cuh"

struct WideArgs {
    // `dim` elements of a cached row, and the first `rank` elements of queries. Without values they are of one head, and the first `rank` elements of a row are its
    // value, too.
    DecodeArgs decode;
    // The `turns` elements behind those of queries.
    const f32* turned;
    // How far the next head of a query, and the next query of a head, are behind it.
    u32 rank, turns, next_head, next_query;
};

#ifdef MULTIPLIES_TILES
// A block has up to 16 rows, each a head of a query, and a part of the tokens, which it takes 32 at a time. Each of its warps has OWN columns of queries, keys and
// values: it copies them, multiplies them to what they add to all scores, and weighs values with all of these. So a row of the cache is read once for all rows, and no
// warp needs the sums of the others. Without values, half of the warps have 16 of the elements behind `rank`, too.
//
// Keys and values of 32 tokens, or both as one, are a tile. Tiles come in the order in which they are multiplied; while one is, the next one arrives.
template <class C, u32 OWN> struct WideTiles {
    static constexpr u32 WARPS = 8, ROWS = 16, TOKENS = WARP, MINE = ROWS / WARPS, CHUNKS = OWN / 8, TURNS = OWN == 64 ? 16 : 0, STEPS = OWN / 16;
    // Bytes of a warp's columns of the tokens of a tile, of its turned ones, and of all of the block.
    static constexpr u32 SLICE = TOKENS * OWN * 2, TURNED = TOKENS * TURNS * 2, SIZE = WARPS * SLICE + WARPS / 2 * TURNED;
    // Numbers from a row of exponentials to the next, which lie in different banks.
    static constexpr u32 PITCH = TOKENS + 8;

    const WideArgs& l;
    const DecodeArgs& a;
    // The first query and the first head, and how many heads and rows there are: of each query all heads, one behind the other.
    u32 kv, sequence, query, head, heads, count;
    // Which tokens the block sees.
    u32 seen, to;
    u8* tiles;
    // The first token that is asked for next, the page of one of those from there on, and where a token of this lane is that was asked for last.
    u32 next, page;
    Place<C> place;
    // How many tiles were asked for, and which tokens of the last one, and of the one before, are there.
    u32 asked, there[2];
    u32 q[STEPS + 1][4];
    f32 acc[CHUNKS][4];

    DEVICE u32 query_of(u32 row) const { return query + row / heads; }
    DEVICE u64 row_of(u32 row) const { return static_cast<u64>(head + row % heads) * l.next_head + static_cast<u64>(query_of(row)) * l.next_query; }
    DEVICE bool latent() const { return !a.values; }
    DEVICE bool turns() const { return TURNS && l.turns && warp() < WARPS / 2; }

    // Where eight elements of a token are among those of a warp: those of eight tokens lie in different banks.
    static DEVICE u32 slot(u32 token, u32 chunk) { return (token * CHUNKS + (chunk ^ token * CHUNKS / 8 % CHUNKS)) * 16; }
    static DEVICE u32 turned_slot(u32 token, u32 chunk) { return (token * 2 + (chunk ^ token / 4 % 2)) * 16; }
    static DEVICE u32 own() { return warp() * SLICE; }
    static DEVICE u32 own_turned() { return WARPS * SLICE + warp() * TURNED; }
    // Where the part of a warp in the score of a token is.
    static DEVICE u32 score_at(u32 warp, u32 row, u32 token) { return (warp * ROWS + row) * TOKENS + (token ^ row % 4 * 8); }
    // Where tile `index` is.
    DEVICE u8* tile(u32 index) const { return tiles + index % 2 * SIZE; }

    // Asks for the pages of the next tokens.
    DEVICE void look() {
        const u32 token = next + lane(), at = token / a.page_tokens;
        page = a.pages;
        if (token >= seen && token < to && at < a.table_len) page = a.tables[static_cast<u64>(sequence) * a.table_len + at];
    }

    // Asks for this warp's columns of the next tile.
    DEVICE void ask() {
        const bool keys = latent() || asked % 2 == 0;
        if (keys) {
            place = page < a.pages ? Place<C>::of(a, page, kv, (next + lane()) % a.page_tokens) : Place<C>::none();
            there[1] = there[0], there[0] = lanes_of(place.there());
            next += TOKENS;
            look();
        }
        const void* cache = keys ? a.keys : a.values;
        u8* to = tile(asked++);
#pragma unroll
        for (u32 i = 0; i < TOKENS; i += WARP / CHUNKS) {
            const u32 token = i + lane() / CHUNKS, chunk = lane() % CHUNKS, at = warp() * OWN + chunk * 8;
            const Place<C> from = place.of_lane(token);
            copy_async(to + own() + slot(token, chunk), from.at(a, cache, at), from.there() && at < l.rank);
        }
        if (turns()) {
#pragma unroll
            for (u32 i = 0; i < TOKENS; i += WARP / 2) {
                const u32 token = i + lane() / 2, chunk = lane() % 2, at = warp() * TURNS + chunk * 8;
                const Place<C> from = place.of_lane(token);
                copy_async(to + own_turned() + turned_slot(token, chunk), from.at(a, cache, l.rank + at), from.there() && at < l.turns);
            }
        }
        copy_commit();
    }

    // What `mma` takes of queries.
    DEVICE void load_queries() {
        const auto two = [](const f32* from, u32 width, bool there, u32 at) { return there && at < width ? narrow2(from[at], from[at + 1], C()) : 0; };
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 row = h * 8 + lane() / 4;
            const bool there = row < count;
            const u64 number = there ? row_of(row) : 0;
            const f32 *plain = static_cast<const f32*>(a.q) + number * l.rank, *turned = l.turned + number * l.turns;
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const u32 column = i * 8 + lane() % 4 * 2;
#pragma unroll
                for (u32 k = 0; k < STEPS; k++) q[k][2 * i + h] = two(plain, l.rank, there, warp() * OWN + k * 16 + column);
                q[STEPS][2 * i + h] = turns() ? two(turned, l.turns, there, warp() * TURNS + column) : 0;
            }
        }
    }

    // What this warp's columns add to all scores.
    DEVICE void multiply(const u8* tile, f32* scores) const {
        f32 s[TOKENS / 8][4] = {};
        const auto add = [&](u32 k, u32 tokens, const u8* from) {
            u32 b[4];
            load_tiles<false>(b, from);
#pragma unroll
            for (u32 u = 0; u < 2; u++) mma(s[tokens / 8 + u], q[k], {b[2 * u], b[2 * u + 1]}, C());
        };
        const u32 token = lane() / 16 * 8 + lane() % 8, chunk = lane() / 8 % 2;
#pragma unroll
        for (u32 k = 0; k < STEPS; k++)
#pragma unroll
            for (u32 t = 0; t < TOKENS; t += 16) add(k, t, tile + own() + slot(t + token, 2 * k + chunk));
        if (turns()) {
#pragma unroll
            for (u32 t = 0; t < TOKENS; t += 16) add(STEPS, t, tile + own_turned() + turned_slot(t + token, chunk));
        }
#pragma unroll
        for (u32 n = 0; n < TOKENS / 8; n++)
#pragma unroll
            for (u32 h = 0; h < 2; h++) keep2(scores + score_at(warp(), h * 8 + lane() / 4, n * 8 + lane() % 4 * 2), s[n][2 * h], s[n][2 * h + 1]);
    }

    // Sums of values, times what the largest scores leave of them, and values with their weights.
    DEVICE void gather(const u8* tile, const C* weights, const f32* stays) {
        const f32 by[2] = {stays[lane() / 4], stays[8 + lane() / 4]};
        if (lanes_of(by[0] != 1 || by[1] != 1)) {
#pragma unroll
            for (u32 j = 0; j < CHUNKS; j++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) acc[j][i] *= by[i / 2];
        }
#pragma unroll
        for (u32 t = 0; t < TOKENS; t += 16) {
            u32 p[4];
            load_tiles<false>(p, weights + lane() % 16 * PITCH + t + lane() / 16 * 8);
#pragma unroll
            for (u32 j = 0; j < CHUNKS; j += 2) {
                u32 b[4];
                load_tiles<true>(b, tile + own() + slot(t + lane() % 16, j + lane() / 16));
#pragma unroll
                for (u32 u = 0; u < 2; u++) mma(acc[j + u], p, {b[2 * u], b[2 * u + 1]}, C());
            }
        }
    }

    static DEVICE void run(const WideArgs& l) {
        const DecodeArgs& a = l.decode;
        const u32 group = a.heads / a.kv_heads, per = div_up(group, ROWS), part = block_x();
        const u32 query = block_z(), kv = block_y() / per, head = kv * group + block_y() % per * ROWS;
        const u32 heads = least(ROWS, (kv + 1) * group - head), queries = queries_of(a, query), sequence = a.sequences[query];
        if (queries == 0 || sequence >= a.rows) return wait_for_inputs();
        // The tokens of this part that some of the rows see.
        u32 start = ~0u, length = 0;
#pragma unroll 1
        for (u32 i = query; i < query + queries; i++) {
            const u32 n = seen_to(a, i);
            start = least(start, first_seen(a, i, n)), length = most(length, n);
        }
        const auto place = [&](u32 part) { return static_cast<u32>(least(part_begin(a, part, start, length), static_cast<u64>(length))); };
        const u32 begin = place(part), seen = most(start, begin), to = most(seen, place(part + 1));
        if (seen == to) return wait_for_inputs();
        const u32 first_tile = begin + (seen - begin) / TOKENS * TOKENS;
        WideTiles self{l, a, kv, sequence, query, head, heads, queries * heads, seen, to, shared<u8>(), first_tile, 0, Place<C>::none(), 0, {}, {}, {}};
        f32* scores = reinterpret_cast<f32*>(self.tiles + 2 * SIZE);
        C* weights = reinterpret_cast<C*>(scores + WARPS * ROWS * TOKENS);
        f32* stays = reinterpret_cast<f32*>(weights + ROWS * PITCH);
        // Of this warp's own rows their queries and the tokens that these see, the largest score, and this lane's part of the sum of exponentials.
        u32 of[MINE], from[MINE], end[MINE];
        f32 top[MINE], sum[MINE];
#pragma unroll
        for (u32 i = 0; i < MINE; i++) {
            const u32 row = warp() * MINE + i;
            of[i] = self.query_of(least(row, self.count - 1)), end[i] = row < self.count ? seen_to(a, of[i]) : 0;
            from[i] = first_seen(a, of[i], end[i]), top[i] = minus_infinity(), sum[i] = 0;
        }
        const f32 scale = a.scale * 1.44269504f;
        self.look();
        wait_for_inputs();
        self.ask();
        self.load_queries();
        u32 used = 0;
        // The next tile, once it is there; one more is asked for, in the place of one that nobody reads any more.
        const auto take = [&] {
            sync_warp();
            self.ask();
            copy_wait<1>();
            sync_warp();
            return self.tile(used++);
        };
#pragma unroll 1
        for (u32 first = first_tile; first < to; first += TOKENS) {
            const u8* tile = take();
            // Without values the next tokens were asked for last.
            const bool there = (self.latent() ? self.there[1] : self.there[0]) >> lane() & 1;
            self.multiply(tile, scores);
            sync_block();
            const u32 token = first + lane();
            f32 x[MINE], best[MINE];
            bool sees[MINE];
#pragma unroll
            for (u32 i = 0; i < MINE; i++) {
                x[i] = 0;
#pragma unroll
                for (u32 w = 0; w < WARPS; w++) x[i] += scores[score_at(w, warp() * MINE + i, lane())];
                sees[i] = there & (token >= from[i]) & (token < end[i]);
            }
            if (a.seen) {
#pragma unroll
                for (u32 i = 0; i < MINE; i++) sees[i] = sees[i] && is_seen(a, of[i], end[i], token);
            }
#pragma unroll
            for (u32 i = 0; i < MINE; i++) x[i] = best[i] = sees[i] ? x[i] * scale : minus_infinity();
#pragma unroll
            for (u32 m = WARP / 2; m > 0; m /= 2)
#pragma unroll
                for (u32 i = 0; i < MINE; i++) best[i] = fmaxf(best[i], shuffle_xor(best[i], m));
#pragma unroll
            for (u32 i = 0; i < MINE; i++) {
                const u32 row = warp() * MINE + i;
                best[i] = fmaxf(best[i], top[i]);
                // Both may be -infinity, whose difference is NaN.
                const f32 by = top[i] == best[i] ? 1 : exp2_fast(top[i] - best[i]), p = sees[i] ? exp2_fast(x[i] - best[i]) : 0;
                top[i] = best[i], sum[i] = fmaf(sum[i], by, p);
                weights[row * PITCH + lane()] = from_f32<C>(p);
                if (lane() == 0) stays[row] = by;
            }
            if (!self.latent()) tile = take();
            sync_block();
            self.gather(tile, weights, stays);
        }
        copy_wait<0>();
        const auto out = [&](u32 row) {
            return a.partial + ((static_cast<u64>(self.query_of(row)) * a.heads + self.head + row % self.heads) * a.parts + part) * (l.rank + 2);
        };
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 row = h * 8 + lane() / 4;
            if (row >= self.count) continue;
            f32* to = out(row);
#pragma unroll
            for (u32 j = 0; j < CHUNKS; j++) {
                const u32 at = warp() * OWN + j * 8 + lane() % 4 * 2;
                if (at < l.rank) keep2(to + at, self.acc[j][2 * h], self.acc[j][2 * h + 1]);
            }
        }
#pragma unroll
        for (u32 i = 0; i < MINE; i++) {
            const u32 row = warp() * MINE + i;
            const f32 total = warp_reduce<Add>(sum[i]);
            if (lane() == 0 && row < self.count) keep2(out(row) + l.rank, top[i], total);
        }
    }
};
#endif
