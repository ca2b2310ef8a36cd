const LEN: u32 = 256u;
const WORDS: u32 = 12u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 9;
const BOOK: u32 = 4096u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    let h = short_at(b + 8u, p);
    for (var k = 0u; k < 4u; k++) {
        let index = ((w[b + p] >> (8u * k)) & 255u) | (((h >> (3u * k)) & 7u) << 8u);
        let delta = select(0x01010101u, 0xfefefeffu, (h >> 15u) == 1u);
        c[2u * k] = w[2u * index] + delta;
        c[2u * k + 1u] = w[2u * index + 1u] + delta;
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d * 0.125 * odd((short_at(b + 8u, g) >> 12u) & 7u);
}
