//! A model's weights on the host, as they lie in its files.

use gllm_kernels_core::{KernelError, MatMut, MatRef, QuantFormat, QuantRef};

use crate::detect::kernels;

/// A weight matrix on the host, `rows x cols`: `y = W x` has `rows` outputs and `cols` inputs.
#[derive(Clone, Copy, Debug)]
pub enum Matrix<'a> {
    /// A quantised format, or floating point of 16 or 8 bits.
    Quantised(QuantRef<'a>),
    /// Floating point of 32 bits.
    F32(MatRef<'a, f32>),
}

impl<'a> Matrix<'a> {
    /// Outputs.
    pub fn rows(&self) -> usize {
        match self {
            Self::Quantised(w) => w.rows(),
            Self::F32(w) => w.rows(),
        }
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        match self {
            Self::Quantised(w) => w.cols(),
            Self::F32(w) => w.cols(),
        }
    }

    /// The format; `None` for f32.
    pub fn format(&self) -> Option<QuantFormat> {
        match self {
            Self::Quantised(w) => Some(w.format()),
            Self::F32(_) => None,
        }
    }

    /// Some of its rows.
    ///
    /// # Errors
    /// `OutOfRange` if there are not as many.
    pub fn row_range(&self, start: usize, len: usize) -> Result<Self, KernelError> {
        match self {
            Self::Quantised(w) => w.row_range(start, len).map(Self::Quantised),
            Self::F32(w) => w.row_range(start, len).map(Self::F32),
        }
    }

    /// Some of its rows, each by its number, as numbers one behind the other.
    ///
    /// # Errors
    /// `BadIndex` if there is no such row; `BadValue` if the numbers of a row do not lie one behind the other.
    pub(crate) fn decoded(&self, rows: &[u32]) -> Result<Vec<f32>, KernelError> {
        let (k, mut numbers) = (kernels::<f32>(), vec![0.0; rows.len() * self.cols()]);
        let to = MatMut::new(&mut numbers, rows.len(), self.cols())?;
        match self {
            Self::Quantised(w) => k.gather_q(*w, rows, to)?,
            Self::F32(w) => k.gather(*w, rows, to)?,
        }
        Ok(numbers)
    }

    /// Bytes that all its elements have.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Quantised(w) => w.as_bytes().len(),
            Self::F32(w) => size_of::<f32>() * w.rows() * w.cols(),
        }
    }
}

/// All weights of a model: matrices in the file's mapping, vectors as f32.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostWeights<'a> {
    /// `vocabulary x hidden`: a row for each token.
    pub embedding: Matrix<'a>,
    /// `context x hidden`, if `position_embeddings`: a row for each position.
    pub positions: Option<Matrix<'a>>,
    /// `token_types x hidden`, if there are any.
    pub token_types: Option<Matrix<'a>>,
    /// Behind the embedding, if `embedding_norm`.
    pub embedding_norm: Option<NormWeights>,
    /// `vocabulary x hidden`, the embedding again where the two are tied, or where there are no logits; of models that rank texts `labels x hidden`, the classifier.
    pub output: Matrix<'a>,
    /// `hidden` elements, times `logit_scale`, unless `residual_norms`.
    pub output_norm: Option<Vec<f32>>,
    /// What the row of a text is multiplied with, if there is `dense`: `dense x hidden` and `hidden x dense`.
    pub dense: Vec<Matrix<'a>>,
    /// If tokens have embeddings for each layer.
    pub per_layer: Option<PerLayerWeights<'a>>,
    /// If there are several residual streams.
    pub streams: Option<StreamWeights<'a>>,
    /// As many, times `logit_scale`, if that is a layer norm.
    pub output_norm_bias: Option<Vec<f32>>,
    /// `vocabulary` elements, times `logit_scale`, if `output_bias`.
    pub output_bias: Option<Vec<f32>>,
    /// One entry a layer.
    pub layers: Vec<LayerWeights<'a>>,
}

/// What makes the embeddings of tokens for each of the `layers`, of `n` elements.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PerLayerWeights<'a> {
    /// `per_layer_vocabulary x layers * n`.
    pub table: Matrix<'a>,
    /// `layers * n x hidden`.
    pub projection: Matrix<'a>,
    /// `n` elements, divided by the square root of 2.
    pub norm: Vec<f32>,
}

/// What a layer does with its embedding of a token.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerInput<'a> {
    /// `n x hidden`.
    pub gate: Matrix<'a>,
    /// `hidden x n`.
    pub output: Matrix<'a>,
    /// `hidden` elements, times the layer's `scale` if there is one.
    pub post_norm: Vec<f32>,
}

/// What makes the residual streams but the first, and what joins them: for each of them a matrix `hidden x hidden`, all of one format. See [`Streams`](super::Streams).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamWeights<'a> {
    /// In front of the first layer.
    pub split: Vec<Matrix<'a>>,
    /// Behind the last one.
    pub merge: Vec<Matrix<'a>>,
}

/// What a layer has for its `count` streams, of which [`Streams`](super::Streams) has the formulas.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerStreams<'a> {
    /// `count x hidden`, times the weights of the norm in front of it, divided by `hidden`.
    pub router: Vec<f32>,
    /// `count * count x count`: those that make the first stream first.
    pub predict: Vec<f32>,
    /// `count x count`.
    pub correct: Vec<f32>,
    /// `hidden` elements, of the first stream where the layer's embedding has a gate.
    pub scale: Vec<f32>,
    /// Beside attention: `rank x hidden` and `hidden x rank`.
    pub low_rank: [Matrix<'a>; 2],
    /// Behind these: `hidden` elements, divided by the square root of 2.
    pub post_norm: Vec<f32>,
}

/// What a layer norm multiplies with and adds: `hidden` elements each.
#[derive(Clone, Debug)]
pub struct NormWeights {
    /// Factors.
    pub weight: Vec<f32>,
    /// Summands.
    pub bias: Vec<f32>,
}

/// The weights of a layer; [`Config`](super::Config) says what is computed with them. Those of norms that have none are ones. Its heads are those that [`heads_of`](super::Config::heads_of) says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerWeights<'a> {
    /// In front of attention: `hidden` elements, if the layer [norms its input](super::Config::norms_input).
    pub attention_norm: Option<Vec<f32>>,
    /// As many, if that is a layer norm: zeros without `norm_biases`.
    pub attention_norm_bias: Option<Vec<f32>>,
    /// `heads * head_dim x hidden`; twice as many rows if `attention_gates`, those of gates behind those of each head.
    pub q: Matrix<'a>,
    /// `kv_heads * head_dim x hidden`; without rows if the layer has no keys of its own, and so is `v` then.
    pub k: Matrix<'a>,
    /// `kv_heads * head_dim x hidden`; that of keys again where those are values, too; without rows if attention is latent.
    pub v: Matrix<'a>,
    /// `hidden x heads * head_dim`; without rows, as `q`, `k` and `v`, if the layer is without attention.
    pub output: Matrix<'a>,
    /// If attention is latent. Then `q` is `heads * query x hidden`, or `query_rank x hidden`, `k` is the matrix `kv_a`, and `output` is `hidden x heads * values`.
    pub latent: Option<LatentWeights<'a>>,
    /// If the layer is recurrent. Then `q`, `k` and `v` are its matrices, one below the other in the same tensor, and `output` is `hidden x outputs`. Of linear
    /// attention they have `key_heads * key_size`, as many and `value_heads * value_size` rows; of a [short convolution](super::ShortConvolution) they give `b`, `c` and `u`,
    /// and have `channels` rows each.
    pub recurrent: Option<RecurrentWeights<'a>>,
    /// `head_dim` elements, if `qk_norm`; `heads * head_dim` if `qk_norm_whole` or `qk_norm_each`.
    pub q_norm: Option<Vec<f32>>,
    /// `head_dim` elements, if `qk_norm`; `kv_heads * head_dim` if `qk_norm_whole` or `qk_norm_each`.
    pub k_norm: Option<Vec<f32>>,
    /// `head_dim` ones, if `value_norm`.
    pub v_norm: Option<Vec<f32>>,
    /// `heads * head_dim` elements, if `attention_bias`.
    pub q_bias: Option<Vec<f32>>,
    /// `kv_heads * head_dim` elements, if `attention_bias`.
    pub k_bias: Option<Vec<f32>>,
    /// `kv_heads * head_dim` elements, if `attention_bias`.
    pub v_bias: Option<Vec<f32>>,
    /// `hidden` elements, if `attention_output_bias`.
    pub output_bias: Option<Vec<f32>>,
    /// `heads` elements, if `attention_sinks`.
    pub sinks: Option<Vec<f32>>,
    /// Behind attention: `hidden` elements, if `post_norms`; divided by the square root of 2 if there are several streams.
    pub post_attention_norm: Option<Vec<f32>>,
    /// Behind the sum with attention, if `residual_norms`.
    pub attention_sum_norm: Option<NormWeights>,
    /// In front of the feed-forward network: `hidden` elements, if `input_norms`, unless `shared_norm`.
    pub ffn_norm: Option<Vec<f32>>,
    /// As many, if that is a layer norm: zeros without `norm_biases`.
    pub ffn_norm_bias: Option<Vec<f32>>,
    /// The network that every token goes through, if there is one: the feed-forward network, or that beside the experts.
    pub feed_forward: Option<Network<'a>>,
    /// `intermediate` elements, if `up_bias`.
    pub up_bias: Option<Vec<f32>>,
    /// `hidden` elements, if `down_bias`.
    pub down_bias: Option<Vec<f32>>,
    /// The experts, if the layer has them.
    pub experts: Option<ExpertWeights<'a>>,
    /// What it does with its embedding of a token, if tokens have such.
    pub per_layer: Option<LayerInput<'a>>,
    /// What it has for several residual streams, if there are such.
    pub streams: Option<LayerStreams<'a>>,
    /// Behind the feed-forward network: `hidden` elements, if `post_norms`, times the layer's `scale` if there is one and nothing comes behind.
    pub post_ffn_norm: Option<Vec<f32>>,
    /// Behind the sum with the feed-forward network, if `residual_norms`.
    pub ffn_sum_norm: Option<NormWeights>,
}

impl<'a> LayerWeights<'a> {
    /// Its matrices, except for those of experts.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = Matrix<'a>> + '_ {
        let network = self.feed_forward.iter().flat_map(Network::matrices);
        let router = self.experts.iter().map(|experts| experts.router);
        let per_layer = self.per_layer.iter().flat_map(|of| [of.gate, of.output]);
        let latent = self.latent.iter().flat_map(LatentWeights::matrices);
        let low_rank = self.streams.iter().flat_map(|of| of.low_rank);
        let own = self.inputs().into_iter().chain([self.output]).filter(|matrix| matrix.rows() > 0);
        own.chain(network).chain(router).chain(per_layer).chain(latent).chain(low_rank)
    }

    /// The matrices that multiply the input of attention, in the order of their products.
    pub(crate) fn inputs(&self) -> Vec<Matrix<'a>> {
        let linear = self.recurrent.iter().filter_map(|recurrent| recurrent.linear.as_ref());
        let linear = linear.flat_map(|linear| [linear.gates].into_iter().chain(linear.decays.clone()));
        let with_rows = |matrix: &Matrix<'_>| matrix.rows() > 0;
        [self.q, self.k, self.v].into_iter().filter(with_rows).chain(linear).collect()
    }
}

/// What a [recurrent layer](super::Recurrence) has beside its first three matrices and that of the output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecurrentWeights<'a> {
    /// `taps x channels`.
    pub convolution: Vec<f32>,
    /// `channels` elements, if it has a state space.
    pub convolution_bias: Option<Vec<f32>>,
    /// If it has linear attention.
    pub linear: Option<LinearWeights<'a>>,
}

/// What [`LinearAttention`](super::LinearAttention) has beside the convolution and the matrices of queries, keys, values and of the output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinearWeights<'a> {
    /// `value_heads * value_size x hidden`.
    pub gates: Matrix<'a>,
    /// The numbers `b`, if there are any, and `a`, in one or two matrices: `numbers x hidden` in all.
    pub decays: Vec<Matrix<'a>>,
    /// The biases of `a`, `value_heads` elements.
    pub decay_bias: Vec<f32>,
    /// `value_heads` elements, all of them below 0.
    pub rate: Vec<f32>,
    /// `value_size` elements; `value_heads * value_size` in a state space. If states are not normed, all of them are so large that norms change nothing.
    pub norm: Vec<f32>,
    /// `value_heads` elements, in a state space.
    pub skip: Option<Vec<f32>>,
}

/// What [`LatentAttention`](super::LatentAttention) has beside the matrices `q`, `kv_a` and of the output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LatentWeights<'a> {
    /// `query_rank` elements, if there are two products.
    pub query_norm: Option<Vec<f32>>,
    /// `heads * query x query_rank`, if there are two products: `q_b`.
    pub query: Option<Matrix<'a>>,
    /// `rank` elements.
    pub norm: Vec<f32>,
    /// For each head `rank x plain`, all of one format.
    pub keys: Vec<Matrix<'a>>,
    /// For each head `values x rank`, all of one format.
    pub values: Vec<Matrix<'a>>,
}

impl<'a> LatentWeights<'a> {
    fn matrices(&self) -> impl Iterator<Item = Matrix<'a>> + '_ {
        self.query.into_iter().chain(self.keys.iter().chain(&self.values).copied())
    }
}

/// The network that every token of a layer goes through, or one of an expert. `intermediate` is what [`between`](super::Config::between) says, or that of
/// [`Experts`](super::Experts).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Network<'a> {
    /// `intermediate x hidden`: the matrix to whose results the activation is applied, if the network is gated.
    pub gate: Option<Matrix<'a>>,
    /// `intermediate x hidden`.
    pub up: Matrix<'a>,
    /// `hidden x intermediate`.
    pub down: Matrix<'a>,
}

impl<'a> Network<'a> {
    /// Gate, if there is one, up and down.
    pub fn matrices(&self) -> impl Iterator<Item = Matrix<'a>> {
        self.gate.into_iter().chain([self.up, self.down])
    }
}

/// Weights of the norms of experts that have their own: `hidden` elements each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExpertNorms {
    /// In front of the router, divided by the square root of `hidden`.
    pub router: Vec<f32>,
    /// In front of the experts.
    pub experts: Vec<f32>,
    /// Behind the network beside them.
    pub post_shared: Vec<f32>,
    /// Behind them.
    pub post_experts: Vec<f32>,
}

/// The experts of a layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExpertWeights<'a> {
    /// `count x hidden`.
    pub router: Matrix<'a>,
    /// The networks of all `count` experts. Of each of the three matrices, those of all experts have the same format.
    pub each: Vec<Network<'a>>,
    /// `count` elements, if the model has biases.
    pub router_bias: Option<Vec<f32>>,
    /// `count` elements, if there is a bias of choosing.
    pub selection_bias: Option<Vec<f32>>,
    /// Of gate, up and down, those of all experts one behind the other, if the model has biases: `count * intermediate` elements, as many, and
    /// `count * hidden`.
    pub biases: Option<[Vec<f32>; 3]>,
    /// `count` elements, if each expert has a factor.
    pub factors: Option<Vec<f32>>,
    /// If they are `normed`.
    pub norms: Option<ExpertNorms>,
    /// `hidden` elements, if there is a network beside the experts that has a gate.
    pub shared_gate: Option<Vec<f32>>,
}

impl<'a> ExpertWeights<'a> {
    /// Gate, if there is one, up and down of each expert, expert by expert.
    pub fn matrices(&self) -> impl Iterator<Item = Matrix<'a>> + '_ {
        self.each.iter().flat_map(Network::matrices)
    }
}
