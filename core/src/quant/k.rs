//! The K family: 256 weights, whose groups have small integer scales of their own.

use crate::arrays::Each;
use crate::quant::blocks::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8K};

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
    simd<P>: {
        scales(b) => (P::half(b.d), b.scales.each(|s| (s & 15) as i8)),
        offsets(b) => (-P::half(b.dmin), b.scales.each(|s| (s >> 4) as i8)),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i / 128 * 32)).shr((i / 32 % 4 * 2) as u32).low(2),
        wide<W>(b, i) shifted(at: [0, 2, 4, 6, 0, 2, 4, 6]) => {
            W::twice(b.qs.as_ptr().add(i / 128 * 32)).field(at, at, 2)
        },
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
    simd<P>: {
        scales(b) => (P::half(b.d), first(P::scales_and_minima(&b.scales))),
        offsets(b) => (-P::half(b.dmin), last(P::scales_and_minima(&b.scales))),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i / 64 * 32)).shr((i / 32 % 2 * 4) as u32).low(4),
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
    simd<P>: {
        scales(b) => (P::half(b.d), first(P::scales_and_minima(&b.scales))),
        offsets(b) => (-P::half(b.dmin), last(P::scales_and_minima(&b.scales))),
        codes<B>(b, i) => {
            let low = B::load(b.qs.as_ptr().add(i / 64 * 32)).shr((i / 32 % 2 * 4) as u32).low(4);
            low.or(B::load(b.qh.as_ptr()).field((i / 32) as u32, 1, 4))
        },
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
    simd<P>: {
        scales(b) => (b.d.get(), [1; 8]),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i)),
    }
}
