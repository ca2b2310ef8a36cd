//! AMD's processors, by their signatures.

/// The generation of Zen that has this signature, which is leaf 1's eax; 0 if it is older than the third. AVX-512 does not tell them
/// apart, as virtual machines may hide it.
pub(super) const fn zen(signature: u32) -> u32 {
    let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
    let model = signature >> 4 & 0xf | signature >> 12 & 0xf0;
    match (family, model) {
        (0x19, 0x10..=0x1f | 0x60..=0xaf) => 4,
        (0x19, _) => 3,
        (0x1a.., _) => 5,
        _ => 0,
    }
}
