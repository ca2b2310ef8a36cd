//! The table of tensors of a model: their names in GGUF files and in checkpoints, and their shapes.

mod all;
mod attention;
mod experts;
mod streams;

pub(super) use all::*;
pub(super) use attention::*;
pub(super) use experts::*;
pub(super) use streams::*;

use super::{Architecture, Config, Recurrence, Rule};

/// Who named a model's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// llama.cpp, for GGUF files.
    Gguf,
    /// Hugging Face's library, for checkpoints.
    HuggingFace,
}

/// A question about a model.
type Whether = fn(&Config) -> bool;

/// A tensor by its role.
#[derive(Clone, Copy)]
pub(super) struct Name {
    /// In GGUF files; `{}` is the layer's number.
    pub(super) gguf: &'static str,
    /// In Hugging Face's checkpoints, where `*` is the number of an expert, each of which has a tensor, or, outside layers, of a residual stream; of encoders, in those of BERT.
    hf: &'static str,
    /// Where it has another name there, and which: the first that is so counts.
    other_hf: [Option<(Whether, &'static str)>; 3],
    /// The same of GGUF files.
    other_gguf: [Option<(Whether, &'static str)>; 3],
    /// Dimensions, the contiguous one first: inputs and outputs of a matrix.
    dims: fn(&Config) -> Vec<usize>,
    /// Whether a model has it.
    needed: Whether,
    /// Which of its layers have it, if it is a layer's.
    layers: Layers,
}

/// Layers by their feed-forward networks, or by what they have in place of attention.
#[derive(Clone, Copy)]
enum Layers {
    All,
    Dense,
    Mixtures,
    Networks,
    Attention,
    Linear,
    Delta,
    StateSpace,
    Convolution,
    WithKeys,
    WithInputNorm,
}

const fn name(gguf: &'static str, hf: &'static str, dims: fn(&Config) -> Vec<usize>) -> Name {
    Name { gguf, hf, other_hf: [None; 3], other_gguf: [None; 3], dims, needed: |_| true, layers: Layers::All }
}

impl Name {
    const fn if_so(self, needed: Whether) -> Self {
        Self { needed, ..self }
    }

    /// Of layers without experts.
    const fn dense(self) -> Self {
        Self { layers: Layers::Dense, ..self }
    }

    /// Of layers with experts.
    const fn of_mixtures(self) -> Self {
        Self { layers: Layers::Mixtures, ..self }
    }

    const fn named_if(self, so: Whether, hf: &'static str) -> Self {
        Self { other_hf: [Some((so, hf)), self.other_hf[0], self.other_hf[1]], ..self }
    }

    const fn in_gguf_if(self, so: Whether, gguf: &'static str) -> Self {
        Self { other_gguf: [Some((so, gguf)), self.other_gguf[0], self.other_gguf[1]], ..self }
    }

    /// Of layers with any network.
    const fn of_networks(self) -> Self {
        Self { layers: Layers::Networks, ..self }
    }

    /// Of layers with linear attention.
    const fn linear(self) -> Self {
        Self { layers: Layers::Linear, ..self }
    }

    /// Of those by the gated delta rule.
    const fn delta(self) -> Self {
        Self { layers: Layers::Delta, ..self }
    }

    /// Of those with a state space.
    const fn state_space(self) -> Self {
        Self { layers: Layers::StateSpace, ..self }
    }

    /// Of layers with a short convolution.
    const fn convolution(self) -> Self {
        Self { layers: Layers::Convolution, ..self }
    }

    /// Of layers with attention that have keys of their own.
    const fn with_keys(self) -> Self {
        Self { layers: Layers::WithKeys, ..self }
    }

    /// Of layers that norm what their attention takes.
    const fn of_input_norm(self) -> Self {
        Self { layers: Layers::WithInputNorm, ..self }
    }

    /// Of layers with attention.
    const fn attention(self) -> Self {
        Self { layers: Layers::Attention, ..self }
    }

    /// Whether a model of this kind has the tensor; if it is a layer's, whether this layer has it.
    pub(super) fn needed(&self, config: &Config, layer: usize) -> bool {
        let here = match self.layers {
            Layers::All => true,
            Layers::Dense => {
                !config.layer[layer].without_network && (!config.layer[layer].experts || has_normed(config))
            }
            Layers::Mixtures => config.layer[layer].experts,
            Layers::Networks => !config.layer[layer].without_network,
            Layers::Attention => config.attends(layer),
            Layers::WithKeys => config.attends(layer) && config.layer[layer].keys_of.is_none(),
            Layers::WithInputNorm => {
                config.norms_input(layer)
                    && !config.norms_unweighted
                    && !config.layer[layer].without_attention
            }
            Layers::Linear => matches!(config.recurrence_of(layer), Some(Recurrence::Linear(_))),
            Layers::Delta => {
                matches!(config.recurrence_of(layer), Some(Recurrence::Linear(of)) if of.rule != Rule::StateSpace)
            }
            Layers::StateSpace => {
                matches!(config.recurrence_of(layer), Some(Recurrence::Linear(of)) if of.rule == Rule::StateSpace)
            }
            Layers::Convolution => matches!(config.recurrence_of(layer), Some(Recurrence::Convolution(_))),
        };
        here && (self.needed)(&config.with_sizes_of(layer))
    }

    /// The dimensions of a layer's tensor, the contiguous one first. Where each expert has a tensor, or each stream, this is about one of them.
    pub(super) fn dims(&self, naming: Naming, config: &Config, layer: usize) -> Vec<u64> {
        let mut dims = (self.dims)(&config.with_sizes_of(layer));
        if self.is_of_one(naming, config) {
            dims.pop();
        }
        dims.into_iter().map(|d| d as u64).collect()
    }

    fn is_of_one(&self, naming: Naming, config: &Config) -> bool {
        naming == Naming::HuggingFace && self.hf(config).contains('*')
    }

    /// How many tensors of this role a layer has, or the model outside layers: one, or one for each expert or each stream but the first.
    pub(super) fn count(&self, naming: Naming, config: &Config) -> usize {
        match self.is_of_one(naming, config) {
            false => 1,
            true if self.hf.contains("{}") => config.experts.map_or(1, |experts| experts.count),
            true => config.streams.map_or(1, |streams| streams.others()),
        }
    }

    /// The name that a model's tensor has, of an expert or a stream if each has one.
    pub(super) fn of(&self, naming: Naming, config: &Config, [layer, expert]: [usize; 2]) -> String {
        let of_network = matches!(self.layers, Layers::Networks | Layers::Dense | Layers::Mixtures);
        let number = config.numbers[layer][usize::from(of_network)];
        match naming {
            Naming::Gguf => other(&self.other_gguf, self.gguf, config).replace("{}", &number.to_string()),
            Naming::HuggingFace => self.in_hf(config, number).replace('*', &expert.to_string()),
        }
    }

    /// The name that the tensor of a layer has if a model is not special.
    pub(super) fn in_any(&self, naming: Naming, layer: usize) -> String {
        let name = if naming == Naming::Gguf { self.gguf } else { self.hf };
        name.replace("{}", &layer.to_string())
    }

    fn hf(&self, config: &Config) -> &'static str {
        other(&self.other_hf, self.hf, config)
    }

    /// The name in a checkpoint of Hugging Face's library, of any expert.
    pub(super) fn in_hf(&self, config: &Config, layer: usize) -> String {
        self.hf(config).replace("{}", &layer.to_string())
    }
}

/// The first of other names that a model has, or the usual one.
fn other(others: &[Option<(Whether, &'static str)>], usual: &'static str, config: &Config) -> &'static str {
    others.iter().flatten().find(|(so, _)| so(config)).map_or(usual, |(_, name)| name)
}

/// What attention gives.
fn mixed(c: &Config) -> usize {
    c.mixed()
}
fn queries(c: &Config) -> usize {
    c.heads * c.latent_attention.map_or(c.query_step(c.head_dim), |l| l.query())
}
fn keys(c: &Config) -> usize {
    c.kv_heads * c.head_dim
}

fn inwards(c: &Config) -> Vec<usize> {
    vec![c.hidden, c.intermediate]
}
fn outwards(c: &Config) -> Vec<usize> {
    vec![c.intermediate, c.hidden]
}
fn per_layer(c: &Config) -> usize {
    c.per_layer.unwrap_or(0)
}
fn has_per_layer(c: &Config) -> bool {
    c.per_layer.is_some()
}
fn is_mixture(c: &Config) -> bool {
    c.experts.is_some()
}
/// GLM 4 of 2025, whose checkpoints have names of their own for norms.
fn is_glm4(c: &Config) -> bool {
    c.architecture == Architecture::Glm4
}
/// Whether norms of queries and keys have weights.
fn has_norm_weights(c: &Config) -> bool {
    c.qk_norm && !c.qk_norm_unweighted
}
/// Models whose files name the norm behind the last layer by the embedding.
fn is_lfm2(c: &Config) -> bool {
    matches!(c.architecture, Architecture::Lfm2 | Architecture::Lfm2Moe)
}
/// Models whose files count networks among the layers, and name the norms in front of both alike.
fn is_nemotron_h(c: &Config) -> bool {
    matches!(c.architecture, Architecture::NemotronH | Architecture::NemotronHMoe)
}
/// Models whose network has the same name in checkpoints whether there are experts beside it or not.
fn is_granite_hybrid(c: &Config) -> bool {
    c.architecture == Architecture::GraniteHybrid
}
/// Falcon with a norm in front of attention and another one in front of the network.
fn has_two_norms(c: &Config) -> bool {
    c.architecture == Architecture::Falcon && !c.shared_norm
}
fn is_starcoder2(c: &Config) -> bool {
    c.architecture == Architecture::StarCoder2
}
fn is_apart(c: &Config) -> bool {
    !c.fused_qkv && !is_latent(c)
}
fn is_latent(c: &Config) -> bool {
    c.latent_attention.is_some()
}
/// Whether queries are two products.
fn is_twice(c: &Config) -> bool {
    c.latent_attention.is_some_and(|l| l.query_rank.is_some())
}
fn is_normed(c: &Config) -> bool {
    c.residual_norms
}
fn is_not_normed(c: &Config) -> bool {
    !c.residual_norms
}
/// Whether the network has a norm in front of it, and no other has its weight.
fn has_own_norm(c: &Config) -> bool {
    c.input_norms && !c.shared_norm
}
/// The weights of norms of queries, or of keys, of which there are so many heads.
fn normed_together(c: &Config, heads: usize) -> Vec<usize> {
    match (c.qk_norm_whole, c.qk_norm_each) {
        (true, _) => vec![heads * c.head_dim],
        (_, true) => vec![c.head_dim, heads],
        _ => vec![c.head_dim],
    }
}

/// Weight and bias of a norm.
pub(super) type Norm = [Name; 2];
/// The matrices of a feed-forward network, or their biases: gate, up and down.
pub(super) type Network = [Name; 3];

pub(super) const EMBEDDING: Name =
    name("token_embd.weight", "model.embed_tokens.weight", |c| vec![c.hidden, c.vocabulary])
        .named_if(is_normed, "embeddings.word_embeddings.weight");
pub(super) const OUTPUT: Name = name("output.weight", "lm_head.weight", |c| vec![c.hidden, c.vocabulary])
    .if_so(|c| !c.tied_embeddings && c.classifier.is_none());
/// Added to the embedding.
pub(super) const POSITIONS: Name =
    name("position_embd.weight", "embeddings.position_embeddings.weight", |c| vec![c.hidden, c.context])
        .if_so(|c| c.position_embeddings);
pub(super) const TOKEN_TYPES: Name =
    name("token_types.weight", "embeddings.token_type_embeddings.weight", |c| vec![c.hidden, c.token_types])
        .if_so(|c| c.token_types > 0);
pub(super) const EMBEDDING_NORM: Norm = [
    name("token_embd_norm.weight", "embeddings.LayerNorm.weight", |c| vec![c.hidden])
        .if_so(|c| c.embedding_norm),
    name("token_embd_norm.bias", "embeddings.LayerNorm.bias", |c| vec![c.hidden]).if_so(is_normed),
];
/// The output matrix of models that rank texts.
pub(super) const CLASSIFIER: Name = name("cls.output.weight", "score.weight", |c| vec![c.hidden, c.logits()])
    .if_so(|c| c.classifier.is_some());
pub(super) const CLASSIFIER_BIAS: Name = name("cls.output.bias", "score.bias", |c| vec![c.logits()])
    .if_so(|c| c.classifier.as_ref().is_some_and(|classifier| classifier.bias.is_some()));
pub(super) const OUTPUT_BIAS: Name =
    name("output.bias", "lm_head.bias", |c| vec![c.vocabulary]).if_so(|c| c.output_bias);
/// Some files name it by the embedding.
pub(super) const OUTPUT_NORM: Name = name("output_norm.weight", "model.norm.weight", |c| vec![c.hidden])
    .in_gguf_if(is_lfm2, "token_embd_norm.weight")
    .named_if(is_lfm2, "model.embedding_norm.weight")
    .if_so(|c| !c.residual_norms && !c.norms_unweighted);
pub(super) const OUTPUT_NORM_BIAS: Name =
    name("output_norm.bias", "model.norm.bias", |c| vec![c.hidden]).if_so(|c| c.norm_biases);

pub(super) const ATTENTION_NORM: Name =
    name("blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", |c| vec![c.hidden])
        .in_gguf_if(has_two_norms, "blk.{}.attn_norm_2.weight")
        .named_if(
            |c| is_nemotron_h(c) || c.architecture == Architecture::Mamba2,
            "model.layers.{}.norm.weight",
        )
        .of_input_norm();
pub(super) const ATTENTION_NORM_BIAS: Name =
    name("blk.{}.attn_norm.bias", "model.layers.{}.input_layernorm.bias", |c| vec![c.hidden])
        .in_gguf_if(has_two_norms, "blk.{}.attn_norm_2.bias")
        .if_so(|c| c.norm_biases);
/// Queries, keys and values in one matrix.
pub(super) const QKV: Name =
    name("blk.{}.attn_qkv.weight", "model.layers.{}.self_attn.qkv_proj.weight", |c| {
        vec![c.hidden, queries(c) + 2 * keys(c)]
    })
    .named_if(is_normed, "encoder.layer.{}.attn.Wqkv.weight")
    .if_so(|c| c.fused_qkv);
pub(super) const QKV_BIAS: Name =
    name("blk.{}.attn_qkv.bias", "model.layers.{}.self_attn.qkv_proj.bias", |c| {
        vec![queries(c) + 2 * keys(c)]
    })
    .named_if(is_normed, "encoder.layer.{}.attn.Wqkv.bias")
    .if_so(|c| c.fused_qkv && c.attention_bias);
pub(super) const Q: Name = name("blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", |c| {
    vec![c.hidden, if c.gates_apart { mixed(c) } else { queries(c) }]
})
.named_if(is_normed, "encoder.layer.{}.attention.self.query.weight")
.if_so(|c| !c.fused_qkv && !is_twice(c))
.attention();
pub(super) const K: Name =
    name("blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", |c| vec![c.hidden, keys(c)])
        .named_if(is_normed, "encoder.layer.{}.attention.self.key.weight")
        .if_so(is_apart)
        .with_keys();
pub(super) const V: Name =
    name("blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", |c| vec![c.hidden, keys(c)])
        .named_if(is_normed, "encoder.layer.{}.attention.self.value.weight")
        .if_so(|c| is_apart(c) && !c.values_are_keys)
        .with_keys();
pub(super) const ATTENTION_OUTPUT: Name =
    name("blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", |c| {
        vec![mixed(c), c.hidden]
    })
    .named_if(is_normed, "encoder.layer.{}.attention.output.dense.weight")
    .attention();
pub(super) const Q_NORM: Name =
    name("blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", |c| {
        normed_together(c, c.heads)
    })
    .named_if(|c| c.qk_norm_behind, "model.layers.{}.self_attn.query_layernorm.weight")
    .if_so(has_norm_weights)
    .attention();
pub(super) const K_NORM: Name =
    name("blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", |c| {
        normed_together(c, c.kv_heads)
    })
    .named_if(|c| c.qk_norm_behind, "model.layers.{}.self_attn.key_layernorm.weight")
    .if_so(has_norm_weights)
    .with_keys();
pub(super) const Q_BIAS: Name =
    name("blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", |c| vec![queries(c)])
        .named_if(is_normed, "encoder.layer.{}.attention.self.query.bias")
        .if_so(|c| c.attention_bias && !c.fused_qkv);
pub(super) const K_BIAS: Name =
    name("blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", |c| vec![keys(c)])
        .named_if(is_normed, "encoder.layer.{}.attention.self.key.bias")
        .if_so(|c| c.attention_bias && !c.fused_qkv);
pub(super) const V_BIAS: Name =
    name("blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", |c| vec![keys(c)])
        .named_if(is_normed, "encoder.layer.{}.attention.self.value.bias")
        .if_so(|c| c.attention_bias && !c.fused_qkv);
pub(super) const POST_ATTENTION_NORM: Name =
    name("blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight", |c| {
        vec![c.hidden]
    })
    .named_if(is_glm4, "model.layers.{}.post_self_attn_layernorm.weight")
    .if_so(|c| c.post_norms);
/// Behind the matrix of the same name.
pub(super) const ATTENTION_OUTPUT_BIAS: Name =
    name("blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias", |c| vec![c.hidden])
        .named_if(is_normed, "encoder.layer.{}.attention.output.dense.bias")
        .if_so(|c| c.attention_output_bias);
pub(super) const SINKS: Name =
    name("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks", |c| vec![c.heads])
        .if_so(|c| c.attention_sinks);
/// Some files name it by what is before it, those that count networks among the layers as in front of attention, and those of Falcon-H1 without an ending.
pub(super) const FFN_NORM: Name =
    name("blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", |c| vec![c.hidden])
        .in_gguf_if(|c| c.ffn_norm_is_post_attention, "blk.{}.post_attention_norm.weight")
        .in_gguf_if(|c| is_nemotron_h(c) || has_two_norms(c), "blk.{}.attn_norm.weight")
        .in_gguf_if(|c| c.architecture == Architecture::FalconH1, "blk.{}.ffn_norm")
        .named_if(|c| c.post_norms && !is_glm4(c), "model.layers.{}.pre_feedforward_layernorm.weight")
        .named_if(is_nemotron_h, "model.layers.{}.norm.weight")
        .if_so(|c| has_own_norm(c) && !c.norms_unweighted)
        .of_networks();
/// Of Falcon, where that in front of attention is another one.
pub(super) const SECOND_NORM: Name =
    name("blk.{}.attn_norm_2.weight", "model.layers.{}.post_attention_layernorm.weight", |c| vec![c.hidden]);
pub(super) const FFN_NORM_BIAS: Name =
    name("blk.{}.ffn_norm.bias", "model.layers.{}.post_attention_layernorm.bias", |c| vec![c.hidden])
        .in_gguf_if(has_two_norms, "blk.{}.attn_norm.bias")
        .if_so(|c| c.norm_biases && has_own_norm(c));
/// The feed-forward network of layers without experts.
pub(super) const FEED_FORWARD: Network = [
    name("blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", inwards)
        .named_if(is_normed, "encoder.layer.{}.mlp.gated_layers_w.weight")
        .named_if(is_granite_hybrid, "model.layers.{}.mlp.shared_experts.gate_proj.weight")
        .if_so(|c| c.gated && !c.fused_gate_up)
        .dense(),
    name("blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", inwards)
        .named_if(is_normed, "encoder.layer.{}.intermediate.dense.weight")
        .named_if(is_starcoder2, "model.layers.{}.mlp.c_fc.weight")
        .named_if(is_granite_hybrid, "model.layers.{}.mlp.shared_experts.up_proj.weight")
        .if_so(|c| !c.fused_gate_up)
        .dense(),
    name("blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", outwards)
        .named_if(is_normed, "encoder.layer.{}.output.dense.weight")
        .named_if(is_starcoder2, "model.layers.{}.mlp.c_proj.weight")
        .named_if(is_granite_hybrid, "model.layers.{}.mlp.shared_experts.down_proj.weight")
        .dense(),
];
/// Gate and up of the same in one matrix, in this order.
pub(super) const GATE_UP: Name =
    name("blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight", |c| {
        vec![c.hidden, 2 * c.intermediate]
    })
    .named_if(is_normed, "encoder.layer.{}.mlp.gated_layers.weight")
    .if_so(|c| c.fused_gate_up);
pub(super) const UP_BIAS: Name =
    name("blk.{}.ffn_up.bias", "encoder.layer.{}.intermediate.dense.bias", |c| vec![c.intermediate])
        .named_if(is_not_normed, "model.layers.{}.mlp.up_proj.bias")
        .named_if(is_starcoder2, "model.layers.{}.mlp.c_fc.bias")
        .if_so(|c| c.up_bias);
pub(super) const DOWN_BIAS: Name =
    name("blk.{}.ffn_down.bias", "encoder.layer.{}.output.dense.bias", |c| vec![c.hidden])
        .named_if(is_not_normed, "model.layers.{}.mlp.down_proj.bias")
        .named_if(is_starcoder2, "model.layers.{}.mlp.c_proj.bias")
        .if_so(|c| c.down_bias);
/// Behind the sums with attention and feed-forward network.
pub(super) const ATTENTION_SUM_NORM: Norm = [
    name("blk.{}.attn_output_norm.weight", "encoder.layer.{}.attention.output.LayerNorm.weight", |c| {
        vec![c.hidden]
    })
    .if_so(is_normed),
    name("blk.{}.attn_output_norm.bias", "encoder.layer.{}.attention.output.LayerNorm.bias", |c| {
        vec![c.hidden]
    })
    .if_so(is_normed),
];
pub(super) const FFN_SUM_NORM: Norm = [
    name("blk.{}.layer_output_norm.weight", "encoder.layer.{}.output.LayerNorm.weight", |c| vec![c.hidden])
        .if_so(is_normed),
    name("blk.{}.layer_output_norm.bias", "encoder.layer.{}.output.LayerNorm.bias", |c| vec![c.hidden])
        .if_so(is_normed),
];
pub(super) const POST_FFN_NORM: Name =
    name("blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight", |c| {
        vec![c.hidden]
    })
    .named_if(is_glm4, "model.layers.{}.post_mlp_layernorm.weight")
    .if_so(|c| c.post_norms);
/// The embeddings of tokens for all layers, what the usual embedding is multiplied by for these, and the norm of that.
pub(super) const PER_LAYER: Name =
    name("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", |c| {
        vec![per_layer(c) * c.layers, c.per_layer_vocabulary]
    })
    .if_so(has_per_layer);
pub(super) const PER_LAYER_PROJECTION: Name =
    name("per_layer_model_proj.weight", "model.per_layer_model_projection.weight", |c| {
        vec![c.hidden, per_layer(c) * c.layers]
    })
    .if_so(has_per_layer);
pub(super) const PER_LAYER_NORM: Name =
    name("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", |c| vec![per_layer(c)])
        .if_so(has_per_layer);
/// Of a layer, its gate for these, what the result is multiplied by, and the norm behind that.
pub(super) const PER_LAYER_GATE: Name =
    name("blk.{}.inp_gate.weight", "model.layers.{}.per_layer_input_gate.weight", |c| {
        vec![c.hidden, per_layer(c)]
    })
    .if_so(has_per_layer);
pub(super) const PER_LAYER_OUTPUT: Name =
    name("blk.{}.proj.weight", "model.layers.{}.per_layer_projection.weight", |c| {
        vec![per_layer(c), c.hidden]
    })
    .if_so(has_per_layer);
pub(super) const POST_PER_LAYER_NORM: Name =
    name("blk.{}.post_norm.weight", "model.layers.{}.post_per_layer_input_norm.weight", |c| vec![c.hidden])
        .if_so(has_per_layer);
/// A factor of the residual stream.
pub(super) const SCALE: Name =
    name("blk.{}.layer_output_scale.weight", "model.layers.{}.layer_scalar", |_| vec![1])
        .if_so(|c| c.layer[0].scale.is_some());
pub(super) const ROPE_FACTORS: Name =
    name("rope_freqs.weight", "rope_freqs.weight", |c| vec![c.ropes[0].dims / 2])
        .if_so(|c| c.ropes[0].factors.is_some() && c.long_factors.is_none());
/// Where there are two lists of them, for short texts and for long ones.
pub(super) const SHORT_FACTORS: Name =
    name("rope_factors_short.weight", "rope_factors_short.weight", |c| vec![c.ropes[0].dims / 2])
        .if_so(|c| c.long_factors.is_some());
pub(super) const LONG_FACTORS: Name =
    name("rope_factors_long.weight", "rope_factors_long.weight", |c| vec![c.ropes[0].dims / 2])
        .if_so(|c| c.long_factors.is_some());

/// What the row of a text is multiplied with behind pooling.
pub(super) const DENSE: [Name; 2] = [
    name("dense_2.weight", "dense.0.weight", |c| vec![c.hidden, c.dense.unwrap_or(0)])
        .if_so(|c| c.dense.is_some()),
    name("dense_3.weight", "dense.1.weight", |c| vec![c.dense.unwrap_or(0), c.hidden])
        .if_so(|c| c.dense.is_some()),
];
