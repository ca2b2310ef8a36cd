//! AMD's processors, by their signatures.

/// Whether a signature, leaf 1's eax, is that of a Zen 4: family 19h, whose other models are Zen 3. AVX-512 does not tell them apart, as
/// virtual machines may hide it.
pub(super) const fn is_zen_4(signature: u32) -> bool {
    let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
    let model = signature >> 4 & 0xf | signature >> 12 & 0xf0;
    family == 0x19 && matches!(model, 0x10..=0x1f | 0x60..=0xaf)
}
