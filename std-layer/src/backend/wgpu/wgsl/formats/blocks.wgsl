// A part of a row: 32 weights `(code * scale + offset)`, the first 16 and the last 16 with a scale of their own.
struct Part {
    codes: Codes,
    scale: vec2<f32>,
    offset: vec2<f32>,
}

// Parts of a block.
const PER: u32 = LEN / 32u;

fn tail(block: u32) -> f32 {
    if (TAIL == 2u) {
        return half((w[tails_at() + block / 2u] >> ((block % 2u) * 16u)) & 0xffffu);
    }
    if (TAIL == 1u) {
        return f32((w[tails_at() + block / 4u] >> ((block % 4u) * 8u)) & 255u);
    }
    return 0.0;
}

// Part `part` of a row of `parts` parts.
fn part_of(row: u32, parts: u32, part: u32) -> Part {
    let block = row * (parts / PER) + part / PER;
    let p = part % PER;
    let b = BOOK + block * WORDS;
    let d = tail(block);
    var all: Part;
    all.codes = codes(b, p);
    let g = p * (32u / GROUP);
    let last = g + 32u / GROUP - 1u;
    all.scale = vec2<f32>(scale(b, d, g));
//#if OFFSETS
    all.offset = vec2<f32>(offset(b, d, g));
//#endif
    if (GROUP == 16u) {
        all.scale.y = scale(b, d, last);
//#if OFFSETS
        all.offset.y = offset(b, d, last);
//#endif
    }
    return all;
}
// Four weights of a part, without their scale.
fn four_of(p: Part, i: u32) -> vec4<f32> {
//#if CODES
    return vec4<f32>(unpack4xI8(p.codes[i])) - f32(ZERO);
//#else
    return floats(p.codes[i]);
//#endif
}
