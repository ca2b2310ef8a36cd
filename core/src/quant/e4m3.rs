//! E4M3: numbers of 8 bits with a factor for each 128, in which weights of checkpoints in FP8 are kept.
//!
//! There a tile of 128 x 128 weights, a row or a whole matrix has a scale, so that 128 consecutive weights share it. Weights
//! are multiplied as the floating-point numbers that they are: as integers they would have 18 bits.

use crate::quant::QuantFormat;

blocks! {
    /// [`E4m3`](crate::QuantFormat::E4m3): `w_i = d * f(q_i)`, rounded to f32 once. The number `f(q)` is that of the f16 with the bits
    /// `(q & 0x80) << 8 | (q & 0x7f) << 7`: a number of 8 bits as OFP8's E4M3 has them, times 2^-8. There is no NaN among
    /// them: 0x7f is 1.875. So `d` is 256 times what checkpoints call scale.
    BlockE4m3: 132 bytes {
        /// Factor: a little-endian f32.
        d: [u8; 4],
        /// Numbers.
        q: [u8; 128],
    }
}

const _: () = {
    let format = QuantFormat::E4m3;
    assert!(format.block_bytes() == size_of::<BlockE4m3>() && format.block_len() == BlockE4m3::LEN);
};

impl BlockE4m3 {
    /// Weights of a block.
    pub(crate) const LEN: usize = 128;
    /// Bytes before the numbers.
    pub(crate) const BEFORE: usize = size_of::<[u8; 4]>();

    /// The factor of the block at `w`.
    ///
    /// # Safety
    /// It is there, at any address.
    #[inline(always)]
    pub(crate) unsafe fn factor(w: *const u8) -> f32 {
        // SAFETY: the caller's contract.
        f32::from_le_bytes(unsafe { w.cast::<[u8; Self::BEFORE]>().read() })
    }

    /// Where the numbers of the block at `w` are.
    #[inline(always)]
    pub(crate) fn numbers(w: *const u8) -> *const u8 {
        w.wrapping_add(Self::BEFORE)
    }
}
