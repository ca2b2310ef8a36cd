// Small models with random weights, written as GGUF files, and what they compute in f64.

use std::path::{Path, PathBuf};

use gllm_kernels_std::core::{Kernels, QuantFormat, RopePairing};
use gllm_kernels_std::gguf::{GgmlType, Value, ValueType, Writer};
use gllm_kernels_std::model::{Config, Gate, HostWeights, Matrix, Model, Network, Norm};

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
}

impl Tiny {
    pub fn new(architecture: &'static str, format: Option<QuantFormat>) -> Self {
        Self {
            architecture,
            format,
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            intermediate: 96,
            layers: 3,
            vocabulary: 97,
            window: 24,
            tied: architecture.starts_with("gemma"),
            labels: 0,
            experts: (architecture.ends_with("moe") || architecture == "gpt-oss").then_some((6, 3)),
            experts_scale: 1.5,
            router_scale: 2.0,
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
    /// layers with one norm and with two, layer norms with biases and without, and networks without gates.
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
            ("gemma", None),
            ("minicpm", None),
            ("chatglm", Some(QuantFormat::F16)),
            ("ernie4_5", None),
            ("seed_oss", None),
            ("internlm2", None),
            ("exaone", None),
            ("command-r", None),
            ("stablelm", None),
            ("falcon", None),
            ("qwen2vl", None),
            ("qwen3vl", None),
            ("qwen3vlmoe", None),
            ("mistral3", None),
            ("granitemoe", None),
        ]
        .map(|(name, format)| Self::new(name, format))
        .into_iter()
    }

    /// Those of them that differ in what they compute, and not in how their files name it.
    pub fn unusual() -> impl Iterator<Item = Self> {
        Self::others().take(10)
    }

    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.architecture)
    }

    /// Whether norms are layer norms, and whether those have biases.
    fn layer_norms(&self) -> (bool, bool) {
        let biased = self.is(&["starcoder2", "stablelm", "gptneox", "falcon"]);
        (biased || self.is(&["cohere2", "command-r"]), biased)
    }

    /// Experts: with one beside them and with scores as they are, normalised, and all of them used.
    pub fn mixtures() -> impl Iterator<Item = Self> {
        [
            Self::new("qwen2moe", Some(QuantFormat::Q8_0)),
            Self::new("qwen3moe", None),
            Self { experts: Some((8, 2)), ..Self::new("llama", Some(QuantFormat::Q4_1)) },
            Self { experts: Some((3, 3)), ..Self::new("llama", Some(QuantFormat::F16)) },
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
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut all = vec![
            ("token_embd".to_owned(), vec![self.hidden, self.vocabulary]),
            ("output_norm".to_owned(), vec![self.hidden]),
        ];
        if self.labels > 0 {
            all.push(("cls.output".to_owned(), vec![self.hidden, self.labels]));
        } else if !self.tied {
            all.push(("output".to_owned(), vec![self.hidden, self.vocabulary]));
        }
        for l in 0..self.layers {
            let mut add = |name: &str, dims: &[usize]| all.push((format!("blk.{l}.{name}"), dims.to_vec()));
            if !self.is(&["exaone4", "olmo2"]) {
                add("attn_norm", &[self.hidden]);
            }
            if self.is(&["phi3", "chatglm", "gptneox", "falcon"]) {
                add("attn_qkv", &[self.hidden, q + 2 * kv]);
            } else {
                add("attn_q", &[self.hidden, q]);
                add("attn_k", &[self.hidden, kv]);
                add("attn_v", &[self.hidden, kv]);
            }
            add("attn_output", &[q, self.hidden]);
            let by_attention = self.is(&["gpt-oss", "seed_oss"]);
            if !self.is(&["exaone4", "olmo2", "cohere2", "command-r", "falcon"]) {
                add(if by_attention { "post_attention_norm" } else { "ffn_norm" }, &[self.hidden]);
            }
            if self.architecture == "gpt-oss" {
                add("attn_sinks", &[self.heads]);
            }
            let (hidden, between) = (self.hidden, self.intermediate);
            let mut network = |end: &str, of: &[usize]| {
                for (name, dims) in
                    [("gate", [hidden, between]), ("up", [hidden, between]), ("down", [between, hidden])]
                {
                    add(&format!("ffn_{name}{end}"), &[&dims, of].concat());
                }
            };
            match self.experts {
                None if self.is(&["phi3", "chatglm", "glm4"]) => {
                    add("ffn_up", &[hidden, 2 * between]);
                    add("ffn_down", &[between, hidden]);
                }
                None if self.is(&["starcoder2", "gptneox", "falcon"]) => {
                    add("ffn_up", &[hidden, between]);
                    add("ffn_down", &[between, hidden]);
                }
                None => network("", &[]),
                Some((count, _)) => {
                    network("_exps", &[count]);
                    if self.architecture == "qwen2moe" {
                        network("_shexp", &[]);
                        add("ffn_gate_inp_shexp", &[hidden]);
                    }
                    add("ffn_gate_inp", &[hidden, count]);
                }
            }
            if self.is(&["gemma2", "gemma3", "glm4", "exaone4", "olmo2"]) {
                add("post_attention_norm", &[self.hidden]);
                add("post_ffw_norm", &[self.hidden]);
            }
            if self.is(&["qwen3", "gemma3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "exaone4"]) {
                add("attn_q_norm", &[self.head_dim]);
                add("attn_k_norm", &[self.head_dim]);
            }
            if self.architecture == "olmo2" {
                add("attn_q_norm", &[q]);
                add("attn_k_norm", &[kv]);
            }
        }
        let mut all: Vec<_> = all.into_iter().map(|(name, dims)| (format!("{name}.weight"), dims)).collect();
        if self.architecture == "phi3" {
            for name in ["rope_factors_short.weight", "rope_factors_long.weight"] {
                all.push((name.to_owned(), vec![self.rotated() / 2]));
            }
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
        if self.architecture.starts_with("qwen2") || self.is(&["seed_oss", "glm4", "starcoder2", "stablelm"])
        {
            for l in 0..self.layers {
                for (name, n) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                    all.push((format!("blk.{l}.{name}.bias"), vec![n]));
                }
            }
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

    /// Elements of a head that are rotated.
    fn rotated(&self) -> usize {
        match self.architecture {
            "phi3" => self.head_dim * 3 / 4,
            "glm4" | "chatglm" => self.head_dim / 2,
            "stablelm" | "gptneox" => self.head_dim / 4,
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
        for (key, value) in [
            ("block_count", self.layers),
            ("embedding_length", self.hidden),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("feed_forward_length", self.intermediate),
            ("context_length", 4096),
            ("vocab_size", self.vocabulary),
        ] {
            set(key, Value::U32(value as u32));
        }
        let epsilon = if self.layer_norms().0 { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        set(&format!("attention.{epsilon}"), Value::F32(1e-5));
        set("rope.freq_base", Value::F32(100_000.0));
        if let Some((count, used)) = self.experts {
            set("expert_count", Value::U32(count as u32));
            set("expert_used_count", Value::U32(used as u32));
            set("expert_feed_forward_length", Value::U32(self.intermediate as u32));
            set("expert_weights_scale", Value::F32(self.experts_scale));
        }
        set("rope.dimension_count", Value::U32(self.rotated() as u32));
        let periodic = self.is(&["exaone4", "olmo2", "cohere2"]);
        if periodic || self.is(&["gemma2", "gemma3", "phi3", "gpt-oss"]) {
            set("attention.sliding_window", Value::U32(self.window as u32));
        }
        if periodic {
            // Others have periods of four layers, of which there are not as many here.
            set("attention.sliding_window_pattern", Value::U32(2));
        }
        let numbers: &[(&str, f32)] = match self.architecture {
            // Small enough that they matter.
            "gemma2" => &[("attn_logit_softcapping", 2.0), ("final_logit_softcapping", 3.0)],
            // What follows from being trained for four times as long texts, as LongRoPE has it: sqrt(1 + ln(4) / ln(1024)).
            "phi3" => &[("rope.scaling.attn_factor", 1.095_445_1)],
            "granite" | "granitemoe" | "minicpm" => &[
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
            let key = format!("{}.classifier.output_labels", self.architecture);
            let labels = (0..self.labels).map(|_| Value::String("label"));
            writer.set_array(&key, ValueType::String, labels).unwrap();
        }
        let scalar = Kernels::<f32>::detect();
        let mut data = Vec::new();
        for (i, (name, dims)) in self.tensors().into_iter().enumerate() {
            let n = dims.iter().product::<usize>();
            let bias = name.ends_with("bias");
            let matrix = dims.len() >= 2 && !bias;
            // Small enough that nothing explodes, large enough that attention is not flat.
            let (scale, base) = if matrix {
                let large = if name.contains("ffn_gate_inp") { self.router_scale } else { 2.0 };
                (large / (dims[0] as f32).sqrt(), 0.0)
            } else if name.contains("sinks") {
                // Above and below scores.
                (3.0, 2.0)
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

fn rows(matrix: &Matrix<'_>) -> Vec<Vec<f64>> {
    let (n, cols) = (matrix.rows(), matrix.cols());
    (0..n)
        .map(|r| match matrix {
            Matrix::Quantised(w) => {
                let mut row = vec![0f32; cols];
                Kernels::<f32>::detect().dequant(w.row_range(r, 1).unwrap(), &mut row).unwrap();
                row.into_iter().map(f64::from).collect()
            }
            Matrix::F32(w) => {
                // SAFETY: elements of the view.
                (0..cols).map(|c| unsafe { *w.as_ptr().add(r * w.row_stride() + c) }.into()).collect()
            }
        })
        .collect()
}

fn times(w: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    w.iter().map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn norm(x: &[f64], w: &[f32], eps: f32) -> Vec<f64> {
    let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(w).map(|(x, &w)| x * scale * f64::from(w)).collect()
}

/// A norm of the residual stream, or that itself.
fn normed(config: &Config, x: &[f64], weight: &Option<Vec<f32>>, bias: &Option<Vec<f32>>) -> Vec<f64> {
    let Some(weight) = weight else { return x.to_vec() };
    if config.norm == Norm::Rms {
        return norm(x, weight, config.norm_eps);
    }
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let centred: Vec<f64> = x.iter().map(|x| x - mean).collect();
    let biases = bias.as_ref().unwrap();
    norm(&centred, weight, config.norm_eps).iter().zip(biases).map(|(x, &b)| x + f64::from(b)).collect()
}

/// The normal distribution function.
fn normal(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..300 {
        term *= x * x / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 + sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

fn plus(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

/// The logits behind each token, in f64, from the formulas in the documentation of [`Config`].
pub fn oracle(config: &Config, weights: &HostWeights<'_>, tokens: &[u32]) -> Vec<Vec<f64>> {
    let output = rows(&weights.output);
    let cap = |x: f64| config.logit_softcap.map(f64::from).map_or(x, |cap| cap * (x / cap).tanh());
    let all = hidden(config, weights, tokens);
    all.iter().map(|x| times(&output, x).into_iter().map(cap).collect()).collect()
}

/// What the output matrix multiplies.
pub fn hidden(config: &Config, weights: &HostWeights<'_>, tokens: &[u32]) -> Vec<Vec<f64>> {
    let (dim, eps, group) = (config.head_dim, config.norm_eps, config.heads / config.kv_heads);
    let embedding = rows(&weights.embedding);
    let scale = f64::from(config.embedding_scale);
    let mut xs: Vec<Vec<f64>> =
        tokens.iter().map(|&t| embedding[t as usize].iter().map(|x| x * scale).collect()).collect();
    for (w, layer) in weights.layers.iter().zip(&config.layer) {
        let rope = &config.ropes[layer.rope];
        let rotate = |x: &mut [f64], p: usize| {
            let half = rope.dims / 2;
            let factor = rope.attention_factor.unwrap_or(1.0);
            for i in 0..half {
                let divisor = rope.factors.as_ref().map_or(1.0, |factors| f64::from(factors[i]));
                let angle = p as f64 * rope.theta.powf(-2.0 * i as f64 / rope.dims as f64) / divisor;
                let (a, b) = match rope.pairing {
                    RopePairing::Adjacent => (2 * i, 2 * i + 1),
                    RopePairing::HalfSplit => (i, i + half),
                };
                let (c, s) = (factor * angle.cos(), factor * angle.sin());
                (x[a], x[b]) = (x[a] * c - x[b] * s, x[a] * s + x[b] * c);
            }
        };
        let (wq, wk, wv, wo) = (rows(&w.q), rows(&w.k), rows(&w.v), rows(&w.output));
        let network = |w: &Network<'_>| (w.gate.map(|m| rows(&m)), [w.up, w.down].map(|m| rows(&m)));
        let (dense, experts) = (
            w.feed_forward.as_ref().map(network),
            w.experts
                .as_ref()
                .map(|w| w.each.iter().map(|e| e.matrices().map(|m| rows(&m))).collect::<Vec<_>>()),
        );
        let router = w.experts.as_ref().map(|w| rows(&w.router));
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (p, x) in xs.iter_mut().enumerate() {
            let h = normed(config, x, &w.attention_norm, &w.attention_norm_bias);
            let biased = |m: &[Vec<f64>], b: &Option<Vec<f32>>| {
                let y = times(m, &h);
                b.as_ref().map_or(y.clone(), |b| y.iter().zip(b).map(|(y, &b)| y + f64::from(b)).collect())
            };
            let (mut q, mut k, v) = (biased(&wq, &w.q_bias), biased(&wk, &w.k_bias), biased(&wv, &w.v_bias));
            for (x, of) in [(&mut q, &w.q_norm), (&mut k, &w.k_norm)] {
                if let Some(of) = of {
                    // One head, or all.
                    x.chunks_mut(of.len()).for_each(|part| part.copy_from_slice(&norm(part, of, eps)));
                }
                x.chunks_mut(dim).for_each(|head| rotate(head, p));
            }
            keys.push(k);
            values.push(v);
            let from = layer.window.map_or(0, |window| (p + 1).saturating_sub(window));
            let mut mixed = Vec::new();
            for (head, q) in q.chunks(dim).enumerate() {
                let at = head / group * dim;
                let dot = |k: &[f64]| q.iter().zip(&k[at..at + dim]).map(|(q, k)| q * k).sum::<f64>();
                let mut scores: Vec<f64> =
                    keys[from..].iter().map(|k| dot(k) * f64::from(config.attention_scale)).collect();
                if let Some(cap) = config.attention_softcap.map(f64::from) {
                    scores.iter_mut().for_each(|s| *s = cap * (*s / cap).tanh());
                }
                // A sink is a score without a value.
                let sink = w.sinks.as_ref().map(|sinks| f64::from(sinks[head]));
                let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().copied().chain(sink).map(|s| (s - top).exp()).sum();
                let weigh = |i: usize| {
                    let one = scores.iter().zip(&values[from..]).map(|(s, v)| (s - top).exp() * v[at + i]);
                    one.sum::<f64>() / sum
                };
                mixed.extend((0..dim).map(weigh));
            }
            let mut a = times(&wo, &mixed);
            if let Some(bias) = &w.output_bias {
                a.iter_mut().zip(bias).for_each(|(a, &b)| *a += f64::from(b));
            }
            if let Some(post) = &w.post_attention_norm {
                a = norm(&a, post, eps);
            }
            let attended = plus(x, &a);
            // What the network takes.
            let from = if config.parallel { &*x } else { &attended };
            let h = match config.shared_norm {
                true => normed(config, from, &w.attention_norm, &w.attention_norm_bias),
                false => normed(config, from, &w.ffn_norm, &w.ffn_norm_bias),
            };
            *x = attended;
            let gated = |g: f64, u: f64| match config.gate {
                Gate::Silu => u * g / (1.0 + (-g).exp()),
                Gate::GeluTanh => {
                    let t = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
                    u * 0.5 * g * (1.0 + t.tanh())
                }
                Gate::ClampedSwiglu => {
                    let g = g.min(7.0);
                    (u.clamp(-7.0, 7.0) + 1.0) * g / (1.0 + (-1.702 * g).exp())
                }
                Gate::Gelu => u * g * normal(g),
                _ => unreachable!("an activation that the oracle does not know"),
            };
            let with = |y: Vec<f64>, bias: Option<&[f32]>| match bias {
                Some(bias) => y.iter().zip(bias).map(|(y, &b)| y + f64::from(b)).collect(),
                None => y,
            };
            let network =
                |gate: Option<&[Vec<f64>]>, [up, down]: [&[Vec<f64>]; 2], biases: [Option<&[f32]>; 3]| {
                    let u = with(times(up, &h), biases[1]);
                    let gated: Vec<f64> = match gate.map(|gate| with(times(gate, &h), biases[0])) {
                        Some(g) => g.iter().zip(u).map(|(&g, u)| gated(g, u)).collect(),
                        None => u.into_iter().map(|u| gated(u, 1.0)).collect(),
                    };
                    with(times(down, &gated), biases[2])
                };
            let mut f = vec![0.0; h.len()];
            if let Some((gate, [up, down])) = &dense {
                let biases = [None, w.up_bias.as_deref(), w.down_bias.as_deref()];
                f = network(gate.as_deref(), [up, down], biases);
            }
            if let (Some(e), Some(experts), Some(router)) = (&config.experts, &experts, &router) {
                if let Some(gate) = w.experts.as_ref().and_then(|w| w.shared_gate.as_ref()) {
                    let score: f64 = gate.iter().zip(&h).map(|(&g, x)| f64::from(g) * x).sum();
                    f.iter_mut().for_each(|f| *f /= 1.0 + (-score).exp());
                }
                let of_layer = w.experts.as_ref();
                let routed = with(times(router, &h), of_layer.and_then(|w| w.router_bias.as_deref()));
                let scores: Vec<f64> = routed.into_iter().map(f64::exp).collect();
                let mut order: Vec<usize> = (0..e.count).collect();
                order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
                order.truncate(e.used);
                let of: f64 =
                    if e.normalised { order.iter().map(|&i| scores[i]).sum() } else { scores.iter().sum() };
                for i in order {
                    let (n, out) = (e.intermediate, config.hidden);
                    let biases = of_layer.and_then(|w| w.biases.as_ref());
                    let part = |at: usize, n: usize| biases.map(|all| &all[at][i * n..(i + 1) * n]);
                    let [gate, up, down] = experts[i].each_ref().map(|m| &m[..]);
                    let y = network(Some(gate), [up, down], [part(0, n), part(1, n), part(2, out)]);
                    let factor = scores[i] / of * f64::from(e.scale);
                    f.iter_mut().zip(y).for_each(|(f, y)| *f += factor * y);
                }
            }
            if let Some(post) = &w.post_ffn_norm {
                f = norm(&f, post, eps);
            }
            *x = plus(x, &f);
        }
    }
    xs.iter().map(|x| normed(config, x, &weights.output_norm, &weights.output_norm_bias)).collect()
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
