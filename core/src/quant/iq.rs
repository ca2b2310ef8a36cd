//! The IQ family: weights are entries of a codebook.

use crate::arrays::{from_fn, Each};
use crate::element::f16;
use crate::quant::blocks::{Half, U16, U32};
use crate::quant::codebooks::{
    signs, IQ1_EIGHTS, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID, IQ4_VALUES,
};
use crate::quant::encode::grid::Iq4;
use crate::quant::k::first;

/// The values that entries consist of, signed. The indices of packed weights refer to these lists.
// Of IQ1_M the third bit of an index tells that `delta`, which eight weights share, is positive; on x86-64 a code is 8
// times the other two bits, plus twice that bit, less 9.
const IQ1_CODES: [i8; 16] = [-9, -1, 7, 0, -7, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const IQ2_CODES: [i8; 16] = [8, 25, 43, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const IQ3_XXS_CODES: [i8; 16] = [4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62];
const IQ3_S_CODES: [i8; 16] = [1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15];

/// Byte `i % 8` of an entry.
fn of_eight(entry: u64, i: usize) -> i8 {
    (entry >> (i % 8 * 8)) as i8
}

/// Byte `i % 4` of an entry.
fn of_four(entry: u32, i: usize) -> i8 {
    (entry >> (i % 4 * 8)) as i8
}

/// `v`, negative if bit `i % 8` is set.
fn signed(v: i8, signs: u8, i: usize) -> i8 {
    if signs >> (i % 8) & 1 == 1 {
        -v
    } else {
        v
    }
}

/// Number `k` of 4 bits.
fn nibble<const N: usize>(halves: &[u8; N], k: usize) -> u8 {
    halves[k / 2 % N] >> (k % 2 * 4) & 15
}

/// All numbers of 4 bits.
fn nibbles<const N: usize, const M: usize>(halves: &[u8; N]) -> [u8; M] {
    const { assert!(M == 2 * N) };
    from_fn(|k| nibble(halves, k))
}

/// [`signs`] of four patterns of 7 bits.
#[inline(always)]
fn four_signs(patterns: u32) -> u32 {
    let p = patterns;
    let seven = p & 0x7f | (p & 0x3f80) << 1 | (p & 0x1f_c000) << 2 | (p & 0xfe0_0000) << 3;
    // The parity of each byte, in its lowest bit.
    let parity = seven ^ seven >> 4;
    let parity = parity ^ parity >> 2;
    let parity = parity ^ parity >> 1;
    seven | (parity & 0x0101_0101) << 7
}

/// The words of `M` numbers each.
#[inline(always)]
fn words<const N: usize, const M: usize>(bytes: &[u8; N]) -> [u32; M] {
    const { assert!(N == 4 * M) };
    from_fn(|k| {
        let at = |j: usize| bytes[(4 * k + j) % N];
        u32::from_le_bytes([at(0), at(1), at(2), at(3)])
    })
}

/// An entry of a grid.
///
/// # Safety
/// `index < N`.
#[inline(always)]
unsafe fn entry<T: Copy, const N: usize>(grid: &[T; N], index: u32) -> T {
    // SAFETY: the caller's contract.
    unsafe { *grid.get_unchecked(index as usize) }
}

/// Index of eight `k` in the grid of IQ1_M, and whether its `delta` is negative.
fn iq1_m(b: &BlockIq1M, k: usize) -> (usize, bool) {
    let high = nibble(&b.qh, k);
    (usize::from(b.qs[k % 32]) | usize::from(high & 7) << 8, high & 8 != 0)
}

/// Index of eight `k` in the grid of IQ1_S.
fn iq1_s(b: &BlockIq1S, k: usize) -> usize {
    usize::from(b.qs[k % 32]) | usize::from(b.qh[k / 4 % 8].get() >> (k % 4 * 3) & 7) << 8
}

/// Index of eight `k` in the grid of IQ2_S.
fn iq2_s(b: &BlockIq2S, k: usize) -> usize {
    usize::from(b.qs[k % 32]) | usize::from(b.qh[k / 4 % 8] >> (k % 4 * 2) & 3) << 8
}

/// Index of four `k` in the grid of IQ3_S.
fn iq3_s(b: &BlockIq3S, k: usize) -> usize {
    usize::from(b.qs[k % 64]) | usize::from(b.qh[k / 8 % 8] >> (k % 8) & 1) << 8
}

/// `scale` of a group of IQ1_S.
#[inline(always)]
fn iq1_s_scale(qh: U16) -> i8 {
    (2 * (qh.get() >> 12 & 7) + 1) as i8
}

/// Eight times `delta` of a group of IQ1_S.
#[inline(always)]
fn iq1_s_delta(qh: U16) -> i8 {
    if qh.get() >> 15 == 1 {
        -1
    } else {
        1
    }
}

/// `scale` of group `g` of IQ1_M.
fn iq1_m_scale(scales: &[U16; 4], g: usize) -> u8 {
    (scales[g / 4 % 4].get() >> (g % 4 * 3) & 7) as u8
}

/// `scale` of group `g` of IQ4_XS.
fn iq4_xs_scale(b: &BlockIq4Xs, g: usize) -> i8 {
    (nibble(&b.scales_l, g) as i8 | ((b.scales_h.get() >> (g % 8 * 2) & 3) << 4) as i8) - 32
}

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
}

// The codes of IQ1 are 8 * (v + delta), 8 being the power of two that makes `delta` an integer.
quant_primitive! {
    format: Iq1S,
    block: BlockIq1S,
    len: 256,
    group: 32,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * 0.125 * f32::from(iq1_s_scale(b.qh[g % 8])),
        code(b, i) => {
            of_eight(IQ1_EIGHTS[iq1_s(b, i / 8) % 2048], i) + iq1_s_delta(b.qh[i / 32 % 8])
        },
    },
    packed: {
        bits: [2, 0],
        values: Linear(1),
        scales: Factors(1.0, 0.125),
        // A group has one `delta`: an eighth of its scale is an offset.
        eighths: true,
        parts(b, g) => {
            let scale = iq1_s_scale(b.qh[g % 8]);
            Parts::halves(b.d, b.d).times(scale, iq1_s_delta(b.qh[g % 8]) * scale)
        },
    },
    simd<P>: {
        scales(b) => (P::half(b.d) * 0.125, b.qh.each(iq1_s_scale)),
        ready(b, out) => [u32; 32] {
            for k in 0..4 {
                let [low, high] = [0, 1].each(|j| u32::from(b.qh[2 * k + j].get() & 0xfff));
                B::indices::<3>(b.qs.as_ptr().add(8 * k), low | high << 12, out.cast::<u32>().add(8 * k));
            }
        }
        codes<B>(b, i, indices) => {
            // Indices have 11 bits.
            let entry = |k: usize| entry(&IQ1_EIGHTS, indices[i / 8 + k]);
            let delta = B::splat(iq1_s_delta(b.qh[i / 32 % 8]) as u8);
            B::words64([0, 1, 2, 3].each(entry)).add(delta)
        },
    }
}

blocks! {
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
}

impl BlockIq1M {
    /// Scale of the scales, from its four pieces.
    #[inline(always)]
    pub const fn d(&self) -> f16 {
        let [a, b, c, d] = self.scales;
        f16::from_bits(a.get() >> 12 | b.get() >> 12 << 4 | c.get() >> 12 << 8 | d.get() >> 12 << 12)
    }
}

quant_primitive! {
    format: Iq1M,
    block: BlockIq1M,
    len: 256,
    group: 16,
    scalar: {
        scale(b, g) => b.d().to_f32() * 0.125 * f32::from(2 * iq1_m_scale(&b.scales, g) + 1),
        code(b, i) => {
            let (index, negative) = iq1_m(b, i / 8);
            of_eight(IQ1_EIGHTS[index % 2048], i) + if negative { -1 } else { 1 }
        },
    },
    packed: {
        bits: [2, 1],
        by_row: true,
        values: Table(IQ1_CODES),
        scales: Factors(0.125, 0.0),
        parts(b, g) => Parts::half(b.d()).times((2 * iq1_m_scale(&b.scales, g) + 1) as i8, 0),
    },
    simd<P>: {
        scales(b) => {
            (P::half(Half::new(b.d())) * 0.125, P::three_bits(u64::from_le(b.scales.as_ptr().cast::<u64>().read_unaligned())))
        },
        // Of each four bits the highest is the sign of `delta`, for eight weights.
        ready(b, out) => ([u32; 32], [u32; 32]) {
            let [indices, negative] = [(&raw mut (*out).0).cast::<u32>(), (&raw mut (*out).1).cast::<u32>()];
            for (k, high) in words::<16, 4>(&b.qh).into_iter().enumerate() {
                B::signed_indices(b.qs.as_ptr().add(8 * k), high, indices.add(8 * k), negative.add(8 * k));
            }
        }
        codes<B>(_b, i, ready) => {
            let (indices, negative) = ready;
            // Indices have 11 bits.
            let entry = |k: usize| entry(&IQ1_EIGHTS, indices[i / 8 + k]);
            let delta = B::spread(negative.as_ptr().add(i / 8)).or(B::splat(1));
            B::words64([0, 1, 2, 3].each(entry)).add(delta)
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Iq2Xxs,
    block: BlockIq2Xxs,
    len: 256,
    group: 32,
    scalar: {
        scale(b, g) => {
            let scale = (b.qs[(2 * g + 1) % 16].get() >> 28) as u8;
            b.d.get().to_f32() * 0.125 * f32::from(2 * scale + 1)
        },
        code(b, i) => {
            let (g, k) = (i / 32, i / 8 % 4);
            let index = b.qs[2 * g % 16].get() >> (8 * k) & 255;
            let pattern = b.qs[(2 * g + 1) % 16].get() >> (7 * k) & 127;
            signed(of_eight(IQ2_XXS_GRID[index as usize % 256], i), signs(pattern as u8), i)
        },
    },
    packed: {
        bits: [2, 1],
        values: Table(IQ2_CODES),
        scales: Factors(0.125, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times((2 * (b.qs[(2 * g + 1) % 16].get() >> 28) + 1) as i8, 0),
    },
    simd<P>: {
        scales(b) => {
            let factors = from_fn(|g| (2 * (b.qs[(2 * g + 1) % 16].get() >> 28) + 1) as i8);
            (P::half(b.d) * 0.125, factors)
        },
        ready(b, out) => [u32; 8] { *out = from_fn(|g| four_signs(b.qs[(2 * g + 1) % 16].get())); }
        codes<B>(b, i, signs) => {
            let indices = b.qs[i / 16 % 16].0;
            B::words64(indices.each(|q| IQ2_XXS_GRID[usize::from(q)])).negate(signs[i / 32 % 8])
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Iq2Xs,
    block: BlockIq2Xs,
    len: 256,
    group: 16,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * 0.125 * f32::from(2 * nibble(&b.scales, g) + 1),
        code(b, i) => {
            let q = b.qs[i / 8 % 32].get();
            signed(of_eight(IQ2_XS_GRID[usize::from(q & 511)], i), signs((q >> 9) as u8), i)
        },
    },
    packed: {
        bits: [2, 1],
        values: Table(IQ2_CODES),
        scales: Factors(0.125, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times((2 * nibble(&b.scales, g) + 1) as i8, 0),
    },
    simd<P>: {
        scales(b) => (P::half(b.d) * 0.125, nibbles(&b.scales).each(|s| (2 * s + 1) as i8)),
        ready(b, out) => ([u16; 32], [u32; 8]) {
            let all = b.qs.each(|q| q.get());
            *out = (all.each(|q| q & 511), words(&all.each(|q| signs((q >> 9) as u8))));
        }
        codes<B>(_b, i, ready) => {
            let (indices, signs) = ready;
            // Indices have 9 bits.
            let entry = |k: usize| entry(&IQ2_XS_GRID, u32::from(indices[(i / 8 + k) % 32]));
            B::words64([0, 1, 2, 3].each(entry)).negate(signs[i / 32 % 8])
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Iq2S,
    block: BlockIq2S,
    len: 256,
    group: 16,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * 0.125 * f32::from(2 * nibble(&b.scales, g) + 1),
        code(b, i) => {
            signed(of_eight(IQ2_S_GRID[iq2_s(b, i / 8) % 1024], i), b.signs[i / 8 % 32], i)
        },
    },
    packed: {
        bits: [2, 1],
        values: Table(IQ2_CODES),
        scales: Factors(0.125, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times((2 * nibble(&b.scales, g) + 1) as i8, 0),
    },
    simd<P>: {
        scales(b) => (P::half(b.d) * 0.125, nibbles(&b.scales).each(|s| (2 * s + 1) as i8)),
        ready(b, out) => [u32; 32] {
            for k in 0..4 {
                let high = u32::from(b.qh[2 * k]) | u32::from(b.qh[2 * k + 1]) << 8;
                B::indices::<2>(b.qs.as_ptr().add(8 * k), high, out.cast::<u32>().add(8 * k));
            }
        }
        codes<B>(b, i, indices) => {
            // Indices have 10 bits.
            let entry = |k: usize| entry(&IQ2_S_GRID, indices[i / 8 + k]);
            let signs: [u32; 8] = words(&b.signs);
            B::words64([0, 1, 2, 3].each(entry)).negate(signs[i / 32 % 8])
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Iq3Xxs,
    block: BlockIq3Xxs,
    len: 256,
    group: 32,
    scalar: {
        scale(b, g) => {
            let scale = (b.signs[g % 8].get() >> 28) as u8;
            b.d.get().to_f32() * 0.25 * f32::from(2 * scale + 1)
        },
        code(b, i) => {
            let pattern = b.signs[i / 32 % 8].get() >> (i / 8 % 4 * 7) & 127;
            let v = of_four(IQ3_XXS_GRID[usize::from(b.qs[i / 4 % 64])], i);
            signed(v, signs(pattern as u8), i)
        },
    },
    packed: {
        bits: [4, 0],
        values: Table(IQ3_XXS_CODES),
        scales: Factors(0.25, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times((2 * (b.signs[g % 8].get() >> 28) + 1) as i8, 0),
    },
    simd<P>: {
        scales(b) => (P::half(b.d) * 0.25, b.signs.each(|s| (2 * (s.get() >> 28) + 1) as i8)),
        ready(b, out) => [u32; 8] { *out = b.signs.each(|s| four_signs(s.get())); }
        codes<B>(b, i, signs) => {
            let entry = |k: usize| IQ3_XXS_GRID[usize::from(b.qs[(i / 4 + k) % 64])];
            B::words32([0, 1, 2, 3, 4, 5, 6, 7].each(entry)).negate(signs[i / 32 % 8])
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Iq3S,
    block: BlockIq3S,
    len: 256,
    group: 32,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * f32::from(2 * nibble(&b.scales, g) + 1),
        code(b, i) => {
            signed(of_four(IQ3_S_GRID[iq3_s(b, i / 4) % 512], i), b.signs[i / 8 % 32], i)
        },
    },
    packed: {
        bits: [4, 0],
        values: Table(IQ3_S_CODES),
        scales: Factors(1.0, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times((2 * nibble(&b.scales, g) + 1) as i8, 0),
    },
    simd<P>: {
        scales(b) => (P::half(b.d), nibbles(&b.scales).each(|s| (2 * s + 1) as i8)),
        ready(b, out) => [u32; 64] {
            for (k, high) in b.qh.into_iter().enumerate() {
                B::indices::<1>(b.qs.as_ptr().add(8 * k), u32::from(high), out.cast::<u32>().add(8 * k));
            }
        }
        codes<B>(b, i, indices) => {
            // Indices have 9 bits.
            let entry = |k: usize| entry(&IQ3_S_GRID, indices[(i / 4 + k) % 64]);
            let signs: [u32; 8] = words(&b.signs);
            B::words32([0, 1, 2, 3, 4, 5, 6, 7].each(entry)).negate(signs[i / 32 % 8])
        },
    }
}

blocks! {
    /// IQ4_NL: 32 weights, 4.5 bits each. `w = d * v`, `v` entry `q` of
    /// [`IQ4_VALUES`](crate::codebooks::IQ4_VALUES).
    BlockIq4Nl: 18 bytes {
        /// Scale.
        d: Half,
        /// `q`: as in [`BlockQ4_0`](crate::blocks::BlockQ4_0).
        qs: [u8; 16],
    }
}

quant_primitive! {
    format: Iq4Nl,
    block: BlockIq4Nl,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => IQ4_VALUES[usize::from(b.qs[i % 16] >> (i / 16 % 2 * 4) & 15)],
    },
    packed: {
        bits: [4, 0],
        values: Table(IQ4_VALUES),
        scales: Halves,
        parts(b, _g) => Parts::half(b.d.get()),
    },
    encode(isa, groups: 1 x 32) => {
        let (d, q) = scaled::<Iq4, 32>(isa, groups);
        BlockIq4Nl { d, qs: pack::<4, 16, 16>(&q) }
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles().lookup(&IQ4_VALUES),
    }
}

blocks! {
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

quant_primitive! {
    format: Iq4Xs,
    block: BlockIq4Xs,
    len: 256,
    group: 32,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * f32::from(iq4_xs_scale(b, g)),
        code(b, i) => {
            let byte = b.qs[i / 32 % 8 * 16 + i % 16];
            IQ4_VALUES[usize::from(byte >> (i / 16 % 2 * 4) & 15)]
        },
    },
    packed: {
        bits: [4, 0],
        values: Table(IQ4_VALUES),
        scales: Factors(1.0, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times(iq4_xs_scale(b, g), 0),
    },
    encode(isa, groups: 8 x 32) => {
        let fit = scales::<Iq4, 32, 8>(isa, groups, -32.0, 31.0);
        let q = group_codes::<Iq4, 32, 8>(isa, groups, &fit.lines());
        let k = fit.k.map(|k| (k + 32.0) as u8);
        BlockIq4Xs {
            d: fit.d,
            scales_h: U16(pack::<2, 1, 2>(&k.map(|k| k >> 4))),
            scales_l: pack::<4, 1, 4>(&k),
            qs: pack::<4, 16, 128>(q.as_flattened()),
        }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), first(P::split_six_bits(b.scales_l, b.scales_h.get()))),
        codes<B>(b, i) => B::load_twice(b.qs.as_ptr().add(i / 2)).nibbles().lookup(&IQ4_VALUES),
    }
}
