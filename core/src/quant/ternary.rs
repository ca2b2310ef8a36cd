//! The formats of -1, 0 and 1.

use super::k::pair;
use crate::quant::blocks::Half;
use crate::quant::encode::grid::Int;
use crate::quant::EVERY_BYTE;

/// Digits in base 3: those of byte `b` are `out.len()` apart. See [`BlockTq1_0`].
fn trits(q: &[u8], out: &mut [u8]) {
    let run = out.len();
    for (b, byte) in out.iter_mut().enumerate() {
        let mut value = 81;
        let mut number = 0;
        for &q in q.iter().skip(b).step_by(run.max(1)) {
            number += u32::from(q) * value;
            value /= 3;
        }
        // Rounded up, so that the digits reappear when it is multiplied by 3.
        *byte = (number * 256).div_ceil(243) as u8;
    }
}

blocks! {
    /// TQ1_0: 256 weights, 1.6875 bits each. `w = d * (q - 1)`, `q` in 0 to 2.
    ///
    /// A byte holds several `q`, as the digits of a number in base 3: byte `b` is the fraction `b /
    /// 256`, and its digit `e` is what passes the point when the fraction is multiplied by 3 for the `e
    /// + 1`-th time: `q = ((b * 3^e) % 256) * 3 / 256`.
    BlockTq1_0: 54 bytes {
        /// Five digits each. Element `i < 160`: digit `i / 32` of byte `i % 32`. Element `160 <= i <
        /// 240`: digit `(i - 160) / 16` of byte `32 + i % 16`.
        qs: [u8; 48],
        /// Four digits each. Element `i >= 240`: digit `(i - 240) / 4` of byte `i % 4`.
        qh: [u8; 4],
        /// Scale.
        d: Half,
    }
}

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
    encode(isa, groups: 1 x 256) => {
        let (d, q) = scaled::<Int<-1, 1>, 256>(isa, groups);
        let (mut qs, mut qh) = ([0; 48], [0; 4]);
        let (first, rest) = q.split_at(160);
        let (second, third) = rest.split_at(80);
        let (qs_first, qs_second) = qs.split_at_mut(32);
        trits(first, qs_first);
        trits(second, qs_second);
        trits(third, &mut qh);
        BlockTq1_0 { qs, qh, d }
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

blocks! {
    /// TQ2_0: 256 weights, 2.0625 bits each. `w = d * (q - 1)`, `q` in 0 to 2 (and 3, which no encoder
    /// writes).
    BlockTq2_0: 66 bytes {
        /// `q`: as in [`BlockQ2K`](crate::blocks::BlockQ2K).
        qs: [u8; 64],
        /// Scale.
        d: Half,
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
    encode(isa, groups: 1 x 256) => {
        let (d, q) = scaled::<Int<-1, 1>, 256>(isa, groups);
        BlockTq2_0 { qs: pack::<2, 32, 64>(&q), d }
    },
    simd<P>: {
        scales(b) => (P::half(b.d), [1; 8]),
        codes<B>(b, i) => B::load(b.qs.as_ptr().add(i / 128 * 32)).shr((i / 32 % 4 * 2) as u32).low(2).minus(1),
        wide<W>(b, i) shifted(at: [0, 2, 4, 6, 0, 2, 4, 6]) => {
            W::twice(b.qs.as_ptr().add(i / 128 * 32)).field(at, at, 2)
        },
    }
}
