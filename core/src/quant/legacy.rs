//! The formats with one scale per block, and perhaps one minimum.

use crate::quant::blocks::{
    BlockQ1_0, BlockQ2_0, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, BlockQ8_1,
};

/// What a bit stands for in Q1_0.
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
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles().minus(8),
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
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        offsets(first, n, out) => halves::<P, _>(first, n, out, |b| b.m),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles(),
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
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => {
            let high = B::mask(b.qh.get()).and(B::splat(16));
            B::load_twice(b.qs.as_ptr()).nibbles().or(high).minus(16)
        },
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
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        offsets(first, n, out) => halves::<P, _>(first, n, out, |b| b.m),
        codes<B>(b, _i) => {
            let high = B::mask(b.qh.get()).and(B::splat(16));
            B::load_twice(b.qs.as_ptr()).nibbles().or(high)
        },
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
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load(b.qs.as_ptr()),
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
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load(b.qs.as_ptr()),
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
    simd<P>: {
        scales(b) => (P::half(b.d), [1; 4]),
        codes<B>(b, i) => {
            let bits = b.qs.as_ptr().add(i / 8).cast::<u32>().read_unaligned();
            B::mask(bits).and(B::splat(2)).minus(1)
        },
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
