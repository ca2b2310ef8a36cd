//! Architectures: what the models of each have in common and their files do not say, a row for each.

use gllm_kernels_core::RopePairing;

/// The family of models that a file names; for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 2 and 3, Mistral, Mixtral, SmolLM, TinyLlama.
    Llama,
    /// Ministral 3.
    Mistral3,
    /// Qwen 2 and 2.5.
    Qwen2,
    /// Texts alone of Qwen 2 VL and 2.5 VL.
    Qwen2Vl,
    /// Mixtures of experts of Qwen 1.5 and 2.
    Qwen2Moe,
    /// Qwen 3.
    Qwen3,
    /// Texts alone of Qwen 3 VL.
    Qwen3Vl,
    /// Mixtures of experts of Qwen 3.
    Qwen3Moe,
    /// Texts alone of the mixtures of experts of Qwen 3 VL.
    Qwen3VlMoe,
    /// Gemma 1.
    Gemma,
    /// Gemma 2.
    Gemma2,
    /// Gemma 3.
    Gemma3,
    /// Phi 3, 3.5 and 4, but for mixtures of experts.
    Phi3,
    /// SmolLM 3.
    SmolLm3,
    /// Granite 3 and 4, but for hybrids.
    Granite,
    /// Mixtures of experts of Granite 3.
    GraniteMoe,
    /// MiniCPM 1, 2 and 4.
    MiniCpm,
    /// GLM 4 from 2024.
    ChatGlm,
    /// GLM 4 and Z1 from 2025.
    Glm4,
    /// Ernie 4.5, but for mixtures of experts.
    Ernie45,
    /// Seed-OSS.
    SeedOss,
    /// InternLM 2 and 2.5.
    InternLm2,
    /// Exaone 3 and 3.5.
    Exaone,
    /// Exaone 4.
    Exaone4,
    /// OLMo 2 and 3.
    Olmo2,
    /// Command A and R7B.
    Cohere2,
    /// Command R and Aya, but for those with norms of heads.
    CommandR,
    /// StarCoder 2.
    StarCoder2,
    /// StableLM 2 and 3B, but for those with norms of heads.
    StableLm,
    /// GPT-NeoX and Pythia.
    GptNeoX,
    /// Falcon with one head of keys, such as Falcon 7B.
    Falcon,
    /// OpenAI's mixtures of experts, gpt-oss-20b and gpt-oss-120b.
    GptOss,
    /// Encoders of BERT's kind: BERT, MiniLM, BGE, E5, GTE.
    Bert,
    /// Encoders of Nomic: BERT with rotations and gates.
    NomicBert,
    /// Encoders of Jina: BERT with linear biases of attention and gates.
    JinaBertV2,
}

impl Architecture {
    /// Every architecture.
    pub const ALL: &'static [Self] = &{
        let mut all = [Self::Llama; FAMILIES.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = FAMILIES[i].architecture;
            // Its number is the row's: `family` relies on it.
            assert!(all[i] as usize == i);
            i += 1;
        }
        all
    };

    pub(super) const fn family(self) -> &'static Family {
        &FAMILIES[self as usize]
    }

    /// The name in GGUF files.
    pub const fn name(self) -> &'static str {
        self.family().gguf
    }
}

/// How the gated feed-forward network joins its two halves: `gated(g, u)` with `g = gate(x)`, `u = up(x)`, which `down` multiplies. Networks without a
/// gate have `gated(up(x), 1)` in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gate {
    /// `u * g / (1 + exp(-g))`.
    Silu,
    /// `u * 0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))`.
    GeluTanh,
    /// `u * g Phi(g)`, `Phi` being the normal distribution function. (llama.cpp computes [`GeluTanh`](Self::GeluTanh) in its place.)
    Gelu,
    /// `(max(min(u, 7), -7) + 1) * h / (1 + exp(-1.702 h))` with `h = min(g, 7)`.
    ClampedSwiglu,
}

/// What is common to the models of an architecture. See [`Config`](super::Config) for what most of it means.
pub(super) struct Family {
    pub(super) architecture: Architecture,
    /// `general.architecture` in GGUF files.
    pub(super) gguf: &'static str,
    /// `model_type` in checkpoints, if they are supported.
    pub(super) checkpoints: &'static [&'static str],
    pub(super) encoder: bool,
    /// Which elements of a head are rotated together; `None` if none are.
    pub(super) pairs: Option<Pairs>,
    /// Of each so many layers, the last one is not rotated.
    pub(super) unrotated_period: Option<usize>,
    pub(super) windows: Windows,
    pub(super) experts: Mixture,
    /// Factors that files of the architecture may have, if there are any.
    pub(super) scales: Option<Scales>,
    pub(super) gate: Gate,
    pub(super) gated: bool,
    /// Whether gate and up are one matrix, unless a file has them apart.
    pub(super) fused_gate_up: bool,
    /// Whether queries, keys and values are one matrix, unless a file has them apart.
    pub(super) fused_qkv: bool,
    pub(super) up_bias: bool,
    pub(super) down_bias: bool,
    /// Whether norms are layer norms, and whether those of decoders have biases.
    pub(super) layer_norms: bool,
    pub(super) norm_biases: bool,
    pub(super) input_norms: bool,
    pub(super) qk_norm: bool,
    /// Whether these norms are of all heads together.
    pub(super) qk_norm_whole: bool,
    pub(super) post_norms: bool,
    /// Whether attention and the feed-forward network take the same residual stream, and whether they share its norm.
    pub(super) parallel: bool,
    pub(super) shared_norm: bool,
    pub(super) attention_bias: bool,
    pub(super) attention_output_bias: bool,
    pub(super) attention_sinks: bool,
    /// Whether there are linear biases.
    pub(super) alibi: bool,
    pub(super) position_embeddings: bool,
    pub(super) ffn_norm_is_post_attention: bool,
    /// Whether a file's scale of logits is a factor, and no divisor.
    pub(super) logit_factor: bool,
    /// Whether embeddings are multiplied by the square root of their length.
    pub(super) embedding_by_width: bool,
    /// The number of layers of a model whose scores are scaled by the width of the model instead of that of a head, which no key says.
    pub(super) scores_by_width: Option<usize>,
    /// Whether checkpoints have weights of norms that lack 1.
    pub(super) norms_lack_one: bool,
}

/// Which elements of a head are a pair.
#[derive(Clone, Copy)]
pub(super) struct Pairs {
    /// With GGUF files: llama.cpp stores the rows of some matrices in another order than checkpoints have.
    pub(super) gguf: RopePairing,
    pub(super) checkpoint: RopePairing,
    /// The part of a head that is rotated, where checkpoints do not say it; `None` if it is always the whole head.
    pub(super) part: Option<f64>,
}

/// Which layers see only some positions before a token.
pub(super) enum Windows {
    /// None, whatever a file says: Qwen 2 has a window beside `use_sliding_window: false`, which no key of GGUF files says.
    No,
    /// All, if the file has a window.
    All,
    /// All but the last one of each period.
    Periodic { period: u64, usual: Window, rotation: LocalRotation },
}

/// How layers with a window rotate.
#[derive(PartialEq)]
pub(super) enum LocalRotation {
    /// Like the others.
    Same,
    /// With frequencies that are not scaled, of this base unless it is that of the others.
    Unscaled(Option<f64>),
    /// The others do not rotate.
    Alone,
}

/// How long windows are if a file does not say it.
pub(super) enum Window {
    /// Then there are none.
    None,
    Size(usize),
    /// Files must say it.
    Needed,
}

/// Whether a token's feed-forward network is chosen among experts.
#[derive(PartialEq, Eq)]
pub(super) enum Mixture {
    No,
    /// Some models have experts, each as wide as the files' one width.
    Some,
    /// All models have such experts.
    Wide,
    /// Experts have a width of their own, or share that of files.
    Always,
    /// Beside the experts there is a network that every token goes through.
    Shared,
    /// Router and experts have biases.
    Biased,
}

/// Factors of embeddings and of what layers add to the residual stream, and a divisor of logits: those of a model of so many layers and
/// such a width whose file does not have them.
pub(super) type Scales = fn(layers: f64, width: f64) -> [f64; 3];

const HALVES: Pairs = Pairs { gguf: RopePairing::HalfSplit, checkpoint: RopePairing::HalfSplit, part: None };
const REORDERED: Pairs = Pairs { gguf: RopePairing::Adjacent, ..HALVES };
const NEIGHBOURS: Pairs = Pairs { checkpoint: RopePairing::Adjacent, ..REORDERED };

/// What most decoders are; each row below says what differs.
const DECODER: Family = Family {
    architecture: Architecture::Llama,
    gguf: "llama",
    checkpoints: &[],
    encoder: false,
    pairs: Some(HALVES),
    unrotated_period: None,
    windows: Windows::No,
    experts: Mixture::No,
    scales: None,
    gate: Gate::Silu,
    gated: true,
    fused_gate_up: false,
    fused_qkv: false,
    up_bias: false,
    down_bias: false,
    layer_norms: false,
    norm_biases: false,
    input_norms: true,
    qk_norm: false,
    qk_norm_whole: false,
    post_norms: false,
    parallel: false,
    shared_norm: false,
    attention_bias: false,
    attention_output_bias: false,
    attention_sinks: false,
    alibi: false,
    position_embeddings: false,
    ffn_norm_is_post_attention: false,
    logit_factor: false,
    embedding_by_width: false,
    scores_by_width: None,
    norms_lack_one: false,
};
const LLAMA: Family = Family { pairs: Some(REORDERED), ..DECODER };
const GRANITE: Family =
    Family { architecture: Architecture::Granite, gguf: "granite", scales: Some(|_, _| [1.0; 3]), ..LLAMA };
const QWEN2: Family =
    Family { architecture: Architecture::Qwen2, gguf: "qwen2", attention_bias: true, ..DECODER };
const QWEN3: Family = Family { architecture: Architecture::Qwen3, gguf: "qwen3", qk_norm: true, ..DECODER };
const GEMMA: Family = Family {
    architecture: Architecture::Gemma,
    gguf: "gemma",
    checkpoints: &["gemma"],
    gate: Gate::GeluTanh,
    embedding_by_width: true,
    norms_lack_one: true,
    ..DECODER
};
const GLM: Pairs = Pairs { part: Some(0.5), ..NEIGHBOURS };
const COHERE: Family = Family {
    architecture: Architecture::CommandR,
    gguf: "command-r",
    checkpoints: &["cohere"],
    pairs: Some(NEIGHBOURS),
    layer_norms: true,
    parallel: true,
    shared_norm: true,
    logit_factor: true,
    ..DECODER
};
/// Layer norms with biases.
const LAYER_NORMS: Family = Family { layer_norms: true, norm_biases: true, ..DECODER };
const ENCODER: Family = Family { encoder: true, layer_norms: true, ..DECODER };

/// In the order of [`Architecture`].
static FAMILIES: [Family; 35] = [
    Family { checkpoints: &["llama", "mistral", "mixtral"], experts: Mixture::Some, ..LLAMA },
    Family { architecture: Architecture::Mistral3, gguf: "mistral3", checkpoints: &["ministral3"], ..LLAMA },
    Family { checkpoints: &["qwen2"], ..QWEN2 },
    Family {
        architecture: Architecture::Qwen2Vl,
        gguf: "qwen2vl",
        checkpoints: &["qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
        ..QWEN2
    },
    Family {
        architecture: Architecture::Qwen2Moe,
        gguf: "qwen2moe",
        checkpoints: &["qwen2_moe"],
        experts: Mixture::Shared,
        ..QWEN2
    },
    Family { checkpoints: &["qwen3"], ..QWEN3 },
    Family { architecture: Architecture::Qwen3Vl, gguf: "qwen3vl", checkpoints: &["qwen3_vl_text"], ..QWEN3 },
    Family {
        architecture: Architecture::Qwen3Moe,
        gguf: "qwen3moe",
        checkpoints: &["qwen3_moe"],
        experts: Mixture::Always,
        ..QWEN3
    },
    Family { architecture: Architecture::Qwen3VlMoe, gguf: "qwen3vlmoe", experts: Mixture::Always, ..QWEN3 },
    GEMMA,
    Family {
        architecture: Architecture::Gemma2,
        gguf: "gemma2",
        checkpoints: &["gemma2"],
        windows: Windows::Periodic { period: 2, usual: Window::Size(4096), rotation: LocalRotation::Same },
        post_norms: true,
        scores_by_width: Some(46),
        ..GEMMA
    },
    Family {
        architecture: Architecture::Gemma3,
        gguf: "gemma3",
        checkpoints: &["gemma3_text"],
        // Local layers keep the frequencies of the first stage of the training.
        windows: Windows::Periodic {
            period: 6,
            usual: Window::None,
            rotation: LocalRotation::Unscaled(Some(10_000.0)),
        },
        qk_norm: true,
        post_norms: true,
        scores_by_width: Some(62),
        ..GEMMA
    },
    Family {
        architecture: Architecture::Phi3,
        gguf: "phi3",
        checkpoints: &["phi3"],
        pairs: Some(Pairs { part: Some(1.0), ..HALVES }),
        windows: Windows::All,
        fused_gate_up: true,
        fused_qkv: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::SmolLm3,
        gguf: "smollm3",
        checkpoints: &["smollm3"],
        unrotated_period: Some(4),
        ..LLAMA
    },
    Family { checkpoints: &["granite"], ..GRANITE },
    Family { architecture: Architecture::GraniteMoe, gguf: "granitemoe", experts: Mixture::Wide, ..GRANITE },
    Family {
        architecture: Architecture::MiniCpm,
        gguf: "minicpm",
        checkpoints: &["minicpm"],
        scales: Some(|layers, width| [12.0, 1.4 / layers.sqrt(), width / 256.0]),
        ..LLAMA
    },
    Family {
        architecture: Architecture::ChatGlm,
        gguf: "chatglm",
        checkpoints: &["glm"],
        pairs: Some(GLM),
        fused_gate_up: true,
        fused_qkv: true,
        attention_bias: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Glm4,
        gguf: "glm4",
        checkpoints: &["glm4"],
        pairs: Some(GLM),
        fused_gate_up: true,
        post_norms: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Ernie45,
        gguf: "ernie4_5",
        checkpoints: &["ernie4_5"],
        pairs: Some(NEIGHBOURS),
        ..DECODER
    },
    Family {
        architecture: Architecture::SeedOss,
        gguf: "seed_oss",
        checkpoints: &["seed_oss"],
        attention_bias: true,
        ffn_norm_is_post_attention: true,
        ..DECODER
    },
    Family { architecture: Architecture::InternLm2, gguf: "internlm2", ..LLAMA },
    Family { architecture: Architecture::Exaone, gguf: "exaone", ..DECODER },
    Family {
        architecture: Architecture::Exaone4,
        gguf: "exaone4",
        checkpoints: &["exaone4"],
        windows: Windows::Periodic { period: 4, usual: Window::None, rotation: LocalRotation::Alone },
        input_norms: false,
        qk_norm: true,
        post_norms: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Olmo2,
        gguf: "olmo2",
        checkpoints: &["olmo2", "olmo3"],
        windows: Windows::Periodic {
            period: 4,
            usual: Window::None,
            rotation: LocalRotation::Unscaled(None),
        },
        input_norms: false,
        qk_norm: true,
        qk_norm_whole: true,
        post_norms: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Cohere2,
        gguf: "cohere2",
        checkpoints: &["cohere2"],
        windows: Windows::Periodic { period: 4, usual: Window::Needed, rotation: LocalRotation::Alone },
        ..COHERE
    },
    COHERE,
    Family {
        architecture: Architecture::StarCoder2,
        gguf: "starcoder2",
        checkpoints: &["starcoder2"],
        gate: Gate::GeluTanh,
        gated: false,
        up_bias: true,
        down_bias: true,
        attention_bias: true,
        attention_output_bias: true,
        ..LAYER_NORMS
    },
    Family {
        architecture: Architecture::StableLm,
        gguf: "stablelm",
        checkpoints: &["stablelm"],
        pairs: Some(Pairs { part: Some(0.25), ..HALVES }),
        ..LAYER_NORMS
    },
    Family {
        architecture: Architecture::GptNeoX,
        gguf: "gptneox",
        gate: Gate::Gelu,
        gated: false,
        fused_qkv: true,
        up_bias: true,
        down_bias: true,
        attention_bias: true,
        attention_output_bias: true,
        parallel: true,
        ..LAYER_NORMS
    },
    Family {
        architecture: Architecture::Falcon,
        gguf: "falcon",
        gate: Gate::Gelu,
        gated: false,
        fused_qkv: true,
        parallel: true,
        shared_norm: true,
        ..LAYER_NORMS
    },
    Family {
        architecture: Architecture::GptOss,
        gguf: "gpt-oss",
        checkpoints: &["gpt_oss"],
        windows: Windows::Periodic { period: 2, usual: Window::Needed, rotation: LocalRotation::Same },
        experts: Mixture::Biased,
        gate: Gate::ClampedSwiglu,
        attention_bias: true,
        attention_output_bias: true,
        attention_sinks: true,
        ffn_norm_is_post_attention: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Bert,
        gguf: "bert",
        pairs: None,
        gate: Gate::Gelu,
        gated: false,
        up_bias: true,
        down_bias: true,
        attention_bias: true,
        attention_output_bias: true,
        position_embeddings: true,
        ..ENCODER
    },
    Family { architecture: Architecture::NomicBert, gguf: "nomic-bert", fused_qkv: true, ..ENCODER },
    Family {
        architecture: Architecture::JinaBertV2,
        gguf: "jina-bert-v2",
        pairs: None,
        gate: Gate::Gelu,
        fused_gate_up: true,
        down_bias: true,
        attention_bias: true,
        attention_output_bias: true,
        alibi: true,
        ..ENCODER
    },
];
