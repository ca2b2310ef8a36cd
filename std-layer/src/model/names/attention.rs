//! The names of what recurrent layers and latent attention have, and of gates of other attention.

use super::{is_latent, is_twice, mixed, name, queries, Name};
use crate::model::{Config, LatentAttention, LinearAttention, Recurrence, Rule, ShortConvolution};

fn linear(c: &Config) -> Option<&LinearAttention> {
    match &c.recurrence {
        Some(Recurrence::Linear(of)) => Some(of),
        _ => None,
    }
}
fn of_linear(c: &Config, dims: impl Fn(&LinearAttention) -> Vec<usize>) -> Vec<usize> {
    linear(c).map(dims).unwrap_or_default()
}
fn of_convolution(c: &Config, dims: impl Fn(&ShortConvolution) -> Vec<usize>) -> Vec<usize> {
    match &c.recurrence {
        Some(Recurrence::Convolution(of)) => dims(of),
        _ => Vec::new(),
    }
}
fn of_latent(c: &Config, dims: impl Fn(&LatentAttention) -> Vec<usize>) -> Vec<usize> {
    c.latent_attention.as_ref().map(dims).unwrap_or_default()
}
fn has_decays_apart(c: &Config) -> bool {
    linear(c).is_some_and(|l| matches!(l.rule, Rule::Delta { decay_heads } if decay_heads == l.value_heads))
}

/// Gates of what attention gives, where queries have a matrix without them.
pub(in crate::model) const GATES: Name =
    name("blk.{}.attn_gate.weight", "model.layers.{}.self_attn.gate_proj.weight", |c| {
        vec![c.hidden, mixed(c)]
    })
    .if_so(|c| c.gates_apart)
    .attention();
/// What both become. No file has it.
pub(in crate::model) const QUERIES_AND_GATES: Name =
    name("blk.{}.attn_q_and_gate.weight", "model.layers.{}.self_attn.q_and_gate_proj.weight", |c| {
        vec![c.hidden, queries(c)]
    })
    .if_so(|c| c.gates_apart)
    .attention();
/// Of latent attention: the first of two products of queries.
pub(in crate::model) const LATENT_QUERY_DOWN: Name =
    name("blk.{}.attn_q_a.weight", "model.layers.{}.self_attn.q_a_proj.weight", |c| {
        of_latent(c, |l| vec![c.hidden, l.query_rank.unwrap_or(0)])
    })
    .if_so(is_twice);
pub(in crate::model) const LATENT_QUERY_NORM: Name =
    name("blk.{}.attn_q_a_norm.weight", "model.layers.{}.self_attn.q_a_layernorm.weight", |c| {
        of_latent(c, |l| vec![l.query_rank.unwrap_or(0)])
    })
    .if_so(is_twice);
/// The second one.
pub(in crate::model) const LATENT_QUERY: Name =
    name("blk.{}.attn_q_b.weight", "model.layers.{}.self_attn.q_b_proj.weight", |c| {
        of_latent(c, |l| vec![l.query_rank.unwrap_or(0), c.heads * l.query()])
    })
    .if_so(is_twice);
/// What is cached.
pub(in crate::model) const LATENT: Name =
    name("blk.{}.attn_kv_a_mqa.weight", "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", |c| {
        of_latent(c, |l| vec![c.hidden, l.cached()])
    })
    .if_so(is_latent);
pub(in crate::model) const LATENT_NORM: Name =
    name("blk.{}.attn_kv_a_norm.weight", "model.layers.{}.self_attn.kv_a_layernorm.weight", |c| {
        of_latent(c, |l| vec![l.rank])
    })
    .if_so(is_latent);
/// A matrix for each head that queries are multiplied by. (Checkpoints have one for keys and values of all heads, which is taken apart.)
pub(in crate::model) const LATENT_KEYS: Name =
    name("blk.{}.attn_k_b.weight", "model.layers.{}.self_attn.kv_b_proj.keys", |c| {
        of_latent(c, |l| vec![l.plain, l.rank, c.heads])
    })
    .if_so(is_latent);
/// A matrix for each head that results are multiplied by.
pub(in crate::model) const LATENT_VALUES: Name =
    name("blk.{}.attn_v_b.weight", "model.layers.{}.self_attn.kv_b_proj.values", |c| {
        of_latent(c, |l| vec![l.rank, l.values, c.heads])
    })
    .if_so(is_latent);
/// Both in one, as GGUF files of MiniCPM 3 have them: of each head those of keys, then those of values.
pub(in crate::model) const LATENT_BOTH: Name =
    name("blk.{}.attn_kv_b.weight", "model.layers.{}.self_attn.kv_b_proj.weight", |c| {
        of_latent(c, |l| vec![l.rank, c.heads * (l.plain + l.values)])
    })
    .if_so(|c| c.latent_both);
/// Of the gated delta rule: queries, keys and values in one matrix.
pub(in crate::model) const LINEAR_QKV: Name =
    name("blk.{}.attn_qkv.weight", "model.layers.{}.linear_attn.in_proj_qkv.weight", |c| {
        of_linear(c, |l| vec![c.hidden, l.channels()])
    })
    .delta();
pub(in crate::model) const LINEAR_GATES: Name =
    name("blk.{}.attn_gate.weight", "model.layers.{}.linear_attn.in_proj_z.weight", |c| {
        of_linear(c, |l| vec![c.hidden, l.values()])
    })
    .delta();
/// The numbers `b` and `a`, apart or in one matrix.
pub(in crate::model) const LINEAR_DECAYS: [Name; 2] = [
    name("blk.{}.ssm_beta.weight", "model.layers.{}.linear_attn.in_proj_b.weight", |c| {
        of_linear(c, |l| vec![c.hidden, l.value_heads])
    })
    .if_so(has_decays_apart)
    .delta(),
    name("blk.{}.ssm_alpha.weight", "model.layers.{}.linear_attn.in_proj_a.weight", |c| {
        of_linear(c, |l| vec![c.hidden, l.value_heads])
    })
    .if_so(has_decays_apart)
    .delta(),
];
pub(in crate::model) const LINEAR_ALL_DECAYS: Name =
    name("blk.{}.ssm_ba.weight", "model.layers.{}.linear_attn.in_proj_ba.weight", |c| {
        of_linear(c, |l| vec![c.hidden, 2 * l.value_heads])
    })
    .if_so(|c| !has_decays_apart(c))
    .delta();
/// Of a state space all matrices but the last: gates, values, keys, queries and the numbers `a`.
pub(in crate::model) const STATE_SPACE: Name =
    name("blk.{}.ssm_in.weight", "model.layers.{}.linear_attn.in_proj.weight", |c| {
        of_linear(c, |l| vec![c.hidden, l.channels() + l.values() + l.numbers()])
    })
    .state_space();
pub(in crate::model) const STATE_SPACE_BIAS: Name =
    name("blk.{}.ssm_conv1d.bias", "model.layers.{}.linear_attn.conv1d.bias", |c| {
        of_linear(c, |l| vec![l.channels()])
    })
    .state_space();
pub(in crate::model) const STATE_SPACE_SKIP: Name =
    name("blk.{}.ssm_d", "model.layers.{}.linear_attn.D", |c| of_linear(c, |l| vec![1, l.value_heads]))
        .state_space();
pub(in crate::model) const LINEAR_CONVOLUTION: Name =
    name("blk.{}.ssm_conv1d.weight", "model.layers.{}.linear_attn.conv1d.weight", |c| {
        of_linear(c, |l| vec![l.taps, l.channels()])
    })
    .linear();
pub(in crate::model) const LINEAR_DECAY_BIAS: Name =
    name("blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias", |c| {
        of_linear(c, |l| vec![l.value_heads])
    })
    .linear();
pub(in crate::model) const LINEAR_RATE: Name =
    name("blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log", |c| {
        of_linear(c, |l| match l.rule {
            Rule::Delta { .. } => vec![l.value_heads],
            Rule::StateSpace => vec![1, l.value_heads],
        })
    })
    .linear();
pub(in crate::model) const LINEAR_NORM: Name =
    name("blk.{}.ssm_norm.weight", "model.layers.{}.linear_attn.norm.weight", |c| {
        of_linear(c, |l| match (l.rule, l.normed_together()) {
            (Rule::StateSpace, n) if n < l.values() => vec![n, l.values() / n],
            (_, n) => vec![n],
        })
    })
    .if_so(|c| linear(c).is_some_and(|l| l.normed))
    .linear();
pub(in crate::model) const LINEAR_OUTPUT: Name =
    name("blk.{}.ssm_out.weight", "model.layers.{}.linear_attn.out_proj.weight", |c| {
        of_linear(c, |l| vec![l.values(), c.hidden])
    })
    .linear();
/// Of a short convolution: both gates, the first one in front, and what is convolved, in one matrix.
pub(in crate::model) const CONVOLUTION_INPUTS: Name =
    name("blk.{}.shortconv.in_proj.weight", "model.layers.{}.conv.in_proj.weight", |c| {
        of_convolution(c, |s| vec![c.hidden, 3 * s.channels])
    })
    .convolution();
pub(in crate::model) const CONVOLUTION: Name =
    name("blk.{}.shortconv.conv.weight", "model.layers.{}.conv.conv.weight", |c| {
        of_convolution(c, |s| vec![s.taps, s.channels])
    })
    .convolution();
pub(in crate::model) const CONVOLUTION_OUTPUT: Name =
    name("blk.{}.shortconv.out_proj.weight", "model.layers.{}.conv.out_proj.weight", |c| {
        of_convolution(c, |s| vec![s.channels, c.hidden])
    })
    .convolution();
