const LEN: u32 = 256u;
const WORDS: u32 = 21u;
const TAIL: u32 = 0u;
const GROUP: u32 = 16u;
const ZERO: i32 = 0;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    return fields(b + 4u + (p / 4u) * 8u, (p % 4u) * 2u, 0x03030303u);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return half(w[b + 20u] & 0xffffu) * f32(byte_at(b, g) & 15u);
}
fn offset(b: u32, d: f32, g: u32) -> f32 {
    return -half(w[b + 20u] >> 16u) * f32(byte_at(b, g) >> 4u);
}
