fn pair_at(at: u32) -> vec2<f32> {
//#if F32
    return bitcast<vec2<f32>>(vec2<u32>(cache[at], cache[at + 1u]));
//#endif
//#if F16
    return unpack2x16float(cache[at]);
//#endif
//#if BF16
    return bitcast<vec2<f32>>(vec2<u32>(cache[at] << 16u, cache[at] & 0xffff0000u));
//#endif
}
