//! Names that tensors have in the checkpoints of some architectures alone, and what most call them.

use serde_json::Value as Json;

use crate::model::Architecture;

/// Parts of names, and what stands in their place, one after the other.
type Aliases = &'static [(&'static str, &'static str)];

/// Of networks: gate, up and down.
const W123: Aliases = &[(".w1.", ".gate_proj."), (".w3.", ".up_proj."), (".w2.", ".down_proj.")];
const LFM2: Aliases = &[
    (".feed_forward.", ".mlp."),
    (".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"),
    (".operator_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".q_layernorm.", ".q_norm."),
    (".k_layernorm.", ".k_norm."),
];
const MINIMAX: Aliases =
    &[(".block_sparse_moe.", ".mlp."), (".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias")];
const AFMOE: Aliases = &[
    (".mlp.router.gate.", ".mlp.gate."),
    (".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"),
    (".pre_mlp_layernorm.", ".pre_feedforward_layernorm."),
    (".post_mlp_layernorm.", ".post_feedforward_layernorm."),
];
const APERTUS: Aliases = &[
    (".attention_layernorm.", ".input_layernorm."),
    (".feedforward_layernorm.", ".post_attention_layernorm."),
];
const EXAONE_MOE: Aliases = &[(".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias")];
const HUNYUAN: Aliases = &[(".mlp.gate.wg.", ".mlp.gate."), (".mlp.shared_mlp.", ".mlp.shared_experts.")];
const LLAMA4: Aliases = &[
    (".feed_forward.", ".mlp."),
    (".mlp.router.", ".mlp.gate."),
    (".mlp.shared_expert.", ".mlp.shared_experts."),
];
/// The library names experts otherwise since 2026.
const GRANITE: Aliases = &[
    (".block_sparse_moe.input_linear.weight", ".mlp.experts.gate_up_proj"),
    (".block_sparse_moe.output_linear.weight", ".mlp.experts.down_proj"),
    (".block_sparse_moe.experts.", ".mlp.experts."),
    (".block_sparse_moe.router.layer.", ".mlp.gate."),
    (".block_sparse_moe.router.", ".mlp.gate."),
    (".shared_mlp.input_linear.", ".mlp.shared_experts.gate_up_proj."),
    (".shared_mlp.output_linear.", ".mlp.shared_experts.down_proj."),
];

const GEMMA4: Aliases = &[(".experts.", ".mlp.experts."), (".router.proj.", ".mlp.gate.")];

const NEMOTRON_H: Aliases = &[
    ("backbone.", "model."),
    ("model.embeddings.", "model.embed_tokens."),
    ("model.norm_f.", "model.norm."),
    (".mixer.q_proj.", ".self_attn.q_proj."),
    (".mixer.k_proj.", ".self_attn.k_proj."),
    (".mixer.v_proj.", ".self_attn.v_proj."),
    (".mixer.o_proj.", ".self_attn.o_proj."),
    (".mixer.up_proj.", ".mlp.up_proj."),
    (".mixer.down_proj.", ".mlp.down_proj."),
    (".mixer.gate.", ".mlp.gate."),
    (".mixer.experts.", ".mlp.experts."),
    (".mixer.shared_experts.", ".mlp.shared_experts."),
    (".mixer.", ".linear_attn."),
];
const FALCON_H1: Aliases = &[
    ("model.final_layernorm.", "model.norm."),
    (".pre_ff_layernorm.", ".post_attention_layernorm."),
    (".feed_forward.", ".mlp."),
];
/// The names of its first files begin otherwise.
const MAMBA2: Aliases = &[("model.backbone.", "backbone.")];
const SPACE: Aliases = &[(".mamba.", ".linear_attn.")];

const INTERNLM2: Aliases = &[
    ("model.tok_embeddings.", "model.embed_tokens."),
    (".attention.wqkv.", ".self_attn.qkv_proj."),
    (".attention.wo.", ".self_attn.o_proj."),
    (".feed_forward.", ".mlp."),
    (".attention_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
];
const BAILING: Aliases = &[
    ("model.word_embeddings.", "model.embed_tokens."),
    (".attention.query_key_value.", ".self_attn.qkv_proj."),
    (".attention.dense.", ".self_attn.o_proj."),
    (".attention.query_layernorm.", ".self_attn.q_norm."),
    (".attention.key_layernorm.", ".self_attn.k_norm."),
    (".mlp.gate.expert_bias", ".mlp.gate.e_score_correction_bias"),
];
const QWEN: Aliases = &[
    (".attn.c_attn.", ".self_attn.qkv_proj."),
    (".attn.c_proj.", ".self_attn.o_proj."),
    (".w1.", ".up_proj."),
    (".w2.", ".gate_proj."),
];
const EXAONE: Aliases = &[
    ("transformer.wte.", "model.embed_tokens."),
    ("transformer.h.", "model.layers."),
    ("transformer.ln_f.", "model.norm."),
    (".attn.attention.", ".self_attn."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".ln_1.", ".input_layernorm."),
    (".ln_2.", ".post_attention_layernorm."),
    (".c_fc_0.", ".gate_proj."),
    (".c_fc_1.", ".up_proj."),
    (".c_proj.", ".down_proj."),
];
const GPT_NEOX: Aliases = &[
    ("gpt_neox.embed_in.", "model.embed_tokens."),
    ("gpt_neox.layers.", "model.layers."),
    ("gpt_neox.final_layer_norm.", "model.norm."),
    ("embed_out.", "lm_head."),
    (".attention.", ".self_attn."),
];
const FALCON: Aliases = &[
    ("transformer.word_embeddings.", "model.embed_tokens."),
    ("transformer.h.", "model.layers."),
    ("transformer.ln_f.", "model.norm."),
    (".self_attention.", ".self_attn."),
    (".ln_attn.", ".input_layernorm."),
    (".ln_mlp.", ".post_attention_layernorm."),
];
const GPT2: Aliases = &[
    ("transformer.", ""),
    ("wte.", "model.embed_tokens."),
    ("wpe.", "embeddings.position_embeddings."),
    ("h.", "model.layers."),
    ("ln_f.", "model.norm."),
    (".attn.", ".self_attn."),
    (".c_attn.", ".qkv_proj."),
    (".self_attn.c_proj.", ".self_attn.o_proj."),
    (".ln_1.", ".input_layernorm."),
    (".ln_2.", ".post_attention_layernorm."),
    (".c_fc.", ".up_proj."),
    (".c_proj.", ".down_proj."),
];
const PHI: Aliases = &[
    ("model.final_layernorm.", "model.norm."),
    (".self_attn.dense.", ".self_attn.o_proj."),
    (".fc1.", ".up_proj."),
    (".fc2.", ".down_proj."),
];
/// What names may begin with.
const BERT: Aliases = &[("roberta.", ""), ("bert.", "")];
const JINA: Aliases = &[(".mlp.wo.", ".output.dense."), (".mlp.layernorm.", ".output.LayerNorm.")];
const MODERN_BERT: Aliases = &[
    ("model.embeddings.", "embeddings."),
    ("embeddings.tok_embeddings.", "model.embed_tokens."),
    ("embeddings.norm.", "embeddings.LayerNorm."),
    ("model.final_norm.", "model.norm."),
    (".attn_norm.", ".input_layernorm."),
    (".mlp_norm.", ".post_attention_layernorm."),
    (".attn.Wqkv.", ".self_attn.qkv_proj."),
    (".attn.Wo.", ".self_attn.o_proj."),
    (".mlp.Wi.", ".mlp.gate_up_proj."),
    (".mlp.Wo.", ".mlp.down_proj."),
];
const NOMIC: Aliases = &[
    ("encoder.layers.", "encoder.layer."),
    (".attn.out_proj.", ".attention.output.dense."),
    (".mlp.fc11.", ".intermediate.dense."),
    (".mlp.fc12.", ".mlp.gated_layers_w."),
    (".mlp.fc2.", ".output.dense."),
    (".norm1.", ".attention.output.LayerNorm."),
    (".norm2.", ".output.LayerNorm."),
    ("emb_ln.", "embeddings.LayerNorm."),
];
/// Of NeoX and those that follow it.
const NEOX_MATRICES: Aliases = &[
    (".query_key_value.", ".qkv_proj."),
    (".self_attn.dense.", ".self_attn.o_proj."),
    (".dense_h_to_4h.", ".up_proj."),
    (".dense_4h_to_h.", ".down_proj."),
];

fn aliases(architecture: Architecture) -> [Aliases; 2] {
    match architecture {
        Architecture::Lfm2 | Architecture::Lfm2Moe => [LFM2, W123],
        Architecture::MiniMaxM2 => [MINIMAX, W123],
        Architecture::Afmoe => [AFMOE, &[]],
        Architecture::Apertus => [APERTUS, &[]],
        Architecture::ExaoneMoe => [EXAONE_MOE, &[]],
        Architecture::HunyuanMoe => [HUNYUAN, &[]],
        Architecture::Llama4 => [LLAMA4, &[]],
        Architecture::GraniteMoe => [GRANITE, &[]],
        Architecture::Gemma4 => [GEMMA4, &[]],
        Architecture::GraniteHybrid => [GRANITE, SPACE],
        Architecture::FalconH1 => [FALCON_H1, SPACE],
        Architecture::NemotronH | Architecture::NemotronHMoe => [NEMOTRON_H, &[]],
        Architecture::Mamba2 => [MAMBA2, NEMOTRON_H],
        Architecture::InternLm2 => [INTERNLM2, W123],
        Architecture::BailingMoe | Architecture::BailingMoe2 => [BAILING, &[]],
        Architecture::Exaone => [EXAONE, &[]],
        Architecture::Qwen => [QWEN, EXAONE],
        Architecture::GptNeoX => [GPT_NEOX, NEOX_MATRICES],
        Architecture::Falcon => [FALCON, NEOX_MATRICES],
        Architecture::Phi2 => [PHI, &[]],
        Architecture::Gpt2 | Architecture::StarCoder => [GPT2, &[]],
        Architecture::Bert => [BERT, &[]],
        Architecture::JinaBertV2 => [BERT, JINA],
        Architecture::NomicBert => [BERT, NOMIC],
        Architecture::ModernBert => [MODERN_BERT, &[]],
        _ => [&[]; 2],
    }
}

/// Keys of configurations, and what most call them.
fn keys(architecture: Architecture) -> Aliases {
    match architecture {
        Architecture::Exaone => &[("num_layers", "num_hidden_layers"), ("activation_function", "hidden_act")],
        Architecture::GptNeoX => {
            &[("rotary_pct", "partial_rotary_factor"), ("rotary_emb_base", "rope_theta")]
        }
        Architecture::Qwen => &[("kv_channels", "head_dim"), ("rotary_emb_base", "rope_theta")],
        Architecture::Falcon => &[
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("activation", "hidden_act"),
            ("ffn_hidden_size", "intermediate_size"),
            ("n_head_kv", "num_key_value_heads"),
            ("num_kv_heads", "num_key_value_heads"),
        ],
        Architecture::Gpt2 | Architecture::StarCoder => &[
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("n_embd", "hidden_size"),
            ("n_inner", "intermediate_size"),
            ("n_positions", "max_position_embeddings"),
            ("activation_function", "hidden_act"),
        ],
        Architecture::NomicBert => &[
            ("n_layer", "num_hidden_layers"),
            ("n_head", "num_attention_heads"),
            ("n_embd", "hidden_size"),
            ("n_inner", "intermediate_size"),
            ("n_positions", "max_position_embeddings"),
            ("rotary_emb_base", "rope_theta"),
            ("rotary_emb_fraction", "partial_rotary_factor"),
        ],
        Architecture::ModernBert => &[
            ("local_attention", "sliding_window"),
            ("global_attn_every_n_layers", "sliding_window_pattern"),
            ("global_rope_theta", "rope_theta"),
            ("local_rope_theta", "rope_local_base_freq"),
        ],
        Architecture::BailingMoe | Architecture::BailingMoe2 => {
            &[("num_shared_experts", "n_shared_experts"), ("score_function", "scoring_func")]
        }
        Architecture::ExaoneMoe => &[("num_shared_experts", "n_shared_experts")],
        Architecture::Afmoe => &[
            ("num_shared_experts", "n_shared_experts"),
            ("route_scale", "routed_scaling_factor"),
            ("global_attn_every_n_layers", "sliding_window_pattern"),
        ],
        _ => &[],
    }
}

/// The configuration with the keys that most have, unless it has these, too.
pub(super) fn config(architecture: Architecture, json: &Json) -> Json {
    let mut json = json.clone();
    for (from, to) in keys(architecture) {
        if let Some(value) = json.get(*from).filter(|_| json.get(*to).is_none_or(Json::is_null)) {
            json[*to] = value.clone();
        }
    }
    json
}

/// The name that most checkpoints have for a tensor.
pub(super) fn usual(architecture: Architecture, name: &str) -> String {
    // Models without an output matrix are stored as what others have in front of it.
    let bare = ["embed_tokens.", "layers.", "norm.", "final_norm."]
        .iter()
        .any(|of_model| name.starts_with(of_model));
    if bare {
        return usual(architecture, &format!("model.{name}"));
    }
    let output = ("output.", "lm_head.");
    if architecture == Architecture::InternLm2 && name.starts_with(output.0) {
        return name.replacen(output.0, output.1, 1);
    }
    let all = aliases(architecture).into_iter().flatten();
    all.fold(name.to_owned(), |name, (from, to)| name.replacen(from, to, 1))
}
