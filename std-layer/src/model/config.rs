//! What a model consists of, as plain data.
//!
//! Everything that depends on an architecture's name is decided here, once, when a file is opened. Whoever runs a
//! model looks at the fields of [`Config`] and never at [`Architecture`].

use std::borrow::Cow;

use gllm_kernels_core::{KvHead, RopeFreqs, RopePairing, RopeScaling};

use super::architecture::{Architecture, Gate, Scoring};
use super::latent::LatentAttention;
use super::recurrence::Recurrence;
use super::streams::Streams;

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
/// A router scores the experts of a token: `p = scoring(router(x))` (see [`Scoring`]). The `used` experts with the largest `p + b` are taken, `b` being the
/// bias of choosing, if there is one, and otherwise 0; of experts that are alike, those with the smaller index. What is not a number is below all that is. If
/// there are [`Groups`], experts of a few of them alone may be taken.
///
/// [`Scoring::SparseMixer`] takes the experts with the largest products, and scores each among those that are left.
///
/// With `p` being the scores of these experts, divided by `1e-20 +` their sum if `normalised` (so that those of a softmax are the softmax of the experts that were
/// taken),
/// ```text
/// f(x) = scale * sum of p[e] * down[e](gated(gate[e](x), up[e](x)))
/// ```
/// and they are summed from the first that is taken to the last. If there are `biases`, the router and the three matrices of each expert have one
/// that is added to their products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// How many experts are applied to a token: 1 to `count`, or to the number of experts of the groups that are taken.
    pub used: usize,
    /// Elements between the two halves of an expert.
    pub intermediate: usize,
    /// What makes scores of the router's products.
    pub scoring: Scoring,
    /// Whether there is a bias of choosing, a number for each expert.
    pub selection_bias: bool,
    /// Groups of experts, if the choice is limited to a few of them.
    pub groups: Option<Groups>,
    /// Whether scores are divided by the sum of those of the experts that are taken.
    pub normalised: bool,
    /// Whether the router has a bias, and each expert one for each of its matrices.
    pub biases: bool,
    /// Whether scores multiply what experts take, in place of what they give: `f(x) = scale * sum of down[e](gated(gate[e](p[e] x), up[e](p[e] x)))`.
    pub scaled_inputs: bool,
    /// Factor of the sum; usually 1.
    pub scale: f32,
    /// Whether each expert has a factor, by which what it gives is multiplied.
    pub factors: bool,
    /// Whether experts, router and the network beside them have norms of their own: then the layer's network is that beside them, and
    /// ```text
    /// f = norm(shared(norm(x))) + norm(experts(norm(x)))      each with weights of its own; the router takes norm(x) / sqrt(hidden) with others
    /// ```
    pub normed: bool,
    /// The network beside the experts that every token goes through, if there is one.
    pub shared: Option<Shared>,
}

/// Groups of experts: as many consecutive ones in each.
///
/// A group is as good as the sum of its `counted` largest `p + b`, as [`Experts`] has them. The `used` groups with the largest sums are taken; of groups that are alike,
/// those with the smaller index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many there are: a divisor of the number of experts, which is at least twice as large.
    pub count: usize,
    /// How many of them are taken: 1 to `count`.
    pub used: usize,
    /// How many of a group's experts count: 2, or, in DeepSeek V2, 1.
    pub counted: usize,
}

/// A network beside the experts that every token goes through. What it gives is added to what they give. (As many equal ones are one that is wider.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Elements between its two halves.
    pub intermediate: usize,
    /// Whether what it gives is multiplied by `1 / (1 + exp(-shared_gate(x)))`.
    pub gated: bool,
}

/// A factor of the scores of attention that grows from one stretch of positions to the next: `1 + scale ln(1 + floor(position / length))`, with the query's position. (Llama 4's, and Mistral's since
/// Ministral 3.)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    /// How much it grows.
    pub scale: f32,
    /// Positions of a stretch, at least 1.
    pub length: usize,
}

impl Temperature {
    /// The factor of a query at this position.
    pub fn factor(&self, position: usize) -> f32 {
        let stretches = (position / self.length) as f64;
        (1.0 + f64::from(self.scale) * stretches.ln_1p()) as f32
    }
}

/// Heads of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvHeads {
    /// How many there are; each serves as many consecutive query heads as the others.
    pub count: usize,
    /// Elements of a head, of queries, keys and values alike: an even number.
    pub dim: usize,
}

/// The properties that differ from layer to layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Layer {
    /// Whether it has the model's [`Recurrence`] in place of attention. Then it has no window, and no position embedding.
    pub recurrent: bool,
    /// How many positions a query sees, its own included; `None`: all before it. In encoders as many behind it, too: those at a distance below this number.
    pub window: Option<usize>,
    /// Index in [`Config::ropes`].
    pub rope: usize,
    /// Whether its feed-forward network is that of [`Config::experts`].
    pub experts: bool,
    /// The layer before it whose keys and values it attends to, with the same window, if it has none of its own.
    pub keys_of: Option<usize>,
    /// Elements between the two halves of its feed-forward network, if they are not as many as [`Config::intermediate`].
    pub intermediate: Option<usize>,
    /// Factor of the residual stream behind it, if there is one. The weights of the last norm in the layer contain it.
    pub scale: Option<f32>,
    /// The two numbers of its activation, what is above 0 first, if that is [`Gate::Xielu`].
    pub xielu: Option<[f32; 2]>,
    /// Heads of keys and values, if there are not as many as in other layers with the same window.
    pub kv_heads: Option<usize>,
    /// Whether it has no attention, nor anything in its place: then it is `x = x + f` alone.
    pub without_attention: bool,
    /// Whether it has no feed-forward network: then it ends behind `x = x + a`.
    pub without_network: bool,
    /// Whether the attention of the next layer takes the same `x` as this one, without `a`. Then this one has no feed-forward network.
    pub joined: bool,
    /// If few of its network's gates count: how many standard deviations above their mean they begin to. A gate `g` of a token is `max(g - mean - sparsity * deviation, 0)`
    /// in front of the activation, with mean and standard deviation (`sqrt(mean((g - mean)^2))`) of all gates of the token.
    pub sparsity: Option<f32>,
}

/// The configuration of a model. Sizes are counted in elements. None is zero, unless its documentation says so.
///
/// A layer of a decoder computes, with `norm` as [`Norm`] has it:
/// ```text
/// q, k, v = linear(norm(x))                        plus biases if attention_bias; linear(x) unless input_norms; at most attention_clamp, at least its negative
/// q, k    = norm of each head                      if qk_norm; of all heads together if qk_norm_whole; behind the next line if qk_norm_behind
/// q, k    = rope(q), rope(k)                       v = norm of each head without weights, if value_norm
/// q       = t q                                    if there is a temperature: its factor t
/// s       = softmax(softcap(q k^T * attention_scale), causal and within the window)
/// a       = output(s v)                            plus a bias if attention_output_bias;  output(s v * sigmoid(gates)) if attention_gates
///                                                  then norm(a) if post_norms;  x = x + a
/// f       = ffn(norm(x))                           then norm(f) if post_norms;  x = x + f;  ffn(x) unless input_norms;  x = scale x if there is one
/// ```
/// In front of the first layer `x = embedding[token] * embedding_scale`; behind the last
/// `logits = softcap(logit_scale * output(norm(x)))`. `softcap(x) = cap * tanh(x / cap)` where there is one. `ffn(x)` is
/// `down(gated(gate(x), up(x)))` (see [`Gate`]), `down(gated(up(x), 1))` without a gate, or, in layers that have them, that of [`Experts`].
///
/// If there are embeddings for each layer, of `n` elements (`per_layer`), a token has, `x` being what it is in front of the first layer,
/// ```text
/// e       = (norm of each n elements(projection(x) / sqrt(hidden)) + sqrt(n) table[token]) / sqrt(2)      n elements for each layer
/// x       = x + norm(output(gated(gate(x), e)))    with those of the layer, behind its feed-forward network and in front of the scale
/// ```
///
/// Models with several residual streams do more in each layer: see [`Streams`].
///
/// Layers that are `parallel` compute both results from the same `x`, each with a norm of its own unless `shared_norm`: `x = x + a + f` with
/// `f = ffn(norm(x))`, `x` being what it is in front of attention.
///
/// Layers that say so have another `a` in its place: see [`Recurrence`]. All layers of models that say so have [`LatentAttention`].
///
/// If there are `attention_sinks`, each query head has one: a score `z`, the same for all queries, of a position that has no value. So
/// `s[j] = exp(score[j]) / (exp(z) + sum of exp(score[i]))`, and what a query sees has a sum below 1. The cap is not applied to `z`.
///
/// With linear biases (`alibi`), a query at position `i` has `score[j] - slope * |i - j|` in place of `score[j]`, behind the cap.
///
/// Some models multiply what layers add: `x = x + r a`, `x = x + r f`. For them `embedding_scale` is divided by `r`, and `norm_eps` by `r^2`: then the stream
/// is `x / r`, whose norms are those of `x`.
///
/// An *encoder* sees the whole text with each of its tokens (`causal` is false), or what is within a window on both sides of it, and gives a row for each token, but no
/// logits. Layers that have `residual_norms` are
/// ```text
/// a = output(s v)          as above, of q, k, v = linear(x);   x = norm(x + a)
/// f = ffn(x)                                                   x = norm(x + f)
/// ```
/// In front of the first `x = embedding[token] * embedding_scale + token_type[0] + position_embedding[position]`, of which
/// models have the second and third summand if they say so; `x = norm(x)` with an `embedding_norm`.
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
    /// The numbers that a file gives to each layer, and to its feed-forward network.
    pub(super) numbers: Vec<[usize; 2]>,
    /// Layers behind them in the file, which guess tokens after the next one: they are not part of the model.
    pub(super) predictors: usize,
    /// Query heads; a multiple of `kv_heads`. If no layer has attention, this and the other sizes of heads say nothing.
    pub heads: usize,
    /// Key and value heads; each serves `heads / kv_heads` consecutive query heads.
    pub kv_heads: usize,
    /// Elements of a head, of queries, keys and values alike, but for values of latent attention. `heads * head_dim` may differ from `hidden`.
    pub head_dim: usize,
    /// The heads of layers with a window, if they are not `kv_heads` of `head_dim` elements.
    pub local_heads: Option<KvHeads>,
    /// Elements between the two halves of the feed-forward network of layers without experts; 0 if all layers have experts
    /// alone, or no network.
    pub intermediate: usize,
    /// The experts of each layer that has them.
    pub experts: Option<Experts>,
    /// Positions the model was trained for, after scaling.
    pub context: usize,
    /// The most positions that a text may have, if there is such a number: a cache refuses more. Decoders with embeddings of positions have no more, and Llama 4's layers
    /// see chunks of positions behind it, which no backend computes.
    pub longest: Option<usize>,
    /// Whether a token sees those before it, and itself, alone. Otherwise it sees the whole text, which is one step.
    pub causal: bool,
    /// Whether a row for each position is added to the embedding: there are `context` of them, and no text may be longer.
    pub position_embeddings: bool,
    /// Kinds of tokens that the model knows, of which texts have the first one alone: its row is added to the embedding. 0 if there are none.
    pub token_types: usize,
    /// What norms compute.
    pub norm: Norm,
    /// Whether norms of the residual stream have weights of 1.
    pub norms_unweighted: bool,
    /// Whether the layer norms of a decoder have biases.
    pub norm_biases: bool,
    /// Whether a decoder norms what attention and feed-forward network take.
    pub input_norms: bool,
    /// Whether attention and feed-forward network of a layer take the same residual stream.
    pub parallel: bool,
    /// Whether they share the norm of what they take.
    pub shared_norm: bool,
    /// Whether the residual stream itself is normed behind each sum. Then there are no other norms but that of the embedding, and those of heads.
    pub residual_norms: bool,
    /// Whether the residual stream itself is normed behind the embedding. The attention of the first layer takes it without another norm then.
    pub embedding_norm: bool,
    /// The epsilon that norms add to the mean of squares.
    pub norm_eps: f32,
    /// That of norms within recurrent layers and of those of latent attention, which are not of the residual stream; the square of their weights, if states are not [normed](super::LinearAttention::normed).
    pub state_eps: f32,
    /// Factor of embeddings; usually 1.
    pub embedding_scale: f32,
    /// Elements of the embedding that each token has for each layer, if it has them.
    pub per_layer: Option<usize>,
    /// How many tokens have such embeddings of their own: those behind them have the first token's.
    pub per_layer_vocabulary: usize,
    /// The residual streams, if there are several.
    pub streams: Option<Streams>,
    /// Factor of logits; usually 1. [`HostWeights::output_norm`](super::HostWeights::output_norm) contains it.
    pub logit_scale: f32,
    /// Factor of the scores of attention; usually `1 / sqrt(head_dim)`, `head_dim` being [`LatentAttention::query`] where attention is latent.
    pub attention_scale: f32,
    /// What scores of attention are multiplied by beside that, if it depends on positions.
    pub temperature: Option<Temperature>,
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
    /// Whether queries and keys are normed, as [`norm`](Self::norm) says, without a bias: in front of the rotation unless `qk_norm_behind`, each head by itself unless
    /// `qk_norm_whole`.
    pub qk_norm: bool,
    /// Whether these norms have weights of 1, and are those of layers that are rotated alone.
    pub qk_norm_unweighted: bool,
    /// Whether heads are normed behind the rotation; these norms are RMS norms. As rotations do not change lengths, what they compute is that of a norm without weights in
    /// front of the rotation, times the weights behind it.
    pub qk_norm_behind: bool,
    /// Whether each head has weights of its own.
    pub qk_norm_each: bool,
    /// Whether all heads of queries have one norm, `head_dim` elements of each of `heads` with a weight each, and all heads of keys another one.
    pub qk_norm_whole: bool,
    /// Whether each head of values has an RMS norm, whose weights are all 1.
    pub value_norm: bool,
    /// Whether layers without a window have the products that become keys for values, too: as they are in front of norm and rotation.
    pub values_are_keys: bool,
    /// Whether the results of attention and feed-forward network are normed before they are added to the residual stream.
    pub post_norms: bool,
    /// Whether queries, keys and values have biases.
    pub attention_bias: bool,
    /// The largest magnitude of queries, keys and values, behind their biases, if there is a bound.
    pub attention_clamp: Option<f32>,
    /// Whether the output matrix of attention has a bias.
    pub attention_output_bias: bool,
    /// Whether each query head has gates, as many as elements, which the same matrix gives: those of a head behind its queries.
    pub attention_gates: bool,
    /// Whether files have these in a matrix of their own.
    pub(super) gates_apart: bool,
    /// What recurrent layers have in place of attention, if there are any.
    pub recurrence: Option<Recurrence>,
    /// What attention is if it is latent.
    pub latent_attention: Option<LatentAttention>,
    /// Whether files have the matrices of keys and values of latent attention in one.
    pub(super) latent_both: bool,
    /// Whether each query head has a sink.
    pub attention_sinks: bool,
    /// Whether GGUF files name the norm in front of the feed-forward network by what is before it: `post_attention_norm`.
    pub(super) ffn_norm_is_post_attention: bool,
    /// Whether GGUF files have queries, keys and values in one matrix.
    pub(super) fused_qkv: bool,
    /// Whether GGUF files have gate and up in one matrix, and those of experts.
    pub(super) fused_gate_up: bool,
    pub(super) fused_experts: bool,
    /// Whether logits have biases, which are added in front of the cap.
    pub output_bias: bool,
    /// Whether the output matrix is the embedding matrix. Of encoders, which have no output matrix, it stands for that, too.
    pub tied_embeddings: bool,
    /// How the model makes one row of a text, if it was made for that.
    pub pooling: Option<Pooling>,
    /// Elements between the two matrices that the row of a text is multiplied with, one after the other, before its length becomes 1, if there are such matrices.
    pub dense: Option<usize>,
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

    /// The heads of a layer.
    pub fn heads_of(&self, layer: usize) -> KvHeads {
        let of = &self.layer[layer];
        let usual = KvHeads { count: self.kv_heads, dim: self.head_dim };
        let heads = self.local_heads.filter(|_| of.window.is_some()).unwrap_or(usual);
        KvHeads { count: of.kv_heads.unwrap_or(heads.count), ..heads }
    }

    /// Whether a layer has keys and values of its own, or those of another.
    pub fn attends(&self, layer: usize) -> bool {
        !self.layer[layer].recurrent && !self.layer[layer].without_attention
    }

    /// Elements of the queries of a layer.
    pub fn queries_of(&self, layer: usize) -> usize {
        self.heads * self.heads_of(layer).dim
    }

    /// How far the queries of a head of `dim` elements are behind those of the head before, where their products are.
    pub fn query_step(&self, dim: usize) -> usize {
        if self.attention_gates {
            2 * dim
        } else {
            dim
        }
    }

    /// Whether what the attention of a layer takes has a norm of its own.
    pub fn norms_input(&self, layer: usize) -> bool {
        self.input_norms && !(layer == 0 && self.embedding_norm)
    }

    /// What it would be if all layers had the sizes of this one.
    pub(super) fn with_sizes_of(&self, layer: usize) -> Cow<'_, Self> {
        let of = self.layer[layer];
        let local = self.local_heads.is_some() && of.window.is_some();
        let values_are_keys = self.values_are_keys && of.window.is_none();
        if !local
            && of.kv_heads.is_none()
            && of.intermediate.is_none()
            && values_are_keys == self.values_are_keys
        {
            return Cow::Borrowed(self);
        }
        let KvHeads { count: kv_heads, dim: head_dim } = self.heads_of(layer);
        let intermediate = of.intermediate.unwrap_or(self.intermediate);
        Cow::Owned(Self { kv_heads, head_dim, values_are_keys, intermediate, ..self.clone() })
    }

    /// How the core caches a head of keys and values of `dim` elements.
    pub fn kv_head(&self, dim: usize) -> KvHead {
        match self.latent_attention {
            Some(of) => KvHead { dim, values: of.rank, latent: true },
            None => dim.into(),
        }
    }

    /// Elements of what the output matrix of attention multiplies, in layers with the heads that most have.
    pub fn mixed(&self) -> usize {
        self.heads * self.latent_attention.map_or(self.head_dim, |latent| latent.values)
    }

    /// Elements between the two halves of the network that every token goes through in a layer, which is its feed-forward network or that beside its experts; 0 if
    /// there are experts alone, or nothing.
    pub fn between(&self, layer: usize) -> usize {
        match self.experts {
            _ if self.layer[layer].without_network => 0,
            Some(experts) if self.layer[layer].experts => {
                experts.shared.map_or(0, |shared| shared.intermediate)
            }
            _ => self.layer[layer].intermediate.unwrap_or(self.intermediate),
        }
    }

    /// The most such elements that a layer has.
    pub fn most_between(&self) -> usize {
        let shared = self.experts.and_then(|experts| experts.shared);
        let most = self.layer.iter().filter_map(|layer| layer.intermediate).max().unwrap_or(0);
        self.intermediate.max(most).max(shared.map_or(0, |shared| shared.intermediate))
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

    /// What a layer has in place of attention, if it is a recurrent one.
    pub fn recurrence_of(&self, layer: usize) -> Option<&Recurrence> {
        self.recurrence.as_ref().filter(|_| self.layer[layer].recurrent)
    }

    /// The windows and heads that layers with keys and values have, each pair once, in the order of the first layer with it. Layers with the same window and heads share pages
    /// of a key-value cache.
    pub fn kinds(&self) -> Vec<(Option<usize>, KvHeads)> {
        let mut kinds = Vec::new();
        for layer in (0..self.layers).filter(|&layer| self.attends(layer)) {
            let kind = (self.layer[layer].window, self.heads_of(layer));
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
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
