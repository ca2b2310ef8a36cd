//! The formats with one f16 scale, and perhaps one f16 minimum, per block of 32.

use crate::quant::blocks::{BlockQ4_0, BlockQ8_0};

quant_primitive! {
    format: Q4_0,
    block: BlockQ4_0,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => {
            let byte = b.qs[i % 16];
            (if i % 32 < 16 { byte & 15 } else { byte >> 4 }) as i8 - 8
        },
    },
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles().minus(8),
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
    simd<P>: {
        scales(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        codes<B>(b, _i) => B::load(b.qs.as_ptr()),
    }
}
