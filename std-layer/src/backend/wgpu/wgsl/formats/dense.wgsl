// A part of a row: 32 numbers.
struct Part {
    codes: array<vec4<f32>, 8>,
    scale: vec2<f32>,
    offset: vec2<f32>,
}

fn part_of(row: u32, parts: u32, part: u32) -> Part {
    let b = (row * parts + part) * WORDS;
    var all: Part;
    for (var i = 0u; i < 8u; i++) {
        all.codes[i] = four(b, i);
    }
    all.scale = vec2<f32>(1.0);
    all.offset = vec2<f32>(0.0);
    return all;
}
fn four_of(p: Part, i: u32) -> vec4<f32> {
    return p.codes[i];
}
