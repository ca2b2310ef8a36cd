const LEN: u32 = 256u;
const WORDS: u32 = 24u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 256u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    for (var k = 0u; k < 8u; k++) {
        let signs = eight_signs(w[b + 16u + p] >> ((k / 2u) * 7u)) >> ((k % 2u) * 4u);
        c[k] = negate4(w[byte_at(b, 8u * p + k)], bits4(signs));
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d * 0.25 * odd(byte_at(b + 16u, 4u * g + 3u) >> 4u);
}
