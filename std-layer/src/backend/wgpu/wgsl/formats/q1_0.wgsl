const LEN: u32 = 128u;
const WORDS: u32 = 4u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 1;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    for (var i = 0u; i < 8u; i++) {
        c[i] = bits4(w[b + p] >> (4u * i)) << 1u;
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d;
}
