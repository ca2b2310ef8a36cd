//! 4-bit floating-point numbers with a scale of 8 bits.

use crate::quant::blocks::{BlockMxfp4, BlockNvfp4};
use crate::quant::codebooks::{e8m0_half, ue4m3_half, FP4_VALUES};

quant_primitive! {
    format: Mxfp4,
    block: BlockMxfp4,
    len: 32,
    group: 32,
    scalar: {
        scale(b, _g) => e8m0_half(b.e),
        code(b, i) => FP4_VALUES[usize::from(b.qs[i % 16] >> (i / 16 % 2 * 4) & 15)],
    },
    packed: {
        bits: [4, 0],
        values: Table(FP4_VALUES),
        scales: E8m0,
        parts(b, _g) => Parts::byte(b.e),
    },
    simd<P>: {
        scales(first, n, out) => converted::<_, 1>(first, n, out, |b| [b.e], P::e8m0),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles().lookup(&FP4_VALUES),
    }
}

quant_primitive! {
    format: Nvfp4,
    block: BlockNvfp4,
    len: 64,
    group: 16,
    scalar: {
        scale(b, g) => ue4m3_half(b.d[g % 4]),
        code(b, i) => FP4_VALUES[usize::from(b.qs[i / 16 % 4 * 8 + i % 8] >> (i / 8 % 2 * 4) & 15)],
    },
    packed: {
        bits: [4, 0],
        values: Table(FP4_VALUES),
        scales: Ue4m3,
        parts(b, g) => Parts::byte(if b.d[g % 4] == 0x7f { 0 } else { b.d[g % 4] & 0x7f }),
    },
    simd<P>: {
        scales(first, n, out) => converted::<_, 4>(first, n, out, |b| b.d, P::ue4m3),
        // Low halves of two groups, then their high halves: each group wants its own.
        codes<B>(b, i) => {
            B::load_twice(b.qs.as_ptr().add(i / 2)).nibbles().swap_middle().lookup(&FP4_VALUES)
        },
    }
}
