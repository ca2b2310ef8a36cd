//! The names of what mixtures of experts have.

use super::{is_mixture, name, Name, Network};
use crate::model::{Architecture, Config, Experts};

fn of_shared(c: &Config) -> usize {
    c.experts.and_then(|e| e.shared).map_or(0, |shared| shared.intermediate)
}
fn of_experts(c: &Config, dims: impl Fn(&Experts) -> Vec<usize>) -> Vec<usize> {
    c.experts.as_ref().map(dims).unwrap_or_default()
}
/// Mixtures of the architecture `llama` and those of Phi, whose checkpoints have names of their own.
fn is_mixtral(c: &Config) -> bool {
    is_mixture(c) && matches!(c.architecture, Architecture::Llama | Architecture::PhiMoe)
}
fn has_biases(c: &Config) -> bool {
    c.experts.is_some_and(|e| e.biases)
}
fn is_shared(c: &Config) -> bool {
    of_shared(c) > 0 && !has_normed(c)
}
/// Whether experts have norms of their own.
pub(super) fn has_normed(c: &Config) -> bool {
    c.experts.is_some_and(|e| e.normed)
}
/// Qwen's network beside experts, which has a gate.
fn is_gated(c: &Config) -> bool {
    c.experts.and_then(|e| e.shared).is_some_and(|shared| shared.gated)
}
fn is_ernie(c: &Config) -> bool {
    c.architecture == Architecture::Ernie45Moe
}

/// The network beside experts.
pub(in crate::model) const SHARED: Network = [
    name("blk.{}.ffn_gate_shexp.weight", "model.layers.{}.mlp.shared_experts.gate_proj.weight", |c| {
        vec![c.hidden, of_shared(c)]
    })
    .named_if(is_gated, "model.layers.{}.mlp.shared_expert.gate_proj.weight")
    .if_so(|c| is_shared(c) && c.gated)
    .of_mixtures(),
    name("blk.{}.ffn_up_shexp.weight", "model.layers.{}.mlp.shared_experts.up_proj.weight", |c| {
        vec![c.hidden, of_shared(c)]
    })
    .named_if(is_gated, "model.layers.{}.mlp.shared_expert.up_proj.weight")
    .if_so(is_shared)
    .of_mixtures(),
    name("blk.{}.ffn_down_shexp.weight", "model.layers.{}.mlp.shared_experts.down_proj.weight", |c| {
        vec![of_shared(c), c.hidden]
    })
    .named_if(is_gated, "model.layers.{}.mlp.shared_expert.down_proj.weight")
    .if_so(is_shared)
    .of_mixtures(),
];
pub(in crate::model) const SHARED_GATE: Name =
    name("blk.{}.ffn_gate_inp_shexp.weight", "model.layers.{}.mlp.shared_expert_gate.weight", |c| {
        vec![c.hidden]
    })
    .if_so(is_gated)
    .of_mixtures();
/// The experts: in GGUF files one behind the other in one tensor. (Those of gpt-oss, too, once its checkpoint's one tensor for gate and up is taken apart.)
pub(in crate::model) const EXPERTS: Network = [
    name("blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.*.gate_proj.weight", |c| {
        of_experts(c, |e| vec![c.hidden, e.intermediate, e.count])
    })
    .named_if(is_mixtral, "model.layers.{}.block_sparse_moe.experts.*.w1.weight")
    .named_if(has_biases, "model.layers.{}.mlp.experts.gate_up_proj.gate")
    .if_so(|c| c.gated && !c.fused_experts)
    .of_mixtures(),
    name("blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.*.up_proj.weight", |c| {
        of_experts(c, |e| vec![c.hidden, e.intermediate, e.count])
    })
    .named_if(is_mixtral, "model.layers.{}.block_sparse_moe.experts.*.w3.weight")
    .named_if(has_biases, "model.layers.{}.mlp.experts.gate_up_proj.up")
    .if_so(|c| !c.fused_experts)
    .of_mixtures(),
    name("blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.*.down_proj.weight", |c| {
        of_experts(c, |e| vec![e.intermediate, c.hidden, e.count])
    })
    .named_if(is_mixtral, "model.layers.{}.block_sparse_moe.experts.*.w2.weight")
    .named_if(|c| has_biases(c) || c.fused_experts, "model.layers.{}.mlp.experts.down_proj")
    .of_mixtures(),
];
/// Gate and up of each expert, one below the other.
pub(in crate::model) const FUSED_EXPERTS: Name =
    name("blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", |c| {
        of_experts(c, |e| vec![c.hidden, 2 * e.intermediate, e.count])
    })
    .if_so(|c| c.fused_experts)
    .of_mixtures();
/// A factor for each expert.
pub(in crate::model) const EXPERT_FACTORS: Name =
    name("blk.{}.ffn_down_exps.scale", "model.layers.{}.router.per_expert_scale", |c| {
        of_experts(c, |e| vec![e.count])
    })
    .if_so(|c| c.experts.is_some_and(|e| e.factors))
    .of_mixtures();
/// In front of the router and of the experts, and behind the network beside these and behind them.
pub(in crate::model) const ROUTER_NORM: Name =
    name("blk.{}.ffn_gate_inp.scale", "model.layers.{}.router.scale", |c| vec![c.hidden])
        .if_so(has_normed)
        .of_mixtures();
pub(in crate::model) const EXPERTS_NORM: Name =
    name("blk.{}.pre_ffw_norm_2.weight", "model.layers.{}.pre_feedforward_layernorm_2.weight", |c| {
        vec![c.hidden]
    })
    .if_so(has_normed)
    .of_mixtures();
pub(in crate::model) const POST_SHARED_NORM: Name =
    name("blk.{}.post_ffw_norm_1.weight", "model.layers.{}.post_feedforward_layernorm_1.weight", |c| {
        vec![c.hidden]
    })
    .if_so(has_normed)
    .of_mixtures();
pub(in crate::model) const POST_EXPERTS_NORM: Name =
    name("blk.{}.post_ffw_norm_2.weight", "model.layers.{}.post_feedforward_layernorm_2.weight", |c| {
        vec![c.hidden]
    })
    .if_so(has_normed)
    .of_mixtures();
/// The biases of the experts, one behind the other in one tensor.
pub(in crate::model) const EXPERT_BIASES: Network = [
    name("blk.{}.ffn_gate_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias.gate", |c| {
        of_experts(c, |e| vec![e.intermediate, e.count])
    })
    .if_so(has_biases)
    .of_mixtures(),
    name("blk.{}.ffn_up_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias.up", |c| {
        of_experts(c, |e| vec![e.intermediate, e.count])
    })
    .if_so(has_biases)
    .of_mixtures(),
    name("blk.{}.ffn_down_exps.bias", "model.layers.{}.mlp.experts.down_proj_bias", |c| {
        of_experts(c, |e| vec![c.hidden, e.count])
    })
    .if_so(has_biases)
    .of_mixtures(),
];
pub(in crate::model) const ROUTER: Name =
    name("blk.{}.ffn_gate_inp.weight", "model.layers.{}.mlp.gate.weight", |c| {
        of_experts(c, |e| vec![c.hidden, e.count])
    })
    .named_if(is_mixtral, "model.layers.{}.block_sparse_moe.gate.weight")
    .named_if(has_biases, "model.layers.{}.mlp.router.weight")
    .of_mixtures();
pub(in crate::model) const ROUTER_BIAS: Name =
    name("blk.{}.ffn_gate_inp.bias", "model.layers.{}.mlp.router.bias", |c| of_experts(c, |e| vec![e.count]))
        .if_so(has_biases)
        .of_mixtures();
/// What is added to scores of experts for choosing alone.
pub(in crate::model) const SELECTION_BIAS: Name =
    name("blk.{}.exp_probs_b.bias", "model.layers.{}.mlp.gate.e_score_correction_bias", |c| {
        of_experts(c, |e| vec![e.count])
    })
    .named_if(is_ernie, "model.layers.{}.mlp.moe_statics.e_score_correction_bias")
    .if_so(|c| c.experts.is_some_and(|e| e.selection_bias))
    .of_mixtures();
