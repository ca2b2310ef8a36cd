//! Checkpoints that cannot be opened, and what is said of them.

use gllm_kernels_std::model::Model;

use super::folder::{config, Dense, Folder};
use super::tiny::Tiny;

/// The error of a folder that something was done to.
fn error(what: &str, change: impl FnOnce(&Folder, String, Vec<Dense>)) -> String {
    error_of(&Tiny::new("llama", None), what, change)
}

fn error_of(tiny: &Tiny, what: &str, change: impl FnOnce(&Folder, String, Vec<Dense>)) -> String {
    let gguf = tiny.open();
    let folder = Folder::new(&format!("{} {what}", tiny.architecture));
    change(&folder, config(tiny), Dense::of(tiny, &gguf));
    let opened = Model::open(folder.path());
    opened.map(|_| ()).expect_err(what).to_string()
}

/// A change of a text, and words of the error.
pub type Change = (&'static str, &'static str, &'static [&'static str]);

/// Each change in the configuration is an error that says so.
pub fn changed_configurations(tiny: &Tiny, cases: &[Change]) {
    for (from, to, says) in cases {
        let said = error_of(tiny, to, |folder, json, tensors| {
            assert!(json.contains(from), "{from}");
            folder.config(&json.replacen(from, to, 1));
            folder.tensors(&tensors, 1);
        });
        assert!(says.iter().all(|word| said.contains(word)), "{to}: {said}");
    }
}

#[test]
fn configurations() {
    let cases: &[Change] = &[
        (r#""model_type":"llama""#, r#""model_type":"mamba""#, &["mamba", "qwen3"]),
        (r#""model_type":"llama","#, "", &["model_type"]),
        (r#""hidden_act":"silu""#, r#""hidden_act":"relu""#, &["hidden_act", "relu", "silu"]),
        (r#""hidden_size":64"#, r#""hidden_size":-1"#, &["hidden_size", "-1"]),
        (r#""hidden_size":64"#, r#""hidden_size":1e30"#, &["hidden_size"]),
        (r#""num_hidden_layers":3"#, r#""num_hidden_layers":4000000000"#, &["block_count"]),
        (r#""num_hidden_layers":3"#, r#""num_hidden_layers":2"#, &["model.layers.2", "2 layers"]),
        (r#""rms_norm_eps":1e-5"#, r#""rms_norm_eps":"small""#, &["rms_norm_eps", "small"]),
        (r#""rope_scaling":null"#, r#""rope_scaling":{"rope_type":"dynamic"}"#, &["dynamic", "llama3"]),
        (r#""rope_scaling":null"#, r#""rope_scaling":{"rope_type":"longrope"}"#, &["short_factor"]),
        (r#""rope_scaling":null"#, r#""rope_scaling":{"rope_type":"yarn"}"#, &["factor"]),
        (r#""rope_scaling":null"#, r#""rope_parameters":{"full_attention":{}}"#, &["layer to layer"]),
        (r#""rope_scaling":null"#, r#""use_sliding_window":true"#, &["use_sliding_window"]),
        (r#""rope_scaling":null"#, r#""partial_rotary_factor":0.5"#, &["partial_rotary_factor", "0.5"]),
        (r#""rope_scaling":null"#, r#""eos_token_id":[1,2,3,4]"#, &["eos_token_id", "4"]),
        ("}", "", &["config.json"]),
    ];
    changed_configurations(&Tiny::new("llama", None), cases);
}

#[test]
fn configurations_of_others() {
    let tiny = |name| Tiny::new(name, None);
    changed_configurations(
        &tiny("phi3"),
        &[
            (r#""short_factor":["#, r#""short_factor":["a","#, &["short_factor"]),
            (r#""short_factor":["#, r#""short_factor":[1,"#, &["rope_factors_short", "12 positive"]),
            (r#""long_factor":["#, r#""long_factor":[-1,"#, &["rope_factors_long", "12 positive"]),
            (r#""long_factor""#, r#""short_mscale":1.5,"long_factor""#, &["short_mscale", "1.5"]),
            (r#"embeddings":1024"#, r#"embeddings":0"#, &["original_max_position_embeddings"]),
            (r#""partial_rotary_factor":0.75"#, r#""partial_rotary_factor":1.5"#, &["partial", "1.5"]),
            (r#""partial_rotary_factor":0.75"#, r#""partial_rotary_factor":0"#, &["partial", "0"]),
        ],
    );
    changed_configurations(
        &tiny("smollm3"),
        &[
            ("[1,1,1]", "[1,1,0]", &["no_rope_layers", "4th"]),
            ("[1,1,1]", "[1,1,1,0]", &["no_rope_layers", "4th"]),
            ("[1,1,1]", "4", &["no_rope_layers", "4th"]),
        ],
    );
    let unequal = r#""rope_scaling":{"rope_type":"longrope","short_mscale":1.2,"long_mscale":1.3,"short_factor":[],"long_factor":[]}"#;
    changed_configurations(
        &tiny("phimoe"),
        &[
            (
                r#""router_jitter_noise":0.01"#,
                r#""router_jitter_noise":0.02"#,
                &["router_jitter_noise is 0.02"],
            ),
            (r#""num_experts_per_tok":2"#, r#""num_experts_per_tok":3"#, &["num_experts_per_tok is 3"]),
            (r#""rope_scaling":null"#, unequal, &["short_mscale is 1.2", "long_mscale 1.3"]),
        ],
    );
    changed_configurations(
        &tiny("minicpm3"),
        &[
            (r#""scale_emb":6,"#, "", &["scale_emb"]),
            (r#""v_head_dim":24"#, r#""v_head_dim":16"#, &["kv_b_proj", "192"]),
            (r#""v_head_dim":24"#, r#""v_head_dim":null"#, &["kv_b_proj", "192"]),
        ],
    );
    changed_configurations(
        &tiny("minicpm"),
        &[
            (r#""scale_emb":6,"#, "", &["scale_emb"]),
            (r#""scale_depth""#, r#""depth""#, &["scale_depth"]),
            (r#""dim_model_base":16"#, r#""dim_model_base":0"#, &["dim_model_base"]),
        ],
    );
    changed_configurations(
        &tiny("gemma3"),
        &[
            (
                r#""rope_scaling":null"#,
                r#""rope_parameters":{"full_attention":{},"sliding_attention":{"rope_type":"yarn"}}"#,
                &["sliding_attention", "yarn"],
            ),
            (r#""rope_scaling":null"#, r#""rope_parameters":{"full_attention":{}}"#, &["layer to layer"]),
        ],
    );
    changed_configurations(
        &tiny("command-r"),
        &[
            (r#""logit_scale":0.5"#, r#""logit_scale":null"#, &["logit_scale"]),
            (r#""use_qk_norm":true"#, r#""use_parallel_block":false"#, &["use_parallel_block"]),
            (r#""layer_norm_eps":1e-5"#, r#""layer_norm_eps":0"#, &["layer_norm_epsilon"]),
        ],
    );
    changed_configurations(
        &tiny("stablelm"),
        &[(r#""use_parallel_residual":false"#, r#""use_parallel_residual":true"#, &["parallel_residual"])],
    );
    changed_configurations(
        &tiny("nemotron"),
        &[(r#""hidden_act":"relu2""#, r#""hidden_act":"silu""#, &["hidden_act", "silu"])],
    );
    changed_configurations(
        &tiny("olmo2"),
        &[(r#"["sliding_attention","#, r#"["conv","#, &["layer_types", "conv"])],
    );
    changed_configurations(
        &tiny("gemma2"),
        &[(r#""hidden_activation":"gelu_pytorch_tanh""#, r#""hidden_act":"gelu""#, &["gelu", "hidden_act"])],
    );
}

#[test]
fn configurations_of_hybrids() {
    changed_configurations(
        &Tiny::new("qwen3next", None),
        &[
            (
                r#""linear_num_key_heads":2"#,
                r#""linear_num_key_heads":3"#,
                &["in_proj_qkvz", "[64, 512]", "576"],
            ),
            (
                r#""linear_num_key_heads":2"#,
                r#""linear_num_key_heads":0"#,
                &["in_proj_qkvz", "[64, 512]", "0"],
            ),
            (
                r#""linear_key_head_dim":32,"linear_value_head_dim":32"#,
                r#""linear_key_head_dim":128,"linear_value_head_dim":0"#,
                &["0"],
            ),
            (r#","linear_key_head_dim":32"#, "", &["in_proj_qkvz", "[64, 512]", "384"]),
            (r#""linear_value_head_dim":32"#, r#""linear_value_head_dim":4294967295"#, &["in_proj_qkvz"]),
            (r#""linear_attention","full"#, r#""mamba","full"#, &["layer_types", "mamba"]),
        ],
    );
    changed_configurations(
        &Tiny::new("lfm2", None),
        &[
            (r#"["conv","full"#, r#"["mamba","full"#, &["layer_types", "mamba"]),
            (r#"["conv","full"#, r#"["full_attention","full"#, &["0.self_attn.q_proj", "missing"]),
            (r#"["conv","full_attention","conv"]"#, r#"["conv"]"#, &["head_count_kv", "3 layers"]),
            (r#"["conv","full_attention","conv"]"#, "7", &["layer_types", "full_attn_idxs"]),
            (r#""num_key_value_heads":2,"#, "", &["num_key_value_heads"]),
            (r#""conv_L_cache":4"#, r#""conv_L_cache":9"#, &["l_cache", "9", "2 to 8"]),
            (r#""block_ff_dim":130"#, r#""block_ff_dim":160"#, &["mlp.gate_proj", "[64, 96]", "[64, 128]"]),
            (r#""block_multiple_of":32"#, r#""block_ffn_dim_multiplier":1e30"#, &["feed_forward_length"]),
        ],
    );
    changed_configurations(
        &Tiny { intermediate: 32, ..Tiny::new("qwen3vlmoe", None) },
        &[(r#""norm_topk_prob":true"#, r#""norm_topk_prob":true"#, &["gate_up_proj", "square", "64"])],
    );
    changed_configurations(
        &Tiny::new("qwen3vlmoe", None),
        &[(r#""hidden_size":64"#, r#""hidden_size":32"#, &["embed_tokens", "[64, 97]", "[32, 97]"])],
    );
}

#[test]
fn configurations_of_mixtures() {
    changed_configurations(
        &Tiny::new("qwen3moe", None),
        &[
            (r#""num_experts":6,"#, "", &["expert_count"]),
            (r#""num_experts":6"#, r#""num_experts":-1"#, &["num_experts", "-1"]),
            (r#""num_experts":6"#, r#""num_experts":0"#, &["expert_count", "0"]),
            (r#""num_experts":6"#, r#""num_experts":4000000000"#, &["expert_count", "4000000000"]),
            (r#""num_experts":6"#, r#""num_experts":7"#, &["mlp.gate", "[64, 6]", "[64, 7]"]),
            (r#""num_experts":6"#, r#""num_experts":5"#, &["mlp.gate", "[64, 6]", "[64, 5]"]),
            (r#""num_experts":6"#, r#""num_experts":2147483647"#, &["mlp.gate", "[64, 6]", "2147483647"]),
            (r#""num_experts_per_tok":3"#, r#""num_experts_per_tok":7"#, &["expert_used_count", "7", "6"]),
            (r#""num_experts_per_tok":3,"#, "", &["expert_used_count"]),
            (r#""moe_intermediate_size":96,"#, "", &["moe_intermediate_size", "missing"]),
            (r#""moe_intermediate_size":96"#, r#""moe_intermediate_size":0"#, &["expert_feed_forward", "0"]),
            (
                r#""moe_intermediate_size":96"#,
                r#""moe_intermediate_size":95"#,
                &["experts.0.gate_proj", "[64, 96]", "[64, 95]"],
            ),
            (r#""norm_topk_prob":true"#, r#""norm_topk_prob":"yes""#, &["norm_topk_prob", "yes"]),
            (r#""decoder_sparse_step":1"#, r#""decoder_sparse_step":2"#, &["decoder_sparse_step", "2"]),
            (r#""mlp_only_layers":[]"#, r#""mlp_only_layers":[0,2]"#, &["mlp_only_layers", "[0,2]"]),
        ],
    );
    changed_configurations(
        &Tiny::new("olmoe", None),
        &[
            (r#""rope_scaling":null"#, r#""clip_qkv":8.0"#, &["clip_qkv", "8.0"]),
            (r#""intermediate_size":96,"#, "", &["intermediate_size", "missing"]),
        ],
    );
    changed_configurations(
        &Tiny { experts: Some((8, 2)), ..Tiny::new("llama", None) },
        &[
            (r#""num_local_experts":8"#, r#""num_local_experts":9"#, &["block_sparse_moe.gate", "[64, 9]"]),
            (r#""num_local_experts":8"#, r#""num_local_experts":1"#, &["expert_used_count", "2", "1"]),
            (r#","num_local_experts":8"#, "", &["mlp.gate_proj", "missing"]),
        ],
    );
    changed_configurations(
        &Tiny::new("glm4moe", None),
        &[
            (r#""n_routed_experts":6,"#, "", &["expert_count"]),
            (r#""n_routed_experts":6"#, r#""n_routed_experts":7"#, &["mlp.gate", "[64, 6]", "[64, 7]"]),
            (
                r#""n_shared_experts":2"#,
                r#""n_shared_experts":1"#,
                &["shared_experts", "[64, 64]", "[64, 32]"],
            ),
            (
                r#""n_shared_experts":2"#,
                r#""n_shared_experts":0"#,
                &["1.mlp.shared_experts", "not take part"],
            ),
            (
                r#""first_k_dense_replace":1"#,
                r#""first_k_dense_replace":0"#,
                &["0.mlp.shared_experts", "missing"],
            ),
            (r#""first_k_dense_replace":1"#, r#""first_k_dense_replace":2"#, &["1.mlp.gate_proj", "missing"]),
            (r#""first_k_dense_replace":1"#, r#""first_k_dense_replace":3"#, &["3", "below the 3 layers"]),
            (r#""n_group":1"#, r#""n_group":4"#, &["expert_group_count", "4", "a divisor of the 6 experts"]),
            (
                r#""n_group":1,"topk_group":1"#,
                r#""n_group":2,"topk_group":3"#,
                &["used_count", "3", "2 groups"],
            ),
            (r#""n_group":1,"topk_group":1"#, r#""n_group":2"#, &["expert_group_used_count"]),
            (
                r#""routed_scaling_factor":1.0"#,
                r#""routed_scaling_factor":-1"#,
                &["expert_weights_scale", "-1"],
            ),
        ],
    );
    changed_configurations(
        &Tiny::new("ernie4_5-moe", None),
        &[
            (r#""moe_layer_end_index":-1"#, r#""moe_layer_end_index":1"#, &["moe_layer_end_index", "1"]),
            (r#""moe_layer_interval":1"#, r#""moe_layer_interval":2"#, &["2.mlp.gate_proj", "missing"]),
            (r#""moe_layer_interval":1"#, r#""moe_layer_interval":0"#, &["interleave_moe_layer_step", "0"]),
            (r#""moe_k":3"#, r#""moe_k":7"#, &["expert_used_count", "7", "6"]),
            (
                r#""moe_num_shared_experts":2"#,
                r#""moe_num_shared_experts":4000000000"#,
                &["moe_num_shared_experts", "32", "2^32"],
            ),
        ],
    );
    changed_configurations(
        &Tiny::new("gpt-oss", None),
        &[
            (r#""swiglu_limit":7.0"#, r#""swiglu_limit":5.0"#, &["swiglu_limit", "5.0"]),
            (r#""swiglu_limit":7.0"#, r#""swiglu_alpha":1.5"#, &["swiglu_alpha", "1.5"]),
            (r#""sliding_window":24,"#, "", &["sliding_window"]),
            (r#""intermediate_size":96,"#, "", &["intermediate_size", "missing"]),
            (r#""num_local_experts":6"#, r#""num_local_experts":7"#, &["mlp.router", "[64, 6]", "[64, 7]"]),
            (
                r#""swiglu_limit":7.0"#,
                r#""layer_types":["sliding_attention","full_attention"]"#,
                &["sliding_window_pattern", "3 layers"],
            ),
        ],
    );
    changed_configurations(
        &Tiny::new("minimax-m2", None),
        &[
            (r#""rotary_dim":16"#, r#""rotary_dim":33"#, &["dimension_count", "33", "32"]),
            (
                r#""shared_intermediate_size":0"#,
                r#""shared_intermediate_size":8"#,
                &["shared_intermediate", "8"],
            ),
            (r#""per_layer""#, r#""per_head""#, &["qk_norm_type", "per_head"]),
            (r#""rotary_dim":16"#, r#""attn_type_list":[1,0,1]"#, &["attn_type_list", "0"]),
            (r#""layernorm_mlp_beta":1.0"#, r#""layernorm_mlp_beta":3.5"#, &["layernorm_mlp_beta", "3.5"]),
        ],
    );
    changed_configurations(
        &Tiny::new("hunyuan-moe", None),
        &[
            ("[3,3,3]", "[3,3,2]", &["moe_topk", "[3,3,2]", "the same"]),
            ("[96,96,96]", "48", &["moe_intermediate_size", "48", "96"]),
            ("[0,0,0]", "1", &["0.mlp.shared_experts", "missing"]),
            (r#""use_cla":false"#, r#""use_cla":true"#, &["use_cla"]),
            (r#""moe_layer_num_skipped":0"#, r#""moe_layer_num_skipped":1"#, &["moe_layer_num_skipped"]),
        ],
    );
    changed_configurations(
        &Tiny::new("granitemoe", None),
        &[
            (
                r#""shared_intermediate_size":40"#,
                r#""shared_intermediate_size":41"#,
                &["shared_experts.gate_proj", "[64, 40]", "[64, 41]"],
            ),
            (
                r#""num_local_experts":6"#,
                r#""num_local_experts":5"#,
                &["mlp.gate.weight", "[64, 6]", "[64, 5]"],
            ),
        ],
    );
    // What has no experts is not made to have some.
    changed_configurations(
        &Tiny::new("qwen3", None),
        &[(r#""vocab_size""#, r#""num_experts":4,"vocab_size""#, &["expert_count", "4", "no experts"])],
    );
}

/// Experts that are missing, of another shape or type, or more than there should be; and Mixtral's names in a model of Qwen's.
#[test]
fn experts() {
    type Edit = fn(&mut Vec<Dense>);
    fn of<'a>(all: &'a mut [Dense], end: &str) -> &'a mut Dense {
        all.iter_mut().find(|tensor| tensor.name.ends_with(end)).unwrap()
    }
    let cases: &[(&str, Edit, &[&str])] = &[
        (
            "missing",
            |all| all.retain(|t| !t.name.ends_with("1.mlp.experts.4.up_proj.weight")),
            &["layers.1.mlp.experts.4.up_proj.weight", "missing", "[64, 96]"],
        ),
        (
            "the first missing",
            |all| all.retain(|t| !t.name.ends_with("0.mlp.experts.0.gate_proj.weight")),
            &["layers.0.mlp.experts.0.gate_proj.weight", "missing"],
        ),
        (
            "the last missing",
            |all| all.retain(|t| !t.name.ends_with("2.mlp.experts.5.down_proj.weight")),
            &["layers.2.mlp.experts.5.down_proj.weight", "missing", "[96, 64]"],
        ),
        (
            "no router",
            |all| all.retain(|t| !t.name.ends_with("0.mlp.gate.weight")),
            &["layers.0.mlp.gate.weight", "missing", "[64, 6]"],
        ),
        (
            "shape",
            |all| of(all, "0.mlp.experts.3.up_proj.weight").shape = vec![64, 96],
            &["experts.3.up_proj.weight", "[96, 64]", "[64, 96]"],
        ),
        (
            "dimensions",
            |all| of(all, "0.mlp.experts.3.up_proj.weight").shape = vec![1, 6144],
            &["experts.3.up_proj.weight", "[6144, 1]", "[64, 96]"],
        ),
        (
            "format",
            |all| {
                let tensor = of(all, "1.mlp.experts.2.down_proj.weight");
                *tensor = Dense::halves(&tensor.name, &tensor.shape, &[0.0; 64 * 96]);
            },
            &["layers.1.mlp.experts.2.down_proj.weight", "f16", "f32"],
        ),
        (
            "type",
            |all| of(all, "0.mlp.experts.1.gate_proj.weight").dtype = "I32",
            &["experts.1.gate_proj.weight", "I32"],
        ),
        (
            "too many",
            |all| {
                let name = "model.layers.2.mlp.experts.6.up_proj.weight";
                all.push(Dense::floats(name, &[96, 64], &[0.0; 64 * 96]));
            },
            &["layers.2.mlp.experts.6.up_proj.weight", "3 layers", "6 experts"],
        ),
        (
            "not a number",
            |all| {
                let name = "model.layers.0.mlp.experts.06.up_proj.weight";
                all.push(Dense::floats(name, &[96, 64], &[0.0; 64 * 96]));
            },
            &["experts.06.up_proj.weight", "6 experts"],
        ),
        (
            "names of Mixtral",
            |all| {
                all.iter_mut()
                    .for_each(|t| t.name = t.name.replace("mlp.experts", "block_sparse_moe.experts"))
            },
            &["mlp.experts.0.gate_proj.weight", "missing"],
        ),
        (
            "bias",
            |all| all.push(Dense::floats("model.layers.0.mlp.experts.0.up_proj.bias", &[96], &[0.5; 96])),
            &["experts.0.up_proj.bias"],
        ),
    ];
    for (what, edit, says) in cases {
        let said = error_of(&Tiny::new("qwen3moe", None), what, |folder, json, mut tensors| {
            folder.config(&json);
            edit(&mut tensors);
            folder.tensors(&tensors, 1);
        });
        assert!(says.iter().all(|word| said.contains(word)), "{what}: {said}");
    }
}

#[test]
fn files() {
    let missing = error("no configuration", |folder, _, tensors| folder.tensors(&tensors, 1));
    assert!(missing.contains("config.json") && missing.contains("missing"), "{missing}");
    let empty = error("no tensors", |folder, json, _| folder.config(&json));
    assert!(empty.contains("model.safetensors"), "{empty}");
    for name in ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "notes.txt", "..", ""] {
        let said = error(&format!("index {name:?}"), |folder, json, tensors| {
            folder.config(&json);
            folder.tensors(&tensors, 1);
            folder.file("model.safetensors.index.json", format!(r#"{{"weight_map":{{"a":{name:?}}}}}"#));
        });
        assert!(said.contains("index.json") && said.contains("beside it"), "{name:?}: {said}");
    }
    let cut = error("cut short", |folder, json, tensors| {
        folder.config(&json);
        folder.tensors(&tensors, 1);
        let whole = std::fs::read(folder.path().join("model.safetensors")).unwrap();
        folder.file("model.safetensors", &whole[..whole.len() - 1]);
    });
    assert!(cut.contains("cut short"), "{cut}");
    let twice = error("twice", |folder, json, tensors| {
        folder.config(&json);
        folder.tensors(&tensors, 2);
        let first = folder.path().join("model-00001-of-00002.safetensors");
        std::fs::copy(first, folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    });
    assert!(twice.contains("twice"), "{twice}");
}

#[test]
fn tensors() {
    let without = |end: &'static str| {
        error(end, |folder, json, tensors| {
            folder.config(&json);
            let tensors: Vec<Dense> = tensors.into_iter().filter(|t| !t.name.ends_with(end)).collect();
            folder.tensors(&tensors, 1);
        })
    };
    for name in ["embed_tokens.weight", "1.mlp.up_proj.weight", "2.input_layernorm.weight"] {
        let said = without(name);
        assert!(said.contains(name) && said.contains("missing"), "{said}");
    }
    assert!(without("lm_head.weight").contains("tie_word_embeddings"));
    // A bias that no formula has is not ignored, and neither is another shape or type.
    let changed = |what: &str, change: fn(&mut Vec<Dense>)| {
        error(what, |folder, json, mut tensors| {
            folder.config(&json);
            change(&mut tensors);
            folder.tensors(&tensors, 1);
        })
    };
    let bias =
        changed("bias", |all| all.push(Dense::floats("model.layers.0.mlp.up_proj.bias", &[96], &[0.5; 96])));
    assert!(bias.contains("model.layers.0.mlp.up_proj.bias"), "{bias}");
    let shape = changed("shape", |all| {
        let at = all.iter().position(|t| t.name.ends_with("0.mlp.up_proj.weight")).unwrap();
        all[at].shape = vec![64, 96];
    });
    assert!(shape.contains("up_proj") && shape.contains("[96, 64]") && shape.contains("[64, 96]"), "{shape}");
    let of = changed("type", |all| {
        let at = all.iter().position(|t| t.name.ends_with("0.mlp.up_proj.weight")).unwrap();
        all[at].dtype = "I32";
    });
    assert!(of.contains("up_proj") && of.contains("I32"), "{of}");
    let unfinished = changed("parts", |all| {
        all.retain(|t| !t.name.ends_with("0.mlp.up_proj.weight"));
        all.push(Dense::words("model.layers.0.mlp.up_proj.qweight", &[64, 12], &[0; 64 * 12]));
    });
    assert!(unfinished.contains("qzeros"), "{unfinished}");
}

/// A vocabulary that makes no sense is an error; tokens behind the model's last one are not.
#[test]
fn tokenizers() {
    const FILE: &str =
        r#"{"pre_tokenizer":{"type":"ByteLevel"},"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}"#;
    let opened = |what: &str, file: &str| {
        let tiny = Tiny::new("llama", None);
        let gguf = tiny.open();
        let folder = Folder::new(what);
        folder.config(&config(&tiny));
        folder.tensors(&Dense::of(&tiny, &gguf), 1);
        folder.file("tokenizer.json", file);
        Model::open(folder.path())
    };
    let cases: &[(&str, &str, &[&str])] = &[
        (r#""merges":["a b"]"#, r#""merges":["a b",["a"]]"#, &["merges", "pair"]),
        (r#""merges":["a b"]"#, r#""merges":["a b",["a","b","c"]]"#, &["merges", "pair"]),
        (r#""merges":["a b"]"#, r#""merges":["ab"]"#, &["merges", "pair"]),
        (r#""merges":["a b"]"#, r#""merges":7,"type":"BPE""#, &["merges", "list"]),
        (r#""ab":2"#, r#""ab":-2"#, &["ab", "-2"]),
        (r#""ab":2"#, r#""ab":"x""#, &["ab", "x"]),
        (r#"{"a":0,"b":1,"ab":2}"#, "[]", &["vocab"]),
        (r#""model""#, r#""added_tokens":[{"id":1}],"model""#, &["added token", "null"]),
        ("}}", "}", &["tokenizer.json"]),
    ];
    for (from, to, says) in cases {
        assert!(FILE.contains(from), "{from}");
        let said = opened(to, &FILE.replacen(from, to, 1)).map(|_| ()).expect_err(to).to_string();
        let all = ["tokenizer.json"].iter().chain(*says).all(|word| said.contains(word));
        assert!(all, "{to}: {said}");
    }
    for (id, tokens) in [("2", 3), ("60", 61), ("1000000", 2), ("18446744073709551615", 2)] {
        let model = opened(id, &FILE.replace(r#""ab":2"#, &format!(r#""ab":{id}"#))).unwrap();
        let list = model.metadata("tokenizer.ggml.tokens").unwrap().as_array().unwrap();
        assert_eq!(list.len(), tokens, "{id}");
    }
}
