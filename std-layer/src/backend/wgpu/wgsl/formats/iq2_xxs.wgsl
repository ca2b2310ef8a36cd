const LEN: u32 = 256u;
const WORDS: u32 = 16u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 512u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    for (var k = 0u; k < 4u; k++) {
        let two = eight((w[b + 2u * p] >> (8u * k)) & 255u, eight_signs(w[b + 2u * p + 1u] >> (7u * k)));
        c[2u * k] = two.x;
        c[2u * k + 1u] = two.y;
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d * 0.125 * odd(byte_at(b, 8u * g + 7u) >> 4u);
}
