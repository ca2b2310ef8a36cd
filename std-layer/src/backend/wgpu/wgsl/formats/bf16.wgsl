const WORDS: u32 = 16u;
fn four(b: u32, i: u32) -> vec4<f32> {
    let low = w[b + 2u * i];
    let high = w[b + 2u * i + 1u];
    return bitcast<vec4<f32>>(vec4<u32>(low << 16u, low & 0xffff0000u, high << 16u, high & 0xffff0000u));
}
