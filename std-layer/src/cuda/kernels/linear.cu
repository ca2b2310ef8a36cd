// Linear attention by the gated delta rule, and gates of attention. `LinearAttention` in config.rs has the formulas.
#include "forms.cuh"

// The layer, and the states that it keeps: of each sequence the inputs of the convolution, (taps - 1) x channels, oldest first, then S, which has for each head of
// values `size` rows of `size` numbers.
struct Layer {
    f32* states;
    // Of each sequence the page that is its state, in the first number of a row of `table_len`.
    const u32* tables;
    // Of each row of the step: its sequence's row of the tables, and tokens up to its own. Rows of a sequence follow each other.
    const u32* sequences;
    const u32* lengths;
    u32 rows, table_rows, table_len, pages, key_heads, value_heads, size, taps;

    DEVICE u32 channels() const { return (2 * key_heads + value_heads) * size; }
    // The state of a row's sequence; null if it has none.
    DEVICE f32* state_of(u32 row) const {
        const u32 sequence = sequences[row], page = sequence < table_rows ? tables[static_cast<u64>(sequence) * table_len] : pages;
        return page < pages ? states + static_cast<u64>(page) * ((taps - 1) * channels() + value_heads * size * size) : nullptr;
    }
    // How many rows before this one are of the same sequence; counted up to `limit`.
    DEVICE u32 before(u32 row, u32 limit) const {
        u32 n = 0;
        while (n < limit && n < row && sequences[row - n - 1] == sequences[row]) n++;
        return n;
    }
    // What the convolution reads of channel `c`, `back` tokens before a row with `before` others of its sequence in front: in front of a text 0.
    DEVICE f32 input(const f32* x, u32 stride, const f32* state, u32 row, u32 before, u32 back, u32 c) const {
        if (back <= before) return x[static_cast<u64>(row - back) * stride + c];
        return back < lengths[row] ? state[(taps - 1 + before - back) * channels() + c] : 0;
    }
};

struct ConvolveArgs {
    Layer layer;
    // Channels of each row, and how far one row is from the next.
    const f32* x;
    // taps x channels.
    const f32* w;
    // Rows of all channels.
    f32* y;
    u32 stride;
    f32 eps;
};

// y = silu(sum over taps of w x); of heads of queries and keys y / sqrt(|y|^2 + eps), of those of queries divided by sqrt(size), too. A warp has a head.
KERNEL(linear_convolve, ConvolveArgs, 128) {
    // Heads have up to 128 numbers.
    static constexpr u32 EACH = 4;
    const Layer& l = a.layer;
    const u32 row = block_x(), head = block_y() * (threads() / WARP) + warp();
    if (head >= 2 * l.key_heads + l.value_heads) return;
    const f32* state = l.state_of(row);
    const u32 before = l.before(row, l.taps - 1);
    f32 v[EACH], square = 0;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        const u32 i = lane() + WARP * k, c = head * l.size + i;
        f32 sum = 0;
        for (u32 tap = 0; tap < l.taps && i < l.size && state; tap++)
            sum = fmaf(a.w[tap * l.channels() + c], l.input(a.x, a.stride, state, row, before, l.taps - 1 - tap, c), sum);
        v[k] = divide(sum, 1 + exp_fast(-sum));
        square = fmaf(v[k], v[k], square);
    }
    square = warp_reduce<Add>(square);
    f32 by = head < 2 * l.key_heads ? 1 / sqrtf(square + a.eps) : 1;
    if (head < l.key_heads) by /= sqrtf(static_cast<f32>(l.size));
#pragma unroll
    for (u32 k = 0; k < EACH; k++)
        if (lane() + WARP * k < l.size) a.y[static_cast<u64>(row) * l.channels() + head * l.size + lane() + WARP * k] = v[k] * by;
}

struct RuleArgs {
    Layer layer;
    // What the convolution took, and what it gave.
    const f32* x;
    const f32* convolved;
    // The numbers b and a of each row, and how far one row is from the next.
    const f32* b;
    const f32* a;
    const f32* bias;
    const f32* rate;
    // Rows of all heads of values.
    f32* y;
    // Those of so many heads of values are followed by others of the same.
    u32 decay_heads;
    // Whether head h of values belongs to head h % key_heads of keys, and not to those that follow each other.
    u32 tiled;
    u32 stride, strides[2];
};

// ln(1 + exp(x)), to all digits: with e = exp(-|x|) ln(1 + e) is 2 artanh(e / (2 + e)).
DEVICE f32 softplus(f32 x) {
    const f32 e = exp_fast(-fabsf(x)), u = divide(e, 2 + e), s = u * u;
    const f32 p = fmaf(s, fmaf(s, fmaf(s, fmaf(s, fmaf(s, fmaf(s, 1.0f / 13, 1.0f / 11), 1.0f / 9), 1.0f / 7), 1.0f / 5), 1.0f / 3), 1.0f);
    return fmaf(2 * u, p, x > 0 ? x : 0);
}

// S = decay S; S = S + beta (v - S k) k^T; y = S q, token by token. A block has a head of values and a sequence: that whose first row is block_y. A thread keeps up to
// 32 numbers of a row of S in registers, fours by turns with the other lanes of the row.
KERNEL(linear_rule, RuleArgs, 512) {
    static constexpr u32 FOURS = 8;
    const Layer& l = a.layer;
    const u32 head = block_x(), first = block_y(), lanes = l.size > 64 ? 4 : l.size > 32 ? 2 : 1;
    const u32 j = thread() / lanes, lane_of_row = thread() % lanes;
    const u32 values = l.value_heads * l.size, channels = l.channels();
    const bool has = j < l.size;
    f32* state = l.state_of(first);
    if (!state && has && lane_of_row == 0) a.y[static_cast<u64>(first) * values + head * l.size + j] = 0;
    if (!state || l.before(first, 1)) return;
    const u32 key_head = a.tiled ? head % l.key_heads : head / (l.value_heads / l.key_heads);
    const u32 number = head / a.decay_heads * 2 * a.decay_heads + head % a.decay_heads;
    f32* own = state + (l.taps - 1) * channels + (static_cast<u64>(head) * l.size + (has ? j : 0)) * l.size;
    const auto at = [&](u32 m) { return (m * lanes + lane_of_row) * 4; };
    const auto load = [&](f32 (&x)[FOURS][4], const f32* from, bool there) {
#pragma unroll
        for (u32 m = 0; m < FOURS; m++) {
            x[m][0] = x[m][1] = x[m][2] = x[m][3] = 0;
            if (there && at(m) < l.size) load_pack(x[m], from + at(m));
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
        const f32 beta = divide(1, 1 + exp_fast(-a.b[static_cast<u64>(row) * a.strides[0] + number]));
        const f32 decay = exp_fast(a.rate[head] * softplus(a.a[static_cast<u64>(row) * a.strides[1] + number] + a.bias[head]));
        f32 x[FOURS][4], dot = 0;
        load(x, c + (l.key_heads + key_head) * l.size, true);
#pragma unroll
        for (u32 m = 0; m < FOURS; m++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) s[m][i] *= decay, dot = fmaf(s[m][i], x[m][i], dot);
        const f32 d = beta * ((has ? c[(2 * l.key_heads + head) * l.size + j] : 0) - sum_of_row(dot));
#pragma unroll
        for (u32 m = 0; m < FOURS; m++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) s[m][i] = fmaf(d, x[m][i], s[m][i]);
        load(x, c + key_head * l.size, true);
        dot = 0;
#pragma unroll
        for (u32 m = 0; m < FOURS; m++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) dot = fmaf(s[m][i], x[m][i], dot);
        dot = sum_of_row(dot);
        if (has && lane_of_row == 0) a.y[static_cast<u64>(row) * values + head * l.size + j] = dot;
    }
#pragma unroll
    for (u32 m = 0; m < FOURS; m++)
        if (has && at(m) < l.size) store_pack(own + at(m), s[m]);
    // What the convolution of the next token reads: blocks share the channels. Of each one, what is written has been read.
    const u32 last = row - 1, before = least(last - first, l.taps - 1);
    for (u32 c = head * threads() + thread(); c < channels; c += l.value_heads * threads())
        for (u32 tap = 0; tap + 1 < l.taps; tap++) state[tap * channels + c] = l.input(a.x, a.stride, state, last, before, l.taps - 2 - tap, c);
}

struct GatesArgs {
    const f32* x;
    // Which rows of x and of gates; all of them, in order, without.
    const u32* rows;
    // Gates of a row: those of a head are `step` behind those of the head before, and rows `stride` apart.
    const f32* gates;
    // The weight of the norm of each head, if it is normed.
    const f32* norm;
    Forms out;
    // Elements of a head, and room for them in x.
    u32 dim, room, step, stride;
    f32 eps;
};

// x sigmoid(gate); or, of heads that are normed, x / sqrt(mean(x^2) + eps) norm gate sigmoid(gate). Shared memory has a number for each head.
KERNEL(linear_gates, GatesArgs, 256) {
    const u32 row = a.rows ? a.rows[block_x()] : block_x(), heads = a.out.cols / a.dim;
    const f32 *x = a.x + static_cast<u64>(row) * heads * a.room, *gates = a.gates + static_cast<u64>(row) * a.stride;
    f32* by = shared<f32>();
    if (a.norm) {
        for (u32 head = warp(); head < heads; head += threads() / WARP) {
            f32 square = 0;
            for (u32 i = lane(); i < a.dim; i += WARP) square = fmaf(x[head * a.room + i], x[head * a.room + i], square);
            square = warp_reduce<Add>(square);
            if (lane() == 0) by[head] = 1 / sqrtf(square / static_cast<f32>(a.dim) + a.eps);
        }
        sync_block();
    }
    each_four(a.out.cols, [&](u32 at) {
        f32 v[4] = {0, 0, 0, 0};
        for (u32 i = 0; i < 4 && at < a.out.cols; i++) {
            const u32 head = (at + i) / a.dim, of = (at + i) % a.dim;
            const f32 gate = gates[head * a.step + of];
            v[i] = divide(x[head * a.room + of], 1 + exp_fast(-gate));
            if (a.norm) v[i] *= by[head] * a.norm[of] * gate;
        }
        put4(a.out, block_x(), at, v);
    });
}
