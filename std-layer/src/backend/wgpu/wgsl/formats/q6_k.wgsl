const LEN: u32 = 256u;
const WORDS: u32 = 52u;
const TAIL: u32 = 2u;
const GROUP: u32 = 16u;
const ZERO: i32 = 32;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    let low = fields(b + (p / 4u) * 16u + (p % 2u) * 8u, ((p / 2u) % 2u) * 4u, 0x0f0f0f0fu);
    return more(low, b + 32u + (p / 4u) * 8u, (p % 4u) * 2u, 0x03030303u, 4u);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d * f32(signed_byte(byte_at(b + 48u, g)));
}
