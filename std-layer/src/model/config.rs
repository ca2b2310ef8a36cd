//! What a model consists of, as plain data.
//!
//! Everything that depends on an architecture's name is decided here, once, when a file is opened. Whoever runs a
//! model looks at the fields of [`Config`] and never at [`Architecture`].

use gllm_kernels_core::{RopeFreqs, RopePairing, RopeScaling};

use super::architecture::{Architecture, Gate};

/// What norms compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Norm {
    /// The RMS norm, `x / sqrt(mean(x^2) + norm_eps) * weight`.
    Rms,
    /// The layer norm, `(x - mean(x)) / sqrt(variance(x) + norm_eps) * weight + bias`; `bias` is 0 in models that have none.
    Layer,
}

/// A rotary position embedding. Layers name theirs by its index in [`Config::ropes`].
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Elements of a head that are rotated: the first `dims`, an even number, at most `head_dim`; 0 if nothing is.
    pub dims: usize,
    /// Which two elements form a pair.
    pub pairing: RopePairing,
    /// Scaling towards longer contexts.
    pub scaling: RopeScaling,
    /// A divisor for each of the `dims / 2` frequencies.
    pub factors: Option<Vec<f32>>,
    /// Factor of all cosines and sines. `None` stands for the factor that the scaling has.
    pub attention_factor: Option<f64>,
}

impl Rope {
    /// The frequencies in the form that the core takes.
    pub fn freqs(&self) -> RopeFreqs<'_> {
        RopeFreqs {
            theta: self.theta,
            rot_dim: self.dims,
            scaling: self.scaling,
            factors: self.factors.as_deref(),
            attention_factor: self.attention_factor,
        }
    }
}

/// How the rows of a text become one, for [embeddings](crate::model::Generator::embed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooling {
    /// The mean of the rows of all tokens.
    Mean,
    /// The row of the first token.
    First,
    /// The row of the last token.
    Last,
}

/// Divisors of frequencies for long texts, in place of those that [`Config::ropes`] have.
#[derive(Clone, Debug, PartialEq)]
pub struct LongFactors {
    /// They are for texts of more than so many tokens.
    pub above: usize,
    /// A divisor for each of the `dims / 2` frequencies.
    pub factors: Vec<f32>,
}

/// What a model that ranks texts has in place of a vocabulary's logits: one for each label, of which the first stands for "yes".
///
/// `logits = output(norm(x)) + bias`. The bias is added where logits become scores ([`Generator::rank`](crate::model::Generator::rank)); what a
/// backend's step gives is without it.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    /// How many labels there are: rows of the output matrix.
    pub labels: usize,
    /// A number for each label, if the model has them.
    pub bias: Option<Vec<f32>>,
}

/// A mixture of experts: gated feed-forward networks, a few of which are applied to each token.
///
/// A router scores the experts of a token: `p = softmax(router(x))`. The `used` experts with the largest scores are taken; of experts that
/// score alike, those with the smaller index. A score that is not a number is below all that are. With `p` being the scores of
/// these experts, divided by their sum if `normalised` (so that they are the softmax of the experts that were taken),
/// ```text
/// f(x) = scale * sum of p[e] * down[e](gated(gate[e](x), up[e](x)))
/// ```
/// and they are summed from the largest score to the smallest. If there are `biases`, the router and the three matrices of each expert have one
/// that is added to their products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many experts are applied to a token: 1 to `count`.
    pub used: usize,
    /// Elements between the two halves of an expert.
    pub intermediate: usize,
    /// Whether scores are divided by the sum of those of the experts that are taken.
    pub normalised: bool,
    /// Whether the router has a bias, and each expert one for each of its matrices.
    pub biases: bool,
    /// Factor of the sum; usually 1.
    pub scale: f32,
    /// Whether every token goes through a network of its own beside the experts: that of [`Config::intermediate`], whose result is multiplied
    /// by `1 / (1 + exp(-shared_gate(x)))` and added to `f(x)`.
    pub shared: bool,
}

/// The properties that differ from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// How many positions a query sees, its own included; `None`: all before it.
    pub window: Option<usize>,
    /// Index in [`Config::ropes`].
    pub rope: usize,
}

/// The configuration of a model. Sizes are counted in elements. None is zero, unless its documentation says so.
///
/// A layer of a decoder computes, with `norm` as [`Norm`] has it:
/// ```text
/// q, k, v = linear(norm(x))                        plus biases if attention_bias; linear(x) unless input_norms
/// q, k    = norm of each head                      if qk_norm; of all heads together if qk_norm_whole
/// q, k    = rope(q), rope(k)
/// s       = softmax(softcap(q k^T * attention_scale), causal and within the window)
/// a       = output(s v)                            plus a bias if attention_output_bias
///                                                  then norm(a) if post_norms;  x = x + a
/// f       = ffn(norm(x))                           then norm(f) if post_norms;  x = x + f;  ffn(x) unless input_norms
/// ```
/// In front of the first layer `x = embedding[token] * embedding_scale`; behind the last
/// `logits = softcap(logit_scale * output(norm(x)))`. `softcap(x) = cap * tanh(x / cap)` where there is one. `ffn(x)` is
/// `down(gated(gate(x), up(x)))` (see [`Gate`]), `down(gated(up(x), 1))` without a gate, or that of [`Experts`].
///
/// Layers that are `parallel` compute both results from the same `x`, each with a norm of its own unless `shared_norm`: `x = x + a + f` with
/// `f = ffn(norm(x))`, `x` being what it is in front of attention.
///
/// If there are `attention_sinks`, each query head has one: a score `z`, the same for all queries, of a position that has no value. So
/// `s[j] = exp(score[j]) / (exp(z) + sum of exp(score[i]))`, and what a query sees has a sum below 1. The cap is not applied to `z`.
///
/// With linear biases (`alibi`), a query at position `i` has `score[j] - slope * |i - j|` in place of `score[j]`, behind the cap.
///
/// Some models multiply what layers add: `x = x + r a`, `x = x + r f`. For them `embedding_scale` is divided by `r`, and `norm_eps` by `r^2`: then the stream
/// is `x / r`, whose norms are those of `x`.
///
/// An *encoder* sees the whole text with each of its tokens (`causal` is false), and gives a row for each token, but no logits. Its layers are `residual_norms`:
/// ```text
/// a = output(s v)          as above, of q, k, v = linear(x);   x = norm(x + a)
/// f = ffn(x)                                                   x = norm(x + f)
/// ```
/// In front of the first `x = norm(embedding[token] * embedding_scale + token_type[0] + position_embedding[position])`, of which
/// models have the second and third summand if they say so.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The family, for messages: no computation depends on it.
    pub architecture: Architecture,
    /// Number of tokens; of logits, too, unless there is a classifier, or the model is an encoder.
    pub vocabulary: usize,
    /// Elements of the residual stream.
    pub hidden: usize,
    /// Number of layers: the length of `layer`.
    pub layers: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` consecutive query heads.
    pub kv_heads: usize,
    /// Elements of a head, of queries, keys and values alike. `heads * head_dim` may differ from `hidden`.
    pub head_dim: usize,
    /// Elements between the two halves of the feed-forward network that every token goes through; 0 if there is none, but experts
    /// alone.
    pub intermediate: usize,
    /// The experts of each layer.
    pub experts: Option<Experts>,
    /// Positions the model was trained for, after scaling.
    pub context: usize,
    /// The most positions that a text may have, if there is such a number: a cache refuses more. Ministral's scores have a factor that grows from
    /// position to position behind it, which no backend computes.
    pub longest: Option<usize>,
    /// Whether a token sees those before it, and itself, alone. Otherwise it sees the whole text, which is one step.
    pub causal: bool,
    /// Whether a row for each position is added to the embedding: there are `context` of them, and no text may be longer.
    pub position_embeddings: bool,
    /// Kinds of tokens that the model knows, of which texts have the first one alone: its row is added to the embedding. 0 if there are none.
    pub token_types: usize,
    /// What norms compute.
    pub norm: Norm,
    /// Whether the layer norms of a decoder have biases.
    pub norm_biases: bool,
    /// Whether a decoder norms what attention and feed-forward network take.
    pub input_norms: bool,
    /// Whether attention and feed-forward network of a layer take the same residual stream.
    pub parallel: bool,
    /// Whether they share the norm of what they take.
    pub shared_norm: bool,
    /// Whether the residual stream itself is normed, behind the embedding and behind each sum. Then there are no other norms but those of heads.
    pub residual_norms: bool,
    /// The epsilon that all norms add to the mean of squares.
    pub norm_eps: f32,
    /// Factor of embeddings; usually 1.
    pub embedding_scale: f32,
    /// Factor of logits; usually 1. [`HostWeights::output_norm`](super::HostWeights::output_norm) contains it.
    pub logit_scale: f32,
    /// Factor of the scores of attention; usually `1 / sqrt(head_dim)`.
    pub attention_scale: f32,
    /// Cap of the scores of attention.
    pub attention_softcap: Option<f32>,
    /// Cap of the logits.
    pub logit_softcap: Option<f32>,
    /// The largest exponent of the slopes of linear biases, if there are any: see [`alibi_slope`](Self::alibi_slope).
    pub alibi: Option<f32>,
    /// Activation of the feed-forward network, and of each expert.
    pub gate: Gate,
    /// Whether the feed-forward network has a gate.
    pub gated: bool,
    /// Whether the matrix `up` of a feed-forward network without a gate has a bias.
    pub up_bias: bool,
    /// Whether the matrix `down` of the feed-forward network has a bias.
    pub down_bias: bool,
    /// Whether queries and keys are normed in front of the rotation, each head by itself unless `qk_norm_whole`.
    pub qk_norm: bool,
    /// Whether all heads of queries have one norm, `head_dim` elements of each of `heads` with a weight each, and all heads of keys another one.
    pub qk_norm_whole: bool,
    /// Whether the results of attention and feed-forward network are normed before they are added to the residual stream.
    pub post_norms: bool,
    /// Whether queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the output matrix of attention has a bias.
    pub attention_output_bias: bool,
    /// Whether each query head has a sink.
    pub attention_sinks: bool,
    /// Whether GGUF files name the norm in front of the feed-forward network by what is before it: `post_attention_norm`.
    pub(super) ffn_norm_is_post_attention: bool,
    /// Whether GGUF files have queries, keys and values in one matrix.
    pub(super) fused_qkv: bool,
    /// Whether GGUF files have gate and up in one matrix.
    pub(super) fused_gate_up: bool,
    /// Whether the output matrix is the embedding matrix. Of encoders, which have no output matrix, it stands for that, too.
    pub tied_embeddings: bool,
    /// How the model makes one row of a text, if it was made for that.
    pub pooling: Option<Pooling>,
    /// What the output matrix is in a model that ranks texts.
    pub classifier: Option<Classifier>,
    /// The position embeddings that layers use.
    pub ropes: Vec<Rope>,
    /// What takes the place of the divisors of all frequencies where texts are long: see [`for_texts_of`](Self::for_texts_of).
    pub long_factors: Option<LongFactors>,
    /// Each layer.
    pub layer: Vec<Layer>,
    /// Tokens that end a text.
    pub stop_tokens: Vec<u32>,
    /// The token that begins a text, if the model wants one.
    pub bos: Option<u32>,
}

impl Config {
    /// Logits of a token: a number for each token of the vocabulary, or for each label of the classifier; 0 for encoders.
    pub fn logits(&self) -> usize {
        if !self.causal {
            return 0;
        }
        self.classifier.as_ref().map_or(self.vocabulary, |classifier| classifier.labels)
    }

    /// By how much a step of distance lowers the scores of a query head. Of `n` heads, a power of two, the first one has `2^(-alibi / n)`, and each of the
    /// others is that of the head before, times the first one's. Where there are more heads than that, they are followed by the first, third, fifth .. of
    /// `2 n` heads. (Press, Smith and Lewis, "Train Short, Test Long", 2022, and the code for it; ggml does the same.)
    pub fn alibi_slope(&self, head: usize) -> Option<f32> {
        let n = 1usize << self.heads.ilog2();
        let step = if head < n { (head + 1) as f64 } else { (head - n) as f64 + 0.5 };
        self.alibi.map(|most| (-f64::from(most) * step / n as f64).exp2() as f32)
    }

    /// The configuration of the model where texts have up to so many tokens. Models of Microsoft's (LongRoPE: Ding et al., 2024) have two lists of divisors of
    /// frequencies, one of them for texts that are longer than those of the first training. A cache is filled by one of them from its first position
    /// on: so this is chosen when a model is loaded, and not when a text becomes long.
    pub fn for_texts_of(&self, tokens: usize) -> Self {
        let mut config = self.clone();
        if let Some(long) = config.long_factors.take_if(|long| tokens > long.above) {
            let short = config.ropes.iter_mut().filter_map(|rope| rope.factors.as_mut());
            short.for_each(|factors| factors.clone_from(&long.factors));
        }
        config
    }

    /// The windows that layers have, each once, in the order of the first layer with it. Layers with the same window share pages of a
    /// key-value cache.
    pub fn windows(&self) -> Vec<Option<usize>> {
        let mut windows = Vec::new();
        for layer in &self.layer {
            if !windows.contains(&layer.window) {
                windows.push(layer.window);
            }
        }
        windows
    }

    /// Why a layer's tensor is refused that this configuration has no use for.
    pub(super) fn refusal(&self) -> String {
        let (name, layers) = (self.architecture.name(), self.layers);
        let experts = self.experts.map_or(String::new(), |e| format!(" and {} experts", e.count));
        format!(
            "is not part of a model of the architecture {name} with {layers} layers{experts}: it would not take part"
        )
    }
}
