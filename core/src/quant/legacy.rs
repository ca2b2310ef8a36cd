//! The formats with one f16 scale per block of 32.

use crate::quant::blocks::{BlockQ4_0, BlockQ8_0};

quant_primitive! {
    format: Q4_0,
    block: BlockQ4_0,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        value(b, i) => {
            let byte = b.qs[i % 16];
            f32::from((if i % 32 < 16 { byte & 15 } else { byte >> 4 }) as i8 - 8)
        },
    },
    simd: {
        scales<P>(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        avx512(b, i) => Avx512::nibbles((*b).qs.as_ptr(), i, 8),
        avx2(b, i) => Avx2::nibbles((*b).qs.as_ptr(), i, 8),
        neon(b, i) => Neon::nibbles((*b).qs.as_ptr(), i, 8),
    }
}

quant_primitive! {
    format: Q8_0,
    block: BlockQ8_0,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        value(b, i) => f32::from(b.qs[i % 32] as i8),
    },
    simd: {
        scales<P>(first, n, out) => halves::<P, _>(first, n, out, |b| b.d),
        avx512(b, i) => Avx512::i8s((*b).qs.as_ptr(), i),
        avx2(b, i) => Avx2::i8s((*b).qs.as_ptr(), i),
        neon(b, i) => Neon::i8s((*b).qs.as_ptr(), i),
    }
}
