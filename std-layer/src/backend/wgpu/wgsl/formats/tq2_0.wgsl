const LEN: u32 = 256u;
const WORDS: u32 = 16u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 1;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    return fields(b + (p / 4u) * 8u, (p % 4u) * 2u, 0x03030303u);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d;
}
