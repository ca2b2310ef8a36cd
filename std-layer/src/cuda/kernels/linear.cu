// Recurrent layers, and gates of attention. `Recurrence` in recurrence.rs has the formulas.
#include "forms.cuh"
#include "mma.cuh"

// Tokens that a convolution reads, at most.
static constexpr u32 MAX_TAPS = 8;

// The layer, and the states that it keeps, of `state` numbers: of each sequence the inputs of the convolution, (taps - 1) x channels, oldest first, then what else it
// keeps.
struct Layer {
    f32* states;
    // Of each sequence the page that is its state, in the first number of a row of `table_len`.
    const u32* tables;
    // Of each row of the step: its sequence's row of the tables, and tokens up to its own. Rows of a sequence follow each other: they are a run.
    const u32* sequences;
    const u32* lengths;
    // The first row of each run, and behind them all the number of rows; null if every row is a run.
    const u32* starts;
    u32 rows, table_rows, table_len, pages, channels, taps, state;
    // What is convolved is a product: how far the second factor of a channel is behind the first one; 0 if there is none.
    u32 factor;

    // The state of a row's sequence; null if it has none.
    DEVICE f32* state_of(u32 row) const {
        const u32 sequence = sequences[row], page = sequence < table_rows ? tables[static_cast<u64>(sequence) * table_len] : pages;
        return page < pages ? states + static_cast<u64>(page) * state : nullptr;
    }
    DEVICE u32 first_row(u32 run) const { return starts ? starts[run] : run; }
    // How many rows before this one are of the same sequence; counted up to a warp's lanes, all of which come.
    DEVICE u32 before(u32 row) const {
        const u32 sequence = sequences[lane() < row ? row - lane() : 0], own = shuffle(sequence, 0);
        const u32 others = lanes_of(lane() > row || sequence != own);
        // As many as lanes behind the first one that are in front of the first other.
        return bits_set((others & (0 - others)) - 1) - 1;
    }
    // What the convolution reads `back` tokens before a row with `before` others of its sequence in front, of each of the channels `c`: in front of a text 0. PRODUCT: whether
    // that is a product. There are no branches, so that what several calls read is on its way together.
    template <bool PRODUCT, u32 N> DEVICE void input(f32 (&v)[N], const f32* x, u32 stride, const f32* state, u32 row, u32 before, u32 back, const u32 (&c)[N]) const {
        const bool own = back <= before, there = own || back < lengths[row];
        const f32* from = own ? x + static_cast<u64>(row - back) * stride : state + (taps - 1 + before - back) * channels;
        const f32* second = own ? from + factor : from;
#pragma unroll
        for (u32 k = 0; k < N; k++) {
            const f32 first = from[c[k]], by = PRODUCT ? second[c[k]] : 1;
            v[k] = !there ? 0 : PRODUCT && own ? first * by : first;
        }
    }
    // What the convolution of the next token reads of channel `c`, behind the last row of a run. All of it is read before any of it is written.
    template <bool PRODUCT> DEVICE void keep(const f32* x, u32 stride, f32* state, u32 first, u32 last, u32 c) const {
        f32 kept[MAX_TAPS - 1][1];
#pragma unroll
        for (u32 tap = 0; tap < MAX_TAPS - 1; tap++) input<PRODUCT>(kept[tap], x, stride, state, last, last - first, taps - 2 - least(tap, taps - 2), {c});
#pragma unroll
        for (u32 tap = 0; tap < MAX_TAPS - 1; tap++)
            if (tap + 1 < taps) state[tap * channels + c] = kept[tap][0];
    }
};

struct ConvolveArgs {
    Layer layer;
    // Channels of each row, and how far one row is from the next.
    const f32* x;
    // taps x channels.
    const f32* w;
    // Of each channel what is added to its sum; null if nothing is.
    const f32* bias;
    // Rows of all channels.
    f32* y;
    u32 stride;
    // Channels of a head, up to 128; how many heads of queries are the first ones, and as many of keys, which are normed. Other channels may be divided anyhow.
    u32 size, key_heads;
    // Whether results are silu of sums.
    u32 activated;
    // Rows of a block, up to 32.
    u32 rows;
    f32 eps;
};

// y = silu(bias + sum over taps of w x), or the sum; of heads of queries and keys y / sqrt(|y|^2 + eps), of those of queries divided by sqrt(size), too. A warp
// has a head of some rows, one after the other. In registers it has the last four tokens and their weights: behind a row of the same sequence all tokens but the last
// are those of that row, moved on.
template <bool PRODUCT> DEVICE void convolve(const ConvolveArgs& a) {
    static constexpr u32 EACH = 4, TAPS = 4;
    const Layer& l = a.layer;
    const u32 head = block_y() * (threads() / WARP) + warp(), from = block_x() * a.rows, end = least(l.rows, from + a.rows);
    if (head * a.size >= l.channels) return;
    const u32 first = head * a.size, n = least(a.size, l.channels - first);
    const u32 sequences = l.sequences[least(from + lane(), l.rows - 1)];
    const auto weight = [&](u32 back, u32 c) { return a.w[(l.taps - 1 - back) * l.channels + c]; };
    u32 c[EACH];
    // The first number is how many tokens before the row.
    f32 x[TAPS][EACH] = {}, w[TAPS][EACH], bias[EACH];
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        // Lanes that have less than the others read what is there.
        c[k] = first + least(lane() + WARP * k, n - 1);
        bias[k] = a.bias ? a.bias[c[k]] : 0;
#pragma unroll
        for (u32 back = 0; back < TAPS; back++) w[back][k] = weight(least(back, l.taps - 1), c[k]);
    }
    const f32* state = nullptr;
    u32 before = 0;
#pragma unroll 1
    for (u32 row = from; row < end; row++) {
        f32 own[EACH], v[EACH], square = 0;
        l.input<PRODUCT>(own, a.x, a.stride, nullptr, row, 0, 0, c);
        const bool goes_on = row > from && shuffle(sequences, row - from) == shuffle(sequences, row - from - 1);
        if (!goes_on) state = l.state_of(row);
        before = goes_on ? before + 1 : l.before(row);
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            v[k] = bias[k];
#pragma unroll
            for (u32 back = TAPS - 1; back > 0; back--) x[back][k] = x[back - 1][k];
            x[0][k] = own[k];
        }
        if (state) {
#pragma unroll
            for (u32 back = 1; back < TAPS && !goes_on; back++)
                l.input<PRODUCT>(x[back], a.x, a.stride, state, row, before, least(back, l.taps - 1), c);
            for (u32 back = l.taps - 1; back >= TAPS; back--) {
                f32 older[EACH];
                l.input<PRODUCT>(older, a.x, a.stride, state, row, before, back, c);
#pragma unroll
                for (u32 k = 0; k < EACH; k++) v[k] = fmaf(weight(back, c[k]), older[k], v[k]);
            }
        }
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
#pragma unroll
            for (u32 back = TAPS; back-- > 0;)
                if (back < l.taps) v[k] = fmaf(w[back][k], x[back][k], v[k]);
            if (a.activated) v[k] = divide(v[k], 1 + exp_fast(-v[k]));
            if (!state || lane() + WARP * k >= n) v[k] = 0;
            square = fmaf(v[k], v[k], square);
        }
        f32 by = 1;
        if (head < 2 * a.key_heads) by = 1 / sqrtf(warp_reduce<Add>(square) + a.eps);
        if (head < a.key_heads) by /= sqrtf(static_cast<f32>(a.size));
#pragma unroll
        for (u32 k = 0; k < EACH; k++)
            if (lane() + WARP * k < n) a.y[static_cast<u64>(row) * l.channels + c[k]] = v[k] * by;
    }
}

KERNEL(linear_convolve, ConvolveArgs, 128) {
    if (a.layer.factor) convolve<true>(a);
    else convolve<false>(a);
}

struct KeepArgs {
    Layer layer;
    // What the convolution took.
    const f32* x;
    u32 stride;
};

// Keeps of each sequence what its next convolution reads. A thread has a channel of the run block_x.
KERNEL(linear_keep, KeepArgs, 256) {
    const Layer& l = a.layer;
    const u32 first = l.first_row(block_x()), end = l.first_row(block_x() + 1), c = block_y() * threads() + thread();
    f32* state = l.state_of(first);
    if (state && c < l.channels) l.keep<true>(a.x, a.stride, state, first, end - 1, c);
}

struct RuleArgs {
    Layer layer;
    // What the convolution took, and what it gave.
    const f32* x;
    const f32* convolved;
    // The numbers b and a of each row, and how far one row is from the next. Without b there is no correction: see the rule.
    const f32* b;
    const f32* a;
    const f32* bias;
    const f32* rate;
    // Of each head the factor of its values that is added to its results; null if nothing is.
    const f32* skip;
    // Rows of all heads of values.
    f32* y;
    // Those of so many heads of values are followed by others of the same.
    u32 decay_heads;
    // Whether head h of values belongs to head h % key_heads of keys, and not to those that follow each other.
    u32 tiled;
    u32 key_heads, value_heads, key_size, value_size;
    u32 stride, strides[2];
    // Tokens whose queries, keys and values a block has in shared memory at a time.
    u32 tokens;
};

// ln(1 + exp(x)), to all digits: with e = exp(-|x|) ln(1 + e) is 2 artanh(e / (2 + e)).
DEVICE f32 softplus(f32 x) {
    const f32 e = exp_fast(-fabsf(x)), u = divide(e, 2 + e), s = u * u;
    const f32 p = fmaf(s, fmaf(s, fmaf(s, fmaf(s, fmaf(s, fmaf(s, 1.0f / 13, 1.0f / 11), 1.0f / 9), 1.0f / 7), 1.0f / 5), 1.0f / 3), 1.0f);
    return fmaf(2 * u, p, x > 0 ? x : 0);
}

// A block of `linear_rule` has some values of a head, of a run. Numbers of a row of S are in eight lanes, fours by turns, and a thread has 16 of them in registers, of each of
// two rows: what it reads of a key or a query is for both. Behind the size of a key all are 0. Keys, queries and values of the next tokens are on their way
// to shared memory while those of some are used. There a token has room for a key and a query, and for as many values as the block has rows, from an address that is a
// multiple of 16.
template <bool DELTA> DEVICE void rule(const RuleArgs& a) {
    static constexpr u32 LANES = 8, ROWS = 2, FOURS = 4, ROOM = 128;
    const Layer& l = a.layer;
    const u32 size = a.key_size, block_rows = threads() / 4, width = 2 * ROOM + block_rows + 4;
    const u32 parts = div_up(a.value_size, block_rows), head = block_x() / parts, part = block_x() % parts * block_rows;
    const u32 j = thread() / LANES * ROWS, lane_of_row = thread() % LANES, first = l.first_row(block_y()), end = l.first_row(block_y() + 1);
    const u32 values = a.value_heads * a.value_size, value = head * a.value_size + part, shift = value % 4;
    const u32 block_values = least(block_rows, a.value_size - part);
    // Of its rows' results a thread has one.
    const u32 result = thread() / 4;
    const bool gives = thread() % 4 == 0 && result < block_values;
    const u32 key_head = a.tiled ? head % a.key_heads : head / (a.value_heads / a.key_heads);
    const u32 number = DELTA ? head / a.decay_heads * 2 * a.decay_heads + head % a.decay_heads : head;
    // Twice so many tokens, and of each its decay and beta.
    f32 *fetched = shared<f32>(), *factors = fetched + 2 * a.tokens * width;
    if (size < ROOM) {
        for (u32 i = thread(); i < 2 * a.tokens * width; i += threads()) fetched[i] = 0;
        sync_block();
    }
    f32 b = 0, length = 0;
    const auto copy = [&](f32* to, const f32* from, u32 n) {
#pragma unroll 1
        for (u32 at = lane() * 4; at < n; at += WARP * 4) copy_async(to + at, from + at);
    };
    // Tokens from `row` on, to which `turn` of the two places. A thread has the numbers a and b of one of them.
    const auto fetch = [&](u32 row, u32 turn) {
        const u32 n = least(a.tokens, end - row);
#pragma unroll 1
        for (u32 t = warp(); t < n; t += threads() / WARP) {
            const f32* c = a.convolved + static_cast<u64>(row + t) * l.channels;
            f32* to = fetched + (turn * a.tokens + t) * width;
            copy(to, c + (a.key_heads + key_head) * size, size);
            copy(to + ROOM, c + key_head * size, size);
            copy(to + 2 * ROOM, c + 2 * a.key_heads * size + value - shift, shift + block_values);
        }
        copy_commit();
        if (thread() < n) {
            if (DELTA) b = a.b[static_cast<u64>(row + thread()) * a.strides[0] + number];
            length = a.a[static_cast<u64>(row + thread()) * a.strides[1] + number];
        }
    };
    fetch(first, 0);
    f32* state = l.state_of(first);
    if (!state) {
        for (u32 row = first; row < end; row++)
            if (gives) a.y[static_cast<u64>(row) * values + value + result] = 0;
        copy_wait<0>();
        return;
    }
    const auto at = [&](u32 m) { return (m * LANES + lane_of_row) * 4; };
    const auto own = [&](u32 r, u32 m) { return state + (l.taps - 1) * l.channels + static_cast<u64>(value + j + r) * size + at(m); };
    const auto has = [&](u32 r, u32 m) { return j + r < block_values && at(m) < size; };
    const bool begun = l.lengths[first] > 1;
    f32 s[ROWS][FOURS][4];
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 m = 0; m < FOURS; m++) {
            s[r][m][0] = s[r][m][1] = s[r][m][2] = s[r][m][3] = 0;
            if (begun && has(r, m)) load_pack(s[r][m], own(r, m));
        }
    // Blocks share the channels. What the convolution of the next token reads has been convolved.
    for (u32 c = block_x() * threads() + thread(); c < l.channels; c += grid_x() * threads()) l.keep<false>(a.x, a.stride, state, first, end - 1, c);
    const f32 bias = a.bias[head], rate = a.rate[head], skip = a.skip ? a.skip[head] : 0;
    for (u32 row = first, turn = 0; row < end; row += a.tokens, turn ^= 1) {
        f32 *factor = factors + 2 * turn * a.tokens, *token = fetched + turn * a.tokens * width;
        if (thread() < a.tokens) {
            length = softplus(length + bias);
            factor[2 * thread()] = exp_fast(rate * length);
            factor[2 * thread() + 1] = DELTA ? divide(1, 1 + exp_fast(-b)) : length;
        }
        copy_wait<0>();
        sync_block();
        // All threads are done with the other place.
        if (row + a.tokens < end) fetch(row + a.tokens, turn ^ 1);
        const u32 n = least(a.tokens, end - row);
        // What lanes have of the results of the token before, and its value: lanes exchange them together with the sums of the next token.
        f32 results[ROWS] = {}, passed = 0;
        u64 to = static_cast<u64>(row) * values + value + result;
        const auto give = [&](bool some) {
            const f32 sum = fmaf(skip, passed, warp_sums<ROWS, LANES / 2>(results));
            if (gives && some) a.y[to] = sum;
            to += some ? values : 0;
        };
#pragma unroll 2
        for (u32 t = 0; t < n; t++) {
            const f32 *of = token + t * width, *v = of + 2 * ROOM + shift;
            const f32 decay = factor[2 * t], beta = factor[2 * t + 1];
            f32 x[FOURS][4], d[ROWS];
#pragma unroll
            for (u32 m = 0; m < FOURS; m++) load_pack(x[m], of + at(m));
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                f32 sum = 0;
#pragma unroll
                for (u32 m = 0; m < FOURS; m++)
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        s[r][m][i] *= decay;
                        if (DELTA) sum = fmaf(s[r][m][i], x[m][i], sum);
                    }
                for (u32 m = LANES / 2; m > 0 && DELTA; m /= 2) sum += shuffle_xor(sum, m);
                d[r] = beta * (DELTA ? v[j + r] - sum : v[j + r]);
            }
            give(t > 0);
            passed = v[result];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) results[r] = 0;
#pragma unroll
            for (u32 m = 0; m < FOURS; m++) {
                f32 q[4];
                load_pack(q, of + ROOM + at(m));
#pragma unroll
                for (u32 r = 0; r < ROWS; r++)
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        s[r][m][i] = fmaf(d[r], x[m][i], s[r][m][i]);
                        results[r] = fmaf(s[r][m][i], q[i], results[r]);
                    }
            }
        }
        give(true);
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 m = 0; m < FOURS; m++)
            if (has(r, m)) store_pack(own(r, m), s[r][m]);
}

// S = decay S; S = S + beta (v - S k) k^T; y = S q + skip v, token by token, with beta = sigmoid(b). Without b nothing is recalled, and beta is softplus(a + bias):
// S = decay S + beta v k^T.
KERNEL(linear_rule, RuleArgs, 128) {
    if (a.b) rule<true>(a);
    else rule<false>(a);
}

struct GatesArgs {
    const f32* x;
    // Which rows of x and of gates; all of them, in order, without.
    const u32* rows;
    // Gates of a row: those of a head are `step` behind those of the head before, and rows `stride` apart.
    const f32* gates;
    // The weight of the norm of each head, where heads are normed, and how far that of a head is behind that of the head before.
    const f32* norm;
    u32 norm_step;
    // What becomes of the numbers of heads.
    u32 kind;
    Forms out;
    // Elements of a head, and room for them in x.
    u32 dim, room, step, stride;
    // Heads of a block: all, or as many as have whole groups of 32 columns.
    u32 heads;
    f32 eps;
};

// Numbers of heads become, with norm(x) = x / sqrt(mean(x^2) + eps) norm and silu(gate) = gate sigmoid(gate):
//     x sigmoid(gate)
enum { GATED,
    // norm(x) silu(gate)
    NORMED_THEN_GATED,
    // norm(x silu(gate))
    GATED_THEN_NORMED,
    // x gate
    MULTIPLIED };
// Blocks along y share the heads of a row. Shared memory has the numbers of the block's heads, then one for each of them, and room for those of warps.
KERNEL(linear_gates, GatesArgs, 1024) {
    static constexpr u32 AHEAD = 4;
    const u32 row = a.rows ? a.rows[block_x()] : block_x(), all = a.out.cols / a.dim, first = block_y() * a.heads, heads = least(a.heads, all - first), cols = heads * a.dim;
    const f32 *x = a.x + (static_cast<u64>(row) * all + first) * a.room, *gates = a.gates + static_cast<u64>(row) * a.stride + first * a.step;
    f32 *kept = shared<f32>(), *by = kept + a.heads * a.dim;
    const auto gated = [&](f32 v, f32 gate) {
        if (a.kind == MULTIPLIED) return v * gate;
        return divide(a.kind == GATED ? v : v * gate, 1 + exp_fast(-gate));
    };
    if (a.norm) {
        // A warp has a head, or, where there are fewer heads than warps, all of them have one after the other.
        const bool together = heads < threads() / WARP;
        const u32 own = together ? thread() : lane(), those = together ? threads() : WARP;
        for (u32 head = together ? 0 : warp(); head < heads; head += together ? 1 : threads() / WARP) {
            f32 square = 0;
            for (u32 base = own; base < a.dim; base += AHEAD * those) {
                f32 v[AHEAD], gate[AHEAD], weight[AHEAD];
#pragma unroll
                for (u32 k = 0; k < AHEAD; k++) {
                    const u32 of = least(base + k * those, a.dim - 1);
                    v[k] = x[head * a.room + of], gate[k] = gates[head * a.step + of], weight[k] = a.norm[(first + head) * a.norm_step + of];
                }
#pragma unroll
                for (u32 k = 0; k < AHEAD; k++) {
                    if (base + k * those >= a.dim) break;
                    const f32 result = gated(v[k], gate[k]), normed = a.kind == GATED_THEN_NORMED ? result : v[k];
                    square = fmaf(normed, normed, square);
                    kept[head * a.dim + base + k * those] = result * weight[k];
                }
            }
            square = together ? block_reduce<Add>(square, by + a.heads) : warp_reduce<Add>(square);
            if (own == 0) by[head] = 1 / sqrtf(square / static_cast<f32>(a.dim) + a.eps);
        }
        sync_block();
    }
    for (u32 base = warp() * WARP * 4; base < cols; base += threads() * 4) {
        const u32 at = base + lane() * 4, from = at < cols ? at : 0;
        f32 v[4], gate[4];
        u32 head = from / a.dim, of = from % a.dim;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (a.norm) v[i] = kept[from + i] * by[head];
            else v[i] = x[head * a.room + of], gate[i] = gates[head * a.step + of];
            if (++of == a.dim) of = 0, head++;
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (!a.norm) v[i] = gated(v[i], gate[i]);
        put4(a.out, block_x(), at < cols ? first * a.dim + at : a.out.cols, v);
    }
}
