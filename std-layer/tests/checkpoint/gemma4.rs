//! Gemma 4: heads that depend on windows, embeddings for each layer, and experts with norms of their own.

use gllm_kernels_std::model::{Matrix, Model};

use super::folder::{config, Dense, Folder};
use super::numbers;
use super::refused::{changed_configurations, Change};
use super::tiny::Tiny;

pub fn matrix(name: String, w: Matrix<'_>) -> Dense {
    Dense::stored(&format!("{name}.weight"), w.format(), &[w.rows(), w.cols()], &numbers(w))
}

pub fn vector(name: String, x: &[f32], factor: f32) -> Dense {
    Dense::floats(&name, &[x.len()], &x.iter().map(|x| x * factor).collect::<Vec<_>>())
}

/// What no other models have, but for embeddings for each layer; weights contain factors that checkpoints have apart.
pub fn tensors(gguf: &Model<'_>) -> Vec<Dense> {
    let (weights, config) = (gguf.weights().unwrap(), gguf.config());
    let mut all = Vec::new();
    if let Some(of) = &weights.per_layer {
        all.push(matrix("model.embed_tokens_per_layer".to_owned(), of.table));
        all.push(matrix("model.per_layer_model_projection".to_owned(), of.projection));
        let name = "model.per_layer_projection_norm.weight".to_owned();
        all.push(vector(name, &of.norm, std::f32::consts::SQRT_2));
    }
    for (l, layer) in weights.layers.iter().enumerate() {
        let at = |name: &str| format!("model.layers.{l}.{name}");
        let scale = config.layer[l].scale;
        all.extend(scale.map(|scale| vector(at("layer_scalar"), &[scale], 1.0)));
        if let Some(of) = &layer.per_layer {
            all.push(matrix(at("per_layer_input_gate"), of.gate));
            all.push(matrix(at("per_layer_projection"), of.output));
            all.push(vector(
                at("post_per_layer_input_norm.weight"),
                &of.post_norm,
                1.0 / scale.unwrap_or(1.0),
            ));
        }
        let Some((experts, norms)) = layer.experts.as_ref().and_then(|of| Some((of, of.norms.as_ref()?)))
        else {
            continue;
        };
        all.push(vector(at("router.scale"), &norms.router, (config.hidden as f32).sqrt()));
        all.push(vector(at("router.per_expert_scale"), experts.factors.as_ref().unwrap(), 1.0));
        for (name, x) in [
            ("pre_feedforward_layernorm_2", &norms.experts),
            ("post_feedforward_layernorm_1", &norms.post_shared),
            ("post_feedforward_layernorm_2", &norms.post_experts),
        ] {
            all.push(vector(at(&format!("{name}.weight")), x, 1.0));
        }
    }
    all
}

/// The heads of layers without a window in newer configurations.
const EACH: &str = r#""per_layer_config":{"1":{"head_dim":64,"num_key_value_heads":1},"3":{"head_dim":64,"num_key_value_heads":1}}"#;

/// What the configuration of such a model has beside what others have.
pub fn keys(tiny: &Tiny) -> String {
    let (layers, dim) = (tiny.layers, tiny.head_dim);
    let kinds: Vec<_> = (0..layers).map(|l| ["\"sliding_attention\"", "\"full_attention\""][l % 2]).collect();
    let rope = r#""rope_parameters":{"full_attention":{"rope_type":"proportional","partial_rotary_factor":0.25,"rope_theta":100000.0},"sliding_attention":{"rope_type":"default","rope_theta":10000.0}}"#;
    let experts = tiny.experts.map_or(r#","enable_moe_block":false,"num_experts":null"#.to_owned(), |(count, used)| {
        format!(
            r#","enable_moe_block":true,"num_experts":{count},"top_k_experts":{used},"moe_intermediate_size":{}"#,
            tiny.intermediate
        )
    });
    let heads = match tiny.per_layer {
        0 => {
            format!(r#""global_head_dim":{},"num_global_key_value_heads":1,"attention_k_eq_v":true"#, 2 * dim)
        }
        _ => format!(r#"{EACH},"num_kv_shared_layers":{},"use_double_wide_mlp":true"#, layers - 2),
    };
    format!(
        r#","sliding_window":{},"layer_types":[{}],{heads},"hidden_size_per_layer_input":{},"final_logit_softcapping":3.0,{rope}{experts}"#,
        tiny.window,
        kinds.join(","),
        tiny.per_layer
    )
}

/// A model of four layers, the last of which has no window.
pub fn tiny() -> Tiny {
    Tiny { layers: 4, ..Tiny::new("gemma4", None) }
}

/// Newer configurations have what differs in an object.
#[test]
fn heads_of_single_layers() {
    let tiny = tiny();
    let folder = Folder::new("gemma4, single layers");
    folder.config(&config(&tiny).replace(r#""global_head_dim":64,"num_global_key_value_heads":1"#, EACH));
    folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
    let model = Model::open(folder.path()).unwrap();
    let c = model.config();
    assert_eq!((c.kv_heads, c.head_dim, c.local_heads.unwrap().dim), (1, 64, 32));
    let factors = c.ropes[0].factors.clone().unwrap();
    assert!(factors.iter().enumerate().all(|(i, &f)| f == if i < 8 { 1.0 } else { 1e30 }), "{factors:?}");
    assert_eq!((c.ropes[1].theta, c.ropes[1].dims), (10_000.0, 32));
}

#[test]
fn refused() {
    let cases: &[Change] = &[
        (r#","head_dim":32"#, "", &["head_dim is missing"]),
        (
            r#""global_head_dim":64"#,
            r#""global_head_dim":32"#,
            &["1.self_attn.q_proj", "[64, 256]", "[64, 128]"],
        ),
        (r#""global_head_dim":64"#, r#""global_head_dim":4294967295"#, &["4294967295", "too large"]),
        (
            r#""attention_k_eq_v":true"#,
            r#""attention_k_eq_v":false"#,
            &["1.self_attn.k_proj", "[64, 64]", "[64, 128]"],
        ),
        (r#","full_attention"]"#, r#","sliding_attention"]"#, &["layer_types", "full_attention"]),
        (r#"["sliding_attention","#, r#"["conv","#, &["layer_types", "conv"]),
        (r#"["sliding_attention","#, r#"["#, &["sliding_window_pattern", "4 layers"]),
        (r#""global_head_dim":64"#, r#""per_layer_config":{"1":{"head_dim":64}}"#, &["per_layer_config"]),
        (
            r#""global_head_dim":64"#,
            r#""per_layer_config":{"1":{"head_dim":64,"x":1},"3":{"head_dim":64,"x":1}}"#,
            &["per_layer_config has x"],
        ),
        (
            r#""global_head_dim":64"#,
            r#""per_layer_config":{"1":{"head_dim":-1},"3":{"head_dim":-1}}"#,
            &["head_dim", "-1"],
        ),
        (
            r#""partial_rotary_factor":0.25"#,
            r#""partial_rotary_factor":1.5"#,
            &["partial_rotary_factor", "1.5"],
        ),
        (r#""partial_rotary_factor":0.25"#, r#""factor":0"#, &["factor 0"]),
        (
            r#""hidden_size_per_layer_input":0"#,
            r#""hidden_size_per_layer_input":8"#,
            &["per_layer", "missing"],
        ),
        (r#""enable_moe_block":false"#, r#""enable_moe_block":true"#, &["top_k_experts is missing"]),
        (
            r#""final_logit_softcapping":3.0"#,
            r#""use_bidirectional_attention":"all""#,
            &["use_bidirectional", "all"],
        ),
    ];
    changed_configurations(&tiny(), cases);
    changed_configurations(
        &Tiny::with_per_layer(),
        &[
            (r#""num_kv_shared_layers":2"#, r#""num_kv_shared_layers":4"#, &["shared_kv_layers", "4"]),
            (r#""num_kv_shared_layers":2"#, r#""num_kv_shared_layers":3"#, &["shared_kv_layers", "3"]),
            (
                r#""use_double_wide_mlp":true"#,
                r#""use_double_wide_mlp":false"#,
                &["2.mlp.gate_proj", "[64, 192]", "[64, 96]"],
            ),
        ],
    );
}
