const LEN: u32 = 256u;
const WORDS: u32 = 14u;
const TAIL: u32 = 0u;
const GROUP: u32 = 16u;
const ZERO: i32 = 9;
const BOOK: u32 = 4096u;
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    let h = short_at(b + 8u, p);
    for (var k = 0u; k < 4u; k++) {
        let index = ((w[b + p] >> (8u * k)) & 255u) | (((h >> (4u * k)) & 7u) << 8u);
        let delta = select(0x01010101u, 0xfefefeffu, ((h >> (4u * k)) & 8u) == 8u);
        c[2u * k] = w[2u * index] + delta;
        c[2u * k + 1u] = w[2u * index + 1u] + delta;
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    // Four bits of the common scale are above each of the four words of scales.
    let low = w[b + 12u];
    let high = w[b + 13u];
    let both = ((low >> 12u) & 15u) | ((low >> 24u) & 0xf0u) | ((high >> 4u) & 0xf00u) | ((high >> 16u) & 0xf000u);
    return half(both) * 0.125 * odd((short_at(b + 12u, g / 4u) >> ((g % 4u) * 3u)) & 7u);
}
