const LEN: u32 = 64u;
const WORDS: u32 = 4u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 1;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    for (var i = 0u; i < 8u; i++) {
        let pairs = (w[b + 2u * p + i / 4u] >> ((i % 4u) * 8u)) & 255u;
        let apart = pairs | (pairs << 6u);
        c[i] = (apart | (apart << 12u)) & 0x03030303u;
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d;
}
