// X in whole numbers of 8 bits: of every 32 columns eight words of signed bytes, then their scale, and the sums of the first 16 and the last 16
// bytes. x is byte * scale, and the byte of the largest magnitude is 127, or -127.
struct Round {
    parts: u32,
    // Vectors of four in a row of X, and the first row.
    x_stride: u32,
    x_row: u32,
}
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> rounded: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> a: Round;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= a.parts) {
        return;
    }
    let at = (a.x_row + id.y) * a.x_stride + id.x * 8u;
    // Magnitudes in the order of their bits: NaN is larger than infinity, and stays.
    var top = vec4<u32>(0u);
    for (var i = 0u; i < 8u; i++) {
        top = max(top, bitcast<vec4<u32>>(x[at + i]) & vec4<u32>(0x7fffffffu));
    }
    let most = bitcast<f32>(max(max(top.x, top.y), max(top.z, top.w)));
    // What is so small that its reciprocal overflows is 0.
    let by = select(127.0 / most, 0.0, most < 1e-36);
    let to = (id.y * a.parts + id.x) * 3u;
    var sums = vec2<i32>(0);
    for (var half = 0u; half < 2u; half++) {
        var four: array<u32, 4>;
        for (var i = 0u; i < 4u; i++) {
            let bytes = vec4<i32>(round(x[at + 4u * half + i] * by));
            four[i] = pack4xI8(bytes);
            sums[half] += bytes.x + bytes.y + bytes.z + bytes.w;
        }
        rounded[to + half] = vec4<u32>(four[0], four[1], four[2], four[3]);
    }
    let scale = vec3<f32>(most / 127.0, f32(sums.x), f32(sums.y));
    rounded[to + 2u] = vec4<u32>(bitcast<vec3<u32>>(scale), 0u);
}
