const LEN: u32 = 32u;
const WORDS: u32 = 4u;
const TAIL: u32 = 1u;
const GROUP: u32 = 32u;
const ZERO: i32 = 0;
const BOOK: u32 = 4u;
fn codes(b: u32, p: u32) -> Codes {
    return looked_up(nibbles(b));
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    // 2^(e - 128): the codes are doubled.
    let e = u32(d);
    return bitcast<f32>(select((e - 1u) << 23u, 1u << (21u + e), e < 2u));
}
