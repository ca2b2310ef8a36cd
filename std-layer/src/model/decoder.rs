//! The decoder: the one description of what all its models compute.

use super::Config;
use crate::backend::{Linear, NormWeight, Step};

/// A step of a decoder model, operation by operation. See [`Config`] for the formulas.
///
/// # Errors
/// The step's.
pub fn decode<S: Step>(config: &Config, step: &mut S) -> Result<(), S::Error> {
    let post = |weight: NormWeight| config.post_norms.then_some(weight);
    step.embed()?;
    for layer in 0..config.layers {
        step.norm(NormWeight::Attention(layer))?;
        step.linear(Linear::Qkv(layer))?;
        step.heads(layer)?;
        if layer + 1 == config.layers && step.outputs() == 0 {
            // The caches are complete, and nobody looks at the rest.
            return Ok(());
        }
        step.attend(layer)?;
        if layer + 1 == config.layers {
            step.last_rows()?;
        }
        step.linear(Linear::AttentionOutput(layer))?;
        step.add(post(NormWeight::PostAttention(layer)))?;
        step.norm(NormWeight::Ffn(layer))?;
        if config.intermediate > 0 {
            step.linear(Linear::GateUp(layer))?;
            step.glu()?;
            step.linear(Linear::Down(layer))?;
        }
        if config.experts.is_some() {
            step.experts(layer)?;
        }
        step.add(post(NormWeight::PostFfn(layer)))?;
    }
    step.norm(NormWeight::Output)?;
    step.linear(Linear::Output)?;
    step.cap_logits()
}
