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
        "gemma4" => &[(".mlp.experts.", ".experts."), (".mlp.gate.", ".router.proj.")],
        _ => &[],
    }
}

/// Gives tensors the names of their architecture.
pub fn renamed(tiny: &Tiny, tensors: &mut [Dense]) {
    for tensor in tensors {
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
        _ => return None,
    })
}
