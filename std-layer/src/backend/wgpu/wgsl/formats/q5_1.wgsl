const LEN: u32 = 32u;
const WORDS: u32 = 6u;
const TAIL: u32 = 0u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    return fifth(nibbles(b + 2u), w[b + 1u]);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return half(w[b] & 0xffffu);
}
fn offset(b: u32, d: f32, g: u32) -> f32 {
    return half(w[b] >> 16u);
}
