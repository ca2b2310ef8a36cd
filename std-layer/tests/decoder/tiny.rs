// Small models with random weights: which there are, and what they have. They are written as GGUF files, and computed in f64.

use std::path::PathBuf;

use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::Model;

#[path = "file.rs"]
mod file;
#[path = "oracle.rs"]
mod oracle;
#[path = "tensors.rs"]
mod tensors;

#[allow(unused_imports)] // Not every program needs them.
pub use oracle::{embedding, oracle};

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
/// Numbers between the two matrices that texts are multiplied with, in the model that has them.
const DENSE: usize = 48;
const LATENT: [&str; 3] = ["deepseek2", "mistral4", "minicpm3"];
/// Residual streams, in the model that has several, and the rank of its matrices beside attention.
const STREAMS: usize = 3;
const LOW_RANK: usize = 32;
/// Architectures with embeddings of positions.
const GPT2: [&str; 2] = ["gpt2", "starcoder"];
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
    /// How many experts of a group count, where they are in groups.
    pub counted: usize,
    /// Elements of an embedding for each layer; 0 if there are none. Where there are, all layers but the first two have no keys of their own, and wider networks.
    pub per_layer: usize,
    /// Whether a model has no biases, no norms of queries and keys and of states, and whole heads that are rotated, where others of its architecture have a part of that.
    pub plain: bool,
}

impl Tiny {
    pub fn new(architecture: &'static str, format: Option<QuantFormat>) -> Self {
        let latent = LATENT.contains(&architecture);
        // Rows are whole blocks.
        let long = format == Some(QuantFormat::E4m3);
        Self {
            architecture,
            format,
            hidden: if long { 128 } else { 64 },
            heads: 4,
            kv_heads: if latent { 1 } else { 2 },
            head_dim: if latent { RANK + ROTATED } else { 32 },
            intermediate: if long { 128 } else { 96 },
            // Of those whose networks are layers, too, two are networks.
            layers: match architecture {
                name if name.starts_with("nemotron_h") => 5,
                // The third one of DeciLM has no attention, and the fourth and the fifth have no network, or nothing.
                "deci" => 6,
                // Every second one of Llama 4 has experts, and the fourth is not rotated; of Gemma 3n two have no keys.
                "llama4" | "gemma3n" => 4,
                _ => 3,
            },
            vocabulary: 97,
            window: 24,
            tied: architecture.starts_with("gemma") || architecture == "modern-bert",
            labels: 0,
            experts: match architecture {
                // In 4 groups, of which 2 are taken.
                "bailingmoe2" | "deepseek2" => Some((12, 5)),
                "mistral4" | "gpt-oss" | "dots1" | "minimax-m2" | "qwen3next" | "deepseek" | "llama4" => {
                    Some((6, 3))
                }
                "phimoe" => Some((6, 2)),
                name => name.ends_with("moe").then_some((6, 3)),
            },
            experts_scale: 1.5,
            router_scale: 2.0,
            counted: 2,
            per_layer: if architecture == "gemma3n" { 32 } else { 0 },
            plain: false,
        }
    }

    /// All architectures without experts, in f32 and quantised.
    pub fn all() -> Vec<Self> {
        let of = |format| ["llama", "qwen2", "qwen3", "gemma3"].map(|name| Self::new(name, format));
        let formats = [None, Some(QuantFormat::Q8_0), Some(QuantFormat::Q4_1), Some(QuantFormat::F16)];
        let blocks_of_floats = [Self::new("llama", Some(QuantFormat::E4m3))];
        formats.into_iter().flat_map(of).chain(blocks_of_floats).chain(Self::odd_heads()).collect()
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
            ("phi2", None),
            ("gpt2", None),
            ("jais2", Some(QuantFormat::Q8_0)),
            ("deepseek", None),
            ("qwen", None),
            ("baichuan", Some(QuantFormat::Q8_0)),
            ("xverse", None),
            ("orion", None),
            ("llama4", Some(QuantFormat::Q4_1)),
            ("olmo", None),
            ("apertus", None),
            ("exaone-moe", None),
            ("afmoe", Some(QuantFormat::Q8_0)),
            ("gemma3n", None),
        ]
        .map(|(name, format)| Self::new(name, format))
        .into_iter()
        // Falcon 7B, and StarCoder.
        .chain(["falcon", "starcoder"].map(|name| Self { kv_heads: 1, ..Self::new(name, None) }))
        .chain([Self::with_per_layer(), Self::with_normed_experts(), Self::solar_open()])
    }

    /// Solar Open, which files call by the name of GLM 4.5.
    pub fn solar_open() -> Self {
        Self { plain: true, ..Self::new("glm4moe", None) }
    }

    /// Encoders with norms in front of attention and networks, and windows on both sides of a token.
    pub fn encoders() -> impl Iterator<Item = Self> {
        [("gemma-embedding", None), ("modern-bert", Some(QuantFormat::Q8_0)), ("modern-bert", None)]
            .map(|(name, format)| Self {
                layers: 4,
                kv_heads: if name == "modern-bert" { 4 } else { 2 },
                ..Self::new(name, format)
            })
            .into_iter()
    }

    /// Gemma 4 with experts, all of which are used, so that rounding does not decide which ones are.
    pub fn with_normed_experts() -> Self {
        Self { experts: Some((4, 4)), experts_scale: 1.0, ..Self::new("gemma4", None) }
    }

    /// Gemma 4 with embeddings for each layer, and layers without keys.
    pub fn with_per_layer() -> Self {
        Self { per_layer: 32, layers: 4, ..Self::new("gemma4", None) }
    }

    /// Those of them that differ in what they compute, and not in how their files name it. Behind the first ones: biases everywhere; rows of positions; bounds of queries, keys and values; an
    /// activation with numbers of each layer; temperatures of scores; several residual streams; experts whose scores multiply what they take, and gates beside windows, with experts all of which are used, so that rounding does not decide which ones are.
    pub fn unusual() -> impl Iterator<Item = Self> {
        let biased = Self::new("phi2", Some(QuantFormat::Q8_0));
        let others = ["gpt2", "olmo", "apertus", "mistral3", "gemma3n"].map(|name| Self::new(name, None));
        let scaled = Self { experts: Some((3, 3)), ..Self::new("llama4", Some(QuantFormat::Q8_0)) };
        let gated = Self { experts: Some((3, 3)), ..Self::new("afmoe", None) };
        let gemmas = [Self::with_per_layer(), Self::with_normed_experts()];
        let uneven = [None, Some(QuantFormat::Q8_0)].map(|format| Self::new("deci", format));
        let uneven = uneven.map(|of| Self { layers: if of.format.is_some() { 3 } else { of.layers }, ..of });
        Self::others()
            .take(14)
            .chain([biased])
            .chain(gemmas)
            .chain(others)
            .chain([scaled, gated])
            .chain(uneven)
    }

    /// As DeepSeek V2: a group of experts is as good as its best one.
    pub fn with_best_of_groups() -> Self {
        Self { counted: 1, ..Self::new("deepseek2", None) }
    }

    /// Models with latent attention: with one product of queries and with two, and without experts, with factors, too, and matrices of keys and values in one.
    pub fn latent() -> impl Iterator<Item = Self> {
        [("deepseek2", None), ("mistral4", Some(QuantFormat::Q8_0)), ("deepseek2", Some(QuantFormat::F16))]
            .map(|(name, format)| Self::new(name, format))
            .into_iter()
            .chain([
                Self::youtu(),
                Self::new("minicpm3", None),
                Self::new("minicpm3", Some(QuantFormat::Q8_0)),
            ])
    }

    /// Youtu, which files call DeepSeek: no layer has experts.
    pub fn youtu() -> Self {
        Self { experts: None, ..Self::new("deepseek2", None) }
    }

    fn is_latent(&self) -> bool {
        LATENT.contains(&self.architecture)
    }

    /// Models most of whose layers are recurrent: linear attention, with heads of values in either order, and experts; short convolutions; and state
    /// spaces, with networks behind each and behind some, alone, and beside attention, with norms and without.
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
            ("mamba2", None),
            ("falcon-h1", Some(QuantFormat::Q8_0)),
        ]
        .map(|(name, format)| Self::new(name, format))
        .into_iter()
        .chain([Self { plain: true, ..Self::new("falcon-h1", None) }])
    }

    /// Whether a layer has linear attention: each second one.
    fn is_linear(&self, layer: usize) -> bool {
        self.is(&["qwen35", "qwen35moe", "qwen3next"]) && layer.is_multiple_of(2)
    }

    /// Whether networks are layers of the file: the second and the fourth of five.
    fn networks_are_layers(&self) -> bool {
        self.is(&["nemotron_h", "nemotron_h_moe"])
    }

    /// Whether a layer has a state space: each second one, or the first and the last, or all.
    fn is_space(&self, layer: usize) -> bool {
        (self.architecture == "granitehybrid" && layer.is_multiple_of(2))
            || (self.networks_are_layers() && layer.is_multiple_of(4))
            || self.is(&["falcon-h1", "mamba2"])
    }

    /// Whether a layer has attention.
    fn attends(&self, layer: usize) -> bool {
        let network = self.networks_are_layers() && !layer.is_multiple_of(2);
        let space = self.is_space(layer) && self.architecture != "falcon-h1";
        let without = self.architecture == "deci" && [2, 4].contains(&layer);
        !(network || space || without || self.is_linear(layer) || self.convolves(layer))
    }

    /// Whether a layer has a network.
    fn has_network(&self, layer: usize) -> bool {
        let without = self.architecture == "deci" && [3, 4].contains(&layer);
        !(self.networks_are_layers() && layer.is_multiple_of(2) || self.architecture == "mamba2" || without)
    }

    /// Whether a layer has a short convolution: each second one.
    fn convolves(&self, layer: usize) -> bool {
        self.is(&["lfm2", "lfm2moe"]) && layer.is_multiple_of(2)
    }

    /// Whether its experts are of DeepSeek's kind: the first layer has none, and there is a network beside them, but in LFM2.
    fn deepseek(&self) -> bool {
        self.is_latent() && self.architecture != "minicpm3"
            || self.is(&[
                "afmoe",
                "exaone-moe",
                "glm4moe",
                "ernie4_5-moe",
                "bailingmoe2",
                "dots1",
                "bailingmoe",
                "deepseek",
                "lfm2moe",
            ])
    }

    /// Elements between the halves of the network beside the experts.
    fn shared(&self) -> usize {
        match self.architecture {
            "qwen2moe" | "qwen35moe" | "qwen3next" => self.intermediate,
            "granitemoe" => 40,
            "llama4" => self.between(),
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

    /// Whether each layer of Falcon has a norm for attention and one for the network, as in models whose heads do not all share one of keys.
    fn has_two_norms(&self) -> bool {
        self.architecture == "falcon" && self.kv_heads > 1
    }

    /// Whether norms are layer norms, and whether those have biases.
    fn layer_norms(&self) -> (bool, bool) {
        let biased =
            self.is(&["orion", "starcoder2", "stablelm", "gptneox", "falcon", "nemotron", "phi2", "jais2"])
                || self.is(&GPT2)
                || self.architecture == "phimoe";
        (biased || self.is(&["cohere2", "command-r", "modern-bert", "olmo"]), biased)
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
            Self::new("qwen3moe", Some(QuantFormat::E4m3)),
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

    /// Tokens that have embeddings for each layer of their own: of Gemma 3n not all.
    pub fn per_layer_vocabulary(&self) -> usize {
        self.vocabulary - if self.architecture == "gemma3n" { 7 } else { 0 }
    }

    /// Elements between the halves of the feed-forward network of each layer.
    fn widths(&self) -> Vec<usize> {
        let wide = |l: usize| self.per_layer > 0 && l >= 2 || self.architecture == "deci" && l == 1;
        (0..self.layers).map(|l| self.intermediate * (1 + usize::from(wide(l)))).collect()
    }

    /// Elements of the queries and of the keys of a layer: of Gemma 4, each second one has half as many heads of keys, and heads of twice as many elements; of DeciLM, some have
    /// more and others fewer.
    fn queries_and_keys(&self, layer: usize) -> (usize, usize) {
        let more = if self.architecture == "gemma4" && layer % 2 == 1 { 2 } else { 1 };
        let kv_heads = match (self.architecture, layer) {
            ("deci", 1) => self.heads,
            ("deci", 3) => 1,
            _ => self.kv_heads,
        };
        (self.heads * self.head_dim * more, kv_heads * self.head_dim)
    }

    /// Elements of a head that are rotated.
    fn rotated(&self) -> usize {
        match self.architecture {
            "gemma4" => 2 * self.head_dim,
            "phi3" => self.head_dim * 3 / 4,
            "glm4moe" if self.plain => self.head_dim,
            "glm4" | "chatglm" | "glm4moe" | "bailingmoe2" | "minimax-m2" | "nemotron" => self.head_dim / 2,
            "qwen35" | "qwen35moe" | "qwen3next" => self.head_dim / 4,
            "stablelm" | "gptneox" => self.head_dim / 4,
            "phi2" => self.head_dim / 2,
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
