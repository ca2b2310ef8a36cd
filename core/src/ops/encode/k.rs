//! Formats whose groups have integer scales, and minima or not.

use super::fit::{lines, scales};
use super::grid::{Int, Iq4};
use super::measure::{Group, Isa};
use super::{group_codes, pack, Encode};
use crate::quant::blocks::*;

impl Encode<16, 16> for BlockQ2K {
    fn encode(isa: Isa, groups: &[Group<16>; 16]) -> Self {
        let fit = lines::<Int<0, 3>, 16, 16>(isa, groups, 3.0, 15.0);
        let q = group_codes::<Int<0, 3>, 16, 16>(groups, &fit.lines());
        let mut scales = [0; 16];
        for ((s, k), l) in scales.iter_mut().zip(fit.k).zip(fit.l) {
            *s = k as u8 | (l as u8) << 4;
        }
        Self { scales, qs: pack::<2, 32, 64>(q.as_flattened()), d: fit.d, dmin: fit.dmin }
    }
}

/// The 6-bit scales and minima of Q4_K and Q5_K.
fn scales_and_minima(k: [f32; 8], l: [f32; 8]) -> [u8; 12] {
    let (k, l) = (k.map(|k| k as u8), l.map(|l| l as u8));
    let mut bytes = [0; 12];
    for g in 0..4 {
        bytes[g] = k[g] | k[g + 4] >> 4 << 6;
        bytes[g + 4] = l[g] | l[g + 4] >> 4 << 6;
        bytes[g + 8] = (k[g + 4] & 15) | l[g + 4] << 4;
    }
    bytes
}

impl Encode<32, 8> for BlockQ4K {
    fn encode(isa: Isa, groups: &[Group<32>; 8]) -> Self {
        let fit = lines::<Int<0, 15>, 32, 8>(isa, groups, 15.0, 63.0);
        let q = group_codes::<Int<0, 15>, 32, 8>(groups, &fit.lines());
        Self {
            d: fit.d,
            dmin: fit.dmin,
            scales: scales_and_minima(fit.k, fit.l),
            qs: pack::<4, 32, 128>(q.as_flattened()),
        }
    }
}

impl Encode<32, 8> for BlockQ5K {
    fn encode(isa: Isa, groups: &[Group<32>; 8]) -> Self {
        let fit = lines::<Int<0, 31>, 32, 8>(isa, groups, 31.0, 63.0);
        let q = group_codes::<Int<0, 31>, 32, 8>(groups, &fit.lines());
        Self {
            d: fit.d,
            dmin: fit.dmin,
            scales: scales_and_minima(fit.k, fit.l),
            qh: pack::<1, 32, 32>(q.map(|q| q.map(|q| q >> 4)).as_flattened()),
            qs: pack::<4, 32, 128>(q.as_flattened()),
        }
    }
}

impl Encode<16, 16> for BlockQ3K {
    fn encode(isa: Isa, groups: &[Group<16>; 16]) -> Self {
        let fit = scales::<Int<-4, 3>, 16, 16>(isa, groups, -32.0, 31.0);
        let q = group_codes::<Int<-4, 3>, 16, 16>(groups, &fit.lines());
        let k = fit.k.map(|k| (k + 32.0) as u8);
        let low = pack::<4, 8, 8>(&k);
        let high = pack::<2, 4, 4>(&k.map(|k| k >> 4));
        let mut scales = [0; 12];
        scales.iter_mut().zip(low.into_iter().chain(high)).for_each(|(s, b)| *s = b);
        Self {
            hmask: pack::<1, 32, 32>(q.map(|q| q.map(|q| q >> 2)).as_flattened()),
            qs: pack::<2, 32, 64>(q.as_flattened()),
            scales,
            d: fit.d,
        }
    }
}

impl Encode<16, 16> for BlockQ6K {
    fn encode(isa: Isa, groups: &[Group<16>; 16]) -> Self {
        let fit = scales::<Int<-32, 31>, 16, 16>(isa, groups, -128.0, 127.0);
        let q = group_codes::<Int<-32, 31>, 16, 16>(groups, &fit.lines());
        Self {
            ql: pack::<4, 64, 128>(q.as_flattened()),
            qh: pack::<2, 32, 64>(q.map(|q| q.map(|q| q >> 4)).as_flattened()),
            scales: fit.k.map(|k| k as i8 as u8),
            d: fit.d,
        }
    }
}

impl Encode<32, 8> for BlockIq4Xs {
    fn encode(isa: Isa, groups: &[Group<32>; 8]) -> Self {
        let fit = scales::<Iq4, 32, 8>(isa, groups, -32.0, 31.0);
        let q = group_codes::<Iq4, 32, 8>(groups, &fit.lines());
        let k = fit.k.map(|k| (k + 32.0) as u8);
        Self {
            d: fit.d,
            scales_h: U16(pack::<2, 1, 2>(&k.map(|k| k >> 4))),
            scales_l: pack::<4, 1, 4>(&k),
            qs: pack::<4, 16, 128>(q.as_flattened()),
        }
    }
}
