//! Names that tensors have in the checkpoints of some architectures alone, and what most call them.

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
const HUNYUAN: Aliases = &[(".mlp.gate.wg.", ".mlp.gate."), (".mlp.shared_mlp.", ".mlp.shared_experts.")];
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
const SPACE: Aliases = &[(".mamba.", ".linear_attn.")];

fn aliases(architecture: Architecture) -> [Aliases; 2] {
    match architecture {
        Architecture::Lfm2 | Architecture::Lfm2Moe => [LFM2, W123],
        Architecture::MiniMaxM2 => [MINIMAX, W123],
        Architecture::HunyuanMoe => [HUNYUAN, &[]],
        Architecture::GraniteMoe => [GRANITE, &[]],
        Architecture::Gemma4 => [GEMMA4, &[]],
        Architecture::GraniteHybrid => [GRANITE, SPACE],
        Architecture::NemotronH | Architecture::NemotronHMoe => [NEMOTRON_H, &[]],
        _ => [&[]; 2],
    }
}

/// The name that most checkpoints have for a tensor.
pub(super) fn usual(architecture: Architecture, name: &str) -> String {
    let all = aliases(architecture).into_iter().flatten();
    all.fold(name.to_owned(), |name, (from, to)| name.replacen(from, to, 1))
}
