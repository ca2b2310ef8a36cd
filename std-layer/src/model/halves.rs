//! What f16 holds of scales and weights that are stored anew.

use gllm_kernels_core::f16;

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
