// What a decoder computes between its products. Rows are in f32, a block has a row, and what products take next is written in the forms that
// they take.
#include "attention.cuh"
#include "forms.cuh"
#include "normal.cuh"

struct EmbeddingArgs {
    const void* table;
    const u32* ids;
    f32* y;
    u32 rows, cols, type;
};

// Rows of a dense table, widened; one that does not exist is NaN.
KERNEL(decoder_embed, EmbeddingArgs, 256) {
    const u32 id = a.ids[block_x()];
    f32* y = a.y + static_cast<u64>(block_x()) * a.cols;
    for (u32 i = thread(); i < a.cols; i += threads())
        y[i] = id < a.rows ? load_as(a.table, static_cast<u64>(id) * a.cols + i, a.type) : from_bits(0x7fc00000);
}

struct PositionsArgs {
    // Of each row its sequence's tokens up to its own, and which of them it sees, as in DecodeArgs.
    const u32* lengths;
    const u64* seen;
    // Where positions go, and temperatures of scores: of each so many positions the factor that the table has; of others none.
    u32* positions;
    f32* temperatures;
    const f32* table;
    u32 rows, each, entries;
};

// The position of each row in its text, and the temperature of its scores, if they are wanted; the position of a row without tokens is 0.
KERNEL(decoder_positions, PositionsArgs, 256) {
    const u32 row = block_x() * threads() + thread();
    if (row >= a.rows) return;
    const u32 position = a.lengths[row] ? path_length(a.seen, row, a.lengths[row]) - 1 : 0;
    if (a.positions) a.positions[row] = position;
    if (a.temperatures) a.temperatures[row] = position / a.each < a.entries ? a.table[position / a.each] : from_bits(0x7fc00000);
}

// Adds four neighbouring numbers of a row, if there is one.
DEVICE void add_pack(f32 (&x)[4], const f32* row, u64 at) {
    if (!row) return;
    f32 more[4];
    load_pack(more, row + at);
    for (u32 i = 0; i < 4; i++) x[i] += more[i];
}

struct AddNormArgs {
    // The residual stream, and which of its rows; all of them, in order, without. It goes on in `y`, row by row: elsewhere.
    const f32* x;
    const u32* rows;
    f32* y;
    // What is added, if anything: rows, a row that is the same for all, and the weight of the norm of their sum, if that is normed before.
    const f32* delta;
    const f32* bias;
    const f32* post;
    // The weight of the norm, and what is added behind it, if anything.
    const f32* w;
    const f32* b;
    Forms out;
    f32 eps, scale;
    // Whether the norm is the layer norm, and whether its results take the place of y.
    u32 centred, stays;
};

// Calls `use` for the fours of a row that a thread has: the first one, and those behind it, which it computes.
template <class C, class F> DEVICE void each_of_row(u32 cols, const f32 (&first)[4], C compute, F use) {
    if (thread() * 4 < cols) use(first);
    for (u32 at = (threads() + thread()) * 4; at < cols; at += threads() * 4) {
        f32 v[4];
        compute(v, at);
        use(v);
    }
}

// With d = delta + bias: y = scale x + d, or scale x + rms(d) post; out = norm(y) w + b, with rms(x) = x / sqrt(mean(x^2) + eps), and norm(x) = rms(x), or
// rms(x - mean(x)). Blocks of y share what comes behind the sums, which each of them has: `SHARE` columns by turns. A thread keeps its first four of y in
// registers, and computes those behind it again.
KERNEL_EARLY(decoder_norm, AddNormArgs, 1024) {
    static constexpr u32 SHARE = 1024;
    const u32 cols = a.out.cols, first = thread() * 4;
    f32 kept[4], w_of[4];
    if (first < cols) load_pack(w_of, a.w + first);
    const u64 row = static_cast<u64>(block_x()) * cols;
    const f32 *x = a.x + static_cast<u64>(a.rows ? a.rows[block_x()] : block_x()) * cols, *delta = a.delta + row;
    f32 *y = a.y + row, *room = shared<f32>();
    wait_for_inputs();
    const auto norm = [&](f32 square) { return 1 / sqrtf(block_reduce<Add>(square, room) / static_cast<f32>(cols) + a.eps); };
    const auto load_delta = [&](f32 (&d)[4], u32 at) {
        if (a.delta) load_pack(d, delta + at);
        else d[0] = d[1] = d[2] = d[3] = 0;
        add_pack(d, a.bias, at);
    };
    f32 by = 1, square = 0, mean = 0;
    if (a.post) {
        for (u32 at = first; at < cols; at += threads() * 4) {
            f32 d[4];
            load_delta(d, at);
            for (u32 i = 0; i < 4; i++) square = fmaf(d[i], d[i], square);
        }
        by = norm(square);
        square = 0;
    }
    const auto compute = [&](f32 (&v)[4], u32 at) {
        const bool adds = a.delta || a.bias;
        f32 d[4], p[4];
        load_pack(v, x + at);
        if (adds) load_delta(d, at);
        if (a.post) load_pack(p, a.post + at);
        for (u32 i = 0; i < 4; i++) {
            v[i] *= a.scale;
            if (adds) v[i] += a.post ? d[i] * by * p[i] : d[i];
        }
    };
    if (first < cols) compute(kept, first);
    if (a.centred) {
        each_of_row(cols, kept, compute, [&](const f32 (&v)[4]) { for (u32 i = 0; i < 4; i++) mean += v[i]; });
        mean = block_reduce<Add>(mean, room) / static_cast<f32>(cols);
    }
    each_of_row(cols, kept, compute, [&](const f32 (&v)[4]) { for (u32 i = 0; i < 4; i++) square = fmaf(v[i] - mean, v[i] - mean, square); });
    const f32 of_y = norm(square);
    // Lanes of a warp come together, also those beyond the row.
    for (u32 base = warp() * (WARP * 4); base < cols; base += threads() * 4) {
        if (base / SHARE % grid_y() != block_y()) continue;
        const u32 at = base + lane() * 4;
        f32 z[4] = {0, 0, 0, 0};
        if (at < cols) {
            if (at != first) compute(kept, at), load_pack(w_of, a.w + at);
            for (u32 i = 0; i < 4; i++) z[i] = (kept[i] - mean) * of_y * w_of[i];
            add_pack(z, a.b, at);
            if (a.stays) store_pack(y + at, z);
            else store_pack(y + at, kept);
        }
        put4(a.out, block_x(), at, z);
    }
}

struct HeadsArgs {
    // Of queries, keys and values: their rows, how far one is from the next, their biases if there are any, the weights of their norms if
    // they are normed: those of a head are `each` behind those of the head before.
    const f32* x[3];
    const f32* bias[3];
    const f32* norm[3];
    // Tables of angles, a row for each position.
    const f32* cos;
    const f32* sin;
    // Factors of the queries of each row, if there are any.
    const f32* temperatures;
    f32* queries;
    void* keys;
    void* values;
    const u32* tables;
    // Of each row: its sequence's row of the tables, and tokens up to its own; where it sees tokens behind its own, these as well, and its position.
    const u32* sequences;
    const u32* lengths;
    const u32* positions;
    // Which of them it sees, as in DecodeArgs.
    const u64* seen;
    u32 stride[3];
    // How far the queries of a head are behind those of the head before, in x.
    u32 step;
    // Rows of queries and of the cache have `room` elements for each head: `dim`, and zeros behind them.
    // The norm is the layer norm if it is `centred`; its weights multiply what is rotated if they come `behind`.
    u32 heads, kv_heads, dim, room, half, adjacent, each, centred, behind, angles, table_rows, table_len, pages, page_tokens, type;
    // What a number is at most, and its negative at least.
    f32 eps, bound;
};
// The type of a cache of codes of 8 bits, beside those of numbers.
static constexpr u32 TYPE_Q8_0 = 3;

// A warp writes 32 numbers of a row of such a cache, one each lane: the code is x (127 / max |x|), to nearest even. A group with a NaN or an infinity is NaN.
DEVICE void store_q8(const HeadsArgs& a, void* cache, u32 page, u64 row, u32 i, f32 v) {
    const u64 rows = static_cast<u64>(a.kv_heads) * a.page_tokens;
    const f32 bad = warp_reduce<Max>(fabsf(v) <= 3.402823466e38f ? 0.0f : 1.0f), top = warp_reduce<Max>(fabsf(v));
    u8* bytes = static_cast<u8*>(cache);
    const bool some = bad == 0 && top >= 1e-36f;
    if (i < a.room) bytes[q8_codes(rows, a.room, page, row) + i] = static_cast<u8>(some ? static_cast<i32>(rintf(v * (127 / top))) : 0);
    if (lane() == 0)
        *reinterpret_cast<f16*>(bytes + q8_scale(rows, a.room, page, row, i / Q8_GROUP)) = from_f32<f16>(bad != 0 ? from_bits(0x7fc00000) : some ? top / 127 : 0);
}

// Biases, bounds, norms and rotations of a row's heads; keys and values go to the cache, queries to `queries`. A warp has a head, a lane each 32nd number of it, and
// neighbours meet in `dim` numbers of shared memory. All but x itself is known before the kernel in front has written that.
template <u32 EACH> DEVICE void heads_of_rows(const HeadsArgs& a) {
    const u32 row = block_x(), job = block_y() * (threads() / WARP) + warp();
    if (job >= a.heads + 2 * a.kv_heads) return wait_for_inputs();
    const u32 kind = job < a.heads ? 0 : job < a.heads + a.kv_heads ? 1 : 2;
    const u32 head = kind == 0 ? job : job - a.heads - (kind == 2 ? a.kv_heads : 0);
    const u32 sequence = a.sequences[row], place = a.positions ? a.positions[row] : a.lengths[row] - 1, slot = place / a.page_tokens;
    // Drafts of a tree are rotated as the tokens of their paths.
    const u32 position = path_length(a.seen, row, place + 1) - 1;
    u32 page = a.pages;
    if (sequence < a.table_rows && slot < a.table_len) page = a.tables[static_cast<u64>(sequence) * a.table_len + slot];
    const f32* bias = a.bias[kind] ? a.bias[kind] + head * a.dim : nullptr;
    const f32* weight = a.norm[kind] ? a.norm[kind] + head * a.each : nullptr;
    f32 v[EACH], add[EACH], w[EACH], c[EACH], s[EACH];
    const auto turns = [&](u32 i) { return kind < 2 && i < 2 * a.half; };
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        const u32 i = lane() + WARP * k;
        add[k] = bias && i < a.dim ? bias[i] : 0;
        w[k] = weight && i < a.dim ? weight[i] : 1;
        c[k] = s[k] = from_bits(0x7fc00000);
        if (!turns(i) || position >= a.angles) continue;
        const u64 at = static_cast<u64>(position) * a.half + (a.adjacent ? i / 2 : i < a.half ? i : i - a.half);
        c[k] = a.cos[at], s[k] = a.sin[at];
    }
    wait_for_inputs();
    const f32* x = a.x[kind] + static_cast<u64>(row) * a.stride[kind] + head * (kind == 0 ? a.step : a.dim);
    f32 sum = 0, square = 0, *room = shared<f32>() + warp() * a.dim;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        v[k] = lane() + WARP * k < a.dim ? x[lane() + WARP * k] + add[k] : 0;
        v[k] = v[k] > a.bound ? a.bound : v[k] < -a.bound ? -a.bound : v[k];
    }
    if (weight && a.centred) {
#pragma unroll
        for (u32 k = 0; k < EACH; k++) sum += v[k];
        const f32 mean = warp_reduce<Add>(sum) / static_cast<f32>(a.dim);
#pragma unroll
        for (u32 k = 0; k < EACH; k++)
            if (lane() + WARP * k < a.dim) v[k] -= mean;
    }
#pragma unroll
    for (u32 k = 0; k < EACH; k++) square = fmaf(v[k], v[k], square);
    const f32 by = weight ? 1 / sqrtf(warp_reduce<Add>(square) / static_cast<f32>(a.dim) + a.eps) : 1;
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        v[k] = a.behind ? v[k] * by : v[k] * by * w[k];
        if (lane() + WARP * k < a.dim) room[lane() + WARP * k] = v[k];
    }
    sync_warp();
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        const u32 i = lane() + WARP * k;
        if (!turns(i)) continue;
        const bool second = a.adjacent ? i % 2 : i >= a.half;
        const f32 other = room[a.adjacent ? i ^ 1 : second ? i - a.half : i + a.half];
        v[k] = second ? fmaf(other, s[k], v[k] * c[k]) : fmaf(-other, s[k], v[k] * c[k]);
    }
    sync_warp();
#pragma unroll
    for (u32 k = 0; k < EACH; k++)
        if (lane() + WARP * k < a.dim) room[lane() + WARP * k] = a.behind ? v[k] * w[k] : v[k];
    const f32 by_temperature = kind == 0 && a.temperatures ? a.temperatures[row] : 1;
    // A key or value without a page goes nowhere.
    if (kind > 0 && page >= a.pages) return;
    const u64 of_page = static_cast<u64>(head) * a.page_tokens + place % a.page_tokens;
    const u64 at = (static_cast<u64>(page) * a.kv_heads * a.page_tokens + of_page) * a.room;
#pragma unroll 1
    for (u32 i = lane(); i < div_up(a.room, WARP) * WARP; i += WARP) {
        const f32 y = i < a.dim ? room[i] : 0;
        void* cache = kind == 1 ? a.keys : a.values;
        if (kind > 0 && a.type == TYPE_Q8_0) store_q8(a, cache, page, of_page, i, y);
        else if (i >= a.room) continue;
        else if (kind == 0) a.queries[(static_cast<u64>(row) * a.heads + head) * a.room + i] = y * by_temperature;
        else store_as(cache, at + i, y, a.type);
    }
}
// Heads have up to so many numbers.
KERNEL_EARLY(decoder_heads_d128, HeadsArgs, 128) { heads_of_rows<128 / WARP>(a); }
KERNEL_EARLY(decoder_heads_d256, HeadsArgs, 128) { heads_of_rows<256 / WARP>(a); }
KERNEL_EARLY(decoder_heads_d512, HeadsArgs, 128) { heads_of_rows<512 / WARP>(a); }

// What latent attention caches of a row, and the rotated elements of its queries. The first block along y norms the elements of x[1] that are not rotated, the last ones of
// which there are 2 * half are; of the others a warp rotates the last elements of a head of x[0], which go to `queries`, of each head those of all rows.
KERNEL_EARLY(decoder_latent, HeadsArgs, 256) {
    const u32 row = block_x(), sequence = a.sequences[row], place = a.positions ? a.positions[row] : a.lengths[row] - 1, slot = place / a.page_tokens;
    const u32 position = path_length(a.seen, row, place + 1) - 1, turns = 2 * a.half, rank = a.dim - turns;
    u32 page = a.pages;
    if (sequence < a.table_rows && slot < a.table_len) page = a.tables[static_cast<u64>(sequence) * a.table_len + slot];
    wait_for_inputs();
    const auto rotate = [&](const f32* x, f32* to, u32 first, u32 step, f32 factor) {
        for (u32 pair = first; pair < a.half; pair += step) {
            const u32 one = a.adjacent ? 2 * pair : pair, other = a.adjacent ? one + 1 : pair + a.half;
            const u64 at = static_cast<u64>(position) * a.half + pair;
            const bool known = position < a.angles;
            const f32 c = known ? a.cos[at] : from_bits(0x7fc00000), s = known ? a.sin[at] : from_bits(0x7fc00000), u = x[one], v = x[other];
            to[one] = fmaf(-v, s, u * c) * factor, to[other] = fmaf(u, s, v * c) * factor;
        }
    };
    if (block_y() > 0) {
        const u32 head = (block_y() - 1) * (threads() / WARP) + warp();
        const f32 factor = a.temperatures ? a.temperatures[row] : 1;
        if (head < a.heads) rotate(a.x[0] + static_cast<u64>(row) * a.stride[0] + head * a.step, a.queries + (static_cast<u64>(head) * grid_x() + row) * turns, lane(), WARP, factor);
        return;
    }
    const f32* x = a.x[1] + static_cast<u64>(row) * a.stride[1];
    f32 square = 0, *y = shared<f32>(), *room = y + div_up(a.room, WARP) * WARP;
    for (u32 i = thread(); i < rank; i += threads()) square = fmaf(x[i], x[i], square);
    const f32 by = 1 / sqrtf(block_reduce<Add>(square, room) / static_cast<f32>(rank) + a.eps);
    for (u32 i = thread(); i < rank; i += threads()) y[i] = x[i] * by * a.norm[1][i];
    rotate(x + rank, y + rank, thread(), threads(), 1);
    for (u32 i = a.dim + thread(); i < div_up(a.room, WARP) * WARP; i += threads()) y[i] = 0;
    sync_block();
    // What has no page goes nowhere.
    if (page >= a.pages) return;
    const u64 of_page = place % a.page_tokens, at = (static_cast<u64>(page) * a.page_tokens + of_page) * a.room;
    for (u32 i = thread(); i < div_up(a.room, WARP) * WARP; i += threads()) {
        if (a.type == TYPE_Q8_0) store_q8(a, a.keys, page, of_page, i, y[i]);
        else if (i < a.room) store_as(a.keys, at + i, y[i], a.type);
    }
}

struct SegmentsArgs {
    u32* table;
    // Matrices, rows of each, and rows of a segment at most.
    u32 matrices, rows, most;
};

// Segments of products in which each matrix has as many rows, as `experts_sort` writes them. A block has a matrix.
KERNEL(decoder_segments, SegmentsArgs, 32) {
    const u32 count = div_up(a.rows, a.most), begin = block_x() * a.rows;
    for (u32 i = thread(); i < count; i += threads()) {
        u32* to = a.table + (static_cast<u64>(block_x()) * count + i) * 3;
        to[0] = block_x(), to[1] = begin + i * a.most, to[2] = begin + least(a.rows, (i + 1) * a.most);
    }
}

struct JoinRowsArgs {
    DecodeArgs decode;
    // Which queries; all of them, in order, without.
    const u32* rows;
    Forms out;
    // Elements of a head that go on: those of the cache, or fewer.
    u32 dim;
};

// Numbers of a row that a block joins, and its warps, which share the pieces.
static constexpr u32 JOINED = 128, JOINERS = 8;

// The pieces of a query's heads together; a query without tokens gives zeros. The order of sums follows from the row's own pieces alone.
KERNEL_EARLY(decoder_join, JoinRowsArgs, JOINERS * WARP) {
    static constexpr u32 EACH = JOINED / WARP;
    const DecodeArgs& d = a.decode;
    const u32 query = a.rows ? a.rows[block_x()] : block_x(), length = d.sequences[query] < d.rows ? seen_to(d, query) : 0;
    const u32 first = piece_at(d, first_seen(d, query, length)), last = length ? least(d.parts, piece_at(d, length - 1) + 1) : 0;
    const u32 column = block_y() * JOINED, head = column / a.dim, next = d.dim + 2;
    const auto pieces_of = [&](u32 head) { return d.partial + (static_cast<u64>(query) * d.heads + head) * d.parts * next; };
    // What the pieces of a warp have of each column of a lane, and the largest scores of these: the first ones are on the way before they are needed.
    const f32* of_column[EACH];
    u32 head_of[EACH];
    f32 x[EACH], best[EACH], v[EACH];
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
        const u32 at = least(column + lane() + WARP * k, a.out.cols - 1);
        head_of[k] = at / a.dim, of_column[k] = pieces_of(head_of[k]) + at % a.dim, v[k] = 0;
    }
    const auto load = [&](u32 p) {
#pragma unroll
        for (u32 k = 0; k < EACH; k++) x[k] = of_column[k][p * next], best[k] = pieces_of(head_of[k])[p * next + d.dim];
    };
    wait_for_inputs();
    if (first + warp() < last) load(first + warp());
    // Of each head that has numbers here the largest score, and the sum of exponentials; then what each warp has of each number.
    f32 *over = shared<f32>(), *total = over + JOINED, *sums = total + JOINED;
    for (u32 h = head + warp(); h <= (least(a.out.cols, column + JOINED) - 1) / a.dim; h += JOINERS) {
        const f32 *ends = pieces_of(h) + d.dim, sink = sink_of(d, h);
        f32 top = sink, sum = 0;
        for (u32 p = first + lane(); p < last; p += WARP) top = most(top, ends[p * next]);
        top = warp_reduce<Max>(top);
        for (u32 p = first + lane(); p < last; p += WARP)
            if (ends[p * next + 1] != 0) sum = fmaf(exp2_fast(ends[p * next] - top), ends[p * next + 1], sum);
        sum = warp_reduce<Add>(sum) + part_of_sink(sink, top);
        if (lane() == 0) over[h - head] = top, total[h - head] = sum;
    }
    sync_block();
    // Without tokens sums are zeros, and where no piece has any, nobody looks at this.
#pragma unroll 4
    for (u32 p = first + warp(); p < last; p += JOINERS) {
        if (p != first + warp()) load(p);
#pragma unroll
        for (u32 k = 0; k < EACH; k++) v[k] = fmaf(exp2_fast(best[k] - over[head_of[k] - head]), x[k], v[k]);
    }
#pragma unroll
    for (u32 k = 0; k < EACH; k++) sums[warp() * JOINED + lane() + WARP * k] = v[k];
    sync_block();
    if (warp() > 0) return;
    const u32 at = column + lane() * 4;
    f32 y[4] = {0, 0, 0, 0};
    for (u32 k = 0; k < 4 && at < a.out.cols; k++) {
        const f32 by = total[(at + k) / a.dim - head];
        for (u32 w = 0; w < JOINERS; w++) y[k] += sums[w * JOINED + lane() * 4 + k];
        y[k] = by == 0 ? 0 : y[k] / by * d.value_scale;
    }
    put4(a.out, block_x(), at, y);
}

struct GateArgs {
    const f32* gate;
    // What gates are for: without, 1.
    const f32* up;
    // What is added to gates, and to what they are for, if anything: a row for all; with `experts`, which have the expert of each row, a row for each of these.
    const u32* experts;
    const f32* bias[2];
    Forms out;
    // How far a row of gates is from the next, and a row of what they are for.
    u32 strides[2];
    u32 activation;
    // The activation's own numbers, if it has any.
    f32 numbers[2];
};
// The activation; 0 is x / (1 + exp(-x)).
static constexpr u32 GELU_TANH = 1, CLAMPED_SWIGLU = 2, GELU = 3, RELU_SQUARED = 4, XIELU = 5;

// out = activation(gate) up: x / (1 + exp(-x)), or the Gaussian one, by tanh or as it is; or x max(x, 0); or, with both clamped,
// x / (1 + exp(-1.702 x)) (up + 1); or x / 2 + p max(x, 0)^2 + n (exp(min(x, -1e-6)) - 1 - x), the last term where x is below 0 alone.
KERNEL(decoder_gate, GateArgs, 256) {
    const f32* gate = a.gate + static_cast<u64>(block_x()) * a.strides[0];
    const f32* up = a.up + static_cast<u64>(block_x()) * a.strides[1];
    const u64 biases = a.experts ? static_cast<u64>(a.experts[block_x()]) * a.out.cols : 0;
    each_four(a.out.cols, [&](u32 at) {
        f32 v[4] = {0, 0, 0, 0};
        if (at < a.out.cols) {
            f32 u[4] = {1, 1, 1, 1};
            load_pack(v, gate + at);
            if (a.up) load_pack(u, up + at);
            add_pack(v, a.bias[0], biases + at);
            add_pack(u, a.bias[1], biases + at);
            for (u32 i = 0; i < 4; i++) {
                f32 inner = v[i];
                if (a.activation == GELU_TANH) inner = 1.59576912f * v[i] * (1 + 0.044715f * v[i] * v[i]);
                // What is no number stays none.
                if (a.activation == CLAMPED_SWIGLU) {
                    if (v[i] > 7) v[i] = 7;
                    inner = 1.702f * v[i];
                    u[i] = (u[i] > 7 ? 7 : u[i] < -7 ? -7 : u[i]) + 1;
                }
                if (a.activation == XIELU) v[i] = v[i] / 2 + (v[i] < 0 ? a.numbers[1] * (exp_fast(least(v[i], -1e-6f)) - 1 - v[i]) : a.numbers[0] * v[i] * v[i]);
                else if (a.activation == RELU_SQUARED) v[i] *= v[i] > 0 ? v[i] : 0;
                else if (a.activation == GELU) v[i] *= normal(v[i]);
                else v[i] = divide(v[i], 1 + exp_fast(-inner));
                v[i] *= u[i];
            }
        }
        put4(a.out, block_x(), at, v);
    });
}

struct RowsArgs {
    const f32* x;
    // Which rows; all of them, in order, without. Each may be multiplied by a factor, that of its number among those that are written, or of the row that it is part of.
    const u32* rows;
    const f32* factors;
    Forms out;
    // Of each `room` elements of x `dim` go on; both are 0 if all do. A row is `step` elements behind the one before.
    u32 dim, room, step;
    // If rows are those of so many heads each, those that are written have each head's rows one behind the other: row r of head h is number h + r * heads of x. 0, without.
    u32 heads;
};

// Rows as they are, or times their factors, in the forms that products take.
KERNEL(decoder_rows, RowsArgs, 256) {
    const u32 each = a.heads ? grid_x() / a.heads : grid_x(), number = block_x() % each, from = a.rows ? a.rows[number] : number;
    const f32* x = a.x + static_cast<u64>(a.heads ? from * a.heads + block_x() / each : from) * a.step;
    each_four(a.out.cols, [&](u32 at) {
        f32 v[4] = {0, 0, 0, 0};
        if (at < a.out.cols && a.dim)
            for (u32 i = 0; i < 4; i++) v[i] = x[static_cast<u64>((at + i) / a.dim) * a.room + (at + i) % a.dim];
        else if (at < a.out.cols) load_pack(v, x + at);
        if (a.factors)
            for (u32 i = 0; i < 4; i++) v[i] *= a.factors[number];
        put4(a.out, block_x(), at, v);
    });
}

struct PoolArgs {
    const f32* x;
    // Where the rows of each run begin, and where the last ones end.
    const u32* starts;
    f32* y;
    // How a run becomes a row: the mean of its rows, the first, the last.
    u32 cols, how;
};

// A row of each run, divided by its length unless that is 0. A block has a run, which has rows.
KERNEL(decoder_pool, PoolArgs, 1024) {
    const u32 begin = a.starts[block_x()], end = a.starts[block_x() + 1];
    const u32 first = a.how == 2 ? end - 1 : begin, last = a.how == 0 ? end : first + 1;
    f32 *y = a.y + static_cast<u64>(block_x()) * a.cols, square = 0;
    for (u32 i = thread(); i < a.cols; i += threads()) {
        f32 sum = 0;
        for (u32 row = first; row < last; row++) sum += a.x[static_cast<u64>(row) * a.cols + i];
        y[i] = sum = sum / static_cast<f32>(last - first);
        square = fmaf(sum, sum, square);
    }
    const f32 length = sqrtf(block_reduce<Add>(square, shared<f32>()));
    for (u32 i = thread(); i < a.cols && length != 0; i += threads()) y[i] = y[i] / length;
}

struct CapArgs {
    f32* x;
    u64 n;
    f32 cap;
};

// x = cap tanh(x / cap), in place.
KERNEL(decoder_cap, CapArgs, 256) {
    for (u64 i = static_cast<u64>(block_x()) * threads() + thread(); i < a.n; i += static_cast<u64>(grid_x()) * threads())
        a.x[i] = a.cap * tanhf(a.x[i] / a.cap);
}

// The sequence of a row that belongs to none, as it never did, or because its text has ended.
static constexpr u32 NO_SEQUENCE = 0xffffffff;

struct AdvanceArgs {
    // The sequence of each row; without, every row has one.
    u32* sequences;
    // Tokens of each row's sequence so far, if these are to be counted.
    u32* lengths;
    // The token that was chosen for each row: it joins the row's history, in room for `room` tokens, and the next one has the next random
    // number, where there are histories and counters.
    const u32* tokens;
    u32* history;
    u32* history_lengths;
    u64* counters;
    // Tokens that end a text.
    const u32* stops;
    u32 rows, room, stop_count;
};

// A step is over: a thread has a row.
KERNEL(decoder_advance, AdvanceArgs, 256) {
    const u32 row = block_x() * threads() + thread();
    if (row >= a.rows || (a.sequences && a.sequences[row] == NO_SEQUENCE)) return;
    if (a.lengths) a.lengths[row]++;
    if (!a.tokens) return;
    const u32 token = a.tokens[row];
    if (a.history_lengths) {
        const u32 at = a.history_lengths[row]++;
        if (at < a.room) a.history[static_cast<u64>(row) * a.room + at] = token;
    }
    if (a.counters) a.counters[row]++;
    // From here on the row belongs to no sequence: it writes nowhere, and nothing of it is counted.
    for (u32 i = 0; i < a.stop_count; i++)
        if (a.stops[i] == token) a.sequences[row] = NO_SEQUENCE;
}
