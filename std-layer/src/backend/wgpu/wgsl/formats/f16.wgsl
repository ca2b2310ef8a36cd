const WORDS: u32 = 16u;
fn four(b: u32, i: u32) -> vec4<f32> {
    let low = w[b + 2u * i];
    let high = w[b + 2u * i + 1u];
    return vec4<f32>(half(low & 0xffffu), half(low >> 16u), half(high & 0xffffu), half(high >> 16u));
}
