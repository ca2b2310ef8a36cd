//! Reading a [`Config`] from a file's metadata, and from the row of its architecture.

use gllm_kernels_core::{RopePairing, RopeScaling};

use super::family::{Family, LocalRotation, Recurrent, Window, Windows, Without};
use super::heads::Heads;
use super::keys::{Metadata, LARGEST};
use super::mixture::Networks;
use super::names::Naming;
use super::recurrence::UNNORMED;
use super::source::{bad_tensor, numbers, Files};
use super::{
    names, Architecture, Classifier, Config, Gate, Layer, LongFactors, ModelError, Norm, Pooling, Recurrence,
    Rope, Temperature,
};
use crate::gguf::{Array, Tensor, Value};

const PER_LAYER: &str = ".embedding_length_per_layer_input";
/// No key of llama.cpp's, whose files have embeddings for each layer of all tokens.
const PER_LAYER_TOKENS: &str = ".vocab_size_per_layer_input";
const LOGIT_SOFTCAP: &str = ".final_logit_softcapping";
const POOLING: &str = ".pooling_type";
const WINDOW: &str = ".attention.sliding_window";
/// The exponent of the slopes of linear biases that models are trained with.
const ALIBI: f32 = 8.0;

/// Texts of tokens that end a turn or a text, beside those that the metadata name. (The list of llama.cpp.)
const STOPS: [&str; 16] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
];

impl<'a> Metadata<'a> {
    fn scaling(&self, context: usize) -> Result<(RopeScaling, Option<f64>), ModelError> {
        const KIND: &str = ".rope.scaling.type";
        let factor = match self.positive_or_none(".rope.scaling.factor")? {
            None => self.positive_or_none(".rope.scale_linear")?,
            found => found,
        };
        let attention_factor = self.positive(".rope.scaling.attn_factor")?;
        let kind = self.str(KIND)?.unwrap_or("linear");
        let factor_needed = || self.needed(".rope.scaling.factor", factor);
        let scaling = match kind {
            "none" => RopeScaling::None,
            // Its divisors are tensors.
            "longrope" => RopeScaling::None,
            // Nothing said means nothing done.
            "linear" => factor.map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor }),
            "yarn" => RopeScaling::Yarn {
                factor: factor_needed()?,
                beta_fast: self.positive(".rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: self.positive(".rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                original_context: self
                    .size_or_none(".rope.scaling.original_context_length")?
                    .unwrap_or(context) as f64,
            },
            _ => return Err(self.bad(KIND, Value::String(kind), "none, linear, yarn or longrope")),
        };
        let of_yarn = |times: f64| match scaling {
            RopeScaling::Yarn { factor, .. } if factor > 1.0 => 0.1 * times * factor.ln() + 1.0,
            _ => 1.0,
        };
        // Files have what comes on top of YaRN's own factor, and a multiple of that by which both are divided.
        let divisor = self.positive_or_none(".rope.scaling.yarn_log_multiplier")?.map(of_yarn);
        let said = attention_factor.is_some() || divisor.is_some();
        let factor = attention_factor.unwrap_or(1.0) * of_yarn(1.0) / divisor.unwrap_or(1.0);
        Ok((scaling, said.then_some(factor)))
    }

    /// The base of the frequencies of pairs in so many elements; Hunyuan's files may have an exponent beside it, by which texts may be longer.
    fn rope_base(&self, dims: usize) -> Result<f64, ModelError> {
        const ALPHA: &str = ".rope.scaling.alpha";
        let base = self.above_one(".rope.freq_base")?.unwrap_or(10_000.0);
        let Some(alpha) = self.positive_or_none(ALPHA)?.filter(|_| dims > 2) else { return Ok(base) };
        let scaled = base * alpha.powf(dims as f64 / (dims - 2) as f64);
        match scaled > 1.0 && scaled.is_finite() {
            true => Ok(scaled),
            false => Err(ModelError::BadValue {
                key: self.key(ALPHA),
                value: alpha.to_string(),
                expected: format!("a factor with which the base {base} stays above 1 and finite"),
            }),
        }
    }

    /// The position embeddings that layers use, the first of which is `global`, and which layer uses which of them within which window, where `local_dims` elements are
    /// rotated; `mixtures` says which have experts.
    fn layers(
        &self,
        family: &Family,
        (global, local_dims): (Rope, usize),
        mixtures: Vec<bool>,
    ) -> Result<(Vec<Rope>, Vec<Layer>), ModelError> {
        let layer = |experts| Layer { experts, ..Layer::default() };
        let mut all: Vec<_> = mixtures.into_iter().map(layer).collect();
        let mut ropes = vec![global];
        if let Some(period) = family.unrotated_period {
            ropes.push(Rope { dims: 0, factors: None, ..ropes[0].clone() });
            all.iter_mut().skip(period - 1).step_by(period).for_each(|layer| layer.rope = 1);
        }
        let (period, usual, rotation) = match &family.windows {
            Windows::No => return Ok((ropes, all)),
            Windows::All => {
                let window = self.size_or_none(WINDOW)?;
                all.iter_mut().for_each(|layer| layer.window = window);
                return Ok((ropes, all));
            }
            Windows::Periodic { period, without, usual, rotation } => ((*period, *without), usual, rotation),
        };
        let window = match usual {
            Window::None => self.size_or_none(WINDOW)?,
            Window::Size(size) => Some(self.size(WINDOW)?.unwrap_or(*size)),
            Window::Needed => Some(self.needed_size(WINDOW)?),
        };
        // Windows of encoders have so many positions in all, half of them on each side.
        let window = window.map(|window| if family.encoder { window / 2 + 1 } else { window });
        let Some(window) = window else { return Ok((ropes, all)) };
        let said = self.above_one(".rope.freq_base_swa")?;
        let local = match rotation {
            LocalRotation::Unscaled(usual) => {
                let (scaling, factors, attention_factor) = (RopeScaling::None, None, None);
                let theta = said.or(*usual).unwrap_or(ropes[0].theta);
                Rope { theta, dims: local_dims, scaling, factors, attention_factor, ..ropes[0] }
            }
            _ => Rope { theta: said.unwrap_or(ropes[0].theta), ..ropes[0].clone() },
        };
        let mut rope = ropes.iter().position(|rope| *rope == local).unwrap_or(ropes.len());
        if rope == ropes.len() {
            ropes.push(local);
        }
        if *rotation == LocalRotation::Alone {
            // Divisors of frequencies are of the first one.
            ropes.swap(0, rope);
            ropes.truncate(1);
            ropes.push(Rope { dims: 0, factors: None, ..ropes[0].clone() });
            all.iter_mut().for_each(|layer| layer.rope = 1);
            rope = 0;
        }
        let local = self.local_layers(all.len(), period)?;
        for (layer, _) in all.iter_mut().zip(local).filter(|(_, local)| *local) {
            (layer.window, layer.rope) = (Some(window), rope);
        }
        Ok((ropes, all))
    }

    /// The numbers of each layer's activation: files have one for all layers, or one for each.
    fn xielu(&self, layers: &mut [Layer]) -> Result<(), ModelError> {
        let number = |v: Value<'_>| v.as_f64().map(|x| x as f32).filter(|x| x.is_finite());
        for (key, usual) in [("xielu.beta", 0.5), ("xielu.eps", -1e-6)] {
            let near = |v: Value<'_>| number(v).is_some_and(|x| (x - usual).abs() <= 1e-2 * f32::abs(usual));
            let other = |v: Value<'_>| match v.as_array() {
                Some(each) => !each.iter().all(near),
                None => !near(v),
            };
            self.refuse(key, &format!("{usual} in all layers"), other)?;
        }
        for (i, key) in ["xielu.alpha_p", "xielu.alpha_n"].into_iter().enumerate() {
            let value = self.needed(key, self.get(key))?;
            let all: Option<Vec<f32>> = match value {
                Value::Array(each) => each.iter().map(number).collect(),
                one => number(one).map(|x| vec![x; layers.len()]),
            };
            let expected = format!("a finite number, or one for each of the {} layers", layers.len());
            let all = all.filter(|all| all.len() == layers.len());
            let all = all.ok_or_else(|| self.bad(key, value, expected))?;
            // Numbers are stored as what their softplus is; that below 0 lacks 1/2.
            let softplus = |x: f32| x.max(0.0) + (-x.abs()).exp().ln_1p() + [0.0, 0.5][i];
            layers
                .iter_mut()
                .zip(all)
                .for_each(|(layer, x)| layer.xielu.get_or_insert([0.0; 2])[i] = softplus(x));
        }
        Ok(())
    }

    /// Which layers have a window: as the file says of each, or all but one of each period; without periods all.
    pub(super) fn local_layers(
        &self,
        layers: usize,
        (period, without): (u64, Without),
    ) -> Result<Vec<bool>, ModelError> {
        const PATTERN: &str = ".attention.sliding_window_pattern";
        if let Some(each) = self.get(PATTERN).and_then(|v| v.as_array()) {
            let all: Option<Vec<bool>> = each.iter().map(|v| v.as_bool()).collect();
            let expected = format!("one integer, or whether each of the {layers} layers has a window");
            let wrong = || self.bad(PATTERN, Value::Array(each), expected);
            return all.filter(|all| all.len() == layers).ok_or_else(wrong);
        }
        let period = self.read(PATTERN, "one integer", |v| v.as_u64())?.unwrap_or(period);
        let other = if without == Without::First { 0 } else { period.saturating_sub(1) };
        Ok((0..layers as u64).map(|layer| period == 0 || layer % period != other).collect())
    }

    /// Factors of embeddings, and of logits, and what norms add to the mean of squares if that is `eps`. Where what layers add has a factor, too, it is in the first
    /// and the last of them: see [`Config`].
    fn scales(&self, family: &Family, [layers, width]: [usize; 2], eps: f64) -> Result<[f32; 3], ModelError> {
        const ADDED: &str = ".residual_scale";
        let width = width as f64;
        let Some(usual) = family.scales else {
            let embedding = match family.embedding_by_width {
                true => self.positive_or_none(".embedding_scale")?.unwrap_or(width.sqrt()),
                false => 1.0,
            };
            let logits = if family.logit_factor { self.positive_or_none(".logit_scale")? } else { None };
            return Ok([embedding, logits.unwrap_or(1.0), eps].map(|x| x as f32));
        };
        let [embedding, added, divisor] = usual(layers as f64, width);
        let embedding = self.positive_or_none(".embedding_scale")?.unwrap_or(embedding);
        let added = self.positive_or_none(ADDED)?.unwrap_or(added);
        let divisor = self.positive_or_none(".logit_scale")?.unwrap_or(divisor);
        let scales = [embedding / added, 1.0 / divisor, eps / (added * added)].map(|x| x as f32);
        match scales.iter().all(|x| x.is_normal()) {
            true => Ok(scales),
            false => Err(ModelError::BadValue {
                key: self.key(ADDED),
                value: added.to_string(),
                expected: format!("a factor that {embedding} and {eps} can be divided by"),
            }),
        }
    }

    /// Kinds of tokens whose rows are in the file.
    fn token_types(&self, files: &Files<'_>, family: &Family) -> Result<usize, ModelError> {
        let there = files.named(&names::TOKEN_TYPES).is_some();
        match family.encoder && (there || family.architecture == Architecture::JinaBertV2) {
            true => self.needed_size("tokenizer.ggml.token_type_count"),
            false => Ok(0),
        }
    }

    fn pooling(&self) -> Result<Option<Pooling>, ModelError> {
        const KINDS: [Option<Pooling>; 5] =
            [None, Some(Pooling::Mean), Some(Pooling::First), Some(Pooling::Last), None];
        let kind = |v: Value<'_>| KINDS.get(usize::try_from(v.as_u64()?).ok()?).copied();
        let expected = "0 to 4: none, mean, first, last, or that the model ranks texts";
        Ok(self.read(POOLING, expected, kind)?.flatten())
    }

    /// The classifier, if the file says that the model ranks texts. Files that do not name labels have one.
    fn classifier(
        &self,
        files: &Files<'_>,
        (encoder, vocabulary): (bool, usize),
    ) -> Result<Option<Classifier>, ModelError> {
        const LABELS: &str = ".classifier.output_labels";
        /// How files number ranking among the kinds of pooling.
        const RANK: u64 = 4;
        let Some(value) = self.get(POOLING).filter(|v| v.as_u64() == Some(RANK)) else { return Ok(None) };
        if encoder {
            let expected = "0 to 3: encoders that rank texts are not supported";
            return Err(self.bad(POOLING, value, expected));
        }
        // A label is a row of logits like a token, and may be sampled as one.
        let fits = |v: Value<'_>| v.as_array().map(|a| a.len()).filter(|n| (1..=vocabulary).contains(n));
        let expected =
            format!("an array of 1 to {vocabulary} labels, no more than the vocabulary has tokens");
        let labels = self.read(LABELS, &expected, fits)?.unwrap_or(1);
        let bias = files.named(&names::CLASSIFIER_BIAS).map(numbers).transpose()?;
        Ok(Some(Classifier { labels, bias }))
    }

    /// Tokens that end a text: those with a key, and those with a text that says so.
    fn stop_tokens(&self, vocabulary: usize, tokens: Option<Array<'a>>) -> Result<Vec<u32>, ModelError> {
        /// Tokens of control, and of the user.
        const SPECIAL: [i64; 2] = [3, 4];
        const ENDS_OF_TURNS: [&str; 2] = ["<|return|>", "<|call|>"];
        const END_OF_MESSAGE: &str = "<|end|>";
        let mut stops = Vec::new();
        for key in ["eos", "eot", "eom"] {
            stops.extend(self.token(&format!("tokenizer.ggml.{key}_token_id"), vocabulary)?);
        }
        let types = self.array("tokenizer.ggml.token_type")?;
        if let (Some(tokens), Some(types)) = (tokens, types) {
            let special = tokens.iter().zip(types.iter()).enumerate().filter_map(|(id, (text, of))| {
                let text = text.as_str().filter(|text| STOPS.contains(text))?;
                of.as_i64().is_some_and(|of| SPECIAL.contains(&of)).then_some((id as u32, text))
            });
            let special: Vec<_> = special.collect();
            // Where a turn ends with its last message or with a call, others may follow a message's end.
            let by_turns = ENDS_OF_TURNS.iter().all(|end| special.iter().any(|(_, text)| text == end));
            let ends = |&&(_, text): &&(u32, &str)| !by_turns || text != END_OF_MESSAGE;
            stops.extend(special.iter().filter(ends).map(|(id, _)| id));
        }
        stops.sort_unstable();
        stops.dedup();
        Ok(stops)
    }

    /// The token that begins a text. Files that do not say whether they want one mean what their kind of tokenizer does.
    fn bos(&self, vocabulary: usize) -> Result<Option<u32>, ModelError> {
        let token = match self.token("tokenizer.ggml.bos_token_id", vocabulary)? {
            // What begins the texts of encoders has a name of its own.
            None => self.token("tokenizer.ggml.cls_token_id", vocabulary)?,
            token => token,
        };
        let wanted = match self.bool("tokenizer.ggml.add_bos_token")? {
            // The first files of Gemma 4 say that there is none.
            _ if self.str("tokenizer.ggml.model")? == Some("gemma4") => true,
            Some(wanted) => wanted,
            None => match self.str("tokenizer.ggml.model")? {
                Some("llama" | "bert") => true,
                Some("gpt2") => {
                    let pre = self.str("tokenizer.ggml.pre")?.unwrap_or_default();
                    ["llama3", "llama-v3", "llama-bpe", "falcon-h1"].contains(&pre)
                }
                _ => false,
            },
        };
        Ok(token.filter(|_| wanted))
    }
}

impl Config {
    pub(super) fn read(files: &Files<'_>) -> Result<Self, ModelError> {
        const ARCHITECTURE: &str = "general.architecture";
        let file = files.first();
        let any = Metadata { file, prefix: "" };
        let name = any.str(ARCHITECTURE)?;
        let name = any.needed(ARCHITECTURE, name)?;
        let unknown = || ModelError::Architecture { found: name.chars().take(64).collect() };
        let architecture =
            Architecture::ALL.iter().copied().find(|a| a.name() == name).ok_or_else(unknown)?;
        let meta = Metadata { file, prefix: architecture.name() };
        let family = architecture.family();
        let encoder = family.encoder;
        let expected = format!("{}: models of this architecture are made so", !encoder);
        meta.refuse(".attention.causal", &expected, |v| v.as_bool() != Some(!encoder))?;

        const PREDICTORS: &str = ".nextn_predict_layers";
        let layers = meta.needed_size(".block_count")?;
        // A layer has six tensors at least, or a network alone three: nothing is allocated for layers that cannot be there.
        let least = match family.networks_are_layers {
            true => 3,
            // Layers may have nothing, which files say of each.
            false if family.uneven => 1,
            false => 6,
        };
        if layers > files.tensors_len() / least {
            let expected = format!("what the {} tensors of the file suffice for", files.tensors_len());
            return Err(ModelError::BadValue {
                key: meta.key(".block_count"),
                value: layers.to_string(),
                expected,
            });
        }
        let predictors = meta.size_or_none(PREDICTORS)?.unwrap_or(0);
        // In GGUF files, they are among the layers.
        let layers = match files.naming() {
            Naming::Gguf if predictors < layers => layers - predictors,
            Naming::Gguf => {
                return Err(meta.bad(
                    PREDICTORS,
                    Value::U64(predictors as u64),
                    format!("below the {layers} layers"),
                ))
            }
            Naming::HuggingFace => layers,
        };
        // What a file has of a value for each layer is for those behind them, too.
        let all = match files.naming() {
            Naming::Gguf => layers + predictors,
            Naming::HuggingFace => layers,
        };
        let hidden = meta.needed_size(".embedding_length")?;
        let Heads { count: heads, kv, local: local_heads, with_keys, latent: latent_attention, uneven } =
            meta.heads((family, files), [all, hidden])?;
        let (feed_forward, counted) = match &uneven {
            Some(uneven) => (Some(uneven.first()[1]), uneven.counted()),
            None => meta.layers_and_networks(family, [layers, all])?,
        };
        let (layers, with_keys): (_, Vec<bool>) =
            (counted.len(), counted.iter().map(|&[layer, _]| with_keys[layer]).collect());
        let Networks { experts, intermediate, widths, mixtures } =
            meta.networks(files, family, (layers, feed_forward))?;
        let context = meta.needed_size(".context_length")?;
        let (norm, eps_key) = match family.layer_norms {
            true => (Norm::Layer, ".attention.layer_norm_epsilon"),
            false => (Norm::Rms, ".attention.layer_norm_rms_epsilon"),
        };
        let norm_eps = match meta.positive(eps_key)? {
            None if family.networks_are_layers => meta.positive(".attention.layer_norm_epsilon")?,
            // Files of Phi's mixtures call it so.
            None if family.layer_norms => meta.positive(".attention.layer_norm_rms_epsilon")?,
            eps => eps,
        };
        let norm_eps = meta.needed(eps_key, norm_eps)?;

        let rows = |name: &names::Name| files.named(name)?.rows().filter(|n| (1..=LARGEST).contains(n));
        let vocabulary = match meta.size(".vocab_size")? {
            Some(size) => size,
            None => match rows(&names::EMBEDDING).or_else(|| rows(&names::OUTPUT)) {
                Some(rows) => rows as usize,
                None => {
                    return Err(bad_tensor(names::EMBEDDING.gguf, "is missing, or has no rows".to_owned()))
                }
            },
        };
        let tokens = meta.array("tokenizer.ggml.tokens")?;
        if let Some(tokens) = tokens.filter(|t| t.len() > vocabulary) {
            let expected = format!("at most the vocabulary's {vocabulary}");
            return Err(meta.bad("tokenizer.ggml.tokens", Value::Array(tokens), expected));
        }

        let classifier = meta.classifier(files, (encoder, vocabulary))?;

        let pairing = family.pairs.map(|pairs| match files.naming() {
            Naming::Gguf => pairs.gguf,
            Naming::HuggingFace => pairs.checkpoint,
        });
        let still = family.rotation_is_trained && meta.bool(".rope.scaling.finetuned")? == Some(false);
        let by_distance = family.alibi || family.alibi_layers == Some(layers);
        let dims = match pairing.filter(|_| !still && !by_distance) {
            Some(_) => meta.rotated(".rope.dimension_count", kv.dim)?,
            None => 0,
        };
        let local_dims = match local_heads {
            Some(local) => meta.rotated(".rope.dimension_count_swa", local.dim)?,
            None => dims,
        };
        let (scaling, mut attention_factor) = meta.scaling(context)?;
        let mut score_factor = 1.0;
        if latent_attention.is_some() {
            let [of_angles, of_scores] = meta.latent_factors(scaling)?;
            (attention_factor, score_factor) = (Some(of_angles), of_scores);
        }
        let divisors = |name: &names::Name| {
            let read = |tensor: Tensor<'_>| {
                let factors = numbers(tensor)?;
                let fits = factors.len() == dims / 2 && factors.iter().all(|&f| f > 0.0);
                let expected =
                    || bad_tensor(tensor.name(), format!("does not have {} positive numbers", dims / 2));
                fits.then_some(factors).ok_or_else(expected)
            };
            files.named(name).map(read).transpose()
        };
        let (short, long) = (divisors(&names::SHORT_FACTORS)?, divisors(&names::LONG_FACTORS)?);
        let above = meta.size_or_none(".rope.scaling.original_context_length")?.unwrap_or(context);
        let (factors, long_factors) = match (short, long) {
            (Some(short), Some(factors)) => (Some(short), Some(LongFactors { above, factors })),
            (None, None) => (divisors(&names::ROPE_FACTORS)?, None),
            _ => {
                let (one, other) = (names::SHORT_FACTORS.gguf, names::LONG_FACTORS.gguf);
                return Err(bad_tensor(one, format!("is there without {other}, or the other way round")));
            }
        };
        let theta = meta.rope_base(dims)?;
        // Norms behind the rotation take every factor away.
        let attention_factor = if family.qk_norm_behind { Some(1.0) } else { attention_factor };
        let pairing = pairing.unwrap_or(RopePairing::HalfSplit);
        let global = Rope { theta, dims, pairing, scaling, factors, attention_factor };
        let (ropes, mut layer) = meta.layers(family, (global, local_dims), mixtures)?;
        layer.iter_mut().zip(widths).for_each(|(layer, width)| layer.intermediate = Some(width));
        if family.gate == Gate::Xielu {
            meta.xielu(&mut layer)?;
        }
        let streams = meta.streams(family, files)?;
        if streams.is_some() {
            meta.sparsity(&mut layer)?;
        }
        let per_layer = match family.local_heads {
            // Streams have them.
            true if family.streams => Some(meta.needed_size(PER_LAYER)?),
            true => meta.size_or_none(PER_LAYER)?,
            false => None,
        };
        let per_layer_vocabulary = meta.size(PER_LAYER_TOKENS)?.unwrap_or(vocabulary).min(vocabulary);
        let logit_softcap = match meta.get(LOGIT_SOFTCAP) {
            None => family.logit_softcap,
            Some(_) => meta.positive_or_none(LOGIT_SOFTCAP)?,
        };
        let values_are_keys = meta.single_layers(files, family, &mut layer)?;
        let recurrence = meta.recurrence((family, files), (hidden, &with_keys), &mut layer)?;
        for (layer, [mixer, network]) in layer.iter_mut().zip(&counted) {
            layer.without_network = match family.recurrent {
                Recurrent::Beside => layer.joined,
                Recurrent::Alone => true,
                _ => family.networks_are_layers && mixer == network,
            };
            layer.experts &= !layer.without_network;
        }
        if let Some(uneven) = &uneven {
            uneven.set(&counted, &mut layer);
        }
        let head_scale = match family.scores_by_width == Some(layers) {
            true => hidden / heads,
            false if family.unscaled_scores => 1,
            false => latent_attention.map_or(kv.dim, |latent| latent.query()),
        };
        let scale = meta.positive_or_none(".attention.scale")?;
        let attention_scale = scale.unwrap_or_else(|| score_factor / (head_scale as f64).sqrt()) as f32;

        let state_eps = match recurrence {
            Some(Recurrence::Linear(of)) if !of.normed => UNNORMED * UNNORMED,
            // What the code of MiniCPM 3 has there, which no file says.
            _ if architecture == Architecture::MiniCpm3 => 1e-6,
            _ => norm_eps as f32,
        };
        let [embedding_scale, logit_scale, norm_eps] = meta.scales(family, [layers, hidden], norm_eps)?;

        // It is 1 where texts are no longer than those of the first training, unless a file says otherwise.
        let said = meta.size_or_none(".attention.temperature_length")?;
        let temperature = meta.positive_or_none(".attention.temperature_scale")?;
        let temperature = temperature
            .filter(|_| family.longest.is_none())
            .map(|scale| Temperature { scale: scale as f32, length: said.unwrap_or(above).max(1) });
        let longest = family.longest.map(|usual| said.unwrap_or(usual));
        // Of what a decoder continues, too, each position needs its row.
        let longest = longest.or((family.position_embeddings && !encoder).then_some(context));

        let has = |name: &names::Name| files.named(name).is_some();
        let one_norm = !has(&names::FFN_NORM) && !has(&names::SECOND_NORM);
        let shared_norm = family.shared_norm || family.some_parallel && one_norm;
        let gate = |v: Value<'_>| v.as_str().and_then(Gate::named);
        Ok(Self {
            architecture,
            vocabulary,
            hidden,
            layers,
            numbers: counted,
            predictors,
            heads,
            kv_heads: kv.count,
            head_dim: kv.dim,
            local_heads,
            per_layer,
            per_layer_vocabulary,
            streams,
            intermediate,
            experts,
            context: longest.map_or(context, |longest| context.min(longest)),
            longest,
            causal: !encoder,
            position_embeddings: family.position_embeddings,
            token_types: meta.token_types(files, family)?,
            norm,
            norms_unweighted: family.norms_unweighted,
            norm_biases: family.norm_biases,
            input_norms: family.input_norms && !family.residual_norms,
            // Of architectures whose layers share a norm, all models are parallel.
            parallel: shared_norm || family.parallel && meta.bool(".use_parallel_residual")?.unwrap_or(true),
            shared_norm,
            residual_norms: family.residual_norms,
            embedding_norm: family.embedding_norm,
            norm_eps,
            state_eps,
            embedding_scale,
            logit_scale,
            attention_scale,
            temperature,
            attention_softcap: meta.positive_or_none(".attn_logit_softcapping")?.map(|x| x as f32),
            logit_softcap: logit_softcap.map(|x| x as f32),
            alibi: by_distance.then_some(ALIBI),
            gate: meta.read(".hidden_activation", &Gate::names(&Gate::NAMED), gate)?.unwrap_or(family.gate),
            gated: family.gated,
            up_bias: family.up_bias,
            down_bias: family.down_bias || encoder && has(&names::DOWN_BIAS),
            // Most files have what is multiplied together in one matrix, but for some of the same models it is apart.
            fused_qkv: recurrence.is_none() && latent_attention.is_none() && has(&names::QKV)
                || family.fused_qkv && !has(&names::Q),
            fused_gate_up: family.fused_gate_up && !has(&names::FEED_FORWARD[0]),
            fused_experts: files.have_fused_experts(),
            qk_norm: match family.qk_norm_unweighted {
                // Of models with so many experts queries and keys are not normed, which no key of llama.cpp's says.
                true => meta.bool(".attention.qk_norm")?.unwrap_or(experts.is_none_or(|of| of.count != 128)),
                false => family.qk_norm || family.some_qk_norm && has(&names::Q_NORM),
            },
            qk_norm_unweighted: family.qk_norm_unweighted,
            value_norm: family.value_norm,
            values_are_keys,
            qk_norm_behind: family.qk_norm_behind,
            qk_norm_each: family.qk_norm_each,
            qk_norm_whole: family.qk_norm_whole,
            post_norms: family.post_norms,
            attention_bias: latent_attention.is_none()
                && (family.attention_bias || has(&names::Q_BIAS) || has(&names::QKV_BIAS)),
            attention_clamp: meta.positive_or_none(".attention.clamp_kqv")?.map(|x| x as f32),
            attention_output_bias: family.attention_output_bias
                || encoder && has(&names::ATTENTION_OUTPUT_BIAS),
            attention_gates: family.gates_apart
                || matches!(family.recurrent, Recurrent::Grouped { .. } | Recurrent::Tiled { .. }),
            gates_apart: family.gates_apart,
            recurrence,
            latent_attention,
            latent_both: files.latent_in_one(architecture),
            attention_sinks: family.attention_sinks,
            ffn_norm_is_post_attention: family.ffn_norm_is_post_attention,
            pooling: meta.pooling()?,
            dense: match encoder && has(&names::DENSE[0]) {
                true => Some(meta.needed_size(".dense_2_feat_out")?),
                false => None,
            },
            output_bias: family.output_bias || classifier.is_none() && has(&names::OUTPUT_BIAS),
            tied_embeddings: encoder || classifier.is_none() && files.named(&names::OUTPUT).is_none(),
            classifier,
            ropes,
            long_factors,
            layer,
            stop_tokens: meta.stop_tokens(vocabulary, tokens)?,
            bos: meta.bos(vocabulary)?,
        })
    }
}
