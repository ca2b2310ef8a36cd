// What checkpoints of some architectures call otherwise than most.

use gllm_kernels_std::model::{Gate, Model};

use super::folder::{config, Dense, Folder};
use super::refused::changed_configurations;
use super::tiny::Tiny;
use super::{assert_alike, logits, numbers};

/// The usual parts of names, and those of an architecture.
fn names(architecture: &str) -> &'static [(&'static str, &'static str)] {
    match architecture {
        "lfm2" | "lfm2moe" => &[
            (".mlp.gate.e_score_correction_bias", ".mlp.expert_bias"),
            (".gate_proj.", ".w1."),
            (".up_proj.", ".w3."),
            (".down_proj.", ".w2."),
            (".mlp.", ".feed_forward."),
            (".input_layernorm.", ".operator_norm."),
            (".post_attention_layernorm.", ".ffn_norm."),
            (".self_attn.o_proj.", ".self_attn.out_proj."),
            (".q_norm.", ".q_layernorm."),
            (".k_norm.", ".k_layernorm."),
            ("model.norm.", "model.embedding_norm."),
        ],
        "afmoe" => {
            &[(".mlp.gate.e_score_correction_bias", ".mlp.expert_bias"), (".mlp.gate.", ".mlp.router.gate.")]
        }
        "apertus" => &[
            (".input_layernorm.", ".attention_layernorm."),
            (".post_attention_layernorm.", ".feedforward_layernorm."),
        ],
        "exaone-moe" => &[(".mlp.gate.e_score_correction_bias", ".mlp.e_score_correction_bias")],
        "minimax-m2" => &[
            (".mlp.gate.e_score_correction_bias", ".mlp.e_score_correction_bias"),
            (".gate_proj.", ".w1."),
            (".up_proj.", ".w3."),
            (".down_proj.", ".w2."),
            (".mlp.", ".block_sparse_moe."),
        ],
        "hunyuan-moe" => &[
            (".mlp.gate.", ".mlp.gate.wg."),
            (".shared_experts.", ".shared_mlp."),
            (".q_norm.", ".query_layernorm."),
            (".k_norm.", ".key_layernorm."),
        ],
        "granitemoe" => &[
            (".mlp.experts.gate_up_proj", ".block_sparse_moe.input_linear.weight"),
            (".mlp.experts.down_proj", ".block_sparse_moe.output_linear.weight"),
            (".mlp.gate.", ".block_sparse_moe.router.layer."),
            (".mlp.shared_experts.gate_up_proj.", ".shared_mlp.input_linear."),
            (".mlp.shared_experts.down_proj.", ".shared_mlp.output_linear."),
        ],
        "internlm2" => &[
            ("model.embed_tokens.", "model.tok_embeddings."),
            ("lm_head.", "output."),
            (".self_attn.qkv_proj.", ".attention.wqkv."),
            (".self_attn.o_proj.", ".attention.wo."),
            (".gate_proj.", ".w1."),
            (".up_proj.", ".w3."),
            (".down_proj.", ".w2."),
            (".mlp.", ".feed_forward."),
            (".input_layernorm.", ".attention_norm."),
            (".post_attention_layernorm.", ".ffn_norm."),
        ],
        "bailingmoe" | "bailingmoe2" => &[
            ("model.embed_tokens.", "model.word_embeddings."),
            (".self_attn.qkv_proj.", ".attention.query_key_value."),
            (".self_attn.o_proj.", ".attention.dense."),
            (".self_attn.q_norm.", ".attention.query_layernorm."),
            (".self_attn.k_norm.", ".attention.key_layernorm."),
            (".e_score_correction_bias", ".expert_bias"),
        ],
        "exaone" => &[
            ("model.embed_tokens.", "transformer.wte."),
            ("model.layers.", "transformer.h."),
            ("model.norm.", "transformer.ln_f."),
            (".self_attn.o_proj.", ".attn.attention.out_proj."),
            (".self_attn.", ".attn.attention."),
            (".input_layernorm.", ".ln_1."),
            (".post_attention_layernorm.", ".ln_2."),
            (".gate_proj.", ".c_fc_0."),
            (".up_proj.", ".c_fc_1."),
            (".down_proj.", ".c_proj."),
        ],
        "gptneox" => &[
            ("model.embed_tokens.", "gpt_neox.embed_in."),
            ("model.layers.", "gpt_neox.layers."),
            ("model.norm.", "gpt_neox.final_layer_norm."),
            ("lm_head.", "embed_out."),
            (".self_attn.qkv_proj.", ".attention.query_key_value."),
            (".self_attn.o_proj.", ".attention.dense."),
            (".up_proj.", ".dense_h_to_4h."),
            (".down_proj.", ".dense_4h_to_h."),
        ],
        "falcon" => &[
            ("model.embed_tokens.", "transformer.word_embeddings."),
            ("model.layers.", "transformer.h."),
            ("model.norm.", "transformer.ln_f."),
            (".self_attn.qkv_proj.", ".self_attention.query_key_value."),
            (".self_attn.o_proj.", ".self_attention.dense."),
            (".up_proj.", ".dense_h_to_4h."),
            (".down_proj.", ".dense_4h_to_h."),
            // Of models with one norm a layer it keeps its name.
            (".post_attention_layernorm.", ".ln_mlp."),
        ],
        "gpt2" | "starcoder" => &[
            ("model.embed_tokens.", "transformer.wte."),
            ("embeddings.position_embeddings.", "transformer.wpe."),
            ("model.layers.", "transformer.h."),
            ("model.norm.", "transformer.ln_f."),
            (".self_attn.qkv_proj.", ".attn.c_attn."),
            (".self_attn.o_proj.", ".attn.c_proj."),
            (".input_layernorm.", ".ln_1."),
            (".post_attention_layernorm.", ".ln_2."),
            (".up_proj.", ".c_fc."),
            (".down_proj.", ".c_proj."),
        ],
        "phi2" => &[
            ("model.norm.", "model.final_layernorm."),
            (".self_attn.o_proj.", ".self_attn.dense."),
            (".up_proj.", ".fc1."),
            (".down_proj.", ".fc2."),
        ],
        "granitehybrid" => &[
            (".mlp.gate_up_proj.", ".shared_mlp.input_linear."),
            (".mlp.down_proj.", ".shared_mlp.output_linear."),
            (".linear_attn.", ".mamba."),
        ],
        "falcon-h1" => &[
            ("model.norm.", "model.final_layernorm."),
            (".post_attention_layernorm.", ".pre_ff_layernorm."),
            (".mlp.", ".feed_forward."),
            (".linear_attn.", ".mamba."),
        ],
        "nemotron_h" | "nemotron_h_moe" | "mamba2" => &[
            ("model.", "backbone."),
            (".embed_tokens.", ".embeddings."),
            ("backbone.norm.", "backbone.norm_f."),
            (".input_layernorm.", ".norm."),
            (".post_attention_layernorm.", ".norm."),
            (".self_attn.", ".mixer."),
            (".linear_attn.", ".mixer."),
            (".mlp.", ".mixer."),
        ],
        "qwen" => &[
            ("model.embed_tokens.", "transformer.wte."),
            ("model.layers.", "transformer.h."),
            ("model.norm.", "transformer.ln_f."),
            (".self_attn.qkv_proj.", ".attn.c_attn."),
            (".self_attn.o_proj.", ".attn.c_proj."),
            (".input_layernorm.", ".ln_1."),
            (".post_attention_layernorm.", ".ln_2."),
            (".up_proj.", ".w1."),
            (".gate_proj.", ".w2."),
            (".down_proj.", ".c_proj."),
        ],
        "llama4" => &[
            (".mlp.gate.", ".mlp.router."),
            (".mlp.shared_experts.", ".mlp.shared_expert."),
            (".mlp.", ".feed_forward."),
        ],
        "modern-bert" => &[
            ("embeddings.LayerNorm.", "model.embeddings.norm."),
            ("model.embed_tokens.", "model.embeddings.tok_embeddings."),
            ("model.norm.", "model.final_norm."),
            (".self_attn.qkv_proj.", ".attn.Wqkv."),
            (".self_attn.o_proj.", ".attn.Wo."),
            (".mlp.gate_up_proj.", ".mlp.Wi."),
            (".mlp.down_proj.", ".mlp.Wo."),
            (".input_layernorm.", ".attn_norm."),
            (".post_attention_layernorm.", ".mlp_norm."),
        ],
        // As it is stored without an output matrix.
        "gemma-embedding" => &[("model.", "")],
        "gemma4" => &[(".mlp.experts.", ".experts."), (".mlp.gate.", ".router.proj.")],
        _ => &[],
    }
}

/// Where networks count as layers: here each other one.
fn counted(name: &mut String) {
    let Some((number, rest)) = name.strip_prefix("model.layers.").and_then(|own| own.split_once('.')) else {
        return;
    };
    let of_network = rest.starts_with("mlp.") || rest.starts_with("post_attention_layernorm.");
    *name = format!("model.layers.{}.{rest}", 2 * number.parse::<usize>().unwrap() + usize::from(of_network));
}

/// Gives tensors the names of their architecture.
pub fn renamed(tiny: &Tiny, tensors: &mut [Dense]) {
    for tensor in tensors {
        if tiny.architecture.starts_with("nemotron_h") {
            counted(&mut tensor.name);
        }
        for (from, to) in names(tiny.architecture) {
            tensor.name = tensor.name.replacen(from, to, 1);
        }
    }
}

/// Rows of queries, keys and values as checkpoints have them: of NeoX those of a head, and of InternLM 2 those of a head of keys stand together.
pub fn woven(tiny: &Tiny, x: &[f32], cols: usize) -> Vec<f32> {
    let groups = match tiny.architecture {
        "gptneox" => tiny.heads,
        "internlm2" | "falcon" => tiny.kv_heads,
        _ => return x.to_vec(),
    };
    let size = tiny.head_dim * cols;
    let (queries, keys) = (tiny.heads / groups * size, tiny.kv_heads / groups * size);
    let (q, rest) = x.split_at(groups * queries);
    let (k, v) = rest.split_at(groups * keys);
    let of =
        |g: usize| [&q[g * queries..][..queries], &k[g * keys..][..keys], &v[g * keys..][..keys]].concat();
    (0..groups).flat_map(of).collect()
}

/// The configuration with the keys of its architecture.
pub fn with_own_keys(tiny: &Tiny, json: String) -> String {
    match tiny.architecture {
        "exaone" => json
            .replace("num_hidden_layers", "num_layers")
            .replace("hidden_act", "activation_function")
            .replace("rms_norm_eps", "layer_norm_epsilon"),
        "falcon" => json
            .replace("intermediate_size", "ffn_hidden_size")
            .replace("hidden_act", "activation")
            .replace("num_hidden_layers", "n_layer")
            .replace("num_attention_heads", "n_head")
            .replace("num_key_value_heads", "n_head_kv")
            .replace(r#""max_position_embeddings":4096,"#, ""),
        // Here two layers have networks that are twice as wide.
        "gemma3n" => json.replace(r#""intermediate_size":96"#, r#""intermediate_size":[96,96,192,192]"#),
        "gptneox" => json.replace("rope_theta", "rotary_emb_base"),
        "apertus" => json.replace(r#""rope_scaling":null"#, r#""rope_scaling":{"rope_type":"default"}"#),
        "mistral3" | "mistral4" => json.replace(
            r#""rope_scaling":null"#,
            r#""rope_parameters":{"rope_type":"default","original_max_position_embeddings":11,"llama_4_scaling_beta":0.7}"#,
        ),
        "qwen" => json
            .replace(r#""intermediate_size":96"#, r#""intermediate_size":192"#)
            .replace("rope_theta", "rotary_emb_base")
            .replace("max_position_embeddings", "seq_length")
            .replace("head_dim", "kv_channels")
            .replace("rms_norm_eps", "layer_norm_epsilon"),
        "modern-bert" => {
            json.replace(r#""rope_theta""#, r#""global_rope_theta""#).replace("rms_norm_eps", "norm_eps")
        }
        "gpt2" | "starcoder" => json
            .replace("intermediate_size", "n_inner")
            .replace("hidden_act", "activation_function")
            .replace("num_hidden_layers", "n_layer")
            .replace("num_attention_heads", "n_head")
            .replace("hidden_size", "n_embd")
            .replace("max_position_embeddings", "n_positions"),
        _ => json,
    }
}

/// What the configuration of such a model has beside what others have.
pub fn keys(tiny: &Tiny) -> Option<String> {
    let (width, kinds) = (tiny.intermediate, r#""layer_types":["conv","full_attention","conv"]"#);
    let (count, used) = tiny.experts.unwrap_or_default();
    Some(match tiny.architecture {
        // Networks are as wide as the next multiple of 32 above two thirds.
        "lfm2" => {
            format!(r#","norm_eps":1e-5,"conv_L_cache":4,{kinds},"block_ff_dim":130,"block_multiple_of":32"#)
        }
        "lfm2moe" => format!(
            r#","norm_eps":1e-5,"conv_L_cache":4,{kinds},"num_experts":{count},"num_experts_per_tok":{used},"moe_intermediate_size":{},"num_dense_layers":1,"norm_topk_prob":true,"use_expert_bias":true,"routed_scaling_factor":1.0"#,
            tiny.between()
        ),
        "minimax-m2" => format!(
            r#","rotary_dim":16,"num_local_experts":{count},"num_experts_per_tok":{used},"scoring_func":"sigmoid","shared_intermediate_size":0,"qk_norm_type":"per_layer","layernorm_mlp_beta":1.0"#
        ),
        "hunyuan-moe" => format!(
            r#","num_experts":{count},"moe_topk":[{used},{used},{used}],"num_shared_expert":[0,0,0],"moe_intermediate_size":[{width},{width},{width}],"use_cla":false,"n_group":false,"moe_layer_num_skipped":0,"norm_topk_prob":true"#
        ),
        "granitemoe" => format!(
            r#","num_local_experts":{count},"num_experts_per_tok":{used},"shared_intermediate_size":40,"embedding_multiplier":6,"residual_multiplier":0.25,"attention_multiplier":0.3,"logits_scaling":4"#
        ),
        "afmoe" => format!(
            r#","num_experts":{count},"num_experts_per_tok":{used},"num_shared_experts":2,"moe_intermediate_size":{},"num_dense_layers":1,"route_norm":true,"score_func":"sigmoid","route_scale":1.0,"sliding_window":{},"global_attn_every_n_layers":2,"mup_enabled":true"#,
            tiny.between(),
            tiny.window
        ),
        "exaone-moe" => format!(
            r#","num_experts":{count},"num_experts_per_tok":{used},"num_shared_experts":2,"moe_intermediate_size":{},"mlp_layer_types":["dense","sparse","sparse"],"norm_topk_prob":true,"n_group":1,"topk_group":1,"routed_scaling_factor":1.0,"sliding_window":{},"sliding_window_pattern":"LG","layer_types":["sliding_attention","full_attention","sliding_attention"]"#,
            tiny.between(),
            tiny.window
        ),
        "qwen" => r#","no_bias":true,"use_logn_attn":true,"rotary_pct":1.0"#.to_owned(),
        "olmo" => r#","clip_qkv":1.5"#.to_owned(),
        "llama4" => format!(
            r#","num_local_experts":{count},"num_experts_per_tok":{used},"intermediate_size_mlp":{width},"interleave_moe_layer_step":2,"moe_layers":[1,3],"no_rope_layers":[1,1,1,0],"use_qk_norm":true,"attention_chunk_size":8192,"floor_scale":8192,"attn_temperature_tuning":true,"attn_scale":0.1"#
        ),
        "gemma-embedding" => format!(
            r#","use_bidirectional_attention":true,"sliding_window":{},"sliding_window_pattern":2,"rope_local_base_freq":10000,"query_pre_attn_scalar":{}"#,
            tiny.window, tiny.head_dim
        ),
        "modern-bert" => format!(
            r#","local_attention":{},"layer_types":["full_attention","sliding_attention","full_attention","sliding_attention"],"local_rope_theta":10000"#,
            tiny.window
        ),
        "gemma3n" => super::gemma3n::keys(tiny),
        "gemma4" => super::gemma4::keys(tiny),
        "internlm2" => r#","bias":false,"rope_scaling":{"type":"dynamic","factor":2.0}"#.to_owned(),
        "gptneox" => r#","layer_norm_eps":1e-5,"use_parallel_residual":true,"rotary_pct":0.25"#.to_owned(),
        "falcon" => format!(
            r#","layer_norm_epsilon":1e-5,"multi_query":true,"parallel_attn":true,"new_decoder_architecture":{},"alibi":false,"bias":false"#,
            tiny.kv_heads > 1
        ),
        "gpt2" => {
            r#","layer_norm_epsilon":1e-5,"scale_attn_weights":true,"add_cross_attention":false"#.to_owned()
        }
        "starcoder" => r#","layer_norm_epsilon":1e-5,"multi_query":true"#.to_owned(),
        "deepseek" => format!(
            r#","n_routed_experts":{count},"num_experts_per_tok":{used},"n_shared_experts":2,"moe_intermediate_size":{},"first_k_dense_replace":1,"norm_topk_prob":false,"scoring_func":"softmax","moe_layer_freq":1"#,
            tiny.between()
        ),
        "bailingmoe" => format!(
            r#","num_experts":{count},"num_experts_per_tok":{used},"num_shared_experts":2,"moe_intermediate_size":{},"first_k_dense_replace":1,"norm_topk_prob":false,"norm_head":false,"multi_gate":false"#,
            tiny.between()
        ),
        "bailingmoe2" => format!(
            r#","architectures":["BailingMoeV2ForCausalLM"],"num_experts":{count},"num_experts_per_tok":{used},"num_shared_experts":2,"moe_intermediate_size":{},"first_k_dense_replace":1,"norm_topk_prob":true,"score_function":"sigmoid","n_group":4,"topk_group":2,"partial_rotary_factor":0.5,"routed_scaling_factor":1.0"#,
            tiny.between()
        ),
        "granitehybrid" => format!(
            r#","layer_types":["mamba","attention","mamba"],"mamba_n_heads":6,"mamba_d_head":16,"mamba_n_groups":2,"mamba_d_state":32,"mamba_d_conv":4,"time_step_limit":[0.0,Infinity],"position_embedding_type":"nope","num_local_experts":0,"shared_intermediate_size":{width},"embedding_multiplier":6,"residual_multiplier":0.25,"attention_multiplier":0.3,"logits_scaling":4"#
        ),
        "falcon-h1" => format!(
            r#","mamba_n_heads":6,"mamba_d_head":16,"mamba_n_groups":2,"mamba_d_state":32,"mamba_d_conv":4,"mamba_d_ssm":96,"mamba_rms_norm":{},"mamba_norm_before_gate":false,"mamba_proj_bias":false,"projectors_bias":false,"ssm_out_multiplier":1.0,"mlp_multipliers":[1,1]"#,
            !tiny.plain
        ),
        "deci" => {
            let block = |attention: &str, network: &str| {
                format!(
                    r#"{{"attention":{{{attention},"replace_with_linear":false,"sparsify":null,"window_length":null}},"ffn":{{{network},"replace_with_linear":false,"sparsify":null}}}}"#
                )
            };
            let attention = |group: usize| format!(r#""n_heads_in_group":{group},"no_op":false"#);
            let none = r#""n_heads_in_group":null,"ffn_mult":null,"no_op":true"#;
            let network = |factor: f64| format!(r#""ffn_mult":{factor:?},"no_op":false"#);
            let blocks = [
                block(&attention(2), &network(6.0)),
                block(&attention(1), &network(11.9)),
                block(none, r#""intermediate_size":256,"no_op":false"#),
                block(&attention(4), none),
                block(none, none),
                block(&attention(2), &network(5.0)),
            ];
            format!(r#","block_configs":[{}]"#, blocks.join(","))
        }
        "mamba2" => {
            r#","num_heads":6,"head_dim":16,"n_groups":2,"state_size":32,"conv_kernel":4,"use_conv_bias":true,"time_step_limit":[0.0,Infinity]"#.to_owned()
        }
        "nemotron_h" | "nemotron_h_moe" => {
            let experts = match tiny.experts {
                None => r#""hybrid_override_pattern":"M-*-M""#.to_owned(),
                Some(_) => format!(
                    r#""layers_block_type":["mamba","moe","attention","moe","mamba"],"n_routed_experts":{count},"num_experts_per_tok":{used},"moe_intermediate_size":{width},"moe_shared_expert_intermediate_size":40,"n_shared_experts":1,"n_group":1,"topk_group":1,"norm_topk_prob":true,"routed_scaling_factor":1.0"#
                ),
            };
            format!(
                r#","mlp_hidden_act":"relu2","layer_norm_epsilon":1e-5,"mamba_num_heads":6,"mamba_head_dim":16,"n_groups":2,"ssm_state_size":32,"conv_kernel":4,"mamba_hidden_act":"silu","time_step_limit":[0.0,{{"__float__":"Infinity"}}],{experts}"#
            )
        }
        _ => return None,
    })
}

/// Some models of Ling divide what an input has in the output matrix by its length.
#[test]
fn normed_outputs() {
    let tiny = Tiny { experts_scale: 1.0, ..Tiny::new("bailingmoe", None) };
    let gguf = tiny.open();
    let folder = Folder::new("normed outputs");
    folder.config(&config(&tiny).replace(r#""norm_head":false"#, r#""norm_head":true"#));
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    let model = Model::open(folder.path()).unwrap();
    let output = |model: &Model<'_>| numbers(model.weights().unwrap().output);
    let (got, from) = (output(&model), output(&gguf));
    for (i, x) in got.iter().enumerate() {
        let column = from.iter().skip(i % tiny.hidden).step_by(tiny.hidden);
        let length = column.map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        assert!((f64::from(*x) * length - f64::from(from[i])).abs() < 1e-5, "{i}: {x} of {}", from[i]);
    }
}

/// An output matrix that is quantised cannot be divided like that.
#[test]
fn quantised_outputs() {
    let tiny = Tiny { experts_scale: 1.0, ..Tiny::new("bailingmoe", None) };
    let folder = Folder::new("quantised outputs");
    folder.config(&config(&tiny).replace(r#""norm_head":false"#, r#""norm_head":true"#));
    let mut tensors = Dense::of(&tiny, &tiny.open());
    let at = tensors.iter().position(|tensor| tensor.name == "lm_head.weight").unwrap();
    let output = tensors.swap_remove(at);
    tensors.extend(super::quantised::fp8(&output, [128, 128]).0);
    folder.tensors(&tensors, 1);
    let said = Model::open(folder.path()).map(|_| ()).expect_err("quantised").to_string();
    assert!(said.contains("lm_head.weight") && said.contains("norm_head"), "{said}");
}

/// Networks without a gate have the one or the other form of an activation, each of which has several names.
#[test]
fn activations() {
    let tiny = Tiny { kv_heads: 4, ..Tiny::new("gptneox", None) };
    let folder = Folder::new("activations");
    folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
    for (name, gate) in [
        ("gelu_python", Gate::Gelu),
        ("gelu_fast", Gate::GeluTanh),
        ("gelu_new", Gate::GeluTanh),
        ("gelu_pytorch_tanh", Gate::GeluTanh),
    ] {
        folder.config(&config(&tiny).replace(r#""gelu""#, &format!("{name:?}")));
        assert_eq!(Model::open(folder.path()).unwrap().config().gate, gate, "{name}");
    }
    // The first configurations of Gemma mean the approximation.
    let tiny = Tiny::new("gemma", None);
    let folder = Folder::new("activation of gemma");
    folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
    folder.config(&config(&tiny).replace(
        r#""hidden_activation":"gelu_pytorch_tanh""#,
        r#""hidden_act":"gelu","hidden_activation":null"#,
    ));
    assert_eq!(Model::open(folder.path()).unwrap().config().gate, Gate::GeluTanh);
}

/// The first checkpoints of Falcon 40B do not say that heads of keys stand with those of queries.
#[test]
fn first_falcon() {
    let tiny = Tiny::new("falcon", None);
    let gguf = tiny.open();
    let folder = Folder::new("first falcon");
    let said = r#""new_decoder_architecture":true"#;
    let json = config(&tiny).replace(said, r#""n_any":1"#);
    folder.config(&json.replace(r#""model_type":"falcon""#, r#""model_type":"RefinedWeb""#));
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    assert_alike(&logits(&Model::open(folder.path()).unwrap()), &logits(&gguf), "first falcon");
}

/// Older checkpoints of NeoX have masks in each layer.
#[test]
fn masks() {
    let tiny = Tiny { kv_heads: 4, ..Tiny::new("gptneox", None) };
    let gguf = tiny.open();
    let folder = Folder::new("masks");
    folder.config(&config(&tiny));
    let mut tensors = Dense::of(&tiny, &gguf);
    let mask = Dense { name: String::new(), dtype: "BOOL", shape: vec![1, 1, 2, 2], bytes: vec![1; 4] };
    for l in 0..tiny.layers {
        let at = |name: &str| format!("gpt_neox.layers.{l}.attention.{name}");
        tensors.push(Dense { name: at("bias"), ..mask.clone() });
        tensors.push(Dense::floats(&at("masked_bias"), &[1], &[-1e9]));
        tensors.push(Dense::floats(&at("rotary_emb.inv_freq"), &[4], &[1.0; 4]));
    }
    folder.tensors(&tensors, 1);
    let model = Model::open(folder.path()).unwrap();
    assert_alike(&logits(&model), &logits(&gguf), "masks");
}

#[test]
fn refused() {
    changed_configurations(
        &Tiny::new("internlm2", None),
        &[
            (r#""num_key_value_heads":2"#, r#""num_key_value_heads":4"#, &["qkv_proj", "[64, 256]", "384"]),
            (r#""num_key_value_heads":2"#, r#""num_key_value_heads":0"#, &["qkv_proj", "[64, 256]", "0"]),
            (r#""num_attention_heads":4"#, r#""num_attention_heads":4294967295"#, &["qkv_proj"]),
            (r#""type":"dynamic""#, r#""type":"ntk""#, &["rope_type", "ntk"]),
        ],
    );
    changed_configurations(
        &Tiny { kv_heads: 4, ..Tiny::new("gptneox", None) },
        &[
            (
                r#""hidden_act":"gelu""#,
                r#""hidden_act":"quick_gelu""#,
                &["hidden_act", "quick_gelu", "gelu, gelu_python, gelu_pytorch_tanh"],
            ),
            (
                r#""use_parallel_residual":true"#,
                r#""use_parallel_residual":1"#,
                &["use_parallel_residual", "1"],
            ),
            (r#""rotary_pct":0.25"#, r#""rotary_pct":2"#, &["partial_rotary_factor", "2"]),
            (r#""num_attention_heads":4"#, r#""num_attention_heads":5"#, &["qkv_proj", "[64, 384]", "480"]),
        ],
    );
    changed_configurations(
        &Tiny { kv_heads: 1, ..Tiny::new("falcon", None) },
        &[
            (r#""multi_query":true"#, r#""multi_query":false"#, &["multi_query", "false"]),
            (r#""alibi":false"#, r#""alibi":true"#, &["alibi", "true"]),
            (r#""parallel_attn":true"#, r#""parallel_attn":false"#, &["parallel_attn"]),
            (
                r#""new_decoder_architecture":false"#,
                r#""new_decoder_architecture":"any""#,
                &["new_decoder_architecture", "any"],
            ),
            (r#""ffn_hidden_size":96,"#, "", &["mlp.up_proj", "[64, 96]", "[64, 256]"]),
        ],
    );
    changed_configurations(
        &Tiny { kv_heads: 4, ..Tiny::new("gpt2", None) },
        &[
            (
                r#""scale_attn_weights":true"#,
                r#""scale_attn_weights":false"#,
                &["scale_attn_weights", "false"],
            ),
            (r#""n_inner":96"#, r#""n_inner":null"#, &["mlp.up_proj", "[64, 96]", "[64, 256]"]),
            (
                r#""n_positions":4096"#,
                r#""n_positions":4097"#,
                &["position_embeddings", "[64, 4096]", "[64, 4097]"],
            ),
        ],
    );
    changed_configurations(
        &Tiny::new("llama4", None),
        &[
            (r#""moe_layers":[1,3]"#, r#""moe_layers":[1,2]"#, &["moe_layers", "each 2 layers"]),
            (r#""floor_scale":8192"#, r#""floor_scale":1"#, &["floor_scale"]),
            (r#""no_rope_layers":[1,1,1,0]"#, r#""no_rope_layers":[1,1,0,1]"#, &["no_rope_layers", "4"]),
            (r#""num_local_experts":6"#, r#""num_local_experts":7"#, &["mlp.gate", "[64, 6]", "[64, 7]"]),
            (r#""intermediate_size_mlp":96"#, r#""intermediate_size_mlp":95"#, &["mlp.gate_proj", "95"]),
        ],
    );
    changed_configurations(
        &Tiny::new("olmo", None),
        &[(r#""clip_qkv":1.5"#, r#""clip_qkv":-1.5"#, &["clamp_kqv", "-1.5"])],
    );
    changed_configurations(
        &Tiny::new("qwen", None),
        &[(r#""intermediate_size":192"#, r#""intermediate_size":1"#, &["feed_forward_length", "1"])],
    );
    changed_configurations(
        &Tiny::new("bailingmoe2", None),
        &[
            (r#""score_function":"sigmoid""#, r#""score_function":"tanh""#, &["scoring_func", "tanh"]),
            (r#""BailingMoeV2ForCausalLM""#, r#""BailingMoeForCausalLM""#, &["partial_rotary_factor", "0.5"]),
            (
                r#""num_shared_experts":2"#,
                r#""num_shared_experts":1"#,
                &["shared_experts", "[64, 64]", "[64, 32]"],
            ),
        ],
    );
}
