const LEN: u32 = 256u;
const WORDS: u32 = 20u;
const TAIL: u32 = 2u;
const GROUP: u32 = 16u;
const ZERO: i32 = 0;
const BOOK: u32 = 2048u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    let high = byte_at(b + 16u, p);
    for (var k = 0u; k < 4u; k++) {
        let index = ((w[b + p] >> (8u * k)) & 255u) | (((high >> (2u * k)) & 3u) << 8u);
        let two = eight(index, w[b + 8u + p] >> (8u * k));
        c[2u * k] = two.x;
        c[2u * k + 1u] = two.y;
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d * 0.125 * odd(nibble_at(b + 18u, g));
}
