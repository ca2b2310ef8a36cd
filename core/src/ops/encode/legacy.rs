//! Formats whose blocks have one scale, and a minimum or not.

use super::fit::{affine, scale};
use super::grid::{Int, Iq4, Sign};
use super::measure::{Group, Isa};
use super::{codes, half, pack, Encode, MAX_HALF, MAX_SINGLE};
use crate::quant::blocks::*;

/// Formats with one f16 scale.
macro_rules! scaled {
    ($($block:ident, $grid:ty, $n:literal: |$d:ident, $codes:ident| $make:expr;)*) => {$(
        impl Encode<$n, 1> for $block {
            fn encode(isa: Isa, [group]: &[Group<$n>; 1]) -> Self {
                let $d = half(scale::<$grid, $n>(isa, group));
                let $codes = codes::<$grid, $n>(group, $d.get().to_f32(), 0.0);
                $make
            }
        }
    )*};
}
scaled! {
    BlockQ4_0, Int<-8, 7>, 32: |d, q| Self { d, qs: pack::<4, 16, 16>(&q) };
    BlockQ5_0, Int<-16, 15>, 32: |d, q| {
        Self { d, qh: U32(pack::<1, 1, 4>(&q.map(|q| q >> 4))), qs: pack::<4, 16, 16>(&q) }
    };
    BlockIq4Nl, Iq4, 32: |d, q| Self { d, qs: pack::<4, 16, 16>(&q) };
    BlockQ1_0, Sign, 128: |d, q| Self { d, qs: pack::<1, 1, 16>(&q) };
    BlockQ2_0, Int<-1, 2>, 64: |d, q| Self { d, qs: pack::<2, 1, 16>(&q) };
    BlockTq1_0, Int<-1, 1>, 256: |d, q| {
        let (mut qs, mut qh) = ([0; 48], [0; 4]);
        let (first, rest) = q.split_at(160);
        let (second, third) = rest.split_at(80);
        let (qs_first, qs_second) = qs.split_at_mut(32);
        trits(first, qs_first);
        trits(second, qs_second);
        trits(third, &mut qh);
        Self { qs, qh, d }
    };
    BlockTq2_0, Int<-1, 1>, 256: |d, q| Self { qs: pack::<2, 32, 64>(&q), d };
}

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

/// Formats with a scale and a minimum, both f16.
macro_rules! affine {
    ($($block:ident, $grid:ty, $hi:literal: |$d:ident, $m:ident, $codes:ident| $make:expr;)*) => {$(
        impl Encode<32, 1> for $block {
            fn encode(isa: Isa, [group]: &[Group<32>; 1]) -> Self {
                let (s, m) = affine::<$grid, 32>(isa, group, $hi, false);
                let ($d, $m) = (half(s), half(-m));
                let $codes = codes::<$grid, 32>(group, $d.get().to_f32(), -$m.get().to_f32());
                $make
            }
        }
    )*};
}
affine! {
    BlockQ4_1, Int<0, 15>, 15.0: |d, m, q| Self { d, m, qs: pack::<4, 16, 16>(&q) };
    BlockQ5_1, Int<0, 31>, 31.0: |d, m, q| {
        Self { d, m, qh: U32(pack::<1, 1, 4>(&q.map(|q| q >> 4))), qs: pack::<4, 16, 16>(&q) }
    };
}

impl Encode<32, 1> for BlockQ8_0 {
    const LIMIT: f32 = 127.0 * MAX_HALF;
    fn encode(isa: Isa, [group]: &[Group<32>; 1]) -> Self {
        let (d, q) = isa.bytes(&group.x);
        Self { d: half(d), qs: q.map(|q| q as u8) }
    }
}

impl Encode<32, 1> for BlockQ8_1 {
    const LIMIT: f32 = 127.0 * MAX_HALF;
    fn encode(isa: Isa, [group]: &[Group<32>; 1]) -> Self {
        let (d, q) = isa.bytes(&group.x);
        let sum: i32 = q.iter().copied().map(i32::from).sum();
        Self { d: half(d), s: half(d * sum as f32), qs: q.map(|q| q as u8) }
    }
}

impl Encode<256, 1> for BlockQ8K {
    const LIMIT: f32 = MAX_SINGLE;
    fn encode(isa: Isa, [group]: &[Group<256>; 1]) -> Self {
        let (d, q) = isa.bytes(&group.x);
        let mut bsums = [I16([0; 2]); 16];
        for (sum, q) in bsums.iter_mut().zip(q.chunks_exact(16)) {
            *sum = I16::new(q.iter().copied().map(i16::from).sum());
        }
        Self { d: Single::new(d), qs: q.map(|q| q as u8), bsums }
    }
}
