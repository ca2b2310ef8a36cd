const LEN: u32 = 64u;
const WORDS: u32 = 9u;
const TAIL: u32 = 0u;
const GROUP: u32 = 16u;
const ZERO: i32 = 0;
const BOOK: u32 = 4u;
fn codes(b: u32, p: u32) -> Codes {
    let c = looked_up(nibbles(b + 1u + 4u * p));
    // A group of 16 has its low halves, then its high ones, in 8 bytes.
    return Codes(c[0], c[1], c[4], c[5], c[2], c[3], c[6], c[7]);
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    let u = byte_at(b, g);
    let e = (u >> 3u) & 15u;
    let m = u & 7u;
    let normal = bitcast<f32>(((e + 119u) << 23u) | (m << 20u));
    return select(select(normal, f32(m) / 1024.0, e == 0u), 0.0, u == 0x7fu);
}
