//! Blocks and f16 for weights that are stored anew.

use gllm_kernels_core::codebooks::FP4_VALUES;
use gllm_kernels_core::f16;

/// Weights of a block of `Q6_K`, its bytes, and the weights that share a scale there and in NVFP4.
pub(super) const SUPER: usize = 256;
pub(super) const BYTES: usize = 210;
pub(super) const GROUP: usize = 16;

/// Writes a block of `Q6_K` of E2M1 codes, the scales of its groups, and a factor for all; whether that was possible. Of the largest scale, 64 to 127 units are
/// taken; E4M3 has 4 digits, so that scales down to an eighth of it are whole numbers of units, too.
pub(super) fn q6_k(
    to: &mut [u8],
    code: impl Fn(usize) -> u8,
    scales: [f32; SUPER / GROUP],
    factor: f32,
) -> bool {
    let largest = scales.iter().fold(0.0f32, |most, scale| most.max(scale.abs()));
    // The largest power of 2 that is not above it has the same exponent.
    let unit = f32::from_bits(largest.to_bits() & 0x7f80_0000) / 64.0;
    // A number of the block stands for twice an E2M1 number. Weights of up to 0.08 have such scales below 2^-14, and those of up to 0.02 below 2^-16.
    let (d, finite) = (half(unit * factor / 2.0, 9), scales.iter().all(|scale| scale.is_finite()));
    let Some(d) = d.filter(|_| finite) else { return false };
    let number = |i: usize| (FP4_VALUES[usize::from(code(i) & 15)] + 32) as u8;
    let (low, rest) = to.split_at_mut(128);
    let (high, rest) = rest.split_at_mut(64);
    for (i, to) in low.iter_mut().enumerate() {
        let first = i / 64 * 128 + i % 64;
        *to = number(first) & 15 | (number(first + 64) & 15) << 4;
    }
    for (i, to) in high.iter_mut().enumerate() {
        let first = i / 32 * 128 + i % 32;
        *to = (0..4).fold(0, |byte, pair| byte | number(first + 32 * pair) >> 4 << (2 * pair));
    }
    let units = |scale: f32| if unit > 0.0 { (scale / unit).round() as i8 as u8 } else { 0 };
    rest.iter_mut().zip(scales).for_each(|(to, scale)| *to = units(scale));
    rest[SUPER / GROUP..].copy_from_slice(&d.to_le_bytes());
    true
}

/// A scale in f16, if that has so many digits of it; f16 has 11, and below 2^-14 less.
pub(super) fn half(scale: f32, digits: i32) -> Option<f16> {
    let half = f16::from_f32(scale);
    ((half.to_f32() - scale).abs() <= scale.abs() * 0.5f32.powi(digits)).then_some(half)
}

/// Writes an output's weights in f16.
///
/// # Errors
/// A reason: f16 cannot hold one.
pub(super) fn halves(output: usize, weights: impl Iterator<Item = f32>, to: &mut [u8]) -> Result<(), String> {
    for (input, (to, weight)) in to.chunks_exact_mut(2).zip(weights).enumerate() {
        let half = f16::from_f32(weight);
        if !half.is_finite() {
            return Err(format!(
                "the weight of output {output}, input {input} is {weight}, which f16 cannot hold"
            ));
        }
        to.copy_from_slice(&half.to_le_bytes());
    }
    Ok(())
}
