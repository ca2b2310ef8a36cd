//! Opening of model files, whose tensors become matrices in the host's memory without being copied.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gllm_kernels_core::{bf16, f16, KernelError, MatRef, QuantFormat, QuantRef};
use rayon::prelude::*;

use super::names::{self, Name};
use super::{checkpoint, Config, ModelError};
use crate::detect::kernels;
use crate::gguf::{GgmlType, Gguf, Tensor, Value};

/// A weight matrix on the host, `rows x cols`: `y = W x` has `rows` outputs and `cols` inputs.
#[derive(Clone, Copy, Debug)]
pub enum Matrix<'a> {
    /// A quantised format, or floating point of 16 bits.
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

    /// Bytes that all its elements have.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Quantised(w) => w.as_bytes().len(),
            Self::F32(w) => size_of::<f32>() * w.rows() * w.cols(),
        }
    }
}

/// All weights of a decoder model: matrices in the file's mapping, vectors as f32.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostWeights<'a> {
    /// `vocabulary x hidden`: a row for each token.
    pub embedding: Matrix<'a>,
    /// `vocabulary x hidden`, the embedding again where the two are tied; of models that rank texts `labels x hidden`, the classifier.
    pub output: Matrix<'a>,
    /// `hidden` elements.
    pub output_norm: Vec<f32>,
    /// One entry a layer.
    pub layers: Vec<LayerWeights<'a>>,
}

/// The weights of a layer; [`Config`] says what is computed with them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LayerWeights<'a> {
    /// In front of attention: `hidden` elements.
    pub attention_norm: Vec<f32>,
    /// `heads * head_dim x hidden`.
    pub q: Matrix<'a>,
    /// `kv_heads * head_dim x hidden`.
    pub k: Matrix<'a>,
    /// `kv_heads * head_dim x hidden`.
    pub v: Matrix<'a>,
    /// `hidden x heads * head_dim`.
    pub output: Matrix<'a>,
    /// `head_dim` elements, if `qk_norm`.
    pub q_norm: Option<Vec<f32>>,
    /// `head_dim` elements, if `qk_norm`.
    pub k_norm: Option<Vec<f32>>,
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
    /// Behind attention: `hidden` elements, if `post_norms`.
    pub post_attention_norm: Option<Vec<f32>>,
    /// In front of the feed-forward network: `hidden` elements.
    pub ffn_norm: Vec<f32>,
    /// The feed-forward network that is applied to every token, if there is one.
    pub feed_forward: Option<FeedForward<'a>>,
    /// The experts, if the model is a mixture.
    pub experts: Option<ExpertWeights<'a>>,
    /// Behind the feed-forward network: `hidden` elements, if `post_norms`.
    pub post_ffn_norm: Option<Vec<f32>>,
}

impl<'a> LayerWeights<'a> {
    /// Its matrices, except for those of experts.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = Matrix<'a>> + '_ {
        let network = self.feed_forward.iter().flat_map(FeedForward::matrices);
        let router = self.experts.iter().map(|experts| experts.router);
        [self.q, self.k, self.v, self.output].into_iter().chain(network).chain(router)
    }
}

/// A gated feed-forward network.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FeedForward<'a> {
    /// `intermediate x hidden`: the matrix to whose results the activation is applied.
    pub gate: Matrix<'a>,
    /// `intermediate x hidden`.
    pub up: Matrix<'a>,
    /// `hidden x intermediate`.
    pub down: Matrix<'a>,
}

impl<'a> FeedForward<'a> {
    /// Gate, up and down.
    pub fn matrices(&self) -> [Matrix<'a>; 3] {
        [self.gate, self.up, self.down]
    }
}

/// The experts of a layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExpertWeights<'a> {
    /// `count x hidden`.
    pub router: Matrix<'a>,
    /// The matrices of all experts, one below the other: `count * intermediate x hidden`, and `count * hidden x intermediate`.
    pub all: FeedForward<'a>,
    /// `count` elements, if the model has biases.
    pub router_bias: Option<Vec<f32>>,
    /// Of gate, up and down, those of all experts one behind the other, if the model has biases: `count * intermediate` elements, as many, and
    /// `count * hidden`.
    pub biases: Option<[Vec<f32>; 3]>,
    /// `hidden` elements, if there is a shared expert.
    pub shared_gate: Option<Vec<f32>>,
}

impl<'a> ExpertWeights<'a> {
    /// Gate, up and down of each expert.
    pub(crate) fn each(&self) -> Result<Vec<[Matrix<'a>; 3]>, KernelError> {
        let count = self.router.rows();
        let part = |matrix: Matrix<'a>, expert: usize| {
            let rows = matrix.rows() / count;
            matrix.row_range(expert * rows, rows)
        };
        let [gate, up, down] = self.all.matrices();
        (0..count).map(|e| Ok([part(gate, e)?, part(up, e)?, part(down, e)?])).collect()
    }
}

/// Who named a model's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// llama.cpp, for GGUF files.
    Gguf,
    /// Hugging Face's library, for checkpoints.
    HuggingFace,
}

/// A model's file, or the files that it is split into.
#[derive(Debug)]
pub(super) struct Files<'a> {
    parts: Vec<(PathBuf, Gguf<'a>)>,
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
        self.tensor(&name.in_any(self.naming))
    }

    pub(super) fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.parts.iter().find_map(|(_, file)| file.tensor(name))
    }

    pub(super) fn tensors_len(&self) -> usize {
        self.parts.iter().map(|(_, file)| file.tensors_len()).sum()
    }

    fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.parts.iter().flat_map(|(_, file)| file.tensors())
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

    /// A tensor of the model's shape.
    fn find(&self, config: &Config, name: &Name, layer: usize) -> Result<Tensor<'_>, ModelError> {
        let (own, expected) = (name.of(self.naming, config, layer), name.dims(config));
        let Some(tensor) = self.tensor(&own) else {
            let hf = name.in_hf(config, layer);
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

    fn matrix(&self, config: &Config, name: &Name, layer: usize) -> Result<Matrix<'_>, ModelError> {
        let tensor = self.find(config, name, layer)?;
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
    fn optional(&self, config: &Config, name: &Name, layer: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let needed = name.needed(config);
        needed.then(|| self.vector(config, name, layer)).transpose()
    }

    fn vector(&self, config: &Config, name: &Name, layer: usize) -> Result<Vec<f32>, ModelError> {
        numbers(self.find(config, name, layer)?)
    }

    fn layer(&self, config: &Config, layer: usize) -> Result<LayerWeights<'_>, ModelError> {
        let matrix = |name| self.matrix(config, name, layer);
        let vector = |name| self.vector(config, name, layer);
        let optional = |name| self.optional(config, name, layer);
        let network = |[gate, up, down]: &'static names::Network| {
            Ok::<_, ModelError>(FeedForward { gate: matrix(gate)?, up: matrix(up)?, down: matrix(down)? })
        };
        Ok(LayerWeights {
            attention_norm: vector(&names::ATTENTION_NORM)?,
            q: matrix(&names::Q)?,
            k: matrix(&names::K)?,
            v: matrix(&names::V)?,
            output: matrix(&names::ATTENTION_OUTPUT)?,
            q_norm: optional(&names::Q_NORM)?,
            k_norm: optional(&names::K_NORM)?,
            q_bias: optional(&names::Q_BIAS)?,
            k_bias: optional(&names::K_BIAS)?,
            v_bias: optional(&names::V_BIAS)?,
            output_bias: optional(&names::ATTENTION_OUTPUT_BIAS)?,
            sinks: optional(&names::SINKS)?,
            post_attention_norm: optional(&names::POST_ATTENTION_NORM)?,
            ffn_norm: vector(match names::FFN_NORM.needed(config) {
                true => &names::FFN_NORM,
                false => &names::FFN_NORM_BY_ATTENTION,
            })?,
            feed_forward: match config.experts {
                None => Some(network(&names::FEED_FORWARD)?),
                Some(experts) if experts.shared => Some(network(&names::SHARED)?),
                Some(_) => None,
            },
            experts: match config.experts {
                None => None,
                Some(experts) => Some(ExpertWeights {
                    router: matrix(&names::ROUTER)?,
                    all: network(&names::EXPERTS)?,
                    router_bias: optional(&names::ROUTER_BIAS)?,
                    biases: match (experts.biases, &names::EXPERT_BIASES) {
                        (true, [gate, up, down]) => Some([vector(gate)?, vector(up)?, vector(down)?]),
                        (false, _) => None,
                    },
                    shared_gate: optional(&names::SHARED_GATE)?,
                }),
            },
            post_ffn_norm: optional(&names::POST_FFN_NORM)?,
        })
    }

    fn weights(&self, config: &Config) -> Result<HostWeights<'_>, ModelError> {
        let embedding = self.matrix(config, &names::EMBEDDING, 0)?;
        let own = [&names::OUTPUT, &names::CLASSIFIER].into_iter().find(|name| name.needed(config));
        let output = own.map_or(Ok(embedding), |name| self.matrix(config, name, 0))?;
        // Its numbers are in the configuration; this is about its shape.
        self.optional(config, &names::CLASSIFIER_BIAS, 0)?;
        let output_norm = self.vector(config, &names::OUTPUT_NORM, 0)?;
        let layers = (0..config.layers).map(|l| self.layer(config, l)).collect::<Result<_, _>>()?;
        Ok(HostWeights { embedding, output, output_norm, layers })
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

/// Row and column of the first weight, in these rows, that is not finite.
fn not_finite(w: QuantRef<'_>, rows: Range<usize>) -> Option<[usize; 2]> {
    let mut decoded = vec![0.0; w.cols()];
    rows.into_iter().find_map(|row| {
        let one = w.row_range(row, 1).and_then(|w| kernels::<f32>().dequant(w, &mut decoded));
        // A row that cannot be had is bad from its first number on.
        one.map_or(Some(0), |()| decoded.iter().position(|x| !x.is_finite())).map(|column| [row, column])
    })
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
    files: Files<'a>,
    config: Config,
}

impl Model<'static> {
    /// Opens a GGUF file; of one that is split (`NAME-00001-of-00003.gguf`), any part, and all others with it. Or a checkpoint of Hugging Face's library: its
    /// folder, or a file in it. There `config.json` says what the model is, and quantised matrices (AWQ, GPTQ) are stored anew in memory, in the formats `Q4_0`,
    /// `Q4_1` and `Q8_0`.
    ///
    /// Files are mapped: nothing is read before it is used, and nothing is copied. While the model is open, nobody may change them:
    /// weights would change with them, and a file that is cut short ends the process where its end is read.
    ///
    /// # Errors
    /// Whatever is wrong with the file, by name: see [`ModelError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref();
        if let Some(folder) = checkpoint::folder(path) {
            let parts = vec![checkpoint::open(folder)?];
            return Self::new(Files { parts, naming: Naming::HuggingFace });
        }
        let file = map(path)?;
        let parts = match Split::of(path, &file)? {
            None => vec![(path.to_owned(), file)],
            Some(split) => split.open(path, file)?,
        };
        Self::new(Files { parts, naming: Naming::Gguf })
    }
}

/// Maps a file.
fn map(path: &Path) -> Result<Gguf<'static>, ModelError> {
    // SAFETY: nothing that is relied on is left in the mapping: names, sizes and places of tensors are copied while the file is
    // checked, metadata are checked again whenever they are read, and the bytes of weights may be any. That nobody changes the file is
    // asked of whoever opens a model, so that numbers stay what they are.
    let file = unsafe { Gguf::map(path) };
    file.map_err(|source| ModelError::Gguf { path: path.to_owned(), source })
}

/// A file's place among those that a model is split into.
struct Split {
    number: u64,
    count: u64,
}

impl Split {
    const NUMBER: &'static str = "split.no";
    const COUNT: &'static str = "split.count";
    const TENSORS: &'static str = "split.tensors.count";

    /// `None` if the file stands alone.
    fn of(path: &Path, file: &Gguf<'_>) -> Result<Option<Self>, ModelError> {
        let key = |key| file.get(key).map(|v| v.as_u64());
        match (key(Self::NUMBER), key(Self::COUNT)) {
            (None | Some(Some(0)), None | Some(Some(0 | 1))) => Ok(None),
            (Some(Some(number)), Some(Some(count))) if number < count && count <= 99_999 => {
                Ok(Some(Self { number, count }))
            }
            _ => Err(Self::problem(path, "split.no and split.count do not number the parts of a file")),
        }
    }

    fn problem(path: &Path, problem: impl Into<String>) -> ModelError {
        ModelError::Split { path: path.to_owned(), problem: problem.into() }
    }

    /// All parts, of which `file` is one.
    fn open(self, path: &Path, file: Gguf<'static>) -> Result<Vec<(PathBuf, Gguf<'static>)>, ModelError> {
        let end = |number| format!("-{:05}-of-{:05}.gguf", number + 1, self.count);
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(&end(self.number)) else {
            let end = end(self.number);
            return Err(Self::problem(
                path,
                format!("the name must end in {end}, so that the other parts are found"),
            ));
        };
        let (mut own, mut parts) = (Some(file), Vec::new());
        for number in 0..self.count {
            if let Some(file) = own.take_if(|_| number == self.number) {
                parts.push((path.to_owned(), file));
                continue;
            }
            let path = path.with_file_name(format!("{stem}{}", end(number)));
            let file = map(&path)?;
            match Self::of(&path, &file)? {
                Some(other) if other.number == number && other.count == self.count => {}
                _ => {
                    return Err(Self::problem(&path, format!("is not part {} of {}", number + 1, self.count)))
                }
            }
            parts.push((path, file));
        }
        let found: usize = parts.iter().map(|(_, file)| file.tensors_len()).sum();
        let told = parts[0].1.get(Self::TENSORS);
        if let Some(told) = told.filter(|t| t.as_u64() != Some(found as u64)) {
            let problem = format!("{} is {told:?}, but the parts have {found} tensors", Self::TENSORS);
            return Err(Self::problem(&parts[0].0, problem));
        }
        Ok(parts)
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
        Self::new(Files { parts: vec![(PathBuf::new(), file)], naming: Naming::Gguf })
    }

    fn new(files: Files<'a>) -> Result<Self, ModelError> {
        files.check()?;
        let config = Config::read(&files)?;
        let model = Self { files, config };
        // What is missing or wrong is said now.
        model.weights()?;
        // Older files have angles in each layer, which nobody reads.
        let in_layer =
            |n: &str| n.starts_with("blk.") && !n.contains("attn_rot_embd") || n.starts_with("model.layers.");
        let in_head = |n: &str| n.starts_with("cls.") && model.config.classifier.is_some();
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

    /// Looks at the scales of all weights (where they are out of bounds, at the weights themselves), on all threads: this reads the
    /// whole file, as [`open`](Model::open) does not.
    ///
    /// # Errors
    /// `BadTensor` for a matrix with a number that is not finite, as blocks with a NaN for their scale have.
    pub fn verify(&self) -> Result<(), ModelError> {
        const ROWS: usize = 64;
        for (name, layer) in self.names().filter(|(n, _)| n.dims(&self.config).len() >= 2) {
            let bad = match self.files.matrix(&self.config, name, layer)? {
                Matrix::Quantised(w) => {
                    let starts: Vec<usize> = (0..w.rows()).step_by(ROWS).collect();
                    let bad = |from| {
                        let rows = from..w.rows().min(from + ROWS);
                        let sure =
                            w.row_range(from, rows.len()).is_ok_and(|w| kernels::<f32>().surely_finite(w));
                        if sure {
                            None
                        } else {
                            not_finite(w, rows)
                        }
                    };
                    starts.into_par_iter().find_map_first(bad)
                }
                // This says where by itself.
                Matrix::F32(_) => numbers(self.files.find(&self.config, name, layer)?).map(|_| None)?,
            };
            if let Some([row, column]) = bad {
                let problem = format!("is not finite at row {row}, column {column}");
                return Err(bad_tensor(&name.of(self.files.naming, &self.config, layer), problem));
            }
        }
        Ok(())
    }

    /// The tensors that the model consists of, with their layers.
    fn names(&self) -> impl Iterator<Item = (&'static Name, usize)> + '_ {
        let layers = names::LAYER.iter().flat_map(|n| (0..self.config.layers).map(move |l| (n, l)));
        let all = names::GLOBAL.iter().map(|n| (n, 0)).chain(layers);
        all.filter(|(n, _)| n.needed(&self.config))
    }

    /// Tensors that are in the files, but that the model has no use for. None of them belongs to a layer: such a file is refused, as
    /// its layers compute something else than [`Config`] says.
    pub fn unused(&self) -> Vec<&str> {
        let used: HashSet<String> =
            self.names().map(|(n, l)| n.of(self.files.naming, &self.config, l)).collect();
        self.files.tensors().map(|t| t.name()).filter(|n| !used.contains(*n)).collect()
    }
}
