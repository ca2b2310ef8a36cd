//! The formats of -1, 0 and 1.

use super::k::pair;
use crate::quant::blocks::{BlockTq1_0, BlockTq2_0};
use crate::quant::EVERY_BYTE;

quant_primitive! {
    format: Tq1_0,
    block: BlockTq1_0,
    len: 256,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => {
            let (byte, digit) = match i {
                0..160 => (b.qs[i % 32], i / 32),
                160..240 => (b.qs[32 + i % 16], (i - 160) / 16),
                _ => (b.qh[i % 4], i.wrapping_sub(240) / 4),
            };
            let fraction = byte.wrapping_mul([1, 3, 9, 27, 81, 0, 0, 0][digit % 8]);
            ((u16::from(fraction) * 3) >> 8) as i8 - 1
        },
    },
    packed: {
        bits: [2, 0],
        values: Linear(1),
        scales: Whole,
        parts(b, _g) => Parts::whole(b.d.get().to_f32()),
    },
    simd<P>: {
        scales(b) => (P::half(b.d), [1; 8]),
        codes<B>(b, i) => {
            // The bytes of a part, and the powers of 3 that put their digits behind the point.
            let (bytes, power) = match i / 32 {
                p @ 0..5 => {
                    (B::load(b.qs.as_ptr()), B::splat([1, 3, 9, 27, 81, 0, 0, 0][p % 8]))
                }
                p @ 5..7 => {
                    let (one, other) = if p == 5 { (EVERY_BYTE, 3 * EVERY_BYTE) } else { (9 * EVERY_BYTE, 27 * EVERY_BYTE) };
                    let power = B::words32([one, one, one, one, other, other, other, other]);
                    (B::load_twice(b.qs.as_ptr().add(32)), power)
                }
                _ => {
                    let q = |k: usize| b.qs.as_ptr().add(32 + 4 * k).cast::<u32>().read_unaligned();
                    let h = u32::from_le_bytes(b.qh);
                    let last = 81 * EVERY_BYTE;
                    (
                        B::words32([q(0), q(1), q(2), q(3), h, h, h, h]),
                        B::words32([last, last, last, last, EVERY_BYTE, 3 * EVERY_BYTE, 9 * EVERY_BYTE, 27 * EVERY_BYTE]),
                    )
                }
            };
            // Times 3 is 256 or more from 86, 512 or more from 171; true is -1.
            let fraction = bytes.mul(power);
            B::splat(0xff).sub(fraction.at_least(B::splat(86))).sub(fraction.at_least(B::splat(171)))
        },
    }
}

quant_primitive! {
    format: Tq2_0,
    block: BlockTq2_0,
    len: 256,
    group: 32,
    scalar: {
        scale(b, _g) => b.d.get().to_f32(),
        code(b, i) => pair(&b.qs, i) - 1,
    },
    packed: {
        bits: [2, 0],
        values: Linear(1),
        scales: Whole,
        parts(b, _g) => Parts::whole(b.d.get().to_f32()),
    },
    simd<P>: {
        scales(b) => (P::half(b.d), [1; 8]),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i / 128 * 32)).shr((i / 32 % 4 * 2) as u32).low(2).minus(1),
        wide<W>(b, i) shifted(at: [0, 2, 4, 6, 0, 2, 4, 6]) => {
            W::twice(b.qs.as_ptr().add(i / 128 * 32)).field(at, at, 2)
        },
    }
}
