//! 4-bit floating-point numbers with a scale of 8 bits.

use crate::quant::codebooks::{e8m0_half, ue4m3_half, FP4_VALUES};
use crate::quant::encode::grid::Fp4;

/// `2^n` for `-126 <= n <= 127`.
fn power(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

blocks! {
    /// MXFP4: 32 weights, 4.25 bits each. `w = s * v`, `s =`
    /// [`e8m0_half`](crate::codebooks::e8m0_half)`(e)`, `v` entry `q` of
    /// [`FP4_VALUES`](crate::codebooks::FP4_VALUES).
    ///
    /// The OCP Microscaling format: `s` is half of its scale, `v` twice its number. Its NaN scale (`e =
    /// 255`) is an ordinary power of two here, so weights may overflow to infinity, but are never NaN.
    BlockMxfp4: 17 bytes {
        /// Scale.
        e: u8,
        /// `q`: as in [`BlockQ4_0`](crate::blocks::BlockQ4_0).
        qs: [u8; 16],
    }
}

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
    encode(isa, groups: 1 x 32, up to: MAX_SINGLE) => {
        let [group] = groups;
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
        BlockMxfp4 { e, qs: pack::<4, 16, 16>(&codes::<Fp4, 32>(isa, group, power(best), 0.0)) }
    },
    simd<P>: {
        scales(first, n, out) => converted::<_, 1>(first, n, out, |b| [b.e], P::e8m0),
        codes<B>(b, _i) => B::load_twice(b.qs.as_ptr()).nibbles().lookup(&FP4_VALUES),
    }
}

blocks! {
    /// NVFP4: 64 weights in groups of 16, 4.5 bits each. `w = s * v`, `s =`
    /// [`ue4m3_half`](crate::codebooks::ue4m3_half)`(d)`, `v` entry `q` of
    /// [`FP4_VALUES`](crate::codebooks::FP4_VALUES).
    ///
    /// NVIDIA's format, four groups a block: `s` is half of its scale, `v` twice its number. Its scale
    /// for the whole tensor is not part of the block.
    BlockNvfp4: 36 bytes {
        /// `d` of group `g = i / 16`: byte `g`.
        d: [u8; 4],
        /// `q`: element `i` in byte `i / 16 * 8 + i % 8`, in its low half if `i / 8` is even, else in
        /// its high half.
        qs: [u8; 32],
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
    encode(isa, groups: 4 x 16, up to: 224.0 * 12.0) => {
        let d = groups.map(|group| {
            let ideal = scale::<Fp4, 16>(isa, &group);
            // Codes of scales are in ascending order.
            let above = (0..0x7f).take_while(|&d| ue4m3_half(d) < ideal).count() as u8;
            let near = [2, 1, 0, 3].map(|n| (above + n).saturating_sub(2).min(0x7e));
            let trials = isa.measure::<Fp4, 16>(&group, near.map(|d| (ue4m3_half(d), 0.0)));
            near.into_iter().find(|&d| ue4m3_half(d) == trials.best().line.0).unwrap_or(0)
        });
        let q = group_codes::<Fp4, 16, 4>(isa, groups, &d.map(|d| (ue4m3_half(d), 0.0)));
        BlockNvfp4 { d, qs: pack::<4, 8, 32>(q.as_flattened()) }
    },
    simd<P>: {
        scales(first, n, out) => converted::<_, 4>(first, n, out, |b| b.d, P::ue4m3),
        // Low halves of two groups, then their high halves: each group wants its own.
        codes<B>(b, i) => {
            B::load_twice(b.qs.as_ptr().add(i / 2)).nibbles().swap_middle().lookup(&FP4_VALUES)
        },
    }
}
