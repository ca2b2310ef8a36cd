//! A checkpoint's `config.json` as the metadata that GGUF files have, which [`Config`](crate::model::Config) is read from.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value as Json;

use super::aliases;
use super::factors::Factors;
use super::gemma3n;
use super::layout::Layout;
use super::space;
use super::values::{Divisors, Source};
use crate::gguf::{Value, ValueType, Writer};
use crate::model::family::Windows;
use crate::model::{Architecture, Gate};

/// Sizes: their names in both.
const SIZES: [(&str, &str); 33] = [
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    // Nemotron-H has the first one.
    ("attention_head_dim", "attention.key_length"),
    ("head_dim", "attention.key_length"),
    ("intermediate_size", "feed_forward_length"),
    // Of Llama 4 that of layers without experts.
    ("intermediate_size_mlp", "feed_forward_length"),
    ("max_position_embeddings", "context_length"),
    ("vocab_size", "vocab_size"),
    ("num_experts", "expert_count"),
    ("num_local_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    // DeepSeek's kind of experts, of GLM and dots.llm1.
    ("n_routed_experts", "expert_count"),
    ("n_shared_experts", "expert_shared_count"),
    ("n_group", "expert_group_count"),
    ("topk_group", "expert_group_used_count"),
    ("first_k_dense_replace", "leading_dense_block_count"),
    ("num_nextn_predict_layers", "nextn_predict_layers"),
    // The same of Ernie.
    ("moe_num_experts", "expert_count"),
    ("moe_k", "expert_used_count"),
    ("moe_layer_start_index", "leading_dense_block_count"),
    // Of Hunyuan, LFM2 and MiniMax.
    ("moe_topk", "expert_used_count"),
    ("num_dense_layers", "leading_dense_block_count"),
    ("conv_L_cache", "shortconv.l_cache"),
    ("rotary_dim", "rope.dimension_count"),
    ("moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ("full_attention_interval", "full_attention_interval"),
    ("linear_conv_kernel_dim", "ssm.conv_kernel"),
    ("linear_num_key_heads", "ssm.group_count"),
    ("linear_num_value_heads", "ssm.time_step_rank"),
    ("linear_key_head_dim", "ssm.state_size"),
];
const RMS_NORM: &str = "attention.layer_norm_rms_epsilon";
const LAYER_NORM: &str = "attention.layer_norm_epsilon";
/// Numbers: their names in both.
const NUMBERS: [(&str, &str); 16] = [
    ("rms_norm_eps", RMS_NORM),
    // Cohere's and StableLM's, StarCoder's, and Nemotron's.
    ("layer_norm_eps", LAYER_NORM),
    ("norm_epsilon", LAYER_NORM),
    ("layer_norm_epsilon", LAYER_NORM),
    ("norm_eps", LAYER_NORM),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    // Of OLMo.
    (CLIP, "attention.clamp_kqv"),
    // Granite, and the first one MiniCPM.
    ("scale_emb", "embedding_scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
    ("attention_multiplier", "attention.scale"),
    // A factor, of Cohere.
    ("logit_scale", "logit_scale"),
    ("routed_scaling_factor", "expert_weights_scale"),
];
/// Bounds of queries, keys and values.
const CLIP: &str = "clip_qkv";
/// Whether a token of Gemma sees those behind it, too.
const BIDIRECTIONAL: &str = "use_bidirectional_attention";
/// What decides nothing, or what tensors show by themselves, is not looked at. What would change a result and is not supported is refused unless it has
/// one of these values.
const USUAL: [(&str, &[&str]); 33] = [
    // Gemma 3n scales the first stream in front of the gates of embeddings.
    ("altup_correct_scale", &["true"]),
    ("use_sliding_window", &["false"]),
    // Gemma 4 sees images as a whole, and texts by tokens.
    // Bounds of queries, keys and values behind norms.
    (CLIP, &[]),
    (BIDIRECTIONAL, &["false", "\"vision\""]),
    // Layers without experts among those with them.
    ("decoder_sparse_step", &["1"]),
    ("mlp_only_layers", &["[]"]),
    ("moe_layer_freq", &["1"]),
    // Layers of Hunyuan that attend to what others have, or have no experts.
    ("use_cla", &["false"]),
    ("moe_layer_num_skipped", &["0"]),
    // Factors of sums, of MiniMax, and norms of other heads.
    ("layernorm_full_attention_beta", &["1.0", "1"]),
    ("layernorm_linear_attention_beta", &["1.0", "1"]),
    ("layernorm_mlp_beta", &["1.0", "1"]),
    ("qk_norm_type", &["\"per_layer\""]),
    // Ling: routers for several kinds of tokens.
    ("multi_gate", &["false"]),
    // Falcon: models without one head of keys or groups of heads, of the first generation.
    ("multi_query", &["true"]),
    ("parallel_attn", &["true"]),
    ("alibi", &["false"]),
    // GPT-2: scores that are scaled otherwise, or not at all, and attention to another text.
    ("scale_attn_weights", &["true"]),
    ("scale_attn_by_inverse_layer_idx", &["false"]),
    ("add_cross_attention", &["false"]),
    // Nemotron-H: experts of fewer elements than the residual stream has, and activations behind the convolution.
    ("moe_latent_size", &[]),
    ("mamba_hidden_act", &["\"silu\""]),
    // Falcon-H1 and Mamba-2: biases, which no model has.
    ("projectors_bias", &["false"]),
    ("mamba_proj_bias", &["false"]),
    ("use_conv_bias", &["true"]),
    // Trinity: scores of experts.
    ("route_norm", &["true"]),
    ("score_func", &["\"sigmoid\""]),
    // Neighbours are rotated by latent attention.
    ("rope_interleave", &["true"]),
    // StableLM's parallel layers have norms of heads, and Cohere's layers are all parallel.
    ("use_parallel_residual", &["false"]),
    ("use_parallel_block", &["true"]),
    // Gates of Qwen 3.5's attention.
    ("attn_output_gate", &["true"]),
    // The bounds and the slope of gpt-oss's activation.
    ("swiglu_limit", &["7.0", "7"]),
    ("swiglu_alpha", &["1.702"]),
];

/// What a configuration says that is not metadata.
pub(super) struct Told {
    pub(super) architecture: Architecture,
    /// Whether the output matrix is the embedding matrix; `None` if nothing is said.
    pub(super) tied: Option<bool>,
    /// Divisors of frequencies, and the tensors that GGUF files have them in.
    pub(super) divisors: Divisors,
    pub(super) layout: Layout,
    pub(super) factors: Factors,
    /// Whether the numbers that an input has in the output matrix are divided by their length.
    pub(super) normed_output: bool,
    /// The numbers of layers behind the model's, which guess more tokens.
    pub(super) predictors: Range<u32>,
}

impl Source<'_> {
    fn activation(&mut self, architecture: Architecture) -> Result<(), String> {
        const ACTIVATION: &str = "hidden_activation";
        let usual = architecture.family().gate;
        let keys = match usual {
            Gate::GeluTanh => [ACTIVATION, "hidden_act"],
            Gate::ReluSquared => ["mlp_hidden_act", "hidden_act"],
            _ => ["hidden_act", ACTIVATION],
        };
        // The usual one, and what models may have in its place: networks without a gate have either form of the GELU.
        let gates: &[Gate] = match &usual {
            Gate::Gelu if !architecture.family().gated => &[Gate::Gelu, Gate::GeluTanh],
            Gate::GeluTanh if !architecture.family().gated => &[Gate::GeluTanh, Gate::Gelu],
            Gate::ClampedSwiglu => &[Gate::Silu],
            own => std::slice::from_ref(own),
        };
        let Some((key, found)) = keys.iter().find_map(|key| Some((key, self.get(key)?.clone()))) else {
            return Ok(());
        };
        let gate = match found.as_str().unwrap_or_default() {
            // The first configurations of Gemma mean its approximation.
            "gelu" if architecture == Architecture::Gemma => Some(usual),
            "xielu" if usual == Gate::Xielu => Some(usual),
            name => Gate::named(name).filter(|gate| gates.contains(gate)),
        };
        match (gate, found.as_str()) {
            (Some(gate), _) if gate == gates[0] => Ok(()),
            (Some(_), Some(name)) => self.set(ACTIVATION, Value::String(name)),
            _ => Err(format!("{key} is {found}: only {} are supported", Gate::names(gates))),
        }
    }

    /// MiniCPM's factors of what layers add, and of logits, that of Cohere, and that of Trinity's embeddings. What the library assumes where nothing is said is not what GGUF files mean.
    fn scales(&mut self, architecture: Architecture) -> Result<(), String> {
        if architecture.family().logit_factor {
            return Self::positive(self.json, "logit_scale").map(|_| ());
        }
        // The factor of Trinity's embeddings is that of GGUF files, or there is none.
        if architecture == Architecture::Afmoe && self.flag("mup_enabled")? != Some(true) {
            return self.set("embedding_scale", Value::F32(1.0));
        }
        if !matches!(architecture, Architecture::MiniCpm | Architecture::MiniCpm3) {
            return Ok(());
        }
        Self::positive(self.json, "scale_emb")?;
        let [depth, base, layers, width] =
            ["scale_depth", "dim_model_base", "num_hidden_layers", "hidden_size"]
                .map(|key| Self::positive(self.json, key));
        self.set("residual_scale", Value::F32((depth? / layers?.sqrt()) as f32))?;
        self.set("logit_scale", Value::F32((width? / base?) as f32))
    }

    /// What the library assumes of GPT-NeoX and GPT-2, of Falcon and StarCoder, whose heads share one of keys, and of OLMo, Qwen 1 and Apertus.
    fn neox(&mut self, architecture: Architecture) -> Result<(), String> {
        const PARALLEL: &str = "use_parallel_residual";
        match architecture {
            Architecture::GptNeoX => match self.flag(PARALLEL)? {
                None => Ok(()),
                Some(parallel) => self.set(PARALLEL, Value::Bool(parallel)),
            },
            // No configuration says it.
            Architecture::Olmo => self.set(LAYER_NORM, Value::F32(1e-5)),
            // The library scales frequencies then.
            Architecture::Apertus
                if ["rope_parameters", "rope_scaling"].iter().all(|key| self.get(key).is_none()) =>
            {
                Err("rope_parameters is missing".to_owned())
            }
            // Longer texts have other frequencies, and scores with factors.
            Architecture::Qwen => {
                let context = self.size("seq_length")?.unwrap_or(2048);
                self.set("context_length", Value::U32(context))
            }
            Architecture::Falcon | Architecture::Gpt2 | Architecture::StarCoder => {
                // Of models with groups of heads the layout says how many heads of keys there are.
                if !self.has_groups()? && architecture != Architecture::Gpt2 {
                    self.set("attention.head_count_kv", Value::U32(1))?;
                }
                let hidden = self.size("hidden_size")?.unwrap_or(0);
                let width = self.size("intermediate_size")?.unwrap_or(hidden.saturating_mul(4));
                let context = self.size("max_position_embeddings")?.unwrap_or(2048);
                self.set("context_length", Value::U32(context))?;
                self.set("feed_forward_length", Value::U32(width))
            }
            _ => Ok(()),
        }
    }

    /// What Llama 4 differs in: layers with experts, chunks of attention, and temperatures of scores from a position on.
    fn llama4(&mut self, architecture: Architecture) -> Result<(), String> {
        const EXPERTS: &str = "moe_layers";
        if architecture != Architecture::Llama4 {
            return Ok(());
        }
        let step = self.size("interleave_moe_layer_step")?.unwrap_or(1).max(1);
        self.set("interleave_moe_layer_step", Value::U32(step))?;
        let layers = self.size("num_hidden_layers")?.unwrap_or(0);
        if let Some(said) = self.get(EXPERTS).and_then(Json::as_array) {
            let every = (0..layers).filter(|layer| (layer + 1) % step == 0);
            if !every.map(u64::from).map(Some).eq(said.iter().map(Json::as_u64)) {
                return Err(format!(
                    "{EXPERTS} are not the last of each {step} layers, which is not supported"
                ));
            }
        }
        if let Some(normed) = self.flag("use_qk_norm")? {
            self.set("attention.qk_norm", Value::Bool(normed))?;
        }
        // The token at which a chunk ends is the first one that has a temperature.
        let chunk = self.size("attention_chunk_size")?.unwrap_or(8192);
        let floor = match self.flag("attn_temperature_tuning")? {
            Some(false) => u32::MAX,
            _ => self.size("floor_scale")?.unwrap_or(8192).saturating_sub(1),
        };
        match chunk.min(floor) {
            0 => {
                Err("attention_chunk_size and floor_scale leave no position without a temperature".to_owned())
            }
            longest => self.set("attention.temperature_length", Value::U32(longest)),
        }
    }

    /// Windows of all layers, or of those between others; elsewhere the context ends where not every position would be seen.
    fn window(&mut self, architecture: Architecture, context: u32) -> Result<(), String> {
        let Some(window) = self.size("sliding_window")? else { return Ok(()) };
        let windows = &architecture.family().windows;
        if matches!(windows, Windows::No) {
            // Qwen has a window beside `use_sliding_window: false`.
            if self.get("use_sliding_window").is_none() {
                self.set("context_length", Value::U32(context.min(window)))?;
            }
            return Ok(());
        }
        self.set("attention.sliding_window", Value::U32(window))?;
        if matches!(windows, Windows::All) {
            return Ok(());
        }
        const PATTERN: &str = "attention.sliding_window_pattern";
        if let Some(local) = self.layers_of_kind(["sliding_attention", "full_attention"])? {
            let key = format!("{}.{PATTERN}", self.prefix);
            let local = local.into_iter().map(Value::Bool);
            return self.writer.set_array(&key, ValueType::Bool, local).map_err(|e| e.to_string());
        }
        match self.size("sliding_window_pattern")? {
            Some(period) => self.set(PATTERN, Value::U32(period)),
            None => Ok(()),
        }
    }

    /// Tokens that begin and end texts; `generation` is the file about generation, which counts first.
    fn tokens(&mut self, generation: &Json, tokenizer: &Json) -> Result<(), String> {
        let of = |key: &str| [generation, self.json].iter().find_map(|j| j.get(key).filter(|v| !v.is_null()));
        let all = |value: Option<&Json>| -> Vec<u32> {
            let list = value.map_or(&[][..], |v| v.as_array().map_or(std::slice::from_ref(v), |a| a));
            list.iter().filter_map(|v| u32::try_from(v.as_u64()?).ok()).collect()
        };
        let (begin, ends) = (all(of("bos_token_id")), all(of("eos_token_id")));
        let add = tokenizer.get("add_bos_token").and_then(Json::as_bool);
        let mut set = |key: &str, value| {
            self.writer.set(&format!("tokenizer.ggml.{key}"), value).map_err(|e| e.to_string())
        };
        if let Some(&token) = begin.first() {
            set("bos_token_id", Value::U32(token))?;
        }
        if let Some(add) = add {
            set("add_bos_token", Value::Bool(add))?;
        }
        let keys = ["eos_token_id", "eot_token_id", "eom_token_id"];
        if ends.len() > keys.len() {
            return Err(format!(
                "eos_token_id has {} tokens: at most {} are supported",
                ends.len(),
                keys.len()
            ));
        }
        keys.iter().zip(ends).try_for_each(|(key, token)| set(key, Value::U32(token)))
    }
}

/// The architecture of a `model_type`. Some types are several architectures.
fn architecture(json: &Json, kind: &str) -> Result<Option<Architecture>, String> {
    let found = Architecture::ALL.iter().copied().find(|a| a.family().checkpoints.contains(&kind));
    Ok(match found {
        Some(Architecture::Bert) if json.get("position_embedding_type").is_some_and(|of| of == "alibi") => {
            Some(Architecture::JinaBertV2)
        }
        Some(Architecture::Gemma3) if json.get(BIDIRECTIONAL) == Some(&Json::Bool(true)) => {
            Some(Architecture::GemmaEmbedding)
        }
        // Two generations have the same type.
        Some(Architecture::BailingMoe)
            if json.get("architectures").is_some_and(|all| all[0] == "BailingMoeV2ForCausalLM") =>
        {
            Some(Architecture::BailingMoe2)
        }
        Some(Architecture::NemotronH) if space::kinds(json)?.contains(&space::Kind::Experts) => {
            Some(Architecture::NemotronHMoe)
        }
        found => found,
    })
}

/// Sets the metadata of a model with this configuration; the other files may be null.
///
/// # Errors
/// A reason, with the name of a value. What is wrong with sizes is found where metadata are read.
pub(super) fn metadata(
    [json, generation, tokenizer, pooling]: [&Json; 4],
    writer: &mut Writer,
) -> Result<Told, String> {
    let kind = json.get("model_type").and_then(Json::as_str).unwrap_or_default();
    let kinds = |a: &Architecture| a.family().checkpoints;
    let Some(architecture) = architecture(json, kind)? else {
        let names: BTreeSet<_> = Architecture::ALL.iter().flat_map(kinds).copied().collect();
        let names = Vec::from_iter(names);
        let found: String = kind.chars().take(64).collect();
        return Err(format!("model_type is {found:?}: checkpoints are supported of {}", names.join(", ")));
    };
    let json = &aliases::config(architecture, json);
    let mut source = Source { json, writer, prefix: architecture.name() };
    source
        .writer
        .set("general.architecture", Value::String(architecture.name()))
        .map_err(|e| e.to_string())?;
    // NeoX has models with parallel layers and others, and OLMo models with bounds; by the third key an architecture is told.
    let known = match architecture {
        Architecture::GptNeoX => "use_parallel_residual",
        Architecture::GemmaEmbedding => BIDIRECTIONAL,
        Architecture::Olmo => CLIP,
        _ => "",
    };
    let usual = USUAL.iter().copied().filter(|(key, _)| *key != known);
    source.refuse_others(&usual.collect::<Vec<_>>())?;
    source.activation(architecture)?;
    // Networks of Gemma 3n may differ in this.
    let each = |key| architecture == Architecture::Gemma3n && key == gemma3n::WIDTH;
    for (key, to) in SIZES.into_iter().filter(|(key, _)| !each(*key)) {
        if let Some(size) = source.size(key)? {
            source.set(to, Value::U32(size))?;
        }
    }
    for (key, to) in NUMBERS {
        if let Some(number) = Source::number(json, key)? {
            // Names are those of both kinds of norms.
            let own = if architecture.family().layer_norms { LAYER_NORM } else { RMS_NORM };
            let to = if [RMS_NORM, LAYER_NORM].contains(&to) { own } else { to };
            source.set(to, Value::F32(number as f32))?;
        }
    }
    let scalar = Source::number(json, "query_pre_attn_scalar")?;
    if let Some(scalar) = scalar.filter(|_| !architecture.family().unscaled_scores) {
        source.set("attention.scale", Value::F32(scalar.powf(-0.5) as f32))?;
    }
    source.experts(architecture)?;
    source.scales(architecture)?;
    source.gemma3n(architecture)?;
    source.gemma4(architecture)?;
    source.neox(architecture)?;
    source.llama4(architecture)?;
    source.encoder(architecture)?;
    let layout = source.layout(architecture)?;
    let factors = source.factors(architecture)?;
    let layers = source.size("num_hidden_layers")?.unwrap_or(0);
    let context = source.size("max_position_embeddings")?.unwrap_or(0);
    let divisors = source.rope(architecture, [layers, context])?;
    source.window(architecture, context)?;
    source.linear_attention(architecture)?;
    source.convolution(architecture, layers)?;
    source.state_space(architecture)?;
    source.uneven(architecture)?;
    source.tokens(generation, tokenizer)?;
    source.pooling(pooling).map_err(|e| format!("1_Pooling/config.json {e}"))?;
    let tied = source.get("tie_word_embeddings").or(source.get("tie_embedding")).and_then(Json::as_bool);
    let predictors = match (layers, source.size("num_nextn_predict_layers")?) {
        (1.., Some(count)) => layers..layers.saturating_add(count),
        _ => 0..0,
    };
    let normed_output = source.get("norm_head") == Some(&Json::Bool(true));
    // Encoders have no output matrix.
    let tied = tied.filter(|_| !architecture.family().encoder);
    Ok(Told { architecture, tied, divisors, layout, factors, normed_output, predictors })
}
