//! The K family: 256 weights, whose groups have small integer scales of their own.

use crate::arrays::Each;
use crate::quant::blocks::{Half, Single, I16};
use crate::quant::encode::grid::Int;

/// Element `i` of 2 bits: 32 bytes hold 128 of them, the first 32 in their lowest bits.
pub(super) fn pair(qs: &[u8; 64], i: usize) -> i8 {
    (qs[i / 128 % 2 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) as i8
}

/// Element `i` of 4 bits: 32 bytes hold 64 of them, the first 32 in their low halves.
fn nibble(qs: &[u8; 128], i: usize) -> i8 {
    (qs[i / 64 % 4 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15) as i8
}

/// Bit `i / 32` of byte `i % 32`.
fn bit(bits: &[u8; 32], i: usize) -> i8 {
    (bits[i % 32] >> (i / 32 % 8) & 1) as i8
}

/// Scale and minimum of group `g`, 6 bits each.
fn six_bits(scales: &[u8; 12], g: usize) -> (i8, i8) {
    let (low, k) = (g < 4, g % 4);
    let (a, b, c) = (scales[k], scales[k + 4], scales[k + 8]);
    let (scale, min) = if low { (a & 63, b & 63) } else { (c & 15 | a >> 6 << 4, c >> 4 | b >> 6 << 4) };
    (scale as i8, min as i8)
}

/// Scales and minima of 6 bits each, as [`six_bits`] reads them.
fn six_bits_each(k: [f32; 8], l: [f32; 8]) -> [u8; 12] {
    let (k, l) = (k.map(|k| k as u8), l.map(|l| l as u8));
    let mut bytes = [0; 12];
    for g in 0..4 {
        bytes[g] = k[g] | k[g + 4] >> 4 << 6;
        bytes[g + 4] = l[g] | l[g + 4] >> 4 << 6;
        bytes[g + 8] = (k[g + 4] & 15) | l[g + 4] << 4;
    }
    bytes
}

/// Scale of group `g` of Q3_K.
fn q3_k_scale(scales: &[u8; 12], g: usize) -> i8 {
    let low = scales[g % 8] >> (g / 8 % 2 * 4) & 15;
    let high = scales[8 + g % 4] >> (g / 4 % 4 * 2) & 3;
    (low | high << 4) as i8 - 32
}

/// The first eight.
pub(super) fn first([a, b, c, d, e, f, g, h, ..]: [i8; 16]) -> [i8; 8] {
    [a, b, c, d, e, f, g, h]
}

/// The last eight.
fn last([.., a, b, c, d, e, f, g, h]: [i8; 16]) -> [i8; 8] {
    [a, b, c, d, e, f, g, h]
}

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
}

quant_primitive! {
    format: Q2K,
    block: BlockQ2K,
    len: 256,
    group: 16,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * f32::from(b.scales[g % 16] & 15),
        offset(b, g) => -b.dmin.get().to_f32() * f32::from(b.scales[g % 16] >> 4),
        code(b, i) => pair(&b.qs, i),
    },
    packed: {
        bits: [2, 0],
        values: Linear(0),
        scales: Factors(1.0, -1.0),
        parts(b, g) => { let s = b.scales[g % 16]; Parts::halves(b.d, b.dmin).times((s & 15) as i8, (s >> 4) as i8) },
    },
    encode(isa, groups: 16 x 16) => {
        let fit = lines::<Int<0, 3>, 16, 16>(isa, groups, 3.0, 15.0);
        let q = group_codes::<Int<0, 3>, 16, 16>(isa, groups, &fit.lines());
        let mut scales = [0; 16];
        for ((s, k), l) in scales.iter_mut().zip(fit.k).zip(fit.l) {
            *s = k as u8 | (l as u8) << 4;
        }
        BlockQ2K { scales, qs: pack::<2, 32, 64>(q.as_flattened()), d: fit.d, dmin: fit.dmin }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), b.scales.each(|s| (s & 15) as i8)),
        offsets(b) => (-P::half(b.dmin), b.scales.each(|s| (s >> 4) as i8)),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i / 128 * 32)).shr((i / 32 % 4 * 2) as u32).low(2),
        wide<W>(b, i) shifted(at: [0, 2, 4, 6, 0, 2, 4, 6]) => {
            W::twice(b.qs.as_ptr().add(i / 128 * 32)).field(at, at, 2)
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Q3K,
    block: BlockQ3K,
    len: 256,
    group: 16,
    scalar: {
        scale(b, g) => {
            b.d.get().to_f32() * f32::from(q3_k_scale(&b.scales, g))
        },
        code(b, i) => (pair(&b.qs, i) | bit(&b.hmask, i) << 2) - 4,
    },
    packed: {
        bits: [2, 1],
        values: Linear(4),
        scales: Factors(1.0, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times(q3_k_scale(&b.scales, g), 0),
    },
    encode(isa, groups: 16 x 16) => {
        let fit = scales::<Int<-4, 3>, 16, 16>(isa, groups, -32.0, 31.0);
        let q = group_codes::<Int<-4, 3>, 16, 16>(isa, groups, &fit.lines());
        let k = fit.k.map(|k| (k + 32.0) as u8);
        let low = pack::<4, 8, 8>(&k);
        let high = pack::<2, 4, 4>(&k.map(|k| k >> 4));
        let mut scales = [0; 12];
        scales.iter_mut().zip(low.into_iter().chain(high)).for_each(|(s, b)| *s = b);
        BlockQ3K {
            hmask: pack::<1, 32, 32>(q.map(|q| q.map(|q| q >> 2)).as_flattened()),
            qs: pack::<2, 32, 64>(q.as_flattened()),
            scales,
            d: fit.d,
        }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), P::six_bits(&b.scales)),
        codes<B>(b, i) => {
            let low = B::load(b.qs.as_ptr().add(i / 128 * 32)).shr((i / 32 % 4 * 2) as u32).low(2);
            low.or(B::load(b.hmask.as_ptr()).field((i / 32) as u32, 1, 2)).minus(4)
        },
        wide<W>(b, i) shifted(at: [0, 2, 4, 5, 0, 2, 4, 5]) => {
            let (pair, bit) = (i / 32 % 4 * 2, i / 32);
            let low = W::twice(b.qs.as_ptr().add(i / 128 * 32)).field([pair, pair + 2], at, 2);
            low.or(W::twice(b.hmask.as_ptr()).field([bit, bit + 1], at.each(|at| at + 2), 1))
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Q4K,
    block: BlockQ4K,
    len: 256,
    group: 32,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * f32::from(six_bits(&b.scales, g).0),
        offset(b, g) => -b.dmin.get().to_f32() * f32::from(six_bits(&b.scales, g).1),
        code(b, i) => nibble(&b.qs, i),
    },
    packed: {
        bits: [4, 0],
        values: Linear(0),
        scales: Factors(1.0, -1.0),
        parts(b, g) => { let (scale, min) = six_bits(&b.scales, g); Parts::halves(b.d, b.dmin).times(scale, min) },
    },
    encode(isa, groups: 8 x 32) => {
        let fit = lines::<Int<0, 15>, 32, 8>(isa, groups, 15.0, 63.0);
        let q = group_codes::<Int<0, 15>, 32, 8>(isa, groups, &fit.lines());
        BlockQ4K {
            d: fit.d,
            dmin: fit.dmin,
            scales: six_bits_each(fit.k, fit.l),
            qs: pack::<4, 32, 128>(q.as_flattened()),
        }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), first(P::scales_and_minima(&b.scales))),
        offsets(b) => (-P::half(b.dmin), last(P::scales_and_minima(&b.scales))),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i / 64 * 32)).shr((i / 32 % 2 * 4) as u32).low(4),
    }
}

blocks! {
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
}

quant_primitive! {
    format: Q5K,
    block: BlockQ5K,
    len: 256,
    group: 32,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * f32::from(six_bits(&b.scales, g).0),
        offset(b, g) => -b.dmin.get().to_f32() * f32::from(six_bits(&b.scales, g).1),
        code(b, i) => nibble(&b.qs, i) | bit(&b.qh, i) << 4,
    },
    packed: {
        bits: [4, 1],
        values: Linear(0),
        scales: Factors(1.0, -1.0),
        parts(b, g) => { let (scale, min) = six_bits(&b.scales, g); Parts::halves(b.d, b.dmin).times(scale, min) },
    },
    encode(isa, groups: 8 x 32) => {
        let fit = lines::<Int<0, 31>, 32, 8>(isa, groups, 31.0, 63.0);
        let q = group_codes::<Int<0, 31>, 32, 8>(isa, groups, &fit.lines());
        BlockQ5K {
            d: fit.d,
            dmin: fit.dmin,
            scales: six_bits_each(fit.k, fit.l),
            qh: pack::<1, 32, 32>(q.map(|q| q.map(|q| q >> 4)).as_flattened()),
            qs: pack::<4, 32, 128>(q.as_flattened()),
        }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), first(P::scales_and_minima(&b.scales))),
        offsets(b) => (-P::half(b.dmin), last(P::scales_and_minima(&b.scales))),
        codes<B>(b, i) => {
            let low = B::load(b.qs.as_ptr().add(i / 64 * 32)).shr((i / 32 % 2 * 4) as u32).low(4);
            low.or(B::load(b.qh.as_ptr()).field((i / 32) as u32, 1, 4))
        },
    }
}

blocks! {
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
}

quant_primitive! {
    format: Q6K,
    block: BlockQ6K,
    len: 256,
    group: 16,
    scalar: {
        scale(b, g) => b.d.get().to_f32() * f32::from(b.scales[g % 16] as i8),
        code(b, i) => {
            let low = b.ql[i / 128 % 2 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
            (low as i8 | pair(&b.qh, i) << 4) - 32
        },
    },
    packed: {
        bits: [4, 2],
        values: Linear(32),
        scales: Factors(1.0, 0.0),
        parts(b, g) => Parts::half(b.d.get()).times(b.scales[g % 16] as i8, 0),
    },
    encode(isa, groups: 16 x 16) => {
        let fit = scales::<Int<-32, 31>, 16, 16>(isa, groups, -128.0, 127.0);
        let q = group_codes::<Int<-32, 31>, 16, 16>(isa, groups, &fit.lines());
        BlockQ6K {
            ql: pack::<4, 64, 128>(q.as_flattened()),
            qh: pack::<2, 32, 64>(q.map(|q| q.map(|q| q >> 4)).as_flattened()),
            scales: fit.k.map(|k| k as i8 as u8),
            d: fit.d,
        }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), b.scales.each(|s| s as i8)),
        codes<B>(b, i) => {
            let low = B::load(b.ql.as_ptr().add(i / 128 * 64 + i % 64)).shr((i / 64 % 2 * 4) as u32).low(4);
            low.or(B::load(b.qh.as_ptr().add(i / 128 * 32)).field((i / 32 % 4 * 2) as u32, 2, 4)).minus(32)
        },
        wide<W>(b, i) shifted(at: [0, 0, 2, 2, 0, 0, 2, 2]) => {
            let (half, pair) = (i / 64 % 2 * 4, i / 32 % 4 * 2);
            let low = W::load(b.ql.as_ptr().add(i / 128 * 64)).field([half, half], at, 4);
            low.or(W::twice(b.qh.as_ptr().add(i / 128 * 32)).field([pair, pair + 2], at.each(|at| at + 4), 2))
        },
    }
}

blocks! {
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

quant_primitive! {
    format: Q8K,
    block: BlockQ8K,
    len: 256,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get(),
        code(b, i) => b.qs[i % 256] as i8,
    },
    packed: {
        bits: [8, 0],
        values: Linear(128),
        scales: Whole,
        parts(b, _g) => Parts::whole(b.d.get()),
    },
    encode(isa, groups: 1 x 256, up to: MAX_SINGLE) => {
        let [group] = groups;
        let (d, q) = isa.bytes(&group.x);
        let mut bsums = [I16([0; 2]); 16];
        for (sum, q) in bsums.iter_mut().zip(q.as_chunks::<16>().0) {
            *sum = I16::new(q.iter().copied().map(i16::from).sum());
        }
        BlockQ8K { d: Single::new(d), qs: q.map(|q| q as u8), bsums }
    },
    simd<P>: {
        scales(b) => (b.d.get(), [1; 8]),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i)),
    }
}
