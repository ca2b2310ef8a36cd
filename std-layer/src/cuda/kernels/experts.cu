// A mixture of experts: which rows go through which of them, and what the results add up to. A pair is a row and one of its experts. Pairs are
// sorted by expert, and results of an expert are neighbours.
#include "mma.cuh"
#include "segments.cuh"

struct RouteArgs {
    // What the router gives, `count` numbers a row; used up.
    f32* scores;
    // What is added to each row of these, if anything.
    const f32* bias;
    // What is added to the scores that these become, for choosing alone, if anything.
    const f32* selection;
    // Factors of the experts, if they have any.
    const f32* own;
    // Of each pair, row by row: its expert, and the factor of what that gives.
    u32* chosen;
    f32* factors;
    // Experts are in so many groups, 32 at most, of which so many are taken.
    u32 rows, count, used, sigmoid, groups, groups_used, normalised;
    f32 scale;
};

// In place of the score of an expert that was taken: scores are 0 or more, or no numbers. The latter are chosen as if they were the least of all.
static constexpr f32 TAKEN = -1;

// The groups that are taken, a bit for each: those whose two best experts have the largest sum, of equal ones the first. A lane has a group.
template <class Merit> DEVICE u32 open_groups(const RouteArgs& a, Merit merit) {
    const u32 size = a.count / a.groups;
    f32 first = Max::none, second = Max::none;
    // The scores that the other lanes have made.
    sync_warp();
    if (lane() < a.groups)
        for (u32 i = lane() * size; i < (lane() + 1) * size; i++) {
            const f32 own = merit(i);
            if (own > first) second = first, first = own;
            else if (own > second) second = own;
        }
    const f32 sum = first + second;
    u32 before = 0;
    for (u32 g = 0; g < a.groups; g++) {
        const f32 other = shuffle(sum, g);
        before += other > sum || (other == sum && g < lane());
    }
    sync_warp();
    return lanes_of(lane() < a.groups && before < a.groups_used);
}

// The scores of a row that a lane has, every 32nd: EACH of them in registers, or, with EACH = 0, any number where they came from.
template <u32 EACH> struct Scores {
    f32* row;
    u32 count;
    f32 held[EACH];
    DEVICE u32 room() const { return EACH; }
    DEVICE f32& operator[](u32 k) { return held[k]; }
};
template <> struct Scores<0> {
    f32* row;
    u32 count;
    DEVICE u32 room() const { return div_up(count, WARP); }
    DEVICE f32& operator[](u32 k) { return row[lane() + WARP * k]; }
};
// Calls `each(score, i)` for the scores of this lane, where i is the expert.
template <class Scores, class Each> DEVICE void each_own(Scores& scores, Each each) {
#pragma unroll
    for (u32 k = 0; k < scores.room(); k++)
        if (lane() + WARP * k < scores.count) each(scores[k], lane() + WARP * k);
}

// A warp chooses the experts of a row: those with the largest softmax, or sigmoid, plus what is for choosing; of equal ones the first.
template <u32 EACH> DEVICE void route(const RouteArgs& a, u32 row) {
    Scores<EACH> p;
    p.row = a.scores + static_cast<u64>(row) * a.count, p.count = a.count;
    u32* chosen = a.chosen + static_cast<u64>(row) * a.used;
    f32* factors = a.factors + static_cast<u64>(row) * a.used;
    f32 top = Max::none, sum = 0, total = 1e-20f;
    each_own(p, [&](f32& score, u32 i) { score = p.row[i]; });
    if (a.bias) each_own(p, [&](f32& score, u32 i) { score += a.bias[i]; });
    if (a.sigmoid) {
        each_own(p, [&](f32& score, u32) { score = 1 / (1 + exp_fast(-score)); });
    } else {
        each_own(p, [&](f32& score, u32) { top = most(top, score); });
        top = warp_reduce<Max>(top);
        each_own(p, [&](f32& score, u32) { sum += score = exp_fast(score - top); });
        sum = warp_reduce<Add>(sum);
        each_own(p, [&](f32& score, u32) { score = score / sum; });
    }
    const auto merit = [&](f32 score, u32 i) { return score == score ? a.selection ? score + a.selection[i] : score : Max::none; };
    if (a.groups > 1) {
        each_own(p, [&](f32& score, u32 i) { p.row[i] = score; });
        const u32 open = open_groups(a, [&](u32 i) { return merit(p.row[i], i); });
        each_own(p, [&](f32& score, u32 i) {
            if (!((open >> (i * a.groups / a.count)) & 1)) score = TAKEN;
        });
    }
    for (u32 j = 0; j < a.used; j++) {
        f32 best = Max::none;
        u32 at = a.count;
        each_own(p, [&](f32& score, u32 i) {
            const f32 own = merit(score, i);
            if (score != TAKEN && (own > best || at == a.count)) best = own, at = i;
        });
        for (u32 m = WARP / 2; m > 0; m /= 2) {
            const f32 other = shuffle_xor(best, m);
            const u32 there = shuffle_xor(at, m);
            if (other > best || (other == best && there < at)) best = other, at = there;
        }
        f32 taken = 0;
        each_own(p, [&](f32& score, u32 i) {
            if (i == at) taken = score, score = TAKEN;
        });
        taken = shuffle(taken, at % WARP);
        total += taken;
        if (lane() == j % WARP) chosen[j] = at, factors[j] = taken;
    }
    // A lane reads what it wrote itself.
    for (u32 j = lane(); j < a.used; j += WARP)
        factors[j] = (a.normalised ? factors[j] / total : factors[j]) * a.scale * (a.own ? a.own[chosen[j]] : 1);
}

DEVICE void route(const RouteArgs& a, u32 row) {
    if (a.count <= 8 * WARP) route<8>(a, row);
    else if (a.count <= 16 * WARP) route<16>(a, row);
    else route<0>(a, row);
}

KERNEL(experts_route, RouteArgs, 256) {
    for (u32 row = block_x() * (threads() / WARP) + warp(); row < a.rows; row += grid_x() * (threads() / WARP)) route(a, row);
}

// How many ways there are to cut what an expert has into segments.
static constexpr u32 CUTS = 3;

struct SortArgs {
    RouteArgs route;
    // Of each pair, row by row, its place among the sorted ones; the row of each place, and its expert if somebody asks for that.
    u32* places;
    u32* rows;
    u32* experts;
    // Segments of at most so many rows, and for how many there is room: what is left has no rows. 0 rows: there is no such cut.
    Segment* segments[CUTS];
    u32 most[CUTS], room[CUTS];
    // Whether rows have yet to be routed.
    u32 routes;
};

// Calls `each(i, sum of all before i)` for the numbers of(0) to of(n - 1), and returns the sum of all. All lanes of a warp come, of which each has neighbours.
template <class Of, class Each> DEVICE u32 running_sums(u32 n, Of of, Each each) {
    const u32 share = div_up(n, WARP), first = least(n, lane() * share), end = least(n, first + share);
    u32 own = 0;
    for (u32 i = first; i < end; i++) own += of(i);
    u32 sum = own;
    for (u32 d = 1; d < WARP; d *= 2) {
        const u32 other = shuffle(sum, lane() - d);
        if (lane() >= d) sum += other;
    }
    u32 before = sum - own;
    for (u32 i = first; i < end; i++) {
        each(i, before);
        before += of(i);
    }
    return shuffle(sum, WARP - 1);
}

// Calls `each(row, pair, expert)` for the pairs of rows `first` to `end - 1`, row by row. Lanes have experts of the same row, which differ, and what they do with one row
// is done when they come to the next one.
template <class Each> DEVICE void each_pair(const RouteArgs& a, u32 first, u32 end, Each each) {
    // So many are on their way together.
    static constexpr u32 AHEAD = 8;
    const u32 lots = div_up(a.used, WARP), all = (end - first) * lots;
    for (u32 base = 0; base < all; base += AHEAD) {
        u32 experts[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) {
            const u32 row = first + (base + k) / lots, j = (base + k) % lots * WARP + lane();
            experts[k] = row < end && j < a.used ? a.chosen[row * a.used + j] : a.count;
        }
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) {
            const u32 row = first + (base + k) / lots, j = (base + k) % lots * WARP + lane();
            if (experts[k] < a.count) each(row, row * a.used + j, experts[k]);
            sync_warp();
        }
    }
}

// One block sorts all pairs. A warp has neighbouring rows: it counts their pairs of each expert, and when all warps have done so, it knows the places of its own. In shared
// memory is how many pairs each expert has, where they begin, and of each warp how many pairs of an expert are in front of its next one.
KERNEL(experts_sort, SortArgs, 1024) {
    const RouteArgs& r = a.route;
    const u32 warps = threads() / WARP, share = div_up(r.rows, warps), first = least(r.rows, warp() * share), end = least(r.rows, first + share);
    u32 *counts = shared<u32>(), *starts = counts + r.count, *fronts = starts + r.count, *front = fronts + warp() * r.count;
    for (u32 e = lane(); e < r.count; e += WARP) front[e] = 0;
    if (a.routes)
        for (u32 row = first; row < end; row++) route(r, row);
    sync_warp();
    each_pair(r, first, end, [&](u32, u32, u32 e) { front[e]++; });
    sync_block();
    for (u32 e = thread(); e < r.count; e += threads()) {
        u32 sum = 0;
        for (u32 w = 0; w < warps; w++) {
            const u32 own = fronts[w * r.count + e];
            fronts[w * r.count + e] = sum;
            sum += own;
        }
        counts[e] = sum;
    }
    sync_block();
    if (warp() == 0) running_sums(r.count, [&](u32 e) { return counts[e]; }, [&](u32 e, u32 before) { starts[e] = before; });
    sync_block();
    each_pair(r, first, end, [&](u32 row, u32 pair, u32 e) {
        const u32 place = starts[e] + front[e]++;
        a.places[pair] = place;
        a.rows[place] = row;
        if (a.experts) a.experts[place] = e;
    });
    for (u32 cut = warp(); cut < CUTS; cut += warps) {
        const u32 size = a.most[cut], room = a.room[cut];
        if (size == 0) continue;
        Segment* to = a.segments[cut];
        const auto each = [&](u32 e, u32 at) {
            for (u32 first = 0; first < counts[e]; first += size, at++)
                if (at < room) to[at] = {e, starts[e] + first, starts[e] + least(counts[e], first + size)};
        };
        const u32 full = running_sums(r.count, [&](u32 e) { return div_up(counts[e], size); }, each);
        for (u32 i = full + lane(); i < room; i += WARP) to[i] = {0, 0, 0};
    }
}

struct CombineArgs {
    // What experts give, a row for each place; the place of each pair and its factor; its expert, if these have biases, and the bias of each.
    const f32* results;
    const u32* places;
    const f32* factors;
    const u32* chosen;
    const f32* bias;
    // If the network beside them has a gate: rows as it got them, and the weights of the gate.
    const f32* x;
    const f32* gate;
    f32* y;
    u32 cols, used;
    // Whether there is a network beside them that every row goes through, whose result is in `y`.
    u32 adds;
};

// y = sum of factors and results, with their biases, from the first one on; behind y, or with a gate behind y / (1 + exp(-gate x)), if that is added. A block has
// a row.
KERNEL(experts_combine, CombineArgs, 1024) {
    static constexpr u32 AHEAD = 8;
    const u64 row = static_cast<u64>(block_x()) * a.cols, first = static_cast<u64>(block_x()) * a.used;
    f32 by = 1;
    if (a.gate) {
        f32 dot = 0;
        for (u32 at = thread() * 4; at < a.cols; at += threads() * 4) {
            f32 x[4], g[4];
            load_pack(x, a.x + row + at);
            load_pack(g, a.gate + at);
            for (u32 i = 0; i < 4; i++) dot = fmaf(x[i], g[i], dot);
        }
        by = divide(1, 1 + exp_fast(-block_reduce<Add>(dot, shared<f32>())));
    }
    for (u32 at = thread() * 4; at < a.cols; at += threads() * 4) {
        f32 v[4] = {0, 0, 0, 0};
        if (a.adds) {
            load_pack(v, a.y + row + at);
            for (u32 i = 0; i < 4; i++) v[i] *= by;
        }
        // What some experts give is on its way together.
        for (u32 base = 0; base < a.used; base += AHEAD) {
            f32 d[AHEAD][4];
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++)
                if (base + k < a.used) load_pack(d[k], a.results + static_cast<u64>(a.places[first + base + k]) * a.cols + at);
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) {
                const u64 pair = first + base + k;
                if (base + k >= a.used) break;
                if (a.bias) {
                    f32 b[4];
                    load_pack(b, a.bias + static_cast<u64>(a.chosen[pair]) * a.cols + at);
                    for (u32 i = 0; i < 4; i++) d[k][i] += b[i];
                }
                for (u32 i = 0; i < 4; i++) v[i] = fmaf(a.factors[pair], d[k][i], v[i]);
            }
        }
        store_pack(a.y + row + at, v);
    }
}
