//! A checkpoint's `config.json` as the metadata that GGUF files have, which [`Config`](crate::model::Config) is read from.

use serde_json::Value as Json;

use crate::gguf::{Value, ValueType, Writer};
use crate::model::family::{LocalRotation, Mixture, Recurrent, Windows};
use crate::model::{names, Architecture, Gate};

/// Sizes: their names in both.
const SIZES: [(&str, &str); 25] = [
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("intermediate_size", "feed_forward_length"),
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
    ("linear_conv_kernel_dim", "ssm.conv_kernel"),
    ("linear_num_key_heads", "ssm.group_count"),
    ("linear_num_value_heads", "ssm.time_step_rank"),
    ("linear_key_head_dim", "ssm.state_size"),
];
/// Numbers: their names in both.
const NUMBERS: [(&str, &str); 14] = [
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    // Cohere's and StableLM's, StarCoder's, and Nemotron's.
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("norm_epsilon", "attention.layer_norm_epsilon"),
    ("norm_eps", "attention.layer_norm_epsilon"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
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
/// What decides nothing, or what tensors show by themselves, is not looked at. What would change a result and is not supported is refused unless it has
/// one of these values.
const USUAL: [(&str, &[&str]); 10] = [
    ("use_sliding_window", &["false"]),
    ("use_bidirectional_attention", &["false"]),
    // Bounds of queries, keys and values.
    ("clip_qkv", &[]),
    // Layers without experts among those with them.
    ("decoder_sparse_step", &["1"]),
    ("mlp_only_layers", &["[]"]),
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
}

type Divisors = Vec<(&'static str, Vec<f32>)>;

/// The configuration, with what messages call it.
struct Source<'j> {
    json: &'j Json,
    writer: &'j mut Writer,
    prefix: &'static str,
}

impl Source<'_> {
    fn get(&self, key: &str) -> Option<&Json> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    fn set(&mut self, key: &str, value: Value<'_>) -> Result<(), String> {
        let key = format!("{}.{key}", self.prefix);
        self.writer.set(&key, value).map_err(|e| e.to_string())
    }

    /// A size: metadata have 32 bits for it.
    fn size(&self, key: &str) -> Result<Option<u32>, String> {
        let size = |value: &Json| value.as_u64().and_then(|n| u32::try_from(n).ok());
        let read = |value| {
            size(value).ok_or_else(|| format!("{key} is {value}: it must be a whole number below 2^32"))
        };
        self.get(key).map(read).transpose()
    }

    /// A number of the configuration, or of an object in it.
    fn number(of: &Json, key: &str) -> Result<Option<f64>, String> {
        let read =
            |value: &Json| value.as_f64().ok_or_else(|| format!("{key} is {value}: it must be a number"));
        of.get(key).filter(|value| !value.is_null()).map(read).transpose()
    }

    fn positive(of: &Json, key: &str) -> Result<f64, String> {
        let number = Self::number(of, key)?.filter(|&x| x > 0.0 && x.is_finite());
        number.ok_or_else(|| format!("{key} is missing, or is no positive number"))
    }

    fn activation(&self, architecture: Architecture) -> Result<(), String> {
        let (keys, expected) = match architecture.family().gate {
            Gate::GeluTanh => (["hidden_activation", "hidden_act"], "gelu_pytorch_tanh"),
            Gate::ReluSquared => (["hidden_act", "hidden_activation"], "relu2"),
            _ => (["hidden_act", "hidden_activation"], "silu"),
        };
        match keys.iter().find_map(|key| Some((key, self.get(key)?))) {
            Some((key, found)) if found.as_str() != Some(expected) => {
                Err(format!("{key} is {found}: only {expected:?} is supported"))
            }
            _ => Ok(()),
        }
    }

    /// How wide an expert is, and whether scores are normalised: what the library assumes where nothing is said is not what GGUF files mean.
    fn experts(&mut self, architecture: Architecture) -> Result<(), String> {
        const NORMALISED: &str = "norm_topk_prob";
        let kind = &architecture.family().experts;
        let width = match kind {
            Mixture::No | Mixture::Some | Mixture::Normed => return Ok(()),
            Mixture::Always | Mixture::Shared | Mixture::DeepSeek(_) => "moe_intermediate_size",
            Mixture::Wide | Mixture::Biased => "intermediate_size",
        };
        let size = self.size(width)?.ok_or_else(|| format!("{width} is missing"))?;
        self.set("expert_feed_forward_length", Value::U32(size))?;
        if *kind == Mixture::Biased {
            return Ok(());
        }
        if architecture == Architecture::Ernie45Moe {
            return self.experts_of_ernie(size);
        }
        let normalised = match self.get(NORMALISED) {
            None => false,
            Some(Json::Bool(normalised)) => *normalised,
            Some(found) => return Err(format!("{NORMALISED} is {found}: it must be true or false")),
        };
        self.set("expert_weights_norm", Value::Bool(normalised))
    }

    /// What is not a key of its own in GGUF files, or has no place there, where experts are `width` wide.
    fn experts_of_ernie(&mut self, width: u32) -> Result<(), String> {
        const SHARED: &str = "moe_num_shared_experts";
        const END: &str = "moe_layer_end_index";
        let all = self.size(SHARED)?.unwrap_or(0).checked_mul(width);
        let all =
            all.ok_or_else(|| format!("{SHARED} times the {width} elements of an expert is 2^32 or more"))?;
        self.set("expert_shared_feed_forward_length", Value::U32(all))?;
        if let Some(step) = self.size("moe_layer_interval")? {
            self.set("interleave_moe_layer_step", Value::U32(step))?;
        }
        let last = self.size("num_hidden_layers")?.map_or(-1, |layers| i64::from(layers) - 1);
        match self.get(END) {
            Some(end) if ![Some(-1), Some(last)].contains(&end.as_i64()) => Err(format!(
                "{END} is {end}: layers without experts behind those with them are not supported"
            )),
            _ => Ok(()),
        }
    }

    /// MiniCPM's factors of what layers add, and of logits, and that of Cohere. What the library assumes where nothing is said is not what GGUF files mean.
    fn scales(&mut self, architecture: Architecture) -> Result<(), String> {
        if architecture.family().logit_factor {
            return Self::positive(self.json, "logit_scale").map(|_| ());
        }
        if architecture != Architecture::MiniCpm {
            return Ok(());
        }
        Self::positive(self.json, "scale_emb")?;
        let [depth, base, layers, width] =
            ["scale_depth", "dim_model_base", "num_hidden_layers", "hidden_size"]
                .map(|key| Self::positive(self.json, key));
        self.set("residual_scale", Value::F32((depth? / layers?.sqrt()) as f32))?;
        self.set("logit_scale", Value::F32((width? / base?) as f32))
    }

    /// The elements of a head.
    fn head_dim(&self) -> Result<u32, String> {
        let heads = self.size("num_attention_heads")?.filter(|&heads| heads > 0);
        match (self.size("head_dim")?, self.size("hidden_size")?, heads) {
            (Some(dim), _, _) => Ok(dim),
            (None, Some(hidden), Some(heads)) => Ok(hidden / heads),
            _ => Err("neither head_dim nor num_attention_heads and hidden_size are there".to_owned()),
        }
    }

    /// The part of a head that is rotated, and the layers in which it is.
    fn rotated(&mut self, architecture: Architecture, layers: u32, parameters: &Json) -> Result<(), String> {
        const PART: &str = "partial_rotary_factor";
        const LAYERS: &str = "no_rope_layers";
        let family = architecture.family();
        let said = match Self::number(parameters, PART)? {
            None => Self::number(self.json, PART)?,
            said => said,
        };
        let part = match family.pairs.and_then(|pairs| pairs.part) {
            Some(usual) => said.unwrap_or(usual),
            None => said.filter(|&part| part != 1.0).map_or(Ok(1.0), |part| {
                Err(format!("{PART} is {part}: {} is not supported with it", family.gguf))
            })?,
        };
        if !(part > 0.0 && part <= 1.0) {
            return Err(format!("{PART} is {part}: it must be above 0 and at most 1"));
        }
        if part < 1.0 {
            let dims = f64::from(self.head_dim()?) * part;
            self.set("rope.dimension_count", Value::U32(dims as u32))?;
        }
        let (Some(period), Some(rotated)) = (family.unrotated_period, self.get(LAYERS)) else {
            return Ok(());
        };
        let fits = |(i, is): (usize, &Json)| is.as_u64() == Some(u64::from((i + 1) % period > 0));
        let rotated = rotated.as_array().map_or(&[][..], |all| all);
        match rotated.len() == layers as usize && rotated.iter().enumerate().all(fits) {
            true => Ok(()),
            false => Err(format!("{LAYERS} are not every {period}th layer, which is not supported")),
        }
    }

    /// The parameters of rotation of layers that see everything. Where those with a window have others, they may differ in the base, and are not scaled.
    fn of_all_layers(&mut self, architecture: Architecture, parameters: Json) -> Result<Json, String> {
        let of = |kind: &str| parameters.get(kind).filter(|of| of.is_object());
        let both = of("full_attention").zip(of("sliding_attention"));
        match (both, &architecture.family().windows) {
            (Some((all, local)), Windows::Periodic { rotation: LocalRotation::Unscaled(_), .. }) => {
                if let Some(kind) = local.get("rope_type").filter(|kind| kind.as_str() != Some("default")) {
                    return Err(format!(
                        "rope_type of sliding_attention is {kind}: only default is supported"
                    ));
                }
                if let Some(theta) = Self::number(local, "rope_theta")? {
                    self.set("rope.freq_base_swa", Value::F32(theta as f32))?;
                }
                Ok(all.clone())
            }
            _ if parameters.as_object().is_some_and(|all| all.values().any(Json::is_object)) => {
                Err("rope_parameters differ from layer to layer, which is not supported".to_owned())
            }
            _ => Ok(parameters),
        }
    }

    /// Rotary positions: the base, how they are scaled, and divisors of frequencies where those differ.
    fn rope(&mut self, architecture: Architecture, [layers, context]: [u32; 2]) -> Result<Divisors, String> {
        let context = f64::from(context);
        let parameters = self.get("rope_parameters").or_else(|| self.get("rope_scaling")).cloned();
        let parameters = self.of_all_layers(architecture, parameters.unwrap_or(Json::Null))?;
        let theta = match Self::number(&parameters, "rope_theta")? {
            None => Self::number(self.json, "rope_theta")?,
            found => found,
        };
        let theta = theta.unwrap_or(10_000.0);
        self.set("rope.freq_base", Value::F32(theta as f32))?;
        self.rotated(architecture, layers, &parameters)?;
        let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
        if let Some(beta) = Self::number(&parameters, "llama_4_scaling_beta")? {
            self.set("attention.temperature_scale", Value::F32(beta as f32))?;
        }
        // Images have positions of three dimensions; those of texts are the same in all of them.
        let usual = |kind: &&Json| match kind.as_str() {
            Some("default") => true,
            Some("mrope") => parameters.get("mrope_section").is_some(),
            _ => false,
        };
        let Some(kind) = kind.filter(|kind| !usual(kind)) else { return Ok(Vec::new()) };
        let original = |of: &Json| {
            Ok::<_, String>(Self::number(of, "original_max_position_embeddings")?.unwrap_or(context))
        };
        match kind.as_str() {
            Some("dynamic") if parameters.get("alpha").is_some() => {
                self.set("rope.scaling.alpha", Value::F32(Self::positive(&parameters, "alpha")? as f32))?;
            }
            Some("linear") => {
                self.set("rope.scaling.type", Value::String("linear"))?;
                let factor = Self::positive(&parameters, "factor")?;
                self.set("rope.scaling.factor", Value::F32(factor as f32))?;
            }
            Some("yarn") => {
                let (factor, original) = (Self::positive(&parameters, "factor")?, original(&parameters)?);
                self.set("rope.scaling.type", Value::String("yarn"))?;
                self.set("rope.scaling.factor", Value::F32(factor as f32))?;
                self.set("rope.scaling.original_context_length", Value::U32(original as u32))?;
                self.set("context_length", Value::U32(context.max(factor * original) as u32))?;
                for (key, to) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
                    if let Some(beta) = Self::number(&parameters, key)? {
                        self.set(&format!("rope.scaling.{to}"), Value::F32(beta as f32))?;
                    }
                }
                let of_yarn = |times: f64| 0.1 * times * factor.max(1.0).ln() + 1.0;
                let times =
                    |key| Ok::<_, String>(Self::number(&parameters, key)?.filter(|&times| times != 0.0));
                let attention = match Self::number(&parameters, "attention_factor")? {
                    None => {
                        times("mscale")?.zip(times("mscale_all_dim")?).map(|(a, b)| of_yarn(a) / of_yarn(b))
                    }
                    said => said,
                };
                if let Some(attention) = attention {
                    // Metadata have the factor that comes on top of YaRN's own.
                    self.set("rope.scaling.attn_factor", Value::F32((attention / of_yarn(1.0)) as f32))?;
                }
            }
            Some("llama3") => {
                let [factor, low, high] = ["factor", "low_freq_factor", "high_freq_factor"]
                    .map(|key| Self::positive(&parameters, key));
                let divisors = self.llama3([factor?, low?, high?, original(&parameters)?], theta)?;
                return Ok(vec![(names::ROPE_FACTORS.gguf, divisors)]);
            }
            // The first checkpoints called it so.
            Some("longrope" | "su") => return self.longrope(&parameters, context),
            _ => {
                return Err(format!(
                    "rope_type is {kind}: only default, linear, yarn, llama3 and longrope are supported"
                ))
            }
        }
        Ok(Vec::new())
    }

    /// LongRoPE: divisors for short texts and for long ones. Sines and cosines have a factor that depends on how much longer texts may be than those of the
    /// first training.
    fn longrope(&mut self, parameters: &Json, context: f64) -> Result<Divisors, String> {
        const ORIGINAL: &str = "original_max_position_embeddings";
        let said = [parameters, self.json].into_iter().find(|of| of.get(ORIGINAL).is_some());
        let original = said.map_or(Ok(context), |of| Self::positive(of, ORIGINAL))?;
        for key in ["short_mscale", "long_mscale"] {
            if let Some(found) = Self::number(parameters, key)? {
                return Err(format!("{key} is {found}: longrope with it is not supported"));
            }
        }
        let longer = match said {
            Some(_) => context / original,
            None => Self::number(parameters, "factor")?.unwrap_or(1.0),
        };
        let attention = match Self::number(parameters, "attention_factor")? {
            Some(factor) => factor,
            None if longer > 1.0 => (1.0 + longer.ln() / original.ln()).sqrt(),
            None => 1.0,
        };
        self.set("rope.scaling.type", Value::String("longrope"))?;
        self.set("rope.scaling.original_context_length", Value::U32(original as u32))?;
        self.set("rope.scaling.attn_factor", Value::F32(attention as f32))?;
        let list = |key: &str| {
            let numbers = parameters.get(key).and_then(Json::as_array).map(|all| all.iter());
            let numbers = numbers.and_then(|all| all.map(|x| x.as_f64().map(|x| x as f32)).collect());
            numbers.ok_or_else(|| format!("{key} is no list of numbers"))
        };
        Ok(vec![
            (names::SHORT_FACTORS.gguf, list("short_factor")?),
            (names::LONG_FACTORS.gguf, list("long_factor")?),
        ])
    }

    /// Divisors of Llama 3.1: frequencies of wave lengths below `original / high` stay, those above `original / low` are divided by `factor`, and those between
    /// are interpolated.
    fn llama3(&self, [factor, low, high, original]: [f64; 4], theta: f64) -> Result<Vec<f32>, String> {
        let dim = self.head_dim()?;
        // Nobody has heads of more; a list is not made longer than that by a file.
        if dim > 1 << 16 {
            return Err(format!("heads of {dim} elements are too large"));
        }
        let divisor = |i: u32| {
            let wave = 2.0 * std::f64::consts::PI * theta.powf(f64::from(2 * i) / f64::from(dim));
            let smooth = (original / wave - low) / (high - low);
            (1.0 / ((1.0 - smooth.clamp(0.0, 1.0)) / factor + smooth.clamp(0.0, 1.0))) as f32
        };
        if high <= low {
            return Err(format!("high_freq_factor is {high}: it must be above low_freq_factor, {low}"));
        }
        Ok((0..dim / 2).map(divisor).collect())
    }

    /// Windows of all layers, or of those between others; elsewhere the context ends where not every position would be seen.
    fn window(&mut self, architecture: Architecture, layers: u32, context: u32) -> Result<(), String> {
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
        let period = if let Some(kinds) = self.get("layer_types").and_then(Json::as_array) {
            let full = |kind: &Json| kind.as_str() == Some("full_attention");
            let found = kinds.iter().position(full).map_or(0, |at| at as u32 + 1);
            let fits = |(i, kind): (usize, &Json)| full(kind) == (found > 0 && i as u32 % found == found - 1);
            if kinds.len() != layers as usize || !kinds.iter().enumerate().all(fits) {
                return Err("layer_types are not periodical, which is not supported".to_owned());
            }
            Some(found)
        } else {
            self.size("sliding_window_pattern")?
        };
        match period {
            Some(period) => self.set("attention.sliding_window_pattern", Value::U32(period)),
            None => Ok(()),
        }
    }

    /// Linear attention: what has no key of the same meaning in GGUF files.
    fn linear_attention(&mut self, architecture: Architecture) -> Result<(), String> {
        if !matches!(architecture.family().recurrent, Recurrent::Grouped { .. } | Recurrent::Tiled { .. }) {
            return Ok(());
        }
        let [heads, size] = ["linear_num_value_heads", "linear_value_head_dim"].map(|key| self.size(key));
        if let (Some(heads), Some(size)) = (heads?, size?) {
            self.set("ssm.inner_size", Value::U32(heads.saturating_mul(size)))?;
        }
        let Some(kinds) = self.get("layer_types").and_then(Json::as_array) else { return Ok(()) };
        let linear = |kind: &Json| match kind.as_str() {
            Some("linear_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => {
                Err(format!("layer_types has {kind}: only linear_attention and full_attention are supported"))
            }
        };
        let linear = kinds.iter().map(linear).collect::<Result<Vec<_>, _>>()?;
        let key = format!("{}.attention.recurrent_layers", self.prefix);
        let linear = linear.into_iter().map(Value::Bool);
        self.writer.set_array(&key, ValueType::Bool, linear).map_err(|e| e.to_string())
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

/// Sets the metadata of a model with this configuration; the other two files may be null.
///
/// # Errors
/// A reason, with the name of a value. What is wrong with sizes is found where metadata are read.
pub(super) fn metadata(
    [json, generation, tokenizer]: [&Json; 3],
    writer: &mut Writer,
) -> Result<Told, String> {
    let kind = json.get("model_type").and_then(Json::as_str).unwrap_or_default();
    let kinds = |a: &Architecture| a.family().checkpoints;
    let Some(&architecture) = Architecture::ALL.iter().find(|a| kinds(a).contains(&kind)) else {
        let names: Vec<_> = Architecture::ALL.iter().flat_map(kinds).copied().collect();
        let found: String = kind.chars().take(64).collect();
        return Err(format!("model_type is {found:?}: checkpoints are supported of {}", names.join(", ")));
    };
    let mut source = Source { json, writer, prefix: architecture.name() };
    source
        .writer
        .set("general.architecture", Value::String(architecture.name()))
        .map_err(|e| e.to_string())?;
    for (key, usual) in USUAL {
        if let Some(found) = source.get(key).filter(|found| !usual.contains(&&*found.to_string())) {
            return Err(format!("{key} is {found}, which is not supported"));
        }
    }
    source.activation(architecture)?;
    for (key, to) in SIZES {
        if let Some(size) = source.size(key)? {
            source.set(to, Value::U32(size))?;
        }
    }
    for (key, to) in NUMBERS {
        if let Some(number) = Source::number(json, key)? {
            source.set(to, Value::F32(number as f32))?;
        }
    }
    if let Some(scalar) = Source::number(json, "query_pre_attn_scalar")? {
        source.set("attention.scale", Value::F32(scalar.powf(-0.5) as f32))?;
    }
    source.experts(architecture)?;
    source.scales(architecture)?;
    let layers = source.size("num_hidden_layers")?.unwrap_or(0);
    let context = source.size("max_position_embeddings")?.unwrap_or(0);
    let divisors = source.rope(architecture, [layers, context])?;
    source.window(architecture, layers, context)?;
    source.linear_attention(architecture)?;
    source.tokens(generation, tokenizer)?;
    let tied = source.get("tie_word_embeddings").and_then(Json::as_bool);
    Ok(Told { architecture, tied, divisors })
}
