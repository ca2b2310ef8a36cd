const LEN: u32 = 32u;
const WORDS: u32 = 9u;
const TAIL: u32 = 0u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 0u;
fn codes(b: u32, p: u32) -> Codes {
    return fields(b + 1u, 0u, 0xffffffffu);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return half(w[b] & 0xffffu);
}
