// Small models as GGUF files: their metadata, and random numbers for their tensors.

use std::path::Path;

use gllm_kernels_std::core::{f16, Kernels};
use gllm_kernels_std::gguf::{GgmlType, Value, ValueType, Writer};

use super::*;

/// The numbers of E4M3 nearest to `numbers` divided by the factors of their blocks. Those are 256 times smaller, and as such the largest one is 1.75.
fn e4m3(numbers: &[f32]) -> Vec<u8> {
    let block = |x: &[f32]| {
        let factor = x.iter().fold(0f32, |most, x| most.max(x.abs())) / 1.75;
        let code = |x: &f32| {
            let bits = f16::from_f32(x / factor).to_bits();
            ((bits & 0x7fff).wrapping_add(0x40) >> 7) as u8 | ((bits >> 8) as u8 & 0x80)
        };
        factor.to_le_bytes().into_iter().chain(x.iter().map(code)).collect::<Vec<u8>>()
    };
    numbers.chunks(QuantFormat::E4m3.block_len()).flat_map(block).collect()
}

impl Tiny {
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
        // Keys of MiniCPM 3 are about heads of queries and of results.
        let in_one = self.architecture == "minicpm3";
        for (key, value) in [
            ("block_count", self.layers),
            ("embedding_length", self.hidden),
            ("attention.head_count", self.heads),
            ("attention.key_length", if in_one { PLAIN + ROTATED } else { head_dim }),
            (
                "attention.value_length",
                if in_one {
                    VALUES
                } else if self.is_latent() {
                    RANK
                } else {
                    head_dim
                },
            ),
            ("context_length", 4096),
            ("vocab_size", self.vocabulary),
        ] {
            set(key, Value::U32(value as u32));
        }
        // Those of Phi's mixtures have the key of the other norms.
        let layer_norms = self.layer_norms().0 && self.architecture != "phimoe";
        let epsilon = if layer_norms { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        if self.architecture == "gemma4" {
            set("attention.key_length_swa", Value::U32(self.head_dim as u32));
            let kv = (0..self.layers).map(|l| Value::U32((self.kv_heads / (1 + l % 2)) as u32));
            writer.set_array("gemma4.attention.head_count_kv", ValueType::U32, kv).unwrap();
        }
        if self.per_layer > 0 {
            let widths = self.widths().into_iter().map(|n| Value::U32(n as u32));
            let key = format!("{}.feed_forward_length", self.architecture);
            writer.set_array(&key, ValueType::U32, widths).unwrap();
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
        match self.architecture {
            "llama4" => set("interleave_moe_layer_step", Value::U32(2)),
            "olmo" => set("attention.clamp_kqv", Value::F32(1.5)),
            _ => {}
        }
        if self.is(&["mistral3", "mistral4"]) {
            set("attention.temperature_scale", Value::F32(0.7));
            set("rope.scaling.original_context_length", Value::U32(11));
        }
        if self.deepseek() {
            let dense = if self.experts.is_some() { 1 } else { self.layers };
            set("leading_dense_block_count", Value::U32(dense as u32));
            set("expert_shared_count", Value::U32(if self.shared() > 0 { 2 } else { 0 }));
            set("expert_weights_norm", Value::Bool(!self.is(&["bailingmoe", "deepseek"])));
        }
        if self.is(&["ernie4_5-moe", "exaone-moe", "granitemoe", "nemotron_h_moe"]) {
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
            set("expert_group_counted", Value::U32(self.counted as u32));
        }
        set("rope.dimension_count", Value::U32(self.rotated() as u32));
        let encoder = self.is(&["gemma-embedding", "modern-bert"]);
        if encoder {
            set("attention.causal", Value::Bool(false));
            set("pooling_type", Value::U32(1));
        }
        if self.architecture == "gemma-embedding" {
            set("dense_2_feat_out", Value::U32(DENSE as u32));
        }
        let periodic =
            encoder || self.is(&["exaone4", "exaone-moe", "afmoe", "olmo2", "cohere2", "gemma3n", "gemma4"]);
        if periodic || self.is(&["gemma2", "gemma3", "phi3", "gpt-oss"]) {
            set("attention.sliding_window", Value::U32(self.window as u32));
        }
        if !self.networks_are_layers() && self.per_layer == 0 && self.architecture != "deci" {
            // Those of Qwen 1 say twice as much.
            let times = if self.architecture == "qwen" { 2 } else { 1 };
            set("feed_forward_length", Value::U32(times * self.intermediate as u32));
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
        let some_attend = self.convolves(0) || self.is_space(0) && self.architecture != "falcon-h1";
        if self.convolves(0) {
            set("shortconv.l_cache", Value::U32(TAPS as u32));
        }
        if self.architecture == "granitehybrid" {
            set("rope.scaling.finetuned", Value::Bool(false));
        }
        if !some_attend && !self.is(&["gemma4", "deci"]) {
            set("attention.head_count_kv", Value::U32(self.kv_heads as u32));
        }
        if periodic {
            // Others have periods of four layers, of which there are not as many here.
            set("attention.sliding_window_pattern", Value::U32(2));
        }
        let numbers: &[(&str, f32)] = match self.architecture {
            // Small enough that they matter.
            "gemma2" => &[("attn_logit_softcapping", 2.0), ("final_logit_softcapping", 3.0)],
            "gemma3n" | "gemma4" => &[("final_logit_softcapping", 3.0)],
            // What follows from being trained for four times as long texts, as LongRoPE has it: sqrt(1 + ln(4) / ln(1024)).
            "phi3" => &[("rope.scaling.attn_factor", 1.095_445_1)],
            "granite" | "granitemoe" | "granitehybrid" | "minicpm" => &[
                ("embedding_scale", 6.0),
                ("residual_scale", 0.25),
                ("attention.scale", 0.3),
                ("logit_scale", 4.0),
            ],
            "minicpm3" => &[("embedding_scale", 6.0), ("residual_scale", 0.25), ("logit_scale", 4.0)],
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
        if self.architecture == "gemma3n" {
            let own = self.per_layer_vocabulary() as u32;
            writer.set("gemma3n.vocab_size_per_layer_input", Value::U32(own)).unwrap();
            writer.set("gemma3n.altup.num_inputs", Value::U32(STREAMS as u32)).unwrap();
            // Half of the gates of the first layer count, all of the second, and a sixth of the third.
            let each = [0.0, f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY].map(Value::F32);
            let each = each.into_iter().take(self.layers);
            writer.set_array("gemma3n.activation_sparsity_scale", ValueType::F32, each).unwrap();
        }
        if self.architecture == "apertus" {
            for (key, from) in [("alpha_p", 0.4), ("alpha_n", -0.3)] {
                let each = (0..self.layers).map(|l| Value::F32(from + 0.5 * l as f32));
                writer.set_array(&format!("xielu.{key}"), ValueType::F32, each).unwrap();
            }
        }
        if self.architecture == "deci" {
            let of = |has: bool, n: usize| Value::U32(if has { n as u32 } else { 0 });
            let keys = |l| self.queries_and_keys(l).1 / self.head_dim;
            let all: [(&str, Vec<Value<'_>>); 3] = [
                ("attention.head_count", (0..self.layers).map(|l| of(self.attends(l), self.heads)).collect()),
                ("attention.head_count_kv", (0..self.layers).map(|l| of(self.attends(l), keys(l))).collect()),
                (
                    "feed_forward_length",
                    (0..self.layers).map(|l| of(self.has_network(l), self.widths()[l])).collect(),
                ),
            ];
            for (key, values) in all {
                writer.set_array(&format!("deci.{key}"), ValueType::U32, values).unwrap();
            }
        }
        if self.networks_are_layers() {
            let of_layer = |l| Value::I32(if self.has_network(l) { self.intermediate as i32 } else { 0 });
            let key = format!("{}.feed_forward_length", self.architecture);
            writer.set_array(&key, ValueType::I32, (0..self.layers).map(of_layer)).unwrap();
        }
        if some_attend && self.architecture != "mamba2" {
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
            let of_streams = name.contains("altup_router.") || name.contains("_coef");
            let matrix = dims.len() >= 2
                && !(bias || convolution || of_streams || name.contains("norm"))
                && dims[0] > 1;
            // Small enough that nothing explodes, large enough that attention is not flat.
            let (scale, base) = if matrix {
                let large = if name.contains("ffn_gate_inp") { self.router_scale } else { 2.0 };
                (large / (dims[0] as f32).sqrt(), 0.0)
            } else if name.contains("sinks") {
                // Above and below scores.
                (3.0, 2.0)
            } else if name.contains("_coef") {
                (0.4, 0.0)
            } else if of_streams {
                // Behind a norm, and divided by the width: about as large as 1.
                (1.5 * (self.hidden as f32).sqrt(), 0.0)
            } else if name.contains("attn_q_norm") && self.is(&["gemma3n", "gemma4"]) {
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
                    if name.contains("rope_freqs") {
                        // A quarter of a head turns.
                        return if 4 * i < n { 1.0 } else { 1e30 };
                    }
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
                Some(QuantFormat::E4m3) => (GgmlType(QuantFormat::E4m3.gguf_type()), e4m3(&numbers)),
                Some(format) => {
                    let mut bytes = vec![0; format.row_bytes(dims[0]).unwrap() * (n / dims[0])];
                    scalar.quantize(format, &numbers, None, &mut bytes).unwrap();
                    (GgmlType(format.gguf_type()), bytes)
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
