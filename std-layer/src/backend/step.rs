//! The operations that a step of a model consists of, which every backend implements ([`Step`]).

use crate::model::{Config, KvHeads, LatentAttention, Pooling, Recurrence};

/// An intermediate result: a row for each token of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// The residual stream.
    Hidden,
    /// Normed inputs of products.
    Normed,
    /// Queries, keys and values of a token, one behind the other; of layers with linear attention, its gates and the numbers `b` and `a` behind them. Of layers with a short convolution what their
    /// first matrix gives. Of latent attention queries, or the row that they are products of, and what the cached row is made of.
    Heads,
    /// Of latent attention with two products of queries: the normed row that the second one takes.
    QueryRow,
    /// Of latent attention with two products of queries: what the second one gives.
    Queries,
    /// Of latent attention: queries as they are multiplied with cached rows.
    Absorbed,
    /// Of latent attention: sums of the values of cached rows, head by head.
    Weighed,
    /// What attention gives, head by head.
    Mixed,
    /// What attention or the feed-forward network adds to the residual stream.
    Delta,
    /// Gates and the numbers they are for, one behind the other; without gates, these numbers.
    Gates,
    /// Gated numbers.
    Activated,
    /// Embeddings for each layer, one behind the other.
    PerLayer,
    /// What is added to them.
    PerLayerProducts,
    /// A layer's gates of its embeddings.
    PerLayerGates,
    /// What they give.
    PerLayerActivated,
    /// The residual streams but the first, one behind the other.
    Streams,
    /// What a layer predicted of the first one; behind the last layer the sum of all.
    Predicted,
    /// Between the two matrices of low rank beside attention.
    LowRank,
    /// What the network beside experts that have norms of their own gives, normed.
    Aside,
    /// What such experts give.
    Given,
    /// Logits.
    Logits,
}

impl Slot {
    /// Every slot.
    pub const ALL: [Self; 21] = [
        Self::Hidden,
        Self::Normed,
        Self::Heads,
        Self::QueryRow,
        Self::Queries,
        Self::Absorbed,
        Self::Weighed,
        Self::Mixed,
        Self::Delta,
        Self::Gates,
        Self::Activated,
        Self::PerLayer,
        Self::PerLayerProducts,
        Self::PerLayerGates,
        Self::PerLayerActivated,
        Self::Streams,
        Self::Predicted,
        Self::LowRank,
        Self::Aside,
        Self::Given,
        Self::Logits,
    ];

    /// Elements of a row, in the layer in which it has most of them.
    pub fn width(self, config: &Config) -> usize {
        let usual = KvHeads { count: config.kv_heads, dim: config.head_dim };
        let most =
            |heads, recurrence| self.width_with(config, (config.most_between(), heads, true), recurrence);
        let recurrent = config.recurrence.as_ref().map_or(0, |recurrence| most(usual, Some(recurrence)));
        let kinds = config.kinds().into_iter().map(|(_, heads)| most(heads, None));
        kinds.chain([recurrent, most(usual, None)]).max().unwrap_or(0)
    }

    /// Elements of a row in a layer.
    pub fn width_in(self, config: &Config, layer: usize) -> usize {
        let own_keys = config.layer[layer].keys_of.is_none();
        let sizes = (config.between(layer), config.heads_of(layer), own_keys);
        self.width_with(config, sizes, config.recurrence_of(layer))
    }

    fn width_with(
        self,
        config: &Config,
        (between, heads, own_keys): (usize, KvHeads, bool),
        recurrence: Option<&Recurrence>,
    ) -> usize {
        let of_latent = |n: fn(&LatentAttention) -> usize| config.latent_attention.as_ref().map_or(0, n);
        match self {
            Self::Hidden | Self::Normed | Self::Delta => config.hidden,
            Self::Heads if recurrence.is_some() => recurrence.map_or(0, |of| of.inputs()),
            Self::Mixed if recurrence.is_some() => recurrence.map_or(0, |of| of.outputs()),
            Self::Heads if config.latent_attention.is_some() => {
                let query = of_latent(|l| l.query_rank.unwrap_or(0));
                let queries =
                    if query > 0 { query } else { config.heads * of_latent(LatentAttention::query) };
                queries + config.head_dim
            }
            Self::Heads => {
                let keys = if own_keys { heads.count * heads.dim } else { 0 };
                config.heads * config.query_step(heads.dim) + 2 * keys
            }
            Self::Mixed if config.latent_attention.is_some() => config.mixed(),
            Self::Mixed => config.heads * heads.dim,
            Self::QueryRow => of_latent(|l| l.query_rank.unwrap_or(0)),
            Self::Queries => config.heads * of_latent(|l| l.query_rank.map_or(0, |_| l.query())),
            Self::Absorbed => config.latent_attention.map_or(0, |_| config.heads * config.head_dim),
            Self::Weighed => config.heads * of_latent(|l| l.rank),
            Self::Gates if !config.gated => between,
            Self::Gates => 2 * between,
            Self::Activated => between,
            Self::PerLayer | Self::PerLayerProducts => config.per_layer.unwrap_or(0) * config.layers,
            Self::PerLayerGates | Self::PerLayerActivated => config.per_layer.unwrap_or(0),
            Self::Streams => config.hidden * config.streams.map_or(0, |of| of.others()),
            Self::Predicted => config.streams.map_or(0, |_| config.hidden),
            Self::LowRank => config.streams.map_or(0, |of| of.rank),
            Self::Aside | Self::Given if config.experts.is_some_and(|experts| experts.normed) => {
                config.hidden
            }
            Self::Aside | Self::Given => 0,
            Self::Logits => config.logits(),
        }
    }
}

/// The weight of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormWeight {
    /// Behind the embedding, if the residual stream is normed there.
    Embedding,
    /// In front of a layer's attention.
    Attention(usize),
    /// In front of the second product of a layer's queries.
    Queries(usize),
    /// Behind a layer's attention; where the residual stream is normed, behind its sum with that.
    PostAttention(usize),
    /// In front of a layer's feed-forward network.
    Ffn(usize),
    /// Behind a layer's feed-forward network; where the residual stream is normed, behind its sum with that.
    PostFfn(usize),
    /// Behind what a layer makes of its embedding.
    PostPerLayer(usize),
    /// Behind the matrices of low rank beside a layer's attention.
    PostLowRank(usize),
    /// In front of a layer's router, where experts have norms of their own.
    Router(usize),
    /// In front of such experts.
    Experts(usize),
    /// Behind the network beside them.
    PostShared(usize),
    /// Behind them.
    PostExperts(usize),
    /// In front of the output matrix.
    Output,
}

/// Matrices that multiply the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linear {
    /// A layer's queries, keys and values; all that linear attention takes.
    Qkv(usize),
    /// The second product of a layer's queries, if attention is latent and has two.
    Queries(usize),
    /// A layer's attention output.
    AttentionOutput(usize),
    /// A layer's gates, if it has any, and what they are for.
    GateUp(usize),
    /// The end of a layer's feed-forward network.
    Down(usize),
    /// What is added to the embeddings for each layer.
    PerLayer,
    /// A layer's gates of its embedding.
    PerLayerGate(usize),
    /// What the layer makes of it.
    PerLayerOutput(usize),
    /// The residual streams but the first, in front of the first layer.
    Streams,
    /// The first matrix of low rank beside a layer's attention.
    LowRankDown(usize),
    /// The second one.
    LowRankUp(usize),
    /// Another residual stream than the first, behind the last layer: the number among them.
    Merge(usize),
    /// Logits.
    Output,
}

impl Linear {
    /// The layer that the matrices are of.
    pub fn layer(self) -> Option<usize> {
        match self {
            Self::Qkv(l) | Self::Queries(l) | Self::AttentionOutput(l) | Self::GateUp(l) | Self::Down(l) => {
                Some(l)
            }
            Self::PerLayerGate(l) | Self::PerLayerOutput(l) | Self::LowRankDown(l) | Self::LowRankUp(l) => {
                Some(l)
            }
            Self::PerLayer | Self::Streams | Self::Merge(_) | Self::Output => None,
        }
    }

    /// What is multiplied, and where the products go.
    pub fn slots(self) -> [Slot; 2] {
        match self {
            Self::Qkv(_) => [Slot::Normed, Slot::Heads],
            Self::Queries(_) => [Slot::QueryRow, Slot::Queries],
            Self::AttentionOutput(_) => [Slot::Mixed, Slot::Delta],
            Self::GateUp(_) => [Slot::Normed, Slot::Gates],
            Self::Down(_) => [Slot::Activated, Slot::Delta],
            Self::PerLayer => [Slot::Normed, Slot::PerLayerProducts],
            Self::PerLayerGate(_) => [Slot::Normed, Slot::PerLayerGates],
            Self::PerLayerOutput(_) => [Slot::PerLayerActivated, Slot::Delta],
            Self::Streams => [Slot::Normed, Slot::Streams],
            Self::LowRankDown(_) => [Slot::Normed, Slot::LowRank],
            Self::LowRankUp(_) => [Slot::LowRank, Slot::Delta],
            Self::Merge(_) => [Slot::Normed, Slot::Delta],
            Self::Output => [Slot::Normed, Slot::Logits],
        }
    }
}

/// An operation on several residual streams, of which `Hidden` is the first one. [`Streams`](crate::model::Streams) has the formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamOperation {
    /// `Streams`: what its products are, each as long as `Hidden`.
    Split,
    /// `Hidden`, `Predicted` and `Streams`: what a layer predicts of all streams, the first of which is in both of the first two.
    Predict(usize),
    /// `Hidden = (Hidden + Normed) / sqrt(2) + norm(Delta)`, behind the matrices of low rank beside a layer's attention.
    AddLowRank(usize),
    /// `Hidden` and `Streams`: all streams, corrected by what `Predicted` lacks of `Hidden`; `Normed = scale * Hidden`. Nothing is left to [add](Step::add).
    Correct(usize),
    /// Adds `norm(Delta)`, which a layer made of its embeddings of tokens, to each of `Streams`.
    AddToOthers(usize),
    /// `Normed`: another stream than the first, by its number among them, in front of its [product](Linear::Merge).
    Take(usize),
    /// `Predicted` is the sum of the first stream and of `Delta`, made as long as that, for each other stream so far; with the last one `Hidden` becomes the mean of all.
    Merge(usize),
}

/// The operations of a step. Which rows there are, where they stand in their sequences and which of them need logits is known when a
/// step is made; nothing here depends on results, so a backend may run operations, record them, or encode them for a device.
pub trait Step {
    /// Why an operation was refused.
    type Error;

    /// Rows whose logits are asked for.
    fn outputs(&self) -> usize;
    /// `Hidden = embedding[token] * embedding_scale`, plus the rows of the first token type and of the token's position, where the model has them.
    fn embed(&mut self) -> Result<(), Self::Error>;
    /// `Hidden = scale Hidden + Delta`, which is normed before if `post` says so. For the result of a product in `Delta`. The next of [`norm`](Self::norm),
    /// [`pass`](Self::pass) and [`renorm`](Self::renorm) may do it: one of them must follow before `Delta` is written again.
    fn add(&mut self, post: Option<NormWeight>, scale: f32) -> Result<(), Self::Error>;
    /// `Normed = norm(Hidden)`, as [`Norm`](crate::model::Norm) has it.
    fn norm(&mut self, weight: NormWeight) -> Result<(), Self::Error>;
    /// `Normed = Hidden`.
    fn pass(&mut self) -> Result<(), Self::Error>;
    /// `Hidden = Normed = norm(Hidden)`.
    fn renorm(&mut self, weight: NormWeight) -> Result<(), Self::Error>;
    /// Products of one input with several matrices; plus the biases of a layer's attention output, of its feed-forward network, and of logits, where the model has any.
    fn linear(&mut self, linear: Linear) -> Result<(), Self::Error>;
    /// `QueryRow`: the norm of the first elements of `Heads`, in front of [`Linear::Queries`].
    fn norm_queries(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// Biases, norms and rotations of `Heads`; appends keys and values to the cache. Of latent attention the cached rows and `Absorbed`. Of recurrent layers the convolution, with what the cache keeps for it.
    fn heads(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// `Mixed`: attention of the queries in `Heads` to the cache, and to the sinks of the layer's heads, where the model has sinks; times the sigmoid of gates, where
    /// it has gates. Or [latent attention](LatentAttention) of `Absorbed`, or what [recurrent layers](Recurrence) have in its place, up to their output matrix, which changes the state in the cache.
    fn attend(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// `Activated = gated(first half of Gates, second half)`; without gates, `gated(Gates, 1)`. Of the layer's width, see [`Config::between`]. If few gates count, the others are 0 first: see
    /// [`Layer::sparsity`](crate::model::Layer::sparsity).
    fn glu(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// Which of a layer's experts rows go through, of `Normed`.
    fn route(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// A layer's experts: `Delta = f(Normed)`, as [`Experts`](crate::model::Experts) has it; `Delta = f(Normed) +
    /// Delta` where there is a network beside them, whose result `Delta` is then, or `f(Normed) + sigmoid(shared_gate(Normed)) * Delta` if that has a gate. Which experts a row goes through is known to the
    /// device alone. Where they have norms of their own, it is `Given = f(Normed)` without that network.
    fn experts(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// `Aside = norm(Delta)`.
    fn put_aside(&mut self, norm: NormWeight) -> Result<(), Self::Error>;
    /// `Delta = Aside + norm(Given)`.
    fn join(&mut self, norm: NormWeight) -> Result<(), Self::Error>;
    /// `PerLayer`: the sum of a token's rows in the table of embeddings for each layer, and of `PerLayerProducts`, normed, as [`Config`] has it.
    fn embed_per_layer(&mut self) -> Result<(), Self::Error>;
    /// `PerLayerActivated = gated(PerLayerGates, PerLayer)`, with what a layer has of the latter.
    fn gate_per_layer(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// An operation on several residual streams.
    fn streams(&mut self, operation: StreamOperation) -> Result<(), Self::Error>;
    /// From here on only rows whose logits are asked for, of `Hidden`, `Mixed`, `PerLayer`, `Streams` and `Predicted`.
    fn last_rows(&mut self) -> Result<(), Self::Error>;
    /// Caps `Logits`, if the model does.
    fn cap_logits(&mut self) -> Result<(), Self::Error>;
    /// Of the rows of `Normed` that are left, those of each run become one, which is divided by its length `sqrt(sum of x^2)` unless that is 0.
    /// These rows are what the step gives, in place of logits.
    fn pool(&mut self, pooling: Pooling) -> Result<(), Self::Error>;
}
