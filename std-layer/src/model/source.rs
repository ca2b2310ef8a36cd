//! Opening of model files, whose tensors become matrices in the host's memory without being copied.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gllm_kernels_core::{bf16, f16, KernelError, MatRef};

use super::names::{self, Name, Naming};
use super::split::{map, Split};
use super::weights::{
    ExpertNorms, ExpertWeights, HostWeights, LayerInput, LayerWeights, Matrix, Network, NormWeights,
    PerLayerWeights,
};
use super::{checkpoint, Config, KvHeads, ModelError, Norm, Recurrence};
use crate::gguf::{GgmlType, Gguf, Tensor, Value};

/// A model's file, or the files that it is split into.
#[derive(Debug)]
pub(super) struct Files<'a> {
    pub(super) parts: Vec<(PathBuf, Gguf<'a>)>,
    /// Tensors that were made of those of the files, and take the place of those of the same name.
    pub(super) made: Vec<Gguf<'a>>,
    naming: Naming,
}

impl<'a> Files<'a> {
    /// The file with the metadata.
    pub(super) fn first(&self) -> &Gguf<'a> {
        &self.parts[0].1
    }

    /// Who named the tensors, and stored the matrices of queries and keys as their order of pairs asks for.
    pub(super) fn naming(&self) -> Naming {
        self.naming
    }

    /// The tensor of this role, of the first layer if layers have one, whatever its shape.
    pub(super) fn named(&self, name: &Name) -> Option<Tensor<'_>> {
        self.of_any(name, 0)
    }

    /// The tensor of this role that a layer has if a model is not special.
    pub(super) fn of_any(&self, name: &Name, layer: usize) -> Option<Tensor<'_>> {
        self.tensor(&name.in_any(self.naming, layer))
    }

    pub(super) fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.all().find_map(|file| file.tensor(name))
    }

    pub(super) fn tensors_len(&self) -> usize {
        self.parts.iter().map(|(_, file)| file.tensors_len()).sum()
    }

    /// Whether a layer has a bias of choosing experts.
    pub(super) fn have_selection_bias(&self) -> bool {
        let ends = [".exp_probs_b.bias", ".e_score_correction_bias"];
        self.tensors().any(|tensor| ends.iter().any(|end| tensor.name().ends_with(end)))
    }

    /// Whether gate and up of all experts of a layer are in one tensor.
    pub(super) fn have_fused_experts(&self) -> bool {
        let ends = [".ffn_gate_up_exps.weight", ".experts.gate_up_proj"];
        self.tensors().any(|tensor| ends.iter().any(|end| tensor.name().ends_with(end)))
    }

    fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.all().flat_map(|file| file.tensors())
    }

    fn all(&self) -> impl Iterator<Item = &Gguf<'a>> {
        self.made.iter().chain(self.parts.iter().map(|(_, file)| file))
    }

    /// No name twice, no byte in two tensors.
    fn check(&self) -> Result<(), ModelError> {
        let mut names: Vec<(&str, &Path)> = Vec::new();
        for (path, file) in &self.parts {
            names.extend(file.tensors().map(|t| (t.name(), &**path)));
            let mut places: Vec<_> = file.tensors().filter(|t| t.size() > Some(0)).collect();
            places.sort_by_key(|t| t.file_offset());
            for pair in places.windows(2) {
                if pair[0].file_offset() + pair[0].size().unwrap_or(0) > pair[1].file_offset() {
                    let problem = format!("shares bytes with the tensor {:?}", pair[0].name());
                    return Err(bad_tensor(pair[1].name(), problem));
                }
            }
        }
        names.sort();
        match names.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some([(name, a), (_, b)]) => {
                Err(bad_tensor(name, format!("is in {} and in {}", a.display(), b.display())))
            }
            _ => Ok(()),
        }
    }

    /// A tensor of the model's shape: of a layer, and of an expert if each has one.
    pub(super) fn find(
        &self,
        config: &Config,
        name: &Name,
        at: [usize; 2],
    ) -> Result<Tensor<'_>, ModelError> {
        let (own, expected) = (name.of(self.naming, config, at), name.dims(self.naming, config, at[0]));
        let Some(tensor) = self.tensor(&own) else {
            let hf = name.in_hf(config, at[0]);
            return Err(ModelError::MissingTensor { name: own, hf, expected });
        };
        // Trailing ones are no dimensions.
        let found = tensor.dims();
        let (head, tail) = found.split_at(found.len().min(expected.len()));
        if head != expected || tail.iter().any(|&d| d != 1) {
            return Err(ModelError::WrongShape { name: own, found: found.to_vec(), expected });
        }
        Ok(tensor)
    }

    pub(super) fn matrix(
        &self,
        config: &Config,
        name: &Name,
        at: [usize; 2],
    ) -> Result<Matrix<'_>, ModelError> {
        let tensor = self.find(config, name, at)?;
        let bad = |problem: String| bad_tensor(tensor.name(), problem);
        if tensor.ggml_type() == GgmlType::F32 {
            let numbers = tensor.as_slice().ok_or_else(|| bad("is not aligned to 4 bytes".to_owned()))?;
            let (rows, cols) = (tensor.rows().unwrap_or(0) as usize, tensor.cols() as usize);
            return MatRef::new(numbers, rows, cols).map(Matrix::F32).map_err(|e| bad(e.to_string()));
        }
        let unknown = |e| bad(format!("has the type {}: {e}", tensor.ggml_type()));
        tensor.as_quant_ref().map(Matrix::Quantised).map_err(unknown)
    }

    /// A vector, if this model has it; its numbers are finite.
    pub(super) fn optional(
        &self,
        config: &Config,
        name: &Name,
        layer: usize,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let needed = name.needed(config, layer);
        needed.then(|| self.vector(config, name, layer)).transpose()
    }

    pub(super) fn vector(&self, config: &Config, name: &Name, layer: usize) -> Result<Vec<f32>, ModelError> {
        numbers(self.find(config, name, [layer, 0])?)
    }

    /// The weights of a layer norm, if this model has it; zeros for its bias if it has none.
    fn norm(
        &self,
        config: &Config,
        [weight, bias]: &names::Norm,
        layer: usize,
    ) -> Result<Option<NormWeights>, ModelError> {
        let of = |name| self.optional(config, name, layer);
        let with_bias = |weight: Vec<f32>| {
            let bias = of(bias)?.unwrap_or_else(|| vec![0.0; weight.len()]);
            Ok(NormWeights { weight, bias })
        };
        of(weight)?.map(with_bias).transpose()
    }

    /// What a norm of a decoder adds, if the model has it and it is a layer norm: zeros if these have no biases.
    fn norm_bias(
        &self,
        config: &Config,
        [weight, bias]: [&Name; 2],
        layer: usize,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let needed = weight.needed(config, layer) || config.norms_unweighted;
        match config.norm == Norm::Layer && needed && !config.norm_biases {
            true => Ok(Some(vec![0.0; config.hidden])),
            false => self.optional(config, bias, layer),
        }
    }

    /// Matrices of so many rows that are one below the other in one tensor.
    pub(super) fn parts<const N: usize>(
        &self,
        config: &Config,
        name: &Name,
        layer: usize,
        rows: [usize; N],
    ) -> Result<[Matrix<'_>; N], ModelError> {
        let whole = self.matrix(config, name, [layer, 0])?;
        let (mut parts, mut start) = ([whole; N], 0);
        for (part, n) in parts.iter_mut().zip(rows) {
            let bad = |e: KernelError| bad_tensor(&name.of(self.naming, config, [layer, 0]), e.to_string());
            *part = whole.row_range(start, n).map_err(bad)?;
            start += n;
        }
        Ok(parts)
    }

    /// The matrices of all experts of a layer, of all heads, or of all streams but the first, which are one below the other in one tensor, or have a tensor each; all of one format.
    pub(super) fn stacked(
        &self,
        config: &Config,
        name: &Name,
        layer: usize,
        count: usize,
    ) -> Result<Vec<Matrix<'_>>, ModelError> {
        let bad =
            |expert: usize, problem| bad_tensor(&name.of(self.naming, config, [layer, expert]), problem);
        let first = self.matrix(config, name, [layer, 0])?;
        let own = |expert: usize| match name.count(self.naming, config) {
            1 => {
                let rows = first.rows() / count;
                first.row_range(expert * rows, rows).map_err(|e| bad(expert, e.to_string()))
            }
            _ => match self.matrix(config, name, [layer, expert])? {
                own if own.format() == first.format() => Ok(own),
                own => {
                    let text = |matrix: Matrix<'_>| matrix.format().map_or("f32", |format| format.name());
                    let problem = format!("is in {}, and that of expert 0 in {}", text(own), text(first));
                    Err(bad(expert, problem))
                }
            },
        };
        (0..count).map(own).collect()
    }

    /// The networks of all experts of a layer.
    fn experts<'b>(
        &'b self,
        config: &Config,
        layer: usize,
        count: usize,
    ) -> Result<Vec<Network<'b>>, ModelError> {
        let all = |name: &Name| self.stacked(config, name, layer, count);
        let [gate, up, down] = &names::EXPERTS;
        if config.fused_experts {
            let network = |(both, down): (Matrix<'b>, Matrix<'b>)| {
                let rows = both.rows() / 2;
                let half = |part: usize| {
                    let bad = |e: KernelError| {
                        bad_tensor(&names::FUSED_EXPERTS.of(self.naming, config, [layer, 0]), e.to_string())
                    };
                    both.row_range(part * rows, rows).map_err(bad)
                };
                Ok(Network { gate: Some(half(0)?), up: half(1)?, down })
            };
            return all(&names::FUSED_EXPERTS)?.into_iter().zip(all(down)?).map(network).collect();
        }
        let gate = config.gated.then(|| all(gate)).transpose()?;
        let both = all(up)?.into_iter().zip(all(down)?).enumerate();
        let gate = |expert: usize| gate.as_ref().map(|gate| gate[expert]);
        Ok(both.map(|(i, (up, down))| Network { gate: gate(i), up, down }).collect())
    }

    fn layer(&self, config: &Config, layer: usize) -> Result<LayerWeights<'_>, ModelError> {
        let matrix = |name| self.matrix(config, name, [layer, 0]);
        let vector = |name| self.vector(config, name, layer);
        let optional = |name| self.optional(config, name, layer);
        let norm = |name| self.norm(config, name, layer);
        let network = |[gate, up, down]: &'static names::Network| {
            if config.fused_gate_up {
                let n = config.intermediate;
                let [gate, up] = self.parts(config, &names::GATE_UP, layer, [n, n])?;
                return Ok::<_, ModelError>(Network { gate: Some(gate), up, down: matrix(down)? });
            }
            let gate = config.gated.then(|| matrix(gate)).transpose()?;
            Ok(Network { gate, up: matrix(up)?, down: matrix(down)? })
        };
        let KvHeads { count, dim } = config.heads_of(layer);
        let (queries, keys) = (config.heads * config.query_step(dim), count * dim);
        let sizes = [queries, keys, keys];
        let recurrence = config.recurrence_of(layer);
        // What a layer does not have.
        let none = self.matrix(config, &names::EMBEDDING, [0, 0])?.row_range(0, 0);
        let none = none.map_err(|e| bad_tensor(names::EMBEDDING.gguf, e.to_string()))?;
        let without_attention = config.layer[layer].without_attention;
        let ([q, k, v], output) = match recurrence {
            None if without_attention => ([none; 3], &names::ATTENTION_OUTPUT),
            Some(Recurrence::Linear(of)) => (self.of_linear(config, of, layer)?.0, &names::LINEAR_OUTPUT),
            Some(Recurrence::Convolution(of)) => {
                let parts = self.parts(config, &names::CONVOLUTION_INPUTS, layer, [of.channels; 3])?;
                (parts, &names::CONVOLUTION_OUTPUT)
            }
            None if config.latent_attention.is_some() => {
                let twice = config.latent_attention.is_some_and(|latent| latent.query_rank.is_some());
                let q = matrix(if twice { &names::LATENT_QUERY_DOWN } else { &names::Q })?;
                ([q, matrix(&names::LATENT)?, none], &names::ATTENTION_OUTPUT)
            }
            None if config.fused_qkv => {
                (self.parts(config, &names::QKV, layer, sizes)?, &names::ATTENTION_OUTPUT)
            }
            None => {
                let q = matrix(if config.gates_apart { &names::QUERIES_AND_GATES } else { &names::Q })?;
                let own = |name: &Name, other| match name.needed(config, layer) {
                    true => self.matrix(config, name, [layer, 0]),
                    false => Ok(other),
                };
                let k = own(&names::K, none)?;
                ([q, k, own(&names::V, k)?], &names::ATTENTION_OUTPUT)
            }
        };
        let [q_bias, k_bias, v_bias] = match optional(&names::QKV_BIAS)? {
            Some(all) => {
                let mut rest = &all[..];
                sizes.map(|n| rest.split_off(..n).map(<[f32]>::to_vec))
            }
            None => [optional(&names::Q_BIAS)?, optional(&names::K_BIAS)?, optional(&names::V_BIAS)?],
        };
        let experts = config.experts.filter(|_| config.layer[layer].experts);
        let mut post_ffn_norm = optional(&names::POST_FFN_NORM)?;
        let scale = config.layer[layer].scale.unwrap_or(1.0);
        let mut post_per_layer = optional(&names::POST_PER_LAYER_NORM)?;
        let last = if config.per_layer.is_some() { &mut post_per_layer } else { &mut post_ffn_norm };
        last.iter_mut().flatten().for_each(|weight| *weight *= scale);
        let per_layer = |post_norm| {
            let (gate, output) = (matrix(&names::PER_LAYER_GATE)?, matrix(&names::PER_LAYER_OUTPUT)?);
            Ok::<_, ModelError>(LayerInput { gate, output, post_norm })
        };
        let mut post_attention_norm = optional(&names::POST_ATTENTION_NORM)?;
        if config.streams.is_some() {
            let by = std::f32::consts::FRAC_1_SQRT_2;
            post_attention_norm.iter_mut().flatten().for_each(|weight| *weight *= by);
        }
        let unweighted = || config.norms_unweighted.then(|| vec![1.0; config.hidden]);
        let rotated = config.ropes[config.layer[layer].rope].dims > 0;
        let ones = (config.qk_norm && config.qk_norm_unweighted && rotated).then(|| vec![1.0; dim]);
        // Its number is in the configuration; this is about its shape.
        optional(&names::SCALE)?;
        Ok(LayerWeights {
            attention_norm: optional(&names::ATTENTION_NORM)?.or_else(unweighted),
            attention_norm_bias: self.norm_bias(
                config,
                [&names::ATTENTION_NORM, &names::ATTENTION_NORM_BIAS],
                layer,
            )?,
            q,
            k,
            v,
            output: if without_attention { none } else { matrix(output)? },
            recurrent: recurrence.map(|of| self.recurrent(config, of, layer)).transpose()?,
            latent: config.latent_attention.map(|latent| self.latent(config, &latent, layer)).transpose()?,
            q_norm: ones.clone().map_or_else(|| optional(&names::Q_NORM), |ones| Ok(Some(ones)))?,
            k_norm: ones.map_or_else(|| optional(&names::K_NORM), |ones| Ok(Some(ones)))?,
            v_norm: (config.value_norm && names::K.needed(config, layer)).then(|| vec![1.0; dim]),
            q_bias,
            k_bias,
            v_bias,
            output_bias: optional(&names::ATTENTION_OUTPUT_BIAS)?,
            sinks: optional(&names::SINKS)?,
            post_attention_norm,
            attention_sum_norm: norm(&names::ATTENTION_SUM_NORM)?,
            ffn_norm: optional(&names::FFN_NORM)?.or_else(unweighted),
            ffn_norm_bias: self.norm_bias(config, [&names::FFN_NORM, &names::FFN_NORM_BIAS], layer)?,
            feed_forward: match (experts, config.between(layer)) {
                (_, 0) => None,
                (None, _) => Some(network(&names::FEED_FORWARD)?),
                (Some(experts), _) if experts.normed => Some(network(&names::FEED_FORWARD)?),
                _ => Some(network(&names::SHARED)?),
            },
            up_bias: optional(&names::UP_BIAS)?,
            down_bias: optional(&names::DOWN_BIAS)?,
            experts: match experts {
                None => None,
                Some(experts) => Some(ExpertWeights {
                    router: matrix(&names::ROUTER)?,
                    each: self.experts(config, layer, experts.count)?,
                    router_bias: optional(&names::ROUTER_BIAS)?,
                    selection_bias: optional(&names::SELECTION_BIAS)?,
                    biases: match (experts.biases, &names::EXPERT_BIASES) {
                        (true, [gate, up, down]) => Some([vector(gate)?, vector(up)?, vector(down)?]),
                        (false, _) => None,
                    },
                    factors: optional(&names::EXPERT_FACTORS)?,
                    norms: match experts.normed {
                        true => Some(ExpertNorms {
                            router: {
                                let by = 1.0 / (config.hidden as f32).sqrt();
                                vector(&names::ROUTER_NORM)?.into_iter().map(|weight| weight * by).collect()
                            },
                            experts: vector(&names::EXPERTS_NORM)?,
                            post_shared: vector(&names::POST_SHARED_NORM)?,
                            post_experts: vector(&names::POST_EXPERTS_NORM)?,
                        }),
                        false => None,
                    },
                    shared_gate: optional(&names::SHARED_GATE)?,
                }),
            },
            per_layer: post_per_layer.map(per_layer).transpose()?,
            streams: self.layer_streams(config, layer)?,
            post_ffn_norm,
            ffn_sum_norm: norm(&names::FFN_SUM_NORM)?,
        })
    }

    fn weights(&self, config: &Config) -> Result<HostWeights<'_>, ModelError> {
        let embedding = self.matrix(config, &names::EMBEDDING, [0, 0])?;
        let own = [&names::OUTPUT, &names::CLASSIFIER].into_iter().find(|name| name.needed(config, 0));
        let output = own.map_or(Ok(embedding), |name| self.matrix(config, name, [0, 0]))?;
        // Its numbers are in the configuration; this is about its shape.
        self.optional(config, &names::CLASSIFIER_BIAS, 0)?;
        let table =
            |name: &Name| name.needed(config, 0).then(|| self.matrix(config, name, [0, 0])).transpose();
        let (positions, token_types) = (table(&names::POSITIONS)?, table(&names::TOKEN_TYPES)?);
        let dense = names::DENSE.iter().map(table).collect::<Result<Vec<_>, _>>()?;
        let embedding_norm = self.norm(config, &names::EMBEDDING_NORM, 0)?;
        let unweighted = || config.norms_unweighted.then(|| vec![1.0; config.hidden]);
        let mut output_norm = self.optional(config, &names::OUTPUT_NORM, 0)?.or_else(unweighted);
        let mut output_norm_bias =
            self.norm_bias(config, [&names::OUTPUT_NORM, &names::OUTPUT_NORM_BIAS], 0)?;
        let mut output_bias = self.optional(config, &names::OUTPUT_BIAS, 0)?;
        let scaled = output_norm.iter_mut().chain(&mut output_norm_bias).chain(&mut output_bias).flatten();
        scaled.for_each(|number| *number *= config.logit_scale);
        let layers = (0..config.layers).map(|l| self.layer(config, l)).collect::<Result<_, _>>()?;
        let mut per_layer_norm = self.optional(config, &names::PER_LAYER_NORM, 0)?;
        per_layer_norm.iter_mut().flatten().for_each(|weight| *weight *= std::f32::consts::FRAC_1_SQRT_2);
        let per_layer = |norm| {
            let matrix = |name| self.matrix(config, name, [0, 0]);
            let (table, projection) = (matrix(&names::PER_LAYER)?, matrix(&names::PER_LAYER_PROJECTION)?);
            Ok::<_, ModelError>(PerLayerWeights { table, projection, norm })
        };
        Ok(HostWeights {
            embedding,
            positions,
            token_types,
            embedding_norm,
            output,
            output_norm,
            dense: dense.into_iter().flatten().collect(),
            per_layer: per_layer_norm.map(per_layer).transpose()?,
            streams: self.streams(config)?,
            output_norm_bias,
            output_bias,
            layers,
        })
    }
}

pub(super) fn bad_tensor(name: &str, problem: String) -> ModelError {
    ModelError::BadTensor { name: name.to_owned(), problem }
}

/// The elements as f32, all of them finite.
pub(super) fn numbers(tensor: Tensor<'_>) -> Result<Vec<f32>, ModelError> {
    let bad = |problem: String| bad_tensor(tensor.name(), problem);
    let data = tensor.data().unwrap_or_default();
    let pairs = || data.chunks_exact(2).map(|b| [b[0], b[1]]);
    let numbers: Vec<f32> = match tensor.ggml_type() {
        GgmlType::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        GgmlType::F16 => pairs().map(|b| f16::from_le_bytes(b).to_f32()).collect(),
        GgmlType::BF16 => pairs().map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
        other => return Err(bad(format!("has the type {other}: a vector has F32, F16 or BF16"))),
    };
    match numbers.iter().position(|x| !x.is_finite()) {
        Some(at) => Err(bad(format!("has {} at element {at}", numbers[at]))),
        None => Ok(numbers),
    }
}

/// An opened model: its files are mapped into memory, its metadata understood, its tensors complete.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/decoder/example.rs"));
/// use gllm_kernels_std::model::Model;
///
/// let model = Model::open("model.gguf")?;
/// println!("{} layers of {}", model.config().layers, model.config().architecture.name());
/// # Ok::<(), gllm_kernels_std::model::ModelError>(())
/// ```
#[derive(Debug)]
pub struct Model<'a> {
    pub(super) files: Files<'a>,
    config: Config,
}

impl Model<'static> {
    /// Opens a GGUF file; of one that is split (`NAME-00001-of-00003.gguf`), any part, and all others with it. Or a checkpoint of Hugging Face's library: its
    /// folder, or a file in it. There `config.json` says what the model is, and quantised matrices (AWQ, GPTQ, those of compressed-tensors, ModelOpt, Quark and bitsandbytes)
    /// are stored anew in memory, in the formats `Q4_0`, `Q4_1`, `Q8_0`, `Q6_K` and F16, and the experts of gpt-oss in `MXFP4`; so are those in `NVFP4` of a GGUF
    /// file that have a scale for the whole matrix, in `Q6_K`.
    ///
    /// Files are mapped: nothing else is read before it is used, and nothing else is copied. While the model is open, nobody may change them:
    /// weights would change with them, and a file that is cut short ends the process where its end is read.
    ///
    /// # Errors
    /// Whatever is wrong with the file, by name: see [`ModelError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        if let Some(folder) = checkpoint::folder(path) {
            let parts = vec![checkpoint::open(folder)?];
            return Self::new(Files { parts, made: Vec::new(), naming: Naming::HuggingFace });
        }
        let file = map(path)?;
        let parts = match Split::of(path, &file)? {
            None => vec![(path.to_owned(), file)],
            Some(split) => split.open(path, file)?,
        };
        Self::of_gguf(parts)
    }
}

impl<'a> Model<'a> {
    /// A model whose file is in memory. Tensors of type F32 must be aligned to 4 bytes there.
    ///
    /// # Errors
    /// Those of [`open`](Model::open).
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, ModelError> {
        let file =
            Gguf::from_bytes(bytes).map_err(|source| ModelError::Gguf { path: PathBuf::new(), source })?;
        if Split::of(Path::new(""), &file)?.is_some() {
            return Err(Split::problem(Path::new(""), "a part of a split file cannot be used alone"));
        }
        Self::of_gguf(vec![(PathBuf::new(), file)])
    }

    fn of_gguf(parts: Vec<(PathBuf, Gguf<'a>)>) -> Result<Self, ModelError> {
        let mut files = Files { parts, made: Vec::new(), naming: Naming::Gguf };
        files.scale_nvfp4()?;
        Self::new(files)
    }

    fn new(mut files: Files<'a>) -> Result<Self, ModelError> {
        files.check()?;
        let config = Config::read(&files)?;
        files.join_gates(&config)?;
        files.part_keys_and_values(&config)?;
        let model = Self { files, config };
        // What is missing or wrong is said now.
        model.weights()?;
        // Older files have angles in each layer, and some files have layers behind the model's, which nobody reads.
        let config = &model.config;
        let end = config.numbers.last().map_or(0, |[_, network]| network + 1);
        let in_layer = |n: &str| {
            let own = n.strip_prefix("blk.").or_else(|| n.strip_prefix("model.layers."));
            let number = own.and_then(|own| own.split('.').next()?.parse::<usize>().ok());
            let behind = number.is_some_and(|at| (0..config.predictors).contains(&at.wrapping_sub(end)));
            // Files may have matrices of keys where others' keys are attended to: the models were trained with them, but do not use them.
            let spare =
                number.filter(|&at| config.layer.get(at).is_some_and(|layer| layer.keys_of.is_some()));
            let spare = spare.is_some_and(|at| {
                let keys = [&names::K, &names::V, &names::K_NORM];
                keys.iter().any(|name| name.of(model.files.naming, config, [at, 0]) == n)
            });
            own.is_some() && !behind && !spare && !n.contains("attn_rot_embd")
        };
        let in_head =
            |n: &str| n == "output.scale" || n.starts_with("cls.") && model.config.classifier.is_some();
        let odd = |n: &&str| in_layer(n) || in_head(n);
        match model.unused().into_iter().find(odd) {
            Some(name) => Err(bad_tensor(name, model.config.refusal())),
            None => Ok(model),
        }
    }

    /// The model's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The weights.
    ///
    /// # Errors
    /// None, as long as the files are what they were when the model was opened.
    pub fn weights(&self) -> Result<HostWeights<'_>, ModelError> {
        self.files.weights(&self.config)
    }

    /// A metadata value of the (first) file, e.g. the tokenizer's.
    pub fn metadata(&self, key: &str) -> Option<Value<'_>> {
        self.files.first().get(key)
    }

    /// The files, the first one first; an empty path is memory.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.parts.iter().map(|(path, _)| &**path)
    }

    /// The tensors that the model consists of, with their layers, and with experts or streams where each has one.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'static Name, [usize; 2])> + '_ {
        let each = |n: &'static Name, layers: usize| {
            let count = n.count(self.files.naming, &self.config);
            (0..layers).flat_map(move |l| (0..count).map(move |e| (n, [l, e])))
        };
        let of_model = names::GLOBAL.iter().flat_map(move |n| each(n, 1));
        let all = of_model.chain(names::LAYER.iter().flat_map(move |n| each(n, self.config.layers)));
        all.filter(|(n, [layer, _])| n.needed(&self.config, *layer))
    }

    /// Tensors that are in the files, but that the model has no use for. None of them belongs to a layer: such a file is refused, as
    /// its layers compute something else than [`Config`] says.
    pub fn unused(&self) -> Vec<&str> {
        let used: HashSet<String> =
            self.names().map(|(n, at)| n.of(self.files.naming, &self.config, at)).collect();
        self.files
            .tensors()
            .map(|t| t.name())
            .filter(|n| !used.contains(*n) && !self.files.is_scale(n))
            .collect()
    }
}
