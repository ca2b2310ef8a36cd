//! Blocks of 4-bit floating-point numbers (E2M1) with a scale of 8 bits.

blocks! {
    /// MXFP4: 32 weights, 4.25 bits each. `w = s * v`, `s =`
    /// [`e8m0_half`](crate::codebooks::e8m0_half)`(e)`, `v` entry `q` of
    /// [`FP4_VALUES`](crate::codebooks::FP4_VALUES).
    ///
    /// The OCP Microscaling format: `s` is half of its scale, `v` twice its number. Its NaN scale (`e =
    /// 255`) is an ordinary power of two here, so weights may overflow to infinity, but are never NaN.
    BlockMxfp4: 17 bytes {
        /// Scale.
        e: u8,
        /// `q`: as in [`BlockQ4_0`](super::BlockQ4_0).
        qs: [u8; 16],
    }
    /// NVFP4: 64 weights in groups of 16, 4.5 bits each. `w = s * v`, `s =`
    /// [`ue4m3_half`](crate::codebooks::ue4m3_half)`(d)`, `v` entry `q` of
    /// [`FP4_VALUES`](crate::codebooks::FP4_VALUES).
    ///
    /// NVIDIA's format, four groups a block: `s` is half of its scale, `v` twice its number. Its scale
    /// for the whole tensor is not part of the block.
    BlockNvfp4: 36 bytes {
        /// `d` of group `g = i / 16`: byte `g`.
        d: [u8; 4],
        /// `q`: element `i` in byte `i / 16 * 8 + i % 8`, in its low half if `i / 8` is even, else in
        /// its high half.
        qs: [u8; 32],
    }
}
