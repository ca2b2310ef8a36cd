//! What several architectures have in common: rows that those of [`families`](super::families) begin with.

use gllm_kernels_core::RopePairing;

use super::architecture::{Architecture, Gate, Scoring};
use super::family::{Family, LocalRotation, Mixture, Pairs, Recurrent, Scales, Window, Windows, Without};

pub(super) const HALVES: Pairs =
    Pairs { gguf: RopePairing::HalfSplit, checkpoint: RopePairing::HalfSplit, part: None };
const REORDERED: Pairs = Pairs { gguf: RopePairing::Adjacent, ..HALVES };
pub(super) const NEIGHBOURS: Pairs = Pairs { checkpoint: RopePairing::Adjacent, ..REORDERED };

/// What most decoders are; each row below says what differs.
pub(super) const DECODER: Family = Family {
    architecture: Architecture::Llama,
    gguf: "llama",
    checkpoints: &[],
    encoder: false,
    residual_norms: false,
    embedding_norm: false,
    pairs: Some(HALVES),
    rotation_is_trained: false,
    unrotated_period: None,
    longest: None,
    windows: Windows::No,
    experts: Mixture::No,
    normalised: true,
    scales: None,
    gate: Gate::Silu,
    gated: true,
    fused_gate_up: false,
    fused_qkv: false,
    up_bias: false,
    down_bias: false,
    output_bias: false,
    layer_norms: false,
    norm_biases: false,
    norms_unweighted: false,
    input_norms: true,
    qk_norm: false,
    some_qk_norm: false,
    qk_norm_unweighted: false,
    value_norm: false,
    qk_norm_behind: false,
    qk_norm_each: false,
    qk_norm_whole: false,
    recurrent: Recurrent::No,
    latent: false,
    post_norms: false,
    parallel: false,
    shared_norm: false,
    some_parallel: false,
    attention_bias: false,
    attention_output_bias: false,
    attention_sinks: false,
    gates_apart: false,
    alibi: false,
    alibi_layers: None,
    position_embeddings: false,
    ffn_norm_is_post_attention: false,
    logit_factor: false,
    networks_are_layers: false,
    halved_networks: false,
    embedding_by_width: false,
    local_heads: false,
    uneven: false,
    streams: false,
    logit_softcap: None,
    unscaled_scores: false,
    scores_by_width: None,
    norms_lack_one: false,
};
pub(super) const LLAMA: Family = Family { pairs: Some(REORDERED), ..DECODER };
/// Factors of MiniCPM, of models whose files do not have them.
pub(super) const MINICPM: Scales = |layers, width| [12.0, 1.4 / layers.sqrt(), width / 256.0];
pub(super) const MINICPM3: Family = Family {
    architecture: Architecture::MiniCpm3,
    gguf: "minicpm3",
    checkpoints: &["minicpm3"],
    scales: Some(MINICPM),
    latent: true,
    ..DECODER
};
pub(super) const GRANITE: Family = Family {
    architecture: Architecture::Granite,
    gguf: "granite",
    rotation_is_trained: true,
    scales: Some(|_, _| [1.0; 3]),
    ..LLAMA
};
/// Layers of Mamba-2, and some with attention.
pub(super) const NEMOTRON_H: Family = Family {
    architecture: Architecture::NemotronH,
    gguf: "nemotron_h",
    checkpoints: &["nemotron_h"],
    pairs: None,
    recurrent: Recurrent::StateSpace,
    networks_are_layers: true,
    gate: Gate::ReluSquared,
    gated: false,
    ..DECODER
};
pub(super) const QWEN2: Family =
    Family { architecture: Architecture::Qwen2, gguf: "qwen2", attention_bias: true, ..DECODER };
pub(super) const QWEN3: Family =
    Family { architecture: Architecture::Qwen3, gguf: "qwen3", qk_norm: true, ..DECODER };
pub(super) const HUNYUAN: Family =
    Family { architecture: Architecture::HunyuanDense, gguf: "hunyuan-dense", qk_norm_behind: true, ..QWEN3 };
/// Each fourth layer has the attention of Qwen 3, with gates; the others are linear.
pub(super) const QWEN3_NEXT: Family = Family {
    architecture: Architecture::Qwen3Next,
    gguf: "qwen3next",
    pairs: Some(Pairs { part: Some(0.25), ..HALVES }),
    recurrent: Recurrent::Grouped { period: 4 },
    norms_lack_one: true,
    ffn_norm_is_post_attention: true,
    ..QWEN3
};
pub(super) const GEMMA: Family = Family {
    architecture: Architecture::Gemma,
    gguf: "gemma",
    checkpoints: &["gemma"],
    gate: Gate::GeluTanh,
    embedding_by_width: true,
    norms_lack_one: true,
    ..DECODER
};
pub(super) const GEMMA3: Family = Family {
    architecture: Architecture::Gemma3,
    gguf: "gemma3",
    checkpoints: &["gemma3_text"],
    // Local layers keep the frequencies of the first stage of the training.
    windows: Windows::Periodic {
        period: 6,
        without: Without::Last,
        usual: Window::None,
        rotation: LocalRotation::Unscaled(Some(10_000.0)),
    },
    qk_norm: true,
    post_norms: true,
    scores_by_width: Some(62),
    ..GEMMA
};
/// Of four layers the last one sees everything, and is not rotated.
pub(super) const fn three_of_four(usual: Window) -> Windows {
    Windows::Periodic { period: 4, without: Without::Last, usual, rotation: LocalRotation::Alone }
}
pub(super) const GLM: Pairs = Pairs { part: Some(0.5), ..NEIGHBOURS };
pub(super) const COHERE: Family = Family {
    architecture: Architecture::CommandR,
    gguf: "command-r",
    checkpoints: &["cohere"],
    pairs: Some(NEIGHBOURS),
    layer_norms: true,
    some_qk_norm: true,
    qk_norm_each: true,
    parallel: true,
    shared_norm: true,
    logit_factor: true,
    ..DECODER
};
/// Most layers have a short convolution; the others have the attention of Qwen 3.
pub(super) const LFM2: Family = Family { recurrent: Recurrent::Convolution, ..QWEN3 };
pub(super) const DEEPSEEK2: Family = Family {
    architecture: Architecture::DeepSeek2,
    gguf: "deepseek2",
    checkpoints: &["deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "youtu", "youtu_llm"],
    pairs: Some(NEIGHBOURS),
    experts: Mixture::DeepSeek(Scoring::Softmax),
    normalised: false,
    latent: true,
    ..DECODER
};
/// Layer norms with biases.
pub(super) const LAYER_NORMS: Family = Family { layer_norms: true, norm_biases: true, ..DECODER };
/// Biases of all matrices of layers, and networks without a gate.
pub(super) const BIASED: Family = Family {
    gated: false,
    up_bias: true,
    down_bias: true,
    attention_bias: true,
    attention_output_bias: true,
    ..LAYER_NORMS
};
/// Embeddings of positions instead of rotations.
pub(super) const GPT2: Family = Family {
    architecture: Architecture::Gpt2,
    gguf: "gpt2",
    checkpoints: &["gpt2"],
    pairs: None,
    gate: Gate::GeluTanh,
    fused_qkv: true,
    position_embeddings: true,
    ..BIASED
};
pub(super) const ENCODER: Family =
    Family { encoder: true, residual_norms: true, embedding_norm: true, layer_norms: true, ..DECODER };
