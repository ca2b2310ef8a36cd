// The tensors of small models.

use super::*;

impl Tiny {
    /// Names and shapes of all tensors, the contiguous dimension first.
    pub(super) fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let lfm2 = self.convolves(0);
        let mut all = vec![
            ("token_embd".to_owned(), vec![self.hidden, self.vocabulary]),
            (if lfm2 { "token_embd_norm" } else { "output_norm" }.to_owned(), vec![self.hidden]),
        ];
        // Norms without weights.
        let olmo = self.architecture == "olmo";
        all.truncate(if olmo { 1 } else { 2 });
        if self.labels > 0 {
            all.push(("cls.output".to_owned(), vec![self.hidden, self.labels]));
        } else if !self.tied {
            all.push(("output".to_owned(), vec![self.hidden, self.vocabulary]));
        }
        if self.architecture == "modern-bert" {
            all.push(("token_embd_norm".to_owned(), vec![self.hidden]));
        }
        if self.architecture == "gemma-embedding" {
            all.push(("dense_2".to_owned(), vec![self.hidden, DENSE]));
            all.push(("dense_3".to_owned(), vec![DENSE, self.hidden]));
        }
        if self.is(&GPT2) {
            all.push(("position_embd".to_owned(), vec![self.hidden, 4096]));
        }
        if self.per_layer > 0 {
            let all_layers = self.per_layer * self.layers;
            all.push(("per_layer_token_embd".to_owned(), vec![all_layers, self.per_layer_vocabulary()]));
            all.push(("per_layer_model_proj".to_owned(), vec![self.hidden, all_layers]));
            all.push(("per_layer_proj_norm".to_owned(), vec![self.per_layer]));
        }
        if self.architecture == "gemma3n" {
            for name in ["altup_proj", "altup_unembd_proj"] {
                all.push((name.to_owned(), vec![self.hidden, self.hidden, STREAMS - 1]));
            }
        }
        for l in 0..self.layers {
            let own_keys = self.per_layer == 0 || l < 2;
            let (q, kv) = self.queries_and_keys(l);
            let head_dim = q / self.heads;
            let mut add = |name: &str, dims: &[usize]| all.push((format!("blk.{l}.{name}"), dims.to_vec()));
            let unnormed = self.architecture == "modern-bert" && l == 0;
            let nothing = self.architecture == "deci" && !self.attends(l);
            if !(unnormed || nothing || self.is(&["exaone4", "olmo2", "olmo"])) {
                add("attn_norm", &[self.hidden]);
            }
            let hybrid = self.is(&["qwen35", "qwen35moe", "qwen3next"]);
            let values = VALUE_HEADS * VALUE_SIZE;
            if self.is_space(l) {
                let channels = 2 * KEY_HEADS * SIZE + values;
                add("ssm_in", &[self.hidden, channels + values + VALUE_HEADS]);
                add("ssm_conv1d", &[TAPS, channels]);
                if !self.plain {
                    add("ssm_norm", &[values / KEY_HEADS, KEY_HEADS]);
                }
                add("ssm_out", &[values, self.hidden]);
            }
            if self.convolves(l) {
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
                if self.architecture == "minicpm3" {
                    add("attn_kv_b", &[RANK, self.heads * (PLAIN + VALUES)]);
                } else {
                    add("attn_k_b", &[PLAIN, RANK, self.heads]);
                    add("attn_v_b", &[RANK, VALUES, self.heads]);
                }
                if self.architecture == "mistral4" {
                    add("attn_q", &[self.hidden, queries]);
                } else {
                    add("attn_q_a", &[self.hidden, QUERY_RANK]);
                    add("attn_q_a_norm", &[QUERY_RANK]);
                    add("attn_q_b", &[QUERY_RANK, queries]);
                }
            } else if self.is(&[
                "phi3",
                "chatglm",
                "gptneox",
                "falcon",
                "bailingmoe2",
                "gpt2",
                "starcoder",
                "modern-bert",
                "qwen",
            ]) {
                add("attn_qkv", &[self.hidden, q + 2 * kv]);
            } else if self.attends(l) {
                add("attn_q", &[self.hidden, if hybrid { 2 * q } else { q }]);
                if self.architecture == "afmoe" {
                    add("attn_gate", &[self.hidden, q]);
                }
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
            if self.has_two_norms() {
                add("attn_norm_2", &[self.hidden]);
            }
            if !self.networks_are_layers()
                && self.has_network(l)
                && !self.is(&["exaone4", "olmo2", "olmo", "cohere2", "command-r", "falcon", "phi2"])
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
            let alternates = self.architecture == "llama4" && l.is_multiple_of(2);
            match self.experts.filter(|_| !alternates && (l > 0 || !self.deepseek())) {
                _ if !self.has_network(l) => {}
                None if self.is(&["phi3", "chatglm", "glm4", "modern-bert"]) => {
                    add("ffn_up", &[hidden, 2 * between]);
                    add("ffn_down", &[between, hidden]);
                }
                None if self.is(&[
                    "nemotron_h",
                    "starcoder2",
                    "gptneox",
                    "falcon",
                    "nemotron",
                    "arcee",
                    "phi2",
                    "jais2",
                    "apertus",
                    "gpt2",
                    "starcoder",
                ]) =>
                {
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
            if self.architecture == "gemma3n" {
                add("altup_router", &[self.hidden, STREAMS]);
                add("altup_predict_coef", &[STREAMS, STREAMS * STREAMS]);
                add("altup_correct_coef", &[STREAMS, STREAMS]);
                add("laurel_l", &[self.hidden, LOW_RANK]);
                add("laurel_r", &[LOW_RANK, self.hidden]);
                for name in ["altup_router_norm", "altup_correct_scale", "laurel_post_norm"] {
                    add(name, &[self.hidden]);
                }
            }
            if self.is(&[
                "gemma2",
                "gemma3",
                "gemma3n",
                "gemma-embedding",
                "gemma4",
                "glm4",
                "exaone4",
                "olmo2",
                "afmoe",
            ]) {
                add("post_attention_norm", &[self.hidden]);
                add("post_ffw_norm", &[self.hidden]);
            }
            let normed = hybrid
                || self.is(&[
                    "apertus",
                    "qwen3",
                    "gemma3",
                    "gemma3n",
                    "gemma-embedding",
                    "gemma4",
                    "qwen3moe",
                    "qwen3vl",
                    "qwen3vlmoe",
                    "exaone4",
                    "exaone-moe",
                    "afmoe",
                    "glm4moe",
                    "bailingmoe2",
                    "dots1",
                    "hunyuan-dense",
                    "hunyuan-moe",
                    "lfm2",
                    "lfm2moe",
                ]);
            if normed && self.attends(l) && !self.plain {
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
        if self.architecture == "falcon-h1" {
            all.iter_mut().for_each(|(name, _)| *name = name.replace("ffn_norm.weight", "ffn_norm"));
        }
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
            let norms = all.iter().filter(|(name, _)| name.contains("norm"));
            let biases: Vec<_> =
                norms.map(|(name, dims)| (name.replace(".weight", ".bias"), dims.clone())).collect();
            all.extend(biases);
        }
        if self.is(&["phi2", "phimoe"]) {
            all.push(("output.bias".to_owned(), vec![self.vocabulary]));
        }
        if self.architecture == "phimoe" {
            let bias = |l| (format!("blk.{l}.attn_output.bias"), vec![self.hidden]);
            all.extend((0..self.layers).map(bias));
        }
        if self.is(&["starcoder2", "gptneox", "phi2", "jais2"]) || self.is(&GPT2) {
            for l in 0..self.layers {
                for (name, n) in
                    [("attn_output", self.hidden), ("ffn_up", self.intermediate), ("ffn_down", self.hidden)]
                {
                    all.push((format!("blk.{l}.{name}.bias"), vec![n]));
                }
            }
        }
        if self.is(&["chatglm", "gptneox", "qwen"]) || self.is(&GPT2) {
            all.extend((0..self.layers).map(|l| (format!("blk.{l}.attn_qkv.bias"), vec![q + 2 * kv])));
        }
        // Of GLM 4, some models have them.
        if self.architecture.starts_with("qwen2")
            || self.is(&["phimoe", "seed_oss", "glm4", "starcoder2", "stablelm", "phi2", "jais2"])
            || self.architecture == "glm4moe" && !self.plain
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
                "exaone-moe",
                "afmoe",
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
}
