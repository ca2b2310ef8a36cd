// What formats have in common. The weights of a matrix, `w`, are words. First comes the codebook of formats that have one, BOOK words; then
// the words of all blocks, row by row: a block without its scale, if that would leave blocks at odd places. Such scales follow from word
// `tails_at()` on, two or four to a word.
//
// A format has: LEN weights in WORDS words, TAIL bytes of scale behind all blocks; codes(b, p) of part p, 32 weights in eight words of signed
// bytes; scale(b, d, g) and, if it has offsets, offset(b, d, g) of group g of GROUP weights. `b` is the block's first word and `d` its scale from the end.
// A weight is (code - ZERO) * scale + offset. Formats of floating point have floats(v), four numbers, instead of ZERO.
alias Codes = array<u32, 8>;

// IEEE binary16 in the lower half of a word. Devices may take subnormal numbers for zero in conversions of their own, but scales are often
// subnormal.
fn half(h: u32) -> f32 {
    let mantissa = h & 0x3ffu;
    let exponent = (h >> 10u) & 31u;
    // Infinity and NaN have the largest exponent of both.
    let wide = exponent + select(112u, 224u, exponent == 31u);
    let normal = bitcast<f32>((wide << 23u) | (mantissa << 13u));
    let x = select(normal, f32(mantissa) * 5.9604645e-8, exponent == 0u);
    return select(x, -x, (h & 0x8000u) != 0u);
}
// Byte `i` of the words from `b` on.
fn byte_at(b: u32, i: u32) -> u32 {
    return (w[b + i / 4u] >> ((i % 4u) * 8u)) & 255u;
}
fn nibble_at(b: u32, i: u32) -> u32 {
    return (w[b + i / 8u] >> ((i % 8u) * 4u)) & 15u;
}
// 16 bits.
fn short_at(b: u32, i: u32) -> u32 {
    return (w[b + i / 2u] >> ((i % 2u) * 16u)) & 0xffffu;
}
fn signed_byte(v: u32) -> i32 {
    return bitcast<i32>(v << 24u) >> 24u;
}
// Four bits to the lowest of four bytes.
fn bits4(n: u32) -> u32 {
    return ((n & 15u) * 0x204081u) & 0x01010101u;
}
// 32 codes of 4 bits in 4 words: the low halves of bytes, then the high ones.
fn nibbles(b: u32) -> Codes {
    var c: Codes;
    for (var i = 0u; i < 4u; i++) {
        c[i] = w[b + i] & 0x0f0f0f0fu;
        c[i + 4u] = (w[b + i] >> 4u) & 0x0f0f0f0fu;
    }
    return c;
}
// Some bits of each of 32 bytes.
fn fields(b: u32, shift: u32, mask: u32) -> Codes {
    var c: Codes;
    for (var i = 0u; i < 8u; i++) {
        c[i] = (w[b + i] >> shift) & mask;
    }
    return c;
}
// Some bits of each of 32 bytes, above those that are there.
fn more(c: Codes, b: u32, right: u32, mask: u32, left: u32) -> Codes {
    var all = c;
    for (var i = 0u; i < 8u; i++) {
        all[i] |= ((w[b + i] >> right) & mask) << left;
    }
    return all;
}
// The fifth bits of 32 codes.
fn fifth(c: Codes, h: u32) -> Codes {
    var all = c;
    for (var i = 0u; i < 8u; i++) {
        all[i] |= bits4(h >> (4u * i)) << 4u;
    }
    return all;
}
// Scales and minima of 6 bits, in 12 bytes.
fn six_bits(b: u32, g: u32, min: u32) -> f32 {
    let k = g % 4u;
    let top = byte_at(b, k + 4u * min);
    let low = (byte_at(b, 8u + k) >> (4u * min)) & 15u;
    return f32(select(low | ((top >> 6u) << 4u), top & 63u, g < 4u));
}
// Negative where the lowest bit of a byte of `bits` is set; no byte of `v` is 0.
fn negate4(v: u32, bits: u32) -> u32 {
    return (v ^ (bits * 255u)) + bits;
}
// The eighth sign of the seven in `pattern` makes their number even.
fn eight_signs(pattern: u32) -> u32 {
    let seven = pattern & 127u;
    return seven | ((countOneBits(seven) & 1u) << 7u);
}
// Eight numbers of the codebook, with signs.
fn eight(index: u32, signs: u32) -> vec2<u32> {
    return vec2<u32>(negate4(w[2u * index], bits4(signs)), negate4(w[2u * index + 1u], bits4(signs >> 4u)));
}
fn odd(scale: u32) -> f32 {
    return f32(2u * scale + 1u);
}
// What codes of 4 bits stand for in a codebook of 16 bytes.
fn looked_up(c: Codes) -> Codes {
    var all: Codes;
    for (var i = 0u; i < 8u; i++) {
        for (var k = 0u; k < 4u; k++) {
            let n = (c[i] >> (8u * k)) & 15u;
            all[i] |= ((w[n / 4u] >> ((n % 4u) * 8u)) & 255u) << (8u * k);
        }
    }
    return all;
}
