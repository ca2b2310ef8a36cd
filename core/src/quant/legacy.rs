//! The formats with one scale per block, and perhaps one minimum.

use crate::quant::blocks::{Half, U32};
use crate::quant::encode::grid::{Int, Sign};

/// The codes that a bit of Q1_0 stands for.
const BITS: [i8; 16] = [-1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Integer `i` of a block whose 16 bytes hold 4 bits each of elements 0 to 15, then of 16 to 31.
fn nibble(qs: &[u8; 16], i: usize) -> i8 {
    let byte = qs[i % 16];
    (if i % 32 < 16 { byte & 15 } else { byte >> 4 }) as i8
}

/// Bit `i` of 32, in the place of bit 4.
fn fifth(qh: u32, i: usize) -> i8 {
    ((qh >> (i % 32) & 1) << 4) as i8
}

blocks! {
    /// Q4_0: 32 weights, 4.5 bits each. `w = d * (q - 8)`.
    BlockQ4_0: 18 bytes {
        /// Scale.
        d: Half,
        /// `q`: element `i < 16` in the low half of byte `i`, element `i + 16` in its high half.
        qs: [u8; 16],
    }
}

quant_primitive! {
    format: Q4_0,
    block: BlockQ4_0,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => nibble(&b.qs, i) - 8,
    },
    packed: {
        bits: [4, 0],
        values: Linear(8),
        scales: Halves,
        parts(b, _g) => Parts::half(b.d.get()),
    },
    encode(isa, groups: 1 x 32) => {
        let (d, q) = scaled::<Int<-8, 7>, 32>(isa, groups);
        BlockQ4_0 { d, qs: pack::<4, 16, 16>(&q) }
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles().minus(8),
    }
}

blocks! {
    /// Q4_1: 32 weights, 5 bits each. `w = d * q + m`.
    BlockQ4_1: 20 bytes {
        /// Scale.
        d: Half,
        /// Minimum: the weight of `q = 0`.
        m: Half,
        /// `q`: as in [`BlockQ4_0`].
        qs: [u8; 16],
    }
}

quant_primitive! {
    format: Q4_1,
    block: BlockQ4_1,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        offset(b, _g) => b.m.get().to_f32(),
        code(b, i) => nibble(&b.qs, i),
    },
    packed: {
        bits: [4, 0],
        values: Linear(0),
        scales: Halves,
        parts(b, _g) => Parts::halves(b.d, b.m),
    },
    encode(isa, groups: 1 x 32) => {
        let (d, m, q) = shifted::<Int<0, 15>>(isa, groups, 15.0);
        BlockQ4_1 { d, m, qs: pack::<4, 16, 16>(&q) }
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        offsets(first, n, out) => halves::<P, _>(first, n, out, |b| b.m),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles(),
    }
}

blocks! {
    /// Q5_0: 32 weights, 5.5 bits each. `w = d * (q - 16)`, `q = low + 16 * high`.
    BlockQ5_0: 22 bytes {
        /// Scale.
        d: Half,
        /// `high`: element `i` in bit `i`.
        qh: U32,
        /// `low`: as `q` in [`BlockQ4_0`].
        qs: [u8; 16],
    }
}

quant_primitive! {
    format: Q5_0,
    block: BlockQ5_0,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => (nibble(&b.qs, i) | fifth(b.qh.get(), i)) - 16,
    },
    packed: {
        bits: [4, 1],
        values: Linear(16),
        scales: Halves,
        parts(b, _g) => Parts::half(b.d.get()),
    },
    encode(isa, groups: 1 x 32) => {
        let (d, q) = scaled::<Int<-16, 15>, 32>(isa, groups);
        BlockQ5_0 { d, qh: U32(pack::<1, 1, 4>(&q.map(|q| q >> 4))), qs: pack::<4, 16, 16>(&q) }
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => {
            let high = B::mask(b.qh.get()).and(B::splat(16));
            B::load_twice(b.qs.as_ptr()).nibbles().or(high).minus(16)
        },
    }
}

blocks! {
    /// Q5_1: 32 weights, 6 bits each. `w = d * q + m`, `q = low + 16 * high`.
    BlockQ5_1: 24 bytes {
        /// Scale.
        d: Half,
        /// Minimum: the weight of `q = 0`.
        m: Half,
        /// `high`: element `i` in bit `i`.
        qh: U32,
        /// `low`: as `q` in [`BlockQ4_0`].
        qs: [u8; 16],
    }
}

quant_primitive! {
    format: Q5_1,
    block: BlockQ5_1,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        offset(b, _g) => b.m.get().to_f32(),
        code(b, i) => nibble(&b.qs, i) | fifth(b.qh.get(), i),
    },
    packed: {
        bits: [4, 1],
        values: Linear(0),
        scales: Halves,
        parts(b, _g) => Parts::halves(b.d, b.m),
    },
    encode(isa, groups: 1 x 32) => {
        let (d, m, q) = shifted::<Int<0, 31>>(isa, groups, 31.0);
        BlockQ5_1 { d, m, qh: U32(pack::<1, 1, 4>(&q.map(|q| q >> 4))), qs: pack::<4, 16, 16>(&q) }
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        offsets(first, n, out) => halves::<P, _>(first, n, out, |b| b.m),
        codes<B>(b, _i) => {
            let high = B::mask(b.qh.get()).and(B::splat(16));
            B::load_twice(b.qs.as_ptr()).nibbles().or(high)
        },
    }
}

blocks! {
    /// Q8_0: 32 weights, 8.5 bits each. `w = d * q`.
    BlockQ8_0: 34 bytes {
        /// Scale.
        d: Half,
        /// `q`: two's complement integers, in order.
        qs: [u8; 32],
    }
}

quant_primitive! {
    format: Q8_0,
    block: BlockQ8_0,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => b.qs[i % 32] as i8,
    },
    packed: {
        bits: [8, 0],
        values: Linear(128),
        scales: Halves,
        parts(b, _g) => Parts::half(b.d.get()),
    },
    encode(isa, groups: 1 x 32, up to: 127.0 * MAX_HALF) => {
        let (d, q) = isa.bytes(&groups[0].x);
        BlockQ8_0 { d: half(d), qs: q.map(|q| q as u8) }
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load(b.qs.as_ptr()),
    }
}

blocks! {
    /// Q8_1: 32 weights, 9 bits each. `w = d * q`.
    ///
    /// A format of activations: whoever multiplies them with weights that have a minimum `m` needs `m`
    /// times the sum of the activations, too.
    BlockQ8_1: 36 bytes {
        /// Scale.
        d: Half,
        /// `d` times the sum of all `q`.
        s: Half,
        /// `q`: two's complement integers, in order.
        qs: [u8; 32],
    }
}

quant_primitive! {
    format: Q8_1,
    block: BlockQ8_1,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => b.qs[i % 32] as i8,
    },
    packed: {
        bits: [8, 0],
        values: Linear(128),
        scales: Halves,
        parts(b, _g) => Parts::half(b.d.get()),
    },
    encode(isa, groups: 1 x 32, up to: 127.0 * MAX_HALF) => {
        let (d, q) = isa.bytes(&groups[0].x);
        let sum: i32 = q.iter().copied().map(i32::from).sum();
        BlockQ8_1 { d: half(d), s: half(d * sum as f32), qs: q.map(|q| q as u8) }
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load(b.qs.as_ptr()),
    }
}

blocks! {
    /// Q1_0: 128 weights, 1.125 bits each. `w = d` where the bit is set, else `-d`.
    BlockQ1_0: 18 bytes {
        /// Scale.
        d: Half,
        /// Element `i` in bit `i % 8` of byte `i / 8`.
        qs: [u8; 16],
    }
}

quant_primitive! {
    format: Q1_0,
    block: BlockQ1_0,
    len: 128,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => (b.qs[i / 8 % 16] >> (i % 8) & 1) as i8 * 2 - 1,
    },
    packed: {
        bits: [1, 0],
        values: Table(BITS),
        scales: Halves,
        parts(b, _g) => Parts::half(b.d.get()),
    },
    encode(isa, groups: 1 x 128) => {
        let (d, q) = scaled::<Sign, 128>(isa, groups);
        BlockQ1_0 { d, qs: pack::<1, 1, 16>(&q) }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), [1; 4]),
        codes<B>(b, i) => {
            let bits = b.qs.as_ptr().add(i / 8).cast::<u32>().read_unaligned();
            B::mask(bits).and(B::splat(2)).minus(1)
        },
    }
}

blocks! {
    /// Q2_0: 64 weights, 2.25 bits each. `w = d * (q - 1)`: -1, 0, 1 or 2 times the scale.
    BlockQ2_0: 18 bytes {
        /// Scale.
        d: Half,
        /// `q`: element `i` in bits `2 * (i % 4)` and the next of byte `i / 4`.
        qs: [u8; 16],
    }
}

quant_primitive! {
    format: Q2_0,
    block: BlockQ2_0,
    len: 64,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => (b.qs[i / 4 % 16] >> (2 * (i % 4)) & 3) as i8 - 1,
    },
    packed: {
        bits: [2, 0],
        values: Linear(1),
        scales: Halves,
        parts(b, _g) => Parts::half(b.d.get()),
    },
    encode(isa, groups: 1 x 64) => {
        let (d, q) = scaled::<Int<-1, 2>, 64>(isa, groups);
        BlockQ2_0 { d, qs: pack::<2, 1, 16>(&q) }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), [1; 2]),
        codes<B>(b, i) => {
            // Each byte four times, and of each copy its own two bits.
            let four = B::load_four_times(b.qs.as_ptr().add(i / 4));
            let own = |n: u32| four.shr(2 * n).and(B::words32([3 << (8 * n); 8]));
            own(0).or(own(1)).or(own(2)).or(own(3)).minus(1)
        },
    }
}
