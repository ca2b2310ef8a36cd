const LEN: u32 = 128u;
const WORDS: u32 = 33u;
const TAIL: u32 = 0u;
const GROUP: u32 = 32u;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    return fields(b + 1u + 8u * p, 0u, 0xffffffffu);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return bitcast<f32>(w[b]);
}
// FP8 E4M3 without NaN, 256 times smaller, what the factor of a block makes up for. The smallest numbers are multiples of 2^-17.
fn floats(v: u32) -> vec4<f32> {
    let all = (vec4<u32>(v) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
    let bits = all & vec4<u32>(127u);
    let normal = bitcast<vec4<f32>>((bits << vec4<u32>(20u)) + vec4<u32>(112u << 23u));
    let x = select(normal, vec4<f32>(bits) * 7.6293945e-6, bits < vec4<u32>(8u));
    return select(x, -x, all > vec4<u32>(127u));
}
