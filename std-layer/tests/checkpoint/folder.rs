// A checkpoint in the making.

use std::path::{Path, PathBuf};

use gllm_kernels_std::core::{bf16, f16, QuantFormat};
use gllm_kernels_std::model::{Matrix, Model};

use super::tiny::Tiny;
use super::{gemma3n, gemma4, gpt_oss, latent, numbers, own, recurrent};

/// Architectures of which GGUF files have the rows of queries and keys in another order, and those with queries, keys and values in one matrix.
const REORDERED: [&str; 13] = [
    "deci",
    "mistral3",
    "llama",
    "smollm3",
    "granite",
    "granitemoe",
    "minicpm",
    "arcee",
    "internlm2",
    "bailingmoe",
    "deepseek",
    "xverse",
    "olmo",
];
const FUSED: [&str; 10] = [
    "phi3",
    "internlm2",
    "bailingmoe",
    "bailingmoe2",
    "gptneox",
    "falcon",
    "gpt2",
    "starcoder",
    "modern-bert",
    "qwen",
];

/// A folder of its own, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(what: &str) -> Self {
        let name: String = what.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("checkpoint-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), contents).unwrap();
    }

    pub fn config(&self, json: &str) {
        self.file("config.json", json);
    }

    /// Writes the tensors, to one file or to several with an index.
    pub fn tensors(&self, all: &[Dense], shards: usize) {
        if shards == 1 {
            return self.file("model.safetensors", file(all));
        }
        let mut map = Vec::new();
        for (i, part) in all.chunks(all.len().div_ceil(shards)).enumerate() {
            let name = format!("model-{:05}-of-{shards:05}.safetensors", i + 1);
            map.extend(part.iter().map(|t| format!("{:?}:{name:?}", t.name)));
            self.file(&name, file(part));
        }
        let map = map.join(",");
        self.file("model.safetensors.index.json", format!(r#"{{"metadata":{{}},"weight_map":{{{map}}}}}"#));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tensor.
#[derive(Clone)]
pub struct Dense {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// A file in the format `safetensors`.
pub fn file(tensors: &[Dense]) -> Vec<u8> {
    let mut at = 0;
    let entries = tensors.iter().map(|t| {
        let from = at;
        at += t.bytes.len();
        format!(
            r#""{}":{{"dtype":"{}","shape":{:?},"data_offsets":[{from},{at}]}}"#,
            t.name, t.dtype, t.shape
        )
    });
    let mut header = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    header += &" ".repeat(header.len().wrapping_neg() % 8);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    tensors.iter().for_each(|t| bytes.extend(&t.bytes));
    bytes
}

impl Dense {
    pub fn floats(name: &str, shape: &[usize], x: &[f32]) -> Self {
        let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: "F32", shape: shape.to_vec(), bytes }
    }

    pub fn halves(name: &str, shape: &[usize], x: &[f32]) -> Self {
        let bytes = x.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: "F16", shape: shape.to_vec(), bytes }
    }

    pub fn words(name: &str, shape: &[usize], x: &[u32]) -> Self {
        let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: "I32", shape: shape.to_vec(), bytes }
    }

    /// Bytes of an element.
    pub fn element(&self) -> usize {
        self.bytes.len().checked_div(self.shape.iter().product()).unwrap_or(1)
    }

    /// Numbers as a format has them: in BF16 if it is quantised, which holds those of MXFP4.
    pub fn stored(name: &str, format: Option<QuantFormat>, shape: &[usize], x: &[f32]) -> Self {
        match format {
            None => Self::floats(name, shape, x),
            Some(QuantFormat::F16) => Self::halves(name, shape, x),
            Some(_) => {
                let bytes = x.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
                Self { name: name.to_owned(), dtype: "BF16", shape: shape.to_vec(), bytes }
            }
        }
    }

    /// The same with the last two dimensions exchanged.
    fn transposed(mut self) -> Self {
        let &[count, rows, cols] = &self.shape[..] else { panic!("{} has no 3 dimensions", self.name) };
        let size = self.bytes.len() / (count * rows * cols);
        let from = |i: usize| i / (rows * cols) * rows * cols + i % rows * cols + i / rows % cols;
        self.bytes =
            (0..count * rows * cols).flat_map(|i| self.bytes[from(i) * size..][..size].to_vec()).collect();
        self.shape.swap(1, 2);
        self
    }

    /// The tensors of a model that was written as a GGUF file, as a checkpoint has them.
    pub fn of(tiny: &Tiny, gguf: &Model<'_>) -> Vec<Self> {
        let weights = gguf.weights().unwrap();
        let (name, is) = (tiny.architecture, |names: &[&str]| names.contains(&tiny.architecture));
        let lacks_one = is(&["gemma", "gemma2", "gemma3", "gemma-embedding"])
            || is(&["qwen35", "qwen35moe", "qwen3next", "nemotron"]);
        let mut all = Vec::new();
        let matrix = |name: String, w: Matrix<'_>, x: Vec<f32>| {
            Self::stored(&name, w.format(), &[w.rows(), w.cols()], &x)
        };
        // Matrices one below the other.
        let below = |name: String, parts: &[Matrix<'_>]| {
            let rows = parts.iter().map(Matrix::rows).sum();
            let x: Vec<f32> = parts.iter().flat_map(|&w| numbers(w)).collect();
            Self::stored(&name, parts[0].format(), &[rows, parts[0].cols()], &x)
        };
        // Some norms are stored without the 1 that is added to them.
        let norm = |name: String, x: &[f32]| {
            let x: Vec<f32> = x.iter().map(|x| x - f32::from(u8::from(lacks_one))).collect();
            Self::floats(&format!("{name}.weight"), &[x.len()], &x)
        };
        all.push(matrix(
            "model.embed_tokens.weight".to_owned(),
            weights.embedding,
            numbers(weights.embedding),
        ));
        if !tiny.tied {
            all.push(matrix("lm_head.weight".to_owned(), weights.output, numbers(weights.output)));
        }
        all.extend(
            weights.embedding_norm.iter().map(|of| norm("embeddings.LayerNorm".to_owned(), &of.weight)),
        );
        let positions = weights.positions.into_iter();
        all.extend(
            positions.map(|w| matrix("embeddings.position_embeddings.weight".to_owned(), w, numbers(w))),
        );
        all.extend(weights.output_bias.iter().map(|x| Self::floats("lm_head.bias", &[x.len()], x)));
        let factor = gguf.config().logit_scale;
        let unscaled = |x: &Vec<f32>| x.iter().map(|x| x / factor).collect::<Vec<_>>();
        all.push(norm("model.norm".to_owned(), &unscaled(weights.output_norm.as_ref().unwrap())));
        // Layer norms without biases have zeros here.
        let biases = |x: &Option<Vec<f32>>| x.clone().filter(|_| gguf.config().norm_biases);
        let bias = |name: String, x: Vec<f32>| Self::floats(&format!("{name}.bias"), &[x.len()], &x);
        let last = biases(&weights.output_norm_bias).as_ref().map(unscaled);
        all.extend(last.map(|x| bias("model.norm".to_owned(), x)));
        for (l, layer) in weights.layers.iter().enumerate() {
            // Of Falcon-H1 two layers are one of the file, with the same norm in front of both; of DeciLM one has nothing.
            let number = match name {
                "falcon-h1" => l / 2,
                "deci" => l + usize::from(l > 3),
                _ => l,
            };
            let at = |name: &str| format!("model.layers.{number}.{name}");
            let inputs =
                [("q", layer.q, &layer.q_bias), ("k", layer.k, &layer.k_bias), ("v", layer.v, &layer.v_bias)];
            if let Some(recurrent) = &layer.recurrent {
                all.extend(recurrent::tensors(gguf.config(), layer, recurrent, &at));
            }
            let reordered = is(&REORDERED);
            if is(&FUSED) {
                let rows = inputs.iter().map(|(_, w, _)| w.rows()).sum::<usize>();
                let of = |&(name, w, _): &(&str, Matrix<'_>, _)| match reordered && name != "v" {
                    true => halves_of_heads(&numbers(w), w.cols(), tiny.head_dim),
                    false => numbers(w),
                };
                let (cols, x) = (layer.q.cols(), inputs.iter().flat_map(of).collect::<Vec<_>>());
                let name = at("self_attn.qkv_proj.weight");
                all.push(Self::stored(&name, layer.q.format(), &[rows, cols], &own::woven(tiny, &x, cols)));
                let biases: Vec<f32> =
                    inputs.iter().flat_map(|(_, _, bias)| bias.iter().flatten().copied()).collect();
                if !biases.is_empty() {
                    all.push(bias(at("self_attn.qkv_proj"), own::woven(tiny, &biases, 1)));
                }
            }
            if layer.latent.is_some() {
                all.extend(latent::tensors(layer, &at("self_attn")));
            }
            // Rows of a head's queries, and those of its gates, which a matrix of their own has.
            let part = |w: Matrix<'_>, skipped: usize| {
                let (x, size) = (numbers(w), tiny.head_dim * w.cols());
                let x: Vec<f32> = x.chunks(size).skip(skipped).step_by(2).flatten().copied().collect();
                (x.len() / w.cols(), x)
            };
            let gates_apart = name == "afmoe";
            if gates_apart {
                let (rows, x) = part(layer.q, 1);
                let name = at("self_attn.gate_proj.weight");
                all.push(Self::stored(&name, layer.q.format(), &[rows, layer.q.cols()], &x));
            }
            let same_values = gguf.config().values_are_keys && gguf.config().layer[l].window.is_none();
            let apart = !is(&FUSED) && layer.recurrent.is_none() && layer.latent.is_none();
            let there = |name: &str, w: Matrix<'_>| apart && w.rows() > 0 && !(same_values && name == "v");
            for (name, w, bias) in inputs.into_iter().filter(|&(name, w, _)| there(name, w)) {
                let mut x = numbers(w);
                if reordered && name != "v" {
                    x = halves_of_heads(&x, w.cols(), tiny.head_dim);
                }
                let mut rows = w.rows();
                if gates_apart && name == "q" {
                    (rows, x) = part(w, 0);
                }
                let own = at(&format!("self_attn.{name}_proj.weight"));
                all.push(Self::stored(&own, w.format(), &[rows, w.cols()], &x));
                if let Some(bias) = bias {
                    all.push(Self::floats(&at(&format!("self_attn.{name}_proj.bias")), &[bias.len()], bias));
                }
            }
            if layer.recurrent.is_none() && layer.output.rows() > 0 {
                all.push(matrix(at("self_attn.o_proj.weight"), layer.output, numbers(layer.output)));
            }
            for (name, x) in [("o_proj.bias", &layer.output_bias), ("sinks", &layer.sinks)] {
                all.extend(x.iter().map(|x| Self::floats(&at(&format!("self_attn.{name}")), &[x.len()], x)));
            }
            let shared = match &layer.experts {
                None => "",
                Some(_) if name == "gemma4" => "",
                Some(_) if is(&["qwen2moe", "qwen3next", "qwen35moe"]) => "shared_expert.",
                Some(_) => "shared_experts.",
            };
            if let (Some(network), true) = (
                &layer.feed_forward,
                is(&["phi3", "chatglm", "glm4", "granitemoe", "granitehybrid", "modern-bert"]),
            ) {
                let (both, down) = ([network.gate.unwrap(), network.up], network.down);
                all.push(below(at(&format!("mlp.{shared}gate_up_proj.weight")), &both));
                all.push(matrix(at(&format!("mlp.{shared}down_proj.weight")), down, numbers(down)));
            } else if let (Some(network), "starcoder2") = (&layer.feed_forward, name) {
                let both = [("c_fc", network.up, &layer.up_bias), ("c_proj", network.down, &layer.down_bias)];
                for (name, w, x) in both {
                    all.push(matrix(at(&format!("mlp.{name}.weight")), w, numbers(w)));
                    all.extend(x.iter().map(|x| bias(at(&format!("mlp.{name}")), x.clone())));
                }
            } else if let Some(network) = &layer.feed_forward {
                let gate = network.gate.map(|gate| ("gate", gate));
                for (name, w) in gate.into_iter().chain([("up", network.up), ("down", network.down)]) {
                    all.push(matrix(at(&format!("mlp.{shared}{name}_proj.weight")), w, numbers(w)));
                }
                for (name, x) in [("up", &layer.up_bias), ("down", &layer.down_bias)] {
                    all.extend(x.iter().map(|x| bias(at(&format!("mlp.{name}_proj")), x.clone())));
                }
            }
            if tiny.architecture == "gpt-oss" {
                all.extend(gpt_oss::experts(layer.experts.as_ref().unwrap(), &at("mlp")));
            } else if let Some(experts) = &layer.experts {
                let (block, names) = match tiny.architecture {
                    "llama" | "phimoe" => ("block_sparse_moe", ["w1", "w3", "w2"]),
                    _ => ("mlp", ["gate_proj", "up_proj", "down_proj"]),
                };
                let router = experts.router;
                all.push(matrix(at(&format!("{block}.gate.weight")), router, numbers(router)));
                let stacked = is(&["mistral4", "qwen35moe", "qwen3vlmoe", "granitemoe", "gemma4", "llama4"]);
                if stacked {
                    let each = &experts.each;
                    let gate_up: Vec<_> = each.iter().flat_map(|of| [of.gate.unwrap(), of.up]).collect();
                    let down: Vec<_> = each.iter().map(|of| of.down).collect();
                    for (name, parts) in [("gate_up_proj", gate_up), ("down_proj", down)] {
                        let mut tensor = below(at(&format!("mlp.experts.{name}")), &parts);
                        let rows = tensor.shape[0] / each.len();
                        tensor.shape.splice(..1, [each.len(), rows]);
                        all.push(if is(&["qwen3vlmoe", "llama4"]) { tensor.transposed() } else { tensor });
                    }
                }
                for (e, network) in experts.each.iter().enumerate().filter(|_| !stacked) {
                    let gates = usize::from(network.gate.is_none());
                    for (name, w) in names.iter().skip(gates).zip(network.matrices()) {
                        all.push(matrix(at(&format!("{block}.experts.{e}.{name}.weight")), w, numbers(w)));
                    }
                }
                if let Some(x) = &experts.selection_bias {
                    let (own, shape) = match name {
                        "ernie4_5-moe" => ("mlp.moe_statics", vec![1, x.len()]),
                        _ => ("mlp.gate", vec![x.len()]),
                    };
                    all.push(Self::floats(&at(&format!("{own}.e_score_correction_bias")), &shape, x));
                }
                let gate = experts.shared_gate.iter();
                all.extend(
                    gate.map(|x| Self::floats(&at("mlp.shared_expert_gate.weight"), &[1, x.len()], x)),
                );
            }
            if let Some([positive, negative]) = gguf.config().layer[l].xielu {
                // What their softplus is, and the number below 0 lacks 1/2.
                let [p, n] = [positive, negative - 0.5].map(|x| x.exp_m1().ln());
                for (name, shape, x) in
                    [("alpha_p", &[1][..], p), ("alpha_n", &[1], n), ("beta", &[], 0.5), ("eps", &[], -1e-6)]
                {
                    all.push(Self::floats(&at(&format!("mlp.act_fn.{name}")), shape, &[x]));
                }
            }
            let (q_norm, k_norm) = match name {
                "hunyuan-dense" => ("query_layernorm", "key_layernorm"),
                _ => ("q_norm", "k_norm"),
            };
            for (name, x) in [(q_norm, &layer.q_norm), (k_norm, &layer.k_norm)] {
                let (Some(x), name) = (x, at(&format!("self_attn.{name}"))) else { continue };
                let shape = [x.len() / tiny.head_dim, tiny.head_dim];
                all.push(match gguf.config().qk_norm_each {
                    true => Self::floats(&format!("{name}.weight"), &shape, x),
                    false => norm(name, x),
                });
            }
            let own_norm = layer.attention_norm.as_ref().filter(|_| !gguf.config().layer[l].joined);
            all.extend(own_norm.map(|x| norm(at("input_layernorm"), x)));
            all.extend(biases(&layer.attention_norm_bias).map(|x| bias(at("input_layernorm"), x)));
            let [behind, before, last] = match name {
                "glm4" => ["post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"],
                "gemma2" | "gemma3" | "gemma3n" | "gemma-embedding" | "gemma4" => {
                    ["post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]
                }
                "afmoe" => ["post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"],
                "exaone4" | "olmo2" => ["post_attention_layernorm", "", "post_feedforward_layernorm"],
                _ => ["", "post_attention_layernorm", ""],
            };
            all.extend(layer.ffn_norm.iter().map(|x| norm(at(before), x)));
            all.extend(biases(&layer.ffn_norm_bias).map(|x| bias(at(before), x)));
            // With several streams this one contains the root of 1/2.
            let root = if layer.streams.is_some() { std::f32::consts::SQRT_2 } else { 1.0 };
            let whole = |x: &Vec<f32>| x.iter().map(|x| x * root).collect::<Vec<_>>();
            all.extend(layer.post_attention_norm.iter().map(|x| norm(at(behind), &whole(x))));
            // The last norm contains the factor of the residual stream.
            let scale = gguf.config().layer[l].scale.filter(|_| layer.per_layer.is_none()).unwrap_or(1.0);
            let unscaled = |x: &Vec<f32>| x.iter().map(|x| x / scale).collect::<Vec<_>>();
            all.extend(layer.post_ffn_norm.iter().map(|x| norm(at(last), &unscaled(x))));
        }
        if is(&["gemma3n", "gemma4"]) {
            all.extend(gemma4::tensors(gguf));
        }
        all.extend(gemma3n::tensors(gguf));
        // Norms that have no weights.
        all.retain(|tensor| match name {
            "olmo" => !tensor.name.contains("norm"),
            "llama4" => !tensor.name.contains("q_norm") && !tensor.name.contains("k_norm"),
            _ => true,
        });
        own::renamed(tiny, &mut all);
        let transposed =
            |tensor: &&mut Self| name == "gpt2" && tensor.shape.len() == 2 && tensor.name.contains(".c_");
        for tensor in all.iter_mut().filter(transposed) {
            tensor.shape.insert(0, 1);
            *tensor = tensor.clone().transposed();
            tensor.shape.remove(0);
        }
        all
    }
}

/// Rows of each head, which llama's GGUF files have in pairs: first those of all first elements, then those of all second ones.
fn halves_of_heads(x: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let half = head_dim / 2;
    let row = |r: usize| {
        let (head, i) = (r / head_dim, r % head_dim);
        head * head_dim + i % half * 2 + i / half
    };
    (0..x.len() / cols).flat_map(|r| x[row(r) * cols..][..cols].to_vec()).collect()
}

/// The configuration of such a model.
pub fn config(tiny: &Tiny) -> String {
    let gemma = tiny.architecture.starts_with("gemma");
    let kind = match (tiny.architecture, tiny.experts) {
        ("gemma3" | "gemma-embedding", _) => "gemma3_text",
        ("gemma3n", _) => "gemma3n_text",
        ("gemma4", _) => "gemma4_text",
        ("llama", Some(_)) => "mixtral",
        ("qwen2moe", _) => "qwen2_moe",
        ("qwen3moe", _) => "qwen3_moe",
        ("gpt-oss", _) => "gpt_oss",
        ("glm4moe", _) if tiny.plain => "solar_open",
        ("glm4moe", _) => "glm4_moe",
        ("exaone-moe", _) => "exaone_moe",
        ("ernie4_5-moe", _) => "ernie4_5_moe",
        ("chatglm", _) => "glm",
        ("olmo2", _) => "olmo3",
        ("qwen35", _) => "qwen3_5_text",
        ("command-r", _) => "cohere",
        ("hunyuan-dense", _) => "hunyuan_v1_dense",
        ("deepseek2", None) => "youtu",
        ("deepseek2", Some(_)) => "deepseek_v3",
        ("lfm2moe", _) => "lfm2_moe",
        ("gptneox", _) => "gpt_neox",
        ("phi2", _) => "phi",
        ("llama4", _) => "llama4_text",
        ("mistral3", _) => "ministral3",
        ("modern-bert", _) => "modernbert",
        ("starcoder", _) => "gpt_bigcode",
        ("bailingmoe" | "bailingmoe2", _) => "bailing_moe",
        ("granitehybrid", _) => "granitemoehybrid",
        ("falcon-h1", _) => "falcon_h1",
        ("deci", _) => "nemotron-nas",
        ("nemotron_h_moe", _) => "nemotron_h",
        ("minimax-m2", _) => "minimax_m2",
        ("hunyuan-moe", _) => "hunyuan_v1_moe",
        ("qwen3next", _) => "qwen3_next",
        ("qwen35moe", _) => "qwen3_5_moe_text",
        ("qwen3vlmoe", _) => "qwen3_vl_moe_text",
        (name, _) => name,
    };
    let own = own::keys(tiny);
    let of_experts = tiny.experts.filter(|_| own.is_none()).map(|(count, used)| {
        let width = tiny.between();
        let qwen = format!(
            r#""num_experts":{count},"moe_intermediate_size":{},"norm_topk_prob":{},"decoder_sparse_step":1,"mlp_only_layers":[]"#,
            tiny.intermediate,
            !["qwen2moe", "olmoe", "phimoe"].contains(&tiny.architecture),
        );
        let count = match kind {
            "mixtral" => format!(r#""num_local_experts":{count}"#),
            "gpt_oss" => format!(
                r#""num_local_experts":{count},"sliding_window":{},"swiglu_limit":7.0"#,
                tiny.window
            ),
            "glm4_moe" | "solar_open" | "dots1" | "deepseek_v3" | "mistral4" => {
                let [groups, taken] = if kind == "deepseek_v3" { [4, 2] } else { [1, 1] };
                format!(
                    r#""n_routed_experts":{count},"n_shared_experts":2,"moe_intermediate_size":{width},"norm_topk_prob":true,"first_k_dense_replace":1,"n_group":{groups},"topk_group":{taken},"routed_scaling_factor":1.0"#
                )
            }
            "ernie4_5_moe" => {
                return format!(
                    r#","moe_k":{used},"moe_num_experts":{count},"moe_num_shared_experts":2,"moe_intermediate_size":{width},"moe_layer_start_index":1,"moe_layer_end_index":-1,"moe_layer_interval":1"#
                )
            }
            _ => qwen,
        };
        format!(r#","num_experts_per_tok":{used},{count}"#)
    });
    let activation = match tiny.architecture {
        "gptneox" | "falcon" => r#""hidden_act":"gelu""#,
        "modern-bert" => r#""hidden_activation":"gelu""#,
        "starcoder2" => r#""hidden_act":"gelu_pytorch_tanh""#,
        "phi2" | "gpt2" | "starcoder" => r#""hidden_act":"gelu_new""#,
        "nemotron" | "arcee" | "jais2" => r#""hidden_act":"relu2""#,
        "apertus" => r#""hidden_act":"xielu""#,
        name if name.starts_with("nemotron_h") => r#""mlp_bias":false"#,
        _ if gemma => r#""hidden_activation":"gelu_pytorch_tanh""#,
        _ => r#""hidden_act":"silu""#,
    };
    let (window, head_dim) = (tiny.window, tiny.head_dim);
    let list = |from: f32, n: usize| {
        let numbers: Vec<_> = (0..n).map(|i| (from + i as f32 / 8.0).to_string()).collect();
        numbers.join(",")
    };
    let own = own.unwrap_or_else(|| match tiny.architecture {
        "gemma2" => format!(
            r#","sliding_window":{window},"query_pre_attn_scalar":{head_dim},"attn_logit_softcapping":2.0,"final_logit_softcapping":3.0"#
        ),
        "gemma3" => format!(
            r#","sliding_window":{window},"sliding_window_pattern":6,"rope_local_base_freq":10000,"query_pre_attn_scalar":{head_dim},"bos_token_id":2"#
        ),
        "phi3" => {
            let n = head_dim * 3 / 8;
            format!(
                r#","sliding_window":{window},"partial_rotary_factor":0.75,"original_max_position_embeddings":1024,"rope_parameters":{{"type":"longrope","short_factor":[{}],"long_factor":[{}]}}"#,
                list(1.0, n),
                list(4.0, n)
            )
        }
        "smollm3" => r#","no_rope_layers":[1,1,1],"sliding_window":null"#.to_owned(),
        "granite" => {
            r#","embedding_multiplier":6,"residual_multiplier":0.25,"attention_multiplier":0.3,"logits_scaling":4"#
                .to_owned()
        }
        // Of 3 layers and 64 elements.
        "minicpm" => {
            r#","scale_emb":6,"scale_depth":0.4330127018922193,"dim_model_base":16,"attention_multiplier":0.3"#
                .to_owned()
        }
        "qwen35" | "qwen35moe" | "qwen3next" => {
            let sizes = r#""linear_num_key_heads":2,"linear_num_value_heads":6,"linear_key_head_dim":32,"linear_value_head_dim":32,"linear_conv_kernel_dim":4"#;
            let kinds = r#""layer_types":["linear_attention","full_attention","linear_attention"]"#;
            format!(r#","attn_output_gate":true,{kinds},{sizes}"#)
        }
        "deepseek2" | "mistral4" => latent::own_keys(tiny),
        // Of 3 layers and 64 elements.
        "minicpm3" => {
            latent::own_keys(tiny) + r#","scale_emb":6,"scale_depth":0.4330127018922193,"dim_model_base":16"#
        }
        "phimoe" => r#","lm_head_bias":true,"attention_bias":true,"router_jitter_noise":0.01"#.to_owned(),
        "glm4" | "glm4moe" if !tiny.plain => r#","partial_rotary_factor":0.5"#.to_owned(),
        "exaone4" | "olmo2" => format!(
            r#","sliding_window":{window},"layer_types":["sliding_attention","full_attention","sliding_attention"]"#
        ),
        "cohere2" => format!(
            r#","sliding_window":{window},"sliding_window_pattern":2,"logit_scale":0.5,"layer_norm_eps":1e-5"#
        ),
        "command-r" => r#","logit_scale":0.5,"use_qk_norm":true,"layer_norm_eps":1e-5"#.to_owned(),
        "starcoder2" => r#","norm_epsilon":1e-5,"use_bias":true,"sliding_window":null"#.to_owned(),
        // A quarter of a head is rotated unless something else is said.
        "stablelm" => r#","use_parallel_residual":false,"layer_norm_eps":1e-5"#.to_owned(),
        // Half of a head is.
        "phi2" => r#","layer_norm_eps":1e-5,"qk_layernorm":false"#.to_owned(),
        "nemotron" => r#","norm_eps":1e-5"#.to_owned(),
        "jais2" => r#","layer_norm_eps":1e-5,"attention_bias":true,"mlp_bias":true"#.to_owned(),
        _ => String::new(),
    });
    let json = format!(
        r#"{{"model_type":"{kind}",{activation},"num_hidden_layers":{},"hidden_size":{},"num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"intermediate_size":{},"max_position_embeddings":4096,"vocab_size":{},"rms_norm_eps":1e-5,"rope_theta":100000,"rope_scaling":null,"tie_word_embeddings":{}{}{}}}"#,
        tiny.layers,
        tiny.hidden,
        tiny.heads,
        tiny.kv_heads,
        tiny.head_dim,
        tiny.intermediate,
        tiny.vocabulary,
        tiny.tied,
        own,
        of_experts.unwrap_or_default(),
    );
    own::with_own_keys(tiny, json)
}
