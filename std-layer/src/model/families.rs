//! Architectures: what the models of each have in common and their files do not say, a row for each.

use super::architecture::{Architecture, Gate, Scoring};
use super::bases::{
    three_of_four, BIASED, COHERE, DECODER, DEEPSEEK2, ENCODER, GEMMA, GEMMA3, GLM, GPT2, GRANITE, HALVES,
    HUNYUAN, LAYER_NORMS, LFM2, LLAMA, MINICPM, MINICPM3, NEIGHBOURS, NEMOTRON_H, QWEN2, QWEN3, QWEN3_NEXT,
};
use super::family::{Family, LocalRotation, Mixture, Pairs, Recurrent, Window, Windows, Without};

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

/// In the order of [`Architecture`].
static FAMILIES: [Family; 79] = [
    Family { checkpoints: &["llama", "mistral", "mixtral"], experts: Mixture::Some, ..LLAMA },
    Family {
        architecture: Architecture::Llama4,
        gguf: "llama4",
        checkpoints: &["llama4_text"],
        pairs: Some(NEIGHBOURS),
        unrotated_period: Some(4),
        // From the token behind these on scores have a temperature, and layers that are rotated see no token before it.
        longest: Some(8191),
        experts: Mixture::Scaling,
        normalised: false,
        qk_norm: true,
        qk_norm_unweighted: true,
        qk_norm_behind: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Deci,
        gguf: "deci",
        checkpoints: &["nemotron-nas", "deci"],
        uneven: true,
        ..LLAMA
    },
    Family { architecture: Architecture::Mistral3, gguf: "mistral3", checkpoints: &["ministral3"], ..LLAMA },
    Family {
        architecture: Architecture::Qwen,
        gguf: "qwen",
        checkpoints: &["qwen"],
        fused_qkv: true,
        halved_networks: true,
        ..QWEN2
    },
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
        normalised: false,
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
    Family {
        architecture: Architecture::Qwen3VlMoe,
        gguf: "qwen3vlmoe",
        checkpoints: &["qwen3_vl_moe_text"],
        experts: Mixture::Always,
        ..QWEN3
    },
    Family { checkpoints: &["hunyuan_v1_dense"], ..HUNYUAN },
    Family {
        architecture: Architecture::HunyuanMoe,
        gguf: "hunyuan-moe",
        checkpoints: &["hunyuan_v1_moe"],
        experts: Mixture::Wide,
        ..HUNYUAN
    },
    Family { checkpoints: &["qwen3_next"], experts: Mixture::Shared, ..QWEN3_NEXT },
    Family {
        architecture: Architecture::Qwen35,
        gguf: "qwen35",
        checkpoints: &["qwen3_5_text"],
        recurrent: Recurrent::Tiled { period: 4 },
        ..QWEN3_NEXT
    },
    Family {
        architecture: Architecture::Qwen35Moe,
        gguf: "qwen35moe",
        checkpoints: &["qwen3_5_moe_text"],
        recurrent: Recurrent::Tiled { period: 4 },
        experts: Mixture::Shared,
        ..QWEN3_NEXT
    },
    GEMMA,
    Family {
        architecture: Architecture::Gemma2,
        gguf: "gemma2",
        checkpoints: &["gemma2"],
        windows: Windows::Periodic {
            period: 2,
            without: Without::Last,
            usual: Window::Size(4096),
            rotation: LocalRotation::Same,
        },
        post_norms: true,
        scores_by_width: Some(46),
        ..GEMMA
    },
    GEMMA3,
    Family {
        architecture: Architecture::GemmaEmbedding,
        gguf: "gemma-embedding",
        // Told by what a configuration of Gemma 3 says.
        checkpoints: &[],
        encoder: true,
        scores_by_width: None,
        ..GEMMA3
    },
    Family {
        architecture: Architecture::Gemma3n,
        gguf: "gemma3n",
        checkpoints: &["gemma3n_text"],
        norms_lack_one: false,
        windows: Windows::Periodic {
            period: 5,
            without: Without::Last,
            usual: Window::Needed,
            rotation: LocalRotation::Unscaled(Some(10_000.0)),
        },
        qk_norm: true,
        value_norm: true,
        local_heads: true,
        streams: true,
        unscaled_scores: true,
        post_norms: true,
        logit_softcap: Some(30.0),
        ..GEMMA
    },
    Family {
        architecture: Architecture::Gemma4,
        gguf: "gemma4",
        checkpoints: &["gemma4_text"],
        norms_lack_one: false,
        // Layers without windows have frequencies that are divided, most of them so far that nothing turns.
        windows: Windows::Periodic {
            period: 6,
            without: Without::Last,
            usual: Window::Needed,
            rotation: LocalRotation::Unscaled(Some(10_000.0)),
        },
        experts: Mixture::Normed,
        qk_norm: true,
        value_norm: true,
        local_heads: true,
        unscaled_scores: true,
        post_norms: true,
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
        architecture: Architecture::PhiMoe,
        gguf: "phimoe",
        checkpoints: &["phimoe"],
        windows: Windows::All,
        experts: Mixture::Wide,
        normalised: false,
        output_bias: true,
        attention_output_bias: true,
        attention_bias: true,
        ..LAYER_NORMS
    },
    Family {
        architecture: Architecture::SmolLm3,
        gguf: "smollm3",
        checkpoints: &["smollm3"],
        unrotated_period: Some(4),
        ..LLAMA
    },
    Family { checkpoints: &["granite"], ..GRANITE },
    Family {
        architecture: Architecture::GraniteMoe,
        gguf: "granitemoe",
        checkpoints: &["granitemoe", "granitemoeshared"],
        experts: Mixture::Wide,
        ..GRANITE
    },
    Family {
        architecture: Architecture::GraniteHybrid,
        gguf: "granitehybrid",
        checkpoints: &["granitemoehybrid"],
        recurrent: Recurrent::StateSpace,
        experts: Mixture::Some,
        ..GRANITE
    },
    NEMOTRON_H,
    Family {
        architecture: Architecture::NemotronHMoe,
        gguf: "nemotron_h_moe",
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        ..NEMOTRON_H
    },
    Family {
        architecture: Architecture::FalconH1,
        gguf: "falcon-h1",
        checkpoints: &["falcon_h1"],
        recurrent: Recurrent::Beside,
        scales: Some(|_, _| [1.0; 3]),
        ..DECODER
    },
    Family {
        architecture: Architecture::Mamba2,
        gguf: "mamba2",
        checkpoints: &["mamba2"],
        pairs: None,
        recurrent: Recurrent::Alone,
        ..DECODER
    },
    Family {
        architecture: Architecture::Glm4Moe,
        gguf: "glm4moe",
        checkpoints: &["glm4_moe", "solar_open"],
        pairs: Some(Pairs { part: Some(0.5), ..HALVES }),
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        normalised: false,
        some_qk_norm: true,
        ffn_norm_is_post_attention: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Ernie45Moe,
        gguf: "ernie4_5-moe",
        checkpoints: &["ernie4_5_moe"],
        pairs: Some(NEIGHBOURS),
        experts: Mixture::DeepSeek(Scoring::Softmax),
        ..DECODER
    },
    Family {
        architecture: Architecture::BailingMoe2,
        gguf: "bailingmoe2",
        checkpoints: &["bailing_moe_v2"],
        pairs: Some(Pairs { part: Some(0.5), ..HALVES }),
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        normalised: false,
        fused_qkv: true,
        qk_norm: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Dots1,
        gguf: "dots1",
        checkpoints: &["dots1"],
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        normalised: false,
        qk_norm: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::MiniMaxM2,
        gguf: "minimax-m2",
        checkpoints: &["minimax_m2"],
        pairs: Some(Pairs { part: Some(1.0), ..HALVES }),
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        qk_norm: true,
        qk_norm_whole: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::BailingMoe,
        gguf: "bailingmoe",
        checkpoints: &["bailing_moe"],
        experts: Mixture::DeepSeek(Scoring::Softmax),
        normalised: false,
        ..LLAMA
    },
    Family {
        architecture: Architecture::DeepSeek,
        gguf: "deepseek",
        checkpoints: &["deepseek"],
        experts: Mixture::DeepSeek(Scoring::Softmax),
        normalised: false,
        ..LLAMA
    },
    DEEPSEEK2,
    Family {
        architecture: Architecture::Mistral4,
        gguf: "mistral4",
        checkpoints: &["mistral4"],
        ..DEEPSEEK2
    },
    Family {
        architecture: Architecture::MiniCpm,
        gguf: "minicpm",
        checkpoints: &["minicpm"],
        scales: Some(MINICPM),
        ..LLAMA
    },
    MINICPM3,
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
    Family { architecture: Architecture::InternLm2, gguf: "internlm2", checkpoints: &["internlm2"], ..LLAMA },
    Family { architecture: Architecture::Exaone, gguf: "exaone", checkpoints: &["exaone"], ..DECODER },
    Family {
        architecture: Architecture::Exaone4,
        gguf: "exaone4",
        checkpoints: &["exaone4"],
        windows: three_of_four(Window::None),
        input_norms: false,
        qk_norm: true,
        post_norms: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::ExaoneMoe,
        gguf: "exaone-moe",
        checkpoints: &["exaone_moe"],
        windows: three_of_four(Window::None),
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        normalised: false,
        qk_norm: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Olmo,
        gguf: "olmo",
        checkpoints: &["olmo"],
        layer_norms: true,
        norms_unweighted: true,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Olmo2,
        gguf: "olmo2",
        checkpoints: &["olmo2", "olmo3"],
        windows: Windows::Periodic {
            period: 4,
            without: Without::Last,
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
        architecture: Architecture::Olmoe,
        gguf: "olmoe",
        checkpoints: &["olmoe"],
        experts: Mixture::Wide,
        normalised: false,
        qk_norm: true,
        qk_norm_whole: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::Cohere2,
        gguf: "cohere2",
        checkpoints: &["cohere2"],
        windows: three_of_four(Window::Needed),
        ..COHERE
    },
    COHERE,
    Family {
        architecture: Architecture::StarCoder2,
        gguf: "starcoder2",
        checkpoints: &["starcoder2"],
        gate: Gate::GeluTanh,
        ..BIASED
    },
    Family {
        architecture: Architecture::StableLm,
        gguf: "stablelm",
        checkpoints: &["stablelm"],
        pairs: Some(Pairs { part: Some(0.25), ..HALVES }),
        some_qk_norm: true,
        qk_norm_each: true,
        some_parallel: true,
        ..LAYER_NORMS
    },
    Family {
        architecture: Architecture::Phi2,
        gguf: "phi2",
        checkpoints: &["phi"],
        pairs: Some(Pairs { part: Some(0.5), ..HALVES }),
        gate: Gate::GeluTanh,
        output_bias: true,
        parallel: true,
        shared_norm: true,
        ..BIASED
    },
    Family {
        architecture: Architecture::Jais2,
        gguf: "jais2",
        checkpoints: &["jais2"],
        gate: Gate::ReluSquared,
        ..BIASED
    },
    GPT2,
    Family {
        architecture: Architecture::StarCoder,
        gguf: "starcoder",
        checkpoints: &["gpt_bigcode"],
        ..GPT2
    },
    Family {
        architecture: Architecture::GptNeoX,
        gguf: "gptneox",
        checkpoints: &["gpt_neox"],
        pairs: Some(Pairs { part: Some(0.25), ..HALVES }),
        gate: Gate::Gelu,
        fused_qkv: true,
        parallel: true,
        ..BIASED
    },
    Family {
        architecture: Architecture::Falcon,
        gguf: "falcon",
        checkpoints: &["falcon", "RefinedWebModel", "RefinedWeb"],
        gate: Gate::Gelu,
        gated: false,
        fused_qkv: true,
        parallel: true,
        some_parallel: true,
        ..LAYER_NORMS
    },
    Family { architecture: Architecture::Baichuan, gguf: "baichuan", alibi_layers: Some(40), ..LLAMA },
    Family { architecture: Architecture::Xverse, gguf: "xverse", checkpoints: &["xverse"], ..LLAMA },
    Family { architecture: Architecture::Orion, gguf: "orion", checkpoints: &["orion"], ..LAYER_NORMS },
    Family {
        architecture: Architecture::Apertus,
        gguf: "apertus",
        checkpoints: &["apertus"],
        gate: Gate::Xielu,
        gated: false,
        qk_norm: true,
        ..DECODER
    },
    Family { architecture: Architecture::Lfm2, gguf: "lfm2", checkpoints: &["lfm2"], ..LFM2 },
    Family {
        architecture: Architecture::Lfm2Moe,
        gguf: "lfm2moe",
        checkpoints: &["lfm2_moe"],
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        ..LFM2
    },
    Family {
        architecture: Architecture::Nemotron,
        gguf: "nemotron",
        checkpoints: &["nemotron"],
        pairs: Some(Pairs { part: Some(0.5), ..HALVES }),
        gate: Gate::ReluSquared,
        gated: false,
        norms_lack_one: true,
        ..LAYER_NORMS
    },
    Family {
        architecture: Architecture::Arcee,
        gguf: "arcee",
        checkpoints: &["arcee"],
        gate: Gate::ReluSquared,
        gated: false,
        ..LLAMA
    },
    Family {
        architecture: Architecture::Afmoe,
        gguf: "afmoe",
        checkpoints: &["afmoe"],
        windows: three_of_four(Window::Needed),
        experts: Mixture::DeepSeek(Scoring::Sigmoid),
        normalised: false,
        qk_norm: true,
        post_norms: true,
        gates_apart: true,
        embedding_by_width: true,
        ..DECODER
    },
    Family {
        architecture: Architecture::GptOss,
        gguf: "gpt-oss",
        checkpoints: &["gpt_oss"],
        windows: Windows::Periodic {
            period: 2,
            without: Without::Last,
            usual: Window::Needed,
            rotation: LocalRotation::Same,
        },
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
        checkpoints: &["bert", "roberta", "xlm-roberta", "camembert"],
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
    Family {
        architecture: Architecture::NomicBert,
        gguf: "nomic-bert",
        checkpoints: &["nomic_bert"],
        fused_qkv: true,
        ..ENCODER
    },
    Family {
        architecture: Architecture::ModernBert,
        gguf: "modern-bert",
        checkpoints: &["modernbert"],
        residual_norms: false,
        windows: Windows::Periodic {
            period: 3,
            without: Without::First,
            usual: Window::None,
            rotation: LocalRotation::Unscaled(Some(10_000.0)),
        },
        gate: Gate::Gelu,
        fused_gate_up: true,
        fused_qkv: true,
        ..ENCODER
    },
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
