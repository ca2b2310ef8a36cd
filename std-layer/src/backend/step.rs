//! The operations that a step of a model consists of, which every backend implements ([`Step`]).

use crate::model::{Config, Pooling};

/// An intermediate result: a row for each token of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// The residual stream.
    Hidden,
    /// Normed inputs of products.
    Normed,
    /// Queries, keys and values of a token, one behind the other.
    Heads,
    /// What attention gives, head by head.
    Mixed,
    /// What attention or the feed-forward network adds to the residual stream.
    Delta,
    /// Gates and the numbers they are for, one behind the other; without gates, these numbers.
    Gates,
    /// Gated numbers.
    Activated,
    /// Logits.
    Logits,
}

impl Slot {
    /// Every slot.
    pub const ALL: [Self; 8] = [
        Self::Hidden,
        Self::Normed,
        Self::Heads,
        Self::Mixed,
        Self::Delta,
        Self::Gates,
        Self::Activated,
        Self::Logits,
    ];

    /// Elements of a row.
    pub fn width(self, config: &Config) -> usize {
        match self {
            Self::Hidden | Self::Normed | Self::Delta => config.hidden,
            Self::Heads => (config.heads + 2 * config.kv_heads) * config.head_dim,
            Self::Mixed => config.heads * config.head_dim,
            Self::Gates if !config.gated => config.intermediate,
            Self::Gates => 2 * config.intermediate,
            Self::Activated => config.intermediate,
            Self::Logits => config.logits(),
        }
    }
}

/// The weight of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormWeight {
    /// Behind the embedding, if the residual stream is normed.
    Embedding,
    /// In front of a layer's attention.
    Attention(usize),
    /// Behind a layer's attention; where the residual stream is normed, behind its sum with that.
    PostAttention(usize),
    /// In front of a layer's feed-forward network.
    Ffn(usize),
    /// Behind a layer's feed-forward network; where the residual stream is normed, behind its sum with that.
    PostFfn(usize),
    /// In front of the output matrix.
    Output,
}

/// Matrices that multiply the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linear {
    /// A layer's queries, keys and values.
    Qkv(usize),
    /// A layer's attention output.
    AttentionOutput(usize),
    /// A layer's gates, if it has any, and what they are for.
    GateUp(usize),
    /// The end of a layer's feed-forward network.
    Down(usize),
    /// Logits.
    Output,
}

impl Linear {
    /// What is multiplied, and where the products go.
    pub fn slots(self) -> [Slot; 2] {
        match self {
            Self::Qkv(_) => [Slot::Normed, Slot::Heads],
            Self::AttentionOutput(_) => [Slot::Mixed, Slot::Delta],
            Self::GateUp(_) => [Slot::Normed, Slot::Gates],
            Self::Down(_) => [Slot::Activated, Slot::Delta],
            Self::Output => [Slot::Normed, Slot::Logits],
        }
    }
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
    /// `Hidden += Delta`, which is normed before if `post` says so. For the result of a product in `Delta`. The next of [`norm`](Self::norm),
    /// [`pass`](Self::pass) and [`renorm`](Self::renorm) may do it: one of them must follow before `Delta` is written again.
    fn add(&mut self, post: Option<NormWeight>) -> Result<(), Self::Error>;
    /// `Normed = norm(Hidden)`, as [`Norm`](crate::model::Norm) has it.
    fn norm(&mut self, weight: NormWeight) -> Result<(), Self::Error>;
    /// `Normed = Hidden`.
    fn pass(&mut self) -> Result<(), Self::Error>;
    /// `Hidden = Normed = norm(Hidden)`.
    fn renorm(&mut self, weight: NormWeight) -> Result<(), Self::Error>;
    /// Products of one input with several matrices; plus the biases of a layer's attention output and of its feed-forward network, where the model has any.
    fn linear(&mut self, linear: Linear) -> Result<(), Self::Error>;
    /// Biases, norms and rotations of `Heads`; appends keys and values to the cache.
    fn heads(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// `Mixed`: attention of the queries in `Heads` to the cache, and to the sinks of the layer's heads, where the model has sinks.
    fn attend(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// `Activated = gated(first half of Gates, second half)`; without gates, `gated(Gates, 1)`.
    fn glu(&mut self) -> Result<(), Self::Error>;
    /// A layer's experts: `Delta = f(Normed)`, as [`Experts`](crate::model::Experts) has it; `Delta = f(Normed) + sigmoid(shared_gate(Normed)) *
    /// Delta` where there is a shared expert, whose result `Delta` is then. Which experts a row goes through is known to the
    /// device alone.
    fn experts(&mut self, layer: usize) -> Result<(), Self::Error>;
    /// From here on only rows whose logits are asked for, of `Hidden` and `Mixed`.
    fn last_rows(&mut self) -> Result<(), Self::Error>;
    /// Caps `Logits`, if the model does.
    fn cap_logits(&mut self) -> Result<(), Self::Error>;
    /// Of the rows of `Normed` that are left, those of each run become one, which is divided by its length `sqrt(sum of x^2)` unless that is 0.
    /// These rows are what the step gives, in place of logits.
    fn pool(&mut self, pooling: Pooling) -> Result<(), Self::Error>;
}
