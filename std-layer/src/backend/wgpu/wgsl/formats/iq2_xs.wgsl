const LEN: u32 = 256u;
const WORDS: u32 = 18u;
const TAIL: u32 = 2u;
const GROUP: u32 = 16u;
const ZERO: i32 = 0;
const BOOK: u32 = 1024u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    for (var k = 0u; k < 4u; k++) {
        let q = short_at(b, 4u * p + k);
        let two = eight(q & 511u, eight_signs(q >> 9u));
        c[2u * k] = two.x;
        c[2u * k + 1u] = two.y;
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d * 0.125 * odd(nibble_at(b + 16u, g));
}
