// Numbers in the order of floats, NaN lowest.
fn rank(v: f32) -> u32 {
    let b = bitcast<u32>(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) {
        return 0u;
    }
    return select(b | 0x80000000u, ~b, (b >> 31u) == 1u);
}
