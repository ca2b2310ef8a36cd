//! Small models in the making: their metadata and tensors can be changed before they become a file.

use std::sync::atomic::{AtomicUsize, Ordering};

use gllm_kernels_std::gguf::{GgmlType, Gguf, Value, ValueType, Writer};
use gllm_kernels_std::model::Architecture;
use gllm_kernels_std::AlignedVec;

/// The names of all architectures.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    Architecture::ALL.iter().map(|architecture| architecture.name())
}

/// Whether models of this architecture are encoders.
pub fn is_encoder(architecture: &str) -> bool {
    architecture.contains("bert") || architecture == "gemma-embedding"
}

/// Whether they are encoders whose residual stream itself is normed.
pub fn has_residual_norms(architecture: &str) -> bool {
    is_encoder(architecture) && !["gemma-embedding", "modern-bert"].contains(&architecture)
}

/// Whether norms are layer norms, and whether those of decoders have biases.
pub fn layer_norms(architecture: &str) -> (bool, bool) {
    let biased =
        ["phimoe", "orion", "starcoder2", "stablelm", "gptneox", "falcon", "nemotron", "phi2", "jais2"]
            .contains(&architecture)
            || has_positions(architecture);
    let others = ["cohere2", "command-r", "modern-bert", "olmo"].contains(&architecture);
    (biased || others || has_residual_norms(architecture), biased)
}

/// Whether decoders of this architecture have embeddings of positions.
pub fn has_positions(architecture: &str) -> bool {
    ["gpt2", "starcoder"].contains(&architecture)
}

/// Whether files of this architecture always have experts.
pub fn is_mixture(architecture: &str) -> bool {
    architecture.ends_with("moe")
        || ["gpt-oss", "qwen3next", "minimax-m2", "llama4"].contains(&architecture)
        || is_deepseek(architecture)
}

/// Whether all layers of this architecture but each fourth one have linear attention.
pub fn is_hybrid(architecture: &str) -> bool {
    architecture.starts_with("qwen35") || architecture == "qwen3next"
}

/// Whether all layers of this architecture but each fourth one have a short convolution.
pub fn is_lfm2(architecture: &str) -> bool {
    architecture.starts_with("lfm2")
}

/// Whether all layers of this architecture but each fourth one have a state space.
pub fn is_space(architecture: &str) -> bool {
    architecture == "granitehybrid" || has_network_layers(architecture)
}

/// Whether all layers of this architecture have a state space, beside attention or alone.
pub fn has_spaces(architecture: &str) -> bool {
    ["falcon-h1", "mamba2"].contains(&architecture)
}

/// Whether files of this architecture count networks among the layers. Of drafts each third layer, from the second on, has none.
pub fn has_network_layers(architecture: &str) -> bool {
    architecture.starts_with("nemotron_h")
}

/// Whether norms of queries and of keys are of all heads together.
pub fn has_whole_norms(architecture: &str) -> bool {
    ["olmo2", "olmoe", "minimax-m2"].contains(&architecture)
}

/// Whether its experts are of DeepSeek's kind. The first layer of drafts has none, and beside those of the others is a network, but in LFM2.
pub fn is_deepseek(architecture: &str) -> bool {
    is_latent(architecture) && architecture != "minicpm3"
        || [
            "afmoe",
            "exaone-moe",
            "glm4moe",
            "ernie4_5-moe",
            "bailingmoe2",
            "dots1",
            "bailingmoe",
            "deepseek",
            "lfm2moe",
        ]
        .contains(&architecture)
}

/// Whether attention is latent. Of Mistral 4 drafts have one product of queries, of others two.
pub fn is_latent(architecture: &str) -> bool {
    ["deepseek2", "mistral4", "minicpm3"].contains(&architecture)
}

/// Numbers of heads of keys, and elements of a head of keys: as files have them.
pub fn kv_heads(architecture: &str) -> (u32, u32) {
    if is_latent(architecture) {
        (1, 40)
    } else {
        (2, 16)
    }
}

/// A tensor whose elements are all the same.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub of: GgmlType,
    /// What its elements are, if it has the type F32; others are of zeros.
    pub fill: f32,
}

/// A metadata value, or an array of them.
#[derive(Clone)]
pub enum Entry {
    One(Value<'static>),
    Array(ValueType, Vec<Value<'static>>),
}

#[derive(Clone, Default)]
pub struct Draft {
    pub keys: Vec<(String, Entry)>,
    pub tensors: Vec<Tensor>,
}

impl Draft {
    /// A model with a vocabulary of 24, 7 layers of width 32, and 4 heads of 16.
    pub fn of(architecture: &'static str) -> Self {
        Self::with_layers(architecture, 7)
    }

    /// The same with so many layers.
    pub fn with_layers(architecture: &'static str, layers: u32) -> Self {
        let mut d = Self::default();
        d.set("general.architecture", Value::String(architecture));
        let mut own = |key: &str, value| d.set(&format!("{architecture}.{key}"), value);
        // The numbers of each layer, and of its network.
        let apart = has_network_layers(architecture);
        let mut numbers: Vec<[u32; 2]> = Vec::new();
        for i in 0..layers {
            let next = numbers.last().map_or(0, |[_, network]| network + 1);
            numbers.push([next, next + u32::from(apart && i % 3 != 1)]);
        }
        let count = numbers.last().map_or(0, |[_, network]| network + 1);
        own("block_count", Value::U32(count));
        own("context_length", Value::U32(128));
        own("embedding_length", Value::U32(32));
        // Of some mixtures here, experts are as wide as that.
        let wide = ["granitemoe", "olmoe", "hunyuan-moe", "phimoe"].contains(&architecture);
        own("attention.head_count", Value::U32(4));
        let lfm2 = is_lfm2(architecture);
        let (kv_heads, head_dim) = kv_heads(architecture);
        // Of MiniCPM 3, it is about queries.
        own("attention.key_length", Value::U32(if architecture == "minicpm3" { 16 } else { head_dim }));
        if architecture != "minicpm3" {
            own("attention.value_length", Value::U32(if is_latent(architecture) { 32 } else { 16 }));
        }
        if is_latent(architecture) {
            let sizes = [("kv_lora_rank", 32), ("key_length_mla", 16), ("value_length_mla", 8)];
            sizes.iter().for_each(|(key, n)| own(&format!("attention.{key}"), Value::U32(*n)));
            if architecture != "mistral4" {
                own("attention.q_lora_rank", Value::U32(24));
            }
            own("rope.dimension_count", Value::U32(8));
        }
        let (layer_norms, biases) = layer_norms(architecture);
        let epsilon =
            if layer_norms { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
        own(epsilon, Value::F32(1e-5));
        own("rope.freq_base", Value::F32(1e6));
        let is = |names: &[&str]| names.contains(&architecture);
        if is(&[
            "gemma2",
            "gemma3",
            "gemma3n",
            "gemma-embedding",
            "gemma4",
            "phi3",
            "phimoe",
            "gpt-oss",
            "exaone4",
            "exaone-moe",
            "afmoe",
            "olmo2",
            "cohere2",
            "modern-bert",
        ]) {
            own("attention.sliding_window", Value::U32(8));
        }
        if architecture == "gemma4" {
            own("attention.key_length_swa", Value::U32(8));
        }
        let hybrid = is_hybrid(architecture);
        let spaces = has_spaces(architecture);
        if hybrid || is_space(architecture) || spaces {
            let sizes = [("conv_kernel", 4), ("group_count", 2), ("time_step_rank", 4), ("state_size", 8)];
            sizes.iter().for_each(|(key, n)| own(&format!("ssm.{key}"), Value::U32(*n)));
        }
        if lfm2 {
            own("shortconv.l_cache", Value::U32(3));
        }
        if is_space(architecture) || spaces {
            own("ssm.inner_size", Value::U32(32));
        }
        if architecture == "nemotron_h_moe" {
            own("expert_shared_feed_forward_length", Value::U32(32));
        }
        if is_mixture(architecture) {
            own("expert_count", Value::U32(4));
            own("expert_used_count", Value::U32(2));
        }
        if architecture == "llama4" {
            own("interleave_moe_layer_step", Value::U32(2));
            own("expert_feed_forward_length", Value::U32(32));
        }
        if is_deepseek(architecture) {
            own("leading_dense_block_count", Value::U32(1));
            own("expert_shared_count", Value::U32(u32::from(!lfm2)));
            own("expert_shared_feed_forward_length", Value::U32(32));
        }
        let key = format!("{architecture}.attention.head_count_kv");
        let mut widths = vec![Value::U32(0); count as usize];
        let mut heads = widths.clone();
        for (i, [layer, network]) in numbers.iter().map(|of| of.map(|n| n as usize)).enumerate() {
            heads[layer] = Value::U32(if i % 4 == 3 { 2 } else { 0 });
            if layer != network {
                widths[network] = Value::U32(64);
            }
        }
        if lfm2 || is_space(architecture) {
            d.set_array(&key, ValueType::U32, &heads);
        } else if architecture == "gemma4" {
            let each = (0..layers).map(|i| Value::U32(if i == 5 { 2 } else { 4 }));
            d.set_array(&key, ValueType::U32, &each.collect::<Vec<_>>());
        } else {
            d.set(&key, Value::U32(kv_heads));
        }
        if architecture == "apertus" {
            ["xielu.alpha_p", "xielu.alpha_n"].iter().for_each(|key| d.set(key, Value::F32(0.0)));
        }
        let feed_forward = format!("{architecture}.feed_forward_length");
        if apart {
            d.set_array(&feed_forward, ValueType::U32, &widths);
        } else {
            // Those of Qwen 1 say twice as much.
            let width = if architecture == "qwen" { 128 } else { 64 };
            d.set(&feed_forward, Value::U32(if wide { 32 } else { width }));
        }
        use GgmlType as T;
        d.tensor("token_embd.weight", &[32, 24], T::Q8_0);
        if has_positions(architecture) {
            d.tensor("position_embd.weight", &[32, 128], T::F16);
        }
        if has_residual_norms(architecture) {
            d.encoder(architecture, layers);
            return d;
        }
        if architecture == "gemma3n" {
            super::streams::add(&mut d, layers);
        }
        let modern = architecture == "modern-bert";
        if modern {
            d.tensor("token_embd_norm.weight", &[32], T::F32);
        }
        for i in 0..layers {
            let [layer, network] = numbers[i as usize];
            if layer != network {
                d.tensor(&format!("blk.{network}.attn_norm.weight"), &[32], T::F16);
            }
            let mut own = |name: &str, dims: &[u64], of| {
                let of_network = name.starts_with("ffn_") || name.starts_with("exp_probs");
                d.tensor(&format!("blk.{}.{name}", if of_network { network } else { layer }), dims, of);
            };
            let unnormed = modern && i == 0;
            if !(unnormed || is(&["exaone4", "olmo2", "olmo"])) {
                own("attn_norm.weight", &[32], T::F32);
            }
            // Of Gemma 4, layers with a window have more and smaller heads, and the others keys for values.
            let gemma4 = architecture == "gemma4";
            let (queries, dim) = if gemma4 && i != 5 { (32, 8) } else { (64, 16) };
            let [linear, convolves, space] =
                [hybrid, lfm2, is_space(architecture)].map(|kind| kind && i % 4 != 3);
            if space || spaces {
                own("ssm_in.weight", &[32, 100], T::Q8_0);
                own("ssm_conv1d.weight", &[4, 64], T::F32);
                own("ssm_conv1d.bias", &[64], T::F32);
                own("ssm_dt.bias", &[4], T::F32);
                own("ssm_a", &[1, 4], T::BF16);
                own("ssm_d", &[1, 4], T::F32);
                if architecture != "falcon-h1" {
                    own("ssm_norm.weight", &[16, 2], T::F32);
                }
                own("ssm_out.weight", &[32, 32], T::Q4_0);
            }
            if architecture == "mamba2" {
                continue;
            }
            if space {
                // Instead of attention.
            } else if convolves {
                own("shortconv.in_proj.weight", &[32, 96], T::Q4_0);
                own("shortconv.conv.weight", &[3, 32], T::F32);
                own("shortconv.out_proj.weight", &[32, 32], T::Q8_0);
            } else if linear {
                own("attn_qkv.weight", &[32, 64], T::Q4_0);
                own("attn_gate.weight", &[32, 32], T::Q8_0);
                if architecture == "qwen3next" {
                    own("ssm_ba.weight", &[32, 8], T::F32);
                } else {
                    own("ssm_beta.weight", &[32, 4], T::F16);
                    own("ssm_alpha.weight", &[32, 4], T::F32);
                }
                own("ssm_conv1d.weight", &[4, 64], T::F32);
                own("ssm_dt.bias", &[4], T::F32);
                own("ssm_a", &[4], T::BF16);
                own("ssm_norm.weight", &[8], T::F16);
                own("ssm_out.weight", &[32, 32], T::Q8_0);
            } else if is_latent(architecture) {
                own("attn_kv_a_mqa.weight", &[32, 40], T::F16);
                own("attn_kv_a_norm.weight", &[32], T::F32);
                if architecture == "minicpm3" {
                    own("attn_kv_b.weight", &[32, 64], T::Q8_0);
                } else {
                    own("attn_k_b.weight", &[8, 32, 4], T::F32);
                    own("attn_v_b.weight", &[32, 8, 4], T::Q8_0);
                }
                if architecture == "mistral4" {
                    own("attn_q.weight", &[32, 64], T::F32);
                } else {
                    own("attn_q_a.weight", &[32, 24], T::Q8_0);
                    own("attn_q_a_norm.weight", &[24], T::F32);
                    own("attn_q_b.weight", &[24, 64], T::F16);
                }
            } else if is(&[
                "phi3",
                "chatglm",
                "gptneox",
                "falcon",
                "bailingmoe2",
                "gpt2",
                "starcoder",
                "qwen",
            ]) || modern
            {
                own("attn_qkv.weight", &[32, 128], T::Q4_0);
            } else {
                own("attn_q.weight", &[32, if hybrid { 128 } else { queries }], T::F32);
                if architecture == "afmoe" {
                    own("attn_gate.weight", &[32, 64], T::Q8_0);
                }
                own("attn_k.weight", &[32, 32], T::F16);
                if !gemma4 || i != 5 {
                    own("attn_v.weight", &[32, 32], T::BF16);
                }
            }
            if !linear && !convolves && !space {
                let mixed = if is_latent(architecture) { 32 } else { queries };
                own("attn_output.weight", &[mixed, 32], T::Q4_0);
            }
            let gpt_oss = architecture == "gpt-oss";
            let by_attention = is(&["gpt-oss", "seed_oss", "glm4moe"]);
            let norm = if by_attention || hybrid { "post_attention_norm.weight" } else { "ffn_norm.weight" };
            let own_norm =
                !apart && !is(&["exaone4", "olmo2", "olmo", "cohere2", "command-r", "falcon", "phi2"]);
            if own_norm {
                let norm = if architecture == "falcon-h1" { "ffn_norm" } else { norm };
                own(norm, &[32], T::BF16);
            }
            if biases {
                own("attn_norm.bias", &[32], T::F16);
            }
            if biases && own_norm {
                own("ffn_norm.bias", &[32], T::F32);
            }
            if apart && layer == network {
                continue;
            }
            // Of Llama 4 each second layer has experts.
            let dense = is_deepseek(architecture) && i == 0 || architecture == "llama4" && i % 2 == 0;
            if is_mixture(architecture) && !dense {
                own("ffn_gate_inp.weight", &[32, 4], T::F32);
                if !apart {
                    own("ffn_gate_exps.weight", &[32, 32, 4], T::Q5_0);
                }
                own("ffn_up_exps.weight", &[32, 32, 4], T::Q4_1);
                own("ffn_down_exps.weight", &[32, 32, 4], T::Q8_0);
            } else if is(&["phi3", "chatglm", "glm4", "modern-bert"]) {
                own("ffn_up.weight", &[32, 128], T::Q4_1);
                own("ffn_down.weight", &[64, 32], T::Q8_0);
            } else {
                if !is(&[
                    "nemotron_h",
                    "starcoder2",
                    "gptneox",
                    "falcon",
                    "nemotron",
                    "arcee",
                    "phi2",
                    "jais2",
                    "apertus",
                ]) && !has_positions(architecture)
                {
                    own("ffn_gate.weight", &[32, 64], T::Q5_0);
                }
                own("ffn_up.weight", &[32, 64], T::Q4_1);
                own("ffn_down.weight", &[64, 32], T::Q8_0);
            }
            if architecture == "nemotron_h_moe"
                || architecture == "llama4" && !dense
                || is_deepseek(architecture) && i > 0 && !lfm2
            {
                if !apart {
                    own("ffn_gate_shexp.weight", &[32, 32], T::Q5_0);
                }
                own("ffn_up_shexp.weight", &[32, 32], T::Q4_1);
                own("ffn_down_shexp.weight", &[32, 32], T::Q8_0);
            }
            if is(&["minimax-m2", "nemotron_h_moe"])
                || is_deepseek(architecture)
                    && i > 0
                    && !["bailingmoe", "deepseek", "mistral4"].contains(&architecture)
            {
                own("exp_probs_b.bias", &[4], T::F32);
            }
            if is(&["qwen2moe", "qwen35moe", "qwen3next"]) {
                own("ffn_gate_inp_shexp.weight", &[32], T::F32);
                own("ffn_gate_shexp.weight", &[32, 64], T::Q5_0);
                own("ffn_up_shexp.weight", &[32, 64], T::Q4_1);
                own("ffn_down_shexp.weight", &[64, 32], T::Q8_0);
            }
            if gpt_oss {
                own("attn_output.bias", &[32], T::F32);
                own("attn_sinks.weight", &[4], T::F32);
                own("ffn_gate_inp.bias", &[4], T::F32);
                own("ffn_gate_exps.bias", &[32, 4], T::F32);
                own("ffn_up_exps.bias", &[32, 4], T::F16);
                own("ffn_down_exps.bias", &[32, 4], T::BF16);
            }
            if is(&["chatglm", "gptneox", "gpt2", "starcoder", "qwen"]) {
                own("attn_qkv.bias", &[128], T::F32);
            }
            if is(&["starcoder2", "gptneox", "phi2", "jais2", "gpt2", "starcoder"]) {
                own("attn_output.bias", &[32], T::F32);
                own("ffn_up.bias", &[64], T::BF16);
                own("ffn_down.bias", &[32], T::F32);
            }
            if architecture == "phimoe" {
                own("attn_output.bias", &[32], T::F32);
            }
            if is(&["gpt-oss", "seed_oss", "starcoder2", "phi2", "jais2", "phimoe"])
                || architecture.starts_with("qwen2")
            {
                own("attn_q.bias", &[64], T::F32);
                own("attn_k.bias", &[32], T::F32);
                own("attn_v.bias", &[32], T::F32);
            }
            if (lfm2
                || is(&[
                    "apertus",
                    "gemma3",
                    "gemma3n",
                    "gemma-embedding",
                    "gemma4",
                    "exaone4",
                    "exaone-moe",
                    "afmoe",
                    "bailingmoe2",
                    "dots1",
                    "hunyuan-dense",
                    "hunyuan-moe",
                ])
                || architecture.starts_with("qwen3"))
                && !linear
                && !convolves
            {
                own("attn_q_norm.weight", &[dim], T::F32);
                own("attn_k_norm.weight", &[dim], T::F16);
            }
            if has_whole_norms(architecture) {
                own("attn_q_norm.weight", &[64], T::F32);
                own("attn_k_norm.weight", &[32], T::F16);
            }
            if gemma4 {
                own("layer_output_scale.weight", &[1], T::F32);
            }
            if is(&["gemma2", "gemma3", "gemma3n", "gemma-embedding", "gemma4", "glm4", "exaone4"])
                || is(&["olmo2", "afmoe"])
            {
                own("post_attention_norm.weight", &[32], T::F32);
                own("post_ffw_norm.weight", &[32], T::F32);
            }
        }
        if architecture != "olmo" {
            d.tensor(if lfm2 { "token_embd_norm.weight" } else { "output_norm.weight" }, &[32], T::F32);
        }
        if biases {
            d.tensor("output_norm.bias", &[32], T::F32);
        }
        if is(&["phi2", "phimoe"]) {
            d.tensor("output.bias", &[24], T::F16);
        }
        if !architecture.starts_with("gemma") && !modern {
            d.tensor("output.weight", &[32, 24], T::Q8_0);
        }
        d
    }

    /// Tensors without metadata.
    pub fn part(tensors: Vec<Tensor>) -> Self {
        Self { keys: Vec::new(), tensors }
    }

    pub fn tensor(&mut self, name: &str, dims: &[u64], of: GgmlType) -> &mut Tensor {
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), of, fill: 1.0 });
        self.tensors.last_mut().unwrap()
    }

    pub fn set(&mut self, key: &str, value: Value<'static>) {
        self.remove(key);
        self.keys.push((key.to_owned(), Entry::One(value)));
    }

    pub fn set_array(&mut self, key: &str, of: ValueType, values: &[Value<'static>]) {
        self.remove(key);
        self.keys.push((key.to_owned(), Entry::Array(of, values.to_vec())));
    }

    pub fn remove(&mut self, key: &str) {
        self.keys.retain(|(k, _)| k != key);
    }

    /// The file.
    pub fn bytes(&self) -> AlignedVec<u8> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut writer = Writer::new();
        for (key, entry) in &self.keys {
            match entry {
                Entry::One(value) => writer.set(key, *value).unwrap(),
                Entry::Array(of, values) => writer.set_array(key, *of, values.iter().copied()).unwrap(),
            }
        }
        for t in &self.tensors {
            writer.add_tensor(&t.name, &t.dims, t.of).unwrap();
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gllm-draft-{}-{number}.gguf", std::process::id()));
        let mut file = writer.create(&path, true).unwrap();
        for t in &self.tensors {
            let elements: u64 = t.dims.iter().product();
            let bytes = match t.of {
                GgmlType::F32 => t.fill.to_le_bytes().repeat(elements as usize),
                // NaN in either format of 16 bits.
                GgmlType::F16 | GgmlType::BF16 if t.fill.is_nan() => vec![0xff; elements as usize * 2],
                of => {
                    let layout = of.layout().unwrap();
                    vec![0; (elements / u64::from(layout.block)) as usize * layout.bytes as usize]
                }
            };
            file.write(&bytes).unwrap();
        }
        // Complete, if not finished: that would wait for the disk.
        AlignedVec::from_slice(&std::fs::read(file.temporary()).unwrap())
    }

    /// Where the tensors' data begin and end in the file.
    pub fn data(&self) -> [usize; 2] {
        let bytes = self.bytes();
        let file = Gguf::from_bytes(&bytes).unwrap();
        let end = file.tensors().map(|t| t.file_offset() + t.size().unwrap()).max().unwrap();
        [file.data_offset(), end].map(|n| n as usize)
    }
}
