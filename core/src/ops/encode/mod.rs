//! Encoders: weights to blocks.

mod bytes;
mod fit;
mod grid;
mod k;
mod legacy;
mod measure;
mod mx;

use crate::element::{f16, Element};
use crate::isa::Scalar;
use crate::quant::blocks::*;
use crate::quant::QuantFormat;
use crate::vector::Vector;
use grid::Grid;
pub(crate) use measure::Isa;
use measure::{Group, Line};

/// The largest finite f16.
const MAX_HALF: f32 = 65504.0;

/// The limit of formats whose scales reach as far as f32: what is decoded still is finite.
const MAX_SINGLE: f32 = 1e38;

/// What is smaller counts as zero: its reciprocal and its square might not be finite and normal.
const SMALLEST: f32 = 1e-18;

/// How `M` groups of `N` weights become a block.
trait Encode<const N: usize, const M: usize>: Block {
    /// Larger magnitudes are replaced by it.
    const LIMIT: f32 = MAX_HALF;
    /// The block that leaves the least error. Importances are from 0 to 1, and not 0 for all weights.
    fn encode(isa: Isa, groups: &[Group<N>; M]) -> Self;
}

/// Encodes whole blocks; `importance`, whole blocks as well, starts over at its end.
fn blocks<E: Element, B: Encode<N, M>, const N: usize, const M: usize>(
    isa: Isa,
    x: &[E],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let mut importance = importance.unwrap_or_default().chunks_exact(N * M).cycle();
    let mut groups = [Group::<N>::EVEN; M];
    for (x, out) in x.chunks_exact(N * M).zip(out.chunks_exact_mut(size_of::<B>())) {
        for (group, x) in groups.iter_mut().zip(x.chunks_exact(N)) {
            for (to, from) in group.x.iter_mut().zip(x) {
                let x = from.to_f32();
                // A NaN is not at least anything.
                *to = if x.abs() >= SMALLEST { x.max(-B::LIMIT).min(B::LIMIT) } else { 0.0 };
            }
        }
        if let Some(importance) = importance.next() {
            // Relative to the largest, so that no sum overflows. NaN and what is negative count as 0.
            let valid = |w: &f32| if *w > 0.0 { w.min(f32::MAX) } else { 0.0 };
            let most = importance.iter().map(valid).fold(0.0, f32::max);
            for (group, importance) in groups.iter_mut().zip(importance.chunks_exact(N)) {
                for (w, importance) in group.w.iter_mut().zip(importance) {
                    *w = if most > 0.0 { valid(importance) / most } else { 1.0 };
                }
            }
        }
        groups.iter_mut().for_each(Group::sum_up);
        let block = encode::<B, N, M>(isa, &groups);
        // SAFETY: a chunk has the size of a block, which has alignment 1 and is made of bytes.
        unsafe { *out.as_mut_ptr().cast::<B>() = block };
    }
}

/// [`Encode::encode`], compiled once for all storage types.
#[inline(never)]
fn encode<B: Encode<N, M>, const N: usize, const M: usize>(isa: Isa, groups: &[Group<N>; M]) -> B {
    B::encode(isa, groups)
}

/// `1 / s`, but 0 for 0: everything is nearest to the value for 0 then.
#[inline(always)]
fn inverse(s: f32) -> f32 {
    if s == 0.0 {
        0.0
    } else {
        1.0 / s
    }
}

/// A number to the nearest integer, for magnitudes below 2^22.
fn round(t: f32) -> f32 {
    // SAFETY: every CPU has the portable instruction set.
    unsafe { <Scalar as Vector>::round(t) }
}

/// The nearest f16; never infinite or NaN.
fn half(x: f32) -> Half {
    Half::new(f16::from_f32(if x.is_nan() { 0.0 } else { x.clamp(-MAX_HALF, MAX_HALF) }))
}

/// The codes of a group for a scale `s` and a minimum `m`.
fn codes<G: Grid, const N: usize>(group: &Group<N>, s: f32, m: f32) -> [u8; N] {
    let inverse = inverse(s);
    // SAFETY: every CPU has the portable instruction set.
    group.x.map(|x| G::code(unsafe { G::nearest::<Scalar>((x + m) * inverse) }))
}

/// The codes of all groups.
fn group_codes<G: Grid, const N: usize, const M: usize>(
    groups: &[Group<N>; M],
    lines: &[Line; M],
) -> [[u8; N]; M] {
    let mut q = [[0; N]; M];
    for ((q, group), &(s, m)) in q.iter_mut().zip(groups).zip(lines) {
        *q = codes::<G, N>(group, s, m);
    }
    q
}

/// The low `BITS` of each code. A run of `RUN` bytes has `8 / BITS` runs of codes, the first in the
/// lowest bits of the bytes, one code in each.
fn pack<const BITS: usize, const RUN: usize, const BYTES: usize>(codes: &[u8]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (codes, bytes) in codes.chunks_exact(8 / BITS * RUN).zip(bytes.chunks_exact_mut(RUN)) {
        for (e, codes) in codes.chunks_exact(RUN).enumerate() {
            for (byte, code) in bytes.iter_mut().zip(codes) {
                *byte |= (code & ((1 << BITS) - 1)) << (BITS * e);
            }
        }
    }
    bytes
}

/// Encodes checked operands.
pub(crate) type Encoder<E> = fn(Isa, &[E], Option<&[f32]>, &mut [u8]);

macro_rules! encoders {
    (
        $($feature:literal { $($format:ident = $block:ident, $m:literal x $n:literal;)* })*
        without $without:literal: $($none:ident)*
    ) => {
        /// The encoder of a format, if there is one.
        pub(crate) fn encoder<E: Element>(format: QuantFormat) -> Option<Encoder<E>> {
            match format {
                $($(
                    #[cfg(feature = $feature)]
                    QuantFormat::$format => Some(blocks::<E, $block, $n, $m>),
                )*)*
                $(
                    #[cfg(feature = $without)]
                    QuantFormat::$none => None,
                )*
                // Plain floating point has no blocks.
                QuantFormat::F16 | QuantFormat::Bf16 => None,
            }
        }
    };
}
encoders! {
    "legacy" {
        Q4_0 = BlockQ4_0, 1 x 32;
        Q4_1 = BlockQ4_1, 1 x 32;
        Q5_0 = BlockQ5_0, 1 x 32;
        Q5_1 = BlockQ5_1, 1 x 32;
        Q8_0 = BlockQ8_0, 1 x 32;
        Q8_1 = BlockQ8_1, 1 x 32;
        Q1_0 = BlockQ1_0, 1 x 128;
        Q2_0 = BlockQ2_0, 1 x 64;
    }
    "k" {
        Q2K = BlockQ2K, 16 x 16;
        Q3K = BlockQ3K, 16 x 16;
        Q4K = BlockQ4K, 8 x 32;
        Q5K = BlockQ5K, 8 x 32;
        Q6K = BlockQ6K, 16 x 16;
        Q8K = BlockQ8K, 1 x 256;
    }
    "iq" {
        Iq4Nl = BlockIq4Nl, 1 x 32;
        Iq4Xs = BlockIq4Xs, 8 x 32;
    }
    "ternary" {
        Tq1_0 = BlockTq1_0, 1 x 256;
        Tq2_0 = BlockTq2_0, 1 x 256;
    }
    "mx" {
        Mxfp4 = BlockMxfp4, 1 x 32;
        Nvfp4 = BlockNvfp4, 4 x 16;
    }
    without "iq": Iq1S Iq1M Iq2Xxs Iq2Xs Iq2S Iq3Xxs Iq3S
}
