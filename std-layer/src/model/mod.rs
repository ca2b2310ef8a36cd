//! Language models: from a file to what is to be computed.
//!
//! - [`Config`]: what a model consists of, as plain data; nothing that uses it depends on an architecture's name.
//! - [`Model`]: an opened file (or several that belong together), mapped into memory; its [`Config`] and [`HostWeights`].
//! - [`Generator`]: text from a model, on any [`Backend`](crate::backend::Backend).
//! - [`Sampling`]: how the next token is chosen from logits.
//! - [`Tree`]: drafts of a sequence that one step computes, of which a path is accepted.
//! - [`Pages`]: which page of a key-value cache holds which positions of which sequence.

mod anew;
mod architecture;
mod bases;
mod checkpoint;
mod config;
mod decoder;
mod dense;
mod error;
mod families;
mod family;
mod gates;
mod generator;
mod heads;
mod keys;
mod keys_and_values;
mod latent;
mod metadata;
mod mixture;
mod names;
mod nvfp4;
mod pages;
mod ranking;
mod read_latent;
mod read_recurrence;
mod read_streams;
mod recurrence;
mod sampling;
mod source;
mod split;
mod streams;
mod tree;
mod uneven;
mod verify;
mod weights;

pub use architecture::{Architecture, Gate, Scoring};
pub use config::{
    Classifier, Config, Experts, Groups, KvHeads, Layer, LongFactors, Norm, Pooling, Rope, Shared,
    Temperature,
};
pub use decoder::{decode, embed};
pub use error::ModelError;
pub use generator::{Generator, GeneratorError, Options, Tokens};
pub use latent::LatentAttention;
pub use pages::{CacheError, Group, PageCopy, Pages, PositionCopy, SequenceId};
pub use recurrence::{LinearAttention, Recurrence, Rule, ShortConvolution};
pub use sampling::{sample, Sampling, SamplingError};
pub use source::Model;
pub use streams::Streams;
pub use tree::{Tree, TreeError};
pub use weights::{
    ExpertNorms, ExpertWeights, HostWeights, LatentWeights, LayerInput, LayerStreams, LayerWeights,
    LinearWeights, Matrix, Network, NormWeights, PerLayerWeights, RecurrentWeights, StreamWeights,
};
