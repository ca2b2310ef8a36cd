const LEN: u32 = 32u;
const WORDS: u32 = 4u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 8;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    return nibbles(b);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d;
}
