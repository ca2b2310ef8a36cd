const LEN: u32 = 256u;
const WORDS: u32 = 13u;
const TAIL: u32 = 2u;
const GROUP: u32 = 32u;
const ZERO: i32 = 1;
const BOOK: u32 = 0u;
// The digit behind the point of four bytes after so many multiplications by 3.
fn digit(v: u32, e: u32) -> u32 {
    let power = select((0x1b090301u >> (8u * e)) & 255u, 81u, e == 4u);
    let even = ((v & 0x00ff00ffu) * power) & 0x00ff00ffu;
    let odd = (((v >> 8u) & 0x00ff00ffu) * power) & 0x00ff00ffu;
    return (((even * 3u) >> 8u) & 0x00ff00ffu) | ((odd * 3u) & 0xff00ff00u);
}
fn codes(b: u32, p: u32) -> Codes {
    var c: Codes;
    for (var i = 0u; i < 8u; i++) {
        if (p < 5u) {
            c[i] = digit(w[b + i], p);
        } else if (i < 4u) {
            c[i] = digit(w[b + 8u + i], select(2u * p - 10u, 4u, p == 7u));
        } else if (p == 7u) {
            c[i] = digit(w[b + 12u], i - 4u);
        } else {
            c[i] = digit(w[b + 4u + i], 2u * p - 9u);
        }
    }
    return c;
}
fn scale(b: u32, d: f32, g: u32) -> f32 {
    return d;
}
