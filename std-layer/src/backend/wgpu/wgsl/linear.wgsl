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
    // The first row of X, and of Y.
    x_row: u32,
    y_row: u32,
}
@group(0) @binding(0) var<storage, read> w: array<u32>;
//#if ROUNDED
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
//#else
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
//#endif
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> a: Linear;

fn tails_at() -> u32 {
    return a.tails;
}
