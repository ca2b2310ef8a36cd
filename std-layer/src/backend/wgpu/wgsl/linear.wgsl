// What a product of a part of the weights takes.
struct Linear {
    // Rows of W here, parts of a row, where scales behind blocks begin.
    rows: u32,
    parts: u32,
    tails: u32,
    // Vectors of four in a row of X, numbers in a row of Y, and where in that row the first product goes.
    x_stride: u32,
    y_stride: u32,
    y_first: u32,
//#if EXPERTS
    // Rows of W that an expert has, and which row of all experts is the first one here.
    of_expert: u32,
    w_first: u32,
    // Pairs of a row and an expert that have the same row of X.
    share: u32,
//#else
    // The first row of X, and of Y.
    x_row: u32,
    y_row: u32,
//#endif
}
@group(0) @binding(0) var<storage, read> w: array<u32>;
//#if ROUNDED
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
//#else
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
//#endif
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> a: Linear;
//#if BIAS
// As many numbers as a row of Y has, for each expert if there are any.
@group(0) @binding(6) var<storage, read> bias: array<f32>;
//#endif

fn tails_at() -> u32 {
    return a.tails;
}

// Rows of W that are multiplied with the same rows of X: the first one, how many there are, where in a row of Y their products go, and where
// their biases begin.
struct Rows {
    first: u32,
    count: u32,
    y_first: u32,
    bias_first: u32,
}

// The product of a row of these, plus its bias.
fn with_bias(product: f32, rows: Rows, row: u32) -> f32 {
//#if BIAS
    return product + bias[rows.bias_first + row];
//#else
    return product;
//#endif
}
//#if EXPERTS

// The rows of an expert, as far as they are here.
fn rows_of(expert: u32) -> Rows {
    let begin = expert * a.of_expert;
    let first = max(begin, a.w_first);
    let end = min(begin + a.of_expert, a.w_first + a.rows);
    let y_first = a.y_first + first - begin;
    return Rows(first - a.w_first, max(end, first) - first, y_first, expert * a.y_stride + y_first);
}
//#endif
