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

// A warp chooses the experts of a row: those with the largest softmax, or sigmoid, plus what is for choosing; of equal ones the first.
DEVICE void route(const RouteArgs& a, u32 row) {
    f32* p = a.scores + static_cast<u64>(row) * a.count;
    u32* chosen = a.chosen + static_cast<u64>(row) * a.used;
    f32* factors = a.factors + static_cast<u64>(row) * a.used;
    // A lane has every 32nd score to itself.
    f32 top = Max::none, sum = 0, total = 1e-20f;
    for (u32 i = lane(); i < a.count; i += WARP) top = most(top, a.bias ? p[i] += a.bias[i] : p[i]);
    if (a.sigmoid) {
        for (u32 i = lane(); i < a.count; i += WARP) p[i] = 1 / (1 + exp_fast(-p[i]));
    } else {
        top = warp_reduce<Max>(top);
        for (u32 i = lane(); i < a.count; i += WARP) sum += p[i] = exp_fast(p[i] - top);
        sum = warp_reduce<Add>(sum);
        for (u32 i = lane(); i < a.count; i += WARP) p[i] = p[i] / sum;
    }
    const auto merit = [&](u32 i) { return p[i] == p[i] ? a.selection ? p[i] + a.selection[i] : p[i] : Max::none; };
    const u32 open = a.groups > 1 ? open_groups(a, merit) : 0;
    for (u32 j = 0; j < a.used; j++) {
        f32 best = Max::none;
        u32 at = a.count;
        for (u32 i = lane(); i < a.count; i += WARP) {
            if (p[i] == TAKEN || (a.groups > 1 && !((open >> (i * a.groups / a.count)) & 1))) continue;
            const f32 score = merit(i);
            if (score > best || at == a.count) best = score, at = i;
        }
        for (u32 m = WARP / 2; m > 0; m /= 2) {
            const f32 other = shuffle_xor(best, m);
            const u32 there = shuffle_xor(at, m);
            if (other > best || (other == best && there < at)) best = other, at = there;
        }
        f32 score = 0;
        if (lane() == at % WARP) score = p[at], p[at] = TAKEN;
        score = shuffle(score, at % WARP);
        total += score;
        if (lane() == j % WARP) chosen[j] = at, factors[j] = score;
    }
    // A lane reads what it wrote itself.
    for (u32 j = lane(); j < a.used; j += WARP)
        factors[j] = (a.normalised ? factors[j] / total : factors[j]) * a.scale * (a.own ? a.own[chosen[j]] : 1);
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

// Calls `each(i, sum of all before i)` for the numbers of(0) to of(n - 1), and returns the sum of all. All lanes of a warp come.
template <class Of, class Each> DEVICE u32 running_sums(u32 n, Of of, Each each) {
    u32 before = 0;
    for (u32 base = 0; base < n; base += WARP) {
        const u32 i = base + lane(), own = i < n ? of(i) : 0;
        u32 sum = own;
        for (u32 d = 1; d < WARP; d *= 2) {
            const u32 other = shuffle(sum, lane() - d);
            if (lane() >= d) sum += other;
        }
        if (i < n) each(i, before + sum - own);
        before += shuffle(sum, WARP - 1);
    }
    return before;
}

// One block sorts all pairs: a warp finds those of an expert by looking at all, 32 at a time, so that their order is that of rows. In shared memory
// is how many pairs each expert has, and where they begin.
KERNEL(experts_sort, SortArgs, 1024) {
    const RouteArgs& r = a.route;
    const u32 warps = threads() / WARP, pairs = r.rows * r.used;
    u32 *counts = shared<u32>(), *starts = counts + r.count;
    if (a.routes)
        for (u32 row = warp(); row < r.rows; row += warps) route(r, row);
    sync_block();
    for (u32 e = warp(); e < r.count; e += warps) {
        u32 n = 0;
        for (u32 base = 0; base < pairs; base += WARP) n += bits_set(lanes_of(base + lane() < pairs && r.chosen[base + lane()] == e));
        if (lane() == 0) counts[e] = n;
    }
    sync_block();
    if (warp() == 0) running_sums(r.count, [&](u32 e) { return counts[e]; }, [&](u32 e, u32 before) { starts[e] = before; });
    sync_block();
    for (u32 e = warp(); e < r.count; e += warps) {
        u32 at = starts[e];
        for (u32 base = 0; base < pairs; base += WARP) {
            const u32 pair = base + lane();
            const bool own = pair < pairs && r.chosen[pair] == e;
            const u32 all = lanes_of(own);
            if (own) {
                const u32 place = at + bits_set(all & ((1u << lane()) - 1));
                a.places[pair] = place;
                a.rows[place] = pair / r.used;
                if (a.experts) a.experts[place] = e;
            }
            at += bits_set(all);
        }
    }
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
        for (u32 j = 0; j < a.used; j++) {
            f32 d[4];
            load_pack(d, a.results + static_cast<u64>(a.places[first + j]) * a.cols + at);
            if (a.bias) {
                f32 b[4];
                load_pack(b, a.bias + static_cast<u64>(a.chosen[first + j]) * a.cols + at);
                for (u32 i = 0; i < 4; i++) d[i] += b[i];
            }
            for (u32 i = 0; i < 4; i++) v[i] = fmaf(a.factors[first + j], d[i], v[i]);
        }
        store_pack(a.y + row + at, v);
    }
}
