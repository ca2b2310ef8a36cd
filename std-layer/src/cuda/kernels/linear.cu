// Recurrent layers, and gates of attention. `Recurrence` in recurrence.rs has the formulas.
#include "forms.cuh"

// The layer, and the states that it keeps, of `state` numbers: of each sequence the inputs of the convolution, (taps - 1) x channels, oldest first, then what else it
// keeps.
struct Layer {
    f32* states;
    // Of each sequence the page that is its state, in the first number of a row of `table_len`.
    const u32* tables;
    // Of each row of the step: its sequence's row of the tables, and tokens up to its own. Rows of a sequence follow each other.
    const u32* sequences;
    const u32* lengths;
    u32 rows, table_rows, table_len, pages, channels, taps, state;
    // What is convolved is a product: how far the second factor of a channel is behind the first one; 0 if there is none.
    u32 factor;

    // The state of a row's sequence; null if it has none.
    DEVICE f32* state_of(u32 row) const {
        const u32 sequence = sequences[row], page = sequence < table_rows ? tables[static_cast<u64>(sequence) * table_len] : pages;
        return page < pages ? states + static_cast<u64>(page) * state : nullptr;
    }
    // How many rows before this one are of the same sequence; counted up to `limit`.
    DEVICE u32 before(u32 row, u32 limit) const {
        u32 n = 0;
        while (n < limit && n < row && sequences[row - n - 1] == sequences[row]) n++;
        return n;
    }
    // What the convolution reads of channel `c`, `back` tokens before a row with `before` others of its sequence in front: in front of a text 0.
    DEVICE f32 input(const f32* x, u32 stride, const f32* state, u32 row, u32 before, u32 back, u32 c) const {
        if (back <= before) {
            const f32* own = x + static_cast<u64>(row - back) * stride + c;
            return factor ? own[0] * own[factor] : own[0];
        }
        return back < lengths[row] ? state[(taps - 1 + before - back) * channels + c] : 0;
    }
    // What the convolution of the next token reads of channel `c`, behind the last row of a sequence whose first one in this step is `first`. What is written has
    // been read.
    DEVICE void keep(const f32* x, u32 stride, f32* state, u32 first, u32 last, u32 c) const {
        const u32 before = least(last - first, taps - 1);
        for (u32 tap = 0; tap + 1 < taps; tap++) state[tap * channels + c] = input(x, stride, state, last, before, taps - 2 - tap, c);
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
    f32 eps;
};

// y = silu(bias + sum over taps of w x), or the sum; of heads of queries and keys y / sqrt(|y|^2 + eps), of those of queries divided by sqrt(size), too. A warp
// has a head.
KERNEL(linear_convolve, ConvolveArgs, 128) {
    static constexpr u32 EACH = 4;
    const Layer& l = a.layer;
    const u32 row = block_x(), head = block_y() * (threads() / WARP) + warp();
    if (head * a.size >= l.channels) return;
    const f32* state = l.state_of(row);
    const u32 before = l.before(row, l.taps - 1);
    f32 v[EACH], square = 0;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        const u32 i = lane() + WARP * k, c = head * a.size + i;
        const bool has = i < a.size && c < l.channels && state;
        f32 sum = has && a.bias ? a.bias[c] : 0;
        for (u32 tap = 0; tap < l.taps && has; tap++)
            sum = fmaf(a.w[tap * l.channels + c], l.input(a.x, a.stride, state, row, before, l.taps - 1 - tap, c), sum);
        v[k] = a.activated ? divide(sum, 1 + exp_fast(-sum)) : sum;
        square = fmaf(v[k], v[k], square);
    }
    square = warp_reduce<Add>(square);
    f32 by = head < 2 * a.key_heads ? 1 / sqrtf(square + a.eps) : 1;
    if (head < a.key_heads) by /= sqrtf(static_cast<f32>(a.size));
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        const u32 i = lane() + WARP * k, c = head * a.size + i;
        if (i < a.size && c < l.channels) a.y[static_cast<u64>(row) * l.channels + c] = v[k] * by;
    }
}

struct KeepArgs {
    Layer layer;
    // What the convolution took.
    const f32* x;
    u32 stride;
};

// Keeps of each sequence what its next convolution reads. A thread has a channel of the sequence whose first row is block_x.
KERNEL(linear_keep, KeepArgs, 256) {
    const Layer& l = a.layer;
    const u32 first = block_x(), c = block_y() * threads() + thread();
    f32* state = l.state_of(first);
    if (!state || l.before(first, 1) || c >= l.channels) return;
    u32 last = first;
    while (last + 1 < l.rows && l.sequences[last + 1] == l.sequences[first]) last++;
    l.keep(a.x, a.stride, state, first, last, c);
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
};

// ln(1 + exp(x)), to all digits: with e = exp(-|x|) ln(1 + e) is 2 artanh(e / (2 + e)).
DEVICE f32 softplus(f32 x) {
    const f32 e = exp_fast(-fabsf(x)), u = divide(e, 2 + e), s = u * u;
    const f32 p = fmaf(s, fmaf(s, fmaf(s, fmaf(s, fmaf(s, fmaf(s, 1.0f / 13, 1.0f / 11), 1.0f / 9), 1.0f / 7), 1.0f / 5), 1.0f / 3), 1.0f);
    return fmaf(2 * u, p, x > 0 ? x : 0);
}

// S = decay S; S = S + beta (v - S k) k^T; y = S q + skip v, token by token, with beta = sigmoid(b). Without b nothing is recalled, and beta is softplus(a + bias):
// S = decay S + beta v k^T. A block has a head of values and a sequence: that whose first row is block_y. A thread keeps up to 32 numbers of a row of S in registers,
// fours by turns with the other lanes of the row.
KERNEL(linear_rule, RuleArgs, 512) {
    static constexpr u32 FOURS = 8;
    const Layer& l = a.layer;
    const u32 head = block_x(), first = block_y(), size = a.key_size, lanes = size > 64 ? 4 : size > 32 ? 2 : 1;
    const u32 j = thread() / lanes, lane_of_row = thread() % lanes;
    const u32 values = a.value_heads * a.value_size, channels = l.channels;
    const bool has = j < a.value_size;
    f32* state = l.state_of(first);
    if (!state && has && lane_of_row == 0) a.y[static_cast<u64>(first) * values + head * a.value_size + j] = 0;
    if (!state || l.before(first, 1)) return;
    const u32 key_head = a.tiled ? head % a.key_heads : head / (a.value_heads / a.key_heads);
    const u32 number = a.b ? head / a.decay_heads * 2 * a.decay_heads + head % a.decay_heads : head;
    f32* own = state + (l.taps - 1) * channels + (static_cast<u64>(head) * a.value_size + (has ? j : 0)) * size;
    const auto at = [&](u32 m) { return (m * lanes + lane_of_row) * 4; };
    const auto load = [&](f32 (&x)[FOURS][4], const f32* from, bool there) {
#pragma unroll
        for (u32 m = 0; m < FOURS; m++) {
            x[m][0] = x[m][1] = x[m][2] = x[m][3] = 0;
            if (there && at(m) < size) load_pack(x[m], from + at(m));
        }
    };
    const auto sum_of_row = [&](f32 v) {
        if (lanes > 1) v += shuffle_xor(v, 1);
        if (lanes > 2) v += shuffle_xor(v, 2);
        return v;
    };
    f32 s[FOURS][4];
    load(s, own, has && l.lengths[first] > 1);
    u32 row = first;
    for (; row < l.rows && l.sequences[row] == l.sequences[first]; row++) {
        const f32* c = a.convolved + static_cast<u64>(row) * channels;
        const f32 length = softplus(a.a[static_cast<u64>(row) * a.strides[1] + number] + a.bias[head]);
        const f32 beta = a.b ? divide(1, 1 + exp_fast(-a.b[static_cast<u64>(row) * a.strides[0] + number])) : length;
        const f32 decay = exp_fast(a.rate[head] * length), v = has ? c[2 * a.key_heads * size + head * a.value_size + j] : 0;
        f32 x[FOURS][4], dot = 0;
        load(x, c + (a.key_heads + key_head) * size, true);
#pragma unroll
        for (u32 m = 0; m < FOURS; m++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) s[m][i] *= decay, dot = fmaf(s[m][i], x[m][i], dot);
        const f32 d = beta * (a.b ? v - sum_of_row(dot) : v);
#pragma unroll
        for (u32 m = 0; m < FOURS; m++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) s[m][i] = fmaf(d, x[m][i], s[m][i]);
        load(x, c + key_head * size, true);
        dot = 0;
#pragma unroll
        for (u32 m = 0; m < FOURS; m++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) dot = fmaf(s[m][i], x[m][i], dot);
        dot = sum_of_row(dot);
        if (a.skip) dot = fmaf(a.skip[head], v, dot);
        if (has && lane_of_row == 0) a.y[static_cast<u64>(row) * values + head * a.value_size + j] = dot;
    }
#pragma unroll
    for (u32 m = 0; m < FOURS; m++)
        if (has && at(m) < size) store_pack(own + at(m), s[m]);
    // Blocks share the channels.
    for (u32 c = head * threads() + thread(); c < channels; c += a.value_heads * threads()) l.keep(a.x, a.stride, state, first, row - 1, c);
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
// Shared memory has a number for each head, and room for those of warps.
KERNEL(linear_gates, GatesArgs, 256) {
    const u32 row = a.rows ? a.rows[block_x()] : block_x(), heads = a.out.cols / a.dim;
    const f32 *x = a.x + static_cast<u64>(row) * heads * a.room, *gates = a.gates + static_cast<u64>(row) * a.stride;
    f32* by = shared<f32>();
    const auto gated = [&](u32 head, u32 of) {
        const f32 v = x[head * a.room + of], gate = gates[head * a.step + of];
        if (a.kind == MULTIPLIED) return v * gate;
        return divide(a.kind == GATED ? v : v * gate, 1 + exp_fast(-gate));
    };
    if (a.norm) {
        // A warp has a head, or, where there are fewer heads than warps, all of them have one after the other.
        const bool all = heads < threads() / WARP;
        const u32 own = all ? thread() : lane(), those = all ? threads() : WARP;
        for (u32 head = all ? 0 : warp(); head < heads; head += all ? 1 : threads() / WARP) {
            f32 square = 0;
            for (u32 i = own; i < a.dim; i += those) {
                const f32 v = a.kind == GATED_THEN_NORMED ? gated(head, i) : x[head * a.room + i];
                square = fmaf(v, v, square);
            }
            square = all ? block_reduce<Add>(square, by + heads) : warp_reduce<Add>(square);
            if (own == 0) by[head] = 1 / sqrtf(square / static_cast<f32>(a.dim) + a.eps);
        }
        sync_block();
    }
    each_four(a.out.cols, [&](u32 at) {
        f32 v[4] = {0, 0, 0, 0};
        for (u32 i = 0; i < 4 && at < a.out.cols; i++) {
            const u32 head = (at + i) / a.dim, of = (at + i) % a.dim;
            v[i] = gated(head, of);
            if (a.norm) v[i] *= by[head] * a.norm[head * a.norm_step + of];
        }
        put4(a.out, block_x(), at, v);
    });
}
