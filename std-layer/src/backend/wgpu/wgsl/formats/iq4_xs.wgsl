const LEN: u32 = 256u;
const WORDS: u32 = 34u;
const TAIL: u32 = 0u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 4u;
fn codes(b: u32, p: u32) -> Codes {
    return looked_up(nibbles(b + 2u + 4u * p));
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    let high = (w[b] >> (16u + 2u * g)) & 3u;
    return half(w[b] & 0xffffu) * f32(i32(nibble_at(b + 1u, g) | (high << 4u)) - 32);
}
