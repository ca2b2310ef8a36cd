// What checkpoints of some architectures call otherwise than most.

use super::folder::Dense;
use super::tiny::Tiny;

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
        "granitehybrid" => &[
            (".mlp.gate_up_proj.", ".shared_mlp.input_linear."),
            (".mlp.down_proj.", ".shared_mlp.output_linear."),
            (".linear_attn.", ".mamba."),
        ],
        "nemotron_h" | "nemotron_h_moe" => &[
            ("model.", "backbone."),
            (".embed_tokens.", ".embeddings."),
            ("backbone.norm.", "backbone.norm_f."),
            (".input_layernorm.", ".norm."),
            (".post_attention_layernorm.", ".norm."),
            (".self_attn.", ".mixer."),
            (".linear_attn.", ".mixer."),
            (".mlp.", ".mixer."),
        ],
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
        "gemma4" => super::gemma4::keys(tiny),
        "granitehybrid" => format!(
            r#","layer_types":["mamba","attention","mamba"],"mamba_n_heads":6,"mamba_d_head":16,"mamba_n_groups":2,"mamba_d_state":32,"mamba_d_conv":4,"time_step_limit":[0.0,Infinity],"position_embedding_type":"nope","num_local_experts":0,"shared_intermediate_size":{width},"embedding_multiplier":6,"residual_multiplier":0.25,"attention_multiplier":0.3,"logits_scaling":4"#
        ),
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
