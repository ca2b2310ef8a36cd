const LEN: u32 = 256u;
const WORDS: u32 = 27u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 512u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    let high = byte_at(b + 16u, p);
    for (var k = 0u; k < 8u; k++) {
        let index = byte_at(b, 8u * p + k) | (((high >> k) & 1u) << 8u);
        c[k] = negate4(w[index], bits4(w[b + 18u + p] >> (4u * k)));
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d * odd(nibble_at(b + 26u, g));
}
