//! Formats of 4-bit floating-point numbers.

use super::fit::{largest, scale};
use super::grid::Fp4;
use super::measure::{Group, Isa};
use super::{codes, group_codes, pack, Encode, MAX_SINGLE};
use crate::codebooks::ue4m3_half;
use crate::quant::blocks::*;

/// `2^n` for `-126 <= n <= 127`.
fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

impl Encode<32, 1> for BlockMxfp4 {
    const LIMIT: f32 = MAX_SINGLE;
    fn encode(isa: Isa, [group]: &[Group<32>; 1]) -> Self {
        // In units of the largest magnitude's power of two nothing overflows.
        let most = largest(&group.x);
        let exponent = ((most.to_bits() >> 23) as i32 - 127).clamp(-100, 126);
        let unit = power(-exponent);
        let group = &Group { x: group.x.map(|x| x * unit), ..*group };
        // The largest is 1 to 2 now, and that of the format 12 times a scale.
        let scales = [-3, -2, -4];
        let trials = isa.measure::<Fp4, 32>(group, scales.map(|n| (power(n), 0.0)));
        let best = scales.into_iter().find(|&n| power(n) == trials.best().line.0).unwrap_or(-3);
        let e = (128 + exponent + best) as u8;
        Self { e, qs: pack::<4, 16, 16>(&codes::<Fp4, 32>(group, power(best), 0.0)) }
    }
}

impl Encode<16, 4> for BlockNvfp4 {
    // The largest scale times the largest value.
    const LIMIT: f32 = 224.0 * 12.0;
    fn encode(isa: Isa, groups: &[Group<16>; 4]) -> Self {
        let d = groups.map(|group| {
            let ideal = scale::<Fp4, 16>(isa, &group);
            // Codes of scales are in ascending order.
            let above = (0..0x7f).take_while(|&d| ue4m3_half(d) < ideal).count() as u8;
            let near = [2, 1, 0, 3].map(|n| (above + n).saturating_sub(2).min(0x7e));
            let trials = isa.measure::<Fp4, 16>(&group, near.map(|d| (ue4m3_half(d), 0.0)));
            near.into_iter().find(|&d| ue4m3_half(d) == trials.best().line.0).unwrap_or(0)
        });
        let q = group_codes::<Fp4, 16, 4>(groups, &d.map(|d| (ue4m3_half(d), 0.0)));
        Self { d, qs: pack::<4, 8, 32>(q.as_flattened()) }
    }
}
