//! The K family: blocks of 256 weights, in groups with small integer scales of their own.

use super::{Half, Single, I16};

blocks! {
    /// Q2_K: 256 weights in groups of 16, 2.625 bits each. `w = d * scale * q - dmin * min`.
    ///
    /// `scale` and `min` are those of group `i / 16`, `q` is in 0 to 3.
    BlockQ2K: 84 bytes {
        /// Group `g`: `scale` in the low half of byte `g`, `min` in its high half.
        scales: [u8; 16],
        /// `q`: element `i` in bits `2 * (i / 32 % 4)` and the next of byte `i / 128 * 32 + i % 32`: 32
        /// bytes hold 128 elements, the first 32 in their lowest two bits, and so on.
        qs: [u8; 64],
        /// Scale of the scales.
        d: Half,
        /// Scale of the minima.
        dmin: Half,
    }
    /// Q3_K: 256 weights in groups of 16, 3.4375 bits each. `w = d * (scale - 32) * (q - 4)`, `q = low
    /// + 4 * high`.
    ///
    /// `scale` is that of group `i / 16`, in 0 to 63.
    BlockQ3K: 110 bytes {
        /// `high`: element `i` in bit `i / 32` of byte `i % 32`.
        hmask: [u8; 32],
        /// `low`: as `q` in [`BlockQ2K`].
        qs: [u8; 64],
        /// Group `g`: the low 4 bits of `scale` in byte `g % 8`, in its low half if `g < 8`, else in
        /// its high half; the upper 2 bits in byte `8 + g % 4` from bit `2 * (g / 4)`.
        scales: [u8; 12],
        /// Scale of the scales.
        d: Half,
    }
    /// Q4_K: 256 weights in groups of 32, 4.5 bits each. `w = d * scale * q - dmin * min`.
    ///
    /// `scale` and `min` are those of group `i / 32`, `q` is in 0 to 15.
    BlockQ4K: 144 bytes {
        /// Scale of the scales.
        d: Half,
        /// Scale of the minima.
        dmin: Half,
        /// 6 bits each. Group `g < 4`: `scale` in the low 6 bits of byte `g`, `min` in those of byte `g
        /// + 4`. Group `g >= 4`: the low 4 bits of `scale` in the low half of byte `g + 4`, those of
        /// `min` in its high half; the upper 2 bits of `scale` on top of byte `g - 4`, those of `min`
        /// on top of byte `g`.
        scales: [u8; 12],
        /// `q`: element `i` in byte `i / 64 * 32 + i % 32`, in its low half if `i / 32` is even, else
        /// in its high half.
        qs: [u8; 128],
    }
    /// Q5_K: 256 weights in groups of 32, 5.5 bits each. `w = d * scale * q - dmin * min`, `q = low +
    /// 16 * high`.
    ///
    /// `scale` and `min` are those of group `i / 32`.
    BlockQ5K: 176 bytes {
        /// Scale of the scales.
        d: Half,
        /// Scale of the minima.
        dmin: Half,
        /// Scales and minima: as in [`BlockQ4K`].
        scales: [u8; 12],
        /// `high`: element `i` in bit `i / 32` of byte `i % 32`.
        qh: [u8; 32],
        /// `low`: as `q` in [`BlockQ4K`].
        qs: [u8; 128],
    }
    /// Q6_K: 256 weights in groups of 16, 6.5625 bits each. `w = d * scale * (q - 32)`, `q = low + 16 *
    /// high`.
    ///
    /// `scale` is that of group `i / 16`.
    BlockQ6K: 210 bytes {
        /// `low`: element `i` in byte `i / 128 * 64 + i % 64`, in its low half if `i / 64` is even,
        /// else in its high half.
        ql: [u8; 128],
        /// `high`: element `i` in bits `2 * (i / 32 % 4)` and the next of byte `i / 128 * 32 + i % 32`.
        qh: [u8; 64],
        /// `scale` of group `g`: byte `g`, two's complement.
        scales: [u8; 16],
        /// Scale of the scales.
        d: Half,
    }
    /// Q8_K: 256 weights, 9.125 bits each. `w = d * q`, rounded once.
    ///
    /// A format of activations, to be multiplied with weights in groups of 16 or 32.
    BlockQ8K: 292 bytes {
        /// Scale.
        d: Single,
        /// `q`: two's complement integers, in order.
        qs: [u8; 256],
        /// Sums of 16 `q` each, for minima.
        bsums: [I16; 16],
    }
}
