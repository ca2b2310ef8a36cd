//! Blocks of weights that are -1, 0 or 1 times a scale.

use super::Half;

blocks! {
    /// TQ1_0: 256 weights, 1.6875 bits each. `w = d * (q - 1)`, `q` in 0 to 2.
    ///
    /// A byte holds several `q`, as the digits of a number in base 3: byte `b` is the fraction `b /
    /// 256`, and its digit `e` is what passes the point when the fraction is multiplied by 3 for the `e
    /// + 1`-th time: `q = ((b * 3^e) % 256) * 3 / 256`.
    BlockTq1_0: 54 bytes {
        /// Five digits each. Element `i < 160`: digit `i / 32` of byte `i % 32`. Element `160 <= i <
        /// 240`: digit `(i - 160) / 16` of byte `32 + i % 16`.
        qs: [u8; 48],
        /// Four digits each. Element `i >= 240`: digit `(i - 240) / 4` of byte `i % 4`.
        qh: [u8; 4],
        /// Scale.
        d: Half,
    }
    /// TQ2_0: 256 weights, 2.0625 bits each. `w = d * (q - 1)`, `q` in 0 to 2 (and 3, which no encoder
    /// writes).
    BlockTq2_0: 66 bytes {
        /// `q`: as in [`BlockQ2K`](super::BlockQ2K).
        qs: [u8; 64],
        /// Scale.
        d: Half,
    }
}
