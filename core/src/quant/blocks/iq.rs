//! The IQ family: blocks whose weights are entries of a codebook. [`codebooks`](crate::codebooks) has
//! the tables that are named here.

use super::{Half, U16, U32};
use crate::element::f16;

blocks! {
    /// IQ1_S: 256 weights in groups of 32, 1.5625 bits each. `w = d * (2 * scale + 1) * (v + delta)`.
    ///
    /// Eights of weights: `v` is number `i % 8` of entry `index` of
    /// [`IQ1_GRID`](crate::codebooks::IQ1_GRID) (-1, 0 or 1), `index` of eight `i / 8`; `scale` (0 to
    /// 7) and `delta` (1/8 or -1/8) are those of group `i / 32`.
    BlockIq1S: 50 bytes {
        /// Scale of the scales.
        d: Half,
        /// Low 8 bits of the `index` of eight `k`: byte `k`.
        qs: [u8; 32],
        /// Word `g` for group `g`: from bit `3 * (k % 4)` the upper 3 bits of the `index` of eight `k`;
        /// from bit 12 the 3 bits of `scale`; bit 15 is set where `delta` is negative.
        qh: [U16; 8],
    }
    /// IQ1_M: 256 weights in groups of 16, 1.75 bits each. `w = d * (2 * scale + 1) * (v + delta)`.
    ///
    /// As [`BlockIq1S`], but `scale` belongs to group `i / 16`, `delta` to eight `i / 8`, and
    /// [`d`](Self::d) lies in four pieces.
    BlockIq1M: 56 bytes {
        /// Low 8 bits of the `index` of eight `k`: byte `k`.
        qs: [u8; 32],
        /// Eight `k` in the low half of byte `k / 2` if `k` is even, else in the high half: 3 bits the
        /// upper bits of `index`, the bit above set where `delta` is negative.
        qh: [u8; 16],
        /// `scale` of group `g`: 3 bits of word `g / 4` from bit `3 * (g % 4)`. The upper 4 bits of
        /// word `n` are bits `4 * n` to `4 * n + 3` of the f16 `d`.
        scales: [U16; 4],
    }
    /// IQ2_XXS: 256 weights in groups of 32, 2.0625 bits each. `w = d * (0.5 + scale) * 0.25 * (±v)`.
    ///
    /// Eights of weights: `v` is number `i % 8` of entry `index` of
    /// [`IQ2_XXS_GRID`](crate::codebooks::IQ2_XXS_GRID), negative where bit `i % 8` of
    /// [`signs`](crate::codebooks::signs)`(pattern)` is set; `index` and `pattern` are those of eight
    /// `i / 8`, `scale` (0 to 15) that of group `i / 32`.
    BlockIq2Xxs: 66 bytes {
        /// Scale of the scales.
        d: Half,
        /// Two words for group `g`. Word `2 * g`: its byte `k` is the `index` of the group's eight `k`.
        /// Word `2 * g + 1`: 7 bits from bit `7 * k` are its `pattern`; the upper 4 bits are `scale`.
        qs: [U32; 16],
    }
    /// IQ2_XS: 256 weights in groups of 16, 2.3125 bits each. `w = d * (0.5 + scale) * 0.25 * (±v)`.
    ///
    /// As [`BlockIq2Xxs`], with [`IQ2_XS_GRID`](crate::codebooks::IQ2_XS_GRID) and the `scale` of group
    /// `i / 16`.
    BlockIq2Xs: 74 bytes {
        /// Scale of the scales.
        d: Half,
        /// Eight `k`: `index` in the low 9 bits of word `k`, `pattern` in the upper 7.
        qs: [U16; 32],
        /// `scale` of group `g`: in the low half of byte `g / 2` if `g` is even, else in its high half.
        scales: [u8; 8],
    }
    /// IQ2_S: 256 weights in groups of 16, 2.5625 bits each. `w = d * (0.5 + scale) * 0.25 * (±v)`.
    ///
    /// As [`BlockIq2Xs`], with [`IQ2_S_GRID`](crate::codebooks::IQ2_S_GRID) and a sign bit for each
    /// weight.
    BlockIq2S: 82 bytes {
        /// Scale of the scales.
        d: Half,
        /// Low 8 bits of the `index` of eight `k`: byte `k`.
        qs: [u8; 32],
        /// Bit `i % 8` of byte `i / 8` is set where the weight is negative.
        signs: [u8; 32],
        /// Upper 2 bits of the `index` of eight `k`: byte `k / 4` from bit `2 * (k % 4)`.
        qh: [u8; 8],
        /// `scale` of group `g`: as in [`BlockIq2Xs`].
        scales: [u8; 8],
    }
    /// IQ3_XXS: 256 weights in groups of 32, 3.0625 bits each. `w = d * (0.5 + scale) * 0.5 * (±v)`.
    ///
    /// `v` is number `i % 4` of entry `index` of [`IQ3_XXS_GRID`](crate::codebooks::IQ3_XXS_GRID),
    /// `index` that of four `i / 4`. Signs are as in [`BlockIq2Xxs`]: one `pattern` for each eight.
    BlockIq3Xxs: 98 bytes {
        /// Scale of the scales.
        d: Half,
        /// `index` of four `k`: byte `k`.
        qs: [u8; 64],
        /// Word `g` for group `g`: 7 bits from bit `7 * k` are the `pattern` of its eight `k`; the
        /// upper 4 bits are `scale`.
        signs: [U32; 8],
    }
    /// IQ3_S: 256 weights in groups of 32, 3.4375 bits each. `w = d * (1 + 2 * scale) * (±v)`.
    ///
    /// As [`BlockIq3Xxs`], with [`IQ3_S_GRID`](crate::codebooks::IQ3_S_GRID) and a sign bit for each
    /// weight.
    BlockIq3S: 110 bytes {
        /// Scale of the scales.
        d: Half,
        /// Low 8 bits of the `index` of four `k`: byte `k`.
        qs: [u8; 64],
        /// Bit 8 of the `index` of four `k`: bit `k % 8` of byte `k / 8`.
        qh: [u8; 8],
        /// Bit `i % 8` of byte `i / 8` is set where the weight is negative.
        signs: [u8; 32],
        /// `scale` of group `g`: in the low half of byte `g / 2` if `g` is even, else in its high half.
        scales: [u8; 4],
    }
    /// IQ4_NL: 32 weights, 4.5 bits each. `w = d * v`, `v` entry `q` of
    /// [`IQ4_VALUES`](crate::codebooks::IQ4_VALUES).
    BlockIq4Nl: 18 bytes {
        /// Scale.
        d: Half,
        /// `q`: as in [`BlockQ4_0`](super::BlockQ4_0).
        qs: [u8; 16],
    }
    /// IQ4_XS: 256 weights in groups of 32, 4.25 bits each. `w = d * (scale - 32) * v`, `v` entry `q`
    /// of [`IQ4_VALUES`](crate::codebooks::IQ4_VALUES).
    ///
    /// `scale` is that of group `i / 32`, in 0 to 63.
    BlockIq4Xs: 136 bytes {
        /// Scale of the scales.
        d: Half,
        /// Upper 2 bits of the `scale` of group `g`: from bit `2 * g`.
        scales_h: U16,
        /// Low 4 bits of the `scale` of group `g`: in the low half of byte `g / 2` if `g` is even, else
        /// in its high half.
        scales_l: [u8; 4],
        /// `q`: element `i` in byte `i / 32 * 16 + i % 16`, in its low half if `i / 16` is even, else
        /// in its high half.
        qs: [u8; 128],
    }
}

impl BlockIq1M {
    /// Scale of the scales, from its four pieces.
    #[inline(always)]
    pub const fn d(&self) -> f16 {
        let [a, b, c, d] = self.scales;
        f16::from_bits(a.get() >> 12 | b.get() >> 12 << 4 | c.get() >> 12 << 8 | d.get() >> 12 << 12)
    }
}
