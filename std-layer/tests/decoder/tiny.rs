// Small models with random weights, written as GGUF files, and what they compute in f64.

use std::path::{Path, PathBuf};

use gllm_kernels_std::core::{Kernels, QuantFormat};
use gllm_kernels_std::gguf::{GgmlType, Value, ValueType, Writer};
use gllm_kernels_std::model::Model;

#[path = "oracle.rs"]
mod oracle;

#[allow(unused_imports)] // Not every program needs them.
pub use oracle::{hidden, oracle};

/// Sizes of linear attention, in the models that have it.
const KEY_HEADS: usize = 2;
const VALUE_HEADS: usize = 6;
const SIZE: usize = 32;
const TAPS: usize = 4;
/// Sizes of latent attention, in the models that have it: a rank of queries, that of keys and values, elements of a head's query that are not rotated, of those
/// that are, and of its result.
const QUERY_RANK: usize = 64;
const RANK: usize = 64;
const PLAIN: usize = 32;
const ROTATED: usize = 16;
const VALUES: usize = 24;
const LATENT: [&str; 2] = ["deepseek2", "mistral4"];
/// Elements of a head of values of a state space, whose other sizes are these.
const VALUE_SIZE: usize = 16;

/// A model to write.
#[derive(Clone, Copy, Debug)]
pub struct Tiny {
    pub architecture: &'static str,
    /// `None` is F32.
    pub format: Option<QuantFormat>,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub vocabulary: usize,
    pub window: usize,
    pub tied: bool,
    /// Labels of a model that ranks texts; others have none.
    pub labels: usize,
    /// How many experts there are, if any, and how many are used.
    pub experts: Option<(usize, usize)>,
    /// Factor of what the experts give.
    pub experts_scale: f32,
    /// How large the router's weights are.
    pub router_scale: f32,
    /// Elements of an embedding for each layer; 0 if there are none. Where there are, all layers but the first two have no keys of their own, and wider networks.
    pub per_layer: usize,
}

impl Tiny {
    pub fn new(architecture: &'static str, format: Option<QuantFormat>) -> Self {
        let latent = LATENT.contains(&architecture);
        Self {
            architecture,
            format,
            hidden: 64,
            heads: 4,
            kv_heads: if latent { 1 } else { 2 },
            head_dim: if latent { RANK + ROTATED } else { 32 },
            intermediate: 96,
            // Of those whose networks are layers, too, two are networks.
            layers: if architecture.starts_with("nemotron_h") { 5 } else { 3 },
            vocabulary: 97,
            window: 24,
            tied: architecture.starts_with("gemma"),
            labels: 0,
            experts: match architecture {
                // In 4 groups, of which 2 are taken.
                "bailingmoe2" | "deepseek2" => Some((12, 5)),
                "mistral4" | "gpt-oss" | "dots1" | "minimax-m2" | "qwen3next" => Some((6, 3)),
                name => name.ends_with("moe").then_some((6, 3)),
            },
            experts_scale: 1.5,
            router_scale: 2.0,
            per_layer: 0,
        }
    }

    /// All architectures without experts, in f32 and quantised.
    pub fn all() -> Vec<Self> {
        let of = |format| ["llama", "qwen2", "qwen3", "gemma3"].map(|name| Self::new(name, format));
        let formats = [None, Some(QuantFormat::Q8_0), Some(QuantFormat::Q4_1), Some(QuantFormat::F16)];
        formats.into_iter().flat_map(of).chain(Self::odd_heads()).collect()
    }

    /// The architectures that are neither in [`all`](Self::all) nor in [`mixtures`](Self::mixtures), nor gpt-oss. The first ones have parts that no others have: caps, factors of frequencies, layers
    /// that are not rotated, factors of sums, neighbours that are rotated in a part of a head, layers without norms in front of them, norms of all heads together, parallel
    /// layers with one norm and with two, layer norms with biases and without, networks without gates, squares as activations, norms of heads with weights of their own, and behind
    /// the rotation, and layers with heads of their own.
    pub fn others() -> impl Iterator<Item = Self> {
        [
            ("gemma2", Some(QuantFormat::Q8_0)),
            ("phi3", None),
            ("smollm3", None),
            ("granite", Some(QuantFormat::Q4_1)),
            ("glm4", None),
            ("exaone4", Some(QuantFormat::Q8_0)),
            ("olmo2", None),
            ("cohere2", Some(QuantFormat::Q4_1)),
            ("starcoder2", None),
            ("gptneox", None),
            ("nemotron", None),
            ("command-r", None),
            ("hunyuan-dense", None),
            ("gemma4", None),
            ("gemma", None),
            ("minicpm", None),
            ("chatglm", Some(QuantFormat::F16)),
            ("ernie4_5", None),
            ("seed_oss", None),
            ("internlm2", None),
            ("exaone", None),
            ("hunyuan-moe", Some(QuantFormat::F16)),
            ("stablelm", None),
            ("falcon", None),
            ("qwen2vl", None),
            ("qwen3vl", None),
            ("qwen3vlmoe", None),
            ("mistral3", None),
            ("ernie4_5-moe", None),
            ("dots1", None),
            ("bailingmoe", Some(QuantFormat::Q8_0)),
            ("minimax-m2", Some(QuantFormat::Q4_1)),
            ("olmoe", None),
            ("arcee", Some(QuantFormat::Q8_0)),
        ]
        .map(|(name, format)| Self::new(name, format))
        .into_iter()
        .chain([Self::with_per_layer(), Self::with_normed_experts()])
    }

    /// Gemma 4 with experts, all of which are used, so that rounding does not decide which ones are.
    fn with_normed_experts() -> Self {
        Self { experts: Some((4, 4)), experts_scale: 1.0, ..Self::new("gemma4", None) }
    }

    /// Gemma 4 with embeddings for each layer, and layers without keys.
    pub fn with_per_layer() -> Self {
        Self { per_layer: 32, layers: 4, ..Self::new("gemma4", None) }
    }

    /// Those of them that differ in what they compute, and not in how their files name it.
    pub fn unusual() -> impl Iterator<Item = Self> {
        Self::others().take(14).chain([Self::with_per_layer(), Self::with_normed_experts()])
    }

    /// Models with latent attention: with one product of queries and with two.
    pub fn latent() -> impl Iterator<Item = Self> {
        [("deepseek2", None), ("mistral4", Some(QuantFormat::Q8_0)), ("deepseek2", Some(QuantFormat::F16))]
            .map(|(name, format)| Self::new(name, format))
            .into_iter()
    }

    fn is_latent(&self) -> bool {
        LATENT.contains(&self.architecture)
    }

    /// Models most of whose layers are recurrent: linear attention, with heads of values in either order, and experts; short convolutions; and state
    /// spaces, with networks behind each and behind some.
    pub fn hybrids() -> impl Iterator<Item = Self> {
        [
            ("qwen35", None),
            ("qwen3next", Some(QuantFormat::Q8_0)),
            ("qwen35moe", Some(QuantFormat::F16)),
            ("lfm2", Some(QuantFormat::Q4_1)),
            ("lfm2moe", None),
            ("granitehybrid", Some(QuantFormat::Q4_1)),
            ("nemotron_h", None),
            ("nemotron_h_moe", Some(QuantFormat::F16)),
        ]
        .map(|(name, format)| Self::new(name, format))
        .into_iter()
    }

    /// Whether a layer has linear attention: each second one.
    fn is_linear(&self, layer: usize) -> bool {
        self.is(&["qwen35", "qwen35moe", "qwen3next"]) && layer.is_multiple_of(2)
    }

    /// Whether networks are layers of the file: the second and the fourth of five.
    fn networks_are_layers(&self) -> bool {
        self.is(&["nemotron_h", "nemotron_h_moe"])
    }

    /// Whether a layer has a state space: each second one, or the first and the last.
    fn is_space(&self, layer: usize) -> bool {
        (self.architecture == "granitehybrid" && layer.is_multiple_of(2))
            || (self.networks_are_layers() && layer.is_multiple_of(4))
    }

    /// Whether a layer has attention.
    fn attends(&self, layer: usize) -> bool {
        let network = self.networks_are_layers() && !layer.is_multiple_of(2);
        !(network || self.is_space(layer) || self.is_linear(layer) || self.convolves(layer))
    }

    /// Whether a layer has a network.
    fn has_network(&self, layer: usize) -> bool {
        !(self.networks_are_layers() && layer.is_multiple_of(2))
    }

    /// Whether a layer has a short convolution: each second one.
    fn convolves(&self, layer: usize) -> bool {
        self.is(&["lfm2", "lfm2moe"]) && layer.is_multiple_of(2)
    }

    /// Whether its experts are of DeepSeek's kind: the first layer has none, and there is a network beside them, but in LFM2.
    fn deepseek(&self) -> bool {
        self.is_latent()
            || self.is(&["glm4moe", "ernie4_5-moe", "bailingmoe2", "dots1", "bailingmoe", "lfm2moe"])
    }

    /// Elements between the halves of the network beside the experts.
    fn shared(&self) -> usize {
        match self.architecture {
            "qwen2moe" | "qwen35moe" | "qwen3next" => self.intermediate,
            "granitemoe" => 40,
            "lfm2moe" => 0,
            "nemotron_h_moe" => 40,
            // Others than those of the first layer.
            _ if self.deepseek() => 2 * self.between(),
            _ => 0,
        }
    }

    /// Elements between the halves of an expert.
    pub fn between(&self) -> usize {
        if self.deepseek() {
            self.intermediate / 3
        } else {
            self.intermediate
        }
    }

    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.architecture)
    }

    /// Whether norms are layer norms, and whether those have biases.
    fn layer_norms(&self) -> (bool, bool) {
        let biased = self.is(&["starcoder2", "stablelm", "gptneox", "falcon", "nemotron"]);
        (biased || self.is(&["cohere2", "command-r"]), biased)
    }

    /// Experts: with one beside them and with scores as they are, normalised, and all of them used; by the sigmoid with a bias of choosing, in groups, and with a network beside them that has no
    /// gate; and not in all layers.
    pub fn mixtures() -> impl Iterator<Item = Self> {
        [
            Self::new("qwen2moe", Some(QuantFormat::Q8_0)),
            Self::new("qwen3moe", None),
            Self { experts: Some((8, 2)), ..Self::new("llama", Some(QuantFormat::Q4_1)) },
            Self { experts: Some((3, 3)), ..Self::new("llama", Some(QuantFormat::F16)) },
            Self::new("glm4moe", Some(QuantFormat::Q8_0)),
            // Networks of a layer have 24, 48 and 72 elements, which are no whole blocks.
            Self { intermediate: 72, ..Self::new("bailingmoe2", None) },
            Self::new("granitemoe", Some(QuantFormat::F16)),
        ]
        .into_iter()
    }

    /// Models that rank texts, with few labels: the output matrix has as many rows.
    pub fn rankers() -> impl Iterator<Item = Self> {
        let of = |(labels, name, format)| Self { labels, ..Self::new(name, format) };
        [
            (2, "qwen3", Some(QuantFormat::F16)),
            (2, "qwen3", Some(QuantFormat::Q8_0)),
            (1, "gemma3", None),
            (5, "llama", Some(QuantFormat::Q4_1)),
        ]
        .map(of)
        .into_iter()
    }

    /// Logits of a token.
    pub fn logits(&self) -> usize {
        if self.labels > 0 {
            self.labels
        } else {
            self.vocabulary
        }
    }

    /// Heads that are no whole vectors: what models have (80, 96, 100, 120), and what nobody has.
    pub fn odd_heads() -> impl Iterator<Item = Self> {
        let heads =
            [("llama", 80), ("qwen3", 96), ("llama", 100), ("gemma3", 120), ("qwen2", 36), ("llama", 6)];
        heads.into_iter().map(|(name, head_dim)| Self { head_dim, ..Self::new(name, None) })
    }

    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let lfm2 = self.convolves(0);
        let mut all = vec![
            ("token_embd".to_owned(), vec![self.hidden, self.vocabulary]),
            (if lfm2 { "token_embd_norm" } else { "output_norm" }.to_owned(), vec![self.hidden]),
        ];
        if self.labels > 0 {
            all.push(("cls.output".to_owned(), vec![self.hidden, self.labels]));
        } else if !self.tied {
            all.push(("output".to_owned(), vec![self.hidden, self.vocabulary]));
        }
        if self.per_layer > 0 {
            let all_layers = self.per_layer * self.layers;
            all.push(("per_layer_token_embd".to_owned(), vec![all_layers, self.vocabulary]));
            all.push(("per_layer_model_proj".to_owned(), vec![self.hidden, all_layers]));
            all.push(("per_layer_proj_norm".to_owned(), vec![self.per_layer]));
        }
        for l in 0..self.layers {
            let own_keys = self.per_layer == 0 || l < 2;
            let (q, kv) = self.queries_and_keys(l);
            let head_dim = q / self.heads;
            let mut add = |name: &str, dims: &[usize]| all.push((format!("blk.{l}.{name}"), dims.to_vec()));
            if !self.is(&["exaone4", "olmo2"]) {
                add("attn_norm", &[self.hidden]);
            }
            let hybrid = self.is(&["qwen35", "qwen35moe", "qwen3next"]);
            let values = VALUE_HEADS * VALUE_SIZE;
            if self.is_space(l) {
                let channels = 2 * KEY_HEADS * SIZE + values;
                add("ssm_in", &[self.hidden, channels + values + VALUE_HEADS]);
                add("ssm_conv1d", &[TAPS, channels]);
                add("ssm_norm", &[values / KEY_HEADS, KEY_HEADS]);
                add("ssm_out", &[values, self.hidden]);
            } else if self.convolves(l) {
                add("shortconv.in_proj", &[self.hidden, 3 * self.hidden]);
                add("shortconv.conv", &[TAPS, self.hidden]);
                add("shortconv.out_proj", &[self.hidden, self.hidden]);
            } else if self.is_linear(l) {
                let values = VALUE_HEADS * SIZE;
                let channels = 2 * KEY_HEADS * SIZE + values;
                add("attn_qkv", &[self.hidden, channels]);
                add("attn_gate", &[self.hidden, values]);
                if self.architecture == "qwen3next" {
                    add("ssm_ba", &[self.hidden, 2 * VALUE_HEADS]);
                } else {
                    add("ssm_beta", &[self.hidden, VALUE_HEADS]);
                    add("ssm_alpha", &[self.hidden, VALUE_HEADS]);
                }
                add("ssm_conv1d", &[TAPS, channels]);
                add("ssm_norm", &[SIZE]);
                add("ssm_out", &[values, self.hidden]);
            } else if self.is_latent() {
                let queries = self.heads * (PLAIN + ROTATED);
                add("attn_kv_a_mqa", &[self.hidden, RANK + ROTATED]);
                add("attn_kv_a_norm", &[RANK]);
                add("attn_k_b", &[PLAIN, RANK, self.heads]);
                add("attn_v_b", &[RANK, VALUES, self.heads]);
                if self.architecture == "mistral4" {
                    add("attn_q", &[self.hidden, queries]);
                } else {
                    add("attn_q_a", &[self.hidden, QUERY_RANK]);
                    add("attn_q_a_norm", &[QUERY_RANK]);
                    add("attn_q_b", &[QUERY_RANK, queries]);
                }
            } else if self.is(&["phi3", "chatglm", "gptneox", "falcon", "bailingmoe2"]) {
                add("attn_qkv", &[self.hidden, q + 2 * kv]);
            } else if self.attends(l) {
                add("attn_q", &[self.hidden, if hybrid { 2 * q } else { q }]);
                if own_keys {
                    add("attn_k", &[self.hidden, kv]);
                }
                if own_keys && !(self.architecture == "gemma4" && self.per_layer == 0 && l % 2 == 1) {
                    add("attn_v", &[self.hidden, kv]);
                }
            }
            if self.attends(l) {
                add("attn_output", &[if self.is_latent() { self.heads * VALUES } else { q }, self.hidden]);
            }
            let by_attention = hybrid || self.is(&["gpt-oss", "seed_oss", "glm4moe"]);
            if !self.networks_are_layers()
                && !self.is(&["exaone4", "olmo2", "cohere2", "command-r", "falcon"])
            {
                add(if by_attention { "post_attention_norm" } else { "ffn_norm" }, &[self.hidden]);
            }
            if self.architecture == "gpt-oss" {
                add("attn_sinks", &[self.heads]);
            }
            let (hidden, between) = (self.hidden, self.widths()[l]);
            let mut network = |end: &str, between: usize, of: &[usize]| {
                for (name, dims) in
                    [("gate", [hidden, between]), ("up", [hidden, between]), ("down", [between, hidden])]
                {
                    add(&format!("ffn_{name}{end}"), &[&dims, of].concat());
                }
            };
            match self.experts.filter(|_| l > 0 || !self.deepseek()) {
                _ if !self.has_network(l) => {}
                None if self.is(&["phi3", "chatglm", "glm4"]) => {
                    add("ffn_up", &[hidden, 2 * between]);
                    add("ffn_down", &[between, hidden]);
                }
                None if self.is(&["nemotron_h", "starcoder2", "gptneox", "falcon", "nemotron", "arcee"]) => {
                    add("ffn_up", &[hidden, between]);
                    add("ffn_down", &[between, hidden]);
                }
                None => network("", between, &[]),
                Some((count, _)) if self.architecture == "gemma4" => {
                    network("", between, &[]);
                    add("ffn_gate_up_exps", &[hidden, 2 * between, count]);
                    add("ffn_down_exps", &[between, hidden, count]);
                    add("ffn_gate_inp", &[hidden, count]);
                    for name in ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"] {
                        add(name, &[hidden]);
                    }
                }
                Some((count, _)) if self.architecture == "nemotron_h_moe" => {
                    for (end, n, of) in [("_exps", between, &[count][..]), ("_shexp", self.shared(), &[])] {
                        add(&format!("ffn_up{end}"), &[&[hidden, n], of].concat());
                        add(&format!("ffn_down{end}"), &[&[n, hidden], of].concat());
                    }
                    add("ffn_gate_inp", &[hidden, count]);
                }
                Some((count, _)) => {
                    network("_exps", self.between(), &[count]);
                    if self.shared() > 0 {
                        network("_shexp", self.shared(), &[]);
                    }
                    if self.is(&["qwen2moe", "qwen35moe", "qwen3next"]) {
                        add("ffn_gate_inp_shexp", &[hidden]);
                    }
                    add("ffn_gate_inp", &[hidden, count]);
                }
            }
            if self.architecture == "gemma4" {
                add("layer_output_scale", &[1]);
            }
            if self.per_layer > 0 {
                add("inp_gate", &[self.hidden, self.per_layer]);
                add("proj", &[self.per_layer, self.hidden]);
                add("post_norm", &[self.hidden]);
            }
            if self.is(&["gemma2", "gemma3", "gemma4", "glm4", "exaone4", "olmo2"]) {
                add("post_attention_norm", &[self.hidden]);
                add("post_ffw_norm", &[self.hidden]);
            }
            let normed = hybrid
                || self.is(&[
                    "qwen3",
                    "gemma3",
                    "gemma4",
                    "qwen3moe",
                    "qwen3vl",
                    "qwen3vlmoe",
                    "exaone4",
                    "glm4moe",
                    "bailingmoe2",
                    "dots1",
                    "hunyuan-dense",
                    "hunyuan-moe",
                    "lfm2",
                    "lfm2moe",
                ]);
            if normed && self.attends(l) {
                add("attn_q_norm", &[head_dim]);
                if own_keys {
                    add("attn_k_norm", &[head_dim]);
                }
            }
            if self.architecture == "command-r" {
                add("attn_q_norm", &[self.head_dim, self.heads]);
                add("attn_k_norm", &[self.head_dim, self.kv_heads]);
            }
            if self.is(&["olmo2", "olmoe", "minimax-m2"]) {
                add("attn_q_norm", &[q]);
                add("attn_k_norm", &[kv]);
            }
        }
        let mut all: Vec<_> = all.into_iter().map(|(name, dims)| (format!("{name}.weight"), dims)).collect();
        if let ("gemma4", Some((count, _))) = (self.architecture, self.experts) {
            for l in 0..self.layers {
                all.push((format!("blk.{l}.ffn_gate_inp.scale"), vec![self.hidden]));
                all.push((format!("blk.{l}.ffn_down_exps.scale"), vec![count]));
            }
        }
        // Architectures with biases have the same heads in all layers.
        let (q, kv) = self.queries_and_keys(0);
        for l in (0..self.layers).filter(|&l| self.is_linear(l)) {
            all.push((format!("blk.{l}.ssm_dt.bias"), vec![VALUE_HEADS]));
            all.push((format!("blk.{l}.ssm_a"), vec![VALUE_HEADS]));
        }
        for l in (0..self.layers).filter(|&l| self.is_space(l)) {
            let channels = 2 * KEY_HEADS * SIZE + VALUE_HEADS * VALUE_SIZE;
            all.push((format!("blk.{l}.ssm_conv1d.bias"), vec![channels]));
            all.push((format!("blk.{l}.ssm_dt.bias"), vec![VALUE_HEADS]));
            all.push((format!("blk.{l}.ssm_a"), vec![1, VALUE_HEADS]));
            all.push((format!("blk.{l}.ssm_d"), vec![1, VALUE_HEADS]));
        }
        if self.architecture == "phi3" {
            for name in ["rope_factors_short.weight", "rope_factors_long.weight"] {
                all.push((name.to_owned(), vec![self.rotated() / 2]));
            }
        }
        if self.architecture == "gemma4" {
            all.push(("rope_freqs.weight".to_owned(), vec![self.rotated() / 2]));
        }
        if self.layer_norms().1 {
            let norms = all.iter().filter_map(|(name, dims)| Some((name.strip_suffix("norm.weight")?, dims)));
            let biases: Vec<_> =
                norms.map(|(name, dims)| (format!("{name}norm.bias"), dims.clone())).collect();
            all.extend(biases);
        }
        if self.is(&["starcoder2", "gptneox"]) {
            for l in 0..self.layers {
                for (name, n) in
                    [("attn_output", self.hidden), ("ffn_up", self.intermediate), ("ffn_down", self.hidden)]
                {
                    all.push((format!("blk.{l}.{name}.bias"), vec![n]));
                }
            }
        }
        if self.is(&["chatglm", "gptneox"]) {
            all.extend((0..self.layers).map(|l| (format!("blk.{l}.attn_qkv.bias"), vec![q + 2 * kv])));
        }
        // Of GLM 4, some models have them.
        if self.architecture.starts_with("qwen2")
            || self.is(&["seed_oss", "glm4", "glm4moe", "starcoder2", "stablelm"])
        {
            for l in 0..self.layers {
                for (name, n) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                    all.push((format!("blk.{l}.{name}.bias"), vec![n]));
                }
            }
        }
        if let (true, Some((count, _))) = (
            self.is(&[
                "glm4moe",
                "ernie4_5-moe",
                "bailingmoe2",
                "dots1",
                "minimax-m2",
                "lfm2moe",
                "deepseek2",
                "nemotron_h_moe",
            ]),
            self.experts,
        ) {
            let first = usize::from(self.deepseek());
            all.extend(
                (first..self.layers)
                    .filter(|&l| self.has_network(l))
                    .map(|l| (format!("blk.{l}.exp_probs_b.bias"), vec![count])),
            );
        }
        if let ("gpt-oss", Some((count, _))) = (self.architecture, self.experts) {
            let (hidden, between) = (self.hidden, self.intermediate);
            let biases = [
                ("attn_q", vec![q]),
                ("attn_k", vec![kv]),
                ("attn_v", vec![kv]),
                ("attn_output", vec![hidden]),
                ("ffn_gate_inp", vec![count]),
                ("ffn_gate_exps", vec![between, count]),
                ("ffn_up_exps", vec![between, count]),
                ("ffn_down_exps", vec![hidden, count]),
            ];
            for l in 0..self.layers {
                all.extend(biases.iter().map(|(name, dims)| (format!("blk.{l}.{name}.bias"), dims.clone())));
            }
        }
        all
    }

    /// Elements between the halves of the feed-forward network of each layer.
    fn widths(&self) -> Vec<usize> {
        let wide = |l: usize| self.per_layer > 0 && l >= 2;
        (0..self.layers).map(|l| self.intermediate * (1 + usize::from(wide(l)))).collect()
    }

    /// Elements of the queries and of the keys of a layer: of Gemma 4, each second one has half as many heads of keys, and heads of twice as many elements.
    fn queries_and_keys(&self, layer: usize) -> (usize, usize) {
        let more = if self.architecture == "gemma4" && layer % 2 == 1 { 2 } else { 1 };
        (self.heads * self.head_dim * more, self.kv_heads * self.head_dim)
    }

    /// Elements of a head that are rotated.
    fn rotated(&self) -> usize {
        match self.architecture {
            "gemma4" => 2 * self.head_dim,
            "phi3" => self.head_dim * 3 / 4,
            "glm4" | "chatglm" | "glm4moe" | "bailingmoe2" | "minimax-m2" | "nemotron" => self.head_dim / 2,
            "qwen35" | "qwen35moe" | "qwen3next" => self.head_dim / 4,
            "stablelm" | "gptneox" => self.head_dim / 4,
            _ if self.is_latent() => ROTATED,
            _ => self.head_dim,
        }
    }

    /// Writes the file, and opens it.
    pub fn open(&self) -> Model<'static> {
        let name = format!("{}-{:?}-{}.gguf", self.architecture, self.format, std::process::id());
        // A program that was built elsewhere has no folder of the build's.
        let folder = option_env!("CARGO_TARGET_TMPDIR").map(PathBuf::from).filter(|folder| folder.is_dir());
        let path = folder
            .unwrap_or_else(std::env::temp_dir)
            .join(format!("{:?}-{name}", std::thread::current().id()));
        self.write(&path);
        let model = Model::open(&path).unwrap();
        // The mapping stays.
        #[cfg(unix)]
        std::fs::remove_file(&path).unwrap();
        model
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        let mut writer = Writer::new();
        let mut set = |key: &str, value: Value<'_>| {
            let key =
                if key.contains("general") { key.to_owned() } else { format!("{}.{key}", self.architecture) };
            writer.set(&key, value).unwrap();
        };
        set("general.architecture", Value::String(self.architecture));
        let head_dim = self.queries_and_keys(1).0 / self.heads;
        for (key, value) in [
            ("block_count", self.layers),
            ("embedding_length", self.hidden),
            ("attention.head_count", self.heads),
            ("attention.key_length", head_dim),
            ("attention.value_length", if self.is_latent() { RANK } else { head_dim }),
            ("context_length", 4096),
            ("vocab_size", self.vocabulary),
        ] {
            set(key, Value::U32(value as u32));
        }
        let epsilon = if self.layer_norms().0 { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        if self.architecture == "gemma4" {
            set("attention.key_length_swa", Value::U32(self.head_dim as u32));
            let kv = (0..self.layers).map(|l| Value::U32((self.kv_heads / (1 + l % 2)) as u32));
            writer.set_array("gemma4.attention.head_count_kv", ValueType::U32, kv).unwrap();
        }
        if self.per_layer > 0 {
            let widths = self.widths().into_iter().map(|n| Value::U32(n as u32));
            writer.set_array("gemma4.feed_forward_length", ValueType::U32, widths).unwrap();
        }
        let mut set = |key: &str, value: Value<'_>| {
            writer.set(&format!("{}.{key}", self.architecture), value).unwrap();
        };
        if self.per_layer > 0 {
            set("embedding_length_per_layer_input", Value::U32(self.per_layer as u32));
            set("attention.shared_kv_layers", Value::U32(self.layers as u32 - 2));
        }
        set(&format!("attention.{epsilon}"), Value::F32(1e-5));
        set("rope.freq_base", Value::F32(100_000.0));
        if let Some((count, used)) = self.experts {
            set("expert_count", Value::U32(count as u32));
            set("expert_used_count", Value::U32(used as u32));
            set("expert_feed_forward_length", Value::U32(self.between() as u32));
            set("expert_weights_scale", Value::F32(self.experts_scale));
        }
        if self.deepseek() {
            set("leading_dense_block_count", Value::U32(1));
            set("expert_shared_count", Value::U32(if self.shared() > 0 { 2 } else { 0 }));
            set("expert_weights_norm", Value::Bool(self.architecture != "bailingmoe"));
        }
        if self.is(&["ernie4_5-moe", "granitemoe", "nemotron_h_moe"]) {
            set("expert_shared_feed_forward_length", Value::U32(self.shared() as u32));
        }
        if self.is_latent() {
            let sizes =
                [("kv_lora_rank", RANK), ("key_length_mla", PLAIN + ROTATED), ("value_length_mla", VALUES)];
            let all = sizes.into_iter().chain([("q_lora_rank", QUERY_RANK)]);
            all.for_each(|(key, n)| set(&format!("attention.{key}"), Value::U32(n as u32)));
        }
        if let ("bailingmoe2" | "deepseek2", Some((count, used))) = (self.architecture, self.experts) {
            let groups = count as u32 / 3;
            set("expert_group_count", Value::U32(groups));
            set("expert_group_used_count", Value::U32(if used == count { groups } else { 2 }));
        }
        set("rope.dimension_count", Value::U32(self.rotated() as u32));
        let periodic = self.is(&["exaone4", "olmo2", "cohere2", "gemma4"]);
        if periodic || self.is(&["gemma2", "gemma3", "phi3", "gpt-oss"]) {
            set("attention.sliding_window", Value::U32(self.window as u32));
        }
        if !self.networks_are_layers() && self.per_layer == 0 {
            set("feed_forward_length", Value::U32(self.intermediate as u32));
        }
        if self.is_linear(0) {
            set("full_attention_interval", Value::U32(2));
        }
        if self.is_linear(0) || self.is_space(0) {
            let size = if self.is_space(0) { VALUE_SIZE } else { SIZE };
            let sizes = [
                ("ssm.conv_kernel", TAPS),
                ("ssm.group_count", KEY_HEADS),
                ("ssm.time_step_rank", VALUE_HEADS),
                ("ssm.state_size", SIZE),
                ("ssm.inner_size", VALUE_HEADS * size),
            ];
            sizes.iter().for_each(|&(key, n)| set(key, Value::U32(n as u32)));
        }
        let some_attend = self.convolves(0) || self.is_space(0);
        if self.convolves(0) {
            set("shortconv.l_cache", Value::U32(TAPS as u32));
        }
        if self.architecture == "granitehybrid" {
            set("rope.scaling.finetuned", Value::Bool(false));
        }
        if !some_attend && self.architecture != "gemma4" {
            set("attention.head_count_kv", Value::U32(self.kv_heads as u32));
        }
        if periodic {
            // Others have periods of four layers, of which there are not as many here.
            set("attention.sliding_window_pattern", Value::U32(2));
        }
        let numbers: &[(&str, f32)] = match self.architecture {
            // Small enough that they matter.
            "gemma2" => &[("attn_logit_softcapping", 2.0), ("final_logit_softcapping", 3.0)],
            "gemma4" => &[("final_logit_softcapping", 3.0)],
            // What follows from being trained for four times as long texts, as LongRoPE has it: sqrt(1 + ln(4) / ln(1024)).
            "phi3" => &[("rope.scaling.attn_factor", 1.095_445_1)],
            "granite" | "granitemoe" | "granitehybrid" | "minicpm" => &[
                ("embedding_scale", 6.0),
                ("residual_scale", 0.25),
                ("attention.scale", 0.3),
                ("logit_scale", 4.0),
            ],
            "cohere2" | "command-r" => &[("logit_scale", 0.5)],
            _ => &[],
        };
        numbers.iter().for_each(|&(key, x)| set(key, Value::F32(x)));
        if self.architecture == "phi3" {
            set("rope.scaling.original_context_length", Value::U32(1024));
        }
        if self.labels > 0 {
            set("pooling_type", Value::U32(4));
        }
        if self.networks_are_layers() {
            let of_layer = |l| Value::I32(if self.has_network(l) { self.intermediate as i32 } else { 0 });
            let key = format!("{}.feed_forward_length", self.architecture);
            writer.set_array(&key, ValueType::I32, (0..self.layers).map(of_layer)).unwrap();
        }
        if some_attend {
            let of_layer = |l| Value::I32(if self.attends(l) { self.kv_heads as i32 } else { 0 });
            let key = format!("{}.attention.head_count_kv", self.architecture);
            writer.set_array(&key, ValueType::I32, (0..self.layers).map(of_layer)).unwrap();
        }
        if self.labels > 0 {
            let key = format!("{}.classifier.output_labels", self.architecture);
            let labels = (0..self.labels).map(|_| Value::String("label"));
            writer.set_array(&key, ValueType::String, labels).unwrap();
        }
        let scalar = Kernels::<f32>::detect();
        let mut data = Vec::new();
        for (i, (name, dims)) in self.tensors().into_iter().enumerate() {
            let n = dims.iter().product::<usize>();
            let bias = name.ends_with("bias");
            let convolution = name.contains("conv1d") || name.contains("shortconv.conv");
            let matrix = dims.len() >= 2 && !bias && !convolution && !name.contains("norm") && dims[0] > 1;
            // Small enough that nothing explodes, large enough that attention is not flat.
            let (scale, base) = if matrix {
                let large = if name.contains("ffn_gate_inp") { self.router_scale } else { 2.0 };
                (large / (dims[0] as f32).sqrt(), 0.0)
            } else if name.contains("sinks") {
                // Above and below scores.
                (3.0, 2.0)
            } else if name.contains("attn_q_norm") && self.architecture == "gemma4" {
                // They contain the scale of scores.
                (0.05, 0.2)
            } else if convolution {
                (0.6, 0.2)
            } else if name.ends_with("ssm_a") {
                // Decays from nearly none to nearly all.
                (0.9, -1.0)
            } else if name.contains("exp_probs_b") {
                // Enough to change which experts are taken.
                (0.3, 0.0)
            } else if bias && (name.contains("gate_exps") || name.contains("up_exps")) {
                // Far enough from 0 that some gates are clamped.
                (6.0, 0.0)
            } else {
                (0.3, f32::from(!bias))
            };
            let mut state = i as u64 + 1;
            let numbers: Vec<f32> = (0..n)
                .map(|i| {
                    if name.contains("rope_factors") {
                        return i as f32 / 8.0 + if name.contains("long") { 4.0 } else { 1.0 };
                    }
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    base + scale * ((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
                })
                .collect();
            // Files have routers in f32; some here have them as everything else.
            let router = name.contains("ffn_gate_inp.") && self.architecture == "qwen2moe";
            let (ty, bytes) = match self.format.filter(|_| matrix && !router) {
                None => (GgmlType::F32, numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()),
                Some(format) => {
                    let mut bytes = vec![0; format.row_bytes(dims[0]).unwrap() * (n / dims[0])];
                    scalar.quantize(format, &numbers, None, &mut bytes).unwrap();
                    (ggml(format), bytes)
                }
            };
            let dims: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
            writer.add_tensor(&name, &dims, ty).unwrap();
            data.push(bytes);
        }
        let mut file = writer.create(path, true).unwrap();
        data.iter().for_each(|bytes| file.write(bytes).unwrap());
        file.finish().unwrap();
    }
}

fn ggml(format: QuantFormat) -> GgmlType {
    match format {
        QuantFormat::Q8_0 => GgmlType::Q8_0,
        QuantFormat::Q4_1 => GgmlType::Q4_1,
        QuantFormat::Q6K => GgmlType::Q6_K,
        QuantFormat::Mxfp4 => GgmlType::MXFP4,
        QuantFormat::F16 => GgmlType::F16,
        QuantFormat::Bf16 => GgmlType::BF16,
        _ => unreachable!("no test writes it"),
    }
}

/// KL divergence of `q` from `p`, of one row of logits.
pub fn divergence(p: &[f64], q: &[f32]) -> f64 {
    let top_p = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let top_q = f64::from(q.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    // Sums of exponentials, and of those of `p` times what is ahead.
    let (mut sum_p, mut sum_q, mut ahead) = (0.0, 0.0, 0.0);
    for (p, &q) in p.iter().zip(q) {
        let (p, q) = (p - top_p, f64::from(q) - top_q);
        let e = p.exp();
        (sum_p, sum_q, ahead) = (sum_p + e, sum_q + q.exp(), ahead + e * (p - q));
    }
    ahead / sum_p + (sum_q / sum_p).ln()
}
