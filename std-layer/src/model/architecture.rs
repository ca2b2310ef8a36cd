//! The names of architectures, and of what differs between them in kind.

/// The family of models that a file names; for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 2 and 3, Mistral, Mixtral, SmolLM, TinyLlama.
    Llama,
    /// Texts alone of Llama 4.
    Llama4,
    /// DeciLM, and Nemotron 51B, Super and Ultra: layers of Llama that differ.
    Deci,
    /// Ministral 3.
    Mistral3,
    /// Qwen 1.
    Qwen,
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
    /// Hunyuan, but for mixtures of experts.
    HunyuanDense,
    /// Mixtures of experts of Hunyuan.
    HunyuanMoe,
    /// Qwen 3-Next.
    Qwen3Next,
    /// Qwen 3.5 and 3.6.
    Qwen35,
    /// Mixtures of experts of Qwen 3.5 and 3.6.
    Qwen35Moe,
    /// Gemma 1.
    Gemma,
    /// Gemma 2.
    Gemma2,
    /// Gemma 3.
    Gemma3,
    /// EmbeddingGemma.
    GemmaEmbedding,
    /// Texts alone of Gemma 3n.
    Gemma3n,
    /// Gemma 4.
    Gemma4,
    /// Phi 3, 3.5 and 4, but for mixtures of experts.
    Phi3,
    /// Mixtures of experts of Phi 3.5.
    PhiMoe,
    /// SmolLM 3.
    SmolLm3,
    /// Granite 3 and 4, but for hybrids.
    Granite,
    /// Mixtures of experts of Granite 3 and 4, but for hybrids.
    GraniteMoe,
    /// Hybrids of Granite 4.
    GraniteHybrid,
    /// Nemotron-H and Nemotron Nano 2.
    NemotronH,
    /// Mixtures of experts of Nemotron 3.
    NemotronHMoe,
    /// Falcon-H1.
    FalconH1,
    /// Mamba-2 alone: Codestral Mamba and the models of its authors.
    Mamba2,
    /// GLM 4.5, 4.6 and 4.7, and Solar Open.
    Glm4Moe,
    /// Mixtures of experts of Ernie 4.5.
    Ernie45Moe,
    /// Ling 2 and Ring 2.
    BailingMoe2,
    /// dots.llm1.
    Dots1,
    /// MiniMax M2.
    MiniMaxM2,
    /// Ling 1 and Ring 1.
    BailingMoe,
    /// DeepSeek's first mixture of experts.
    DeepSeek,
    /// DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash and others with their attention, and Youtu, without experts.
    DeepSeek2,
    /// Mistral 4.
    Mistral4,
    /// MiniCPM 1, 2 and 4.
    MiniCpm,
    /// MiniCPM 3.
    MiniCpm3,
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
    /// K-EXAONE.
    ExaoneMoe,
    /// OLMo 1.
    Olmo,
    /// OLMo 2 and 3.
    Olmo2,
    /// OLMoE.
    Olmoe,
    /// Command A and R7B.
    Cohere2,
    /// Command R and R+, and Aya.
    CommandR,
    /// StarCoder 2.
    StarCoder2,
    /// StableLM 2 and 3B.
    StableLm,
    /// Phi 1, 1.5 and 2.
    Phi2,
    /// Jais 2.
    Jais2,
    /// GPT-2.
    Gpt2,
    /// StarCoder 1 and Granite Code with 20 and 34 billion weights.
    StarCoder,
    /// GPT-NeoX and Pythia.
    GptNeoX,
    /// Falcon, but for models with linear biases of attention.
    Falcon,
    /// Baichuan.
    Baichuan,
    /// XVERSE, but for mixtures of experts.
    Xverse,
    /// Orion.
    Orion,
    /// Apertus.
    Apertus,
    /// LFM2 and 2.5.
    Lfm2,
    /// Mixtures of experts of LFM2.
    Lfm2Moe,
    /// Nemotron 4 and Minitron.
    Nemotron,
    /// AFM of Arcee.
    Arcee,
    /// Trinity of Arcee: mixtures of experts.
    Afmoe,
    /// OpenAI's mixtures of experts, gpt-oss-20b and gpt-oss-120b.
    GptOss,
    /// Encoders of BERT's kind: BERT, MiniLM, BGE, E5, GTE.
    Bert,
    /// Encoders of Nomic: BERT with rotations and gates.
    NomicBert,
    /// ModernBERT, and encoders like it of Granite and GTE.
    ModernBert,
    /// Encoders of Jina: BERT with linear biases of attention and gates.
    JinaBertV2,
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
    /// `u * x(g)` with `x(g) = positive g^2 + g / 2` above 0, and `x(g) = negative (exp(min(g, -1e-6)) - 1 - g) + g / 2` otherwise, with two numbers of each
    /// [layer](super::Layer::xielu). (Huang and Schlag, "Deriving Activation Functions Using Integration", 2024.)
    Xielu,
    /// `u * g max(g, 0)`: the square of what is above 0. (So et al., "Primer", 2021.)
    ReluSquared,
}

impl Gate {
    /// Those that have names in Hugging Face's library, but for those with numbers of each layer.
    pub(super) const NAMED: [Self; 4] = [Self::Silu, Self::Gelu, Self::GeluTanh, Self::ReluSquared];

    /// Its names there. That with tanh is written in several ways, which differ in rounding alone.
    const fn own_names(self) -> &'static [&'static str] {
        match self {
            Self::Silu => &["silu", "swish"],
            Self::Gelu => &["gelu", "gelu_python"],
            Self::GeluTanh => {
                &["gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"]
            }
            Self::ReluSquared => &["relu2"],
            Self::Xielu => &["xielu"],
            Self::ClampedSwiglu => &[],
        }
    }

    /// That of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|gate| gate.own_names().contains(&name))
    }

    /// The names of some, for messages.
    pub(super) fn names(of: &[Self]) -> String {
        let names: Vec<_> = of.iter().flat_map(|gate| gate.own_names()).copied().collect();
        names.join(", ")
    }
}

/// How a router's products become scores of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scoring {
    /// Their softmax.
    Softmax,
    /// `1 / (1 + exp(-x))` of each.
    Sigmoid,
    /// For each expert that is taken another softmax, of the products `x` of those that are left and near: with `m` being the largest of these,
    /// `exp(m) / sum of exp(x)` over those with `(m - x) / max(|x|, m) <= 0.02`. (Liu et al., "GRIN: GRadient-INformed MoE", 2024; `sparsemixer` of Hugging Face's library.)
    SparseMixer,
}
