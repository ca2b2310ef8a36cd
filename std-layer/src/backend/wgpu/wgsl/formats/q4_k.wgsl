const LEN: u32 = 256u;
const WORDS: u32 = 36u;
const TAIL: u32 = 0u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    return fields(b + 4u + (p / 2u) * 8u, (p % 2u) * 4u, 0x0f0f0f0fu);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return half(w[b] & 0xffffu) * six_bits(b + 1u, g, 0u);
}
fn offset(b: u32, d: f32, g: u32) -> f32 {
    return -half(w[b] >> 16u) * six_bits(b + 1u, g, 1u);
}
