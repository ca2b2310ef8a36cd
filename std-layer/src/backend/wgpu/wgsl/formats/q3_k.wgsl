const LEN: u32 = 256u;
const WORDS: u32 = 27u;
const TAIL: u32 = 2u;
const GROUP: u32 = 16u;
const ZERO: i32 = 4;
const BOOK: u32 = 0u;
fn nibble_of(b: u32, g: u32) -> u32 {
    return (byte_at(b, g % 8u) >> ((g / 8u) * 4u)) & 15u;
}
fn codes(b: u32, p: u32) -> Codes {
    let low = fields(b + 8u + (p / 4u) * 8u, (p % 4u) * 2u, 0x03030303u);
    return more(low, b, p, 0x01010101u, 2u);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    let low = nibble_of(b + 24u, g);
    let high = (byte_at(b + 26u, g % 4u) >> ((g / 4u) * 2u)) & 3u;
    return d * f32(i32(low | (high << 4u)) - 32);
}
