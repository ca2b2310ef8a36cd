//#if BF16
// To nearest, of two equally near ones to the even one; NaN stays NaN.
fn to_bf16(v: f32) -> u32 {
    let b = bitcast<u32>(v);
    let rounded = (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
    return select(rounded, (b >> 16u) | 64u, (b & 0x7fffffffu) > 0x7f800000u);
}
//#endif
fn put_pair(at: u32, v: vec2<f32>) {
//#if F32
    cache[at] = bitcast<u32>(v.x);
    cache[at + 1u] = bitcast<u32>(v.y);
//#endif
//#if F16
    cache[at] = pack2x16float(v);
//#endif
//#if BF16
    cache[at] = to_bf16(v.x) | (to_bf16(v.y) << 16u);
//#endif
}
