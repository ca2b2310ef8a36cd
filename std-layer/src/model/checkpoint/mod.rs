//! Checkpoints of Hugging Face's library: a folder with `config.json` and files in the format `safetensors`.
//!
//! They become a GGUF file that is in memory alone: its metadata come from `config.json` and `tokenizer.json`, its tensors keep their names, and their bytes stay in the mapped files.
//! Only what is stored differently is converted: quantised matrices (see [`blocks`] and [`codes`]), the experts of gpt-oss (see [`experts`]), matrices whose rows stand in another order (see [`layout`]) or that have factors (see [`factors`]), and
//! numbers: the weights of norms that lack 1, rates that are stored as logarithms, and an output matrix that is to be normed. Some architectures have names of their own (see [`aliases`]). Of
//! models that understand images, too, the part for texts is opened (see [`text`]).

mod activation;
mod aliases;
mod blocks;
mod codes;
mod config;
mod dense;
mod encoder;
mod experts;
mod factors;
mod gemma3n;
mod gemma4;
mod latent;
pub(super) mod layout;
mod mixture;
mod recurrent;
mod rope;
mod space;
mod text;
mod tokenizer;
mod uneven;
mod values;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gllm_kernels_core::{bf16, f16};
use serde_json::Value as Json;

use activation::Activations;
use dense::dense;
use factors::Factors;
use layout::{Layout, Part, Whole};

use super::{Architecture, ModelError};
use crate::aligned::AlignedVec;
use crate::gguf::{Bytes, GgmlType, Gguf, Value, Writer};
use crate::safetensors::{Checkpoint, Dtype, Tensor, View, Weight};

const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";
const WHOLE: &str = "model.safetensors";
/// Bytes of a file in JSON that are read at most: an index has some hundred for each tensor.
const MOST: u64 = 64 << 20;

/// The matrix behind pooling, in a file of its own.
const DENSE: &str = "linear.weight";
/// The output matrix.
const OUTPUT: &str = "lm_head.weight";

/// Biases that programs which quantise write for every matrix: zeros add nothing, and others are refused where the architecture has none.
const EMPTY_BIASES: [&str; 7] = [
    ".o_proj.bias",
    ".gate_proj.bias",
    ".up_proj.bias",
    ".down_proj.bias",
    ".w1.bias",
    ".w2.bias",
    ".w3.bias",
];

/// Angles and masks, which older files have in each layer and are computed anew, and scales of caches in FP8, which no cache here has.
const NOT_READ: [&str; 7] = [
    ".rotary_emb.inv_freq",
    ".self_attn.bias",
    ".self_attn.masked_bias",
    "embeddings.position_ids",
    ".q_scale",
    ".k_scale",
    ".v_scale",
];

fn is_empty_bias(tensor: &Tensor<'_>) -> bool {
    EMPTY_BIASES.iter().any(|end| tensor.name.ends_with(end)) && tensor.data.iter().all(|&b| b == 0)
}

/// The folder of a checkpoint, if this is one, or its configuration, its index, or one of its files.
pub(super) fn folder(path: &Path) -> Option<&Path> {
    let is_part = path.extension().is_some_and(|e| e == "safetensors" || e == "json");
    match path.is_dir() {
        true => Some(path),
        false => path.parent().filter(|_| is_part),
    }
}

fn bad(path: &Path, problem: impl ToString) -> ModelError {
    ModelError::Checkpoint { path: path.to_owned(), problem: problem.to_string() }
}

/// A file in JSON; `None` if there is none.
fn json(path: &Path) -> Result<Option<Json>, ModelError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
    match read {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ModelError::Io { path: path.to_owned(), source }),
        Ok(n) if n as u64 > MOST => Err(bad(path, format!("has more than {MOST} bytes"))),
        Ok(_) => match serde_json::from_str(&text) {
            Ok(json) => Ok(Some(json)),
            Err(e) => serde_json::from_str(&without_infinities(&text)).map(Some).map_err(|_| bad(path, e)),
        },
    }
}

/// A text in JSON without `Infinity` and `NaN`, which Python writes for numbers: they become `null`, but not in strings.
fn without_infinities(text: &str) -> String {
    let (mut to, mut in_string, mut escaped) = (String::with_capacity(text.len()), false, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| rest.starts_with(word));
        if let Some(word) = word.filter(|_| !in_string) {
            to.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        in_string ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        to.push(c);
        rest = &rest[c.len_utf8()..];
    }
    to
}

/// The names of the files that tensors are in.
fn shards(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let path = folder.join(INDEX);
    let Some(index) = json(&path)? else { return Ok(vec![folder.join(WHOLE)]) };
    let map = index.get("weight_map").and_then(Json::as_object);
    let map = map.ok_or_else(|| bad(&path, "has no weight_map"))?;
    let names: BTreeSet<&str> = map.values().filter_map(Json::as_str).collect();
    // A name of a file beside the index, and nothing else.
    let plain = |name: &&str| {
        Path::new(name).file_name().is_some_and(|n| n == *name) && name.ends_with(".safetensors")
    };
    match names.iter().find(|name| !plain(name)) {
        Some(name) => Err(bad(&path, format!("names {name:?}, which is no file of tensors beside it"))),
        None if names.is_empty() => Err(bad(&path, "names no file")),
        None => Ok(names.iter().map(|name| folder.join(name)).collect()),
    }
}

/// Opens the checkpoint of a folder.
///
/// # Errors
/// `Checkpoint` with the file and a reason, `Io`.
pub(super) fn open(folder: &Path) -> Result<(PathBuf, Gguf<'static>), ModelError> {
    let path = folder.join(CONFIG);
    let whole = json(&path)?.ok_or_else(|| {
        bad(&path, "is missing: a folder with it and with files in safetensors is a checkpoint")
    })?;
    codes::check(&whole).map_err(|e| bad(&path, e))?;
    let config = text::config(whole);
    let beside = |name| json(&folder.join(name)).map(|found| found.unwrap_or(Json::Null));
    let (generation, about) = (beside("generation_config.json")?, beside("tokenizer_config.json")?);
    let modules = folder.join("modules.json");
    let list = beside("modules.json")?;
    let dense = encoder::dense_folders(&list).map_err(|e| bad(&modules, e))?;
    let pooling = json(&encoder::about_pooling(folder))?.unwrap_or(Json::Null);
    let mut writer = Writer::new();
    let vocabulary = folder.join("tokenizer.json");
    if let Some(file) = json(&vocabulary)? {
        let tokens = config["vocab_size"].as_u64().map(|n| n as usize);
        tokenizer::metadata(&file, tokens, &mut writer).map_err(|e| bad(&vocabulary, e))?;
    }
    // What these files say of tokens counts more.
    let told =
        config::metadata([&config, &generation, &about, &pooling], &mut writer).map_err(|e| bad(&path, e))?;
    set_dense((folder, &dense), told.architecture, &mut writer)?;
    let mut tensors = Tensors {
        writer,
        bytes: Vec::new(),
        architecture: told.architecture,
        skip_output: told.tied == Some(true),
        layout: told.layout,
        factors: told.factors,
        normed_output: told.normed_output,
    };
    let map = |path: PathBuf| {
        // SAFETY: nothing that is relied on is left in the mapping: names, sizes and places of tensors are copied while the file is checked, and
        // the bytes of weights may be any. That nobody changes the file is asked of whoever opens a model.
        let file = unsafe { Checkpoint::map(&path) }.map_err(|e| match e {
            crate::safetensors::SafetensorsError::Io { path, source } => ModelError::Io { path, source },
            e => bad(&path, e),
        })?;
        Ok::<_, ModelError>((path, Arc::new(file)))
    };
    let files = shards(folder)?.into_iter().map(map).collect::<Result<Vec<_>, _>>()?;
    let mut has_output = false;
    let mut activations = Activations::of(told.architecture);
    // Where each tensor is: most names that are asked for are nowhere, and large models have hundreds of files.
    let mut places = HashMap::new();
    for (_, file) in &files {
        file.tensors().into_iter().for_each(|tensor| _ = places.entry(tensor.name).or_insert(file));
    }
    for (path, file) in &files {
        let named = |name: &str| {
            let other = || places.get(name).and_then(|file| file.tensor(name));
            file.tensor(name).or_else(other)
        };
        for weight in file.weights_among(named) {
            // Of several tensors, the name is what theirs have in common.
            let whole = match &weight.view {
                Ok(View::Awq(_) | View::Gptq(_) | View::SqueezeLlm(_) | View::Codes(_)) => {
                    format!("{}.weight", weight.name)
                }
                _ => weight.name.clone(),
            };
            let Some(name) = text::name(&whole) else { continue };
            let name = aliases::usual(told.architecture, &name);
            if text::layer(&name).is_some_and(|layer| told.predictors.contains(&layer)) {
                continue;
            }
            if activations.take(&name, &weight).map_err(|e| bad(path, e))? {
                continue;
            }
            has_output |= name.starts_with("lm_head.");
            tensors.add(file, (&weight, &name), named).map_err(|e| bad(path, e))?;
        }
    }
    if told.tied == Some(false) && !has_output {
        return Err(bad(&path, "says that tie_word_embeddings is false, but there is no lm_head"));
    }
    for (i, path) in dense.iter().enumerate() {
        let (path, file) = map(folder.join(path).join(WHOLE))?;
        let add = |tensor: Tensor<'_>| tensors.plain(&file, &tensor, &format!("dense.{i}.weight"));
        let added = file.tensor(DENSE).map_or_else(|| Err(format!("has no {DENSE}")), add);
        added.map_err(|e| bad(&path, e))?;
    }
    for (name, divisors) in told.divisors {
        let bytes: Vec<u8> = divisors.iter().flat_map(|x| x.to_le_bytes()).collect();
        let dims = [divisors.len() as u64];
        tensors.push(name, &dims, GgmlType::F32, owned(&bytes)).map_err(|e| bad(&path, e))?;
    }
    activations.set(&mut tensors.writer).map_err(|e| bad(&path, e))?;
    let Tensors { writer, bytes, .. } = tensors;
    Ok((path.clone(), Gguf::assemble(&writer, bytes).map_err(|e| bad(&path, e))?))
}

/// Sets how many numbers there are between the matrices behind pooling, which are in these folders.
fn set_dense(
    (folder, dense): (&Path, &[&str]),
    architecture: Architecture,
    writer: &mut Writer,
) -> Result<(), ModelError> {
    let wrong = |e| bad(&folder.join("modules.json"), e);
    match (dense, architecture) {
        ([], _) => Ok(()),
        (&[first, last], Architecture::GemmaEmbedding) => {
            let outputs = |path: &str| {
                let path = folder.join(path).join(CONFIG);
                let json = json(&path)?.unwrap_or(Json::Null);
                encoder::dense_outputs(&json).map_err(|e| bad(&path, e))
            };
            outputs(last)?;
            let key = format!("{}.dense_2_feat_out", architecture.name());
            writer.set(&key, Value::U32(outputs(first)?)).map_err(|e| wrong(e.to_string()))
        }
        _ => Err(wrong(format!("has {} modules Dense, which is not supported", dense.len()))),
    }
}

/// Stores a quantised matrix anew: in blocks, if they may be and a format has its weights. `scales` has those of the groups of AWQ and GPTQ.
///
/// # Errors
/// A reason: see [`blocks`] and [`codes`].
fn stored(view: &View<'_>, scales: Option<&[f16]>, in_blocks: bool) -> Result<blocks::Stored, String> {
    let scales = scales.filter(|_| in_blocks);
    match view {
        View::Awq(w) => blocks::stored(*w, scales),
        View::Gptq(w) => blocks::stored(*w, scales),
        View::SqueezeLlm(w) => blocks::halves(*w),
        View::Fp8(w) => blocks::e4m3(*w, in_blocks),
        View::Codes(w) => codes::stored(w, in_blocks),
        View::Plain(t) => Err(format!("{} is not quantised", t.name)),
    }
}

/// Divides the numbers of each column of a matrix by their length, to which 1e-7 is added.
fn divide_by_length(numbers: &mut [f32], cols: usize) {
    let mut squares = vec![0.0; cols];
    for row in numbers.chunks_exact(cols.max(1)) {
        squares.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
    }
    let lengths: Vec<f64> = squares.into_iter().map(|sum: f64| sum.sqrt() + 1e-7).collect();
    for row in numbers.chunks_exact_mut(cols.max(1)) {
        row.iter_mut().zip(&lengths).for_each(|(x, length)| *x = (f64::from(*x) / length) as f32);
    }
}

fn owned(bytes: &[u8]) -> Bytes<'static> {
    let mut to = AlignedVec::zeroed(bytes.len());
    to.copy_from_slice(bytes);
    Bytes::Owned(to)
}

/// The tensors of the file in memory.
struct Tensors {
    writer: Writer,
    bytes: Vec<Bytes<'static>>,
    architecture: Architecture,
    /// Whether an output matrix does not count, as the embedding matrix takes its place.
    skip_output: bool,
    layout: Layout,
    factors: Factors,
    normed_output: bool,
}

impl Tensors {
    fn push(&mut self, name: &str, dims: &[u64], of: GgmlType, bytes: Bytes<'static>) -> Result<(), String> {
        self.writer.add_tensor(name, dims, of).map_err(|e| e.to_string())?;
        self.bytes.push(bytes);
        Ok(())
    }

    fn push_all(&mut self, parts: Vec<Part>) -> Result<(), String> {
        let push = |part: Part| self.push(&part.name, &part.dims, part.of, Bytes::Owned(part.bytes));
        parts.into_iter().try_for_each(push)
    }

    /// Adds a weight of a file by a name. `named` has the tensors of all files.
    fn add<'t>(
        &mut self,
        file: &'t Arc<Checkpoint<'static>>,
        (weight, name): (&Weight<'_>, &str),
        named: impl Fn(&str) -> Option<Tensor<'t>>,
    ) -> Result<(), String> {
        if self.architecture == Architecture::GptOss {
            let parts =
                file.tensor(&weight.name).map(|tensor| experts::parts(&tensor, &named)).transpose()?;
            if let Some(parts) = parts.flatten() {
                return self.push_all(parts);
            }
        } else if !self.architecture.family().attention_output_bias
            && matches!(&weight.view, Ok(View::Plain(tensor)) if is_empty_bias(tensor))
        {
            return Ok(());
        }
        if NOT_READ.iter().any(|end| name.ends_with(end)) || self.skip_output && name.starts_with("lm_head.")
        {
            return Ok(());
        }
        let view = weight.view.as_ref().map_err(|e| format!("{}: {e}", weight.name))?;
        if let View::Plain(tensor) = view {
            return self.plain(file, tensor, name);
        }
        if self.normed_output && name == OUTPUT {
            return Err(format!("{name} is quantised: norm_head is not supported with that"));
        }
        let scales = named(&format!("{}.scales", weight.name)).and_then(|t| t.numbers().ok());
        let in_blocks = !self.layout.needs_numbers(name) && !self.factors.has(name);
        let stored = stored(view, scales, in_blocks).map_err(|e| format!("{}: {e}", weight.name))?;
        let dims: Vec<u64> = weight.shape.iter().rev().map(|&d| d as u64).collect();
        let of = stored.format.map_or(GgmlType::F16, |format| GgmlType(format.gguf_type()));
        match self.parts(&Whole { name, dims: &dims, of, bytes: &stored.bytes })? {
            Some(parts) => self.push_all(parts),
            None => self.push(name, &dims, of, Bytes::Owned(stored.bytes)),
        }
    }

    /// What a matrix becomes, with its factors or in another order; `None` if it stays as it is.
    fn parts(&self, whole: &Whole<'_>) -> Result<Option<Vec<Part>>, String> {
        match self.factors.part(whole)? {
            Some(part) => Ok(Some(vec![part])),
            None => self.layout.parts(whole),
        }
    }

    fn plain(
        &mut self,
        file: &Arc<Checkpoint<'static>>,
        tensor: &Tensor<'_>,
        name: &str,
    ) -> Result<(), String> {
        let (of, _) = dense(tensor)?;
        let dims = tensor.shape.iter().rev().map(|&d| d as u64).collect();
        let dims = self.layout.dims(name, dims);
        let linear = name.contains(".linear_attn.");
        let lacks_one = self.architecture.family().norms_lack_one && tensor.name.ends_with("norm.weight");
        // How numbers are stored otherwise than in GGUF files.
        let other: Option<fn(f32) -> f32> = match lacks_one && !linear {
            true => Some(|x| x + 1.0),
            false if linear && name.ends_with(".A_log") => Some(|x| -x.exp()),
            false => None,
        };
        let normed = self.normed_output && name == OUTPUT;
        if other.is_none() && !normed {
            if let Some(parts) = self.parts(&Whole { name, dims: &dims, of, bytes: tensor.data })? {
                return self.push_all(parts);
            }
            let place = file.place(&tensor.name).ok_or_else(|| format!("{} is not there", tensor.name))?;
            return self.push(name, &dims, of, Bytes::Shared(file.clone(), place));
        }
        let mut numbers: Vec<f32> = match tensor.dtype {
            Dtype::F32 => tensor.numbers::<f32>()?.to_vec(),
            Dtype::F16 => tensor.numbers::<f16>()?.iter().map(|x| x.to_f32()).collect(),
            _ => tensor.numbers::<bf16>()?.iter().map(|x| x.to_f32()).collect(),
        };
        if let Some(other) = other {
            numbers.iter_mut().for_each(|x| *x = other(*x));
        }
        if let (true, [cols, _]) = (normed, &dims[..]) {
            divide_by_length(&mut numbers, *cols as usize);
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.push(name, &dims, GgmlType::F32, owned(&bytes))
    }
}
