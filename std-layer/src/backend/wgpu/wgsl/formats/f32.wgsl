const WORDS: u32 = 32u;
fn four(b: u32, i: u32) -> vec4<f32> {
    let at = b + 4u * i;
    return bitcast<vec4<f32>>(vec4<u32>(w[at], w[at + 1u], w[at + 2u], w[at + 3u]));
}
