//! A model's matrices and vectors on any device: in which order they come there, and how the operations of a step find theirs.

use super::{BackendError, Linear, NormWeight};
use crate::model::{
    ExpertWeights, HostWeights, LayerInput, LayerStreams, Matrix, Network, NormWeights, RecurrentWeights,
};

/// Brings matrices and vectors to a device.
pub(super) trait Upload<'a> {
    /// Matrices that multiply the same input.
    type Product;
    /// Numbers that are no matrix.
    type Vector;
    /// The experts of a layer.
    type Experts;
    /// Matrices of all heads of a layer.
    type Heads;

    /// Matrices that multiply the same input; there may be none.
    fn product(&mut self, matrices: &[Matrix<'a>]) -> Result<Self::Product, BackendError>;
    /// The same; matrices of which some results are used alone stay apart.
    fn apart(&mut self, matrices: &[Matrix<'a>]) -> Result<Self::Product, BackendError> {
        self.product(matrices)
    }
    /// A vector.
    fn vector(&mut self, numbers: &[f32]) -> Result<Self::Vector, BackendError>;
    /// The experts of a layer.
    fn experts(&mut self, of: &ExpertWeights<'a>) -> Result<Self::Experts, BackendError>;
    /// Matrices of all heads of a layer, one of each, all of one shape and format.
    fn heads(&mut self, matrices: &[Matrix<'a>]) -> Result<Self::Heads, BackendError>;
}

/// What a norm multiplies with, and what it adds.
#[derive(Debug)]
struct Normed<V> {
    weight: V,
    bias: Option<V>,
}

impl<V> Normed<V> {
    /// Brings a norm to a device, if the model has it.
    fn upload<'a>(
        to: &mut impl Upload<'a, Vector = V>,
        weight: Option<&Vec<f32>>,
        bias: Option<&Vec<f32>>,
    ) -> Result<Option<Self>, BackendError> {
        let Some(weight) = weight else { return Ok(None) };
        let bias = bias.map(|bias| to.vector(bias)).transpose()?;
        Ok(Some(Self { weight: to.vector(weight)?, bias }))
    }

    /// The same for a norm of the residual stream; in its place models may have one without a bias.
    fn upload_sum<'a>(
        to: &mut impl Upload<'a, Vector = V>,
        weight: Option<&Vec<f32>>,
        both: Option<&NormWeights>,
    ) -> Result<Option<Self>, BackendError> {
        Self::upload(to, weight.or(both.map(|norm| &norm.weight)), both.map(|norm| &norm.bias))
    }
}

/// What a recurrent layer has beside its matrices.
#[derive(Debug)]
pub(super) struct RecurrentVectors<V> {
    /// `taps x channels`.
    pub(super) convolution: V,
    pub(super) convolution_bias: Option<V>,
    pub(super) linear: Option<LinearVectors<V>>,
}

/// What a layer with linear attention has beside its matrices, and beside the convolution.
#[derive(Debug)]
pub(super) struct LinearVectors<V> {
    pub(super) decay_bias: V,
    pub(super) rate: V,
    pub(super) norm: V,
    pub(super) skip: Option<V>,
}

impl<V> RecurrentVectors<V> {
    fn upload<'a>(
        to: &mut impl Upload<'a, Vector = V>,
        of: &RecurrentWeights<'a>,
    ) -> Result<Self, BackendError> {
        let convolution = to.vector(&of.convolution)?;
        let convolution_bias = of.convolution_bias.as_ref().map(|bias| to.vector(bias)).transpose()?;
        let linear = match &of.linear {
            Some(linear) => Some(LinearVectors {
                decay_bias: to.vector(&linear.decay_bias)?,
                rate: to.vector(&linear.rate)?,
                norm: to.vector(&linear.norm)?,
                skip: linear.skip.as_ref().map(|skip| to.vector(skip)).transpose()?,
            }),
            None => None,
        };
        Ok(Self { convolution, convolution_bias, linear })
    }
}

/// What a layer with latent attention has beside the matrices of products.
#[derive(Debug)]
pub(super) struct Latent<V, H> {
    /// The norm of what is cached.
    pub(super) norm: V,
    pub(super) keys: H,
    pub(super) values: H,
}

/// What a layer with several residual streams has beside matrices of products.
#[derive(Debug)]
pub(super) struct StreamVectors<V> {
    pub(super) router: V,
    pub(super) predict: V,
    pub(super) correct: V,
    pub(super) scale: V,
}

impl<V> StreamVectors<V> {
    fn upload<'a>(to: &mut impl Upload<'a, Vector = V>, of: &LayerStreams<'a>) -> Result<Self, BackendError> {
        Ok(Self {
            router: to.vector(&of.router)?,
            predict: to.vector(&of.predict)?,
            correct: to.vector(&of.correct)?,
            scale: to.vector(&of.scale)?,
        })
    }
}

/// A layer is asked for something that its kind does not have.
fn other_kind(what: &str) -> BackendError {
    BackendError::Unsupported(format!("{what} in a layer that has none"))
}

/// A layer's matrices and vectors.
#[derive(Debug)]
struct Layer<P, V, E, H> {
    qkv: P,
    /// Without matrices unless queries are two products.
    queries: P,
    attention_output: P,
    /// Of the network that every token goes through; without matrices if there is none.
    gate_up: P,
    down: P,
    experts: Option<E>,
    attention_norm: Option<Normed<V>>,
    post_attention_norm: Option<Normed<V>>,
    ffn_norm: Option<Normed<V>>,
    post_ffn_norm: Option<Normed<V>>,
    head_norms: Option<V>,
    bias: Option<V>,
    attention_output_bias: Option<V>,
    up_bias: Option<V>,
    down_bias: Option<V>,
    sinks: Option<V>,
    recurrent: Option<RecurrentVectors<V>>,
    /// Gate and output of the layer's embeddings; without matrices if there are none.
    per_layer: [P; 2],
    post_per_layer: Option<Normed<V>>,
    /// The two matrices beside attention; without matrices if there is one residual stream.
    low_rank: [P; 2],
    post_low_rank: Option<Normed<V>>,
    streams: Option<StreamVectors<V>>,
    query_norm: Option<Normed<V>>,
    latent: Option<Latent<V, H>>,
    /// Of router, experts, the network beside them, and behind the experts, if these have norms of their own.
    expert_norms: Option<[Normed<V>; 4]>,
}

/// A model's matrices and vectors on a device, except for its embedding. The parameters are the types of [`Upload`].
#[derive(Debug)]
pub(super) struct Tensors<P, V, E, H> {
    layers: Vec<Layer<P, V, E, H>>,
    output: P,
    output_bias: Option<V>,
    output_norm: Option<Normed<V>>,
    embedding_norm: Option<Normed<V>>,
    /// What is added to the embeddings for each layer, and the weight of its norm.
    per_layer: P,
    per_layer_norm: Option<V>,
    /// What makes residual streams, and what joins them.
    split: P,
    merge: Vec<P>,
}

impl<P, V, E, H> Tensors<P, V, E, H> {
    /// Brings a model to a device, layer by layer.
    pub(super) fn upload<'a>(
        to: &mut impl Upload<'a, Product = P, Vector = V, Experts = E, Heads = H>,
        weights: &HostWeights<'a>,
    ) -> Result<Self, BackendError> {
        let mut layers = Vec::with_capacity(weights.layers.len());
        for l in &weights.layers {
            let mut network: Vec<_> = l.feed_forward.iter().flat_map(Network::matrices).collect();
            let down = network.split_off(network.len().saturating_sub(1));
            let mut norm =
                |weight: &Option<_>, bias: &Option<_>| Normed::upload(to, weight.as_ref(), bias.as_ref());
            let attention_norm = norm(&l.attention_norm, &l.attention_norm_bias)?;
            let ffn_norm = norm(&l.ffn_norm, &l.ffn_norm_bias)?;
            let mut sum =
                |weight: &Option<_>, both: &Option<_>| Normed::upload_sum(to, weight.as_ref(), both.as_ref());
            let post_attention_norm = sum(&l.post_attention_norm, &l.attention_sum_norm)?;
            let post_ffn_norm = sum(&l.post_ffn_norm, &l.ffn_sum_norm)?;
            let mut optional = |x: Option<&[f32]>| x.map(|x| to.vector(x)).transpose();
            let norms = [&l.q_norm, &l.k_norm, &l.v_norm].map(|norm| norm.as_deref().unwrap_or(&[]));
            let head_norms = optional(Some(&norms.concat()[..]).filter(|all| !all.is_empty()))?;
            let bias = optional(joined([&l.q_bias, &l.k_bias, &l.v_bias]).as_deref())?;
            let attention_output_bias = optional(l.output_bias.as_deref())?;
            let up_bias = optional(l.up_bias.as_deref())?;
            let down_bias = optional(l.down_bias.as_deref())?;
            let sinks = optional(l.sinks.as_deref())?;
            let recurrent = l.recurrent.as_ref().map(|of| RecurrentVectors::upload(to, of)).transpose()?;
            let of_layer = |which: fn(&LayerInput<'a>) -> Matrix<'a>| l.per_layer.iter().map(which);
            let gate: Vec<_> = of_layer(|of| of.gate).collect();
            let out: Vec<_> = of_layer(|of| of.output).collect();
            let per_layer = [to.product(&gate)?, to.product(&out)?];
            let post = l.per_layer.as_ref().map(|of| &of.post_norm);
            let post_per_layer = Normed::upload(to, post, None)?;
            let low_rank = l.streams.iter().flat_map(|of| of.low_rank).collect::<Vec<_>>();
            let (first, second) = low_rank.split_at(low_rank.len() / 2);
            let low_rank = [to.product(first)?, to.product(second)?];
            let post_low_rank = Normed::upload(to, l.streams.as_ref().map(|of| &of.post_norm), None)?;
            let streams = l.streams.as_ref().map(|of| StreamVectors::upload(to, of)).transpose()?;
            let latent = match &l.latent {
                Some(latent) => Some(Latent {
                    norm: to.vector(&latent.norm)?,
                    keys: to.heads(&latent.keys)?,
                    values: to.heads(&latent.values)?,
                }),
                None => None,
            };
            let of_latent = l.latent.as_ref();
            let query_norm = of_latent.and_then(|latent| latent.query_norm.as_ref());
            let query: Vec<_> = of_latent.and_then(|latent| latent.query).into_iter().collect();
            let output: Vec<_> = [l.output].into_iter().filter(|output| output.rows() > 0).collect();
            let norms = l.experts.as_ref().and_then(|experts| experts.norms.as_ref());
            let mut of_experts =
                |weight: &Vec<f32>| Ok::<_, BackendError>(Normed { weight: to.vector(weight)?, bias: None });
            let expert_norms = match norms {
                Some(of) => Some([
                    of_experts(&of.router)?,
                    of_experts(&of.experts)?,
                    of_experts(&of.post_shared)?,
                    of_experts(&of.post_experts)?,
                ]),
                None => None,
            };
            let (whole, inputs) =
                (l.q_norm.as_ref().is_some_and(|norm| norm.len() == l.q.rows()), l.inputs());
            layers.push(Layer {
                qkv: if whole || latent.is_some() { to.apart(&inputs)? } else { to.product(&inputs)? },
                queries: to.product(&query)?,
                attention_output: to.product(&output)?,
                gate_up: to.product(&network)?,
                down: to.product(&down)?,
                experts: l.experts.as_ref().map(|of| to.experts(of)).transpose()?,
                attention_norm,
                post_attention_norm,
                ffn_norm,
                post_ffn_norm,
                head_norms,
                bias,
                attention_output_bias,
                up_bias,
                down_bias,
                sinks,
                recurrent,
                per_layer,
                post_per_layer,
                low_rank,
                post_low_rank,
                streams,
                query_norm: Normed::upload(to, query_norm, None)?,
                latent,
                expert_norms,
            });
        }
        let output = to.product(&[weights.output])?;
        let output_bias = weights.output_bias.as_ref().map(|bias| to.vector(bias)).transpose()?;
        let output_norm =
            Normed::upload(to, weights.output_norm.as_ref(), weights.output_norm_bias.as_ref())?;
        let embedding_norm = Normed::upload_sum(to, None, weights.embedding_norm.as_ref())?;
        let projection: Vec<_> = weights.per_layer.iter().map(|of| of.projection).collect();
        let per_layer = to.product(&projection)?;
        let per_layer_norm = weights.per_layer.as_ref().map(|of| to.vector(&of.norm)).transpose()?;
        let split: Vec<_> = weights.streams.iter().flat_map(|of| of.split.iter().copied()).collect();
        let split = to.product(&split)?;
        let merge = weights.streams.iter().flat_map(|of| &of.merge);
        Ok(Self {
            layers,
            output,
            output_bias,
            output_norm,
            embedding_norm,
            per_layer,
            per_layer_norm,
            split,
            merge: merge.map(|matrix| to.product(&[*matrix])).collect::<Result<_, _>>()?,
        })
    }

    /// The matrices of an operation.
    pub(super) fn linear(&self, linear: Linear) -> &P {
        match linear {
            Linear::Qkv(l) => &self.layers[l].qkv,
            Linear::Queries(l) => &self.layers[l].queries,
            Linear::AttentionOutput(l) => &self.layers[l].attention_output,
            Linear::GateUp(l) => &self.layers[l].gate_up,
            Linear::Down(l) => &self.layers[l].down,
            Linear::PerLayer => &self.per_layer,
            Linear::PerLayerGate(l) => &self.layers[l].per_layer[0],
            Linear::PerLayerOutput(l) => &self.layers[l].per_layer[1],
            Linear::Streams => &self.split,
            Linear::LowRankDown(l) => &self.layers[l].low_rank[0],
            Linear::LowRankUp(l) => &self.layers[l].low_rank[1],
            Linear::Merge(other) => &self.merge[other],
            Linear::Output => &self.output,
        }
    }

    /// The matrices of all operations, without those of experts.
    pub(super) fn all_linear(&self) -> impl Iterator<Item = &P> {
        let of_layer = |l| {
            let beside = [Linear::PerLayerGate(l), Linear::PerLayerOutput(l)];
            let beside = beside.into_iter().chain([Linear::LowRankDown(l), Linear::LowRankUp(l)]);
            let of_attention = [Linear::Qkv(l), Linear::Queries(l), Linear::AttentionOutput(l)];
            of_attention.into_iter().chain([Linear::GateUp(l), Linear::Down(l)]).chain(beside)
        };
        let of_model = [Linear::PerLayer, Linear::Streams, Linear::Output];
        let merge = (0..self.merge.len()).map(Linear::Merge);
        (0..self.layers.len())
            .flat_map(of_layer)
            .chain(of_model)
            .chain(merge)
            .map(|linear| self.linear(linear))
    }

    /// The weight of a norm.
    ///
    /// # Errors
    /// `Unsupported` if the model lacks this norm.
    pub(super) fn norm(&self, norm: NormWeight) -> Result<&V, BackendError> {
        let missing = || BackendError::Unsupported(format!("the model has no weight for {norm:?}"));
        self.normed(norm).map(|norm| &norm.weight).ok_or_else(missing)
    }

    /// What a norm adds, if it adds something.
    pub(super) fn norm_bias(&self, norm: NormWeight) -> Option<&V> {
        self.normed(norm)?.bias.as_ref()
    }

    fn normed(&self, norm: NormWeight) -> Option<&Normed<V>> {
        let of_experts = |l: usize, which: usize| Some(&self.layers[l].expert_norms.as_ref()?[which]);
        let of = match norm {
            NormWeight::Router(l) => return of_experts(l, 0),
            NormWeight::Experts(l) => return of_experts(l, 1),
            NormWeight::PostShared(l) => return of_experts(l, 2),
            NormWeight::PostExperts(l) => return of_experts(l, 3),
            NormWeight::Embedding => &self.embedding_norm,
            NormWeight::Attention(l) => &self.layers[l].attention_norm,
            NormWeight::Queries(l) => &self.layers[l].query_norm,
            NormWeight::PostAttention(l) => &self.layers[l].post_attention_norm,
            NormWeight::Ffn(l) => &self.layers[l].ffn_norm,
            NormWeight::PostFfn(l) => &self.layers[l].post_ffn_norm,
            NormWeight::PostPerLayer(l) => &self.layers[l].post_per_layer,
            NormWeight::PostLowRank(l) => &self.layers[l].post_low_rank,
            NormWeight::Output => &self.output_norm,
        };
        of.as_ref()
    }

    /// The experts of a layer, if it has any.
    pub(super) fn experts(&self, layer: usize) -> Option<&E> {
        self.layers[layer].experts.as_ref()
    }

    /// The experts of all layers.
    pub(super) fn all_experts(&self) -> impl Iterator<Item = &E> {
        self.layers.iter().filter_map(|layer| layer.experts.as_ref())
    }

    /// The weights of the norms of a layer's heads, or of all heads together: those of queries, then those of keys, then those of values if they have a norm.
    pub(super) fn head_norms(&self, layer: usize) -> Option<&V> {
        self.layers[layer].head_norms.as_ref()
    }

    /// The weight of the norm of what is added to the embeddings for each layer.
    pub(super) fn per_layer_norm(&self) -> Option<&V> {
        self.per_layer_norm.as_ref()
    }

    /// A layer's biases of queries, keys and values, one behind the other.
    pub(super) fn bias(&self, layer: usize) -> Option<&V> {
        self.layers[layer].bias.as_ref()
    }

    /// The bias that is added to the products of an operation at once; those of queries, keys and values are [added later](Self::bias).
    pub(super) fn linear_bias(&self, linear: Linear) -> Option<&V> {
        match linear {
            Linear::AttentionOutput(l) => self.layers[l].attention_output_bias.as_ref(),
            Linear::GateUp(l) => self.layers[l].up_bias.as_ref(),
            Linear::Down(l) => self.layers[l].down_bias.as_ref(),
            Linear::Output => self.output_bias.as_ref(),
            _ => None,
        }
    }

    /// What a recurrent layer has beside its matrices.
    ///
    /// # Errors
    /// `Unsupported` if the layer is another one.
    pub(super) fn recurrent(&self, layer: usize) -> Result<&RecurrentVectors<V>, BackendError> {
        self.layers[layer].recurrent.as_ref().ok_or_else(|| other_kind("a recurrence"))
    }

    /// What a layer has for linear attention.
    ///
    /// # Errors
    /// `Unsupported` if the layer has none.
    pub(super) fn linear_attention(&self, layer: usize) -> Result<&LinearVectors<V>, BackendError> {
        self.recurrent(layer)?.linear.as_ref().ok_or_else(|| other_kind("linear attention"))
    }

    /// What a layer has for latent attention.
    pub(super) fn latent(&self, layer: usize) -> Option<&Latent<V, H>> {
        self.layers[layer].latent.as_ref()
    }

    /// What a layer has for several residual streams.
    ///
    /// # Errors
    /// `Unsupported` if the model has one stream.
    pub(super) fn streams(&self, layer: usize) -> Result<&StreamVectors<V>, BackendError> {
        self.layers[layer].streams.as_ref().ok_or_else(|| other_kind("several residual streams"))
    }

    /// The matrices of all heads of all layers with latent attention.
    pub(super) fn all_heads(&self) -> impl Iterator<Item = &H> {
        let latent = self.layers.iter().filter_map(|layer| layer.latent.as_ref());
        latent.flat_map(|latent| [&latent.keys, &latent.values])
    }

    /// The sinks of a layer's heads.
    pub(super) fn sinks(&self, layer: usize) -> Option<&V> {
        self.layers[layer].sinks.as_ref()
    }
}

/// Vectors one behind the other, if the model has all of them.
fn joined<const N: usize>(vectors: [&Option<Vec<f32>>; N]) -> Option<Vec<f32>> {
    let all: Option<Vec<&[f32]>> = vectors.into_iter().map(Option::as_deref).collect();
    all.map(|all| all.concat())
}
