// A mixture of experts: which rows go through which of them, and what the results add up to. A pair is a row and one of its experts. Pairs are
// sorted by expert, and results of an expert are neighbours.
#include "mma.cuh"
#include "segments.cuh"

struct RouteArgs {
    // What the router gives, `count` numbers a row.
    const f32* scores;
    // What is added to each row of these, if anything.
    const f32* bias;
    // What is added to the scores that these become, for choosing alone, if anything.
    const f32* selection;
    // Factors of the experts, if they have any.
    const f32* own;
    // Of each pair, row by row: its expert, and the factor of what that gives.
    u32* chosen;
    f32* factors;
    // Experts are in so many groups, 32 at most, of which so many are taken: those whose best experts have the largest sums, as many of each as are counted, 1 or 2.
    u32 rows, count, used, sigmoid, groups, groups_used, counted, normalised;
    f32 scale;
};

// In place of the score of an expert in a group that is not taken: scores are 0 or more, or no numbers. The latter are chosen as if they were the least of all.
static constexpr f32 CLOSED = -1;

// The groups that are taken, a bit for each: those whose best experts have the largest sum, of equal ones the first. A lane has a group.
template <class Merit> DEVICE u32 open_groups(const RouteArgs& a, Merit merit) {
    const u32 size = a.count / a.groups;
    f32 first = Max::none, second = Max::none;
    if (lane() < a.groups)
        for (u32 i = lane() * size; i < (lane() + 1) * size; i++) {
            const f32 own = merit(i);
            if (own > first) second = first, first = own;
            else if (own > second) second = own;
        }
    const f32 sum = a.counted == 1 ? first : first + second;
    u32 before = 0;
    for (u32 g = 0; g < a.groups; g++) {
        const f32 other = shuffle(sum, g);
        before += other > sum || (other == sum && g < lane());
    }
    return lanes_of(lane() < a.groups && before < a.groups_used);
}

// Experts of a row that may be chosen, of which a warp has a list in shared memory: others are compared with all.
static constexpr u32 LIST = 64;
// Numbers of shared memory that a warp takes to route a row: the scores of all experts, two numbers for each of the list, and which are chosen.
DEVICE u32 route_room(const RouteArgs& a) { return a.count + 2 * LIST + a.used; }

// Calls `each(i)` for every 32nd expert: those that a lane has to itself.
template <class Each> DEVICE void each_own(u32 count, Each each) {
#pragma unroll 4
    for (u32 i = lane(); i < count; i += WARP) each(i);
}

// A warp chooses the experts of a row: those with the largest softmax, or sigmoid, plus what is for choosing; of equal ones the first.
DEVICE void route(const RouteArgs& a, u32 row, u32* room) {
    f32 *p = reinterpret_cast<f32*>(room), *merits = p + a.count;
    u32 *listed = reinterpret_cast<u32*>(merits + LIST), *chosen = listed + LIST;
    const f32* scores = a.scores + static_cast<u64>(row) * a.count;
    f32 top = Max::none, sum = 0, total = 1e-20f;
    each_own(a.count, [&](u32 i) { top = most(top, p[i] = a.bias ? scores[i] + a.bias[i] : scores[i]); });
    if (a.sigmoid) {
        each_own(a.count, [&](u32 i) { p[i] = 1 / (1 + exp_fast(-p[i])); });
    } else {
        top = warp_reduce<Max>(top);
        each_own(a.count, [&](u32 i) { sum += p[i] = exp_fast(p[i] - top); });
        sum = warp_reduce<Add>(sum);
        each_own(a.count, [&](u32 i) { p[i] = p[i] / sum; });
    }
    sync_warp();
    // Less than all that may be chosen.
    const f32 never = from_bits(0xff800000);
    const auto merit = [&](u32 i) {
        const f32 score = p[i], own = score == CLOSED ? never : a.selection ? score + a.selection[i] : score;
        return own == own ? own : Max::none;
    };
    if (a.groups > 1) {
        const u32 open = open_groups(a, merit);
        each_own(a.count, [&](u32 i) {
            if (!((open >> (i * a.groups / a.count)) & 1)) p[i] = CLOSED;
        });
        sync_warp();
    }
    // If there are as many lanes as experts are used, the best ones of lanes are enough: none is chosen that is less than the last of these. Lanes with one expert each
    // know its place.
    f32 best = never, bound = never;
    each_own(a.count, [&](u32 i) { best = most(best, merit(i)); });
    if (a.used <= WARP) {
        u32 before = 0;
#pragma unroll 8
        for (u32 l = 0; l < WARP; l++) {
            const f32 other = shuffle(best, l);
            before += other > best || (other == best && l < lane());
        }
        if (a.count <= WARP && before < a.used) chosen[before] = lane();
        const u32 last = lanes_of(before + 1 == a.used);
        bound = shuffle(best, bits_set((last & (0 - last)) - 1));
    }
    u32 n = 0;
    for (u32 base = 0; base < a.count && a.count > WARP; base += WARP) {
        const u32 i = base + lane();
        const f32 own = i < a.count ? merit(i) : never;
        const u32 lanes = lanes_of(i < a.count && own >= bound), at = n + bits_set(lanes & ((1u << lane()) - 1));
        if (i < a.count && own >= bound && at < LIST) merits[at] = own, listed[at] = i;
        n += bits_set(lanes);
    }
    sync_warp();
    // An expert's place among the chosen ones is how many are better.
    for (u32 at = lane(); at < n && n <= LIST; at += WARP) {
        const f32 own = merits[at];
        u32 place = 0;
#pragma unroll 4
        for (u32 m = 0; m < n; m++) place += merits[m] > own || (merits[m] == own && m < at);
        if (place < a.used) chosen[place] = listed[at];
    }
    for (u32 i = lane(); i < a.count && n > LIST; i += WARP) {
        const f32 own = merit(i);
        u32 place = 0;
        for (u32 m = 0; m < a.count; m++) {
            const f32 other = merit(m);
            place += other > own || (other == own && m < i);
        }
        if (place < a.used) chosen[place] = i;
    }
    sync_warp();
#pragma unroll 4
    for (u32 j = 0; j < a.used; j++) total += p[chosen[j]];
    for (u32 j = lane(); j < a.used; j += WARP) {
        const u64 pair = static_cast<u64>(row) * a.used + j;
        const u32 e = chosen[j];
        a.chosen[pair] = e;
        a.factors[pair] = (a.normalised ? p[e] / total : p[e]) * a.scale * (a.own ? a.own[e] : 1);
    }
    // The room may be used again.
    sync_warp();
}

KERNEL(experts_route, RouteArgs, 256) {
    u32* room = shared<u32>() + warp() * route_room(a);
    for (u32 row = block_x() * (threads() / WARP) + warp(); row < a.rows; row += grid_x() * (threads() / WARP)) route(a, row, room);
}

// How many ways there are to cut what an expert has into segments.
static constexpr u32 CUTS = 3;

struct SortArgs {
    RouteArgs route;
    // Of each pair, row by row, its place among the sorted ones; the row of each place, and its expert if somebody asks for that. If factors are of what experts take, those of
    // each place: the factors of what they give are 1 then.
    u32* places;
    u32* rows;
    u32* experts;
    f32* scales;
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

// Calls `each(pair, expert, place)` for pairs `first` to `end - 1`, in their order, if `front` has how many of an expert are in front of the next one. All lanes of a warp
// come.
template <class Each> DEVICE void each_pair(const RouteArgs& a, u32 first, u32 end, u32* front, Each each) {
    // So many of a lane are on their way together.
    static constexpr u32 AHEAD = 4;
    for (u32 base = first + lane(); base - lane() < end; base += AHEAD * WARP) {
        u32 experts[AHEAD];
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) experts[k] = base + k * WARP < end ? a.chosen[base + k * WARP] : a.count;
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) {
            if (base - lane() + k * WARP >= end) break;
            const u32 e = experts[k];
            // Lanes with the same expert have all of its bits.
            u32 same = ~0u;
            for (u32 bit = 1; bit <= a.count; bit *= 2) {
                const u32 set = lanes_of(e & bit);
                same &= e & bit ? set : ~set;
            }
            const u32 before = same & ((1u << lane()) - 1), place = e < a.count ? front[e] : 0;
            sync_warp();
            if (e < a.count && before == 0) front[e] = place + bits_set(same);
            sync_warp();
            if (e < a.count) each(base + k * WARP, e, place + bits_set(before));
        }
    }
}

// One block sorts all pairs. A warp has neighbouring ones: it counts those of each expert, and when all warps have done so, it knows the places of its own. In shared
// memory is how many pairs each expert has, where they begin, and for each warp how many pairs of an expert are in front of its next one, or what `route` takes.
KERNEL(experts_sort, SortArgs, 1024) {
    static constexpr u32 AHEAD = 8;
    const RouteArgs& r = a.route;
    const u32 warps = threads() / WARP, pairs = r.rows * r.used, share = div_up(div_up(pairs, warps), WARP) * WARP, room = a.routes ? route_room(r) : r.count;
    const u32 first = least(pairs, warp() * share), end = least(pairs, first + share);
    u32 *counts = shared<u32>(), *starts = counts + r.count, *fronts = starts + r.count, *front = fronts + warp() * room;
    if (a.routes)
        for (u32 row = warp(); row < r.rows; row += warps) route(r, row, front);
    for (u32 e = lane(); e < r.count; e += WARP) front[e] = 0;
    sync_block();
    each_pair(r, first, end, front, [](u32, u32, u32) {});
    sync_block();
    for (u32 e = thread(); e < r.count; e += threads()) {
        u32 sum = 0;
        for (u32 base = 0; base < warps; base += AHEAD) {
            u32 own[AHEAD];
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) own[k] = base + k < warps ? fronts[(base + k) * room + e] : 0;
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) {
                if (base + k < warps) fronts[(base + k) * room + e] = sum;
                sum += own[k];
            }
        }
        counts[e] = sum;
    }
    sync_block();
    if (warp() == 0) running_sums(r.count, [&](u32 e) { return counts[e]; }, [&](u32 e, u32 before) { starts[e] = before; });
    sync_block();
    each_pair(r, first, end, front, [&](u32 pair, u32 e, u32 before) {
        const u32 place = starts[e] + before;
        a.places[pair] = place;
        a.rows[place] = pair / r.used;
        if (a.experts) a.experts[place] = e;
        if (a.scales) a.scales[place] = r.factors[pair], r.factors[pair] = 1;
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
