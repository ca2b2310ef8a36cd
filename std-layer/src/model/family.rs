//! What the models of an architecture have in common and their files do not say.

use gllm_kernels_core::RopePairing;

use super::architecture::{Architecture, Gate, Scoring};

/// What is common to the models of an architecture. See [`Config`](super::Config) for what most of it means.
pub(super) struct Family {
    pub(super) architecture: Architecture,
    /// `general.architecture` in GGUF files.
    pub(super) gguf: &'static str,
    /// `model_type` in checkpoints, if they are supported.
    pub(super) checkpoints: &'static [&'static str],
    pub(super) encoder: bool,
    /// Whether the residual stream itself is normed, and nothing else.
    pub(super) residual_norms: bool,
    /// Whether it is normed behind the embedding, in place of the first norm in front of attention.
    pub(super) embedding_norm: bool,
    /// Which elements of a head are rotated together; `None` if none are.
    pub(super) pairs: Option<Pairs>,
    /// Whether nothing is rotated where a file says that scaled frequencies were not trained with.
    pub(super) rotation_is_trained: bool,
    /// Of each so many layers, the last one is not rotated.
    pub(super) unrotated_period: Option<usize>,
    /// Positions up to which attention of models is that which is computed here, if files do not say it and there is an end.
    pub(super) longest: Option<usize>,
    pub(super) windows: Windows,
    pub(super) experts: Mixture,
    /// Whether scores of the experts that are taken are divided by their sum, unless a file says otherwise.
    pub(super) normalised: bool,
    /// Factors that files of the architecture may have, if there are any.
    pub(super) scales: Option<Scales>,
    pub(super) gate: Gate,
    pub(super) gated: bool,
    /// Whether gate and up are one matrix, unless a file has them apart.
    pub(super) fused_gate_up: bool,
    /// Whether queries, keys and values are one matrix, unless a file has them apart.
    pub(super) fused_qkv: bool,
    pub(super) up_bias: bool,
    pub(super) down_bias: bool,
    /// Whether logits have biases, which files of others may have, too.
    pub(super) output_bias: bool,
    /// Whether norms are layer norms, and whether those of decoders have biases.
    pub(super) layer_norms: bool,
    pub(super) norm_biases: bool,
    /// Whether norms of the residual stream have no weights.
    pub(super) norms_unweighted: bool,
    pub(super) input_norms: bool,
    pub(super) qk_norm: bool,
    /// Whether there is such a norm where the file has its weights.
    pub(super) some_qk_norm: bool,
    /// Whether these norms have no weights, and are those of layers that are rotated alone.
    pub(super) qk_norm_unweighted: bool,
    /// Whether these norms are behind the rotation, and whether each head has weights of its own.
    pub(super) qk_norm_behind: bool,
    pub(super) qk_norm_each: bool,
    pub(super) value_norm: bool,
    /// Whether these norms are of all heads together.
    pub(super) qk_norm_whole: bool,
    /// Which layers are recurrent. Beside linear attention, queries have gates.
    pub(super) recurrent: Recurrent,
    /// Whether attention is latent.
    pub(super) latent: bool,
    pub(super) post_norms: bool,
    /// Whether attention and the feed-forward network take the same residual stream, and whether they share its norm.
    pub(super) parallel: bool,
    pub(super) shared_norm: bool,
    /// Whether they do both in models whose file has one norm in front of both, whatever `parallel` says.
    pub(super) some_parallel: bool,
    pub(super) attention_bias: bool,
    pub(super) attention_output_bias: bool,
    pub(super) attention_sinks: bool,
    /// Whether queries have gates, for which files have a matrix of its own.
    pub(super) gates_apart: bool,
    /// Whether there are linear biases.
    pub(super) alibi: bool,
    /// The number of layers of a model that has linear biases in place of rotations, which no key says.
    pub(super) alibi_layers: Option<usize>,
    pub(super) position_embeddings: bool,
    pub(super) ffn_norm_is_post_attention: bool,
    /// Whether a file's scale of logits is a factor, and no divisor.
    pub(super) logit_factor: bool,
    /// Whether files count feed-forward networks among the layers: then they have a norm in front of each layer or network, and the same name for all of these.
    pub(super) networks_are_layers: bool,
    /// Whether networks are half as wide as files say.
    pub(super) halved_networks: bool,
    /// Whether embeddings are multiplied by the square root of their length, unless a file has another factor.
    pub(super) embedding_by_width: bool,
    /// Whether layers with a window may have heads of their own, and layers without one keys for values.
    pub(super) local_heads: bool,
    /// Whether layers may differ in heads of keys and in networks, and lack either.
    pub(super) uneven: bool,
    /// Whether there are several residual streams.
    pub(super) streams: bool,
    /// The cap of logits of models whose files do not say it.
    pub(super) logit_softcap: Option<f64>,
    /// Whether scores are not scaled.
    pub(super) unscaled_scores: bool,
    /// The number of layers of a model whose scores are scaled by the width of the model instead of that of a head, which no key says.
    pub(super) scores_by_width: Option<usize>,
    /// Whether checkpoints have weights of norms that lack 1.
    pub(super) norms_lack_one: bool,
}

/// Which elements of a head are a pair.
#[derive(Clone, Copy)]
pub(super) struct Pairs {
    /// With GGUF files: llama.cpp stores the rows of some matrices in another order than checkpoints have.
    pub(super) gguf: RopePairing,
    pub(super) checkpoint: RopePairing,
    /// The part of a head that is rotated, where checkpoints do not say it; `None` if it is always the whole head.
    pub(super) part: Option<f64>,
}

/// Which layers see only some positions before a token.
pub(super) enum Windows {
    /// None, whatever a file says: Qwen 2 has a window beside `use_sliding_window: false`, which no key of GGUF files says.
    No,
    /// All, if the file has a window.
    All,
    /// All but one of each period: the first, or the last.
    Periodic { period: u64, without: Without, usual: Window, rotation: LocalRotation },
}

/// Which layer of a period has no window.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Without {
    First,
    Last,
}

/// How layers with a window rotate.
#[derive(PartialEq)]
pub(super) enum LocalRotation {
    /// Like the others.
    Same,
    /// With frequencies that are not scaled, of this base unless it is that of the others.
    Unscaled(Option<f64>),
    /// The others do not rotate.
    Alone,
}

/// How long windows are if a file does not say it.
pub(super) enum Window {
    /// Then there are none.
    None,
    Size(usize),
    /// Files must say it.
    Needed,
}

/// Whether a token's feed-forward network is chosen among experts.
#[derive(PartialEq, Eq)]
pub(super) enum Mixture {
    No,
    /// Some models have experts, each as wide as the files' one width, and some a network beside them.
    Some,
    /// All models have such experts.
    Wide,
    /// Experts have a width of their own, or share that of files.
    Always,
    /// Beside the experts there is a network that every token goes through.
    Shared,
    /// Some models have experts, with norms of their own, beside the usual network.
    Normed,
    /// Router and experts have biases.
    Biased,
    /// Scores are sigmoids, and multiply what experts take. Beside them every token goes through a network that is as wide, and some layers have no experts.
    Scaling,
    /// Those of DeepSeek's kind: every token goes through a network beside them, too; the first layers may be without experts; experts may be chosen by scores with a
    /// bias, and in groups. Scores are these unless a file says otherwise. Where attention is latent, a file may say that no layer has experts.
    DeepSeek(Scoring),
}

/// Which layers are recurrent, and what they have in place of attention: linear attention all but the last one of each so many, unless a file says it.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Recurrent {
    No,
    /// Heads of values that belong to the same head of keys follow each other, as checkpoints have them.
    Grouped {
        period: usize,
    },
    /// GGUF files have them in another order: see [`tiled`](super::LinearAttention::tiled).
    Tiled {
        period: usize,
    },
    /// A short convolution those without heads of keys.
    Convolution,
    /// A state space those without heads of keys.
    StateSpace,
    /// All layers have a state space beside attention: here it is a layer of its own, in front of that with attention, which takes the same residual stream.
    Beside,
    /// All layers have a state space, and nothing else.
    Alone,
}

/// Factors of embeddings and of what layers add to the residual stream, and a divisor of logits: those of a model of so many layers and
/// such a width whose file does not have them.
pub(super) type Scales = fn(layers: f64, width: f64) -> [f64; 3];
