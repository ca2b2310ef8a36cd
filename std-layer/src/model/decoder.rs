//! The operations of a step of a decoder or an encoder, in their order, for all models and all backends.

use super::{Config, Pooling};
use crate::backend::{Linear, NormWeight, Step, StreamOperation};

/// A step of a decoder model, operation by operation. See [`Config`] for the formulas.
///
/// # Errors
/// The step's.
pub fn decode<S: Step>(config: &Config, step: &mut S) -> Result<(), S::Error> {
    layers(config, step)?;
    if step.outputs() == 0 {
        return Ok(());
    }
    step.norm(NormWeight::Output)?;
    step.linear(Linear::Output)?;
    step.cap_logits()
}

/// A step that gives a row for each run instead of logits, of the tokens whose logits would be asked for. It is all that encoders have.
///
/// # Errors
/// The step's.
pub fn embed<S: Step>(config: &Config, step: &mut S, pooling: Pooling) -> Result<(), S::Error> {
    layers(config, step)?;
    if step.outputs() == 0 {
        return Ok(());
    }
    if !config.residual_norms {
        step.norm(NormWeight::Output)?;
    }
    step.pool(pooling)
}

/// All layers. If nobody asks for results, the last one ends when its cache is complete.
fn layers<S: Step>(config: &Config, step: &mut S) -> Result<(), S::Error> {
    step.embed()?;
    if config.embedding_norm {
        step.renorm(NormWeight::Embedding)?;
    }
    if config.per_layer.is_some() {
        step.pass()?;
        step.linear(Linear::PerLayer)?;
        step.embed_per_layer()?;
    }
    if config.streams.is_some() {
        step.pass()?;
        step.linear(Linear::Streams)?;
        step.streams(StreamOperation::Split)?;
    }
    for layer in 0..config.layers {
        let last = layer + 1 == config.layers;
        if config.streams.is_some() {
            step.streams(StreamOperation::Predict(layer))?;
        }
        if config.layer[layer].without_attention {
            if last && step.outputs() == 0 {
                return Ok(());
            }
            if last {
                step.pass()?;
                step.last_rows()?;
            }
            input(config, step, NormWeight::Ffn(layer))?;
            gate_up(config, step, layer)?;
            network(config, step, layer)?;
            continue;
        }
        // Of the residual stream that is normed itself, products take what that has given.
        if !(config.residual_norms || layer == 0 && config.embedding_norm) {
            input(config, step, NormWeight::Attention(layer))?;
        }
        step.linear(Linear::Qkv(layer))?;
        if layer > 0 && config.layer[layer - 1].joined {
            step.add(None, 1.0)?;
            step.pass()?;
        }
        if config.latent_attention.is_some_and(|latent| latent.query_rank.is_some()) {
            step.norm_queries(layer)?;
            step.linear(Linear::Queries(layer))?;
        }
        step.heads(layer)?;
        let ends = last && step.outputs() == 0;
        if ends && !config.layer[layer].recurrent {
            return Ok(());
        }
        step.attend(layer)?;
        if ends {
            return Ok(());
        }
        if config.streams.is_some() {
            step.linear(Linear::LowRankDown(layer))?;
            step.linear(Linear::LowRankUp(layer))?;
            step.streams(StreamOperation::AddLowRank(layer))?;
        }
        if last {
            step.last_rows()?;
        }
        step.linear(Linear::AttentionOutput(layer))?;
        let attended = post(config, NormWeight::PostAttention(layer));
        if config.layer[layer].without_network {
            // What the next layer takes, too, gets what this one adds once it has been multiplied there.
            if !config.layer[layer].joined {
                step.add(attended, 1.0)?;
            }
            continue;
        }
        let own = if config.shared_norm { NormWeight::Attention(layer) } else { NormWeight::Ffn(layer) };
        if config.parallel {
            // Of the residual stream without what attention gives, which is added before the network's result takes its place.
            step.norm(own)?;
            step.linear(Linear::GateUp(layer))?;
            step.add(attended, 1.0)?;
            step.pass()?;
        } else {
            step.add(attended, 1.0)?;
            if config.residual_norms {
                step.renorm(NormWeight::PostAttention(layer))?;
            } else {
                input(config, step, own)?;
            }
            gate_up(config, step, layer)?;
        }
        network(config, step, layer)?;
    }
    for other in 0..config.streams.map_or(0, |streams| streams.others()) {
        step.streams(StreamOperation::Take(other))?;
        step.linear(Linear::Merge(other))?;
        step.streams(StreamOperation::Merge(other))?;
    }
    Ok(())
}

/// What products take.
fn input<S: Step>(config: &Config, step: &mut S, weight: NormWeight) -> Result<(), S::Error> {
    match config.input_norms {
        true => step.norm(weight),
        false => step.pass(),
    }
}

/// The norm of what is added, if there is one.
fn post(config: &Config, weight: NormWeight) -> Option<NormWeight> {
    config.post_norms.then_some(weight)
}

/// The first product of a layer's network, if every token goes through one.
fn gate_up<S: Step>(config: &Config, step: &mut S, layer: usize) -> Result<(), S::Error> {
    match config.between(layer) {
        0 => Ok(()),
        _ => step.linear(Linear::GateUp(layer)),
    }
}

/// The rest of a layer's network, and its experts.
fn network<S: Step>(config: &Config, step: &mut S, layer: usize) -> Result<(), S::Error> {
    if config.between(layer) > 0 {
        step.glu(layer)?;
        step.linear(Linear::Down(layer))?;
    }
    if config.layer[layer].experts {
        // Each of the two networks, and the router, may have a norm of its own in front of it, and each network one behind it.
        let normed = config.experts.is_some_and(|experts| experts.normed);
        if normed {
            step.put_aside(NormWeight::PostShared(layer))?;
            step.norm(NormWeight::Router(layer))?;
        }
        step.route(layer)?;
        if normed {
            step.norm(NormWeight::Experts(layer))?;
        }
        step.experts(layer)?;
        if normed {
            step.join(NormWeight::PostExperts(layer))?;
        }
    }
    let scale = config.layer[layer].scale.unwrap_or(1.0);
    if config.per_layer.is_some() {
        step.add(post(config, NormWeight::PostFfn(layer)), 1.0)?;
        step.pass()?;
        if config.streams.is_some() {
            step.streams(StreamOperation::Correct(layer))?;
        }
        step.linear(Linear::PerLayerGate(layer))?;
        step.gate_per_layer(layer)?;
        step.linear(Linear::PerLayerOutput(layer))?;
        match config.streams {
            Some(_) => step.streams(StreamOperation::AddToOthers(layer))?,
            None => step.add(Some(NormWeight::PostPerLayer(layer)), scale)?,
        }
    } else {
        step.add(post(config, NormWeight::PostFfn(layer)), scale)?;
    }
    if config.residual_norms {
        step.renorm(NormWeight::PostFfn(layer))?;
    }
    Ok(())
}
